//! A proxy in front of a nats-server that repeats and reorders the messages for its clients.

use crate::support::nats_server::NatsServer;
use seqcast::rng::Rng;
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

/// Maximum number of connections.
const CONNECTIONS_MAX: usize = 64;
/// Number of messages that may be sent once more.
const REPLAY_MAX: usize = 200;

/// A running proxy. Its threads end with their connections.
pub struct HubProxy {
    port: u16,
}

impl HubProxy {
    /// Starts a proxy for this server.
    pub fn start(hub: &NatsServer) -> HubProxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (port, server_port) = (listener.local_addr().expect("it is bound").port(), hub.port());
        thread::spawn(move || {
            for client in listener.incoming().take(CONNECTIONS_MAX).map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)) else { continue };
                let [mut from_client, mut to_server] = [&client, &server].map(|end| end.try_clone().expect("a socket"));
                thread::spawn(move || {
                    drop(io::copy(&mut from_client, &mut to_server));
                    drop(to_server.shutdown(Shutdown::Both));
                });
                thread::spawn(move || {
                    drop(disturb(&server, &client));
                    drop(client.shutdown(Shutdown::Both));
                });
            }
        });
        HubProxy { port }
    }

    /// Returns the value of the key `link`.
    pub fn address(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

/// Passes on what the server sends until one of both ends. Messages are repeated, now and later, and change places.
fn disturb(server: &TcpStream, mut client: &TcpStream) -> io::Result<()> {
    let (mut reader, mut rng) = (BufReader::new(server), Rng::new(7));
    let mut sent: VecDeque<Vec<u8>> = VecDeque::new();
    let mut delayed: Option<Vec<u8>> = None;
    loop {
        let mut frame = Vec::new();
        if reader.read_until(b'\n', &mut frame)? == 0 {
            return Ok(());
        }
        if !frame.starts_with(b"MSG ") && !frame.starts_with(b"HMSG ") {
            client.write_all(&frame)?;
            continue;
        }
        let line = String::from_utf8_lossy(&frame).into_owned();
        let bytes: u64 = line.split_whitespace().last().and_then(|word| word.parse().ok()).expect("a length");
        // A line end follows the content.
        (&mut reader).take(bytes + 2).read_to_end(&mut frame)?;
        if delayed.is_none() && rng.chance(0.05) {
            delayed = Some(frame);
            continue;
        }
        for frame in [frame].into_iter().chain(delayed.take()) {
            client.write_all(&frame)?;
            if rng.chance(0.3) {
                client.write_all(&frame)?;
            }
            sent.push_back(frame);
        }
        if rng.chance(0.1) {
            client.write_all(&sent[rng.below(sent.len() as u64) as usize])?;
        }
        if REPLAY_MAX < sent.len() {
            sent.pop_front();
        }
    }
}
