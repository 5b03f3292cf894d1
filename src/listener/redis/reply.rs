//! Encoding of replies in both versions of the protocol.

use crate::listener::output_buffer::OutputBuffer;

/// Writer for the replies to a command.
pub(super) struct ReplyWriter<'a> {
    out: &'a mut OutputBuffer,
    is_resp3: bool,
    /// True if the client disabled the reply to this command (`CLIENT REPLY`).
    is_muted: bool,
}

impl<'a> ReplyWriter<'a> {
    pub(super) fn new(out: &'a mut OutputBuffer, is_resp3: bool, is_muted: bool) -> ReplyWriter<'a> {
        ReplyWriter { out, is_resp3, is_muted }
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        if !self.is_muted {
            self.out.put(bytes);
        }
    }

    /// Writes a type byte, a number and the end of the line.
    #[inline]
    fn head(&mut self, kind: u8, value: u64) {
        let mut text = [0; 24];
        let start = head(&mut text, kind, value);
        self.put(&text[start..]);
    }

    pub(super) fn simple(&mut self, text: &str) {
        self.put(b"+");
        self.put(text.as_bytes());
        self.put(b"\r\n");
    }

    pub(super) fn ok(&mut self) {
        self.put(b"+OK\r\n");
    }

    /// Writes an error, which begins with its code. Line ends in the text become spaces.
    pub(super) fn error(&mut self, text: impl AsRef<[u8]>) {
        let text: Vec<u8> =
            text.as_ref().iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect();
        self.put(b"-");
        self.put(&text);
        self.put(b"\r\n");
    }

    #[inline]
    pub(super) fn integer(&mut self, value: u64) {
        self.head(b':', value);
    }

    /// Writes an integer that may be negative.
    pub(super) fn negative(&mut self, value: i64) {
        self.put(format!(":{value}\r\n").as_bytes());
    }

    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.head(b'$', bytes.len() as u64);
        self.put(bytes);
        self.put(b"\r\n");
    }

    /// Writes a text for people.
    pub(super) fn text(&mut self, text: &str) {
        if !self.is_resp3 {
            return self.bulk(text.as_bytes());
        }
        self.head(b'=', text.len() as u64 + 4);
        self.put(b"txt:");
        self.put(text.as_bytes());
        self.put(b"\r\n");
    }

    pub(super) fn null(&mut self) {
        self.put(if self.is_resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    pub(super) fn array(&mut self, len: usize) {
        self.head(b'*', len as u64);
    }

    pub(super) fn set(&mut self, len: usize) {
        self.head(if self.is_resp3 { b'~' } else { b'*' }, len as u64);
    }

    /// Begins a map of `len` pairs.
    pub(super) fn map(&mut self, len: usize) {
        if self.is_resp3 { self.head(b'%', len as u64) } else { self.array(2 * len) }
    }

    /// Writes the confirmation of a subscription: its kind, its name and the current number. `CLIENT REPLY` does not
    /// suppress it.
    pub(super) fn subscription(&mut self, kind: &str, name: Option<&[u8]>, count: usize) {
        let is_muted = std::mem::take(&mut self.is_muted);
        self.head(push(self.is_resp3), 3);
        self.bulk(kind.as_bytes());
        match name {
            Some(name) => self.bulk(name),
            None => self.null(),
        }
        self.integer(count as u64);
        self.is_muted = is_muted;
    }
}

/// Returns the first byte of a push message.
pub(super) fn push(is_resp3: bool) -> u8 {
    if is_resp3 { b'>' } else { b'*' }
}

/// Writes a type byte, a number and the end of the line at the end of `text`. Returns the start offset.
#[inline]
fn head(text: &mut [u8; 24], kind: u8, mut value: u64) -> usize {
    let mut at = text.len() - 2;
    text[at..].copy_from_slice(b"\r\n");
    loop {
        at -= 1;
        text[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    at -= 1;
    text[at] = kind;
    at
}

/// Appends a type byte, a number and the end of the line.
#[inline]
pub(super) fn put_head(bytes: &mut Vec<u8>, kind: u8, value: usize) {
    let mut text = [0; 24];
    let start = head(&mut text, kind, value as u64);
    bytes.extend_from_slice(&text[start..]);
}

/// Appends a byte string with its length.
pub(super) fn put_bulk(bytes: &mut Vec<u8>, content: &[u8]) {
    put_head(bytes, b'$', content.len());
    bytes.extend_from_slice(content);
    bytes.extend_from_slice(b"\r\n");
}
