//! A peer inside the program, driven by the caller's own thread: the fast path.

use super::history::check_question;
use super::peer_link::PeerLink;
use super::{
    Bus, HistoryError, IdCounters, Info, PendingAnswer, PublishError, SubscribeError, SubscribeOptions, Subscription,
    check_message, check_permission, check_size,
};
use crate::clock::Clock;
use crate::config::Config;
use crate::daemon::clients::ClientTransport;
use crate::daemon::engine::Engine;
use crate::daemon::mailbox::SubscriptionRequest;
use crate::daemon::start::{Options, StartError};
use crate::daemon::subscription_queue::{QueueLimits, SubscriptionQueue};
use crate::listener::refusal::RefusalReason;
use crate::message::{ClientId, Message, PeerRef, SubId};
use crate::proto::question::Question;
use crate::subject::{Pattern, Subject};
use crate::time::ClockReading;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Number of messages published per reading of the clock.
const CLOCK_USES: u32 = 256;

/// A peer that runs only inside its owner's calls of [`turn`](EmbeddedPeer::turn) or [`drive`](EmbeddedPeer::drive).
/// It needs no other thread, waits for no lock and makes no system call per message.
///
/// A peer that is not driven falls silent to the others; call at least once per heartbeat interval.
pub struct EmbeddedPeer {
    engine: Engine,
    client: ClientId,
    info: Info,
    numbers: IdCounters,
    limits: QueueLimits,
    /// Time read since the last turn, and the number of messages that may still be published with it.
    clock: Option<(ClockReading, u32)>,
}

impl EmbeddedPeer {
    /// Starts a peer. It does not listen on a Unix socket.
    ///
    /// # Errors
    /// Returns why the peer cannot start, and the remedy.
    pub fn open(config: &Config) -> Result<EmbeddedPeer, StartError> {
        EmbeddedPeer::open_with(config, &Options::default())
    }

    /// Starts a peer with options.
    ///
    /// # Errors
    /// Returns why the peer cannot start, and the remedy.
    pub fn open_with(config: &Config, options: &Options) -> Result<EmbeddedPeer, StartError> {
        let mut engine = Engine::open(config, options)?;
        let limits = engine.core.clients.limits();
        let client =
            engine.core.clients.add(Clock::now(), "embedded".into(), ClientTransport::Embedded(BTreeMap::new()));
        let info = info(&engine, client);
        Ok(EmbeddedPeer { engine, client, info, numbers: IdCounters::default(), limits, clock: None })
    }

    /// Creates another client of the same peer, for other threads. The thread that drives the peer must not wait for
    /// it.
    pub fn bus(&mut self) -> Bus {
        let client =
            self.engine.core.clients.add(Clock::now(), "embedded".into(), ClientTransport::Embedded(BTreeMap::new()));
        let link = PeerLink::Engine(self.engine.core.mailbox.clone(), client);
        let publish = self.engine.core.peer.host_permissions().publish.clone();
        Bus::new(link, info(&self.engine, client), self.limits, publish)
    }

    /// Returns the time, which is read once for several messages published between two turns: reading it costs more
    /// than the rest.
    fn now(&mut self) -> ClockReading {
        let (now, uses) = self.clock.filter(|(_, uses)| 0 < *uses).unwrap_or_else(|| (Clock::now(), CLOCK_USES));
        self.clock = Some((now, uses - 1));
        now
    }

    /// Reads the clock anew, so that later messages are not published with an earlier time.
    fn read_clock(&mut self) -> ClockReading {
        self.clock = None;
        Clock::now()
    }

    /// Does the pending work without waiting. Returns false once the peer has ended.
    ///
    /// # Errors
    /// The system's event queue is broken, or the peer has panicked. The peer has ended then.
    pub fn turn(&mut self) -> io::Result<bool> {
        self.drive(Duration::ZERO)
    }

    /// Waits at most `timeout` for work, and does it. Returns false once the peer has ended.
    ///
    /// # Errors
    /// The system's event queue is broken, or the peer has panicked. The peer has ended then.
    pub fn drive(&mut self, timeout: Duration) -> io::Result<bool> {
        self.clock = None;
        self.engine.turn(Some(timeout))
    }

