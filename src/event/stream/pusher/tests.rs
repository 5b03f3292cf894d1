//! Tests of a pusher with a simulated stream, consumer and network.

use super::*;
use crate::event::model::{EventId, Json, ServerId};
use crate::event::timestamp::Timestamp;
use crate::rng::Rng;
use bytes::Bytes;

fn id(number: u64) -> StreamId {
    StreamId::from_number(number).unwrap()
}

fn event(number: u64) -> StreamEvent {
    StreamEvent {
        id: id(number),
        kind: "A".parse().unwrap(),
        data: Json::from_bytes(Bytes::from_static(b"1")).unwrap(),
        time: Timestamp::MIN,
        origin: EventId { server: ServerId(1), session: number, instance: 1 },
    }
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn page(numbers: &[u64], covered: u64, more_follows: bool) -> StreamPage {
    StreamPage { events: numbers.iter().map(|number| event(*number)).collect(), covered: id(covered), more_follows }
}

const ROOM: PageBudget = PageBudget { events: 3, bytes: 10_000 };
const SETTINGS: Settings = Settings { budget: ROOM, groups_max: 2, delay: Duration::from_millis(10) };

fn steps(pusher: &mut Pusher, now: Instant) -> Vec<PusherAction> {
    std::iter::from_fn(|| pusher.poll(now)).collect()
}

fn sends(seq: u32, numbers: &[u64]) -> PusherAction {
    PusherAction::Send { seq, events: Arc::new(numbers.iter().map(|number| event(*number)).collect()) }
}

fn reads(after: u64, events: usize, before: &[u64]) -> PusherAction {
    let taken: usize = before.iter().map(|number| event(*number).bytes()).sum();
    PusherAction::Read { after: id(after), budget: PageBudget { events, bytes: ROOM.bytes - taken } }
}

#[test]
fn idle_consumer_receives_events_at_once() {
    let mut pusher = Pusher::new(SETTINGS, id(4));
    assert_eq!(steps(&mut pusher, at(0)), [reads(4, 3, &[])]);
    pusher.on_page(at(0), page(&[5], 5, false));
    assert_eq!(steps(&mut pusher, at(0)), [sends(0, &[5])]);
    pusher.on_events_added();
    assert_eq!(steps(&mut pusher, at(1)), [reads(5, 3, &[])]);
    pusher.on_page(at(1), page(&[6], 6, false));
    // The consumer has a group: the next event waits for others, but not for long.
    assert_eq!(steps(&mut pusher, at(1)), []);
    assert_eq!(pusher.deadline(), Some(at(11)));
    pusher.on_events_added();
    assert_eq!(steps(&mut pusher, at(5)), [reads(6, 2, &[6])]);
    pusher.on_page(at(5), page(&[7], 7, false));
    assert_eq!(steps(&mut pusher, at(10)), []);
    assert_eq!(steps(&mut pusher, at(11)), [sends(1, &[6, 7])]);
    // The maximum number of groups is pending.
    pusher.on_events_added();
    assert_eq!(steps(&mut pusher, at(100)), []);
    pusher.on_answer(at(100), 1, true);
    assert_eq!(steps(&mut pusher, at(100)), [], "the first one is not accepted yet");
    pusher.on_answer(at(101), 0, true);
    assert_eq!(steps(&mut pusher, at(101)), [PusherAction::Accept(id(7)), reads(7, 3, &[])]);
    // A full group is sent at once.
    pusher.on_page(at(101), page(&[8, 9, 10], 10, true));
    assert_eq!(steps(&mut pusher, at(101)), [sends(2, &[8, 9, 10]), reads(10, 3, &[])]);
    pusher.on_page(at(102), page(&[11, 12, 13], 13, true));
    assert_eq!(steps(&mut pusher, at(102)), [sends(3, &[11, 12, 13])]);
}

/// A pusher whose consumer has one group that it has not accepted.
fn pusher_with_pending_group(settings: Settings) -> Pusher {
    let mut pusher = Pusher::new(settings, id(0));
    steps(&mut pusher, at(0));
    pusher.on_page(at(0), page(&[1], 1, false));
    assert_eq!(steps(&mut pusher, at(0)), [sends(0, &[1])]);
    pusher
}

#[test]
fn group_waits_for_other_events_during_the_delay() {
    for stream_delay in [10, 50] {
        let mut pusher = pusher_with_pending_group(Settings { delay: Duration::from_millis(stream_delay), ..SETTINGS });
        pusher.on_events_added();
        assert_eq!(steps(&mut pusher, at(0)), [reads(1, 3, &[])]);
        pusher.on_page(at(0), page(&[2], 2, false));
        assert_eq!(steps(&mut pusher, at(stream_delay - 1)), []);
        assert_eq!(steps(&mut pusher, at(stream_delay)), [sends(1, &[2])]);
    }
}

#[test]
fn unaccepted_groups_are_limited() {
    for (stream_groups, next) in [(1, vec![]), (2, vec![reads(1, 3, &[])])] {
        let mut pusher = pusher_with_pending_group(Settings { groups_max: stream_groups, ..SETTINGS });
        pusher.on_events_added();
        assert_eq!(steps(&mut pusher, at(1)), next, "{stream_groups} groups");
    }
}

#[test]
fn large_event_is_sent_alone() {
    let mut pusher =
        Pusher::new(Settings { budget: PageBudget { events: 3, bytes: 2 * event(1).bytes() }, ..SETTINGS }, id(0));
    steps(&mut pusher, at(0));
    pusher.on_page(at(0), page(&[1], 1, false));
    assert_eq!(steps(&mut pusher, at(0)), [sends(0, &[1])]);
    pusher.on_events_added();
    steps(&mut pusher, at(1));
    pusher.on_page(at(1), page(&[2], 2, false));
    pusher.on_events_added();
    let read = steps(&mut pusher, at(2));
    let [PusherAction::Read { after, budget: PageBudget { events: 2, bytes } }] = &read[..] else { panic!("{read:?}") };
    assert_eq!((*after, *bytes), (id(2), event(2).bytes()));
    let mut large = event(3);
    large.data = Json::from_bytes(Bytes::from(format!("\"{}\"", "x".repeat(1000)))).unwrap();
    let alone = StreamPage { events: vec![large.clone()], covered: id(3), more_follows: false };
    pusher.on_page(at(2), alone.clone());
    assert_eq!(steps(&mut pusher, at(2)), [sends(1, &[2])], "the groups under way are as many as may be");
    pusher.on_answer(at(3), 0, true);
    let Some(PusherAction::Accept(_)) = pusher.poll(at(3)) else { panic!("one is accepted") };
    let Some(PusherAction::Read { after, .. }) = pusher.poll(at(3)) else { panic!("it is read again") };
    assert_eq!(after, id(2));
    pusher.on_page(at(3), alone);
    assert_eq!(pusher.poll(at(3)), Some(PusherAction::Send { seq: 2, events: Arc::new(vec![large]) }));
}

#[test]
fn unwanted_event_is_accepted_after_its_predecessors() {
    let mut pusher = Pusher::new(SETTINGS, id(0));
    steps(&mut pusher, at(0));
    pusher.on_page(at(0), page(&[], 50, false));
    assert_eq!(steps(&mut pusher, at(0)), [PusherAction::Accept(id(50))]);
    pusher.on_events_added();
    steps(&mut pusher, at(0));
    pusher.on_page(at(0), page(&[60], 70, false));
    assert_eq!(steps(&mut pusher, at(0)), [sends(0, &[60])]);
    pusher.on_events_added();
    steps(&mut pusher, at(1));
    pusher.on_page(at(1), page(&[], 90, false));
    assert_eq!(steps(&mut pusher, at(1)), []);
    pusher.on_answer(at(2), 0, true);
    assert_eq!(steps(&mut pusher, at(2)), [PusherAction::Accept(id(90))]);
    assert_eq!(pusher.accepted(), id(90));
}

#[test]
fn rejected_group_is_sent_again_with_its_number() {
    let mut pusher = Pusher::new(SETTINGS, id(0));
    steps(&mut pusher, at(0));
    pusher.on_page(at(0), page(&[1], 1, false));
    steps(&mut pusher, at(0));
    let mut now = at(0);
    for millis in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
        pusher.on_answer(now, 0, false);
        assert_eq!(steps(&mut pusher, now), []);
        assert_eq!(pusher.deadline(), Some(now + Duration::from_millis(millis)));
        now = now + Duration::from_millis(millis);
        assert_eq!(steps(&mut pusher, now), [sends(0, &[1])]);
    }
    // An answer to an unknown group is ignored.
    pusher.on_answer(now, 1, true);
    assert_eq!(steps(&mut pusher, now), []);
    pusher.on_answer(now, 0, true);
    assert_eq!(steps(&mut pusher, now), [PusherAction::Accept(id(1))]);
    pusher.on_answer(now, 0, false);
    assert_eq!(steps(&mut pusher, now), []);
}

