//! A relay for TCP that delays what it forwards, like a long way between two sites. It does not limit the throughput.

use crate::netns::lan::Host;
use crate::support::command::now;
use crate::support::wait::let_time_pass;
use seqcast::time::Instant;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// Delay in each direction.
const DELAY: Duration = Duration::from_millis(20);
/// Maximum number of chunks that are under way in one direction of a connection. The sender waits beyond that.
const CHUNKS_MAX: usize = 2048;
/// Maximum size of a chunk, in bytes.
const CHUNK_BYTES_MAX: usize = 16 << 10;

/// Bytes on their way.
struct Chunk {
    /// Time at which they leave.
    due: Instant,
    bytes: Vec<u8>,
}

/// Starts a relay on a host that accepts connections at an address, and forwards each to a server of the host. A
/// connection that the server does not accept is closed. The relay ends with the process.
pub fn start(host: Host, address: SocketAddr, server: SocketAddr) {
    host.within(move || {
        let listener = TcpListener::bind(address).expect("the address of the host is free");
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a listener accepts");
                // A server that does not run refuses at once.
                if let Ok(server) = TcpStream::connect(server) {
                    forward(&client, &server);
                }
            }
        });
    });
}

/// Forwards in both directions until both have ended.
fn forward(client: &TcpStream, server: &TcpStream) {
    for (from, to) in [(client, server), (server, client)] {
        to.set_nodelay(true).expect("an option of TCP");
        let [from, to] = [from, to].map(|stream| stream.try_clone().expect("a descriptor more"));
        let (sender, receiver) = sync_channel(CHUNKS_MAX);
        let source = from.try_clone().expect("a descriptor more");
        thread::spawn(move || read(source, &sender));
        thread::spawn(move || write(&receiver, &from, to));
    }
}

/// Reads chunks up to the end of a connection.
fn read(mut from: TcpStream, chunks: &SyncSender<Chunk>) {
    let mut buffer = vec![0; CHUNK_BYTES_MAX];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let chunk = Chunk { due: now() + DELAY, bytes: buffer[..count].to_vec() };
        if chunks.send(chunk).is_err() {
            break;
        }
    }
}

/// Writes each chunk when it is due, then the end. If the connection does not take a chunk, both connections end.
fn write(chunks: &Receiver<Chunk>, from: &TcpStream, mut to: TcpStream) {
    for Chunk { due, bytes } in chunks {
        let_time_pass(due.since(now()), "the way is long");
        if to.write_all(&bytes).is_err() {
            // An error says that the connection has ended already.
            let _ = from.shutdown(Shutdown::Both);
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
