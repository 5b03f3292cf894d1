//! A fuzz input read as a list of choices.

/// The rest of the input. Past its end, every byte reads as 0.
pub(super) struct Script<'a> {
    bytes: &'a [u8],
}

impl<'a> Script<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Script<'a> {
        Script { bytes }
    }

    /// Returns whether the input has no bytes left.
    pub(super) fn is_done(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the next bytes, at most `count`.
    pub(super) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(count.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }

    pub(super) fn u8(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.u8(), self.u8()])
    }

    /// Returns true for odd bytes.
    pub(super) fn flag(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    /// Returns one of `choices`, chosen by one byte.
    pub(super) fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.u8()) % choices.len()]
    }
}
