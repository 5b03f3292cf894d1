//! Server-sent events (WHATWG HTML, section 9.2).

use base64::prelude::{BASE64_STANDARD, Engine as _};

/// Appends a server-sent event with this text. The text has no CR: clients take one for a line feed.
pub fn put_event(out: &mut Vec<u8>, name: &str, text: &str) {
    debug_assert!(!text.contains('\r'), "the end of a line");
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.push(b'\n');
    for line in text.split('\n') {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
    out.push(b'\n');
}

/// Appends a payload as a server-sent event: `message` with the text, or `base64` if it is no UTF-8 or has a CR.
pub fn put_payload_event(out: &mut Vec<u8>, payload: &[u8]) {
    match std::str::from_utf8(payload) {
        Ok(text) if !text.contains('\r') => put_event(out, "message", text),
        _ => put_event(out, "base64", &BASE64_STANDARD.encode(payload)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_events_are_text_or_base64() {
        for (payload, expected) in [
            (&b"17.5"[..], "event: message\ndata: 17.5\n\n"),
            (b"", "event: message\ndata: \n\n"),
            (b"a\n\nb\n", "event: message\ndata: a\ndata: \ndata: b\ndata: \n\n"),
            (b"event: loss\n\n", "event: message\ndata: event: loss\ndata: \ndata: \n\n"),
            (b"a\r", "event: base64\ndata: YQ0=\n\n"),
            (b"\xff", "event: base64\ndata: /w==\n\n"),
        ] {
            let mut out = Vec::new();
            put_payload_event(&mut out, payload);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{payload:?}");
        }
    }
}
