//! Tests of the parts of pacing: the publisher's allowance, and the receiver's window.

use super::*;
use crate::message::Epoch;
use bytes::Bytes;

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

const RESEND_BYTES: usize = 400_000;

fn settings(pace: Pace) -> PaceSettings {
    PaceSettings { pace, floor: 10_000_000, room_bytes: 1 << 20, first_bytes: 10_000 }
}

/// A publisher with some receivers. Each datagram has 1,488 bytes, which count as 2,000 in windows.
struct Story {
    pacer: Pacer,
    receivers: Vec<PacedReceiver>,
    sealed: u64,
    sent: u64,
    reports: u64,
}

impl Story {
    fn new(pace: Pace, receivers: usize) -> Story {
        Story::of(&settings(pace), receivers)
    }

    fn of(settings: &PaceSettings, receivers: usize) -> Story {
        let mut pacer = Pacer::resumed(settings, RESEND_BYTES, at(0));
        let mut receiver = PacedReceiver::new(at(0), &mut pacer);
        receiver.on_proven();
        let receivers = vec![receiver; receivers];
        Story { pacer, receivers, sealed: 0, sent: 0, reports: 0 }
    }

    /// Seals further datagrams, sends those that may be sent, and returns the number of the last one sent.
    fn send(&mut self, now: Instant, datagrams: u64) -> u64 {
        self.pacer.update_allowance(now, self.receivers.iter());
        for _ in 0..datagrams {
            self.sealed += 1;
            let bytes = Bytes::from_static(&[0; 1488]);
            self.pacer.enqueue(now, SealedDatagram { dseq: Dseq(self.sealed), before: self.sealed - 1, bytes });
        }
        while !self.pacer.is_empty() && self.pacer.is_open(now) {
            let sealed = self.pacer.pop().unwrap();
            self.pacer.on_sent(now, sealed.dseq, sealed.bytes.len());
            self.sent = sealed.dseq.0;
        }
        self.sent
    }

    fn report(&mut self, now: Instant, receiver: usize, taken: u64, window: u64) -> Option<ReportEffect> {
        self.report_awaited(now, receiver, (taken, window), None)
    }

    fn report_awaited(
        &mut self,
        now: Instant,
        receiver: usize,
        (taken, window): (u64, u64),
        awaited: Option<u64>,
    ) -> Option<ReportEffect> {
        self.reports += 1;
        let (epoch, taken, awaited) = (Epoch::new(1).unwrap(), Dseq(taken), awaited.map(Dseq));
        let report = ReceiverReport { epoch, taken, window, awaited, dropped: 0 };
        self.pacer.on_report(now, &mut self.receivers[receiver], self.reports, 0, report)
    }

    /// Advances the time; returns the receivers that are excluded now.
    fn tick(&mut self, now: Instant) -> Vec<usize> {
        let excluded: Vec<usize> =
            (0..self.receivers.len()).filter(|at| self.pacer.is_lagging(now, &self.receivers[*at])).collect();
        excluded.iter().for_each(|at| self.pacer.exclude(now, &mut self.receivers[*at]));
        self.send(now, 0);
        self.pacer.on_tick(now);
        excluded
    }
}

/// Proves: W132, W134, pace
#[test]
fn sending_stops_at_the_slowest_receive_window() {
    let mut story = Story::new(Pace::Auto, 2);
    assert_eq!(story.send(at(0), 100), 5, "the first window of 10,000");
    story.report(at(1), 0, 5, 40_000);
    assert_eq!(story.send(at(1), 0), 5, "the other has not reported");
    story.report(at(1), 1, 3, 20_000);
    assert_eq!(story.send(at(1), 0), 13);
    story.report(at(2), 1, 13, 1);
    assert_eq!(story.send(at(2), 0), 14, "an open window admits one datagram");
    story.report(at(3), 1, 14, 0);
    assert_eq!(story.send(at(3), 0), 14);
    assert_eq!(story.report(at(4), 1, 14, 100_000).unwrap(), ReportEffect { is_back: false, affects_allowance: true });
    assert_eq!(story.send(at(4), 0), 25, "the other receiver's window is the limit");
    story.reports = 1;
    assert_eq!(story.report(at(4), 1, 25, 100_000), None, "an old report");
}

