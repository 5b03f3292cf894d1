//! The beginning of a connection to a peer: connecting, the greetings, and the request for shared memory.

use super::OpenError;
use crate::listener::frame::{ClientFrame, PeerFrame, VERSION, Welcome};
use crate::listener::local::{ClientEndpoint, LocalFault};
use crate::shared_memory::{RingReader, RingSide, RingWriter, Segment, receive_with_descriptor, rings};
use bytes::BytesMut;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// Time limit for the peer's greeting.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn connect(path: &Path) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // On Linux the write timeout also bounds the wait for a peer that does not accept.
    socket.set_write_timeout(Some(HANDSHAKE_TIMEOUT))?;
    socket.set_read_timeout(Some(HANDSHAKE_TIMEOUT))?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(socket)
}

/// Exchanges greetings.
pub(super) fn handshake(
    socket: &mut Socket,
    endpoint: &mut ClientEndpoint,
    path: &Path,
    name: &str,
) -> Result<Welcome, OpenError> {
    let system = |step| move |error| OpenError::System { step, error };
    let mut hello = BytesMut::new();
    ClientFrame::Hello { version: VERSION, name: name.to_owned() }.encode(&mut hello);
    // A peer that is full sends BYE and closes before it reads this. Its reason is more useful than "broken pipe".
    let written = socket.write_all(&hello);
    let mut bytes = [0u8; 4096];
    loop {
        match endpoint.poll_frame().map_err(|fault: LocalFault| incompatible(path, fault))? {
            Some(PeerFrame::Welcome(welcome)) => return Ok(welcome),
            Some(PeerFrame::Bye { text, .. }) => return Err(OpenError::Refused(text)),
            Some(_) => unreachable!("the first frame is a greeting or a fault"),
            None => {}
        }
        match socket.read(&mut bytes) {
            Ok(0) => {
                written.map_err(system("greet the peer"))?;
                let error = io::ErrorKind::UnexpectedEof.into();
                return Err(OpenError::NoPeer { path: path.to_owned(), error });
            }
            Ok(count) => endpoint.push(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(OpenError::NoPeer { path: path.to_owned(), error }),
        }
    }
}

/// Requests shared memory. Returns its rings, or `None` if the peer refuses.
pub(super) fn request_rings(
    socket: &mut Socket,
    endpoint: &mut ClientEndpoint,
    path: &Path,
) -> Result<Option<(RingReader, RingWriter)>, OpenError> {
    let system = |step| move |error| OpenError::System { step, error };
    let mut request = BytesMut::new();
    ClientFrame::SharedMemory.encode(&mut request);
    socket.write_all(&request).map_err(system("request shared memory"))?;
    let (mut bytes, mut memory) = ([0u8; 4096], None);
    let ring_bytes = loop {
        match endpoint.poll_frame() {
            Ok(Some(PeerFrame::Segment(Ok(ring_bytes)))) if !endpoint.has_bytes() => break ring_bytes,
            Ok(Some(PeerFrame::Segment(Err(refusal)))) => {
                tracing::info!(reason = refusal.text, "the peer shares no memory");
                return Ok(None);
            }
            Ok(Some(PeerFrame::Bye { text, .. })) => return Err(OpenError::Refused(text)),
            Ok(Some(_)) => return Err(incompatible(path, "it does not answer the request for shared memory")),
            Ok(None) => {}
            Err(fault) => return Err(incompatible(path, fault)),
        }
        match receive_with_descriptor(socket, &mut bytes) {
            Ok((0, _)) => {
                return Err(OpenError::NoPeer { path: path.to_owned(), error: io::ErrorKind::UnexpectedEof.into() });
            }
            Ok((count, descriptor)) => {
                endpoint.push(&bytes[..count]);
                memory = descriptor.or(memory);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(OpenError::NoPeer { path: path.to_owned(), error }),
        }
    };
    let step = "receive the shared memory of the peer";
    let missing = || io::Error::other("its descriptor was lost: this process may have no room for it (ulimit -n)");
    let memory = memory.ok_or_else(missing).map_err(system(step))?;
    let ring_bytes = usize::try_from(ring_bytes).map_err(|error| incompatible(path, error))?;
    let segment = Segment::open(memory.as_fd(), ring_bytes).map_err(system("map the shared memory of the peer"))?;
    Ok(Some(rings(segment, RingSide::Client)))
}

fn incompatible(path: &Path, reason: impl ToString) -> OpenError {
    OpenError::Incompatible { path: path.to_owned(), reason: reason.to_string() }
}
