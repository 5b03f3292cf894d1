//! The identity of a datagram, and the content that the oracle reads from a control datagram.

/// The content of a control datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlContent {
    /// An announcement by the sender. No other control message is a sign of life.
    Announcement {
        /// Number of the last data datagram.
        high: u64,
        /// True for a BYE.
        bye: bool,
        /// The receiver, if the datagram is for a single one.
        receiver: Option<u64>,
        /// The receiver and the token echoed to it, if the datagram is for a single receiver and has a token.
        echo: Option<(u64, u64)>,
    },
    /// A manifest of datagrams of the multicast stream.
    Manifest {
        /// The first datagram.
        first: u64,
        /// The last datagram.
        last: u64,
    },
    /// A report that requested datagrams of the multicast stream are expired.
    Expired {
        /// The last expired datagram.
        last: u64,
    },
    /// Any other control message.
    Other,
}

/// The identity of a datagram in transit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramId {
    /// A datagram of a multicast stream.
    Data {
        /// Index of the stream.
        stream: usize,
        /// Its number.
        dseq: u64,
    },
    /// A datagram of a directed stream.
    Directed {
        /// Index of the stream.
        stream: usize,
        /// The receiver's epoch.
        receiver: u64,
        /// Its number.
        number: u64,
    },
    /// A control datagram.
    Control {
        /// Index of the stream.
        stream: usize,
        /// Its number.
        number: u64,
        /// Its content.
        content: ControlContent,
    },
    /// A datagram of no known epoch, or one that cannot be decoded.
    Unidentified,
}
