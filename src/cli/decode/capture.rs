//! Packet captures: the UDP datagrams of a file in the format pcap or pcapng.
//!
//! IP fragments are not reassembled: peers keep their datagrams below the MTU.

use std::fmt;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::pcapng::Block;
use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{Linktype, PcapBlockOwned, PcapError, create_reader};

use crate::time::WallTime;

/// Largest block of a capture that is read, in bytes. A packet has at most 65,535.
const BLOCK_BYTES_MAX: usize = 1 << 20;
/// Maximum number of interfaces that a capture may describe.
const INTERFACES_MAX: usize = 1_000;

/// A UDP datagram of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedDatagram {
    /// Number of the packet in the capture, from 1.
    pub frame: u64,
    /// Time at which the packet was captured.
    pub time: WallTime,
    /// Address and port of the sender.
    pub source: SocketAddr,
    /// Address and port of the receiver or of the group.
    pub destination: SocketAddr,
    /// Content of the datagram; its beginning alone if the capture cuts packets.
    pub payload: Bytes,
}

/// Defect of a capture.
#[derive(Debug)]
pub enum CaptureError {
    /// The file is neither pcap nor pcapng.
    Format,
    /// The file ends inside a packet.
    Truncated,
    /// The packet with this number breaks the format.
    Malformed(u64),
    /// The file cannot be read.
    Read,
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaptureError::Format => write!(f, "it is not a capture in the format pcap or pcapng"),
            CaptureError::Truncated => write!(f, "the capture ends inside a packet"),
            CaptureError::Malformed(frame) => write!(f, "packet {frame} of the capture is malformed"),
            CaptureError::Read => write!(f, "the system refuses to read on"),
        }
    }
}

/// Interface of a capture: the form of its packets and of their times.
#[derive(Clone, Copy, Debug)]
struct CaptureInterface {
    link: Linktype,
    /// Time units of a second.
    resolution: u64,
    /// Seconds that are added to each time.
    offset: i64,
}

/// A packet of the capture, before its headers are read.
struct CapturedPacket<'a> {
    interface: CaptureInterface,
    time: WallTime,
    bytes: &'a [u8],
}

/// Reader of a capture.
pub struct Capture<'r> {
    reader: Box<dyn PcapReaderIterator + Send + 'r>,
    interfaces: Vec<CaptureInterface>,
    frames: u64,
    skipped: u64,
}

impl<'r> Capture<'r> {
    /// Begins to read a capture.
    ///
    /// # Errors
    /// The bytes do not begin as a capture does.
    pub fn new(source: impl Read + Send + 'r) -> Result<Capture<'r>, CaptureError> {
        let reader = create_reader(BLOCK_BYTES_MAX, source).map_err(|error| match error {
            PcapError::ReadError => CaptureError::Read,
            _ => CaptureError::Format,
        })?;
        Ok(Capture { reader, interfaces: Vec::new(), frames: 0, skipped: 0 })
    }

    /// Returns the number of packets so far without a UDP datagram, or with a fragment of one.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns the next UDP datagram; `None` at the end of the capture.
    ///
    /// # Errors
    /// The capture is damaged here, or cannot be read. Later calls fail, too.
    pub fn next_datagram(&mut self) -> Result<Option<CapturedDatagram>, CaptureError> {
        loop {
            match self.reader.next() {
                Ok((bytes, block)) => {
                    let number = self.frames + 1;
                    let found = match block_content(&block, &mut self.interfaces) {
                        BlockContent::Packet(packet) => {
                            self.frames = number;
                            let datagram = udp_datagram(&packet, number);
                            self.skipped += u64::from(datagram.is_none());
                            datagram
                        }
                        BlockContent::Other => None,
                        BlockContent::Malformed => return Err(CaptureError::Malformed(number)),
                    };
                    self.reader.consume(bytes);
                    if found.is_some() {
                        return Ok(found);
                    }
                }
                Err(PcapError::Eof) => return Ok(None),
                Err(PcapError::Incomplete(_)) => self.reader.refill().map_err(|_| CaptureError::Read)?,
                Err(PcapError::UnexpectedEof) => return Err(CaptureError::Truncated),
                Err(PcapError::ReadError) => return Err(CaptureError::Read),
                Err(_) => return Err(CaptureError::Malformed(self.frames + 1)),
            }
        }
    }
}

/// Content of a block of a capture.
enum BlockContent<'a> {
    Packet(CapturedPacket<'a>),
    /// A description, or a block of another kind.
    Other,
    Malformed,
}

/// Reads a block, and keeps the interface that it describes.
fn block_content<'a>(block: &'a PcapBlockOwned<'a>, interfaces: &mut Vec<CaptureInterface>) -> BlockContent<'a> {
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let resolution = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
            *interfaces = vec![CaptureInterface { link: header.network, resolution, offset: 0 }];
            BlockContent::Other
        }
        PcapBlockOwned::Legacy(packet) => {
            let Some(&interface) = interfaces.first() else { return BlockContent::Malformed };
            let units = u64::from(packet.ts_sec) * interface.resolution + u64::from(packet.ts_usec);
            let bytes = packet.data.get(..packet.caplen as usize).unwrap_or(packet.data);
            BlockContent::Packet(CapturedPacket { interface, time: wall_time(interface, units), bytes })
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            interfaces.clear();
            BlockContent::Other
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(description)) => {
            let Some(resolution) = description.ts_resolution().filter(|&resolution| resolution != 0) else {
                return BlockContent::Malformed;
            };
            if interfaces.len() == INTERFACES_MAX {
                return BlockContent::Malformed;
            }
            let (link, offset) = (description.linktype, description.ts_offset());
            interfaces.push(CaptureInterface { link, resolution, offset });
            BlockContent::Other
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            let Some(&interface) = interfaces.get(packet.if_id as usize) else { return BlockContent::Malformed };
            let units = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            let time = wall_time(interface, units);
            BlockContent::Packet(CapturedPacket { interface, time, bytes: packet.packet_data() })
        }
        PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
            let Some(&interface) = interfaces.first() else { return BlockContent::Malformed };
            let time = WallTime::from_nanos(0);
            BlockContent::Packet(CapturedPacket { interface, time, bytes: packet.packet_data() })
        }
        PcapBlockOwned::NG(_) => BlockContent::Other,
    }
}