    /// Publishes a message; small messages leave together at the end of the next turn. Never waits.
    ///
    /// # Errors
    /// [`PublishError::Full`] if the network or the receivers are backpressured, or the configured rate is used up:
    /// make turns until publishing succeeds.
    pub fn publish(&mut self, message: Message) -> Result<(), PublishError> {
        self.publish_ref(&message)
    }

    /// Publishes like [`EmbeddedPeer::publish`] a message that the caller keeps.
    ///
    /// # Errors
    /// The same as of [`EmbeddedPeer::publish`].
    pub fn publish_ref(&mut self, message: &Message) -> Result<(), PublishError> {
        check_message(message, self.info.message_bytes_max)?;
        check_permission(&message.subject, &self.engine.core.peer.host_permissions().publish)?;
        if !self.engine.core.is_running() {
            return Err(PublishError::Closed);
        }
        let now = self.now();
        full_unless(self.engine.core.publish(now, self.client, message))
    }

    /// Publishes like [`EmbeddedPeer::publish`] a message that has only a subject and a payload: the fast way to
    /// publish. Both are copied straight to their destination.
    ///
    /// # Errors
    /// The same as of [`EmbeddedPeer::publish`].
    #[inline]
    pub fn publish_payload(&mut self, subject: &Subject, payload: &[u8]) -> Result<(), PublishError> {
        check_size(payload.len(), self.info.message_bytes_max)?;
        check_permission(subject, &self.engine.core.peer.host_permissions().publish)?;
        if !self.engine.core.is_running() {
            return Err(PublishError::Closed);
        }
        let now = self.now();
        full_unless(self.engine.core.publish_payload(now, self.client, subject, payload))
    }

    /// Returns whether all subscriptions of this peer are confirmed by every live peer that suppresses unwanted
    /// messages (`interest: on`). Such peers have sent all matching messages since. It takes turns to become true;
    /// without such peers it is always true.
    pub fn is_confirmed(&self) -> bool {
        self.engine.core.are_confirmed()
    }

    /// Subscribes. On return the subscription is active for everything that reaches this peer. Other peers may
    /// suppress messages until [`EmbeddedPeer::is_confirmed`]. Read it with [`Subscription::try_recv`] between turns.
    ///
    /// # Errors
    /// The peer refuses it or has ended.
    pub fn subscribe(&mut self, pattern: Pattern) -> Result<Subscription, SubscribeError> {
        self.subscribe_with(pattern, &SubscribeOptions::default())
    }

    /// Subscribes like [`EmbeddedPeer::subscribe`], with options.
    ///
    /// # Errors
    /// The peer refuses it or has ended.
    pub fn subscribe_with(
        &mut self,
        pattern: Pattern,
        options: &SubscribeOptions,
    ) -> Result<Subscription, SubscribeError> {
        if !self.engine.core.is_running() {
            return Err(SubscribeError::Closed);
        }
        let queue = Arc::new(SubscriptionQueue::new(self.limits));
        let sub = SubId(self.numbers.next_sub());
        let (wants_discovery, patterns) = (options.joins(), vec![pattern.clone()]);
        let request = SubscriptionRequest { wanted: options.wanted(pattern), mode: options.mode, wants_discovery };
        let now = self.read_clock();
        let subscribed = self.engine.core.subscribe(now, self.client, sub, request, queue.clone());
        subscribed.map_err(|refusal| SubscribeError::Refused(RefusalReason::from(&refusal)))?;
        let link = PeerLink::Engine(self.engine.core.mailbox.clone(), self.client);
        Ok(Subscription::new(queue, vec![sub], link, options.join(patterns)))
    }