/// Proves: W60
#[test]
fn forged_report_number_does_not_block_later_reports() {
    let mut story = Story::new(Pace::Auto, 1);
    let mut report = |number: u64, millis: u64| {
        let epoch = Epoch::new(1).unwrap();
        let report = ReceiverReport { epoch, taken: Dseq(0), window: 20_000, awaited: None, dropped: 0 };
        story.pacer.on_report(at(millis), &mut story.receivers[0], number, millis as u32, report).is_some()
    };
    assert!(report(1, 100) && report(2, 200));
    assert!(report(1 << 19, 250), "a forged number that is plausible");
    assert!(!report(3, 300), "one of the two is forged");
    assert!(report(4, 400) && report(5, 500), "the second one is accepted");
}

#[test]
fn sending_is_unlimited_without_receivers_or_pacing() {
    assert_eq!(Story::new(Pace::Auto, 0).send(at(0), 10_000), 10_000);
    let mut unpaced = Story::new(Pace::Off, 2);
    assert!(unpaced.pacer.is_open(at(0)));
    assert_eq!(unpaced.send(at(0), 10_000), 10_000);
    let mut cold = Pacer::new(&settings(Pace::Auto), RESEND_BYTES, at(0));
    cold.on_sent(at(0), Dseq(1), 20_000);
    assert!(!cold.is_open(at(99)));
    cold.update_allowance(at(100), [].iter());
    assert!(cold.is_open(at(100)), "present receivers have answered by then");
}

#[test]
fn fixed_rate_is_met_after_a_small_burst() {
    let mut story = Story::new(Pace::Rate(1_000_000), 0);
    let first = story.send(at(0), 100_000);
    assert!(first <= 16, "{first} datagrams at once");
    let mut wakes = 0;
    let mut now = at(0);
    while now < at(2000) {
        now = story.pacer.deadline().unwrap().max(now + Duration::from_micros(100));
        story.tick(now);
        wakes += 1;
    }
    let bytes = (story.sent - first) * 1488;
    assert!((1_990_000..2_010_000).contains(&bytes), "{bytes} bytes in two seconds");
    assert!(wakes < 1500, "{wakes} times awake for {} datagrams", story.sent);
}

/// Proves: W133, flow-exclusion
#[test]
fn excluded_receiver_returns_once_caught_up() {
    let mut story = Story::new(Pace::Auto, 3);
    story.send(at(0), 10_000);
    // The first receiver reports nothing, the second takes 1 MB/s, the third has room.
    let mut excluded = Vec::new();
    for millis in (10..=400).step_by(10) {
        story.report(at(millis), 1, story.sent, 10_000);
        story.report(at(millis), 2, story.sent, 4_000_000);
        story.send(at(millis), 0);
        excluded.extend(story.tick(at(millis)).into_iter().map(|receiver| (millis, receiver)));
    }
    assert_eq!(excluded, [(200, 0), (400, 1)]);
    assert_eq!(story.receivers[0].exclusion(), Some(LaggingReceiver { since: at(200), has_reported: false }));
    assert_eq!(story.receivers[1].exclusion(), Some(LaggingReceiver { since: at(400), has_reported: true }));
    assert!(2000 < story.sent, "as far as the third has room");
    assert!(!story.report(at(401), 1, 900, 10_000).unwrap().is_back);
    let close = story.sent - 4;
    assert!(story.report(at(402), 1, close, 10_000).unwrap().is_back);
    assert_eq!(story.receivers[1].exclusion(), None);
}

