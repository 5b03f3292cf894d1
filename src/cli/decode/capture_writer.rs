//! Captures that `decode` writes: UDP datagrams in a file in the format pcap, with times in nanoseconds.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use etherparse::{IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, UdpHeader};

use super::capture::CapturedDatagram;

/// Magic number of a capture whose times have nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;
/// Maximum number of bytes of a packet, as the head of the file says.
const PACKET_BYTES_MAX: u32 = 262_144;
/// Type of the link: packets begin with their IP header (LINKTYPE_RAW).
const LINK_RAW: u32 = 101;
/// Hop limit of the packets; that of the captured ones is not known any more.
const HOPS: u8 = 1;
/// Permission bits of the file, whose datagrams can be read without keys.
const FILE_MODE: u32 = 0o600;

/// Writer of a new capture.
pub(super) struct CaptureWriter {
    file: BufWriter<File>,
}

impl CaptureWriter {
    /// Makes the file, which only its owner can read.
    ///
    /// # Errors
    /// The file exists, or the system refuses to make it.
    pub(super) fn create(path: &Path) -> io::Result<CaptureWriter> {
        let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
        let mut file = BufWriter::new(file);
        file.write_all(&MAGIC.to_le_bytes())?;
        for number in [2_u16, 4] {
            file.write_all(&number.to_le_bytes())?;
        }
        for number in [0, 0, PACKET_BYTES_MAX, LINK_RAW] {
            file.write_all(&number.to_le_bytes())?;
        }
        Ok(CaptureWriter { file })
    }

    /// Writes a datagram with this payload.
    ///
    /// # Errors
    /// The system cannot write it, or the payload is too long for a packet.
    pub(super) fn write(&mut self, datagram: &CapturedDatagram, payload: &[u8]) -> io::Result<()> {
        let headers = headers(datagram.source, datagram.destination, payload)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a datagram does not fit a packet"))?;
        let (seconds, nanos) = (datagram.time.as_nanos() / 1_000_000_000, datagram.time.as_nanos() % 1_000_000_000);
        let bytes = headers.len() + payload.len();
        for number in [seconds, nanos, bytes as u64, bytes as u64] {
            self.file.write_all(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes())?;
        }
        self.file.write_all(&headers)?;
        self.file.write_all(payload)
    }

    /// Writes what is still in memory.
    ///
    /// # Errors
    /// The system cannot write it.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns the headers of a packet; `None` if the payload is too long, or the addresses are of different families.
fn headers(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Option<Vec<u8>> {
    let bytes = u16::try_from(UdpHeader::LEN + payload.len()).ok()?;
    let ports = (source.port(), destination.port());
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut ip = Ipv4Header::new(bytes, HOPS, IpNumber::UDP, from.octets(), to.octets()).ok()?;
            ip.header_checksum = ip.calc_header_checksum();
            let udp = UdpHeader::with_ipv4_checksum(ports.0, ports.1, &ip, payload).ok()?;
            Some([&ip.to_bytes()[..], &udp.to_bytes()].concat())
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let ip = Ipv6Header {
                traffic_class: 0,
                flow_label: Ipv6FlowLabel::ZERO,
                payload_length: bytes,
                next_header: IpNumber::UDP,
                hop_limit: HOPS,
                source: from.octets(),
                destination: to.octets(),
            };
            let udp = UdpHeader::with_ipv6_checksum(ports.0, ports.1, &ip, payload).ok()?;
            Some([&ip.to_bytes()[..], &udp.to_bytes()].concat())
        }
        _ => None,
    }
}
