//! The listening side as a state machine: datagrams in, at most one answer for each. It reads no clock and opens no
//! socket.

use super::datagram::{
    DatagramBody, DoctorDatagram, PROBES_MAX, ProbeRoute, ProbeSeries, SERIES_COUNT, SeriesTally, SizeClass,
};
use crate::proto::effect::Path;
use crate::time::Instant;
use bytes::Bytes;
use ring::hmac;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Maximum number of probers at a time.
const SESSIONS_MAX: usize = 4;
/// Time after its last datagram at which a prober is forgotten.
const SESSION_TIME: Duration = Duration::from_secs(10);

/// A datagram that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedProbe<'a> {
    pub(crate) path: Path,
    pub(crate) from: SocketAddr,
    pub(crate) bytes: &'a [u8],
    /// Time of arrival, in nanoseconds since 1970.
    pub(crate) received: u64,
}

/// An answer to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeResponse {
    /// The prober; `None` for the group.
    pub(crate) to: Option<SocketAddr>,
    pub(crate) bytes: Bytes,
    /// True if the answer may travel in fragments.
    pub(crate) allows_fragments: bool,
    /// Prober and series of an answer to a probe, for [`Responder::on_sent`].
    pub(crate) probe: Option<(SocketAddr, ProbeSeries)>,
}

/// Counts of one series.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProbeCounts {
    /// Numbers of the probes that arrived, as bits.
    seen: [u64; (PROBES_MAX as usize).div_ceil(64)],
    received: u32,
    answered: u32,
    delays: Vec<i64>,
}

impl ProbeCounts {
    /// Counts a probe, unless it has arrived before. `delay` is its arrival less its sending, in nanoseconds.
    pub(crate) fn add(&mut self, number: u32, delay: i64) {
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if self.seen[word] & bit == 0 {
            self.seen[word] |= bit;
            self.received += 1;
            self.delays.push(delay);
        }
    }

    /// Returns the counts, with the median delay.
    pub(crate) fn tally(&self) -> SeriesTally {
        let mut delays = self.delays.clone();
        delays.sort_unstable();
        let delay_nanos = delays.get(delays.len() / 2).copied().unwrap_or(0);
        SeriesTally { received: self.received, answered: self.answered, delay_nanos }
    }
}

/// A prober with a proven address.
#[derive(Debug)]
struct ProberSession {
    prober: SocketAddr,
    session: u64,
    last: Instant,
    counts: [ProbeCounts; SERIES_COUNT],
}

/// The listening side.
#[derive(Debug)]
pub(crate) struct Responder {
    key: hmac::Key,
    sessions: Vec<ProberSession>,
    /// Probers that have begun and were not reported yet.
    begun: Vec<SocketAddr>,
}

