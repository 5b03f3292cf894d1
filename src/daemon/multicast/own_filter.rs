//! The socket filter that cuts this peer's own data to its headers.
//!
//! The kernel returns multicasts to the group socket of their sender, which only counts them. A classic BPF program cuts
//! them before they are queued. The kernel then does not copy their content to the peer. Of a buffer that left as many
//! datagrams, the first header stays, and the kernel frees the rest. It also frees the content of a datagram of more than
//! about 16 KB. A shorter one that left alone lies in one piece of memory with its header, which stays allocated and
//! fills the receive buffer as before. The filter does not drop them, because the kernel counts what a filter drops as
//! drops of the socket. Those must mean that the receive buffer was full, since they decide the cause of a loss.
//!
//! The filter knows the peer by the address and port of its inbox, so that another peer of the host is not affected. It
//! reads no more than the header, which is readable in every security mode (`wire.md` W14). Control datagrams, probes of
//! the self-test and tests of a path stay whole.

use crate::wire::{Header, Kind, MAGIC};
use socket2::{SockFilter, SockRef};
use std::net::{IpAddr, SocketAddr};

/// Instructions: load a word, half word or byte at a fixed place, load the length, compare, return.
const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const LOAD_LENGTH: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_LEN) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Bytes of the UDP header, where the filter of a UDP socket begins to read.
const UDP_BYTES: u32 = 8;
/// Offset from which the filter reads the IP header.
const IP_HEADER: u32 = libc::SKF_NET_OFF as u32;
/// Offsets of the source address in the IP header.
const IPV4_SOURCE: u32 = 12;
const IPV6_SOURCE: u32 = 8;
/// Bytes that stay of the peer's own data.
const CUT_BYTES: u32 = UDP_BYTES + Header::SHORT_BYTES as u32;

/// Makes the kernel cut the data that arrives at the group socket from the inbox `own`. Returns false if the kernel has
/// no socket filters, or refuses this one. The socket then receives all datagrams whole.
pub(super) fn attach(group: &SockRef<'_>, own: SocketAddr) -> bool {
    let attached = group.attach_filter(&program(own));
    if let Err(error) = &attached {
        tracing::info!(%error, "this peer's own multicasts come back whole: the kernel accepts no socket filter");
    }
    attached.is_ok()
}

/// Returns the program: a series of values, each of which is loaded and compared, and two results.
fn program(own: SocketAddr) -> Vec<SockFilter> {
    let at_least = (LOAD_LENGTH, 0, JUMP_IF_AT_LEAST, CUT_BYTES);
    let equal = |load: u16, at: u32, value: u32| (load, at, JUMP_IF_EQUAL, value);
    let mut checks = vec![at_least, equal(LOAD_HALF, 0, own.port().into())];
    let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("words have four bytes"));
    match own.ip() {
        IpAddr::V4(ip) => checks.push(equal(LOAD_WORD, IP_HEADER + IPV4_SOURCE, word(&ip.octets()))),
        IpAddr::V6(ip) => {
            let words = (IP_HEADER + IPV6_SOURCE..).step_by(4).zip(ip.octets().chunks(4).map(word).collect::<Vec<_>>());
            checks.extend(words.map(|(at, word)| equal(LOAD_WORD, at, word)));
        }
    }
    checks.push(equal(LOAD_HALF, UDP_BYTES, MAGIC.into()));
    checks.push(equal(LOAD_BYTE, UDP_BYTES + Header::KIND_AT as u32, Kind::Data.to_wire().into()));
    let mut program = Vec::new();
    for (index, (load, at, jump, value)) in checks.iter().enumerate() {
        program.push(SockFilter::new(*load, 0, 0, *at));
        // Behind the pairs of the later checks and the first result.
        let to_whole = u8::try_from(2 * (checks.len() - 1 - index) + 1).expect("the program is short");
        program.push(SockFilter::new(*jump, 0, to_whole, *value));
    }
    program.push(SockFilter::new(RETURN, 0, 0, CUT_BYTES));
    program.push(SockFilter::new(RETURN, 0, 0, u32::MAX));
    program
}

#[cfg(test)]
mod tests {
    use super::super::{SocketOptions, Sockets};
    use super::*;
    use crate::daemon::batch::{OutgoingDatagram, RecvBatch};
    use crate::daemon::interface::{ChoiceReason, ChosenInterface};
    use crate::message::{Epoch, Message};
    use crate::proto::effect::Path;
    use crate::wire::{Builder, Entry, KeyChoice, into_keyed};
    use bytes::Bytes;
    use nix::sys::socket::{getsockopt, setsockopt, sockopt};
    use std::net::UdpSocket;
    use std::time::Duration;

    /// Returns a datagram that begins like one of the protocol.
    fn datagram(magic: u16, mode: u8, kind: u8, bytes: usize) -> Vec<u8> {
        let mut datagram = vec![7; bytes];
        datagram[..2].copy_from_slice(&magic.to_be_bytes());
        datagram[2..5].copy_from_slice(&[1, mode, kind]);
        datagram
    }

