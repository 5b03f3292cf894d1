//! Publishes of a client that differ from its last one in the payload only. Programs often send many of them at once.

use super::Listeners;
use super::connection::ListenerConnection;
use crate::daemon::engine_core::EngineCore;
use crate::daemon::engine_core::receiver_waits::count_receivers;
use crate::listener::session_request::Publish;
use crate::message::ClientId;
use crate::subject::Subject;
use crate::time::ClockReading;

/// A publish without headers and reply subject, which the client's next commands may repeat.
pub(super) struct RepeatablePublish {
    pub(super) subject: Subject,
    /// True if the session awaits the number of receivers.
    pub(super) wants_receivers: bool,
}

impl RepeatablePublish {
    /// Returns what later commands may repeat of a publish; `None` if it has headers or a reply subject.
    pub(super) fn of(publish: &Publish<'_>) -> Option<RepeatablePublish> {
        let Publish { subject, reply, headers, wants_receivers, .. } = publish;
        let is_plain = reply.is_none() && headers.is_empty();
        is_plain.then(|| RepeatablePublish { subject: subject.clone(), wants_receivers: *wants_receivers })
    }
}

impl Listeners {
    /// Publishes messages on the subject of the last one while the next commands differ from it in the payload only.
    /// They need no request of the session.
    pub(super) fn publish_repeated(
        &mut self,
        core: &mut EngineCore,
        now: ClockReading,
        id: ClientId,
        last: &RepeatablePublish,
    ) {
        while core.ensure_send_capacity()
            && let Some(ListenerConnection { parser, session, unwritten, .. }) = core.clients.listener_connection(id)
            && !unwritten.is_backpressured()
        {
            let (peer, mut count, mut is_refused) = (&mut core.peer, 0, false);
            // No subscription changes between two publishes of this loop.
            let mut receivers = None;
            while !is_refused
                && !peer.has_effects()
                && !peer.is_publish_blocked()
                && let Some(payload) = parser.next_repeated()
            {
                count += 1;
                if let Err(refusal) = peer.publish_payload(now, id, &last.subject, payload) {
                    session.on_refused(None, &refusal, &mut unwritten.out);
                    is_refused = true;
                } else if last.wants_receivers {
                    let receivers = receivers.get_or_insert_with(|| count_receivers(peer, id, &last.subject));
                    session.on_repeated_publish(*receivers, &mut unwritten.out);
                }
            }
            if count == 0 {
                return;
            }
            unwritten.count_answers();
            self.on_session_published(core, now, id, count);
            if is_refused {
                return;
            }
        }
    }
}