impl Responder {
    /// Creates the state. `secret` is random.
    pub(crate) fn new(secret: u64) -> Responder {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &secret.to_be_bytes());
        Responder { key, sessions: Vec::new(), begun: Vec::new() }
    }

    /// Takes the probers that have begun since the last call.
    pub(crate) fn take_begun(&mut self) -> Vec<SocketAddr> {
        std::mem::take(&mut self.begun)
    }

    /// Handles a datagram and returns the answer. `wall` is the present time in nanoseconds since 1970.
    pub(crate) fn handle(&mut self, now: Instant, wall: u64, arrival: &ReceivedProbe<'_>) -> Option<ProbeResponse> {
        let datagram = DoctorDatagram::decode(arrival.bytes)?;
        let DoctorDatagram { session, cookie, sent, body } = datagram;
        let from = arrival.from;
        let expected = self.cookie(from, session);
        let unicast = |body| ProbeResponse {
            to: Some(from),
            bytes: DoctorDatagram { session, cookie: expected, sent: wall, body }.encode(),
            allows_fragments: false,
            probe: None,
        };
        if body == DatagramBody::Hello && arrival.path == Path::Unicast {
            return Some(unicast(DatagramBody::Cookie { echo: sent, received: arrival.received }));
        }
        if cookie != expected {
            return None;
        }
        let counts = self.counts(now, from, session)?;
        match (body, arrival.path) {
            (DatagramBody::Probe { series, number, .. }, Path::Multicast)
                if series.route == ProbeRoute::MulticastThere =>
            {
                counts[series.index()].add(number, delay(sent, arrival.received));
                None
            }
            (DatagramBody::Probe { series, number, bytes }, Path::Unicast)
                if series.route != ProbeRoute::MulticastThere =>
            {
                counts[series.index()].add(number, delay(sent, arrival.received));
                let answer = DatagramBody::Answer { series, number, bytes, echo: sent, received: arrival.received };
                let response = unicast(answer);
                let to = response.to.filter(|_| series.route == ProbeRoute::Unicast);
                let allows_fragments = series.size == SizeClass::Over;
                Some(ProbeResponse { to, allows_fragments, probe: Some((from, series)), ..response })
            }
            (DatagramBody::Query, Path::Unicast) => {
                let tallies = std::array::from_fn(|index| counts[index].tally());
                Some(unicast(DatagramBody::Result(Box::new(tallies))))
            }
            _ => None,
        }
    }

    /// Counts an answer that the system has taken.
    pub(crate) fn on_sent(&mut self, response: &ProbeResponse) {
        let Some((prober, series)) = response.probe else { return };
        if let Some(session) = self.sessions.iter_mut().find(|session| session.prober == prober) {
            session.counts[series.index()].answered += 1;
        }
    }

    /// Returns the counts of a prober; `None` if there are too many probers.
    fn counts(&mut self, now: Instant, prober: SocketAddr, session: u64) -> Option<&mut [ProbeCounts; SERIES_COUNT]> {
        self.sessions.retain(|known| now.since(known.last) < SESSION_TIME);
        let known = self.sessions.iter().position(|known| known.prober == prober && known.session == session);
        let at = match known {
            Some(at) => at,
            None => {
                let before = self.sessions.len();
                self.sessions.retain(|known| known.prober != prober);
                if self.sessions.len() == SESSIONS_MAX {
                    return None;
                }
                if self.sessions.len() == before {
                    self.begun.push(prober);
                }
                let counts = std::array::from_fn(|_| ProbeCounts::default());
                self.sessions.push(ProberSession { prober, session, last: now, counts });
                self.sessions.len() - 1
            }
        };
        self.sessions[at].last = now;
        Some(&mut self.sessions[at].counts)
    }

    /// Returns the cookie of a prober: only a program that receives datagrams at the address knows it.
    fn cookie(&self, prober: SocketAddr, session: u64) -> u64 {
        let ip = match prober.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let text = [&ip[..], &prober.port().to_be_bytes(), &session.to_be_bytes()].concat();
        let tag = hmac::sign(&self.key, &text);
        let first = tag.as_ref().first_chunk().expect("a tag of SHA-256 has 32 bytes");
        u64::from_be_bytes(*first)
    }
}

