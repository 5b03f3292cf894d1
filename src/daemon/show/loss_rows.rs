//! Rows about losses between the peers of a LAN.

use super::publisher_row;
use crate::daemon::advisories::AdvisoryCount;
use crate::daemon::loss_verdict::verdict;
use crate::daemon::subject_losses::{LossSubject, SubjectLossRow};
use crate::message::{Count, Reason};
use crate::proto::stats::{LossRow, LossTally, OutboundRow};
use crate::wire::Report;
use serde_json::{Value, json};

/// Returns a row of `show loss`.
pub(super) fn loss(row: &LossRow) -> Value {
    let states = row.datagrams;
    let nonzero = Reason::ALL.iter().zip(row.reasons).filter(|(_, count)| *count != 0);
    let reasons: serde_json::Map<String, Value> =
        nonzero.map(|(reason, count)| (reason.as_str().to_owned(), count.into())).collect();
    publisher_row(
        &row.publisher,
        json!({
            "repeat": tally(row.repeat),
            "not_sub": tally(row.not_sub),
            "repaired": tally(row.repaired),
            "msg_loss": tally(row.msg_loss),
            "msg_loss_uncertain": row.msg_loss_uncertain,
            "lost": serde_json::to_value(AdvisoryCount(row.lost())).expect("numbers are valid JSON"),
            "ibx_loss": tally(row.ibx_loss),
            "unverified": tally(row.unverified),
            "reason": row.reason.map(|reason| reason.as_str()),
            "reasons": reasons,
            "datagrams": {
                "baseline": states.baseline.0,
                "high": states.high.0,
                "delivered": states.delivered,
                "buffered": states.buffered,
                "missing": states.missing(),
                "repaired": states.repaired,
                "pending": states.pending,
                "lost": states.lost,
                "unverified": states.unverified,
            },
            "overrun": row.overrun,
            "inconsistencies": row.inconsistencies,
            "verdict": verdict(row),
        }),
    )
}

/// Returns a row of `show loss --by-subject`.
pub(super) fn subject_loss(row: &SubjectLossRow) -> Value {
    let (kind, subject) = match &row.subject {
        LossSubject::Known(subject) => ("subject", Some(subject.as_str())),
        LossSubject::Others => ("other_subjects", None),
        LossSubject::Inbox => ("inbox", None),
        LossSubject::Unknown { .. } => ("unknown_subject", None),
    };
    let (unverified, pending) = match row.subject {
        LossSubject::Unknown { unverified, pending } => (Some(unverified), Some(pending)),
        _ => (None, None),
    };
    let tally = &row.tally;
    publisher_row(
        &row.publisher,
        json!({
            "kind": kind,
            "subject": subject,
            "lost": serde_json::to_value(AdvisoryCount(tally.lost())).expect("numbers are valid JSON"),
            "repaired": tally.repaired,
            "unverified": unverified,
            "pending_datagrams": pending,
            "reason": tally.last.map(|(reason, _)| reason.as_str()),
            "cause": tally.last.map(|(_, cause)| cause.as_str()),
            "time": tally.at.map(|at| at.to_string()),
            "time_ns": tally.at.map(|at| at.as_nanos()),
        }),
    )
}

/// Returns a row of `show loss --outbound`.
pub(super) fn outbound(row: &OutboundRow) -> Value {
    let Report { missing, repaired, pending, unverified, lost_min, lost_max, overrun, directed_lost } = row.report;
    let lost = Count::from_bounds(lost_min, lost_max);
    publisher_row(
        &row.receiver,
        json!({
            "missing": missing,
            "repaired": repaired,
            "pending": pending,
            "unverified": unverified,
            "overrun": overrun,
            "lost": serde_json::to_value(AdvisoryCount(lost)).expect("numbers are valid JSON"),
            "inbox_lost": directed_lost,
            "time": row.at.to_string(),
            "time_ns": row.at.as_nanos(),
        }),
    )
}

fn tally(tally: LossTally) -> Value {
    json!({
        "count": tally.count,
        "time": tally.last.map(|at| at.to_string()),
        "time_ns": tally.last.map(|at| at.as_nanos()),
    })
}
