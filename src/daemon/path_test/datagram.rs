//! The datagrams that two doctors exchange. They are none of the protocol of peers, as their magic shows.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------------------------------------------------------+
//! |                   magic = 0x73714472 "sqDr"                   |  0
//! +---------------+---------------+---------------+---------------+
//! |  version = 1  |     kind      |    series     |       0       |  4
//! +---------------+---------------+---------------+---------------+
//! |             session, chosen at random by the prober           |  8
//! |                                                               |
//! +---------------------------------------------------------------+
//! |             cookie, chosen by the listener; 0 in HELLO        | 16
//! |                                                               |
//! +---------------------------------------------------------------+
//! |                  number within the series                     | 24
//! +---------------------------------------------------------------+
//! |            time of sending, in nanoseconds since 1970         | 28
//! |                                                               |
//! +---------------------------------------------------------------+
//! |        the body of the kind, then zeros up to the size        | 36
//! +---------------------------------------------------------------+
//! ```
//!
//! All numbers are big-endian. The listener answers each datagram with at most one, which is never longer. It answers a
//! HELLO with a COOKIE, and everything else only with the cookie of the source address. So nobody can make it send to
//! an address that is not his own.

use bytes::{Buf, BufMut, Bytes, BytesMut};

const MAGIC: u32 = 0x7371_4472;
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 36;
/// Position of the kind.
const KIND_OFFSET: usize = 5;

/// Bytes of a HELLO, and of the COOKIE that answers it.
const HELLO_BYTES: usize = HEADER_BYTES + ECHO_BYTES;
/// Bytes of the two times in the body of a COOKIE and an ANSWER.
const ECHO_BYTES: usize = 16;
/// Bytes of a series in the body of a RESULT.
const TALLY_BYTES: usize = 16;
/// Bytes of a QUERY, and of the RESULT that answers it.
const RESULT_BYTES: usize = HEADER_BYTES + SERIES_COUNT * TALLY_BYTES;

/// Bytes of the smallest probe; its answer has as many.
pub(crate) const PROBE_BYTES_MIN: usize = 64;
const _: () = assert!(HELLO_BYTES <= PROBE_BYTES_MIN);
/// Maximum bytes of a probe: more than the MTU of jumbo frames.
pub(crate) const PROBE_BYTES_MAX: usize = 16 << 10;
/// Maximum number of probes of a series.
pub(crate) const PROBES_MAX: u32 = 1000;

/// Way of a probe and of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeRoute {
    /// Unicast to the listener, answered by unicast.
    Unicast,
    /// Unicast to the listener, answered by multicast.
    MulticastBack,
    /// Multicast to the group, without an answer.
    MulticastThere,
}

/// Size of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SizeClass {
    /// Few bytes.
    Small,
    /// An IP packet as large as the MTU, which may not be fragmented.
    Full,
    /// One byte more, in fragments.
    Over,
}

/// Number of series.
pub(crate) const SERIES_COUNT: usize = 9;

/// Probes of one way and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeSeries {
    pub(crate) route: ProbeRoute,
    pub(crate) size: SizeClass,
}

impl ProbeSeries {
    /// All series, in the order of their numbers on the wire.
    pub(crate) const ALL: [ProbeSeries; SERIES_COUNT] = {
        const fn of(route: ProbeRoute, size: SizeClass) -> ProbeSeries {
            ProbeSeries { route, size }
        }
        use ProbeRoute::{MulticastBack, MulticastThere, Unicast};
        use SizeClass::{Full, Over, Small};
        [
            of(Unicast, Small),
            of(Unicast, Full),
            of(Unicast, Over),
            of(MulticastBack, Small),
            of(MulticastBack, Full),
            of(MulticastBack, Over),
            of(MulticastThere, Small),
            of(MulticastThere, Full),
            of(MulticastThere, Over),
        ]
    };

    /// Returns the position in [`ProbeSeries::ALL`].
    pub(crate) fn index(self) -> usize {
        ProbeSeries::ALL.iter().position(|series| *series == self).expect("all series are listed")
    }
}

