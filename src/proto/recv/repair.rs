//! Recovery of datagrams that cannot be resent, and the schedule of requests.

use super::{ReceiveContext, RecvStream, StreamOutcome, found};
use crate::message::{Dseq, Message};
use crate::proto::ledger::{Acceptance, GapContext};
use crate::proto::mutant::Mutant;
use crate::proto::rebuild::Rebuild;
use crate::proto::stream_item::{Arrival, FetchedMessages, StreamItem};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::Instant;
use crate::wire::{Content, ContentKind, Manifest};
use std::time::Duration;

impl RecvStream {
    /// Handles the publisher's manifests of datagrams that it cannot resend.
    pub fn on_manifest(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        manifest: Manifest,
        out: &mut Vec<StreamOutcome>,
    ) -> bool {
        let (mut dseq, mut before, mut fits) = (manifest.first, manifest.before, true);
        for contents in manifest.datagrams {
            let messages: u64 = contents.iter().map(Content::messages_begun).sum();
            match self.ledger.fits(dseq, before, messages) {
                Some(true) if !self.rebuilds.has(dseq) => self.rebuild(ctx, dseq, before, contents, out),
                Some(false) => fits = false,
                _ => {}
            }
            (dseq, before) = (dseq.next(), before.saturating_add(messages));
        }
        self.on_deadline(ctx, out);
        fits
    }

    /// Begins to rebuild a datagram whose content is known.
    fn rebuild(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        dseq: Dseq,
        before: u64,
        contents: Vec<Content>,
        out: &mut Vec<StreamOutcome>,
    ) {
        // A subscription that began after the gap was found is owed no message of it. If there was no other
        // subscription then, this peer may have requested the manifest alone. The publisher's history must therefore
        // not be judged by its ring.
        let missed_at = self.ledger.found(dseq).unwrap_or(ctx.now.instant);
        let is_later = ctx.mutants.is(Mutant::ReportToLaterSubscriptions);
        let rebuild = Rebuild::new(ctx.now.instant, dseq, before, contents, |content| {
            let matched = ctx.interest.matches(&content.subject, ctx.mode);
            matched.is_some_and(|matched| is_later || matched.at(missed_at).is_some())
                && !ctx.mutants.is(Mutant::ManifestUnread)
                && self.can_be_fetched(dseq, content)
                && !(ctx.mutants.is(Mutant::LargeNotRequested) && matches!(content.kind, ContentKind::Part { .. }))
        });
        if !rebuild.is_waiting() {
            return self.complete(ctx, dseq, rebuild, out);
        }
        self.ledger.on_content_known(dseq, before, rebuild.messages());
        rebuild.for_each_wanted(|subject, first, last| {
            out.push(StreamOutcome::Fetch { dseq, subject: subject.clone(), first, last });
        });
        self.rebuilds.insert(dseq, rebuild, |first, seq| self.reassembly.has_head(first, seq));
        while self.ledger.is_over_limit() {
            self.overflow(ctx, out);
        }
    }

    /// Returns whether the history can supply the wanted content of datagram `dseq`. A large message must be owed and
    /// must not be given up. Its beginning must have arrived, or must still be awaited.
    fn can_be_fetched(&self, dseq: Dseq, content: &Content) -> bool {
        let ContentKind::Part { index, .. } = content.kind else { return true };
        let first = Dseq(dseq.0.saturating_sub(u64::from(index)));
        let Some(seq) = content.seq.filter(|_| self.ledger.states().baseline < first) else { return false };
        match self.rebuilds.large(first) {
            _ if self.reassembly.is_over(first) => false,
            Some(key) => (&key.subject, key.seq) == (&content.subject, seq),
            None if index == 0 || self.reassembly.has_head(first, seq) => true,
            None => self.ledger.is_pending(first) && !self.rebuilds.has(first),
        }
    }

    /// Handles the publisher's history answer: the messages from `first` to `last` that it still has. They are for a
    /// datagram, or for the large message that begins there.
    pub fn on_fetched(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        dseq: Dseq,
        (subject, first, last): (&Subject, Seq, Seq),
        mut messages: Vec<(Seq, Message)>,
        out: &mut Vec<StreamOutcome>,
    ) {
        if ctx.mutants.is(Mutant::FetchSkipsFirst) && !messages.is_empty() {
            messages.remove(0);
        }
        if let Some(fetched) = self.rebuilds.on_fetched(dseq, (subject, first, last), messages) {
            self.on_large_fetched(ctx, dseq, fetched, out);
        }
        // The fragments of a fetched message are not needed any more. Their limit must not cause a loss report for the
        // message.
        if self.rebuilds.has_fetched(dseq) {
            self.reassembly.remove(dseq);
        }
        self.abandon_incomplete(ctx, out);
        self.release(ctx, out);
        self.complete_ready(ctx, out);
    }

    /// Handles a large message that the history supplied. It begins at the end of datagram `first`, which arrived.
    pub(super) fn on_large_fetched(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        first: Dseq,
        fetched: FetchedMessages,
        out: &mut Vec<StreamOutcome>,
    ) {
        // A message given up meanwhile is reported already.
        if self.reassembly.has_head(first, fetched.position.seq)
            && let Some((position, reached)) = self.reassembly.on_fetched(first)
        {
            let (arrival, position) = (Arrival { reached, repaired: true }, position.unwrap_or(fetched.position));
            self.release_or_buffer(
                ctx,
                (first, u32::MAX),
                arrival,
                StreamItem::FetchedMessages(FetchedMessages { position, ..fetched }),
                false,
                out,
            );
        }
    }

