//! Rates of raw datagrams.

use std::io;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use socket2::Socket;

use super::mmsg::{BUFFERS, ReceiveBuffers, SendBuffers};
use super::socket::{interface, next_port, ready_report, receiver, refused, sender};
use crate::bench::control_channel::ControlChannel;
use crate::bench::host::{SLEEP_SLACK, resource_usage};
use crate::bench::job::{
    ProcessCommand, ProcessReport, RawJob, RawMode, RawPace, ReadyReport, ReceiveReport, SendReport, due_at,
};
use crate::bench::latencies::Latencies;
use crate::bench::meter::RateMeter;
use crate::bench::payload::{ANY_ORDER, SequenceChecker, fill, read};
use crate::clock::Clock;
use crate::terminal::exit::CommandFailure;
use crate::time::Instant;

/// Time that the receiver waits for the last datagrams.
const QUIET_TIME: Duration = Duration::from_millis(100);
/// Maximum number of datagrams into which kernels divide a buffer: the new ones (6.9 and later) and the others
/// (`UDP_MAX_SEGMENTS`).
const SEGMENTS: [usize; 2] = [128, 64];
/// Size limit of such a buffer: that of the largest datagram over IPv4.
const SEGMENTS_BYTES_MAX: usize = 65_507;
/// Maximum time of a sleep of a sender.
const SLEEP_MAX: Duration = Duration::from_millis(1);
/// Number of divided buffers in one system call: about a mebibyte of the largest.
const DIVIDED_BUFFERS: usize = 16;

/// Sends for the duration of the job.
///
/// # Errors
/// The kernel refuses a step.
pub fn send(job: &RawJob, channel: &mut ControlChannel<'_>) -> Result<(), CommandFailure> {
    let config = job.values.config()?;
    let chosen = interface(&config)?;
    let socket = sender(&config, &chosen, config.port)?;
    // No receiver uses the next port.
    let trial = sender(&config, &chosen, next_port(config.port))?;
    let segments = match divide(&trial, job).and_then(|segments| divide_into(&socket, job, segments)) {
        Ok(segments) => segments,
        Err(error) => return channel.report(&ProcessReport::Unsupported { why: error.to_string() }),
    };
    let report = ReadyReport { segments: Some(segments as u64), ..ready_report(chosen) };
    channel.report(&ProcessReport::Ready(report))?;
    channel.wait();
    let buffers = if segments == 1 { BUFFERS } else { DIVIDED_BUFFERS };
    let mut batch = SendBuffers::new(buffers, segments * job.bytes);
    let start = Clock::now().instant;
    let sent = match job.pace {
        RawPace::Unlimited => send_batches(job, None, start, &mut batch, &socket),
        RawPace::Batches(rate) => send_batches(job, Some(rate), start, &mut batch, &socket),
        RawPace::Due(rate) => send_due(job, rate, start, &mut batch, &socket),
    };
    let (sent, now) = sent.map_err(|error| refused("send a raw datagram", &error))?;
    let (cpu_ns, rss_bytes) = resource_usage();
    let seconds = now.since(start).as_secs_f64();
    channel.report(&ProcessReport::Sent(SendReport { sent, seconds, cpu_ns, rss_bytes, ..SendReport::default() }))
}

/// Sends full batches, no faster than `rate`. Returns the number of datagrams and the time of the end.
fn send_batches(
    job: &RawJob,
    rate: Option<f64>,
    start: Instant,
    batch: &mut SendBuffers,
    socket: &Socket,
) -> io::Result<(u64, Instant)> {
    let (until, mut now) = (start + Duration::from_nanos(job.span_ns), start);
    let mut sent = 0;
    while now < until {
        for datagram in batch.buffers.iter_mut().flat_map(|buffer| buffer.chunks_exact_mut(job.bytes)) {
            fill(datagram, sent, None);
            sent += 1;
        }
        batch.send(socket)?;
        now = Clock::now().instant;
        while rate.is_some_and(|rate| now.since(start).as_secs_f64() * rate < sent as f64) && now < until {
            now = Clock::now().instant;
        }
    }
    Ok((sent, now))
}

