//! `demo loss`: three peers in this process on loopback multicast. One publishes. The other two drop a share of the
//! datagrams that reach their sockets, before the protocol sees them, and request them again. Then every message must
//! be accounted for.

pub mod args;
mod audit;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use self::args::{DemoOptions, DemoScenario};
use super::pacer::RatePacer;
use super::show;
use crate::bus::{Bus, DropRule, RecvError, SubscribeError, Subscription};
use crate::clock::{Clock, random_u64};
use crate::config::{Config, GRACE, Override};
use crate::message::Message;
use crate::subject::{Pattern, Subject};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::{Output, json, note, pluralize};
use crate::terminal::peer;
use crate::terminal::progress::Progress;
use crate::terminal::table::{Column, TextTable};
use audit::{DeliveryAudit, SentCounts, SubjectBalance};

/// The subjects of the demonstration, used for publishing in turn.
const SUBJECTS: [&str; 4] = ["demo.a", "demo.b", "demo.c", "demo.d"];
/// The publisher.
const PUBLISHER: &str = "A.demo";
/// The receivers.
const RECEIVERS: [&str; 2] = ["B.demo", "C.demo"];
/// Time limit for the receivers to know the publisher. From then on every message is owed to their subscribers (R4).
const CONTACT_TIME_MAX: Duration = Duration::from_secs(30);
/// Time limit for the receivers to settle missing messages, in addition to the time for requests. Heartbeats may be
/// dropped, too; their intervals grow up to a second.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(30);
/// Interval between checks whether the receivers have settled.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Number of messages between two flushes of the publisher. They spread the messages over many datagrams even on a
/// busy machine, so that some of the dropped datagrams hold messages.
const FLUSH_MESSAGES: u64 = 16;
/// Number of groups to try: another program may hold the port.
const GROUPS: u64 = 8;

/// Result of one receiver.
#[derive(Serialize)]
struct DemoReceiver {
    name: &'static str,
    dropped_datagrams: u64,
    delivered: u64,
    repaired: u64,
    lost: u64,
    unverified: u64,
    subjects: Vec<SubjectBalance>,
    faults: Vec<String>,
    /// The receiver's row of `show loss` about the publisher.
    report: Value,
    #[serde(skip)]
    loss: Value,
}

/// The whole demonstration in JSON.
#[derive(Serialize)]
struct DemoJson<'a> {
    ok: bool,
    sent: u64,
    seconds: f64,
    drop: f64,
    reliability_ms: u64,
    seed: u64,
    receivers: &'a [DemoReceiver],
}

/// Runs `demo`.
///
/// # Errors
/// The peers cannot be started.
pub fn run(options: &DemoOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    match options.what {
        DemoScenario::Loss => loss(options, out),
    }
}

fn loss(options: &DemoOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let interrupt = Interrupt::watch()?;
    let peers = DemoPeers::open(options)?;
    if !options.json {
        note(format_args!("three peers on loopback, group {}:{}; traffic is not encrypted", peers.group, peers.port));
    }
    peers.await_contact(&interrupt)?;
    let start = Clock::now().instant;
    let is_over = AtomicBool::new(false);
    let (sent, audits) = std::thread::scope(|scope| {
        let readers: Vec<_> =
            peers.subscriptions.iter().map(|subscription| scope.spawn(|| read(subscription, &is_over))).collect();
        let time_max = SETTLE_TIME_MAX + options.reliability;
        let sent = publish(&peers.publisher, options, &interrupt);
        let sent = sent.and_then(|sent| peers.settle(&sent, time_max, &interrupt).map(|()| sent));
        is_over.store(true, Ordering::Release);
        let audits: Vec<DeliveryAudit> =
            readers.into_iter().map(|reader| reader.join().expect("a reader does not panic")).collect();
        (sent, audits)
    });
    let sent = sent?;
    let seconds = Clock::now().instant.since(start).as_secs_f64();
    let mut receivers = Vec::new();
    let audits = peers.subscriptions.iter().zip(audits);
    for ((bus, name), (subscription, audit)) in peers.receivers.iter().zip(RECEIVERS).zip(audits) {
        receivers.push(receiver(bus, name, subscription, audit, &sent)?);
    }
    let ok = receivers.iter().all(|receiver| receiver.faults.is_empty());
    if options.json {
        let (sent, receivers) = (options.count, &receivers[..]);
        let reliability_ms = u64::try_from(options.reliability.as_millis()).unwrap_or(u64::MAX);
        let DemoOptions { drop, seed, .. } = *options;
        out.line(json(&DemoJson { ok, sent, seconds, drop, reliability_ms, seed, receivers }))?;
    } else {
        print(options, &receivers, out)?;
    }
    Ok(if ok { Exit::Done } else { Exit::Failed })
}

