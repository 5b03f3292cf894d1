//! A raw datagram to and fro: to the group at its port, and back to the group at the next port.

use std::io;
use std::io::Read;
use std::time::Duration;

use socket2::Socket;

use super::socket::{interface, next_port, ready_report, receiver, refused, sender};
use crate::bench::control_channel::ControlChannel;
use crate::bench::job::{PingJob, ProcessCommand, ProcessReport, ReadyReport};
use crate::bench::payload::read;
use crate::bench::round_trip::{EchoPath, EmptyPolls, measure};
use crate::clock::Clock;
use crate::terminal::exit::CommandFailure;
use crate::time::Instant;

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
    empty_polls: EmptyPolls,
}

impl SocketPair {
    /// Opens both sockets: one sends to the group at the port `there`, the other receives at the port `here`.
    fn open(job: &PingJob, is_ping: bool, channel: &mut ControlChannel<'_>) -> Result<SocketPair, CommandFailure> {
        let config = job.values.config()?;
        let chosen = interface(&config)?;
        let ports = [config.port, next_port(config.port)];
        let [there, here] = if is_ping { ports } else { [ports[1], ports[0]] };
        let (from, receive_buffer) = receiver(&config, &chosen, here)?;
        let to = sender(&config, &chosen, there)?;
        let prepared = match job.is_busy {
            true => from.set_nonblocking(true),
            false => from.set_read_timeout(Some(LOST_TIME)),
        };
        prepared.map_err(|error| refused("prepare a socket", &error))?;
        let report = ReadyReport { receive_buffer: Some(receive_buffer), ..ready_report(chosen) };
        channel.report(&ProcessReport::Ready(report))?;
        Ok(SocketPair {
            to,
            from,
            is_busy: job.is_busy,
            buffer: vec![0; BUFFER_BYTES],
            empty_polls: EmptyPolls::default(),
        })
    }

    /// Sends the first bytes of the buffer, which are the last datagram received.
    fn echo(&self, bytes: usize) -> Result<(), CommandFailure> {
        send(&self.to, &self.buffer[..bytes])
    }

    /// Returns the next datagram; `None` if none is there, or none came within [`LOST_TIME`].
    fn receive(&mut self) -> Result<Option<&[u8]>, CommandFailure> {
        let received = self.from.read(&mut self.buffer);
        self.empty_polls.record(received.is_ok() || !self.is_busy);
        match received {
            Ok(bytes) => Ok(Some(&self.buffer[..bytes])),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
            Err(error) => Err(refused("receive a raw datagram", &error)),
        }
    }
}

fn send(socket: &Socket, payload: &[u8]) -> Result<(), CommandFailure> {
    match socket.send(payload) {
        Ok(_) => Ok(()),
        Err(error) => Err(refused("send a raw datagram", &error)),
    }
}

impl EchoPath for SocketPair {
    fn send(&mut self, payload: &[u8]) -> Result<(), CommandFailure> {
        send(&self.to, payload)
    }

    fn await_echo(&mut self, number: u64, sent_at: Instant) -> Result<bool, CommandFailure> {
        loop {
            match self.receive()?.map(|datagram| read(datagram, false)) {
                Some(Some((back, _))) if back == number => return Ok(true),
                Some(_) => {}
                None if LOST_TIME <= Clock::now().instant.since(sent_at) => return Ok(false),
                None => {}
            }
        }
    }
}

/// Sends one datagram after the other and measures.
///
/// # Errors
/// The kernel refuses a step.
pub fn ping(job: &PingJob, channel: &mut ControlChannel<'_>) -> Result<(), CommandFailure> {
    let mut sides = SocketPair::open(job, true, channel)?;
    channel.wait();
    let report = measure(&mut sides, job)?;
    channel.report(&ProcessReport::Pinged(report))?;
    channel.wait();
    Ok(())
}

/// Sends every datagram back.
///
/// # Errors
/// The kernel refuses a step.
pub fn pong(job: &PingJob, channel: &mut ControlChannel<'_>) -> Result<(), CommandFailure> {
    let mut sides = SocketPair::open(job, false, channel)?;
    let mut idle = 0_u32;
    loop {
        let received = sides.receive()?.map(<[u8]>::len);
        if let Some(bytes) = received {
            sides.echo(bytes)?;
            idle = 0;
            continue;
        }
        idle = idle.wrapping_add(1);
        // A busy process checks for commands only now and then.
        if (!sides.is_busy || idle.is_multiple_of(CONTROL_CHECK_SPINS))
            && channel.try_receive() == Some(ProcessCommand::Stop)
        {
            return Ok(());
        }
    }
}

/// Number of unsuccessful reads of the socket between two checks for commands.
const CONTROL_CHECK_SPINS: u32 = 1024;