#[test]
fn exhausted_numbers_close_the_connection() {
    let mut pusher = Pusher::new(SETTINGS, id(0));
    pusher.seq_next = SEQ_MAX;
    steps(&mut pusher, at(0));
    pusher.on_page(at(0), page(&[1, 2, 3], 3, true));
    assert_eq!(steps(&mut pusher, at(0))[0], sends(SEQ_MAX, &[1, 2, 3]));
    pusher.on_page(at(0), page(&[4], 4, false));
    assert_eq!(pusher.poll(at(50)), Some(PusherAction::Close));
}

/// A consumer accepts, refuses and disconnects at random, repeatedly. It gets every event that it wants, in order. No
/// accepted event is sent again, and every reported position was accepted.
#[test]
fn random_consumer_loses_no_event() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let count = rng.between(1, 60);
        let wanted: Vec<u64> = (1..=count).filter(|_| rng.chance(0.6)).collect();
        let (mut added, mut accepted, mut delivered) = (0, 0, Vec::new());
        let mut now = 0;
        while accepted < count {
            let settings = Settings { groups_max: 1 + rng.below(3) as usize, ..SETTINGS };
            let mut pusher = Pusher::new(settings, id(accepted));
            let (mut seqs, mut unanswered): (Vec<u32>, Vec<(u32, Vec<u64>)>) = (Vec::new(), Vec::new());
            // Groups that the consumer has accepted on this connection, by number.
            let mut taken: Vec<(u32, Vec<u64>)> = Vec::new();
            for _ in 0..rng.between(1, 40) {
                now += rng.below(20);
                if added < count && rng.chance(0.5) {
                    added += rng.between(1, count - added);
                    pusher.on_events_added();
                }
                while let Some(step) = pusher.poll(at(now)) {
                    match step {
                        PusherAction::Read { .. } if rng.chance(0.1) => {
                            pusher.on_read_failed();
                            pusher.on_events_added();
                            break;
                        }
                        PusherAction::Read { after, budget } => {
                            let mut found: Vec<u64> =
                                wanted.iter().copied().filter(|n| after.number() < *n && *n <= added).collect();
                            let more_follows = budget.events < found.len();
                            found.truncate(budget.events);
                            let last = found.last().copied().unwrap_or(after.number());
                            let covered = if more_follows { last } else { added.max(after.number()) };
                            pusher.on_page(at(now), page(&found, covered, more_follows));
                        }
                        PusherAction::Send { seq, events } => {
                            let numbers: Vec<u64> = events.iter().map(|event| event.id.number()).collect();
                            assert!(!numbers.is_empty() && numbers.len() <= ROOM.events, "seed {seed}");
                            if !seqs.contains(&seq) {
                                assert_eq!(seq as usize, seqs.len(), "seed {seed}");
                                seqs.push(seq);
                            }
                            unanswered.push((seq, numbers));
                            assert!(unanswered.len() <= settings.groups_max, "seed {seed}");
                        }
                        PusherAction::Accept(up_to) => {
                            assert!(accepted < up_to.number() && up_to.number() <= added, "seed {seed}");
                            accepted = up_to.number();
                        }
                        PusherAction::Close => unreachable!(),
                    }
                }
                if !unanswered.is_empty() && rng.chance(0.7) {
                    let (seq, numbers) = unanswered.swap_remove(rng.below(unanswered.len() as u64) as usize);
                    let is_accepted = rng.chance(0.7);
                    if is_accepted {
                        taken.push((seq, numbers));
                    }
                    pusher.on_answer(at(now), seq, is_accepted);
                }
            }
            // The consumer orders the groups it has accepted, up to the first gap.
            taken.sort();
            let whole = taken.iter().enumerate().take_while(|(index, (seq, _))| *index == *seq as usize);
            delivered.extend(whole.flat_map(|(_, (_, numbers))| numbers.clone()));
            let accepted_events: Vec<u64> = wanted.iter().copied().filter(|number| *number <= accepted).collect();
            let mut seen = delivered.clone();
            seen.sort_unstable();
            seen.dedup();
            assert!(
                accepted_events.iter().all(|number| seen.contains(number)),
                "seed {seed}: {accepted_events:?} {seen:?}"
            );
            if added < count && rng.chance(0.3) {
                added = count;
            }
        }
        let mut firsts = Vec::new();
        delivered.iter().for_each(|number| {
            if !firsts.contains(number) {
                firsts.push(*number);
            }
        });
        assert_eq!(firsts, wanted, "seed {seed}");
    }
}
