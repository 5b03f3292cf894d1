//! Many clients at the same time, and one that does not read.

use crate::client::{Protocol, read_to};
use crate::rv;
use crate::server::Server;
use crate::{Outcome, PATIENCE, PAYLOAD, now};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Number of idle clients.
const CLIENTS: usize = 10_000;
/// Number of subscriptions of all of them, and of the few that they are compared with.
const SUBSCRIPTIONS: usize = 100_000;
const FEW: usize = 100;
/// Number of messages through the peer while a client does not read.
const FLOOD: usize = 1_000_000;
/// Interval between two probe messages whose latency is measured.
const PROBE_INTERVAL: Duration = Duration::from_micros(500);

/// Returns the resident memory of a process, in bytes.
fn resident(process: u32) -> Outcome<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).map_err(|error| error.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    let kilobytes: u64 = line.and_then(|number| number.parse().ok()).ok_or("no VmRSS")?;
    Ok(kilobytes * 1024)
}

fn write(stream: &mut TcpStream, text: &str) -> Outcome<()> {
    stream.write_all(text.as_bytes()).map_err(|error| format!("writing: {error}"))
}

/// Waits until the peer has processed all earlier commands.
fn barrier(stream: &mut TcpStream) -> Outcome<()> {
    write(stream, "PING\r\n")?;
    let mut answer = [0; 6];
    stream.read_exact(&mut answer).map_err(|error| format!("waiting for PONG: {error}"))
}

/// Returns messages a second from one client to another, on a subject that one subscription matches.
fn rate(address: &str, count: usize) -> Outcome<f64> {
    let mut subscriber = Protocol::Nats.connect(address)?;
    Protocol::Nats.subscribe(&mut subscriber, "bench.rate")?;
    let mut publisher = Protocol::Nats.connect(address)?;
    let batch = Protocol::Nats.publish("bench.rate").repeat(1000);
    let begun = now();
    let writer = thread::spawn(move || (0..count / 1000).try_for_each(|_| publisher.write_all(&batch)));
    let mut left = count * Protocol::Nats.message_bytes("bench.rate");
    let mut bytes = vec![0; 256 * 1024];
    while 0 < left {
        left -= subscriber.read(&mut bytes).map_err(|error| format!("reading: {error}"))?.min(left);
    }
    let secs = now().since(begun).as_secs_f64();
    writer.join().expect("it does not panic").map_err(|error| error.to_string())?;
    Ok(count as f64 / secs)
}

/// Measures the memory of idle clients and of their subscriptions, and the rate of messages with few and with many
/// subscriptions.
pub fn idle() -> Outcome<()> {
    let server =
        Server::peer(Protocol::Nats, &["listener-unauthenticated-max=65536", "client-subscriptions-max=1000000"])?;
    let process = server.child.id();
    let mut first = Protocol::Nats.connect(&server.address)?;
    (0..FEW).try_for_each(|number| write(&mut first, &format!("SUB few.{number}.* f{number}\r\n")))?;
    barrier(&mut first)?;
    rate(&server.address, 200_000)?;
    let few = rate(&server.address, 2_000_000)?;
    let before = resident(process)?;
    let mut clients = Vec::with_capacity(CLIENTS);
    for _ in 0..CLIENTS {
        clients.push(Protocol::Nats.connect(&server.address)?);
    }
    let connected = resident(process)?;
    println!("idle clients        {CLIENTS:>7}  {:>6} bytes each", (connected - before) / CLIENTS as u64);
    for number in 0..SUBSCRIPTIONS {
        let client = &mut clients[number % CLIENTS];
        write(client, &format!("SUB idle.{number}.* {}\r\n", number / CLIENTS))?;
    }
    clients.iter_mut().try_for_each(barrier)?;
    let subscribed = resident(process)?;
    println!(
        "subscriptions       {SUBSCRIPTIONS:>7}  {:>6} bytes each",
        (subscribed - connected) / SUBSCRIPTIONS as u64
    );
    let many = rate(&server.address, 2_000_000)?;
    println!(
        "messages among them {:>7.0} ns each; among {FEW} subscriptions {:.0} ns: {:.2}x",
        1e9 / many,
        1e9 / few,
        few / many
    );
    Ok(())
}

/// Measures the memory of Rendezvous clients and of their listens.
pub fn idle_rv() -> Outcome<()> {
    const RV_CLIENTS: usize = 1000;
    const LISTENS: usize = 100;
    let server = Server::peer(Protocol::Rv, &["listener-unauthenticated-max=65536"])?;
    let process = server.child.id();
    let mut first = Protocol::Rv.connect(&server.address)?;
    Protocol::Rv.subscribe(&mut first, "first")?;
    let before = resident(process)?;
    let clients = (0..RV_CLIENTS).map(|_| Protocol::Rv.connect(&server.address));
    let mut clients = clients.collect::<Outcome<Vec<TcpStream>>>()?;
    let connected = resident(process)?;
    for (number, client) in clients.iter_mut().enumerate() {
        let listens = (0..LISTENS).flat_map(|listen| rv::listen(&format!("idle.{number}.{listen}.*")));
        let listens: Vec<u8> = listens.chain(rv::sync()).collect();
        client.write_all(&listens).map_err(|error| format!("writing: {error}"))?;
    }
    let end = rv::sync_end();
    clients.iter_mut().try_for_each(|client| read_to(client, &end)).map_err(|error| format!("reading: {error}"))?;
    let listening = resident(process)?;
    let listens = RV_CLIENTS * LISTENS;
    println!("rendezvous clients  {RV_CLIENTS:>7}  {:>6} bytes each", (connected - before) / RV_CLIENTS as u64);
    println!("listens             {listens:>7}  {:>6} bytes each", (listening - connected) / listens as u64);
    println!("resident in all     {:>7.1} MiB", listening as f64 / f64::from(1 << 20));
    Ok(())
}

