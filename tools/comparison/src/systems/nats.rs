//! NATS: a nats-server on loopback. It drops a subscriber that is too slow, so publishers wait for the server now and
//! then.

use super::{Place, Publisher, RECEIVE_TIMEOUT, SUBJECT, Subscriber};
use crate::server::{Server, free_port};
use anyhow::Result;
use futures_util::StreamExt;
use std::process::Command;
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// Number of messages after which the publisher waits until the server has read them.
const FLUSH_INTERVAL: u64 = 10_000;
/// Messages that wait for the receiving program.
const QUEUED_MAX: usize = 1 << 20;

pub fn start() -> Result<Place> {
    let port = free_port()?;
    let server = Server::start(Command::new("nats-server").args(["-a", "127.0.0.1", "-p", &port.to_string()]))?;
    Ok(Place { endpoint: format!("nats://127.0.0.1:{port}"), _server: Some(server.await_port(port)?) })
}

fn connect(endpoint: &str) -> Result<(Runtime, async_nats::Client)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let options = async_nats::ConnectOptions::new().subscription_capacity(QUEUED_MAX);
    let client = runtime.block_on(options.connect(endpoint))?;
    Ok((runtime, client))
}

pub struct NatsPublisher {
    runtime: Runtime,
    client: async_nats::Client,
    count: u64,
}

impl NatsPublisher {
    pub fn open(endpoint: &str) -> Result<NatsPublisher> {
        let (runtime, client) = connect(endpoint)?;
        Ok(NatsPublisher { runtime, client, count: 0 })
    }
}

impl Publisher for NatsPublisher {
    fn publish(&mut self, payload: &[u8]) -> Result<()> {
        self.runtime.block_on(self.client.publish(SUBJECT, payload.to_vec().into()))?;
        self.count += 1;
        if self.count.is_multiple_of(FLUSH_INTERVAL) { self.finish() } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<()> {
        Ok(self.runtime.block_on(self.client.flush())?)
    }
}

pub struct NatsSubscriber {
    runtime: Runtime,
    subscriber: async_nats::Subscriber,
    _client: async_nats::Client,
}

impl NatsSubscriber {
    pub fn open(endpoint: &str) -> Result<NatsSubscriber> {
        let (runtime, client) = connect(endpoint)?;
        let subscriber = runtime.block_on(async {
            let subscriber = client.subscribe(SUBJECT).await?;
            client.flush().await?;
            anyhow::Ok(subscriber)
        })?;
        Ok(NatsSubscriber { runtime, subscriber, _client: client })
    }
}

impl Subscriber for NatsSubscriber {
    fn receive(&mut self, on_message: &mut dyn FnMut(&[u8])) -> Result<()> {
        let subscriber = &mut self.subscriber;
        self.runtime.block_on(async {
            let mut next = timeout(RECEIVE_TIMEOUT, subscriber.next()).await;
            while let Ok(Some(message)) = next {
                on_message(&message.payload);
                next = Ok(futures_util::FutureExt::now_or_never(subscriber.next()).flatten());
            }
        });
        Ok(())
    }
}
