//! The datagrams that the publishers really sent: captured at the switch, before any fault.

use crate::netns::lan::open_sockets;
use seqcast::daemon::batch::{BATCH_BUFFERS_MAX, RecvBatch};
use seqcast::daemon::multicast::Sockets;
use seqcast::proto::effect::Path;
use seqcast::wire::{self, Datagram, Kind, Record};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A listener at the switch.
pub struct Tap {
    sent: Arc<Mutex<SentStreams>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The streams of a group by epoch, each epoch written as in JSON.
pub type SentStreams = BTreeMap<String, Stream>;

/// All datagrams of one run of a publisher to the group.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// The messages of each data datagram, by its dseq.
    pub datagrams: BTreeMap<u64, Vec<SentMessage>>,
    /// Control datagrams.
    pub controls: u64,
}

/// A message as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentMessage {
    /// Its subject.
    pub subject: String,
    /// Its number.
    pub seq: u64,
    /// Its payload; the tests send text.
    pub payload: String,
}

impl Stream {
    /// Returns the number of messages on a subject.
    pub fn count(&self, subject: &str) -> usize {
        self.datagrams.values().flatten().filter(|message| message.subject == subject).count()
    }
}

impl Tap {
    /// Listens from now on.
    pub fn new(group: IpAddr, port: u16) -> Tap {
        let sockets = open_sockets("br0", group, port);
        let sent = Arc::new(Mutex::new(SentStreams::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (sent, stop) = (Arc::clone(&sent), Arc::clone(&stop));
            move || listen(sockets, &sent, &stop)
        });
        Tap { sent, stop, thread: Some(thread) }
    }

    /// Returns all that was sent so far.
    pub fn sent(&self) -> SentStreams {
        self.sent.lock().expect("the listener does not panic").clone()
    }

    /// Returns the number of messages sent so far on a subject, by all publishers.
    pub fn count(&self, subject: &str) -> usize {
        let sent = self.sent.lock().expect("the listener does not panic");
        sent.values().map(|stream| stream.count(subject)).sum()
    }

    /// Returns the highest dseq so far, of any publisher.
    pub fn high(&self) -> u64 {
        let sent = self.sent.lock().expect("the listener does not panic");
        sent.values().filter_map(|stream| stream.datagrams.keys().next_back()).max().copied().unwrap_or(0)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("a tap is dropped once");
        if thread.join().is_err() && !thread::panicking() {
            panic!("the listener at the switch failed");
        }
    }
}

fn listen(mut sockets: Sockets, sent: &Mutex<SentStreams>, stop: &AtomicBool) {
    let mut batch = RecvBatch::new(BATCH_BUFFERS_MAX);
    while !stop.load(Ordering::Relaxed) {
        // Without an event queue nothing else says so.
        sockets.on_copies_readable();
        if sockets.recv_batch(Path::Multicast, &mut batch).expect("receiving works") == 0 {
            sockets.wait(STOP_INTERVAL).expect("waiting works");
            continue;
        }
        let mut sent = sent.lock().expect("no reader panics");
        for received in batch.drain() {
            assert_eq!(received.overrun, 0, "the listener is too slow to know what was sent");
            // The self-test's probes and made-up datagrams of a test belong to no publisher.
            if let Ok(datagram) = wire::decode(received.bytes) {
                note(&mut sent, &datagram);
            }
        }
    }
}

fn note(sent: &mut SentStreams, datagram: &Datagram) {
    let stream = sent.entry(datagram.header.epoch.to_string()).or_default();
    match datagram.header.kind {
        Kind::Control => stream.controls += 1,
        Kind::Directed => {}
        Kind::Data => {
            let number = datagram.header.number;
            let messages: Vec<SentMessage> = datagram.records.iter().flat_map(messages_of).collect();
            if let Some(known) = stream.datagrams.get(&number) {
                // Receivers that missed it together get it by multicast.
                assert_eq!(*known, messages, "datagram {number} was sent again with another content");
            } else {
                stream.datagrams.insert(number, messages);
            }
        }
    }
}

fn messages_of(record: &Record) -> Vec<SentMessage> {
    let Record::Run(run) = record else { return Vec::new() };
    let first = run.first.expect("the tests do not fill the publication window").raw();
    let sent = (first..).zip(run.messages()).map(|(seq, message)| SentMessage {
        subject: message.subject.as_str().to_owned(),
        seq,
        payload: String::from_utf8(message.payload.to_vec()).expect("the tests send text"),
    });
    sent.collect()
}

/// Interval at which the listener checks whether it should stop.
const STOP_INTERVAL: Duration = Duration::from_millis(50);
