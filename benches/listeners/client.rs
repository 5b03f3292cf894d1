//! The client program: the bytes that it sends and awaits, and the roles that it plays.

use crate::rv;
use crate::{BATCH, Outcome, PATIENCE, PAYLOAD, WARM_UP, now};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

/// The protocol of a client, reduced to bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Nats,
    Redis,
    Rv,
}

impl Protocol {
    pub fn parse(text: &str) -> Outcome<Protocol> {
        match text {
            "nats" => Ok(Protocol::Nats),
            "redis" => Ok(Protocol::Redis),
            "rv" => Ok(Protocol::Rv),
            _ => Err(format!("{text:?} is none of nats, redis and rv")),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Protocol::Nats => "nats",
            Protocol::Redis => "redis",
            Protocol::Rv => "rv",
        }
    }

    /// Returns the bytes that publish `PAYLOAD` bytes on a subject.
    pub fn publish(self, subject: &str) -> Vec<u8> {
        let payload = "x".repeat(PAYLOAD);
        match self {
            Protocol::Nats => format!("PUB {subject} {PAYLOAD}\r\n{payload}\r\n"),
            Protocol::Redis => {
                format!("*3\r\n$7\r\nPUBLISH\r\n${}\r\n{subject}\r\n${PAYLOAD}\r\n{payload}\r\n", subject.len())
            }
            Protocol::Rv => return rv::message(subject),
        }
        .into_bytes()
    }

    /// Returns the number of bytes that a subscriber gets for one publication.
    pub fn message_bytes(self, subject: &str) -> usize {
        match self {
            Protocol::Nats => format!("MSG {subject} 1 {PAYLOAD}\r\n\r\n").len() + PAYLOAD,
            Protocol::Redis => {
                format!("*3\r\n$7\r\nmessage\r\n${}\r\n{subject}\r\n${PAYLOAD}\r\n\r\n", subject.len()).len() + PAYLOAD
            }
            Protocol::Rv => rv::message(subject).len(),
        }
    }

    /// Connects, and waits until the server answers.
    pub fn connect(self, address: &str) -> Outcome<TcpStream> {
        let describe = |error: io::Error| format!("{} at {address}: {error}", self.name());
        let address: SocketAddr = address.parse().map_err(|_| format!("{address:?} is no address"))?;
        let begun = now();
        let mut stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(error) if PATIENCE < now().since(begun) => return Err(describe(error)),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        };
        stream.set_nodelay(true).map_err(describe)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(describe)?;
        let (hello, answer): (Vec<u8>, &[u8]) = match self {
            Protocol::Nats => {
                let hello = b"CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"bench\"}\r\nPING\r\n";
                (hello.to_vec(), b"PONG\r\n")
            }
            Protocol::Redis => (b"PING\r\n".to_vec(), b"+PONG\r\n"),
            Protocol::Rv => (rv::hello(), rv::CONNECTED),
        };
        stream.write_all(&hello).map_err(describe)?;
        read_to(&mut stream, answer).map_err(describe)?;
        Ok(stream)
    }

    /// Subscribes, and waits until that is confirmed.
    pub fn subscribe(self, stream: &mut TcpStream, subject: &str) -> Outcome<()> {
        let (greeting, answer) = match self {
            Protocol::Nats => (format!("SUB {subject} 1\r\nPING\r\n").into_bytes(), b"PONG\r\n".to_vec()),
            Protocol::Redis => {
                (format!("SUBSCRIBE {subject}\r\n").into_bytes(), format!("{subject}\r\n:1\r\n").into_bytes())
            }
            Protocol::Rv => ([rv::listen(subject), rv::sync()].concat(), rv::sync_end()),
        };
        stream.write_all(&greeting).map_err(|error| error.to_string())?;
        read_to(stream, &answer).map_err(|error| error.to_string())
    }
}

/// Reads until the received bytes end with `end`.
pub fn read_to(stream: &mut TcpStream, end: &[u8]) -> io::Result<()> {
    let mut received = Vec::new();
    let mut byte = [0];
    while !received.ends_with(end) {
        stream.read_exact(&mut byte)?;
        received.extend_from_slice(&byte);
    }
    Ok(())
}

/// Runs the role of a child process.
pub fn play(role: &str, protocol: &str, address: &str, count: &str) -> Outcome<()> {
    let protocol = Protocol::parse(protocol)?;
    let count: usize = count.parse().map_err(|_| format!("{count:?} is no number"))?;
    match role {
        "publish" => publish(protocol, address, count),
        "subscribe" => subscribe(protocol, address, count),
        "request" => measure_requests(protocol, address, count),
        "answer" => answer(protocol, address, count),
        _ => Err(format!("{role:?} is no role")),
    }
}

/// Waits for a line on standard input: the parent sends it once both clients are ready.
fn wait_for_go() {
    let mut line = String::new();
    // At the end of the input no process waits for the outcome either.
    let _ = io::stdin().read_line(&mut line);
}

