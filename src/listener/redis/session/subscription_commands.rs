//! `SUBSCRIBE`, `UNSUBSCRIBE` and `PUBSUB`, and the peer's answers for `PUBSUB`.

use super::{PendingReply, RedisSession};
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::permissions::DeniedAction;
use crate::listener::redis::command::RedisCommand;
use crate::listener::redis::command_table::CommandId;
use crate::listener::redis::pubsub::{SubscriptionKind, subscription_filter};
use crate::listener::session_request::{ListedSubscription, ReceiverCount, SessionRequest};
use crate::subject::glob::Glob;
use crate::subject::{Subject, channel};
use bytes::Bytes;
use std::collections::BTreeSet;

/// Maximum number of glob matching steps to select the channels of a list, about 50 ms.
const LIST_STEPS_MAX: usize = 20_000_000;

impl RedisSession {
    /// Handles the answer to [`SessionRequest::Count`].
    pub fn on_counts(&mut self, counts: &[ReceiverCount], out: &mut OutputBuffer) {
        let PendingReply::Counts(channels) = self.take_pending() else { return };
        let mut reply = self.reply(out);
        reply.array(2 * channels.len());
        for (channel, at) in channels {
            reply.bulk(&channel);
            reply.integer(at.and_then(|at| counts.get(at)).map_or(0, |receivers| receivers.count));
        }
    }

    /// Handles the answer to [`SessionRequest::List`]. Returns the number of matching steps that were used.
    pub fn on_subscription_list(&mut self, listed: &[ListedSubscription], out: &mut OutputBuffer) -> usize {
        match self.take_pending() {
            PendingReply::Patterns => {
                let patterns: BTreeSet<_> =
                    listed.iter().filter(|listed| !listed.is_exact()).map(|listed| &listed.filter).collect();
                self.reply(out).integer(patterns.len() as u64);
                0
            }
            PendingReply::Channels(glob) => {
                let exact = listed.iter().filter(|listed| listed.is_exact());
                let subjects = exact.filter_map(|listed| listed.filter.pattern.as_str().parse::<Subject>().ok());
                let names = subjects.map(|subject| channel::of_subject(&subject).into_owned());
                let mut reply = self.reply(out);
                let (channels, steps) = matching_channels(names.collect(), glob.as_ref());
                if let Some(channels) = channels {
                    reply.array(channels.len());
                    channels.iter().for_each(|channel| reply.bulk(channel));
                } else {
                    reply.error(format!(
                        "ERR there are so many channels that this glob would take more than {LIST_STEPS_MAX} steps: the \
                         fewer bytes between two *, the fewer steps"
                    ));
                }
                steps
            }
            _ => 0,
        }
    }

    /// Begins all subscriptions, or none if one of them is invalid.
    pub(super) fn subscribe(&mut self, kind: SubscriptionKind, command: RedisCommand<'_>, out: &mut OutputBuffer) {
        let mut filters = Vec::with_capacity(command.len() - 1);
        let mut added = BTreeSet::new();
        for name in command.args(1) {
            let name = Bytes::copy_from_slice(name);
            let filter = match subscription_filter(kind, &name) {
                Ok(filter) => filter,
                Err(error) => return self.reply(out).error(error),
            };
            // The pattern of a glob matches at least every channel that the glob matches.
            if !self.permissions.subscribe.permits_pattern(&filter.pattern) {
                return self.deny(DeniedAction::Subscribe, &name, out);
            }
            filters.push((name.clone(), filter));
            if !self.subs.has(kind, &name) {
                added.insert(name);
            }
            let max = self.settings.subscriptions_max;
            if max < self.subs.len() + added.len() {
                return self.reply(out).error(format!("ERR a client may have at most {max} subscriptions"));
            }
        }
        for (name, filter) in filters {
            if !self.subs.has(kind, &name) {
                let sub = self.subs.add(kind, name.clone());
                self.requests.push_back(SessionRequest::Subscribe { sub, filter });
            }
            let count = self.subs.count(kind);
            self.reply(out).subscription(kind.push_types()[0], Some(&name), count);
        }
    }

    /// Ends the named subscriptions, or all of this kind.
    pub(super) fn unsubscribe(&mut self, kind: SubscriptionKind, command: RedisCommand<'_>, out: &mut OutputBuffer) {
        let names: Vec<Bytes> = match command.len() {
            1 => self.subs.names(kind),
            _ => command.args(1).map(Bytes::copy_from_slice).collect(),
        };
        let push_type = kind.push_types()[1];
        if names.is_empty() {
            let count = self.subs.count(kind);
            return self.reply(out).subscription(push_type, None, count);
        }
        for name in names {
            self.requests.extend(self.subs.remove(kind, &name).map(|sub| SessionRequest::Unsubscribe { sub }));
            let count = self.subs.count(kind);
            self.reply(out).subscription(push_type, Some(&name), count);
        }
    }

    /// Runs a subcommand of `PUBSUB`.
    pub(super) fn pubsub(&mut self, id: CommandId, command: RedisCommand<'_>, out: &mut OutputBuffer) {
        match (id, command.len()) {
            (CommandId::PubsubNumpat, _) => {
                self.pending = PendingReply::Patterns;
                self.requests.push_back(SessionRequest::List);
            }
            (CommandId::PubsubNumsub, 2) => self.reply(out).array(0),
            (CommandId::PubsubNumsub, _) => {
                let (mut channels, mut subjects) = (Vec::new(), Vec::new());
                for name in command.args(2) {
                    // A name that maps to no subject has no subscriptions.
                    let subject = channel::to_subject(name).ok();
                    channels.push((Bytes::copy_from_slice(name), subject.as_ref().map(|_| subjects.len())));
                    subjects.extend(subject);
                }
                self.pending = PendingReply::Counts(channels);
                self.requests.push_back(SessionRequest::Count { subjects });
            }
            (_, 2) => self.list_channels(None),
            (_, 3) => match Glob::new(command.arg(2)) {
                Ok(glob) => self.list_channels(Some(glob)),
                Err(error) => self.reply(out).error(format!("ERR {error}")),
            },
            _ => {
                let name = &command.arg(1)[..command.arg(1).len().min(128)];
                let (before, after) =
                    (b"ERR unknown subcommand or wrong number of arguments for '", b"'. Try PUBSUB HELP.");
                self.reply(out).error([&before[..], name, after].concat());
            }
        }
    }

    fn list_channels(&mut self, glob: Option<Glob>) {
        self.pending = PendingReply::Channels(glob);
        self.requests.push_back(SessionRequest::List);
    }
}

/// Returns the channels that match the glob, or `None` if the step limit is exhausted, and the number of steps used.
fn matching_channels(mut channels: BTreeSet<Vec<u8>>, glob: Option<&Glob>) -> (Option<BTreeSet<Vec<u8>>>, usize) {
    let Some(glob) = glob else { return (Some(channels), 0) };
    let mut left = LIST_STEPS_MAX;
    channels.retain(|channel| {
        let (matches, steps) = if left == 0 { (false, 0) } else { glob.matches_counted(channel) };
        left = left.saturating_sub(steps);
        matches
    });
    ((0 < left).then_some(channels), LIST_STEPS_MAX - left)
}