    /// Requests messages from a peer's history, which may be this peer's own. The request leaves with the next turn;
    /// take the answer with [`PendingAnswer::try_recv`] between turns.
    ///
    /// # Errors
    /// The request is empty or too large, or the peer has ended.
    pub fn request_history(
        &mut self,
        peer: impl Into<PeerRef>,
        question: Question,
        timeout: Duration,
    ) -> Result<PendingAnswer, HistoryError> {
        check_question(&question)?;
        if !self.engine.core.is_running() {
            return Err(HistoryError::Closed);
        }
        let (pending, answer) = PendingAnswer::new(timeout);
        let now = self.read_clock();
        self.engine.core.query_history(now, self.client, &peer.into(), question, timeout, answer);
        Ok(pending)
    }

    /// Returns a new subject for replies to this client.
    pub fn inbox(&self) -> Subject {
        self.numbers.inbox(&self.info)
    }

    /// Returns the facts about the peer.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Answers a query about the peer as JSON, such as `{"show": "loss"}`, for tools; see `docs/local-protocol.md`.
    /// Programs use [`EmbeddedPeer::losses`] and the like, which return structures.
    pub fn show(&mut self, query: &Value) -> Value {
        self.engine.show(Clock::now(), query)
    }

    /// Stops the peer gracefully: published messages leave, and the peer says BYE to the group. Waits for that, about
    /// three seconds at most. Dropping does the same.
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
        // The engine has logged the error and has notified every waiting caller.
        while let Ok(true) = self.engine.turn(None) {}
    }

    /// Detaches the client of this `EmbeddedPeer`: when a thread runs the peer, only the handles are clients.
    pub(super) fn without_owner(mut self) -> EmbeddedPeer {
        let now = self.read_clock();
        self.engine.core.detach(now, self.client);
        self
    }
}

impl Drop for EmbeddedPeer {
    fn drop(&mut self) {
        // After a panic of the core the peer can send nothing sensible any more.
        if !self.engine.is_ended()
            && !std::thread::panicking()
            && let Err(error) = self.stop()
        {
            tracing::error!(%error, "the peer's event queue broke");
        }
    }
}

/// Returns [`PublishError::Full`] unless the engine has accepted the message.
#[inline]
fn full_unless(is_accepted: bool) -> Result<(), PublishError> {
    if is_accepted { Ok(()) } else { Err(PublishError::Full) }
}

