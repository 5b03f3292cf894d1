//! A peer inside the program, driven by the caller's own thread: the fast path.

use super::ask::check_question;
use super::link::PeerLink;
use super::{
    Bus, HistoryError, IdCounters, Info, PendingAnswer, PublishError, SubscribeError, SubscribeOptions, Subscription,
    check_message, check_size,
};
use crate::config::Config;
use crate::daemon::clients::ClientTransport;
use crate::daemon::clock::Clock;
use crate::daemon::engine::Engine;
use crate::daemon::queue::{QueueLimits, SubscriptionQueue};
use crate::daemon::serve::why;
use crate::daemon::start::{Options, StartError};
use crate::message::{ClientId, Message, PeerRef, SubId};
use crate::proto::question::Question;
use crate::subject::{Pattern, Subject};
use crate::time::ClockReading;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Messages published at one reading of the clock.
const CLOCK_USES: u32 = 256;

/// A peer that works while, and only while, its owner calls [`turn`](EmbeddedPeer::turn) or [`drive`](EmbeddedPeer::drive). No
/// other thread, no lock waited for, no system call per message.
///
/// A peer that is not driven for long falls silent to the others; call at least once in the heartbeat interval.
pub struct EmbeddedPeer {
    engine: Engine,
    client: ClientId,
    info: Info,
    numbers: IdCounters,
    limits: QueueLimits,
    /// The time as read since the last turn, and how many messages may still be published at it.
    clock: Option<(ClockReading, u32)>,
}

impl EmbeddedPeer {
    /// Starts a peer. It does not listen on a Unix socket.
    ///
    /// # Errors
    /// What is in the way, and what to do about it.
    pub fn open(config: &Config) -> Result<EmbeddedPeer, StartError> {
        EmbeddedPeer::open_with(config, &Options::default())
    }

    /// Starts a peer that does more, or less, than others.
    ///
    /// # Errors
    /// What is in the way, and what to do about it.
    pub fn open_with(config: &Config, options: &Options) -> Result<EmbeddedPeer, StartError> {
        let mut engine = Engine::open(config, options)?;
        let limits = engine.clients.limits();
        let client = engine.clients.add(Clock::now(), "embedded".into(), ClientTransport::Embedded(BTreeMap::new()));
        let info = info(&engine, client);
        Ok(EmbeddedPeer { engine, client, info, numbers: IdCounters::default(), limits, clock: None })
    }

    /// Another client of the same peer, for other threads. It must not wait on the thread that drives the peer.
    pub fn bus(&mut self) -> Bus {
        let client =
            self.engine.clients.add(Clock::now(), "embedded".into(), ClientTransport::Embedded(BTreeMap::new()));
        let link = PeerLink::Engine(self.engine.mailbox.clone(), client);
        Bus::new(link, info(&self.engine, client), self.limits, None)
    }

    /// The time, read once for some messages that are published between two turns: reading it takes longer than the rest.
    fn now(&mut self) -> ClockReading {
        let (now, uses) = self.clock.filter(|(_, uses)| 0 < *uses).unwrap_or_else(|| (Clock::now(), CLOCK_USES));
        self.clock = Some((now, uses - 1));
        now
    }

    /// The time now; what is published later is not published before.
    fn read_clock(&mut self) -> ClockReading {
        self.clock = None;
        Clock::now()
    }

    /// Does what there is to do without waiting. False when the peer has ended.
    ///
    /// # Errors
    /// The system's event queue is broken, or the peer has panicked. The peer has ended then.
    pub fn turn(&mut self) -> io::Result<bool> {
        self.drive(Duration::ZERO)
    }

    /// Waits for something to do, for at most `timeout`, and does it. False when the peer has ended.
    ///
    /// # Errors
    /// The system's event queue is broken, or the peer has panicked. The peer has ended then.
    pub fn drive(&mut self, timeout: Duration) -> io::Result<bool> {
        self.clock = None;
        self.engine.turn(Some(timeout))
    }

    /// Publishes a message; small ones leave together at the end of the next turn. Never waits.
    ///
    /// # Errors
    /// [`PublishError::Full`] while the network or receivers take no more, or the configured rate is used up: make turns until
    /// they do.
    pub fn publish(&mut self, message: Message) -> Result<(), PublishError> {
        if self.publish_ref(&message)? { Ok(()) } else { Err(PublishError::Full(Box::new(message))) }
    }

    /// As [`EmbeddedPeer::publish`], of a message that is kept. False, and nothing done, while there is no room for it.
    ///
    /// # Errors
    /// The message is too large, or the peer has ended.
    pub fn publish_ref(&mut self, message: &Message) -> Result<bool, PublishError> {
        check_message(message, self.info.message_bytes_max)?;
        if !self.engine.is_running() {
            return Err(PublishError::Closed);
        }
        let now = self.now();
        Ok(self.engine.publish(now, self.client, message))
    }