/// A receiver delays a publisher as far as possible. It returns as soon as it may, then reports no window, or little
/// more than the minimum.
/// Proves: W133
#[test]
fn hostile_receiver_cannot_slow_publisher_below_floor() {
    for (room, exclusions) in [(0, 3), (22_000, 0)] {
        let mut story = Story::new(Pace::Auto, 2);
        story.send(at(0), 300_000);
        let mut excluded = 0;
        for millis in (2..=3000).step_by(2) {
            let is_excluded = story.receivers[0].exclusion().is_some();
            story.report(at(millis), 0, story.sent, if is_excluded { 1 << 20 } else { room });
            story.report(at(millis), 1, story.sent, 200_000);
            story.send(at(millis), 0);
            excluded += story.tick(at(millis)).len();
        }
        assert_eq!(excluded, exclusions, "window {room}");
        // 10 MB a second for 3 s, in datagrams that count 2,000 bytes. The queue never runs empty.
        assert!((15_000..300_000).contains(&story.sent), "{room}: {}", story.sent);
    }
}

#[test]
fn receiver_below_the_floor_is_excluded() {
    // The receiver takes 1 MB/s.
    for (pace_floor, is_excluded) in [(10_000_000, true), (0, false)] {
        let mut story = Story::of(&PaceSettings { floor: pace_floor, ..settings(Pace::Auto) }, 1);
        story.send(at(0), 10_000);
        let mut excluded = Vec::new();
        for millis in (10..=1000).step_by(10) {
            story.report(at(millis), 0, story.sent, 10_000);
            story.send(at(millis), 0);
            excluded.extend(story.tick(at(millis)));
        }
        assert_eq!(!excluded.is_empty(), is_excluded, "a floor of {pace_floor} bytes");
    }
}

/// Proves: W132, pace-resends
#[test]
fn pending_request_limits_sending_to_retransmittable_data() {
    let mut story = Story::new(Pace::Auto, 1);
    story.send(at(0), 10_000);
    story.report_awaited(at(0), 0, (5, 4_000_000), Some(3));
    assert_eq!(story.send(at(0), 0), 2 + 100, "half of 400,000 from where 3 began");
    assert!(story.pacer.waits_for_resends());
    assert!(story.report_awaited(at(1), 0, (102, 4_000_000), Some(53)).unwrap().affects_allowance);
    assert_eq!(story.send(at(1), 0), 52 + 100);
    story.report_awaited(at(2), 0, (152, 4_000_000), None);
    assert_eq!(story.send(at(2), 0), 152 + 2000, "up to the window");
    assert!(!story.pacer.waits_for_resends());
    // A request for a datagram that was never sent does not stop the publisher, nor does any request without resends.
    story.report_awaited(at(3), 0, (2152, 200_000), Some(9_000));
    assert_eq!(story.send(at(3), 0), 2252);
    story.pacer.ahead_bytes = Pacer::resumed(&settings(Pace::Auto), 0, at(3)).ahead_bytes;
    story.report_awaited(at(4), 0, (2252, 200_000), Some(1));
    assert_eq!(story.send(at(4), 0), 2352);
}

/// Proves: W133, flow-exclusion
#[test]
fn receiver_with_stalled_request_is_excluded() {
    let mut story = Story::new(Pace::Auto, 1);
    story.send(at(0), 10_000);
    let mut excluded = Vec::new();
    for millis in (10..=3000).step_by(10) {
        // The receiver progresses every half second, and then not at all.
        let awaited = 50 * (millis / 500).min(3) + 3;
        story.report_awaited(at(millis), 0, (story.sent, 4_000_000), Some(awaited));
        story.send(at(millis), 0);
        excluded.extend(story.tick(at(millis)).into_iter().map(|_| millis));
    }
    assert_eq!(excluded, [2600], "at the next check, a second later");
    assert!(story.report_awaited(at(3010), 0, (story.sent, 4_000_000), None).unwrap().is_back);
}

