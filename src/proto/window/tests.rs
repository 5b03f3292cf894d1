//! The windows against tables of edge cases and against models that keep every time stamp.

use super::*;
use crate::seqno::{FRAME_MAX, FRAME_SHIFT};
use crate::time::WallTime;
use std::collections::BTreeMap;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

fn settings(bytes: usize, bytes_max: usize) -> WindowSettings {
    WindowSettings { bytes, time: Duration::from_secs(10), bytes_max }
}

fn now(instant_secs: u64, wall_secs: u64) -> ClockReading {
    ClockReading {
        instant: Instant::from_nanos(instant_secs * SECOND),
        wall: WallTime::from_nanos(wall_secs.saturating_mul(SECOND)),
    }
}

fn subject(text: &str) -> Subject {
    text.parse().unwrap()
}

/// Runs a story line by line. `<instant s> <wall s> <subject>` numbers a message and compares the result with the text
/// after `=>`: `frame/count`, then `@time` of a stamp in frames or seconds, then `+n` for the offset from the first one
/// drawn, then `<chain`. The offset of each message must be that of the one before plus one, from the one of a stamp.
/// `<instant s> rotate` requests a rotation.
fn check(bytes: usize, bytes_max: usize, frame_messages_max: u64, story: &str) {
    let mut window = PubWindow::new(settings(bytes, bytes_max), frame_messages_max, 7);
    let mut rng = Rng::new(7);
    let mut offsets: BTreeMap<Subject, u32> = BTreeMap::new();
    let mut last_offsets: BTreeMap<Subject, u32> = BTreeMap::new();
    for line in story.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(at) = line.strip_suffix(" rotate") {
            window.rotate_if_due(now(at.parse().unwrap(), 0).instant);
            continue;
        }
        let (given, expected) = line.split_once(" => ").unwrap();
        let given: Vec<&str> = given.split(' ').collect();
        let name = subject(given[2]);
        let numbering = window.number(&name, now(given[0].parse().unwrap(), given[1].parse().unwrap()), &mut rng);
        let text = match numbering {
            Numbering::Unnumbered => "unnumbered".to_owned(),
            Numbering::FramesExhausted => "exhausted".to_owned(),
            Numbering::Numbered { seq, offset, stamp, chain } => {
                match stamp {
                    Some(stamp) => assert_eq!(offset, stamp.offset, "{line}"),
                    None => assert_eq!(Some(&offset.wrapping_sub(1)), last_offsets.get(&name), "{line}"),
                }
                let mut text = format!("{seq:?}");
                if let Some(stamp) = stamp {
                    if chain.is_none() {
                        offsets.insert(name.clone(), stamp.offset);
                    } else {
                        assert_eq!(Some(&offset.wrapping_sub(1)), last_offsets.get(&name), "{line}");
                    }
                    let (time, unit) = (stamp.time.as_nanos(), 1 << FRAME_SHIFT);
                    let in_frames = time % unit == 0;
                    let shown = if in_frames { format!("f{}", time / unit) } else { format!("{}s", time / SECOND) };
                    text += &format!(" @{shown} +{}", stamp.offset.wrapping_sub(offsets[&name]));
                }
                last_offsets.insert(name.clone(), offset);
                if let Some(chain) = chain {
                    text += &format!(" <{chain:?}");
                }
                text
            }
        };
        assert_eq!(text, expected, "{line}");
    }
}

/// Proves: W24, W38
#[test]
fn first_message_is_stamped_and_later_ones_counted() {
    check(
        1 << 20,
        1 << 20,
        u64::MAX,
        "
        1 100 a => 11/1 @100s +0
        1 100 a => 11/2
        2 101 b => 11/1 @101s +0
        900 1000 a => 11/3
        901 1001 c.d => 116/1 @1001s +0
    ",
    );
}

/// R10: a full frame is followed by a later one that names the number it continues, and the offset continues.
/// Proves: W40, W91
#[test]
fn full_frame_continues_in_a_chained_frame() {
    check(
        1 << 20,
        1 << 20,
        3,
        "
        1 100 a => 11/1 @100s +0
        1 100 a => 11/2
        1 100 a => 11/3
        1 100 a => 12/1 @f12 +3 <11/3
        1 100 a => 12/2
        1 500 a => 12/3
        1 500 a => 58/1 @500s +6 <12/3
        1 100 b => 11/1 @100s +0
    ",
    );
    check(
        1 << 20,
        1 << 20,
        1,
        "
        1 100 a => 11/1 @100s +0
        1 100 a => 12/1 @f12 +1 <11/1
        1 100 a => 13/1 @f13 +2 <12/1
    ",
    );
}

