//! The reports of the peer, as the web server gets them: the answers of the engine to `show` queries.

use crate::clock::Clock;
use crate::daemon::mailbox::{EngineCommand, Mailbox, PushError, SubscriptionRequest};
use crate::daemon::subscription_queue::SubscriptionQueue;
use crate::listener::refusal::RefusalReason;
use crate::listener::session_request::ReceiverCondition;
use crate::message::{ClientId, Message, SubId};
use crate::subject::Subject;
use crate::time::Instant;
use crossbeam_channel::{Receiver, TryRecvError, bounded};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore};

/// Maximum time for the engine to answer.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// Minimum interval between two questions to the engine, so that clients cannot keep it from its work.
const QUESTION_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of questions that wait for their turn: about 1.6 s of them.
const QUESTIONS_MAX: usize = 32;

/// Maximum time for the engine to begin a subscription.
const SUBSCRIBE_TIME: Duration = Duration::from_secs(5);

/// First pause between checks whether the engine has answered.
const ANSWER_PAUSE_MIN: Duration = Duration::from_millis(1);
/// Longest pause between these checks.
const ANSWER_PAUSE_MAX: Duration = Duration::from_millis(16);

/// Reason why there is no report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportFailure {
    /// Too many questions of all clients wait.
    Busy,
    /// The engine does not answer within [`ANSWER_TIME`], or has ended.
    NoAnswer,
}

impl ReportFailure {
    /// Returns the reason for people.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            ReportFailure::Busy => "too many requests wait; try again",
            ReportFailure::NoAnswer => "the peer does not answer: it is stopping, or its loop is stuck",
        }
    }
}

/// Asks the engine for reports: one question at a time, each with several queries.
#[derive(Debug)]
pub(super) struct ReportSource {
    mailbox: Arc<Mailbox>,
    /// The web server, as a client of the peer.
    client: ClientId,
    waiting: Semaphore,
    /// Time from which the next question may be asked.
    next: Mutex<Instant>,
}

impl ReportSource {
    /// Creates the source of an engine with this mailbox. `client` is the web server, as a client of the peer.
    pub(super) fn new(mailbox: Arc<Mailbox>, client: ClientId) -> ReportSource {
        let next = Mutex::new(Clock::now().instant);
        ReportSource { mailbox, client, waiting: Semaphore::new(QUESTIONS_MAX), next }
    }

    /// Returns the answers to these queries, in their order. They show the peer at one time, unless it is busy.
    pub(super) async fn ask(&self, queries: Vec<Value>) -> Result<Vec<Value>, ReportFailure> {
        self.run(move |mailbox, _| ask_blocking(mailbox, queries)).await
    }

    /// Publishes a message without waiting.
    ///
    /// # Errors
    /// Publishers wait for the network, or the peer has ended.
    pub(super) fn publish(&self, message: Message) -> Result<(), PushError> {
        self.mailbox.push(EngineCommand::Publish { client: self.client, message }, Duration::ZERO)
    }

    /// Begins a subscription of the server without waiting. The receiver gets the outcome.
    ///
    /// # Errors
    /// Too many requests wait, or the peer has ended.
    pub(super) fn subscribe(
        &self,
        sub: SubId,
        request: SubscriptionRequest,
        queue: Arc<SubscriptionQueue>,
    ) -> Result<Receiver<Result<(), RefusalReason>>, PushError> {
        let (answer, outcome) = bounded(1);
        let command = EngineCommand::Subscribe { client: self.client, sub, request, queue, answer };
        self.mailbox.push(command, Duration::ZERO).map(|()| outcome)
    }

    /// Has a subscription notified once it is certain that nothing receives what the server has published on a subject.
    pub(super) fn await_absence(&self, sub: SubId, subject: Subject, timeout: Duration) {
        let condition = ReceiverCondition::Absent;
        let command = EngineCommand::AwaitReceivers { client: self.client, sub, condition, subject, timeout };
        // Without room for it the request ends by its timeout.
        drop(self.mailbox.push(command, Duration::ZERO));
    }

    /// Ends a subscription of the server.
    pub(super) fn end_subscription(&self, sub: SubId) {
        // A peer that has ended has no subscriptions.
        drop(self.mailbox.push(EngineCommand::Unsubscribe { client: self.client, sub }, Duration::ZERO));
    }