/// Converts a time of a capture. A time outside of the range becomes the nearest end.
fn wall_time(interface: CaptureInterface, units: u64) -> WallTime {
    let nanos = i128::from(units) * 1_000_000_000 / i128::from(interface.resolution);
    let nanos = nanos + i128::from(interface.offset) * 1_000_000_000;
    WallTime::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
}

/// Returns the UDP datagram in a packet; `None` if there is none, or only a fragment of one.
fn udp_datagram(packet: &CapturedPacket<'_>, frame: u64) -> Option<CapturedDatagram> {
    let headers = packet_headers(packet)?;
    let (source, destination): (IpAddr, IpAddr) = match &headers.net {
        Some(LaxNetSlice::Ipv4(ip)) if !ip.payload().fragmented => {
            (ip.header().source_addr().into(), ip.header().destination_addr().into())
        }
        Some(LaxNetSlice::Ipv6(ip)) if !ip.payload().fragmented => {
            (ip.header().source_addr().into(), ip.header().destination_addr().into())
        }
        _ => return None,
    };
    let Some(TransportSlice::Udp(udp)) = &headers.transport else { return None };
    Some(CapturedDatagram {
        frame,
        time: packet.time,
        source: SocketAddr::new(source, udp.source_port()),
        destination: SocketAddr::new(destination, udp.destination_port()),
        payload: Bytes::copy_from_slice(udp.payload()),
    })
}

/// Reads the headers of a packet by the type of its link.
fn packet_headers<'a>(packet: &CapturedPacket<'a>) -> Option<LaxSlicedPacket<'a>> {
    let bytes = packet.bytes;
    match packet.interface.link {
        Linktype::ETHERNET => LaxSlicedPacket::from_ethernet(bytes).ok(),
        // The address family, four bytes in the order of the capturing host. IP names its version itself.
        Linktype::NULL | Linktype::LOOP => LaxSlicedPacket::from_ip(bytes.get(4..)?).ok(),
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 => LaxSlicedPacket::from_ip(bytes).ok(),
        // "Linux cooked": the protocol is at byte 14 of 16, and in version 2 at byte 0 of 20.
        Linktype::LINUX_SLL => after_link(bytes, 14, 16),
        Linktype::LINUX_SLL2 => after_link(bytes, 0, 20),
        _ => None,
    }
}

/// Reads the headers after those of a link with an Ethernet type at byte `at` and a length of `end` bytes.
fn after_link(bytes: &[u8], at: usize, end: usize) -> Option<LaxSlicedPacket<'_>> {
    let protocol = bytes.get(at..)?.first_chunk()?;
    Some(LaxSlicedPacket::from_ether_type(EtherType(u16::from_be_bytes(*protocol)), bytes.get(end..)?))
}
