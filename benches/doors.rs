//! Clients of the doors beside the servers that they were made for, with the same client program in the same run:
//! `cargo bench --bench doors [-- nats|redis [throughput|latency]] [--messages n] [--runs n]`. Takes about a minute.
//!
//! The program publishes many messages of 64 bytes in a write, enough to keep any server busy, and reads what comes by the
//! number of bytes, since all messages are alike. Publisher and subscriber are processes of their own. Each run takes the servers in
//! turn; what is told is the median of the runs and the ratio to the server of the protocol.
//!
//! Servers that are there already are named by `--at NAME=PUBLISHER'S ADDRESS,SUBSCRIBER'S ADDRESS`, and programs are started by
//! way of another with `--publisher-via` and `--subscriber-via`, such as `nsenter -n -t 123`.

use seqcast::daemon::clock::Clock;
use seqcast::time::Instant;
use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

/// The payload of a message, in bytes.
const PAYLOAD: usize = 64;
/// Messages in one write.
const BATCH: usize = 1000;
/// How long anything may take that goes well.
const PATIENCE: Duration = Duration::from_secs(60);
/// Requests whose time is not counted, at the start.
const WARM_UP: usize = 1000;

type Outcome<T> = Result<T, String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["role", role, protocol, address, count] => play(role, protocol, address, count),
        _ => compare(&words),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("doors: {why}");
            ExitCode::FAILURE
        }
    }
}

fn now() -> Instant {
    Clock::now().instant
}

/// What both protocols have in common for this program: bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Nats,
    Redis,
}

impl Protocol {
    fn parse(text: &str) -> Outcome<Protocol> {
        match text {
            "nats" => Ok(Protocol::Nats),
            "redis" => Ok(Protocol::Redis),
            _ => Err(format!("{text:?} is neither nats nor redis")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Protocol::Nats => "nats",
            Protocol::Redis => "redis",
        }
    }

    /// Publishes `PAYLOAD` bytes on a subject.
    fn publish(self, subject: &str) -> Vec<u8> {
        let payload = "x".repeat(PAYLOAD);
        match self {
            Protocol::Nats => format!("PUB {subject} {PAYLOAD}\r\n{payload}\r\n"),
            Protocol::Redis => {
                format!("*3\r\n$7\r\nPUBLISH\r\n${}\r\n{subject}\r\n${PAYLOAD}\r\n{payload}\r\n", subject.len())
            }
        }
        .into_bytes()
    }

    /// What a subscriber gets for that.
    fn message_bytes(self, subject: &str) -> usize {
        match self {
            Protocol::Nats => format!("MSG {subject} 1 {PAYLOAD}\r\n\r\n").len() + PAYLOAD,
            Protocol::Redis => {
                format!("*3\r\n$7\r\nmessage\r\n${}\r\n{subject}\r\n${PAYLOAD}\r\n\r\n", subject.len()).len() + PAYLOAD
            }
        }
    }

    /// Connects, and waits until the server answers.
    fn connect(self, address: &str) -> Outcome<TcpStream> {
        let why = |error: io::Error| format!("{} at {address}: {error}", self.name());
        let address: SocketAddr = address.parse().map_err(|_| format!("{address:?} is no address"))?;
        let begun = now();
        let mut stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(error) if PATIENCE < now().since(begun) => return Err(why(error)),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        };
        stream.set_nodelay(true).map_err(why)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(why)?;
        let (hello, answer): (&[u8], &[u8]) = match self {
            Protocol::Nats => {
                (b"CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"bench\"}\r\nPING\r\n", b"PONG\r\n")
            }
            Protocol::Redis => (b"PING\r\n", b"+PONG\r\n"),
        };
        stream.write_all(hello).map_err(why)?;
        read_to(&mut stream, answer).map_err(why)?;
        Ok(stream)
    }