/// Proves: W133
#[test]
fn receiver_that_stalls_again_returns_after_nine_seconds() {
    let mut story = Story::new(Pace::Auto, 1);
    story.send(at(0), 10_000);
    let (mut excluded, mut returned) = (Vec::new(), Vec::new());
    for millis in (10..=14_000).step_by(10) {
        // The receiver stops its request as soon as it is excluded, and then requests its oldest datagram again.
        let is_excluded = story.receivers[0].exclusion().is_some();
        let report = story.report_awaited(at(millis), 0, (story.sent, 4_000_000), (!is_excluded).then_some(1));
        returned.extend(report.filter(|report| report.is_back).map(|_| millis));
        story.send(at(millis), 10);
        excluded.extend(story.tick(at(millis)).into_iter().map(|_| millis));
    }
    let rests: Vec<u64> = excluded.iter().zip(&returned).map(|(excluded, returned)| returned - excluded).collect();
    assert_eq!(rests, [10, 9000], "excluded at {excluded:?}, back at {returned:?}");
}

/// Proves: flow-exclusion
#[test]
fn receiver_with_negligible_progress_is_excluded() {
    type AwaitedDatagram = fn(u64) -> u64;
    let to_and_fro: AwaitedDatagram = |round| 1 + round % 2;
    let one_by_one: AwaitedDatagram = |round| 3 + round;
    for requests in [to_and_fro, one_by_one] {
        let mut story = Story::new(Pace::Auto, 1);
        story.send(at(0), 10_000);
        let mut excluded = Vec::new();
        for millis in (10..=4000).step_by(10) {
            story.report_awaited(at(millis), 0, (story.sent, 4_000_000), Some(requests(millis / 300)));
            story.send(at(millis), 0);
            excluded.extend(story.tick(at(millis)).into_iter().map(|_| millis));
        }
        assert!(excluded.first().is_some_and(|first| *first <= 1400), "{excluded:?}");
    }
}

#[test]
fn rate_below_the_floor_excludes_no_receiver() {
    let mut story = Story::new(Pace::Rate(100_000), 1);
    story.send(at(0), 1000);
    for millis in (1..3000).step_by(7) {
        story.report(at(millis), 0, story.sent, 3000);
        assert!(story.tick(at(millis)).is_empty());
    }
}

/// Proves: W129
#[test]
fn forgotten_offset_counts_as_fully_behind() {
    let mut story = Story::new(Pace::Auto, 0);
    story.send(at(0), MARKS_MAX as u64 + 10);
    assert_eq!(story.pacer.sent_up_to(Dseq(10)), None);
    assert_eq!(story.pacer.sent_up_to(Dseq(11)), Some(11 * 2000));
    assert_eq!(story.pacer.sent_up_to(Dseq(u64::MAX - 1)), Some(story.pacer.sent));
}

#[test]
fn heavy_network_loss_shrinks_the_receive_window() {
    let mut story = Story::new(Pace::Auto, 1);
    let window = |story: &mut Story, now, lost_of_ten: u64| {
        let first = story.sent + 1;
        story.send(now, 100);
        let last = story.sent;
        let ranges: Vec<Range> = (first..=last)
            .filter(|dseq| dseq % 10 < lost_of_ten)
            .map(|dseq| Range { first: Dseq(dseq), last: Dseq(dseq) })
            .collect();
        story.receivers[0].on_request(&ranges, Dseq(last));
        // The same ranges are requested again, and a range that was never sent.
        story.receivers[0].on_request(&ranges, Dseq(last));
        story.receivers[0].on_request(&[Range { first: Dseq(last + 1), last: Dseq(1 << 40) }], Dseq(last));
        story.report(now, 0, last, 1_000_000);
        story.receivers[0].limit - story.pacer.sent
    };
    for round in 1..20 {
        assert!(999_000 < window(&mut story, at(round * 100), 1), "the loss of a tenth does not matter");
    }
    let shrunk = (20..40).map(|round| window(&mut story, at(round * 100), 4)).last().unwrap();
    assert!((100_000..130_000).contains(&shrunk), "{shrunk}");
    let grown = (40..60).map(|round| window(&mut story, at(round * 100), 0)).last().unwrap();
    assert!(999_000 < grown, "{grown}");
}