/// R10: neither a step back nor a step to the end of the field lowers a number.
/// Proves: W25, W39, frame
#[test]
fn clock_steps_never_lower_a_number() {
    // Two hours back, to 1970, forward again; `a` stays in the window, `b`, `c`, `d` are new.
    check(
        1 << 20,
        1 << 20,
        2,
        "
        1 9000 a => 1047/1 @9000s +0
        2 1800 a => 1047/2
        3 1800 a => 1048/1 @f1048 +2 <1047/2
        4 0 a => 1048/2
        5 0 b => 0/1 @f0 +0
        6 1800 c => 209/1 @1800s +0
        7 9000 a => 1049/1 @f1049 +4 <1048/2
        8 4575744000 d => 532686710/1 @4575744000s +0
    ",
    );
    // With a window of one subject, `a` is evicted at 21 s and returns under a clock that was set back.
    check(
        0,
        1 << 20,
        u64::MAX,
        "
        0 rotate
        1 9000 a => 1047/1 @9000s +0
        10 rotate
        11 9000 b => 1047/1 @9000s +0
        20 rotate
        21 1800 a => 1048/1 @f1048 +0
        22 1800 b => 1047/2
        23 0 c => 1048/1 @f1048 +0
        23 9100 d => 1059/1 @9100s +0
    ",
    );
}

/// Proves: W41
#[test]
fn numbering_ends_after_the_last_frame() {
    let end = 4_611_686_018_u64;
    assert_eq!(Frame::at(WallTime::from_nanos(end * SECOND)).number(), FRAME_MAX);
    // 2115-01-01, the last second of the field, and a wall clock beyond it.
    check(
        1 << 20,
        1 << 20,
        2,
        &format!(
            "
        1 4575744000 a => 532686710/1 @4575744000s +0
        1 {end} b => 536870911/1 @{end}s +0
        1 {end} b => 536870911/2
        1 {end} b => exhausted
        1 5000000000 c => 536870911/1 @5000000000s +0
        1 100 c => 536870911/2
        1 100 c => exhausted
        1 100 a => 532686710/2
    "
        ),
    );
    // Once a subject of the last frame has left, no new subject can be numbered; existing ones continue.
    check(
        0,
        1 << 20,
        u64::MAX,
        &format!(
            "
        0 rotate
        1 {end} a => 536870911/1 @{end}s +0
        10 rotate
        11 100 b => 11/1 @100s +0
        20 rotate
        21 100 a => exhausted
        21 100 c => exhausted
        21 100 b => 11/2
    "
        ),
    );
}

/// R11: an entry that is used within each `time` never leaves, whatever the size; an entry that is not used leaves.
/// Proves: W42, evict
#[test]
fn only_idle_entries_are_evicted() {
    let mut window = PubWindow::new(settings(0, 1 << 20), u64::MAX, 1);
    let mut rng = Rng::new(1);
    window.rotate_if_due(Instant::ZERO);
    window.number(&subject("idle"), now(0, 50), &mut rng);
    for second in 0..200 {
        let numbering = window.number(&subject("busy"), now(second, 50 + second), &mut rng);
        let Numbering::Numbered { seq, stamp, .. } = numbering else { panic!("{numbering:?}") };
        assert_eq!((seq.count(), stamp.is_some()), (second + 1, second == 0));
        window.rotate_if_due(now(second, 0).instant);
        let left: Vec<String> = window.iter().map(|(subject, _)| subject.to_string()).collect();
        assert_eq!(left.contains(&"idle".to_owned()), second < 20, "second {second}: {left:?}");
    }
    let row = window.row();
    assert_eq!((row.subjects, row.rotations, row.evicted), (1, 19, 1));
}

/// A8: beyond the hard limit there are no new entries, existing ones continue, and idle ones make room even if the
/// current generation stays small.
/// Proves: W43
#[test]
fn new_subjects_beyond_the_limit_are_unnumbered() {
    let bytes_max = 64 * 1024;
    let mut window = PubWindow::new(settings(60 * 1024, bytes_max), u64::MAX, 1);
    let mut rng = Rng::new(1);
    window.rotate_if_due(Instant::ZERO);
    let name = |n: usize| subject(&format!("subject.{n}"));
    let mut number = |window: &mut PubWindow, n: usize, at: u64| window.number(&name(n), now(at, 100), &mut rng);
    let first_refused =
        (0..10_000).find(|n| number(&mut window, *n, 1) == Numbering::Unnumbered).expect("the limit is reached");
    assert!(1000 < first_refused, "{first_refused}");
    for n in 0..first_refused {
        assert!(matches!(number(&mut window, n, 2), Numbering::Numbered { stamp: None, .. }), "{n}");
    }
    assert!(window.row().bytes <= bytes_max as u64);
    let row = window.row();
    for at in [10, 20, 30] {
        assert_eq!(number(&mut window, first_refused + at as usize, at), Numbering::Unnumbered, "refused at {at} s");
        assert!(matches!(number(&mut window, 0, at), Numbering::Numbered { stamp: None, .. }));
        window.rotate_if_due(now(at, 0).instant);
        if 20 <= at {
            break;
        }
    }
    assert_eq!(window.row().evicted, row.subjects - 1);
    assert!(matches!(number(&mut window, first_refused, 21), Numbering::Numbered { stamp: Some(_), .. }));
}

