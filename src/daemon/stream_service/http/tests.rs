//! The server without its stream service: refusals, and clients that read nothing.

use super::answer::post;
use super::client::{CLIENT_QUEUE_MAX, StreamClient};
use super::context::BUSY;
use super::*;
use crate::daemon::stream_service::input::{ClientMessage, StreamInput};
use crate::daemon::stream_service::input_queue::{InputChannel, InputLimits, InputReceiver};
use crate::event::stream::store::{StreamLimits, StreamSettings};
use crate::listener::ftn18::session::{CallId, CallResult};
use axum::body::Bytes;
use std::sync::atomic::Ordering;
use tokio::sync::watch;

/// Creates a server that takes at most `count_max` inputs, with the receiver in place of its stream service.
fn context(count_max: usize) -> (RequestContext, InputReceiver) {
    let InputChannel { sender: inputs, receiver } = InputChannel::new(InputLimits { count_max, bytes_max: 1 << 20 });
    let (_, end) = watch::channel(());
    let settings = Settings {
        address: ([127, 0, 0, 1], 0).into(),
        access: Arc::default(),
        streams: vec![StreamSettings {
            name: "main".parse().unwrap(),
            types: Vec::new(),
            limits: StreamLimits::default(),
        }],
        clients_max: 1,
        bytes_max: 1 << 20,
        is_trusted: true,
        tls: None,
    };
    let memory = ClientMemory::new(1 << 20);
    let account = memory.account();
    let shared = HttpShared {
        settings,
        inputs,
        next: AtomicU64::new(0),
        connections: Arc::new(ConnectionCounts::new("ftn18")),
        counts: Arc::default(),
        end,
        memory,
    };
    (RequestContext { shared: Arc::new(shared), is_secure: true, account }, receiver)
}

fn posted(context: &RequestContext) -> Option<Bytes> {
    let body = r#"{"f":"futoin.evt.gen:1.1:addEvent","p":{"type":"A","data":1},"sec":"alice:any"}"#;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(post(context, Ok(body), 0))
}

#[test]
fn call_beyond_input_limit_is_answered_busy() {
    let (context, _receiver) = context(1);
    let answer = posted(&context).expect("the client is accepted, its call is not");
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!((&answer["e"], &answer["edesc"]), (&"DefenseRejected".into(), &BUSY.into()));
    assert_eq!(posted(&context), None, "the queue has no room for the next client");
    assert_eq!(context.shared.counts.busy.load(Ordering::Relaxed), 2);
}

#[test]
fn malformed_message_is_counted_and_next_one_served() {
    let (context, receiver) = context(8);
    let (client, _messages) = StreamClient::open(&context).unwrap();
    assert!(matches!(receiver.pop(), Some(StreamInput::Opened(..))));
    let mut session = context.session(true);
    session.on_message("{\"f\"");
    session.on_message(r#"{"f":"futoin.evt.gen:1.1:addEvent","p":{"type":"A","data":1},"sec":"alice:any"}"#);
    while let Some(output) = session.poll_output() {
        assert_eq!(client.call(output, 0, &mut session), Ok(None));
    }
    assert_eq!(context.shared.counts.malformed.load(Ordering::Relaxed), 1);
    assert!(matches!(receiver.pop(), Some(StreamInput::Called { .. })));
}

#[test]
fn client_that_reads_nothing_counts_as_slow() {
    let (context, receiver) = context(1);
    let (_client, mut messages) = StreamClient::open(&context).unwrap();
    let Some(StreamInput::Opened(_, notify)) = receiver.pop() else { panic!("a client") };
    (0..CLIENT_QUEUE_MAX).for_each(|_| notify(ClientMessage::CallResult(CallId(0), Ok(CallResult::Accepted))));
    assert!(!context.account.is_slow());
    notify(ClientMessage::CallResult(CallId(0), Ok(CallResult::Accepted)));
    assert!(context.account.is_slow());
    assert_eq!(std::iter::from_fn(|| messages.try_recv().ok()).count(), CLIENT_QUEUE_MAX);
}