fn info(engine: &Engine, client: ClientId) -> Info {
    let welcome = engine.core.welcome(client);
    Info::from_welcome(welcome, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "security")]
    use crate::bus::Notice;
    use crate::bus::{OpenError, RecvError, WaitError};
    use crate::clock::random_u64;
    #[cfg(feature = "security")]
    use crate::proto::certified::OwnCertificate;
    #[cfg(feature = "security")]
    use crate::proto::effect::Input;
    use crate::proto::question::Poll;
    #[cfg(feature = "security")]
    use crate::security::Secret;
    #[cfg(feature = "security")]
    use crate::security::realm::{Certificate, HostIdentity, PeerPermissions, Realm, TrustAnchor::OwnKey};
    #[cfg(feature = "security")]
    use crate::storage::realm::{NewRealm, RealmDirectory};
    #[cfg(feature = "security")]
    use serde_json::json;
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

        /// Panics in the loop of the peer, as a broken invariant does.
        fn panic(&mut self) -> io::Error {
            self.embedded.engine.run_guarded::<()>(|_| panic!("ledger of alice: 3 is not 4")).unwrap_err()
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
        let pending = bus.request_history(bus.info().epoch, question, PATIENCE).unwrap();
        let flushing = thread::spawn({
            let bus = bus.clone();
            move || bus.flush(PATIENCE)
        });
        while fixture.embedded.engine.core.mailbox.waiting() < 2 {
            thread::yield_now();
        }
        let error = fixture.panic().to_string();
        let request = "this is a fault of seqcast: please report it with the log of this peer";
        assert_eq!(error, format!("ledger of alice: 3 is not 4; {request}"));
        assert_eq!(flushing.join().unwrap(), Err(WaitError::Closed));
        assert_eq!(pending.recv(), Err(HistoryError::Closed));
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
        let error = fixture.embedded.engine.run_guarded(|_| Ok(black_box(0u64) - 1)).unwrap_err().to_string();
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

    /// Opens a peer inside of a program on a host that is a member of the realm, with this certificate.
    #[cfg(feature = "security")]
    fn open_member(directory: &Path, port: u16, number: u8, host: &str, permissions: PeerPermissions) -> EmbeddedPeer {
        let (realm, seed) =
            (Realm { name: "test".parse().unwrap(), anchor: OwnKey, secret: Secret::new([7; 32]) }, [number; 32]);
        let (identity, name) = (HostIdentity::from_seed(&seed), host.parse().unwrap());
        let certificate = Certificate::sign_own(realm.name.clone(), name, &identity, permissions, 1).unwrap();
        let new = NewRealm { realm: &realm, seed: &seed, certificate: Some(&certificate), authority_seed: None };
        let mut config = Config::default();
        config.name = format!("program{number}").parse().unwrap();
        config.port = port;
        config.interface = "lo".parse().unwrap();
        config.data_dir = directory.join(host);
        RealmDirectory::new(&config.data_dir).create(&new).unwrap();
        EmbeddedPeer::open(&config).unwrap()
    }

    #[cfg(feature = "security")]
    #[test]
    fn certificates_bind_programs_and_other_hosts() {
        let directory = std::env::temp_dir().join(format!("seqcast-test-{:016x}", random_u64()));
        fs::create_dir(&directory).unwrap();
        let port = 20_000 + (random_u64() % 10_000) as u16;
        let patterns = |text: &str| vec![text.parse::<Pattern>().unwrap()];
        let narrow = PeerPermissions { publish: patterns("line.>"), subscribe: patterns("cmd.*") };
        let mut honest = open_member(&directory, port, 1, "A.test", PeerPermissions::all());
        let mut narrow = open_member(&directory, port, 2, "B.test", narrow);
        let subscription = honest.subscribe(">".parse().unwrap()).unwrap();
        let [line, cmd] = ["line.a", "cmd.stop"].map(|text| text.parse::<Subject>().unwrap());
        assert_eq!(narrow.publish_payload(&cmd, b"x"), Err(PublishError::Denied(cmd.clone())));
        assert_eq!(narrow.bus().publish(Message::new(cmd.clone(), "x")), Err(PublishError::Denied(cmd.clone())));
        let refused = narrow.subscribe(">".parse().unwrap()).map(|_| ());
        assert_eq!(refused, Err(SubscribeError::Refused(RefusalReason::SubscribeDenied(">".into()))));
        narrow.subscribe("cmd.*".parse().unwrap()).unwrap();
        // From here on the peer of the host does not check its own certificate.
        narrow.engine.core.peer.handle(Clock::now(), Input::OwnCertificate(OwnCertificate::default()));
        let deadline = Clock::now().instant + PATIENCE;
        let mut received = 0;
        let finding = loop {
            assert!(Clock::now().instant < deadline, "{:?}", honest.show(&json!({ "show": "health" })));
            narrow.publish_payload(&cmd, b"x").unwrap();
            narrow.publish_payload(&line, b"x").unwrap();
            for peer in [&mut narrow, &mut honest] {
                peer.drive(Duration::from_millis(5)).unwrap();
            }
            while let Ok(notice) = subscription.try_recv() {
                let Notice::Message(delivery) = notice else { panic!("{notice:?}") };
                assert_eq!(delivery.message.subject, line);
                received += 1;
            }
            let health = honest.show(&json!({ "show": "health" }))["health"].take();
            let findings = health["findings"].as_array().cloned().unwrap_or_default();
            if let Some(finding) = findings.into_iter().find(|finding| finding["check"] == "permissions") {
                break finding["found"].to_string();
            }
        };
        assert!(
            finding.contains("publishes on cmd.stop, which the certificate of B.test does not permit"),
            "{finding}"
        );
        let counters = honest.engine.core.peer.counters();
        assert!(0 < received && 0 < counters.messages_denied, "{received} {}", counters.messages_denied);
        let peers = honest.show(&json!({ "show": "peers" }))["rows"].take();
        assert_eq!((&peers[0]["publisher"], &peers[0]["member"]), (&json!("program2"), &json!("B.test")), "{peers}");
        drop((honest, narrow));
        fs::remove_dir_all(&directory).unwrap();
    }
}