/// Returns the latencies of probes, sorted, in microseconds.
fn probes(address: &str, is_over: &AtomicBool) -> Outcome<Vec<f64>> {
    let mut subscriber = Protocol::Nats.connect(address)?;
    Protocol::Nats.subscribe(&mut subscriber, "bench.probe")?;
    let mut publisher = Protocol::Nats.connect(address)?;
    let message = Protocol::Nats.publish("bench.probe");
    let mut bytes = vec![0; Protocol::Nats.message_bytes("bench.probe")];
    let mut times = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let begun = now();
        publisher.write_all(&message).map_err(|error| error.to_string())?;
        subscriber.read_exact(&mut bytes).map_err(|error| error.to_string())?;
        times.push(now().since(begun).as_nanos() as f64 / 1000.0);
        thread::sleep(PROBE_INTERVAL);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Sends a flood of messages to a reader and to a client that does not read, if `is_stopped`. Returns the latencies
/// of probes meanwhile, and the number of messages that the second client got and lost.
fn flood(is_stopped: bool) -> Outcome<(Vec<f64>, u64, u64)> {
    const ADVISORY: &str = "_RV.ERROR.SYSTEM.DATALOSS.INBOUND.BCAST";
    let server = Server::peer(Protocol::Nats, &[])?;
    let address = server.address.clone();
    let mut other = Protocol::Nats.connect(&address)?;
    Protocol::Nats.subscribe(&mut other, "bench.flood")?;
    write(&mut other, &format!("SUB {ADVISORY} 2\r\n"))?;
    barrier(&mut other)?;
    let is_over = AtomicBool::new(false);
    let got = AtomicU64::new(0);
    let wanted = FLOOD * Protocol::Nats.message_bytes("bench.flood");
    let times = thread::scope(|scope| {
        let prober = scope.spawn(|| probes(&address, &is_over));
        let reader = (!is_stopped).then(|| {
            let mut stream = other.try_clone().expect("a socket can be shared");
            let got = &got;
            scope.spawn(move || {
                let mut bytes = vec![0; 256 * 1024];
                while (got.load(Ordering::Relaxed) as usize) < wanted {
                    let Ok(read @ 1..) = stream.read(&mut bytes) else { break };
                    got.fetch_add(read as u64, Ordering::Relaxed);
                }
            })
        });
        let mut publisher = Protocol::Nats.connect(&address)?;
        // The pace leaves processor time for the probes, since the bench measures these and not the flood.
        let batch = Protocol::Nats.publish("bench.flood").repeat(100);
        for _ in 0..FLOOD / 100 {
            publisher.write_all(&batch).map_err(|error| error.to_string())?;
            thread::sleep(Duration::from_micros(250));
        }
        barrier(&mut publisher)?;
        is_over.store(true, Ordering::Relaxed);
        if let Some(reader) = reader {
            reader.join().expect("it does not panic");
        }
        prober.join().expect("it does not panic")
    })?;
    if !is_stopped {
        return Ok((times, FLOOD as u64, 0));
    }
    // The second client reads now: messages, and the report of the lost ones.
    other.set_read_timeout(Some(Duration::from_secs(2))).map_err(|error| error.to_string())?;
    let mut text = Vec::new();
    let mut bytes = vec![0; 1 << 20];
    let begun = now();
    while now().since(begun) < PATIENCE {
        match other.read(&mut bytes) {
            Ok(read @ 1..) => text.extend_from_slice(&bytes[..read]),
            _ => break,
        }
    }
    let text = String::from_utf8_lossy(&text);
    let received = text.matches(&format!("MSG bench.flood 1 {PAYLOAD}\r\n")).count() as u64;
    let lost = text.split("\"lost\":").skip(1).filter_map(|rest| rest.split([',', '}']).next()?.parse::<u64>().ok());
    Ok((times, received, lost.sum()))
}

/// Measures the effect of a client that does not read on the others.
pub fn slow() -> Outcome<()> {
    let at = |times: &[f64], share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let mut p99 = Vec::new();
    for is_stopped in [false, true, false, true, false, true] {
        let (times, received, lost) = flood(is_stopped)?;
        let name = if is_stopped { "does not read" } else { "reads" };
        println!(
            "a client that {name:<13}  others' p50 {:>7.1} us  p99 {:>7.1} us;  \
             got {received} + reported lost {lost} = {}",
            at(&times, 0.5),
            at(&times, 0.99),
            received + lost
        );
        p99.push(at(&times, 0.99));
    }
    let of = |first: usize| {
        let mut each: Vec<f64> = p99.iter().skip(first).step_by(2).copied().collect();
        each.sort_by(f64::total_cmp);
        each[each.len() / 2]
    };
    println!("p99 of the others, medians: {:.2}x", of(1) / of(0));
    Ok(())
}
