//! A command with its arguments, borrowed from the parser.

/// Range of an argument, in bytes from the start of the command.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArgumentRange {
    start: u32,
    end: u32,
}

impl ArgumentRange {
    pub(super) fn new(start: usize, end: usize) -> ArgumentRange {
        let offset = |at| u32::try_from(at).expect("a command has less than 4 GiB");
        ArgumentRange { start: offset(start), end: offset(end) }
    }

    /// Returns the offset of the first byte.
    pub(super) fn start(self) -> usize {
        self.start as usize
    }

    /// Returns the argument, whose command begins at the first of these bytes.
    #[inline]
    pub(super) fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..self.end as usize]
    }
}

/// A command, borrowed from the parser's buffer.
#[derive(Clone, Copy, Debug)]
pub struct RedisCommand<'a> {
    bytes: &'a [u8],
    spans: &'a [ArgumentRange],
}

impl<'a> RedisCommand<'a> {
    /// Creates a command with these arguments, at least one.
    pub(super) fn new(bytes: &'a [u8], spans: &'a [ArgumentRange]) -> RedisCommand<'a> {
        RedisCommand { bytes, spans }
    }

    /// Returns whether the command publishes a message.
    pub fn is_publish(&self) -> bool {
        self.is(b"PUBLISH") || self.is(b"SPUBLISH")
    }

    /// Returns whether the command begins or ends subscriptions.
    pub fn is_subscribe(&self) -> bool {
        const NAMES: [&[u8]; 6] =
            [b"SUBSCRIBE", b"PSUBSCRIBE", b"SSUBSCRIBE", b"UNSUBSCRIBE", b"PUNSUBSCRIBE", b"SUNSUBSCRIBE"];
        NAMES.iter().any(|name| self.is(name))
    }

    /// Returns whether the command has this name, ignoring case.
    #[inline]
    pub(super) fn is(&self, name: &[u8]) -> bool {
        self.arg(0).eq_ignore_ascii_case(name)
    }

    /// Returns the number of arguments including the name; at least 1.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns an argument that exists.
    #[inline]
    pub(super) fn arg(&self, index: usize) -> &'a [u8] {
        self.spans[index].of(self.bytes)
    }

    /// Returns the arguments from index `from` on.
    pub(super) fn args(self, from: usize) -> impl Iterator<Item = &'a [u8]> {
        (from..self.len()).map(move |index| self.arg(index))
    }
}

/// Parses a decimal number without `+` and without leading zeros.
#[inline]
pub(super) fn number(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_negative = digits.len() < text.len();
    match digits {
        [b'0'] if !is_negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    let mut value = 0_i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if 9 < digit {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(i64::from(digit))?;
    }
    Some(if is_negative { -value } else { value })
}
