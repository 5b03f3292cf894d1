//! The other host of a path: a name or an address as typed, and where a peer or a doctor answers there.

use super::host::running_peer::LocalPeer;
use crate::daemon::interface::ChosenInterface;
use crate::message::PeerName;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, ToSocketAddrs};

/// Another host, as typed: `hostb`, `10.0.0.2`, `hostb:7501`, `[fd00::2]:7501`, or the name of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTarget {
    /// Name or address.
    host: String,
    /// Port at which it answers, if that is not the port of the group.
    port: Option<u16>,
}

impl PathTarget {
    /// Reads a host with or without a port.
    ///
    /// # Errors
    /// The text is empty, or its port is no number.
    pub fn parse(text: &str) -> Result<PathTarget, String> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(PathTarget { host: address.ip().to_string(), port: Some(address.port()) });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if text.parse::<IpAddr>().is_err() => {
                let port = port.parse().map_err(|_| format!("'{port}' is no port; write HOST or HOST:PORT"))?;
                (host, Some(port))
            }
            _ => (text, None),
        };
        match host.is_empty() {
            true => Err("the host is empty; write HOST or HOST:PORT".to_owned()),
            false => Ok(PathTarget { host: host.to_owned(), port }),
        }
    }

    /// Returns the host as typed.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Resolves the address at which it answers. The name of a peer that the local one knows is resolved first.
    ///
    /// # Errors
    /// The system does not know the name, or knows no address of the family of the interface.
    pub(crate) fn resolve(
        &self,
        peer: &LocalPeer,
        chosen: &ChosenInterface,
        group_port: u16,
    ) -> io::Result<SocketAddr> {
        let port = self.port.unwrap_or(group_port);
        let known = match (peer.running(), self.host.parse::<PeerName>()) {
            (Some(peer), Ok(name)) => {
                let row = peer.peers.iter().find(|row| row.publisher.name.as_ref() == Some(&name));
                row.map(|row| SocketAddr::new(row.address.ip(), port))
            }
            _ => None,
        };
        let address = match known {
            Some(address) => address,
            None => (self.host.as_str(), port)
                .to_socket_addrs()?
                .find(|address| address.is_ipv4() == chosen.address.is_ipv4())
                .ok_or_else(|| io::Error::other("it has no address of the family of the group"))?,
        };
        Ok(match address {
            SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => {
                SocketAddr::V6(SocketAddrV6::new(*v6.ip(), v6.port(), 0, chosen.index))
            }
            address => address,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_read_with_and_without_port() {
        let target = |host: &str, port| Ok(PathTarget { host: host.to_owned(), port });
        assert_eq!(PathTarget::parse("hostb"), target("hostb", None));
        assert_eq!(PathTarget::parse("10.0.0.2:7501"), target("10.0.0.2", Some(7501)));
        assert_eq!(PathTarget::parse("fd00::2"), target("fd00::2", None));
        assert_eq!(PathTarget::parse("[fd00::2]:7501"), target("fd00::2", Some(7501)));
        assert_eq!(PathTarget::parse("hostb:7501"), target("hostb", Some(7501)));
        assert!(
            PathTarget::parse("").is_err() && PathTarget::parse(":1").is_err() && PathTarget::parse("b:x").is_err()
        );
    }
}
