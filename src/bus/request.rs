//! Requests: a message, a subject of its own for the replies, the replies, and the report that there is no responder.

use super::{Bus, Notice, PublishError, RecvError, RequestError, Subscription, WaitError};
use crate::clock::Clock;
use crate::listener::session_request::ReceiverCondition;
use crate::message::{Delivery, Message};
use crate::subject::Subject;
use crate::time::Instant;
use bytes::Bytes;
use std::fmt;
use std::time::Duration;

/// Pause before a patient request is published again, after the report that no site has a responder.
const REPEAT_INTERVAL: Duration = Duration::from_millis(250);

/// Options of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestOptions {
    /// True if the request waits for a responder: it is published once a subscription is known that gets it. Otherwise
    /// it is published at once, and it fails if certainly no subscription on the LAN gets it.
    pub patient: bool,
}

/// Stage of a request.
enum RequestStage {
    /// The request waits for a subscription that gets it.
    AwaitingResponder(Message),
    /// The request waits for room in the queue to the peer.
    Ready(Message),
    /// The request is published.
    Published,
    /// A gateway reported that no site has a responder. The request is published again at this time.
    Postponed(Message, Instant),
}

/// The replies to a request, as they arrive. Dropping the handle cancels the request; a request that is still
/// unpublished then is never published.
pub struct Replies {
    bus: Bus,
    subscription: Subscription,
    subject: Subject,
    timeout: Duration,
    stage: RequestStage,
    /// A patient request, while no reply has arrived.
    repeated: Option<Message>,
    /// True once a reply has arrived: there is a responder, whatever the peer knows.
    has_reply: bool,
}

impl Replies {
    /// Waits at most `timeout` for the next reply, or for the report of a loss.
    ///
    /// # Errors
    /// [`RequestError::NoResponders`] if certainly no subscription gets the request, on the LAN or in another site.
    /// [`RequestError::Timeout`] if nothing arrives in time; the caller may retry then. Otherwise the request cannot
    /// be published, or the bus is closed.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Notice, RequestError> {
        let until = Clock::now().instant + timeout;
        loop {
            let notifications = self.subscription.single().0.notifications();
            match self.subscription.try_recv() {
                Ok(Notice::Message(delivery)) if delivery.message.headers.is_no_responders() => {
                    self.on_no_responders()?;
                    continue;
                }
                Ok(event) => {
                    if matches!(event, Notice::Message(_)) {
                        (self.has_reply, self.repeated) = (true, None);
                    }
                    return Ok(event);
                }
                Err(RecvError::Empty) => {}
                Err(RecvError::Closed) => return Err(RequestError::Closed),
            }
            let left = until.since(Clock::now().instant);
            if self.subscription.single().0.take_awaited() {
                match std::mem::replace(&mut self.stage, RequestStage::Published) {
                    RequestStage::AwaitingResponder(message) => self.stage = RequestStage::Ready(message),
                    RequestStage::Published if !self.has_reply => return Err(RequestError::NoResponders),
                    stage => self.stage = stage,
                }
            }
            if !self.publish(left)? || left.is_zero() {
                return Err(RequestError::Timeout);
            }
            let wait = match &self.stage {
                RequestStage::Postponed(_, at) => left.min(at.since(Clock::now().instant)),
                _ => left,
            };
            let queue = self.subscription.single().0;
            self.bus.shared.link.wait_notification(queue, notifications, Some(wait));
        }
    }

    /// Handles the report of a gateway that no site has a responder.
    fn on_no_responders(&mut self) -> Result<(), RequestError> {
        match self.repeated.clone() {
            _ if self.has_reply => {}
            None => return Err(RequestError::NoResponders),
            Some(message) => {
                let at = Clock::now().instant + REPEAT_INTERVAL;
                self.stage = RequestStage::Postponed(message, at);
            }
        }
        Ok(())
    }

    /// Publishes the request if it is due. Returns false if there is no room for it in time.
    fn publish(&mut self, timeout: Duration) -> Result<bool, RequestError> {
        let message = match std::mem::replace(&mut self.stage, RequestStage::Published) {
            RequestStage::Ready(message) => message,
            RequestStage::Postponed(message, at) if at <= Clock::now().instant => message,
            stage => {
                self.stage = stage;
                return Ok(true);
            }
        };
        match self.bus.publish_timeout(message.clone(), timeout) {
            Ok(()) => self.begin_await(ReceiverCondition::Absent).map(|()| true),
            Err(PublishError::Full) => {
                self.stage = RequestStage::Ready(message);
                Ok(false)
            }
            Err(PublishError::Closed) => Err(RequestError::Closed),
            Err(error) => Err(RequestError::Publish(error)),
        }
    }

    fn begin_await(&self, condition: ReceiverCondition) -> Result<(), RequestError> {
        let (_, sub) = self.subscription.single();
        let result = self.bus.shared.link.begin_await(sub, condition, self.subject.clone(), self.timeout);
        result.map_err(|error| match error {
            WaitError::Closed => RequestError::Closed,
            WaitError::Timeout | WaitError::Refused(_) => RequestError::Timeout,
        })
    }
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies").field("subject", &self.subject).finish_non_exhaustive()
    }
}

