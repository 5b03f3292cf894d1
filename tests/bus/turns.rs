//! One turn of a peer, when many clients send much at once: all of them are served, and none of the turns is long.

use crate::support::bus::config_with_socket;
use bytes::BytesMut;
use seqcast::bus::{EmbeddedPeer, Options};
use seqcast::listener::frame::{ClientFrame, PeerFrame, VERSION};
use seqcast::message::SubId;
use serde_json::json;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

const CLIENTS: usize = 128;
/// Bytes that each client sends at once.
const REQUEST_BYTES: usize = 48 << 10;
/// Maximum bytes taken from all clients in one turn: a mebibyte, and the part of the last read beyond it.
const TAKEN_BYTES_MAX: usize = (1 << 20) + (64 << 10);
/// Maximum number of turns until every client is served.
const TURNS_MAX: usize = 2 * CLIENTS * REQUEST_BYTES / (1 << 20);

/// Takes the bytes that can be read.
fn take(client: &mut File) -> usize {
    let mut scratch = [0; 64 << 10];
    let mut taken = 0;
    loop {
        match client.read(&mut scratch) {
            Ok(0) => panic!("the connection ended"),
            Ok(count) => taken += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return taken,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Makes every client send `request` many times, and those that have all their answers once more.
fn request_all(peer: &mut EmbeddedPeer, mut clients: Vec<File>, request: &[u8], answer_bytes: usize) {
    for _ in 0..TURNS_MAX {
        peer.turn().unwrap();
    }
    clients.iter_mut().for_each(|client| assert_ne!(take(client), 0, "everybody is greeted"));
    let requests = REQUEST_BYTES / request.len();
    let all = request.repeat(requests);
    clients.iter_mut().for_each(|client| client.write_all(&all).expect("the system has room for it"));
    let mut answered = vec![0; clients.len()];
    let mut turns = 0;
    while answered.iter().any(|answered| *answered < requests) {
        turns += 1;
        assert!(turns <= TURNS_MAX, "{answered:?}");
        peer.turn().unwrap();
        let mut taken = 0;
        for (client, answered) in clients.iter_mut().zip(&mut answered) {
            let answers = take(client) / answer_bytes;
            *answered += answers;
            taken += answers;
            if 0 < answers && *answered % requests == 0 {
                client.write_all(&all).expect("the system has room for it");
            }
        }
        assert!(taken * request.len() <= TAKEN_BYTES_MAX, "{taken} in turn {turns}");
    }
}

fn start() -> (EmbeddedPeer, impl Sized, String) {
    let (mut config, directory) = config_with_socket("turns");
    (config.nats, config.client_max) = (Some("127.0.0.1:0".parse().unwrap()), 2 * CLIENTS);
    let socket = config.socket.display().to_string();
    let peer = EmbeddedPeer::open_with(&config, &Options { serve: true, ..Options::default() }).unwrap();
    (peer, directory, socket)
}

#[test]
fn listener_clients_share_a_turn() {
    let (mut peer, _directory, _) = start();
    let status = peer.show(&json!({ "show": "status" }));
    let address = status["status"]["listeners"][0]["address"].as_str().unwrap();
    let connect = |_| {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nonblocking(true).unwrap();
        File::from(OwnedFd::from(stream))
    };
    let clients = (0..CLIENTS).map(connect).collect();
    request_all(&mut peer, clients, b"PING\r\n", b"PONG\r\n".len());
}

#[test]
fn attached_clients_share_a_turn() {
    let (mut peer, _directory, socket) = start();
    let bytes = |frame: ClientFrame| {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes);
        bytes
    };
    let hello = bytes(ClientFrame::Hello { version: VERSION, name: "turns".to_owned() });
    let connect = |_| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(&hello).unwrap();
        stream.set_nonblocking(true).unwrap();
        peer.turn().unwrap();
        File::from(OwnedFd::from(stream))
    };
    let clients = (0..CLIENTS).map(connect).collect();
    // A request for an existing state is answered and causes nothing else.
    let request = bytes(ClientFrame::Subscribe {
        sub: SubId(1),
        pattern: "a".parse().unwrap(),
        mode: None,
        wants_discovery: false,
        queue: None,
    });
    let mut answer = BytesMut::new();
    PeerFrame::Subscribed { sub: SubId(1) }.encode(&mut answer);
    request_all(&mut peer, clients, &request, answer.len());
}
