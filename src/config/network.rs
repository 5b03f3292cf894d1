//! Formats of the peer's name and of its location in the network: group, interface, other hosts, datagram size.

use super::host_defaults::HostDefaults;
use super::interface::InterfaceSpec;
use super::peers::{ADDRESSES_MAX, parse_addresses};
use super::quantity::{SizeFormat, show_size};
use super::value_error::ValueError;
use super::value_format::ValueFormat;
use crate::message::PeerName;
use std::net::IpAddr;

/// A peer name; `auto` is the host's name.
pub(super) struct PeerNameFormat;

impl ValueFormat for PeerNameFormat {
    type Value = PeerName;

    fn parse(&self, text: &str, defaults: &HostDefaults) -> Result<PeerName, ValueError> {
        if text == "auto" { Ok(defaults.peer_name()) } else { text.parse().map_err(ValueError::PeerName) }
    }

    fn show(&self, value: &PeerName) -> String {
        value.to_string()
    }

    fn range(&self) -> String {
        format!("1 to {} of A-Z a-z 0-9 . _ -; auto is the name of the host", PeerName::BYTES_MAX)
    }
}

/// A multicast address.
pub(super) struct GroupFormat;

impl ValueFormat for GroupFormat {
    type Value = IpAddr;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<IpAddr, ValueError> {
        let address: IpAddr = text.parse().map_err(|_| ValueError::Address)?;
        if address.is_multicast() { Ok(address) } else { Err(ValueError::NotMulticast(address)) }
    }

    fn show(&self, value: &IpAddr) -> String {
        value.to_string()
    }

    fn range(&self) -> String {
        "224.0.0.0 to 239.255.255.255, or an IPv6 address in ff00::/8".into()
    }
}

/// Interface on which the group is joined; the shell finds it among the host's interfaces.
pub(super) struct InterfaceFormat;

impl ValueFormat for InterfaceFormat {
    type Value = InterfaceSpec;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<InterfaceSpec, ValueError> {
        let text = if text == "loopback" { "lo" } else { text };
        text.parse().map_err(ValueError::Interface)
    }

    fn show(&self, value: &InterfaceSpec) -> String {
        value.to_string()
    }

    fn range(&self) -> String {
        "a name (eth0; lo or loopback), an address, a network (192.0.2.0/24), or auto".into()
    }
}

/// Hosts that get multicasts by unicast.
pub(super) struct PeersFormat;

impl ValueFormat for PeersFormat {
    type Value = Vec<IpAddr>;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<Vec<IpAddr>, ValueError> {
        if text == "none" { Ok(Vec::new()) } else { parse_addresses(text).map_err(ValueError::PeerList) }
    }

    fn show(&self, addresses: &Vec<IpAddr>) -> String {
        if addresses.is_empty() {
            return "none".into();
        }
        addresses.iter().map(ToString::to_string).collect::<Vec<String>>().join(", ")
    }

    fn range(&self) -> String {
        format!(
            "none, or up to {ADDRESSES_MAX} addresses, separated by commas: 10.0.0.7, a range 10.0.0.7-12, a network 10.0.0.0/28"
        )
    }

    fn is_list(&self) -> bool {
        true
    }
}

/// Size of the largest datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramSize {
    /// The payload that the interface's MTU carries without IP fragments.
    Auto,
    /// Bytes of UDP payload.
    Bytes(usize),
}

/// A [`DatagramSize`].
pub(super) struct DatagramSizeFormat {
    pub size: SizeFormat,
}

impl ValueFormat for DatagramSizeFormat {
    type Value = DatagramSize;

    fn parse(&self, text: &str, defaults: &HostDefaults) -> Result<DatagramSize, ValueError> {
        if text == "auto" { Ok(DatagramSize::Auto) } else { self.size.parse(text, defaults).map(DatagramSize::Bytes) }
    }

    fn show(&self, value: &DatagramSize) -> String {
        match value {
            DatagramSize::Auto => "auto".into(),
            DatagramSize::Bytes(bytes) => show_size(*bytes),
        }
    }

    fn range(&self) -> String {
        format!("{}, or auto", self.size.range())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults(host: &str) -> HostDefaults {
        HostDefaults { host: host.into(), runtime_dir: None, state_dir: None, uid: 7 }
    }

    #[test]
    fn host_name_becomes_a_peer_name() {
        assert_eq!(defaults("box.example.org").peer_name().as_str(), "box.example.org");
        assert_eq!(defaults("Bürö 7").peer_name().as_str(), "B-r--7");
        assert_eq!(defaults("").peer_name().as_str(), "peer");
        assert_eq!(defaults(&"x".repeat(200)).peer_name().as_str().len(), PeerName::BYTES_MAX);
    }
}