/// Number of probes of one series, as the listener counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeriesTally {
    /// Different probes that arrived.
    pub(crate) received: u32,
    /// Answers that the system took.
    pub(crate) answered: u32,
    /// Median of arrival less sending, by the clocks of both hosts, in nanoseconds.
    pub(crate) delay_nanos: i64,
}

/// Content of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DatagramBody {
    /// Asks for a cookie.
    Hello,
    /// Answers a HELLO. Holds the time of sending in it, and the time at which it arrived.
    Cookie { echo: u64, received: u64 },
    /// A probe.
    Probe { series: ProbeSeries, number: u32, bytes: usize },
    /// Answers a probe; has its size.
    Answer { series: ProbeSeries, number: u32, bytes: usize, echo: u64, received: u64 },
    /// Asks for the tallies.
    Query,
    /// Answers a QUERY.
    Result(Box<[SeriesTally; SERIES_COUNT]>),
}

/// A datagram between two doctors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DoctorDatagram {
    pub(crate) session: u64,
    pub(crate) cookie: u64,
    /// Time of sending, in nanoseconds since 1970 by the sender's clock.
    pub(crate) sent: u64,
    pub(crate) body: DatagramBody,
}

/// Returns whether a datagram begins as those of a path test do, and no other of the group does.
pub(crate) fn is_path_test(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC.to_be_bytes())
}

/// Returns whether a datagram of a path test comes from the side that asks. The kinds of the other side are even.
pub(crate) fn is_of_prober(bytes: &[u8]) -> bool {
    bytes.get(KIND_OFFSET).is_some_and(|kind| kind % 2 == 1)
}

impl DoctorDatagram {
    /// Returns the bytes.
    pub(crate) fn encode(&self) -> Bytes {
        let (kind, series, number, size) = match &self.body {
            DatagramBody::Hello => (1, 0, 0, HELLO_BYTES),
            DatagramBody::Cookie { .. } => (2, 0, 0, HELLO_BYTES),
            DatagramBody::Probe { series, number, bytes } => (3, series.index(), *number, *bytes),
            DatagramBody::Answer { series, number, bytes, .. } => (4, series.index(), *number, *bytes),
            DatagramBody::Query => (5, 0, 0, RESULT_BYTES),
            DatagramBody::Result(_) => (6, 0, 0, RESULT_BYTES),
        };
        let mut out = BytesMut::with_capacity(size);
        out.put_u32(MAGIC);
        out.put_slice(&[VERSION, kind, u8::try_from(series).expect("few series"), 0]);
        out.put_u64(self.session);
        out.put_u64(self.cookie);
        out.put_u32(number);
        out.put_u64(self.sent);
        match &self.body {
            DatagramBody::Hello | DatagramBody::Probe { .. } | DatagramBody::Query => {}
            DatagramBody::Cookie { echo, received } | DatagramBody::Answer { echo, received, .. } => {
                out.put_u64(*echo);
                out.put_u64(*received);
            }
            DatagramBody::Result(tallies) => {
                for tally in tallies.iter() {
                    out.put_u32(tally.received);
                    out.put_u32(tally.answered);
                    out.put_i64(tally.delay_nanos);
                }
            }
        }
        out.resize(size, 0);
        out.freeze()
    }