fn publish(protocol: Protocol, address: &str, count: usize) -> Outcome<()> {
    let mut stream = protocol.connect(address)?;
    let describe = |error: io::Error| format!("publishing: {error}");
    let one = protocol.publish("bench.a");
    let batch = one.repeat(BATCH);
    let reader = (protocol == Protocol::Redis).then(|| stream.try_clone().map_err(describe)).transpose()?;
    // Each PUBLISH is answered with a number of one digit.
    let reader = reader.map(|mut stream| {
        thread::spawn(move || {
            let mut left = count * b":1\r\n".len();
            let mut bytes = vec![0; 256 * 1024];
            while 0 < left {
                match stream.read(&mut bytes) {
                    Ok(read @ 1..) => left -= read.min(left),
                    _ => return Err("the answers ended early".to_owned()),
                }
            }
            Ok(())
        })
    });
    wait_for_go();
    for _ in 0..count / BATCH {
        stream.write_all(&batch).map_err(describe)?;
    }
    match (protocol, reader) {
        (_, Some(reader)) => reader.join().expect("it does not panic"),
        (Protocol::Rv, None) => {
            stream.write_all(&rv::sync()).map_err(describe)?;
            read_to(&mut stream, &rv::sync_end()).map_err(describe)
        }
        (_, None) => {
            stream.write_all(b"PING\r\n").map_err(describe)?;
            read_to(&mut stream, b"PONG\r\n").map_err(describe)
        }
    }
}

/// Prints the number of received messages, and the seconds in which they came.
fn subscribe(protocol: Protocol, address: &str, count: usize) -> Outcome<()> {
    let mut stream = protocol.connect(address)?;
    protocol.subscribe(&mut stream, "bench.a")?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(|error| error.to_string())?;
    println!("ready");
    let wanted = count * protocol.message_bytes("bench.a");
    let mut bytes = vec![0; 256 * 1024];
    let (mut received, mut begun) = (0, None);
    while received < wanted {
        match stream.read(&mut bytes) {
            Ok(read @ 1..) => received += read,
            _ => break,
        }
        begun.get_or_insert_with(now);
    }
    let secs = begun.map_or(0.0, |begun| now().since(begun).as_secs_f64());
    println!("{} {secs}", received / protocol.message_bytes("bench.a"));
    Ok(())
}

/// Sends requests one after the other. Prints the times within which half and 99 of 100 were answered, in
/// microseconds.
fn measure_requests(protocol: Protocol, address: &str, count: usize) -> Outcome<()> {
    let mut stream = protocol.connect(address)?;
    protocol.subscribe(&mut stream, "bench.back")?;
    let request = match protocol {
        Protocol::Nats => {
            let payload = "x".repeat(PAYLOAD);
            format!("PUB bench.to bench.back {PAYLOAD}\r\n{payload}\r\n").into_bytes()
        }
        Protocol::Redis | Protocol::Rv => protocol.publish("bench.to"),
    };
    // Redis clients publish and subscribe by two connections unless they speak RESP3.
    let mut publisher = if protocol == Protocol::Redis { protocol.connect(address)? } else { clone(&stream)? };
    wait_for_go();
    let mut answer = vec![0; protocol.message_bytes("bench.back")];
    let mut times = Vec::with_capacity(count);
    let mut published = [0; 4];
    for _ in 0..count + WARM_UP {
        let begun = now();
        publisher.write_all(&request).map_err(|error| format!("requesting: {error}"))?;
        stream.read_exact(&mut answer).map_err(|error| format!("waiting for an answer: {error}"))?;
        times.push(now().since(begun));
        if protocol == Protocol::Redis {
            publisher.read_exact(&mut published).map_err(|error| format!("waiting for the count: {error}"))?;
        }
    }
    times.drain(..WARM_UP);
    times.sort_unstable();
    let micros = |share: f64| times[(times.len() as f64 * share) as usize].as_nanos() as f64 / 1000.0;
    println!("{} {}", micros(0.5), micros(0.99));
    Ok(())
}

fn clone(stream: &TcpStream) -> Outcome<TcpStream> {
    stream.try_clone().map_err(|error| error.to_string())
}

fn answer(protocol: Protocol, address: &str, count: usize) -> Outcome<()> {
    let mut stream = protocol.connect(address)?;
    protocol.subscribe(&mut stream, "bench.to")?;
    let mut publisher = if protocol == Protocol::Redis { protocol.connect(address)? } else { clone(&stream)? };
    println!("ready");
    let reply = match protocol {
        Protocol::Nats => " bench.back".len(),
        Protocol::Redis | Protocol::Rv => 0,
    };
    let mut request = vec![0; protocol.message_bytes("bench.to") + reply];
    let (answer, mut published) = (protocol.publish("bench.back"), [0; 4]);
    for _ in 0..count + WARM_UP {
        if stream.read_exact(&mut request).is_err() {
            break;
        }
        publisher.write_all(&answer).map_err(|error| format!("answering: {error}"))?;
        if protocol == Protocol::Redis {
            publisher.read_exact(&mut published).map_err(|error| format!("waiting for the count: {error}"))?;
        }
    }
    Ok(())
}
