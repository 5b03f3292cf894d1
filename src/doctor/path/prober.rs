//! The asking side: it proves its address, exchanges probes with a listener, and collects what arrived on both sides.

use crate::clock::{Clock, random_u64};
use crate::daemon::batch::{OutgoingDatagram, ReceivedDatagram, RecvBatch};
use crate::daemon::multicast::Sockets;
use crate::daemon::path_test::datagram::{
    DatagramBody, DoctorDatagram, PROBE_BYTES_MIN, ProbeRoute, ProbeSeries, SERIES_COUNT, SeriesTally, SizeClass,
};
use crate::daemon::path_test::responder::{ProbeCounts, delay};
use crate::proto::effect::Path;
use serde::Serialize;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Number of times that a HELLO or a QUERY is sent until it is answered.
const ATTEMPTS: usize = 5;
/// Time to wait for an answer to one of them.
const ANSWER_TIME: Duration = Duration::from_millis(200);
/// Time after the last probe in which answers may arrive.
const SETTLE_TIME: Duration = Duration::from_millis(300);
/// Time between two probes, so that no buffer on the way overflows. Answers that arrive shorten it.
const PROBE_INTERVAL: Duration = Duration::from_millis(1);
/// Number of datagrams read at once.
const BATCH_DATAGRAMS: usize = 16;

/// Number of probes sent in one direction, and of those that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Transfer {
    pub(crate) sent: u32,
    pub(crate) arrived: u32,
}

impl Transfer {
    /// Returns whether probes were sent and none arrived.
    pub(crate) fn is_dead(self) -> bool {
        0 < self.sent && self.arrived == 0
    }

    /// Returns the share that did not arrive.
    pub(crate) fn loss(self) -> f64 {
        match self.sent {
            0 => 0.0,
            sent => f64::from(sent.saturating_sub(self.arrived)) / f64::from(sent),
        }
    }
}

/// Probes of one kind and size in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Exchange {
    /// From this host to the other one.
    pub(crate) there: Transfer,
    /// From the other host to this one.
    pub(crate) back: Transfer,
}

/// Result of the exchange with a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct PathReport {
    /// Bytes of UDP payload of the probes that are as large as the MTU.
    pub(crate) full_bytes: usize,
    pub(crate) unicast_small: Exchange,
    pub(crate) unicast_full: Exchange,
    pub(crate) unicast_over: Exchange,
    pub(crate) multicast_small: Exchange,
    pub(crate) multicast_full: Exchange,
    pub(crate) multicast_over: Exchange,
    /// Median time from this host to the other one, in nanoseconds.
    pub(crate) delay_there_nanos: i64,
    /// Median time from the other host to this one, in nanoseconds.
    pub(crate) delay_back_nanos: i64,
    /// Clock of the other host less that of this host, in nanoseconds.
    pub(crate) clock_offset_nanos: i64,
    /// Maximum error of the offset, thus of both times: half of the shortest round trip.
    pub(crate) uncertainty_nanos: i64,
}

/// The shortest round trip, whose estimate of the clocks is the most exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockSample {
    pub(super) offset: i64,
    pub(super) round_trip: i64,
}

impl ClockSample {
    /// Computes the offset as NTP does, from the times of sending and of arrival of a request and of its answer.
    pub(super) fn new(request: [u64; 2], answer: [u64; 2]) -> ClockSample {
        let [there, back] = [delay(request[0], request[1]), delay(answer[0], answer[1])];
        let offset = (i128::from(there) - i128::from(back)) / 2;
        let round_trip = i128::from(there) + i128::from(back);
        let fit = |nanos: i128| i64::try_from(nanos).unwrap_or(i64::MAX);
        ClockSample { offset: fit(offset), round_trip: fit(round_trip).max(0) }
    }
}

/// The asking side.
pub(super) struct Prober<'a> {
    sockets: &'a mut Sockets,
    listener: SocketAddr,
    session: u64,
    cookie: u64,
    full_bytes: usize,
    batch: RecvBatch,
    /// Probes of each series that the system took.
    sent: [u32; SERIES_COUNT],
    /// Answers of each series.
    answers: [ProbeCounts; SERIES_COUNT],
    best: Option<ClockSample>,
    result: Option<Box<[SeriesTally; SERIES_COUNT]>>,
}

