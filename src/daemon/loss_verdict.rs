//! The verdict on one publisher's losses, in words: how many datagrams were missing, how many came back, and where they
//! were lost.

use crate::message::Reason;
use crate::proto::stats::LossRow;

/// Returns one sentence on the losses of a publisher; `None` if nothing was ever missing.
pub(crate) fn verdict(row: &LossRow) -> Option<String> {
    let states = row.datagrams;
    let (missing, owed) = (states.missing(), states.high.0.saturating_sub(states.baseline.0));
    let lost = row.lost();
    if missing == 0 && lost.max() == 0 && row.ibx_loss.count == 0 && row.unverified.count == 0 {
        return None;
    }
    let mut parts = vec![format!(
        "{missing} of {owed} datagrams were missing ({}), {} repaired ({})",
        percent(missing, owed),
        states.repaired,
        percent(states.repaired, missing)
    )];
    let (inbox, unverified) = (row.ibx_loss.count, row.unverified.count);
    parts.extend((0 < states.pending).then(|| format!("{} still awaited", states.pending)));
    parts.extend((0 < lost.max()).then(|| format!("{lost} messages lost")));
    parts.extend((0 < inbox).then(|| format!("{inbox} messages lost that were sent to this peer alone")));
    parts.extend((0 < unverified).then(|| format!("{unverified} messages unexplained")));
    Some(format!("{}; {}", parts.join(", "), blame(row)))
}

/// Returns where the datagrams were lost, and what to do about it.
fn blame(row: &LossRow) -> String {
    let missing = row.datagrams.missing();
    let count = |reasons: &[Reason]| -> u64 {
        let counted = Reason::ALL.iter().zip(row.reasons).filter(|(reason, _)| reasons.contains(reason));
        counted.map(|(_, count)| count).sum()
    };
    let ended = count(&[Reason::Silent, Reason::Crashed, Reason::PublisherGone]);
    let reports: u64 = row.reasons.iter().sum();
    let host = row.overrun.min(missing);
    if 0 < host && missing <= 2 * host {
        format!("this host: its kernel dropped {host} of them; raise receive-buffer, or lower the load")
    } else if reports < 2 * ended {
        "the sender: it fell silent or ended".to_owned()
    } else if reports < 2 * count(&[Reason::Expired]) {
        "the sender: it no longer had what was requested; raise its resend-size or resend-time".to_owned()
    } else if reports < 2 * count(&[Reason::Overflow]) {
        "this host: a limit of this peer was reached; raise hold-size".to_owned()
    } else if 0 < host {
        format!("the path: the network lost all but {host} of them, which this host's kernel dropped")
    } else {
        "the path: the network lost them".to_owned()
    }
}

/// Returns a share in percent; 0 % of nothing.
fn percent(part: u64, whole: u64) -> String {
    let share = if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 };
    match share {
        share if 0.0 < share && share < 0.1 => "below 0.1 %".to_owned(),
        share => format!("{share:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Dseq, Epoch, Publisher};
    use crate::proto::stats::{DatagramStates, LossTally};

    fn row() -> LossRow {
        let zero = LossTally::default();
        LossRow {
            publisher: Publisher { name: None, epoch: Epoch::new(7).unwrap(), uid: 1 },
            repeat: zero,
            not_sub: zero,
            repaired: zero,
            msg_loss: zero,
            msg_loss_uncertain: 0,
            ibx_loss: zero,
            unverified: zero,
            reason: None,
            reasons: [0; Reason::ALL.len()],
            datagrams: DatagramStates { high: Dseq(1000), delivered: 1000, ..DatagramStates::default() },
            overrun: 0,
            inconsistencies: 0,
        }
    }

    /// Returns a row with 40 missing datagrams, of which 30 were repaired, and 25 lost messages.
    fn lossy(reason: Reason, overrun: u64) -> LossRow {
        let mut row = row();
        row.datagrams = DatagramStates { repaired: 30, lost: 10, ..row.datagrams };
        row.msg_loss.count = 25;
        let index = Reason::ALL.iter().position(|one| *one == reason).unwrap();
        row.reasons[index] = 3;
        LossRow { overrun, ..row }
    }

    #[test]
    fn nothing_missing_has_no_verdict() {
        assert_eq!(verdict(&row()), None);
    }

    #[test]
    fn verdict_has_counts_and_shares() {
        let text = verdict(&lossy(Reason::Deadline, 0)).unwrap();
        assert_eq!(
            text,
            "40 of 1000 datagrams were missing (4.0 %), 30 repaired (75.0 %), 25 messages lost; \
             the path: the network lost them"
        );
    }

    #[test]
    fn blame_follows_drops_and_reasons() {
        for (reason, overrun, expected) in [
            (Reason::Deadline, 20, "this host: its kernel dropped 20"),
            (Reason::Deadline, 19, "the path: the network lost all but 19"),
            (Reason::Crashed, 0, "the sender: it fell silent or ended"),
            (Reason::Silent, 0, "the sender: it fell silent or ended"),
            (Reason::Expired, 0, "the sender: it no longer had"),
            (Reason::Overflow, 0, "this host: a limit of this peer"),
            (Reason::Disabled, 0, "the path: the network lost them"),
        ] {
            let text = verdict(&lossy(reason, overrun)).unwrap();
            assert!(text.contains(&format!("; {expected}")), "{reason:?} {overrun}: {text}");
        }
    }

    #[test]
    fn small_shares_are_not_shown_as_zero() {
        assert_eq!(percent(1, 100_000), "below 0.1 %");
        assert_eq!((percent(0, 5), percent(0, 0), percent(5, 5)), ("0.0 %".into(), "0.0 %".into(), "100.0 %".into()));
    }
}
