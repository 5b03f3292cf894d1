//! Encoding and decoding of requests about streams and consumers, and of their answers, in frames of the local
//! protocol.

mod answer;
mod fields;
pub mod json;
mod request;
mod stream_refusal;

pub use answer::{Consumers, StreamAnswer, StreamEvents, StreamRow, Streams};
pub use request::{ResetPosition, StreamOperation, StreamRequest};
pub use stream_refusal::{StreamRefusal, StreamRefusalKind};