    /// Subscribes, and waits until that stands.
    fn subscribe(self, stream: &mut TcpStream, subject: &str) -> Outcome<()> {
        let (asked, answer) = match self {
            Protocol::Nats => (format!("SUB {subject} 1\r\nPING\r\n"), "PONG\r\n".to_owned()),
            Protocol::Redis => (format!("SUBSCRIBE {subject}\r\n"), format!("{subject}\r\n:1\r\n")),
        };
        stream.write_all(asked.as_bytes()).map_err(|error| error.to_string())?;
        read_to(stream, answer.as_bytes()).map_err(|error| error.to_string())
    }
}

/// Reads until what has come ends with `end`.
fn read_to(stream: &mut TcpStream, end: &[u8]) -> io::Result<()> {
    let mut come = Vec::new();
    let mut byte = [0];
    while !come.ends_with(end) {
        stream.read_exact(&mut byte)?;
        come.extend_from_slice(&byte);
    }
    Ok(())
}

/// What a child process does.
fn play(role: &str, protocol: &str, address: &str, count: &str) -> Outcome<()> {
    let protocol = Protocol::parse(protocol)?;
    let count: usize = count.parse().map_err(|_| format!("{count:?} is no number"))?;
    match role {
        "publish" => publish(protocol, address, count),
        "subscribe" => subscribe(protocol, address, count),
        "ask" => ask(protocol, address, count),
        "answer" => answer(protocol, address, count),
        _ => Err(format!("{role:?} is no role")),
    }
}

/// Waits for a line on standard input, which says that all is ready.
fn wait_for_go() {
    let mut line = String::new();
    // At the end of the input nobody waits for the outcome either.
    let _ = io::stdin().read_line(&mut line);
}

fn publish(protocol: Protocol, address: &str, count: usize) -> Outcome<()> {
    let mut stream = protocol.connect(address)?;
    let why = |error: io::Error| format!("publishing: {error}");
    let one = protocol.publish("bench.a");
    let batch = one.repeat(BATCH);
    let reader = (protocol == Protocol::Redis).then(|| stream.try_clone().map_err(why)).transpose()?;
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
        stream.write_all(&batch).map_err(why)?;
    }
    match (protocol, reader) {
        (_, Some(reader)) => reader.join().expect("it does not panic"),
        (_, None) => {
            stream.write_all(b"PING\r\n").map_err(why)?;
            read_to(&mut stream, b"PONG\r\n").map_err(why)
        }
    }
}

/// Tells messages a second, and how many came.
fn subscribe(protocol: Protocol, address: &str, count: usize) -> Outcome<()> {
    let mut stream = protocol.connect(address)?;
    protocol.subscribe(&mut stream, "bench.a")?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(|error| error.to_string())?;
    println!("ready");
    let wanted = count * protocol.message_bytes("bench.a");
    let mut bytes = vec![0; 256 * 1024];
    let (mut come, mut begun) = (0, None);
    while come < wanted {
        match stream.read(&mut bytes) {
            Ok(read @ 1..) => come += read,
            _ => break,
        }
        begun.get_or_insert_with(now);
    }
    let secs = begun.map_or(0.0, |begun: Instant| now().since(begun).as_secs_f64());
    println!("{} {secs}", come / protocol.message_bytes("bench.a"));
    Ok(())
}