/// Proves: W129
#[test]
fn drops_halve_the_window_which_grows_again() {
    let mut room = ReceiveWindow::new(&settings(Pace::Auto), at(0));
    assert_eq!(room.window(at(0), 1), 1 << 20);
    assert_eq!(room.window(at(0), 4), 1 << 18);
    assert!(room.on_overrun(at(10)) && !room.on_overrun(at(29)) && room.on_overrun(at(30)));
    assert_eq!(room.window(at(30), 1) >> 10, 256 + 16 / 2, "half of the regrown window, in steps");
    assert!(!room.on_sharers(1) && room.on_sharers(2) && !room.on_sharers(1));
    let (soon, late) = (room.window(at(500), 1) >> 10, room.window(at(20_000), 1));
    assert!((380..450).contains(&soon), "{soon}");
    assert_eq!(late, 1 << 20);
    // The growth does not depend on the number of queries.
    let mut looked_at = ReceiveWindow::new(&settings(Pace::Auto), at(0));
    assert!(looked_at.on_overrun(at(10)));
    let last = (11..20_000).map(|millis| looked_at.window(at(millis), 1)).last();
    assert_eq!(last, Some(1 << 20));
    assert!((0..100).all(|n| room.on_overrun(at(30_000 + n * 20))));
    assert!(0 < room.window(at(32_000), 1000));
}

#[test]
fn local_backlog_closes_window_while_readers_meet_floor() {
    let mut room = ReceiveWindow::new(&settings(Pace::Auto), at(0));
    assert_eq!(room.on_backlog(at(0), 256), WindowChange::None);
    assert_eq!(room.advertise(at(0), 1), 1 << 20);
    assert_eq!(room.on_backlog(at(1), 700), WindowChange::Less);
    assert_eq!(room.advertise(at(1), 1) >> 10, 378);
    assert_eq!((room.on_backlog(at(2), 1024), room.advertise(at(2), 1)), (WindowChange::Less, 0));
    assert_eq!(room.deadline(), Some(at(3)));
    assert_eq!((room.on_backlog(at(3), 940), room.advertise(at(3), 1) >> 10), (WindowChange::More, 29));
    assert_eq!(room.deadline(), None, "the next datagram causes the next check");
    // The reader takes 20 MB/s, then 5.
    for millis in (10..=1000).step_by(10) {
        room.on_received(200_000);
        room.on_backlog(at(millis), 1024);
        assert!(room.is_reduced(), "{millis}");
    }
    for millis in (1010..=1400).step_by(10) {
        room.on_received(50_000);
        room.on_backlog(at(millis), 1024);
    }
    assert!(!room.is_reduced(), "the slow reader no longer counts");
    assert_eq!(room.on_backlog(at(1410), 700), WindowChange::Less, "the reader counts again");
    assert!(room.is_reduced());
}

