//! The bus by HTTP, without I/O: subjects in URLs, headers of messages in header fields, and notices of subscriptions as
//! JSON and as server-sent events. `docs/http-api.md` describes the resources.

pub mod fields;
pub mod notice;
pub mod url_subject;