/// Returns whether a subject that is published once is still in the window after this time, in which another one is
/// published.
fn keeps_idle_published_subject(settings: WindowSettings, secs: u64) -> bool {
    let (mut window, mut rng) = (PubWindow::new(settings, u64::MAX, 1), Rng::new(1));
    window.rotate_if_due(Instant::ZERO);
    window.number(&subject("idle"), now(0, 50), &mut rng);
    for second in 0..=secs {
        window.number(&subject("busy"), now(second, 50 + second), &mut rng);
        window.rotate_if_due(now(second, 0).instant);
    }
    window.iter().any(|(name, _)| name == subject("idle"))
}

/// Returns whether a subject that is received once is still in the window after this time, in which another one is
/// received.
fn keeps_idle_subscribed_subject(settings: WindowSettings, secs: u64) -> bool {
    let mut window = SubWindow::new(settings, 1);
    window.rotate_if_due(Instant::ZERO);
    assert!(window.insert(1, &subject("idle"), entry(1)));
    for second in 0..=secs {
        assert!(window.insert(1, &subject("busy"), entry(1 + second)));
        window.rotate_if_due(now(second, 0).instant);
    }
    window.iter().any(|(_, name, _)| name == subject("idle"))
}

fn entry(number: u64) -> SubEntry {
    SubEntry { last: Seq::new(number).unwrap(), dseq: Dseq(number), at: now(number, 0).instant, offset: None }
}

#[test]
fn idle_published_subject_stays_in_a_small_window() {
    for (pub_window_size, stays) in [(0, false), (64 << 10, true)] {
        let settings = settings(pub_window_size, 1 << 20);
        assert_eq!(keeps_idle_published_subject(settings, 30), stays, "{pub_window_size} bytes");
    }
}

#[test]
fn idle_published_subject_stays_for_the_time() {
    for (pub_window_time, stays) in [(10, false), (60, true)] {
        let settings = WindowSettings { time: Duration::from_secs(pub_window_time), ..settings(0, 1 << 20) };
        assert_eq!(keeps_idle_published_subject(settings, 30), stays, "{pub_window_time} s");
    }
}

#[test]
fn published_subjects_are_numbered_up_to_the_limit() {
    for (pub_window_max, numbers_all) in [(64 << 10, false), (16 << 20, true)] {
        let (mut window, mut rng) = (PubWindow::new(settings(0, pub_window_max), u64::MAX, 1), Rng::new(1));
        let mut number = |n: u64| window.number(&subject(&format!("subject.{n}")), now(1, 100), &mut rng);
        let is_numbered = (0..10_000).all(|n| number(n) != Numbering::Unnumbered);
        assert_eq!(is_numbered, numbers_all, "{pub_window_max} bytes");
    }
}

#[test]
fn idle_subscribed_subject_stays_in_a_small_window() {
    for (sub_window_size, stays) in [(0, false), (64 << 10, true)] {
        let settings = settings(sub_window_size, 1 << 20);
        assert_eq!(keeps_idle_subscribed_subject(settings, 30), stays, "{sub_window_size} bytes");
    }
}

#[test]
fn idle_subscribed_subject_stays_for_the_time() {
    for (sub_window_time, stays) in [(10, false), (60, true)] {
        let settings = WindowSettings { time: Duration::from_secs(sub_window_time), ..settings(0, 1 << 20) };
        assert_eq!(keeps_idle_subscribed_subject(settings, 30), stays, "{sub_window_time} s");
    }
}

#[test]
fn subscribed_subjects_are_entered_up_to_the_limit() {
    for (sub_window_max, enters_all) in [(64 << 10, false), (16 << 20, true)] {
        let mut window = SubWindow::new(settings(0, sub_window_max), 1);
        let mut enter = |n: u64| window.insert(1, &subject(&format!("subject.{n}")), entry(1));
        assert_eq!((0..10_000).all(&mut enter), enters_all, "{sub_window_max} bytes");
    }
}