/// Records a receiver's notices, until the run is over and none is left.
fn read(subscription: &Subscription, is_over: &AtomicBool) -> DeliveryAudit {
    let mut audit = DeliveryAudit::default();
    loop {
        match subscription.recv_timeout(CHECK_INTERVAL) {
            Ok(notice) => audit.record(&notice),
            Err(RecvError::Empty) if is_over.load(Ordering::Acquire) => return audit,
            Err(RecvError::Empty) => {}
            Err(RecvError::Closed) => return audit,
        }
    }
}

/// Returns a receiver's report about the publisher.
fn report(bus: &Bus) -> Result<Value, CommandFailure> {
    let mut loss = peer::show(bus, json!({ "show": "loss" }))?;
    if let Some(rows) = loss["rows"].as_array_mut() {
        rows.retain(|row| row["publisher"] == PUBLISHER);
    }
    Ok(loss)
}

/// Returns one receiver's result.
fn receiver(
    bus: &Bus,
    name: &'static str,
    subscription: &Subscription,
    mut audit: DeliveryAudit,
    sent: &SentCounts,
) -> Result<DemoReceiver, CommandFailure> {
    // Unverified messages may still turn out to be lost, so the report is read until it no longer changes.
    let mut loss = report(bus)?;
    let deadline = Clock::now().instant + SETTLE_TIME_MAX;
    while Clock::now().instant < deadline {
        let before = std::mem::replace(&mut loss, {
            while let Ok(notice) = subscription.recv_timeout(CHECK_INTERVAL) {
                audit.record(&notice);
            }
            report(bus)?
        });
        // On a busy host, missing datagrams may be awaited for longer than the report stays the same.
        if before == loss && loss["rows"][0]["datagrams"]["pending"] == 0 {
            break;
        }
    }
    let unverified = loss["rows"][0]["unverified"]["count"].as_u64().unwrap_or(0);
    let subjects = audit.balance(sent);
    let sum = |count: fn(&SubjectBalance) -> u64| subjects.iter().map(count).sum();
    Ok(DemoReceiver {
        name,
        dropped_datagrams: peer::counter(bus, "dropped_by_rule")?,
        delivered: sum(|row| row.delivered),
        repaired: sum(|row| row.repaired),
        lost: sum(|row| row.lost),
        unverified: sum(|row| row.unverified),
        faults: audit.faults(sent, unverified),
        subjects,
        report: loss["rows"][0].clone(),
        loss,
    })
}

/// The three peers.
struct DemoPeers {
    group: String,
    port: u64,
    publisher: Bus,
    receivers: Vec<Bus>,
    subscriptions: Vec<Subscription>,
}

impl DemoPeers {
    /// Starts the peers in a group that no other program is likely to use.
    fn open(options: &DemoOptions) -> Result<DemoPeers, CommandFailure> {
        let mut last = None;
        for _ in 0..GROUPS {
            match DemoPeers::open_at(options, random_u64()) {
                Ok(peers) => return Ok(peers),
                Err(failure) => last = Some(failure),
            }
        }
        Err(last.expect("at least one group was tried"))
    }

    fn open_at(options: &DemoOptions, random: u64) -> Result<DemoPeers, CommandFailure> {
        let port = 20_000 + random % 12_000;
        let [high, low, ..] = random.to_be_bytes();
        let group = format!("239.254.{high}.{low}");
        let reliability = humantime::format_duration(options.reliability).to_string();
        let peer = |name: &str, drop| {
            let (port, security) = (port.to_string(), ("security", "open"));
            let settings = [("name", name), ("interface", "lo"), ("group", &group), ("port", &port), security];
            let mut settings = settings.map(|(key, value)| Override::flag("demo", key, value)).to_vec();
            settings.push(Override::flag("--reliability", "reliability", &reliability));
            let config =
                Config::resolve(None, &settings).map_err(|error| CommandFailure::new(Exit::Configuration, error))?;
            peer::embed(&config, drop)
        };
        let mut receivers = Vec::new();
        for (seed, name) in (options.seed..).zip(RECEIVERS) {
            let drop = DropRule { seed, chance: options.drop, burst: 1 };
            receivers.push(peer(name, (0.0 < options.drop).then_some(drop))?);
        }
        let pattern: Pattern = "demo.>".parse().expect("a pattern");
        let subscribe = |bus: &Bus| bus.subscribe(pattern.clone());
        let subscriptions = receivers.iter().map(subscribe).collect::<Result<Vec<Subscription>, SubscribeError>>();
        let subscriptions = subscriptions.map_err(|error| CommandFailure::new(Exit::Failed, error))?;
        let publisher = peer(PUBLISHER, None)?;
        Ok(DemoPeers { group, port, publisher, receivers, subscriptions })
    }

    /// Waits until each receiver knows the publisher.
    fn await_contact(&self, interrupt: &Interrupt) -> Result<(), CommandFailure> {
        self.await_rows(CONTACT_TIME_MAX, interrupt, |publisher| publisher.is_some())
    }

