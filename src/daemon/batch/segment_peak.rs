//! The maximum number of datagrams that recently arrived as one buffer.

/// Maximum number of datagrams that recently arrived as one buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentPeak {
    /// Peaks of this span of [`SPAN_BUFFERS`] and of the span before.
    peaks: [u64; 2],
    /// Number of buffers in this span.
    buffers: u32,
}

/// Number of buffers in one span. A peak expires after two spans.
pub(super) const SPAN_BUFFERS: u32 = 1024;

impl SegmentPeak {
    /// No buffer has arrived.
    pub(super) const NONE: SegmentPeak = SegmentPeak { peaks: [1; 2], buffers: 0 };

    /// Counts a buffer of this number of datagrams.
    pub(super) fn on_buffer(&mut self, datagrams: u64) {
        if self.buffers == SPAN_BUFFERS {
            *self = SegmentPeak { peaks: [1, self.peaks[0]], buffers: 0 };
        }
        self.buffers += 1;
        self.peaks[0] = self.peaks[0].max(datagrams);
    }

    /// Returns the maximum of the last two spans; at least 1.
    pub(super) fn peak(&self) -> u64 {
        self.peaks[0].max(self.peaks[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_peak_expires_after_two_spans() {
        let mut seen = SegmentPeak::NONE;
        seen.on_buffer(64);
        let mut buffers = 1;
        while seen.peak() == 64 {
            seen.on_buffer(2);
            buffers += 1;
        }
        assert_eq!((seen.peak(), buffers), (2, 2 * SPAN_BUFFERS + 1));
    }
}
