//! Answers that are streams of events (server-sent events): one body for each client, with a bounded queue.

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The body of an answer: the events of a channel, until its sender is dropped.
struct EventBody(Receiver<Bytes>);

impl HttpBody for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

/// Makes an answer whose events are sent through the channel. At most `queue` of them wait for the client.
pub(super) fn event_stream(queue: usize) -> (Sender<Bytes>, Response) {
    let (sender, events) = channel(queue);
    let response = ([(header::CONTENT_TYPE, "text/event-stream")], Body::new(EventBody(events))).into_response();
    (sender, response)
}

/// Encodes an event with one line of data.
pub(super) fn encode_event(name: &str, data: &str) -> Bytes {
    debug_assert!(!data.contains('\n'), "JSON in one line");
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}