/// Requests one after the other; tells the times at which half and 99 of 100 were answered, in microseconds.
fn ask(protocol: Protocol, address: &str, count: usize) -> Outcome<()> {
    let mut stream = protocol.connect(address)?;
    protocol.subscribe(&mut stream, "bench.back")?;
    let request = match protocol {
        Protocol::Nats => {
            let payload = "x".repeat(PAYLOAD);
            format!("PUB bench.to bench.back {PAYLOAD}\r\n{payload}\r\n").into_bytes()
        }
        Protocol::Redis => protocol.publish("bench.to"),
    };
    // Redis clients publish and subscribe by two connections unless they speak RESP3.
    let mut publisher = if protocol == Protocol::Redis { protocol.connect(address)? } else { clone(&stream)? };
    wait_for_go();
    let mut answer = vec![0; protocol.message_bytes("bench.back")];
    let mut times = Vec::with_capacity(count);
    let mut published = [0; 4];
    for _ in 0..count + WARM_UP {
        let begun = now();
        publisher.write_all(&request).map_err(|error| format!("asking: {error}"))?;
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
        Protocol::Redis => 0,
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

/// What is to be compared.
struct Job {
    protocols: Vec<Protocol>,
    kinds: Vec<&'static str>,
    messages: usize,
    requests: usize,
    runs: usize,
    /// Servers that are there: name, where to publish, where to subscribe.
    at: Vec<(String, String, String)>,
    via: [Vec<String>; 2],
}

fn read_job(words: &[&str]) -> Outcome<Job> {
    let mut job = Job {
        protocols: Vec::new(),
        kinds: Vec::new(),
        messages: 2_000_000,
        requests: 20_000,
        runs: 3,
        at: Vec::new(),
        via: [Vec::new(), Vec::new()],
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: &str| text.parse::<usize>().map_err(|_| format!("{text:?} is no number"));
        match *word {
            "throughput" => job.kinds.push("throughput"),
            "latency" => job.kinds.push("latency"),
            "--messages" => job.messages = number(value()?)?.next_multiple_of(BATCH),
            "--requests" => job.requests = number(value()?)?.max(1),
            "--runs" => job.runs = number(value()?)?.max(1),
            "--publisher-via" => job.via[0] = value()?.split_whitespace().map(str::to_owned).collect(),
            "--subscriber-via" => job.via[1] = value()?.split_whitespace().map(str::to_owned).collect(),
            "--at" => {
                let text = value()?;
                let parts = text.split_once('=').and_then(|(name, rest)| Some((name, rest.split_once(',')?)));
                let (name, (publish, subscribe)) = parts.ok_or(format!("{text:?} is not NAME=ADDRESS,ADDRESS"))?;
                job.at.push((name.to_owned(), publish.to_owned(), subscribe.to_owned()));
            }
            word => job.protocols.push(Protocol::parse(word)?),
        }
    }
    if job.protocols.is_empty() {
        job.protocols = vec![Protocol::Nats, Protocol::Redis];
    }
    if job.kinds.is_empty() {
        job.kinds = vec!["throughput", "latency"];
    }
    Ok(job)
}

fn compare(words: &[&str]) -> Outcome<()> {
    let job = read_job(words)?;
    for protocol in job.protocols.clone() {
        let mut servers = Vec::new();
        let mut at = job.at.clone();
        if at.is_empty() {
            for server in [Server::foreign(protocol)?, Server::peer(protocol)?] {
                at.push((server.name.clone(), server.address.clone(), server.address.clone()));
                servers.push(server);
            }
        }
        for kind in &job.kinds {
            let mut figures: Vec<Vec<(f64, f64)>> = vec![Vec::new(); at.len()];
            for _ in 0..job.runs {
                for (figures, (_, publish, subscribe)) in figures.iter_mut().zip(&at) {
                    figures.push(measure(&job, kind, protocol, (publish, subscribe))?);
                }
            }
            let medians: Vec<(f64, f64)> = figures.into_iter().map(median).collect();
            for ((name, ..), (first, second)) in at.iter().zip(&medians) {
                let ratio = first / medians[0].0;
                match *kind {
                    "throughput" => println!(
                        "{} {kind} {name:<14} {:>10.0} msg/s  {ratio:.2}x{}",
                        protocol.name(),
                        first,
                        if *second < 1.0 {
                            format!("  VOID: {:.4} of the messages came", second)
                        } else {
                            String::new()
                        }
                    ),
                    _ => println!(
                        "{} {kind}    {name:<14} p50 {first:.1} us  p99 {second:.1} us  p50 {ratio:.2}x",
                        protocol.name()
                    ),
                }
            }
        }
    }
    Ok(())
}

/// By the first figure.
fn median(mut figures: Vec<(f64, f64)>) -> (f64, f64) {
    figures.sort_by(|a, b| a.0.total_cmp(&b.0));
    figures[figures.len() / 2]
}

/// Messages a second and the share that came; or two times.
fn measure(job: &Job, kind: &str, protocol: Protocol, at: (&str, &str)) -> Outcome<(f64, f64)> {
    let (roles, count) = match kind {
        "throughput" => (["publish", "subscribe"], job.messages),
        _ => (["ask", "answer"], job.requests),
    };
    let mut receiver = Role::start(&job.via[1], roles[1], protocol, at.1, count)?;
    receiver.line()?;
    // On a LAN others have to learn of the subscription.
    thread::sleep(Duration::from_millis(200));
    let mut sender = Role::start(&job.via[0], roles[0], protocol, at.0, count)?;
    thread::sleep(Duration::from_millis(200));
    sender.go()?;
    let line = if kind == "throughput" { receiver.line()? } else { sender.line()? };
    let mut numbers = line.split_whitespace().map(|word| word.parse::<f64>().unwrap_or(f64::NAN));
    let (first, second) = (numbers.next().unwrap_or(f64::NAN), numbers.next().unwrap_or(f64::NAN));
    Ok(match kind {
        "throughput" => (first / second, first / count as f64),
        _ => (first, second),
    })
}

/// A child that plays a role.
struct Role {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Role {
    fn start(via: &[String], role: &str, protocol: Protocol, address: &str, count: usize) -> Outcome<Role> {
        let own = env::current_exe().map_err(|error| error.to_string())?;
        let mut command = match via.split_first() {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(own);
                command
            }
            None => Command::new(own),
        };
        command.args(["role", role, protocol.name(), address, &count.to_string()]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{role} does not start: {error}"))?;
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        Ok(Role { child, out })
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        match self.out.read_line(&mut line) {
            Ok(1..) => Ok(line),
            _ => Err("a client ended before it had a result".to_owned()),
        }
    }

    fn go(&mut self) -> Outcome<()> {
        let input = self.child.stdin.as_mut().expect("it is piped");
        input.write_all(b"go\n").map_err(|error| error.to_string())
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that this program started.
struct Server {
    name: String,
    address: String,
    child: Child,
    directory: PathBuf,
}

impl Server {
    /// The server that the protocol belongs to.
    fn foreign(protocol: Protocol) -> Outcome<Server> {
        let (name, port) = match protocol {
            Protocol::Nats => ("nats-server", free_port()?),
            Protocol::Redis => ("redis-server", free_port()?),
        };
        let port_text = port.to_string();
        let arguments: &[&str] = match protocol {
            Protocol::Nats => &["-a", "127.0.0.1", "-p", &port_text],
            Protocol::Redis => &["--bind", "127.0.0.1", "--port", &port_text, "--save", "", "--appendonly", "no"],
        };
        Server::start(name, PathBuf::from(name), arguments, port)
    }

    /// A peer with that door.
    fn peer(protocol: Protocol) -> Outcome<Server> {
        let (port, group) = (free_port()?, free_port()?);
        let socket = env::temp_dir().join(format!("seqcast-doors-{}-{port}.sock", std::process::id()));
        let door = format!("{}={port}", protocol.name());
        let (group, socket) = (group.to_string(), socket.display().to_string());
        let arguments = ["peer", "--port", &group, "--socket", &socket, "--set", &door, "--log-level", "error"];
        Server::start("seqcast", PathBuf::from(env!("CARGO_BIN_EXE_seqcast")), &arguments, port)
    }

    fn start(name: &str, program: PathBuf, arguments: &[&str], port: u16) -> Outcome<Server> {
        let directory = env::temp_dir().join(format!("seqcast-doors-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        let child = Command::new(&program)
            .args(arguments)
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{} does not start: {error}; install it to compare with it", program.display()))?;
        Ok(Server { name: name.to_owned(), address: format!("127.0.0.1:{port}"), child, directory })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A port that is free at present.
fn free_port() -> Outcome<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    Ok(listener.local_addr().map_err(|error| error.to_string())?.port())
}
