//! What tells one datagram from all others, and what the oracle reads in a control datagram.

/// What a control datagram says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlContent {
    /// It announces its sender. Nothing else is a sign of life.
    Word {
        /// The last dseq.
        high: u64,
        /// Whether it is a BYE.
        bye: bool,
        /// The one receiver that it is for, if it is.
        receiver: Option<u64>,
        /// The token that it gives back, if it is for one receiver and has one: receiver and token.
        echo: Option<(u64, u64)>,
    },
    /// What was in datagrams.
    Manifest {
        /// The first.
        first: u64,
        /// The last.
        last: u64,
    },
    /// Nothing is known any more of datagrams up to this one of the multicast stream.
    Expired {
        /// The last that was asked for.
        last: u64,
    },
    /// Something else.
    Other,
}

/// What a datagram that travels is.
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
        /// Its counter.
        number: u64,
        /// What it says.
        says: ControlContent,
    },
    /// Not of any known epoch, or not decodable.
    Unidentified,
}