    /// Waits until each receiver has received every message or reported it as lost or unverified, or `time_max` is
    /// over.
    fn settle(&self, sent: &SentCounts, time_max: Duration, interrupt: &Interrupt) -> Result<(), CommandFailure> {
        let sent: u64 = sent.values().sum();
        self.await_rows(time_max, interrupt, |publisher| {
            let count = |key: &str| publisher.and_then(|row| row[key].as_u64()).unwrap_or(0);
            count("messages_in") + count("lost") + count("unverified") == sent
        })
    }

    /// Waits until the row of the publisher, if there is one, satisfies this at each receiver, or `time_max` is over.
    fn await_rows(
        &self,
        time_max: Duration,
        interrupt: &Interrupt,
        is_satisfied: impl Fn(Option<&Value>) -> bool,
    ) -> Result<(), CommandFailure> {
        let deadline = Clock::now().instant + time_max;
        while Clock::now().instant < deadline {
            let mut are_all = true;
            for bus in &self.receivers {
                let answer = peer::show(bus, json!({ "show": "peers" }))?;
                let rows = answer["rows"].as_array().map_or(&[][..], Vec::as_slice);
                are_all &= is_satisfied(rows.iter().find(|row| row["publisher"] == PUBLISHER));
            }
            if are_all {
                break;
            }
            interrupt.sleep(CHECK_INTERVAL);
            check_interrupt(interrupt)?;
        }
        Ok(())
    }
}

/// Refuses to continue once the user ends the command.
fn check_interrupt(interrupt: &Interrupt) -> Result<(), CommandFailure> {
    if interrupt.is_raised() { Err(CommandFailure::new(Exit::Failed, "interrupted")) } else { Ok(()) }
}

/// Publishes in turn on all subjects; each payload contains the number of the message on its subject.
fn publish(bus: &Bus, options: &DemoOptions, interrupt: &Interrupt) -> Result<SentCounts, CommandFailure> {
    let subjects = SUBJECTS.map(|subject| subject.parse::<Subject>().expect("a subject"));
    let mut sent: SentCounts = subjects.iter().map(|subject| (subject.clone(), 0)).collect();
    let start = Clock::now().instant;
    let pacer = RatePacer::new(Some(options.rate), start);
    let mut progress = Progress::new(Some(options.count), start);
    for (number, subject) in (0..options.count).zip(subjects.iter().cycle()) {
        let now = Clock::now().instant;
        let wait = pacer.wait(number, now);
        if !wait.is_zero() {
            interrupt.sleep(wait);
        }
        check_interrupt(interrupt)?;
        let count = sent.get_mut(subject).expect("every subject is there");
        *count += 1;
        if !peer::publish(bus, Message::new(subject.clone(), format!("{count}")), interrupt)? {
            check_interrupt(interrupt)?;
        }
        if number % FLUSH_MESSAGES == 0 {
            peer::flush(bus)?;
        }
        progress.show(now, number, || format!("published {number} of {} messages", options.count));
    }
    progress.clear();
    peer::flush(bus)?;
    Ok(sent)
}

fn print(options: &DemoOptions, receivers: &[DemoReceiver], out: &mut Output) -> std::io::Result<()> {
    let share = options.drop * 100.0;
    out.line(format_args!(
        "A.demo sent {} on {} subjects; B.demo and C.demo each drop {share}% of the datagrams (seed {})",
        pluralize(options.count, "message"),
        SUBJECTS.len(),
        options.seed
    ))?;
    match options.reliability <= GRACE {
        true => out.line("and request no retransmissions")?,
        false => {
            let reliability = humantime::format_duration(options.reliability);
            out.line(format_args!("and request missing datagrams for at most {reliability}"))?;
        }
    }
    for receiver in receivers {
        let dropped = pluralize(receiver.dropped_datagrams, "datagram");
        out.line(format_args!(
            "\n{} dropped {dropped} before the protocol saw them; the protocol reports:",
            receiver.name
        ))?;
        let table = show::loss_table(&receiver.loss);
        out.bytes(table.to_string().as_bytes())?;
        let headers = ["sent", "delivered", "repaired", "lost", "unverified"].map(Column::new);
        let mut columns = vec![Column::new("subject").left()];
        columns.extend(headers);
        let mut table = TextTable::new(&columns);
        for row in &receiver.subjects {
            let counts = [row.sent, row.delivered, row.repaired, row.lost, row.unverified];
            let counts = counts.iter().map(u64::to_string);
            table.row([row.subject.clone()].into_iter().chain(counts).collect());
        }
        out.bytes(table.to_string().as_bytes())?;
    }
    out.line("\nsent = delivered + lost + unverified, each message once:")?;
    for receiver in receivers {
        let DemoReceiver { name, delivered, repaired, lost, unverified, faults, .. } = receiver;
        let verdict =
            if faults.is_empty() { "every message is accounted for" } else { "NOT every message is accounted for" };
        let sum = format!("{} = {delivered} + {lost} + {unverified}", options.count);
        out.line(format_args!("{name}  {sum}: {verdict}, {repaired} of them repaired"))?;
        for fault in faults {
            out.alarm(format_args!("! {fault}"), true)?;
        }
    }
    Ok(())
}
