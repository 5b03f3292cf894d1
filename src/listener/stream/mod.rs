//! Streams and their consumers in the frames of the local protocol: requests and answers; encoding and decoding.

mod answer;
mod fields;
mod request;
mod stream_refusal;

pub use answer::{Consumers, StreamAnswer, StreamEvents, StreamRow, Streams};
pub use request::{ResetPosition, StreamOperation, StreamRequest};
pub use stream_refusal::{StreamRefusal, StreamRefusalKind};
