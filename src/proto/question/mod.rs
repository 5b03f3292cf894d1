//! Questions to a peer about its history and its reports, and its answers: the payloads of messages on `_INBOX.<epoch>.HISTORY` and of the
//! replies (docs/wire.md, "History service"; seed 000).
//!
//! A payload has no version of its own; an unknown kind is refused. All numbers are big-endian. A subject is encoded as
//! a length of one byte and its bytes; length 0 means the preceding subject in the same payload.
//!
//! ```text
//! question = kind u8 · body
//!   0x01 POLL  = count u16 · count x (subject · offset u32 · events u16)
//!   0x02 FETCH = count u16 · count x (subject · first seq u64 · last seq u64)
//!   0x03 LIST  = pattern bytes u8 · pattern · newest u32 (0: all) · age in ns u64 (0: any) · from u32 · limit u16
//!   0x04 REPORT = query bytes u16 · query
//! answer   = kind u8 · flags u8 · part u16 · epoch u64 · high dseq u64 · body
//!   0x81 POLL  = first u16 · count u16 · count x (case u8 · subject · [span] · [count u16 · events])
//!   0x82 FETCH = first u16 · count u16 · count x (case u8 · subject · [span] · count u16 · events)
//!   0x83 LIST  = next u32 if NEXT · count u16 · count x (subject · span)
//!   0x84 REPORT = report bytes u16 · a part of the report
//!   0xff REFUSED = reason u8
//! span     = first offset u32 · last offset u32 · first seq u64 · last seq u64
//! event    = flags u8 · seq u64 · offset u32 · time u64 · entry, as in RUN
//! flags of an answer: 0x01 LAST, 0x02 NEXT; of a case: 0x04 SPAN, 0x08 MORE; of an event: 0x08 EVENT, 0x10 META
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod answer;
mod decode;
mod encode;
mod format;
mod model;
#[cfg(test)]
mod tests;

pub use answer::{answer, report_parts, report_query};
pub use model::{
    ANSWER_BYTES_MAX, Answer, AnswerContent, Fetch, FetchAnswer, HistoryDecodeError, ITEMS_MAX, LISTED_MAX,
    PART_BYTES_MAX, Poll, PollAnswer, QUERY_BYTES_MAX, Question, Refused,
};