/// Returns `received - sent`, as far as the difference fits.
pub(crate) fn delay(sent: u64, received: u64) -> i64 {
    i64::try_from(i128::from(received) - i128::from(sent)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: u64 = 1_000_000;

    /// A listener, and the prober at its first address.
    struct Pair {
        responder: Responder,
        now: Instant,
        cookie: u64,
    }

    impl Pair {
        fn new() -> Pair {
            let mut pair = Pair { responder: Responder::new(7), now: Instant::from_nanos(0), cookie: 0 };
            let response = pair.send(prober(1), Path::Unicast, DatagramBody::Hello).expect("a cookie");
            pair.cookie = DoctorDatagram::decode(&response.bytes).expect("it can be decoded").cookie;
            pair
        }

        fn send(&mut self, from: SocketAddr, path: Path, body: DatagramBody) -> Option<ProbeResponse> {
            let bytes = DoctorDatagram { session: 5, cookie: self.cookie, sent: WALL - 10, body }.encode();
            let response =
                self.responder.handle(self.now, WALL, &ReceivedProbe { path, from, bytes: &bytes, received: WALL });
            if let Some(response) = &response {
                assert!(response.bytes.len() <= bytes.len(), "an answer is never longer");
                self.responder.on_sent(response);
            }
            response
        }

        fn tally(&mut self, series: ProbeSeries) -> SeriesTally {
            let response = self.send(prober(1), Path::Unicast, DatagramBody::Query).expect("tallies");
            let DatagramBody::Result(tallies) = DoctorDatagram::decode(&response.bytes).expect("a datagram").body
            else {
                panic!("no tallies: {response:?}")
            };
            tallies[series.index()]
        }
    }

    fn prober(host: u8) -> SocketAddr {
        ([10, 0, 0, host], 4000).into()
    }

    fn probe(route: ProbeRoute, number: u32) -> (ProbeSeries, DatagramBody) {
        let series = ProbeSeries { route, size: SizeClass::Small };
        (series, DatagramBody::Probe { series, number, bytes: 64 })
    }

    #[test]
    fn probes_are_answered_on_their_route() {
        let mut pair = Pair::new();
        let (unicast, body) = probe(ProbeRoute::Unicast, 0);
        assert_eq!(pair.send(prober(1), Path::Unicast, body).expect("an answer").to, Some(prober(1)));
        let (back, body) = probe(ProbeRoute::MulticastBack, 0);
        assert_eq!(pair.send(prober(1), Path::Unicast, body).expect("an answer").to, None);
        let (there, body) = probe(ProbeRoute::MulticastThere, 0);
        assert_eq!(pair.send(prober(1), Path::Multicast, body.clone()), None);
        assert_eq!(pair.send(prober(1), Path::Unicast, body), None);
        for (series, answered) in [(unicast, 1), (back, 1), (there, 0)] {
            let expected = SeriesTally { received: 1, answered, delay_nanos: 10 };
            assert_eq!(pair.tally(series), expected, "{series:?}");
        }
        assert_eq!(pair.responder.take_begun(), [prober(1)]);
    }

    #[test]
    fn repeated_probe_counts_once() {
        let mut pair = Pair::new();
        for number in [0, 1, 999, 1] {
            let (_, body) = probe(ProbeRoute::Unicast, number);
            assert!(pair.send(prober(1), Path::Unicast, body).is_some());
        }
        let (series, _) = probe(ProbeRoute::Unicast, 0);
        assert_eq!((pair.tally(series).received, pair.tally(series).answered), (3, 4));
    }

    #[test]
    fn foreign_cookie_gets_no_answer() {
        let mut pair = Pair::new();
        let (_, body) = probe(ProbeRoute::Unicast, 0);
        assert_eq!(pair.send(prober(2), Path::Unicast, body), None);
        assert_eq!(pair.send(prober(2), Path::Unicast, DatagramBody::Query), None);
        assert_eq!(pair.send(prober(2), Path::Multicast, DatagramBody::Hello), None);
        assert!(pair.responder.take_begun().is_empty());
    }

    #[test]
    fn probers_are_bounded_until_old_ones_expire() {
        let mut pair = Pair::new();
        let begin = |pair: &mut Pair, host: u8| {
            let response = pair.send(prober(host), Path::Unicast, DatagramBody::Hello).expect("a cookie");
            pair.cookie = DoctorDatagram::decode(&response.bytes).expect("a datagram").cookie;
            pair.send(prober(host), Path::Unicast, DatagramBody::Query).is_some()
        };
        let begun: Vec<bool> = (1..=5).map(|host| begin(&mut pair, host)).collect();
        assert_eq!(begun, [true, true, true, true, false]);
        pair.now = pair.now + SESSION_TIME;
        assert!(begin(&mut pair, 5));
    }
}
