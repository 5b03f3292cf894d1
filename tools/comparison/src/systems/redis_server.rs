//! Redis: a redis-server on loopback. Messages are published in pipelines.

use super::{Place, Publisher, SUBJECT, Subscriber};
use crate::server::{Server, free_port};
use anyhow::Result;
use redis::{Client, Connection, Pipeline};
use std::process::Command;
use std::time::Duration;

/// Messages of one pipeline.
const PIPELINE_MAX: usize = 500;
/// Long enough not to pass in the middle of a message, which the library would lose.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(1);

pub fn start() -> Result<Place> {
    let port = free_port()?;
    let port_text = port.to_string();
    let arguments = ["--bind", "127.0.0.1", "--port", &port_text, "--save", "", "--appendonly", "no"];
    let server = Server::start(Command::new("redis-server").args(arguments))?;
    Ok(Place { endpoint: format!("redis://127.0.0.1:{port}"), _server: Some(server.await_port(port)?) })
}

pub struct RedisPublisher {
    connection: Connection,
    pipeline: Pipeline,
}

impl RedisPublisher {
    pub fn open(endpoint: &str) -> Result<RedisPublisher> {
        Ok(RedisPublisher { connection: Client::open(endpoint)?.get_connection()?, pipeline: Pipeline::new() })
    }
}

impl Publisher for RedisPublisher {
    fn publish(&mut self, payload: &[u8]) -> Result<()> {
        self.pipeline.publish(SUBJECT, payload).ignore();
        if self.pipeline.len() < PIPELINE_MAX { Ok(()) } else { self.finish() }
    }

    fn finish(&mut self) -> Result<()> {
        if !self.pipeline.is_empty() {
            self.pipeline.exec(&mut self.connection)?;
            self.pipeline.clear();
        }
        Ok(())
    }
}

pub struct RedisSubscriber {
    connection: Connection,
}

impl RedisSubscriber {
    pub fn open(endpoint: &str) -> Result<RedisSubscriber> {
        let mut connection = Client::open(endpoint)?.get_connection()?;
        // The type that subscribes for programs ends its subscriptions when it is dropped, and lends its connection only.
        connection.send_packed_command(&redis::cmd("SUBSCRIBE").arg(SUBJECT).get_packed_command())?;
        connection.recv_response()?;
        connection.set_read_timeout(Some(RECEIVE_TIMEOUT))?;
        Ok(RedisSubscriber { connection })
    }
}

impl Subscriber for RedisSubscriber {
    fn receive(&mut self, on_message: &mut dyn FnMut(&[u8])) -> Result<()> {
        match self.connection.recv_response() {
            Ok(value) => {
                if let Some(message) = redis::Msg::from_owned_value(value) {
                    on_message(message.get_payload_bytes());
                }
                Ok(())
            }
            Err(error) if error.is_timeout() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