/// Random traffic on a small window against a map with the time of last use of every subject.
/// Proves: W38, W39, W91
#[test]
fn publication_window_agrees_with_reference_model() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let settings = settings(rng.below(8000) as usize, rng.between(4000, 40_000) as usize);
        let frame_max = rng.between(1, 50);
        let mut window = PubWindow::new(settings, frame_max, rng.next_u64());
        let mut model: BTreeMap<Subject, (Instant, Seq, u32)> = BTreeMap::new();
        let mut highest: BTreeMap<Subject, Seq> = BTreeMap::new();
        let (mut rotated, mut floor, mut at, mut wall) = (Instant::ZERO, None, 0, 4_000_000_000 * SECOND);
        window.rotate_if_due(rotated);
        let mut notes: BTreeMap<Subject, u32> = BTreeMap::new();
        for step in 0..3000_u32 {
            let context = format!("seed {seed} step {step}");
            at += rng.below(SECOND / 4);
            wall = match rng.below(200) {
                0 => 0,
                1 => rng.below(4_500_000_000) * SECOND,
                2 => wall.saturating_sub(7200 * SECOND),
                _ => wall + rng.below(SECOND / 4),
            };
            let now = ClockReading { instant: Instant::from_nanos(at), wall: WallTime::from_nanos(wall) };
            // Some subjects are much busier than others.
            let spread = [3, 30, 3000][rng.below(3) as usize];
            let name = subject(&format!("{}{}", "token.".repeat(rng.below(3) as usize), rng.below(spread)));
            let known = model.get(&name).copied();
            match (window.number(&name, now, &mut rng), known) {
                (Numbering::Numbered { seq, offset: given, stamp, chain }, Some((_, last, offset))) => {
                    assert_eq!(given, offset.wrapping_add(1), "{context}");
                    if last.count() < frame_max {
                        assert_eq!((seq, stamp, chain), (last.forward(1).unwrap(), None, None), "{context}");
                        model.insert(name.clone(), (now.instant, seq, offset.wrapping_add(1)));
                    } else {
                        let frame = Frame::at(now.wall).max(last.frame().next().unwrap());
                        let stamp_expected =
                            Stamp { time: now.wall.max(frame.start()), offset: offset.wrapping_add(1) };
                        assert_eq!((seq, stamp, chain), (frame.first(), Some(stamp_expected), Some(last)), "{context}");
                        model.insert(name.clone(), (now.instant, seq, stamp_expected.offset));
                    }
                }
                (Numbering::Numbered { seq, offset, stamp, chain }, None) => {
                    let frame = Frame::at(now.wall).max(floor.map_or(Frame::default(), |f: Frame| f.next().unwrap()));
                    let stamp = stamp.expect("a new subject is dated");
                    assert_eq!((seq, offset, chain), (frame.first(), stamp.offset, None), "{context}");
                    assert_eq!(stamp.time, now.wall.max(frame.start()), "{context}");
                    model.insert(name.clone(), (now.instant, seq, stamp.offset));
                }
                (Numbering::Unnumbered, None) => {}
                (numbering, known) => panic!("{context}: {numbering:?} where the model has {known:?}"),
            }
            // The note of a subject stays with it; a new subject has none.
            let note = known.and_then(|_| notes.get(&name).copied());
            assert_eq!(window.noted(), note, "{context}");
            window.note([step, 1 << 24][step as usize % 2]);
            match known {
                Some(_) if step % 2 == 0 => drop(notes.insert(name.clone(), step)),
                Some(_) => {}
                None => drop(notes.remove(&name)),
            }
            if let Some((_, seq, _)) = model.get(&name) {
                let before = highest.insert(name.clone(), *seq);
                assert!(before.is_none_or(|before| before < *seq), "{context}: the number of {name} fell");
            }
            let rotations = window.row().rotations;
            window.rotate_if_due(now.instant);
            if window.row().rotations != rotations {
                assert!(settings.time <= now.instant.since(rotated), "{context}: rotated too early");
                model.retain(|_, (used, last, _)| {
                    let stays = rotated < *used || rotated == Instant::ZERO;
                    if !stays {
                        assert!(settings.time <= now.instant.since(*used), "{context}");
                        floor = floor.max(Some(last.frame()));
                    }
                    stays
                });
                rotated = now.instant;
            }
            let row = window.row();
            assert_eq!(row.subjects, model.len() as u64, "{context}");
            assert!(row.bytes <= row.bytes_max, "{context}");
        }
        let all: BTreeMap<Subject, Seq> = window.iter().collect();
        assert_eq!(all, model.into_iter().map(|(name, (_, seq, _))| (name, seq)).collect(), "seed {seed}");
        assert!(0 < window.row().rotations, "seed {seed}");
    }
}