    /// Asks a question that waits for the engine, in its turn.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Mailbox, ClientId) -> Result<T, ReportFailure> + Send + 'static,
    ) -> Result<T, ReportFailure> {
        let _waiting = self.waiting.try_acquire().map_err(|_| ReportFailure::Busy)?;
        let mut next = self.next.lock().await;
        tokio::time::sleep(next.since(Clock::now().instant)).await;
        let (mailbox, client) = (Arc::clone(&self.mailbox), self.client);
        let answer = tokio::task::spawn_blocking(move || question(&mailbox, client)).await;
        *next = Clock::now().instant + QUESTION_INTERVAL;
        answer.unwrap_or(Err(ReportFailure::NoAnswer))
    }

    /// Returns several reports as one object: rows where a report has them, and otherwise its fields.
    pub(super) async fn overview(&self, queries: Vec<Value>) -> Result<Value, ReportFailure> {
        let answers = self.ask(queries).await?;
        let mut overview = Map::new();
        for mut answer in answers {
            let Some(name) = answer["show"].as_str().map(str::to_owned) else { continue };
            for part in ["omitted", "totals", "sites"] {
                let value = answer[part].take();
                if !value.is_null() {
                    overview.insert(format!("{name}_{part}"), value);
                }
            }
            let content = if answer["rows"].is_array() { answer["rows"].take() } else { answer[&name].take() };
            overview.insert(name, content);
        }
        Ok(Value::Object(overview))
    }

    /// Returns the reasons why the peer is not ready; none if it is.
    pub(super) async fn obstacles(&self) -> Vec<String> {
        let queries = vec![json!({ "show": "status" }), json!({ "show": "health" })];
        let overview = match self.overview(queries).await {
            Ok(overview) => overview,
            Err(failure) => return vec![failure.as_str().to_owned()],
        };
        let mut obstacles = Vec::new();
        if overview["status"]["phase"] != "running" {
            obstacles.push("the peer is stopping".to_owned());
        }
        let findings = overview["health"]["findings"].as_array().into_iter().flatten();
        let text = |finding: &Value, field: &str| finding[field].as_str().unwrap_or_default().to_owned();
        obstacles.extend(findings.filter(|finding| finding["severity"] == "broken").map(|finding| {
            format!("{}: {}; {}", text(finding, "found"), text(finding, "effect"), text(finding, "fix"))
        }));
        obstacles
    }
}

/// Asks the engine, and waits for its answers.
fn ask_blocking(mailbox: &Mailbox, queries: Vec<Value>) -> Result<Vec<Value>, ReportFailure> {
    let deadline = Clock::now().instant + ANSWER_TIME;
    let mut answers = Vec::with_capacity(queries.len());
    for query in queries {
        let (answer, receiver) = bounded(1);
        // A full mailbox has no room because the engine is stuck, and a closed one has no engine.
        mailbox.push(EngineCommand::Show { query, answer }, ANSWER_TIME).map_err(|_| ReportFailure::NoAnswer)?;
        answers.push(receiver);
    }
    let wait = |answer: Receiver<Value>| {
        answer.recv_timeout(deadline.since(Clock::now().instant)).map_err(|_| ReportFailure::NoAnswer)
    };
    answers.into_iter().map(wait).collect()
}

/// Waits for the answer of the engine to a subscription; `None` if it does not answer. Many subscriptions may wait at a
/// time, and none takes a thread.
pub(super) async fn await_answer<T>(answer: &Receiver<T>) -> Option<T> {
    let until = Clock::now().instant + SUBSCRIBE_TIME;
    let mut pause = ANSWER_PAUSE_MIN;
    loop {
        match answer.try_recv() {
            Ok(answer) => return Some(answer),
            Err(TryRecvError::Empty) if Clock::now().instant < until => tokio::time::sleep(pause).await,
            Err(_) => return None,
        }
        pause = (2 * pause).min(ANSWER_PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Poll, Token, Waker};

    fn source() -> (Poll, ReportSource) {
        let poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), Token(0)).unwrap();
        (poll, ReportSource::new(Arc::new(Mailbox::new(waker)), ClientId(1)))
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    }

    #[test]
    fn ended_engine_is_an_obstacle() {
        let (_poll, source) = source();
        source.mailbox.close("stopped");
        let obstacles = runtime().block_on(source.obstacles());
        assert_eq!(obstacles, [ReportFailure::NoAnswer.as_str()]);
    }

    #[test]
    fn questions_beyond_the_limit_are_refused() {
        let (_poll, source) = source();
        let _all = source.waiting.try_acquire_many(u32::try_from(QUESTIONS_MAX).unwrap()).unwrap();
        assert_eq!(runtime().block_on(source.ask(Vec::new())), Err(ReportFailure::Busy));
    }

    #[test]
    fn waiting_for_an_answer_blocks_nothing() {
        runtime().block_on(async {
            let (sender, receiver) = crossbeam_channel::bounded(1);
            // The receiver is polled first, and waits.
            let send = async { sender.send(7).expect("the receiver waits") };
            let (answer, ()) = tokio::join!(await_answer(&receiver), send);
            assert_eq!(answer, Some(7));
            drop(sender);
            assert_eq!(await_answer(&receiver).await, None, "the engine has ended");
        });
    }
}
