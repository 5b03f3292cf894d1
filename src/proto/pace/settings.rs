//! Settings of pacing, and the times and sizes that publishers and receivers share.

use crate::wire::WINDOW_DATAGRAM_BYTES;
use std::time::Duration;

/// Time for which a receiver may keep a publisher below the floor. Busy hosts seldom delay a program for longer, and
/// people do not notice such a delay.
pub const PATIENCE: Duration = Duration::from_millis(200);

/// Time for which requested datagrams may delay a publisher without progress; the receiver repeats its requests many
/// times by then.
pub(super) const RESEND_PATIENCE: Duration = Duration::from_secs(1);

/// Window of a receiver that has not reported yet, in bytes as windows count: the receive buffer that Linux grants by
/// default.
pub const FIRST_WINDOW_BYTES: u64 = 64 << 10;

/// Time after a report during which its publisher counts as active, that is, as a sharer of the buffer.
pub(super) const ACTIVE: Duration = Duration::from_millis(100);

/// Sending rate policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as the system accepts datagrams, regardless of the receivers' reports.
    Off,
    /// As fast as the receivers can take it.
    Auto,
    /// As `Auto`, and at most this number of bytes of UDP payload per second.
    Rate(u64),
}

/// Settings of pacing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaceSettings {
    /// Sending rate policy.
    pub pace: Pace,
    /// Bytes per second, as windows count, below which the publisher does not wait for a receiver. At 0 it ignores only
    /// receivers that take nothing.
    pub floor: u64,
    /// Capacity of this peer's receive buffer, in bytes as windows count.
    pub room_bytes: u64,
    /// Window before the first report: [`FIRST_WINDOW_BYTES`]. Only tests use less.
    pub first_bytes: u64,
}

impl PaceSettings {
    /// Returns the settings `pace: auto` for receive buffers of `room_bytes`.
    pub fn auto(room_bytes: u64) -> PaceSettings {
        PaceSettings { pace: Pace::Auto, floor: 1 << 20, room_bytes, first_bytes: FIRST_WINDOW_BYTES }
    }
}

/// Returns the bytes that a datagram counts in windows.
pub fn cost(bytes: usize) -> u64 {
    bytes as u64 + WINDOW_DATAGRAM_BYTES
}
