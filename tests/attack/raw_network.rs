//! Raw sockets on a host: they send datagrams from any source address, and read all datagrams that arrive.

use crate::netns::lan::Host;
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A UDP datagram with its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpDatagram {
    pub from: SocketAddrV4,
    pub to: SocketAddrV4,
    pub payload: Vec<u8>,
}

impl UdpDatagram {
    /// Returns the IPv4 packet. The kernel adds its length and checksum; UDP needs no checksum.
    pub fn packet(&self) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 1, UDP, 0, 0];
        packet.extend(self.from.ip().octets());
        packet.extend(self.to.ip().octets());
        let bytes = u16::try_from(UDP_HEADER_BYTES + self.payload.len()).expect("it fits a packet");
        for value in [self.from.port(), self.to.port(), bytes, 0] {
            packet.extend(value.to_be_bytes());
        }
        packet.extend(&self.payload);
        packet
    }

    fn read(packet: &[u8]) -> Option<UdpDatagram> {
        let (header, rest) = packet.split_at_checked(usize::from(packet.first()? & 0x0f) * 4)?;
        let (ports, payload) = rest.split_at_checked(UDP_HEADER_BYTES)?;
        let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(header.get(at..at + 4)?).ok()?));
        let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
        Some(UdpDatagram {
            from: SocketAddrV4::new(address(12)?, port(0)),
            to: SocketAddrV4::new(address(16)?, port(2)),
            payload: payload.to_vec(),
        })
    }
}

/// A socket that sends whole packets.
pub struct RawSender {
    socket: UdpSocket,
}

impl RawSender {
    /// Opens the socket on a host.
    pub fn new(host: &Host, address: Ipv4Addr) -> RawSender {
        let socket = host.within(move || {
            // The header of each packet is that of the sender.
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(libc::IPPROTO_RAW)));
            let socket = socket.expect("root of a namespace opens raw sockets");
            socket.set_multicast_if_v4(&address).expect("the host has the address");
            socket.set_send_buffer_size(BUFFER_BYTES).expect("a buffer");
            socket
        });
        RawSender { socket: socket.into() }
    }

    /// Sends a packet to an address. A full queue of the network card is waited for.
    pub fn send(&self, packet: &[u8], to: SocketAddrV4) {
        let sent = self.socket.send_to(packet, SocketAddrV4::new(*to.ip(), 0)).expect("the LAN takes it");
        assert_eq!(sent, packet.len());
    }
}

/// A thread that reads every UDP datagram which arrives at a host, also those that no program there wants.
pub struct Sniffer {
    seen: Arc<SnifferState>,
    thread: Option<JoinHandle<()>>,
}

/// Unicast address and port of the counted datagrams; `None` for all ports.
#[derive(Clone, Copy)]
struct AddressFilter {
    address: Ipv4Addr,
    port: Option<u16>,
}

#[derive(Default)]
struct SnifferState {
    stop: AtomicBool,
    /// Bytes of UDP payload to the counted address, from other hosts.
    unicast_bytes: AtomicU64,
    /// The first datagrams, if they are recorded.
    recorded: Mutex<Vec<UdpDatagram>>,
}

impl Sniffer {
    /// Reads at a host with this address. Records at most `recorded_max` datagrams.
    pub fn new(host: &Host, address: Ipv4Addr, recorded_max: usize) -> Sniffer {
        Sniffer::with(host, AddressFilter { address, port: None }, recorded_max)
    }

    /// Reads at a host, and counts the bytes to one address with its port alone.
    pub fn at(host: &Host, to: SocketAddrV4) -> Sniffer {
        Sniffer::with(host, AddressFilter { address: *to.ip(), port: Some(to.port()) }, 0)
    }

    fn with(host: &Host, filter: AddressFilter, recorded_max: usize) -> Sniffer {
        let socket: UdpSocket = host
            .within(|| {
                let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)).expect("a raw socket");
                socket.set_recv_buffer_size(BUFFER_BYTES).expect("a buffer");
                socket.set_read_timeout(Some(STOP_INTERVAL)).expect("a timeout");
                socket
            })
            .into();
        let seen = Arc::new(SnifferState::default());
        let thread = thread::spawn({
            let seen = Arc::clone(&seen);
            move || read(&socket, filter, recorded_max, &seen)
        });
        Sniffer { seen, thread: Some(thread) }
    }

    /// Returns the bytes of UDP payload that other hosts have sent to the address.
    pub fn unicast_bytes(&self) -> u64 {
        self.seen.unicast_bytes.load(Ordering::Relaxed)
    }

    /// Returns what was recorded so far.
    pub fn recorded(&self) -> Vec<UdpDatagram> {
        self.seen.recorded.lock().expect("the reader does not panic").clone()
    }
}

impl Drop for Sniffer {
    fn drop(&mut self) {
        self.seen.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is dropped once");
        assert!(thread.join().is_ok() || thread::panicking(), "the reader failed");
    }
}

fn read(socket: &UdpSocket, filter: AddressFilter, recorded_max: usize, seen: &SnifferState) {
    let mut buffer = vec![0; 65_536];
    while !seen.stop.load(Ordering::Relaxed) {
        // A timeout only asks whether to stop.
        let Ok(bytes) = socket.recv(&mut buffer) else { continue };
        let Some(datagram) = UdpDatagram::read(&buffer[..bytes]) else { continue };
        let UdpDatagram { from, to, .. } = &datagram;
        let is_for_port = filter.port.is_none_or(|port| port == to.port());
        if *to.ip() == filter.address && is_for_port && *from.ip() != filter.address {
            seen.unicast_bytes.fetch_add(datagram.payload.len() as u64, Ordering::Relaxed);
        }
        let mut recorded = seen.recorded.lock().expect("no reader panics");
        if recorded.len() < recorded_max {
            recorded.push(datagram);
        }
    }
}

const UDP: u8 = 17;
const UDP_HEADER_BYTES: usize = 8;
const BUFFER_BYTES: usize = 8 << 20;
/// Interval at which a reader checks whether it should stop.
const STOP_INTERVAL: Duration = Duration::from_millis(20);
