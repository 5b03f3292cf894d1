//! Socket addresses in the form of the kernel.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Bytes of the larger of the two addresses.
pub(super) const NAME_BYTES: libc::socklen_t = size_of::<libc::sockaddr_in6>() as libc::socklen_t;

const _: () = assert!(size_of::<RawAddress>() == NAME_BYTES as usize);

/// A socket address as the kernel reads and writes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union RawAddress {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddress {
    pub(super) const EMPTY: RawAddress = RawAddress {
        v6: libc::sockaddr_in6 {
            sin6_family: 0,
            sin6_port: 0,
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
            sin6_scope_id: 0,
        },
    };

    /// Writes an address and returns its length in bytes.
    pub(super) fn encode(&mut self, address: SocketAddr) -> libc::socklen_t {
        match address {
            SocketAddr::V4(address) => {
                self.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                    sin_zero: [0; 8],
                };
                size_of::<libc::sockaddr_in>() as libc::socklen_t
            }
            SocketAddr::V6(address) => {
                self.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                };
                NAME_BYTES
            }
        }
    }

    /// Returns the address that the kernel wrote; `None` if it is of no Internet family.
    pub(super) fn decode(&self) -> Option<SocketAddr> {
        // SAFETY: every variant starts with the family, every byte of the union is initialised (EMPTY), and all of its
        // fields are plain integers.
        match i32::from(unsafe { self.family }) {
            libc::AF_INET => {
                // SAFETY: as above.
                let v4 = unsafe { self.v4 };
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(v4.sin_port))))
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let v6 = unsafe { self.v6 };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                Some(SocketAddr::V6(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_address_decodes_with_all_parts() {
        for text in ["192.0.2.7:7500", "[fe80::1%3]:9", "[2001:db8::2]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut name = RawAddress::EMPTY;
            name.encode(address);
            assert_eq!(name.decode(), Some(address));
        }
        assert_eq!(RawAddress::EMPTY.decode(), None);
    }
}
