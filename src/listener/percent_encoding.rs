//! Percent-encoding of URLs (WHATWG URL, section 1.3).

/// Decodes percent-encoded text to bytes; with `is_form`, `+` is a space (application/x-www-form-urlencoded). Returns
/// `None` if a `%` is not followed by two hexadecimal digits.
pub(crate) fn decode(text: &str, is_form: bool) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
                let (high, low) = (digit()?, digit()?);
                u8::try_from(16 * high + low).expect("two hexadecimal digits")
            }
            b'+' if is_form => b' ',
            other => other,
        });
    }
    Some(bytes)
}
