//! A raw datagram to and fro: to the group at its port, and back to the group at the port beside.

use std::io;
use std::io::Read;
use std::time::Duration;

use socket2::Socket;

use super::socket::{beside, interface, receiver, refused, sender};
use crate::cli::bench::host;
use crate::cli::bench::job::{PingJob, PingReport, ProcessCommand, ProcessReport, ReadyReport};
use crate::cli::bench::latencies::Latencies;
use crate::cli::bench::meter::warm_up;
use crate::cli::bench::payload::{fill, read};
use crate::cli::bench::role::ControlChannel;
use crate::cli::exit::CommandFailure;
use crate::daemon::clock::Clock;

/// Time after which a datagram that is not back counts as lost.
const LOST_TIME: Duration = Duration::from_millis(200);
/// Buffer size above that of any UDP datagram.
const BUFFER_BYTES: usize = 64 * 1024;

/// Both sockets of one side.
struct SocketPair {
    to: Socket,
    from: Socket,
    is_busy: bool,
    buffer: Vec<u8>,
}

impl SocketPair {
    /// Opens both sockets: one sends to the group at the port `there`, the other receives at the port `here`.
    fn open(job: &PingJob, is_ping: bool, line: &mut ControlChannel<'_>) -> Result<SocketPair, CommandFailure> {
        let config = job.values.config()?;
        let chosen = interface(&config)?;
        let ports = [config.port, beside(config.port)];
        let [there, here] = if is_ping { ports } else { [ports[1], ports[0]] };
        let (from, receive_buffer) = receiver(&config, &chosen, here)?;
        let to = sender(&config, &chosen, there)?;
        let prepared = match job.is_busy {
            true => from.set_nonblocking(true),
            false => from.set_read_timeout(Some(LOST_TIME)),
        };
        prepared.map_err(|error| refused("prepare a socket", &error))?;
        line.report(&ProcessReport::ReadyReport(ReadyReport {
            host: host::here(),
            interface: chosen.name,
            mtu: chosen.mtu,
            receive_buffer: Some(receive_buffer),
            datagram_bytes: None,
            segments: None,
        }))?;
        Ok(SocketPair { to, from, is_busy: job.is_busy, buffer: vec![0; BUFFER_BYTES] })
    }

    fn send(&self, payload: &[u8]) -> Result<(), CommandFailure> {
        match self.to.send(payload) {
            Ok(_) => Ok(()),
            Err(error) => Err(refused("send a raw datagram", &error)),
        }
    }

    /// Returns the next datagram; `None` if none is there, or none came within [`LOST_TIME`].
    fn receive(&mut self) -> Result<Option<&[u8]>, CommandFailure> {
        match self.from.read(&mut self.buffer) {
            Ok(bytes) => Ok(Some(&self.buffer[..bytes])),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
            Err(error) => Err(refused("receive a raw datagram", &error)),
        }
    }
}

/// Sends one datagram after the other and measures.
///
/// # Errors
/// The kernel refuses a step.
pub fn ping(job: &PingJob, line: &mut ControlChannel<'_>) -> Result<(), CommandFailure> {
    let mut sides = SocketPair::open(job, true, line)?;
    line.wait();
    let (mut latencies, mut lost) = (Latencies::new(), 0);
    let mut payload = vec![0; job.bytes];
    let start = Clock::now().instant;
    let (counted, until) = (start + warm_up(job.span()), start + job.span());
    let mut thrown = start;
    for number in 0.. {
        if until <= thrown {
            break;
        }
        fill(&mut payload, number, None);
        thrown = Clock::now().instant;
        sides.send(&payload)?;
        let is_back = loop {
            match sides.receive()?.map(|datagram| read(datagram, false)) {
                Some(Some((back, _))) if back == number => break true,
                Some(_) => {}
                None if LOST_TIME <= Clock::now().instant.since(thrown) => break false,
                None => {}
            }
        };
        match is_back {
            true if counted <= thrown => latencies.record(Clock::now().instant.since(thrown) / 2),
            true => {}
            false => lost += 1,
        }
    }
    line.report(&ProcessReport::PingReport(PingReport { latencies: latencies.quantiles(), lost }))?;
    line.wait();
    Ok(())
}

/// Sends every datagram back.
///
/// # Errors
/// The kernel refuses a step.
pub fn pong(job: &PingJob, line: &mut ControlChannel<'_>) -> Result<(), CommandFailure> {
    let mut sides = SocketPair::open(job, false, line)?;
    let mut idle = 0_u32;
    loop {
        let came = sides.receive()?.map(<[u8]>::len);
        if let Some(bytes) = came {
            sides.send(&sides.buffer[..bytes])?;
            idle = 0;
            continue;
        }
        idle = idle.wrapping_add(1);
        // A busy process checks for commands only now and then.
        if (!sides.is_busy || idle.is_multiple_of(CONTROL_CHECK_SPINS))
            && line.try_receive() == Some(ProcessCommand::Stop)
        {
            return Ok(());
        }
    }
}

/// Number of unsuccessful reads of the socket between two checks for commands.
const CONTROL_CHECK_SPINS: u32 = 1024;