/// Sends each datagram when it is due, with its due time in it. Returns the number of datagrams and the time of the end.
fn send_due(
    job: &RawJob,
    rate: f64,
    start: Instant,
    batch: &mut SendBuffers,
    socket: &Socket,
) -> io::Result<(u64, Instant)> {
    let due_at = |number| due_at(start, rate, number);
    let (until, mut now) = (start + Duration::from_nanos(job.span_ns), start);
    let mut sent = 0;
    while now < until {
        let before = sent;
        for (number, buffer) in (before..).zip(&mut batch.buffers).take_while(|(number, _)| due_at(*number) <= now) {
            fill(buffer, number, Some(due_at(number).as_nanos()));
            sent = number + 1;
        }
        match due_at(sent).since(now) {
            _ if before < sent => batch.send_first((sent - before) as usize, socket)?,
            wait if SLEEP_SLACK < wait => std::thread::sleep((wait - SLEEP_SLACK).min(SLEEP_MAX)),
            // The sender looks at the clock. The receiver may need the processor.
            _ => std::thread::yield_now(),
        }
        now = Clock::now().instant;
    }
    Ok((sent, now))
}

/// Returns the number of datagrams into which the kernel divides a buffer, found by trying.
fn divide(trial: &Socket, job: &RawJob) -> io::Result<usize> {
    if job.mode == RawMode::Plain {
        return Ok(1);
    }
    let fitting = SEGMENTS_BYTES_MAX / job.bytes;
    let mut refusal = io::Error::other("two datagrams of this size do not fit one buffer");
    for most in SEGMENTS {
        let segments = divide_into(trial, job, most.min(fitting))?;
        if segments < 2 {
            break;
        }
        match SendBuffers::new(1, segments * job.bytes).send(trial) {
            Ok(()) => return Ok(segments),
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

/// Makes the kernel divide sent buffers, if they are to contain several datagrams.
fn divide_into(socket: &Socket, job: &RawJob, segments: usize) -> io::Result<usize> {
    if 1 < segments {
        let bytes = i32::try_from(job.bytes).expect("datagrams have less than 64 KiB");
        setsockopt(socket, sockopt::UdpGsoSegment, &bytes)?;
    }
    Ok(segments)
}

/// Receives until no more datagrams arrive after the sender's end.
///
/// # Errors
/// The kernel refuses a step.
pub fn receive(job: &RawJob, channel: &mut ControlChannel<'_>) -> Result<(), CommandFailure> {
    let config = job.values.config()?;
    let chosen = interface(&config)?;
    let (socket, receive_buffer) = receiver(&config, &chosen, config.port)?;
    let prepared = socket
        .set_read_timeout(Some(QUIET_TIME))
        .and_then(|()| Ok(setsockopt(&socket, sockopt::RxqOvfl, &1)?))
        .and_then(|()| match job.mode {
            RawMode::GsoGro => Ok(setsockopt(&socket, sockopt::UdpGroSegment, &true)?),
            RawMode::Plain | RawMode::Gso => Ok(()),
        });
    if let Err(error) = prepared {
        return channel.report(&ProcessReport::Unsupported { why: error.to_string() });
    }
    let report = ReadyReport { receive_buffer: Some(receive_buffer), ..ready_report(chosen) };
    channel.report(&ProcessReport::Ready(report))?;
    channel.wait();
    let mut batch = ReceiveBuffers::new(if job.mode == RawMode::GsoGro { DIVIDED_BUFFERS } else { BUFFERS });
    // Raw datagrams have no guaranteed order: on a virtual cable those of two processors overtake each other.
    let mut checker = SequenceChecker::new(ANY_ORDER);
    let (mut meter, mut most) = (RateMeter::new(Duration::from_nanos(job.span_ns), 0), 0);
    let is_stamped = matches!(job.pace, RawPace::Due(_));
    let mut latencies = is_stamped.then(Latencies::new);
    let mut is_over = false;
    loop {
        batch.receive(&socket).map_err(|error| refused("receive raw datagrams", &error))?;
        let before = checker.received;
        for buffer in batch.datagrams() {
            most = most.max(buffer.len() as u64);
            for datagram in buffer {
                let content = read(datagram, is_stamped);
                checker.record(content.map(|(number, _)| number));
                if let (Some(latencies), Some((_, due))) = (&mut latencies, content) {
                    latencies.record(Clock::now().instant.since(Instant::from_nanos(due)));
                }
            }
        }
        if before < checker.received {
            meter.read(Clock::now().instant, checker.received);
        } else if is_over {
            break;
        }
        is_over |= matches!(channel.try_receive(), Some(ProcessCommand::Finish { .. } | ProcessCommand::Stop));
    }
    let (cpu_ns, rss_bytes) = resource_usage();
    channel.report(&ProcessReport::Received(Box::new(ReceiveReport {
        received: checker.received,
        per_s: meter.per_s(),
        kernel_drops: batch.drops.into(),
        segments: most,
        cpu_ns,
        rss_bytes,
        faults: checker.faults(),
        latencies: latencies.map(|latencies| latencies.quantiles()).unwrap_or_default(),
        ..ReceiveReport::default()
    })))
}