    /// As [`EmbeddedPeer::publish_ref`], of a message of nothing but subject and payload: the fast way to publish. They are copied
    /// where they are to be.
    ///
    /// # Errors
    /// As [`EmbeddedPeer::publish_ref`].
    #[inline]
    pub fn publish_payload(&mut self, subject: &Subject, payload: &[u8]) -> Result<bool, PublishError> {
        check_size(payload.len(), self.info.message_bytes_max)?;
        if !self.engine.is_running() {
            return Err(PublishError::Closed);
        }
        let now = self.now();
        Ok(self.engine.publish_payload(now, self.client, subject, payload))
    }

    /// Whether every peer that is heard and does not send what nobody wants (`interest: on`) knows all subscriptions here: what
    /// they match it has sent since. Takes turns to become true; where no such peer is, it always is.
    pub fn is_confirmed(&self) -> bool {
        self.engine.are_confirmed()
    }

    /// Subscribes; active when this returns for all that reaches this peer. Other peers may leave out what they do not know to be
    /// wanted until [`EmbeddedPeer::is_confirmed`]. Read it with [`Subscription::try_recv`] between turns.
    ///
    /// # Errors
    /// The peer refuses it or has ended.
    pub fn subscribe(&mut self, pattern: Pattern) -> Result<Subscription, SubscribeError> {
        self.subscribe_with(pattern, &SubscribeOptions::default())
    }

    /// As [`EmbeddedPeer::subscribe`], with options.
    ///
    /// # Errors
    /// The peer refuses it or has ended.
    pub fn subscribe_with(
        &mut self,
        pattern: Pattern,
        options: &SubscribeOptions,
    ) -> Result<Subscription, SubscribeError> {
        if !self.engine.is_running() {
            return Err(SubscribeError::Closed);
        }
        let queue = Arc::new(SubscriptionQueue::new(self.limits));
        let sub = SubId(self.numbers.next_sub());
        let (news, patterns) = (options.joins(), vec![pattern.clone()]);
        let wanted = (options.wanted(pattern), options.mode, news);
        let now = self.read_clock();
        let subscribed = self.engine.subscribe(now, self.client, sub, wanted, queue.clone());
        subscribed.map_err(|refusal| SubscribeError::Refused(why(&refusal)))?;
        let link = PeerLink::Engine(self.engine.mailbox.clone(), self.client);
        Ok(Subscription::new(queue, vec![sub], link, options.join(patterns)))
    }

    /// Asks a peer's history, which may be this peer's own. The question leaves with the next turn; take the answer
    /// with [`PendingAnswer::try_recv`] between turns.
    ///
    /// # Errors
    /// The question holds too much or nothing; the peer has ended.
    pub fn ask(
        &mut self,
        peer: impl Into<PeerRef>,
        question: Question,
        timeout: Duration,
    ) -> Result<PendingAnswer, HistoryError> {
        check_question(&question)?;
        if !self.engine.is_running() {
            return Err(HistoryError::Closed);
        }
        let (asked, answer) = PendingAnswer::new(timeout);
        let now = self.read_clock();
        self.engine.query_history(now, self.client, &peer.into(), question, timeout, answer);
        Ok(asked)
    }

    /// A subject of one's own for replies.
    pub fn inbox(&self) -> Subject {
        self.numbers.inbox(&self.info)
    }

    /// What is known about the peer.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Answers a question about the peer, such as `{"show": "loss"}`; see `docs/local-protocol.md`.
    pub fn show(&mut self, query: &Value) -> Value {
        self.engine.show(Clock::now(), query)
    }

    /// Stops the peer gracefully: what was published leaves, the group is told. Waits for that, about three seconds at most.
    /// Dropping does the same.
    ///
    /// # Errors
    /// The system's event queue is broken, or the peer has panicked. The peer has ended then.
    pub fn close(mut self) -> io::Result<()> {
        self.stop()
    }

    fn stop(&mut self) -> io::Result<()> {
        let now = self.read_clock();
        self.engine.stop(now);
        while self.engine.turn(None)? {}
        Ok(())
    }

    /// Runs until the peer has ended; for a thread of its own.
    pub(super) fn run(mut self) {
        // The engine has logged an error, and has told it to everybody who waits.
        while let Ok(true) = self.engine.turn(None) {}
    }

    /// Ends the client that the owner of `EmbeddedPeer` is: when the peer runs in a thread, only its handles are clients.
    pub(super) fn without_owner(mut self) -> EmbeddedPeer {
        let now = self.read_clock();
        self.engine.detach(now, self.client);
        self
    }
}