impl Bus {
    /// Sends a request and waits for the first reply.
    ///
    /// # Errors
    /// [`RequestError::NoResponders`] if certainly no client subscribes to the subject, on the LAN or in another site.
    /// [`RequestError::Timeout`] if no reply arrives in time.
    pub fn request(
        &self,
        subject: Subject,
        payload: impl Into<Bytes>,
        timeout: Duration,
    ) -> Result<Delivery, RequestError> {
        self.request_message(Message::new(subject, payload), timeout)
    }

    /// Sends a request like [`Bus::request`], with headers. The message's reply subject is replaced.
    ///
    /// # Errors
    /// The same as of [`Bus::request`].
    pub fn request_message(&self, message: Message, timeout: Duration) -> Result<Delivery, RequestError> {
        let mut answers = self.request_many(message, 1, timeout)?;
        answers.pop().ok_or(RequestError::Timeout)
    }

    /// Sends a request to several responders: collects replies until there are `answers_max` or the time expires. The
    /// message's reply subject is replaced.
    ///
    /// # Errors
    /// The request could not be made, certainly no client on the LAN or in another site subscribes to its subject, or the
    /// bus was closed meanwhile. Without replies the list is empty.
    pub fn request_many(
        &self,
        message: Message,
        answers_max: usize,
        timeout: Duration,
    ) -> Result<Vec<Delivery>, RequestError> {
        let deadline = Clock::now().instant + timeout;
        let mut replies = self.request_with(message, &RequestOptions::default(), timeout)?;
        let mut answers = Vec::new();
        while answers.len() < answers_max {
            match replies.recv_timeout(deadline.since(Clock::now().instant)) {
                Ok(Notice::Message(delivery)) => answers.push(delivery),
                // A loss does not end the wait; a lost reply shows as a timeout.
                Ok(Notice::Loss(_) | Notice::Dropped(_) | Notice::Joined(_)) => {}
                Err(RequestError::Timeout) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(answers)
    }

    /// Sends a request and returns its replies as they arrive. A patient request waits up to `timeout` for a
    /// responder, and is published while the caller waits for replies. The message's reply subject is replaced.
    ///
    /// # Errors
    /// The request cannot be made.
    pub fn request_with(
        &self,
        mut message: Message,
        options: &RequestOptions,
        timeout: Duration,
    ) -> Result<Replies, RequestError> {
        let inbox = self.inbox();
        let subscription = self.subscribe(inbox.clone().into()).map_err(RequestError::Subscribe)?;
        message.reply = Some(inbox);
        let (bus, subject) = (self.clone(), message.subject.clone());
        let repeated = options.patient.then(|| message.clone());
        let stage =
            if options.patient { RequestStage::AwaitingResponder(message) } else { RequestStage::Ready(message) };
        let mut replies = Replies { bus, subscription, subject, timeout, stage, repeated, has_reply: false };
        if options.patient {
            replies.begin_await(ReceiverCondition::Present)?;
        }
        // If there is no room for it yet, it is published while the caller waits for replies.
        replies.publish(Duration::ZERO)?;
        Ok(replies)
    }

    /// Replies to a message that has a reply subject.
    ///
    /// # Errors
    /// [`PublishError::NoReplySubject`] if the message has no reply subject; otherwise the same as of
    /// [`Bus::publish_blocking`].
    pub fn reply_to(&self, delivery: &Delivery, payload: impl Into<Bytes>) -> Result<(), PublishError> {
        let subject = delivery.message.reply.clone().ok_or(PublishError::NoReplySubject)?;
        self.publish_blocking(Message::new(subject, payload))
    }
}
