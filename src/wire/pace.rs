//! RECEIVER_REPORT: a receiver's progress with a publisher's multicast stream, and its receive window.

use super::DecodeError;
use super::header::number;
use super::reader::Reader;
use crate::message::{Dseq, Epoch};
use bytes::{BufMut, BytesMut};

/// Bytes that a datagram counts in receive windows beyond its UDP payload, for the overhead of the system.
pub const WINDOW_DATAGRAM_BYTES: u64 = 512;

/// Report of a receiver on how much the publisher may send (W128 to W135).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +---------------+---------------+-------------------------------+
/// |  type = 0x4b  |   flags = 0   |             length            |
/// +---------------+---------------+-------------------------------+
/// |           epoch of the publisher that gets the report         |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |   taken: highest dseq of its multicast stream that was read   |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |     window: bytes that the receiver can buffer beyond that    |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |      awaited: lowest dseq that is still awaited, or 0         |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |     dropped: datagrams that its system dropped so far         |
/// |                                                               |
/// +---------------------------------------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverReport {
    /// Epoch of the publisher to which the report is sent.
    pub epoch: Epoch,
    /// Highest datagram of the multicast stream that was read from the receive buffer, or that a multicast control
    /// message read from there announced. Losses on the way do not matter here.
    pub taken: Dseq,
    /// Receive window beyond `taken` in bytes; a datagram counts its UDP payload and [`WINDOW_DATAGRAM_BYTES`]. 0: the
    /// window is closed.
    pub window: u64,
    /// Lowest datagram that is missing and requested, which the publisher should still hold when it is requested;
    /// `None` (0 on the wire) if there is none.
    pub awaited: Option<Dseq>,
    /// Number of datagrams, or buffers of several, that the receiver's system dropped for lack of buffer space since it
    /// started, from any sender.
    pub dropped: u64,
}

impl ReceiverReport {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<ReceiverReport, DecodeError> {
        let epoch = Epoch::new(reader.u64()?).ok_or(DecodeError::Epoch)?;
        let taken = Dseq(number(reader.u64()?)?);
        let window = number(reader.u64()?)?;
        let awaited = number(reader.u64()?)?;
        let dropped = number(reader.u64()?)?;
        Ok(ReceiverReport { epoch, taken, window, awaited: Some(Dseq(awaited)).filter(|dseq| dseq.0 != 0), dropped })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_u64(self.epoch.bits());
        out.put_u64(self.taken.0);
        out.put_u64(self.window);
        out.put_u64(self.awaited.map_or(0, |dseq| dseq.0));
        out.put_u64(self.dropped);
    }
}