impl Prober<'_> {
    /// Creates a prober. `full_bytes` is the UDP payload of a packet as large as the MTU.
    pub(super) fn new(sockets: &mut Sockets, listener: SocketAddr, full_bytes: usize) -> Prober<'_> {
        Prober {
            sockets,
            listener,
            session: random_u64(),
            cookie: 0,
            full_bytes,
            batch: RecvBatch::new(BATCH_DATAGRAMS),
            sent: [0; SERIES_COUNT],
            answers: std::array::from_fn(|_| ProbeCounts::default()),
            best: None,
            result: None,
        }
    }

    /// Asks the listener for a cookie. Returns whether it answers.
    ///
    /// # Errors
    /// The system refuses to send to the listener, or to receive.
    pub(super) fn begin(&mut self) -> io::Result<bool> {
        self.ask(&DatagramBody::Hello, |prober| prober.cookie != 0)
    }

    /// Exchanges `count` probes of each series. Returns `None` if nobody answers.
    ///
    /// # Errors
    /// The system refuses to send to the listener, or to receive.
    pub(super) fn run(mut self, count: u32) -> io::Result<Option<PathReport>> {
        if !self.begin()? {
            return Ok(None);
        }
        for number in 0..count {
            for series in ProbeSeries::ALL {
                self.probe(series, number)?;
                self.receive_for(PROBE_INTERVAL)?;
            }
        }
        let deadline = Clock::now().instant + SETTLE_TIME;
        while Clock::now().instant < deadline {
            self.receive_for(deadline.since(Clock::now().instant))?;
        }
        if !self.ask(&DatagramBody::Query, |prober| prober.result.is_some())? {
            return Ok(None);
        }
        Ok(self.result.take().map(|result| self.report(&result)))
    }

    /// Sends a question until `is_answered`; returns false if it never is.
    fn ask(&mut self, question: &DatagramBody, is_answered: impl Fn(&Self) -> bool) -> io::Result<bool> {
        for _ in 0..ATTEMPTS {
            self.sockets.forbid_fragments(false)?;
            self.send(Some(self.listener), question.clone())?;
            let deadline = Clock::now().instant + ANSWER_TIME;
            while Clock::now().instant < deadline {
                self.receive_for(deadline.since(Clock::now().instant))?;
                if is_answered(self) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn probe(&mut self, series: ProbeSeries, number: u32) -> io::Result<()> {
        let bytes = match series.size {
            SizeClass::Small => PROBE_BYTES_MIN,
            SizeClass::Full => self.full_bytes,
            SizeClass::Over => self.full_bytes + 1,
        };
        let to = (series.route != ProbeRoute::MulticastThere).then_some(self.listener);
        self.sockets.forbid_fragments(series.size != SizeClass::Over)?;
        // A probe that the system refuses counts as not sent.
        if self.send(to, DatagramBody::Probe { series, number, bytes }).unwrap_or(0) == 1 {
            self.sent[series.index()] += 1;
        }
        Ok(())
    }

    fn send(&mut self, to: Option<SocketAddr>, body: DatagramBody) -> io::Result<usize> {
        let sent = Clock::now().wall.as_nanos();
        let datagram = DoctorDatagram { session: self.session, cookie: self.cookie, sent, body };
        self.sockets.send_batch(&[OutgoingDatagram { to, bytes: datagram.encode() }])
    }

    /// Waits for datagrams for at most `time`, and reads those that are there.
    fn receive_for(&mut self, time: Duration) -> io::Result<()> {
        if !self.sockets.wait(time)? {
            return Ok(());
        }
        let listener = self.listener;
        for path in [Path::Unicast, Path::Multicast] {
            self.sockets.recv_batch(path, &mut self.batch)?;
            let received: Vec<ReceivedDatagram> = self.batch.drain().collect();
            for datagram in received.iter().filter(|datagram| datagram.from == listener) {
                self.handle(path, datagram);
            }
        }
        Ok(())
    }

    fn handle(&mut self, path: Path, received: &ReceivedDatagram) {
        let arrived = received.arrived.unwrap_or_else(|| Clock::now().wall).as_nanos();
        let Some(datagram) = DoctorDatagram::decode(&received.bytes) else { return };
        if datagram.session != self.session || (self.cookie != 0 && datagram.cookie != self.cookie) {
            return;
        }
        match datagram.body {
            DatagramBody::Cookie { echo, received } if path == Path::Unicast => {
                self.cookie = datagram.cookie;
                self.sample([echo, received], [datagram.sent, arrived]);
            }
            DatagramBody::Answer { series, number, echo, received, .. } => {
                let expected = if series.route == ProbeRoute::MulticastBack { Path::Multicast } else { Path::Unicast };
                if path == expected {
                    self.answers[series.index()].add(number, delay(datagram.sent, arrived));
                    self.sample([echo, received], [datagram.sent, arrived]);
                }
            }
            DatagramBody::Result(tallies) if path == Path::Unicast => self.result = Some(tallies),
            _ => {}
        }
    }

    fn sample(&mut self, request: [u64; 2], answer: [u64; 2]) {
        let sample = ClockSample::new(request, answer);
        if self.best.is_none_or(|best| sample.round_trip < best.round_trip) {
            self.best = Some(sample);
        }
    }

    fn report(&self, result: &[SeriesTally; SERIES_COUNT]) -> PathReport {
        let at = |route, size| ProbeSeries { route, size }.index();
        let unicast = |size| {
            let at = at(ProbeRoute::Unicast, size);
            let there = Transfer { sent: self.sent[at], arrived: result[at].received };
            Exchange { there, back: Transfer { sent: result[at].answered, arrived: self.answers[at].tally().received } }
        };
        let multicast = |size| {
            let (there, back) = (at(ProbeRoute::MulticastThere, size), at(ProbeRoute::MulticastBack, size));
            Exchange {
                there: Transfer { sent: self.sent[there], arrived: result[there].received },
                back: Transfer { sent: result[back].answered, arrived: self.answers[back].tally().received },
            }
        };
        let small = at(ProbeRoute::Unicast, SizeClass::Small);
        let best = self.best.unwrap_or(ClockSample { offset: 0, round_trip: 0 });
        PathReport {
            full_bytes: self.full_bytes,
            unicast_small: unicast(SizeClass::Small),
            unicast_full: unicast(SizeClass::Full),
            unicast_over: unicast(SizeClass::Over),
            multicast_small: multicast(SizeClass::Small),
            multicast_full: multicast(SizeClass::Full),
            multicast_over: multicast(SizeClass::Over),
            delay_there_nanos: result[small].delay_nanos.saturating_sub(best.offset),
            delay_back_nanos: self.answers[small].tally().delay_nanos.saturating_add(best.offset),
            clock_offset_nanos: best.offset,
            uncertainty_nanos: best.round_trip / 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_offset_follows_ntp() {
        // The other clock is 1000 ahead; there takes 30, back takes 10, and the answer 5 to make.
        let sample = ClockSample::new([100, 1130], [1135, 145]);
        assert_eq!(sample, ClockSample { offset: 1010, round_trip: 40 });
        // The true offset lies within half of the round trip.
        assert!((sample.offset - 1000).abs() <= sample.round_trip / 2);
        let hostile = ClockSample::new([0, u64::MAX], [u64::MAX, 0]);
        assert!(0 <= hostile.round_trip);
    }

    #[test]
    fn loss_is_the_share_that_did_not_arrive() {
        let transfer = |sent, arrived| Transfer { sent, arrived };
        assert_eq!((transfer(50, 40).loss(), transfer(0, 0).loss(), transfer(1, 2).loss()), (0.2, 0.0, 0.0));
        assert_eq!((transfer(1, 0).is_dead(), transfer(0, 0).is_dead()), (true, false));
    }
}