    /// Reads a datagram. Returns `None` if it is another one, of another version, or not well-formed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<DoctorDatagram> {
        let (mut header, mut body) = bytes.split_at_checked(HEADER_BYTES)?;
        let (magic, version) = (header.get_u32(), header.get_u8());
        if magic != MAGIC || version != VERSION {
            return None;
        }
        let (kind, series, _) = (header.get_u8(), header.get_u8(), header.get_u8());
        let (session, cookie, number, sent) = (header.get_u64(), header.get_u64(), header.get_u32(), header.get_u64());
        let series = *ProbeSeries::ALL.get(usize::from(series))?;
        let is_probe = (PROBE_BYTES_MIN..=PROBE_BYTES_MAX).contains(&bytes.len()) && number < PROBES_MAX;
        let body = match (kind, bytes.len()) {
            (1, HELLO_BYTES) => DatagramBody::Hello,
            (2, HELLO_BYTES) => DatagramBody::Cookie { echo: body.get_u64(), received: body.get_u64() },
            (3, bytes) if is_probe => DatagramBody::Probe { series, number, bytes },
            (4, bytes) if is_probe => {
                DatagramBody::Answer { series, number, bytes, echo: body.get_u64(), received: body.get_u64() }
            }
            (5, RESULT_BYTES) => DatagramBody::Query,
            (6, RESULT_BYTES) => {
                let mut tallies = Box::new([SeriesTally::default(); SERIES_COUNT]);
                for tally in tallies.iter_mut() {
                    let (received, answered) = (body.get_u32().min(PROBES_MAX), body.get_u32().min(PROBES_MAX));
                    *tally = SeriesTally { received, answered, delay_nanos: body.get_i64() };
                }
                DatagramBody::Result(tallies)
            }
            _ => return None,
        };
        Some(DoctorDatagram { session, cookie, sent, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples() -> Vec<DoctorDatagram> {
        let series = ProbeSeries { route: ProbeRoute::MulticastBack, size: SizeClass::Full };
        let tally = SeriesTally { received: 50, answered: 49, delay_nanos: -7 };
        let bodies = [
            DatagramBody::Hello,
            DatagramBody::Cookie { echo: 1, received: 2 },
            DatagramBody::Probe { series, number: 3, bytes: 1472 },
            DatagramBody::Answer { series, number: 3, bytes: PROBE_BYTES_MIN, echo: 4, received: 5 },
            DatagramBody::Query,
            DatagramBody::Result(Box::new([tally; SERIES_COUNT])),
        ];
        bodies.into_iter().map(|body| DoctorDatagram { session: 8, cookie: 9, sent: 10, body }).collect()
    }

    #[test]
    fn datagrams_survive_encoding() {
        for datagram in examples() {
            assert_eq!(DoctorDatagram::decode(&datagram.encode()), Some(datagram));
        }
    }

    #[test]
    fn damaged_datagrams_are_refused() {
        for datagram in examples() {
            let bytes = datagram.encode();
            assert_eq!(DoctorDatagram::decode(&bytes[..HEADER_BYTES + 3]), None, "{datagram:?}");
            for (at, value) in [(0, 0), (4, 2), (5, 0), (5, 7), (6, 9)] {
                let mut changed = bytes.to_vec();
                changed[at] = value;
                assert_eq!(DoctorDatagram::decode(&changed), None, "byte {at} of {datagram:?}");
            }
        }
        let probe = &examples()[2];
        let mut number_too_large = probe.encode().to_vec();
        number_too_large[24] = 1;
        assert_eq!(DoctorDatagram::decode(&number_too_large), None);
        assert_eq!(DoctorDatagram::decode(&[0; PROBE_BYTES_MAX + 1]), None);
        assert_eq!(DoctorDatagram::decode(b"SC"), None);
    }

    #[test]
    fn answers_are_never_longer_than_requests() {
        let bytes: Vec<usize> = examples().iter().map(|datagram| datagram.encode().len()).collect();
        assert_eq!((bytes[0], bytes[4]), (bytes[1], bytes[5]));
        assert_ne!(MAGIC >> 16, u32::from(crate::wire::MAGIC));
    }

    #[test]
    fn questions_and_answers_are_distinguished() {
        let datagrams: Vec<Bytes> = examples().iter().map(DoctorDatagram::encode).collect();
        assert!(datagrams.iter().all(|bytes| is_path_test(bytes)) && !is_path_test(b"SC"));
        let of_prober: Vec<bool> = datagrams.iter().map(|bytes| is_of_prober(bytes)).collect();
        assert_eq!(of_prober, [true, false, true, false, true, false]);
    }
}