    /// Sends datagrams of two senders to a socket with the filter for the first one. Returns the bytes received of each
    /// sender.
    fn received(host: IpAddr, sent: &[Vec<u8>]) -> Vec<[usize; 2]> {
        let socket = || UdpSocket::bind((host, 0)).unwrap();
        let (own, other, to) = (socket(), socket(), socket());
        assert!(attach(&SockRef::from(&to), own.local_addr().unwrap()));
        let mut buffer = [0; 2000];
        let mut each = |from: &UdpSocket, bytes: &[u8]| {
            from.send_to(bytes, to.local_addr().unwrap()).unwrap();
            let (count, sender) = to.recv_from(&mut buffer).unwrap();
            assert_eq!((sender, &buffer[..count]), (from.local_addr().unwrap(), &bytes[..count]));
            count
        };
        sent.iter().map(|bytes| [each(&own, bytes), each(&other, bytes)]).collect()
    }

    #[test]
    fn only_own_data_is_cut() {
        let sent = [
            datagram(MAGIC, 0, 0, 1400),
            datagram(MAGIC, 1, 0, 1400),
            datagram(MAGIC, 0, 2, 1400),
            datagram(MAGIC, 0, 1, 1400),
            datagram(MAGIC + 1, 0, 0, 1400),
            datagram(MAGIC, 0, 0, 36),
            datagram(MAGIC, 0, 0, 35),
            datagram(MAGIC, 0, 0, 5),
            b"seqcast self-test 12345678".to_vec(),
            b"".to_vec(),
        ];
        let whole = |bytes| [bytes, bytes];
        let expected = [
            [36, 1400],
            [36, 1400],
            whole(1400),
            whole(1400),
            whole(1400),
            whole(36),
            whole(35),
            whole(5),
            whole(26),
            whole(0),
        ];
        assert_eq!(received([127, 0, 0, 1].into(), &sent), expected);
        assert_eq!(received("::1".parse().unwrap(), &sent), expected);
    }

    #[test]
    fn buffers_of_many_own_datagrams_take_little_room() {
        let [own, to] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        setsockopt(&to, sockopt::UdpGroSegment, &true).unwrap();
        setsockopt(&to, sockopt::RcvBuf, &(256 * 1024)).unwrap();
        setsockopt(&own, sockopt::UdpGsoSegment, &1000).unwrap();
        assert!(attach(&SockRef::from(&to), own.local_addr().unwrap()));
        assert!(getsockopt(&to, sockopt::RcvBuf).unwrap() < 100 * 60_000);
        for _ in 0..100 {
            own.send_to(&datagram(MAGIC, 0, 0, 60_000), to.local_addr().unwrap()).unwrap();
        }
        to.set_nonblocking(true).unwrap();
        let mut buffer = [0; 2000];
        let lengths: Vec<usize> = std::iter::from_fn(|| to.recv(&mut buffer).ok()).collect();
        assert_eq!(lengths, [36; 100]);
    }

    /// Returns a datagram of the builder, and the same with a key.
    fn sealed_datagrams() -> [Bytes; 2] {
        let mut builder = Builder::new(1400);
        let message = Message::new("a.b".parse().unwrap(), vec![7; 1000]);
        assert!(builder.push(&Entry { message: (&message).into(), seq: None, stamp: None, chain: None }));
        let epoch = Epoch::new(7).unwrap();
        let header = Header { kind: Kind::Data, group: 1, epoch, number: 1, count: 1, uptime_ms: 0, receiver: None };
        let open = builder.seal(&header);
        let keyed = into_keyed(&open, 1, KeyChoice::Group { is_odd_phase: false }, 16);
        [open, keyed.into()]
    }

    #[test]
    fn peer_receives_own_data_cut_after_moves() {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let interface = ChosenInterface {
            name: "lo".to_owned(),
            index: nix::net::if_::if_nametoindex("lo").unwrap(),
            address: [127, 0, 0, 1].into(),
            mtu: 65_536,
            loopback: true,
            reason: ChoiceReason::Named,
            others: Vec::new(),
        };
        let options = SocketOptions {
            group: [239, 255, 81, 81].into(),
            port,
            interface: &interface,
            inbox_port: 0,
            ttl: 0,
            receive_buffer: 1 << 20,
            send_buffer: 1 << 20,
        };
        let [mut own, mut other] = [(); 2].map(|()| Sockets::open(&options).unwrap());
        for moves in 0..3 {
            assert!(own.truncates_own_data(), "after {moves} moves");
            for bytes in sealed_datagrams() {
                for (is_own, length) in [(true, 36), (false, bytes.len())] {
                    let from = if is_own { &mut own } else { &mut other };
                    let sender = from.inbox_address();
                    assert_eq!(from.send_batch(&[OutgoingDatagram { to: None, bytes: bytes.clone() }]).unwrap(), 1);
                    assert!(own.wait(Duration::from_secs(10)).unwrap());
                    let mut batch = RecvBatch::new(4);
                    own.recv_batch(Path::Multicast, &mut batch).unwrap();
                    let received: Vec<_> = batch.drain().map(|received| (received.from, received.bytes)).collect();
                    assert_eq!(received, [(sender, bytes.slice(..length))], "after {moves} moves");
                }
            }
            own.move_to(&options).unwrap();
        }
    }
}
