//! The bus by HTTP, without I/O: subjects in URLs, headers of messages in header fields, and server-sent events. `docs/http-api.md` describes the resources.

pub mod fields;
pub mod server_sent_event;
pub mod url_subject;