/// Random traffic on a small subscription window against a map: entries, replacement, and the publishers returned when
/// entries are evicted.
#[test]
fn subscription_window_agrees_with_reference_model() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let settings = settings(rng.below(8000) as usize, rng.between(6000, 40_000) as usize);
        let mut window = SubWindow::new(settings, rng.next_u64());
        let mut model: BTreeMap<(u32, Subject), (Instant, SubEntry)> = BTreeMap::new();
        let (mut rotated, mut at) = (Instant::ZERO, 0);
        window.rotate_if_due(rotated);
        for step in 0..3000_u64 {
            let context = format!("seed {seed} step {step}");
            at += rng.below(SECOND / 4);
            let now = Instant::from_nanos(at);
            let spread = [3, 30, 300][rng.below(3) as usize];
            let key = (rng.below(4) as u32, subject(&format!("s.{}", rng.below(spread))));
            let sought = window.seek(key.0, &key.1).filter(|_| rng.chance(0.5));
            let seen = window.find(key.0, &key.1, sought);
            let found = seen.map(|(_, entry)| entry);
            assert_eq!(found, model.get(&key).map(|(_, entry)| *entry), "{context}");
            if let Some((used, _)) = model.get_mut(&key) {
                *used = now;
            }
            let entry = SubEntry { last: Seq::new(step + 1).unwrap(), dseq: Dseq(step), at: now, offset: None };
            if rng.chance(0.7) {
                let inserted = match seen {
                    Some((index, _)) if rng.chance(0.5) => {
                        window.renew(index, entry);
                        true
                    }
                    _ => window.insert(key.0, &key.1, entry),
                };
                assert!(inserted || found.is_none(), "{context}: an entry that exists is always replaced");
                if inserted {
                    model.insert(key, (now, entry));
                }
            }
            let rotations = window.row().rotations;
            let named = window.rotate_if_due(now);
            let mut expected = BTreeSet::new();
            if window.row().rotations != rotations {
                assert!(settings.time <= now.since(rotated), "{context}: rotated too early");
                model.retain(|(publisher, _), (used, _)| {
                    let stays = rotated < *used || rotated == Instant::ZERO;
                    if !stays {
                        assert!(settings.time <= now.since(*used), "{context}");
                        expected.insert(*publisher);
                    }
                    stays
                });
                rotated = now;
            }
            assert_eq!(named, expected.into_iter().collect::<Vec<_>>(), "{context}");
            assert!(window.row().bytes <= window.row().bytes_max, "{context}");
        }
        let all: BTreeMap<_, _> = window.iter().map(|(uid, name, entry)| ((uid, name), entry)).collect();
        assert_eq!(all, model.into_iter().map(|(key, (_, entry))| (key, entry)).collect(), "seed {seed}");
    }
}

/// A rotation of a large window is spread over many calls; an entry used before its turn stays.
#[test]
fn large_rotation_is_spread_over_calls() {
    let mut window = PubWindow::new(settings(0, 64 << 20), u64::MAX, 3);
    let mut rng = Rng::new(3);
    let many = 200_000;
    window.rotate_if_due(Instant::ZERO);
    for n in 0..many {
        window.number(&subject(&format!("x.{n}")), now(1, 100), &mut rng);
    }
    window.rotate_if_due(now(11, 0).instant);
    while window.sweeping() {
        window.rotate_if_due(now(12, 0).instant);
    }
    assert_eq!(window.row().subjects, many, "all were used in the generation that has just ended");
    window.number(&subject("y"), now(13, 100), &mut rng);
    let bytes_before = window.row().bytes;

    let mut calls = 0;
    let survivor = subject("x.7");
    loop {
        window.rotate_if_due(now(22, 0).instant);
        if calls == 0 {
            let numbering = window.number(&survivor, now(22, 100), &mut rng);
            assert!(matches!(numbering, Numbering::Numbered { stamp: None, .. }), "not yet gone: {numbering:?}");
        }
        calls += 1;
        if !window.sweeping() {
            break;
        }
    }
    assert!(10 < calls && calls <= SWEEP_CALLS + 1, "{calls} calls");
    assert_eq!(window.row().subjects, 2, "the survivor and the one of the current generation");
    assert!(window.row().bytes < bytes_before / 20, "memory is given back: {} of {bytes_before}", window.row().bytes);
}

impl PubWindow {
    fn sweeping(&self) -> bool {
        self.streams.sweep.is_some()
    }
}