/// Proves: W128, W130, W131
#[test]
fn quarter_of_the_window_makes_a_report_due() {
    let settings = settings(Pace::Auto);
    let mut receive_progress = ReceiveProgress::new(&settings, Dseq(100));
    assert!(!receive_progress.on_data(at(1), Dseq(101), 1488));
    assert!(receive_progress.on_data(at(1), Dseq(102), 1488), "a quarter of 10,000 is 2,500");
    receive_progress.schedule_report();
    assert_eq!(receive_progress.deadline(10), Some(Instant::ZERO));
    receive_progress.on_reported(at(1), 80_000, false, None);
    assert_eq!((receive_progress.deadline(10), receive_progress.high()), (None, Dseq(102)));
    for dseq in 103..112 {
        assert!(!receive_progress.on_data(at(2), Dseq(dseq), 1488));
    }
    assert!(receive_progress.on_data(at(2), Dseq(112), 1488));
    receive_progress.schedule_report();
    assert_eq!(receive_progress.deadline(10), Some(at(1) + Duration::from_micros(200)), "20 µs for each receiver");
    receive_progress.on_reported(at(2), 80_000, false, None);
    assert!(receive_progress.on_data(at(3), Dseq(122), 1488), "nine datagrams were lost");
    receive_progress.on_reported(at(3), 80_000, false, None);
    assert!(receive_progress.on_control(at(23), Dseq(122)), "the report may be lost");
    assert!(!receive_progress.on_control(at(303), Dseq(122)), "but the repetition ends");
    assert!(!receive_progress.on_control(at(400), Dseq(123)), "little is unreported");
    assert!(receive_progress.on_control(at(500), Dseq(130)), "the last datagrams were all lost");
    assert!(receive_progress.is_active(at(103)) && !receive_progress.is_active(at(104)));
    receive_progress.on_reported(at(500), 80_000, false, Some(Dseq(111)));
    [Some(Dseq(115)), Some(Dseq(120))].into_iter().for_each(|awaited| receive_progress.on_awaited(at(501), awaited));
    assert_eq!(receive_progress.deadline(1), None);
    receive_progress.on_awaited(at(501), Some(Dseq(121)));
    assert!(receive_progress.deadline(1).is_some(), "half as many datagrams are awaited");
    receive_progress.on_reported(at(500), 80_000, false, Some(Dseq(128)));
    receive_progress.on_awaited(at(501), None);
    assert_eq!(receive_progress.deadline(1), None, "no publisher waits for a few datagrams");
    receive_progress.on_reported(at(500), 80_000, false, None);
    receive_progress.on_data(at(501), Dseq(131), 1488);
    receive_progress.on_awaited(at(501), Some(Dseq(130)));
    assert_eq!(receive_progress.deadline(1), None, "little arrived since");
    receive_progress.on_data(at(501), Dseq(132), 1488);
    receive_progress.on_awaited(at(501), Some(Dseq(131)));
    assert!(receive_progress.deadline(1).is_some());
    receive_progress.on_reported(at(502), 80_000, false, Some(Dseq(131)));
    receive_progress.schedule_report();
    receive_progress.cancel_report();
    assert_eq!(receive_progress.deadline(1), None);
}

/// Proves: W133, pace-proven
#[test]
fn unproven_receivers_delay_sending_a_tenth_at_most() {
    let mut story = Story::new(Pace::Auto, 0);
    let mut blocked_millis = 0;
    for millis in 0..100_000 {
        if millis % 15 == 0 {
            let newcomer = PacedReceiver::new(at(millis), &mut story.pacer);
            story.receivers.push(newcomer);
            story.receivers.drain(..story.receivers.len().saturating_sub(100));
        }
        story.send(at(millis), 10);
        blocked_millis += u64::from(!story.pacer.is_empty());
        story.tick(at(millis));
    }
    let most = PROOF_MILLIS_BURST + 100 * PROOF_MILLIS_PER_SECOND;
    assert!((1000..=most).contains(&blocked_millis), "{blocked_millis} of 100,000 ms, at most {most}");
    assert!(story.receivers.iter().all(|one| one.exclusion.is_none()), "an ignored receiver is not too slow");
}

/// Proves: W133, pace-proven
#[test]
fn new_receiver_is_awaited_until_proof_is_overdue() {
    let mut story = Story::new(Pace::Auto, 0);
    let newcomer = PacedReceiver::new(at(0), &mut story.pacer);
    story.receivers.push(newcomer);
    assert_eq!(story.send(at(0), 100), 5, "the first window of 10,000");
    assert_eq!(story.pacer.deadline(), Some(at(200)));
    story.tick(at(199));
    assert_eq!(story.sent, 5);
    story.tick(at(200));
    assert_eq!(story.sent, 100);
    story.receivers[0].on_proven();
    assert_eq!(story.send(at(201), 1), 100, "the first window is used up");
    story.report(at(202), 0, 100, 40_000);
    assert_eq!(story.send(at(202), 0), 101);
}