impl Drop for EmbeddedPeer {
    fn drop(&mut self) {
        // After a panic of the core nothing can be said properly any more.
        if !self.engine.is_ended()
            && !std::thread::panicking()
            && let Err(error) = self.stop()
        {
            tracing::error!(%error, "the peer's event queue broke");
        }
    }
}

fn info(engine: &Engine, client: ClientId) -> Info {
    let welcome = engine.welcome(client);
    Info::from_welcome(welcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::{OpenError, RecvError, WaitError};
    use crate::daemon::clock::random_u64;
    use crate::proto::question::Poll;
    use std::fs;
    use std::hint::black_box;
    use std::path::{Path, PathBuf};
    use std::thread;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A peer on loopback in a group of its own, with a Unix socket.
    struct Fixture {
        embedded: EmbeddedPeer,
        directory: PathBuf,
        socket: PathBuf,
    }

    impl Fixture {
        fn open() -> Fixture {
            let bits = random_u64().to_be_bytes();
            let directory = std::env::temp_dir().join(format!("seqcast-test-{:016x}", random_u64()));
            fs::create_dir(&directory).unwrap();
            let socket = directory.join("peer.sock");
            let mut config = Config::default();
            config.group = [239, 255, bits[0], bits[1].max(1)].into();
            config.port = 20_000 + u16::from_be_bytes([bits[2], bits[3]]) % 10_000;
            config.interface = "lo".parse().unwrap();
            config.data_dir = directory.join("state");
            config.socket = socket.clone();
            let options = Options { serve: true, ..Options::default() };
            Fixture { embedded: EmbeddedPeer::open_with(&config, &options).unwrap(), directory, socket }
        }

        /// The loop of the peer panics, as it does when an invariant is broken.
        fn panic(&mut self) -> io::Error {
            self.embedded.engine.guarded::<()>(|_| panic!("ledger of alice: 3 is not 4")).unwrap_err()
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.directory).unwrap();
        }
    }

    fn attach(path: &Path) -> (Bus, Subscription) {
        let bus = Bus::attach(path).unwrap();
        let subscription = bus.subscribe("x".parse().unwrap()).unwrap();
        (bus, subscription)
    }

    #[test]
    fn panicking_peer_fails_all_waiting_calls() {
        let mut fixture = Fixture::open();
        let bus = fixture.embedded.bus();
        let own = fixture.embedded.subscribe("x".parse().unwrap()).unwrap();
        let question = Question::Poll(vec![Poll { subject: "x".parse().unwrap(), offset: 0, count: 1 }]);
        let asked = bus.ask(bus.info().epoch, question, PATIENCE).unwrap();
        let flushing = thread::spawn({
            let bus = bus.clone();
            move || bus.flush(PATIENCE)
        });
        while fixture.embedded.engine.mailbox.waiting() < 2 {
            thread::yield_now();
        }
        let error = fixture.panic().to_string();
        let request = "this is a fault of seqcast: please report it with the log of this peer";
        assert_eq!(error, format!("ledger of alice: 3 is not 4; {request}"));
        assert_eq!(flushing.join().unwrap(), Err(WaitError::Closed));
        assert_eq!(asked.recv(), Err(HistoryError::Closed));
        assert_eq!(own.recv_timeout(PATIENCE).unwrap_err(), RecvError::Closed);
        let message = || Message::new("x".parse().unwrap(), "1");
        assert_eq!(bus.publish(message()), Err(PublishError::Closed));
        assert_eq!(bus.end_reason().unwrap(), format!("the peer has failed: {error}"));
        assert_eq!(fixture.embedded.publish(message()), Err(PublishError::Closed));
        assert!(!fixture.embedded.turn().unwrap());
    }

    #[test]
    fn overflow_in_the_loop_asks_for_the_log() {
        let mut fixture = Fixture::open();
        let bus = fixture.embedded.bus();
        let error = fixture.embedded.engine.guarded(|_| Ok(black_box(0u64) - 1)).unwrap_err().to_string();
        assert!(error.contains("overflow") && error.contains("report it with the log of this peer"), "{error}");
        assert_eq!(bus.end_reason().unwrap(), format!("the peer has failed: {error}"));
    }

    #[test]
    fn panicking_peer_disconnects_attached_clients() {
        let mut fixture = Fixture::open();
        let attaching = thread::spawn({
            let socket = fixture.socket.clone();
            move || attach(&socket)
        });
        while !attaching.is_finished() {
            fixture.embedded.drive(Duration::from_millis(5)).unwrap();
        }
        let (bus, subscription) = attaching.join().unwrap();
        fixture.panic();
        assert_eq!(subscription.recv_timeout(PATIENCE).unwrap_err(), RecvError::Closed);
        assert_eq!(bus.end_reason().unwrap(), "the peer has failed and has ended; its log says why");
        assert!(matches!(Bus::attach(&fixture.socket), Err(OpenError::NoPeer { .. })));
    }
}