    /// Completes the datagrams that waited for a large message and wait for nothing any more.
    pub(super) fn complete_ready(&mut self, ctx: &mut ReceiveContext<'_>, out: &mut Vec<StreamOutcome>) {
        while let Some((dseq, rebuild)) = self.rebuilds.take_ready() {
            self.complete(ctx, dseq, rebuild, out);
        }
    }

    /// Completes a datagram of which all wanted messages are present, or known to be lost.
    pub(super) fn complete(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        dseq: Dseq,
        rebuild: Rebuild,
        out: &mut Vec<StreamOutcome>,
    ) {
        let (before, messages) = (rebuild.before(), rebuild.messages());
        let missing = self.ledger.missing_at(dseq);
        // The rebuilt datagram does not arrive now, so the send times of the current and the last datagram do not apply
        // to it.
        let found = found(&mut self.nak_scheduler, ctx);
        let accept = self.ledger.on_datagram(&mut GapContext { arrived: found.now, ..found }, dseq, before, messages);
        debug_assert!(matches!(accept, Acceptance::Filled | Acceptance::Repaired), "{accept:?}");
        let arrival = Arrival { reached: self.ledger.reached(), repaired: true };
        let since = self.ledger.since();
        self.reorder_buffer.on_late_first_fragment(dseq);
        for (first, reason) in rebuild.missing_heads() {
            // A fetched message that waits for the rest of its first datagram is complete.
            if !self.rebuilds.has_fetched(first) {
                self.reassembly.on_fragment_gone(first, reason);
            }
        }
        if rebuild.whole().is_some() {
            self.reassembly.on_fetched(dseq);
        }
        let items = rebuild.into_items(dseq, since, missing, |first| self.reassembly.on_head_known(first));
        self.rebuilds.drop_large(dseq);
        // Large messages that are given up because of this datagram precede those that begin in it.
        self.abandon_below(self.ledger.frontier());
        let is_wanted = |item: &StreamItem| match item {
            StreamItem::GoneMessages(gone) => ctx.interest.matches(&gone.subject, ctx.mode).is_some(),
            _ => false,
        };
        if items.iter().any(is_wanted) {
            ctx.losses.overrun += missing.overrun;
        }
        for (index, item) in items.into_iter().enumerate() {
            if let StreamItem::GoneMessages(gone) = &item
                && ctx.interest.matches(&gone.subject, ctx.mode).is_some()
            {
                self.partially_lost.insert(dseq, accept == Acceptance::Repaired);
            }
            self.release_or_buffer(ctx, (dseq, index as u32 + 1), arrival, item, false, out);
        }
        if !self.reorder_buffer.has(dseq) {
            self.settle_partial(dseq);
        }
        self.abandon_incomplete(ctx, out);
        self.release(ctx, out);
    }

    pub(super) fn settle_partial(&mut self, dseq: Dseq) {
        if let Some(was_repaired) = self.partially_lost.remove(&dseq) {
            self.ledger.mark_lost(was_repaired);
        }
    }

    /// Handles the publisher's notice that it knows nothing about the datagrams up to `last` any more.
    pub fn on_expired(&mut self, ctx: &mut ReceiveContext<'_>, last: Dseq, out: &mut Vec<StreamOutcome>) {
        self.ledger.on_expired(last);
        self.on_deadline(ctx, out);
    }

    /// Returns the earliest time of the next request to the publisher.
    pub fn request_deadline(&self) -> Option<Instant> {
        self.ledger.request_deadline().into_iter().chain(self.rebuilds.request_deadline()).min()
    }

    /// Calls `request` with each range of datagrams to request now, until `request` has no room.
    pub fn send_due_requests(
        &mut self,
        now: Instant,
        request: impl FnMut(Dseq, Dseq) -> bool,
        out: &mut Vec<StreamOutcome>,
    ) {
        self.ledger.send_due_requests(now, &mut self.nak_scheduler, request);
        self.rebuilds.send_due_requests(now, |dseq, subject, first, last| {
            out.push(StreamOutcome::Fetch { dseq, subject: subject.clone(), first, last });
        });
    }

    /// Postpones repair by a silence of the publisher that does not count (A1).
    pub fn postpone(&mut self, now: Instant, by: Duration) {
        if self.nak_scheduler.is_on() {
            self.ledger.postpone(now, by);
        }
    }

    /// Shortens the deadlines after the publisher ended without a BYE: missing datagrams may only be late.
    pub fn expedite(&mut self, deadline: Instant) {
        self.ledger.expedite(deadline);
    }

    /// Resumes repair of a publisher that is present after all: repairable gaps are awaited until `deadline` again.
    pub fn resume(&mut self, now: Instant, deadline: Instant) {
        if self.nak_scheduler.is_on() {
            self.ledger.resume(now, deadline, &mut self.nak_scheduler);
        }
    }

    /// Returns the time at which the next gap is settled, if the publisher was heard until `alive_until`. Requested
    /// datagrams are awaited for longer while the publisher is silent.
    pub fn settle_deadline(&self, alive_until: Instant) -> Option<Instant> {
        self.ledger.deadline().filter(|at| !self.nak_scheduler.is_on() || *at <= alive_until)
    }
}
