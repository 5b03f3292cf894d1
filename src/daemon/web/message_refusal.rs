//! Answers to subscriptions, messages and questions that are refused.

use super::WebContext;
use super::messages::MessageRefusal;
use super::reports::ReportFailure;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::sync::atomic::Ordering;

/// Answers a subscription or a message that is refused.
pub(super) fn refuse_message(context: &WebContext, refusal: &MessageRefusal) -> Response {
    match refusal {
        MessageRefusal::Denied(denial) => {
            context.counts.on_denied(denial);
            (StatusCode::FORBIDDEN, format!("{denial}: see accounts in the configuration, and seqcast realm show\n"))
                .into_response()
        }
        MessageRefusal::Invalid(text) => {
            context.counts.invalid.fetch_add(1, Ordering::Relaxed);
            (StatusCode::BAD_REQUEST, format!("{text}\n")).into_response()
        }
        MessageRefusal::Busy => {
            context.counts.busy.fetch_add(1, Ordering::Relaxed);
            let text = "too many subscriptions or messages wait; try again\n";
            (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], text).into_response()
        }
        MessageRefusal::NoAnswer => unavailable(ReportFailure::NoAnswer),
    }
}

/// Answers that there is no report.
pub(super) fn unavailable(failure: ReportFailure) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", failure.as_str())).into_response()
}
