//! RECEIVER_REPORT: how far a receiver has come with a publisher's multicasts, and how much more it can take.

use super::Malformed;
use super::header::number;
use super::reader::Reader;
use crate::message::{Dseq, Epoch};
use bytes::{BufMut, BytesMut};

/// What a datagram counts in windows beyond its UDP payload, in bytes: what the system needs around each.
pub const WINDOW_DATAGRAM_BYTES: u64 = 512;

/// A receiver tells a publisher how much it may send (W128 to W135).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +---------------+---------------+-------------------------------+
/// |  type = 0x4b  |   flags = 0   |             length            |
/// +---------------+---------------+-------------------------------+
/// |           epoch of the publisher that is told                 |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |   taken: highest dseq of its multicast stream that was read   |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |     window: bytes that the receiver can take beyond that      |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |      awaited: lowest dseq that is still awaited, or 0         |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |     dropped: what its system had no room for so far           |
/// |                                                               |
/// +---------------------------------------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverReport {
    /// The run of the publisher that is told.
    pub epoch: Epoch,
    /// The highest datagram of its multicast stream that was read from the receive buffer or that a multicast word named
    /// which was read from there. What is lost on the way does not matter here.
    pub taken: Dseq,
    /// How much more the receiver can take, where a datagram counts its UDP payload and [`WINDOW_DATAGRAM_BYTES`]. 0: nothing.
    pub window: u64,
    /// The lowest datagram that is missing and asked for, so that the publisher should still have it when it is; `None` (0 on
    /// the wire) if there is none.
    pub awaited: Option<Dseq>,
    /// What the receiver's system dropped for want of room since it started, of anybody: datagrams, or buffers of
    /// several.
    pub dropped: u64,
}

impl ReceiverReport {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<ReceiverReport, Malformed> {
        let epoch = Epoch::new(reader.u64()?).ok_or(Malformed::Epoch)?;
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
