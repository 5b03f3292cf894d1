//! The value of `interface`: which network interface the peer uses. Finding it on the host is the daemon's task.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Maximum length of the name of an interface, in bytes, as Linux limits it.
pub const INTERFACE_NAME_BYTES_MAX: usize = 15;

/// Requested interface: the value of `interface` in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceSpec {
    /// The interface that leads to the LAN.
    Auto,
    /// The interface of this name, such as `eth0`.
    Name(String),
    /// The interface that has this address.
    Address(IpAddr),
    /// The interface that has an address in this network.
    Subnet(Subnet),
}

/// Addresses that share their first `prefix` bits, such as `192.168.1.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// Any address of the network.
    pub address: IpAddr,
    /// Bits that all addresses share; at most 32 or 128.
    pub prefix: u8,
}

impl Subnet {
    /// Returns whether `address` belongs to the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                (own.to_bits() ^ other.to_bits()) & mask == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                (own.to_bits() ^ other.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

/// Reason why a text names no interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceSpecError {
    /// The text is empty.
    Empty,
    /// The part before the `/` is no address.
    NetworkAddress(String),
    /// The part after the `/` is no valid number of bits for the address.
    NetworkPrefix(String),
    /// The name is longer than the kernel's 15 bytes, or has a space or a slash.
    Name(String),
}

impl fmt::Display for InterfaceSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterfaceSpecError::Empty => {
                write!(f, "the interface is empty; write a name, an address, a network or auto")
            }
            InterfaceSpecError::NetworkAddress(text) => {
                write!(f, "'{text}' is no network: the part before the slash is no address")
            }
            InterfaceSpecError::NetworkPrefix(text) => {
                write!(f, "'{text}' is no network: the part after the slash is 0 to 32 bits, or 0 to 128 for IPv6")
            }
            InterfaceSpecError::Name(text) => {
                write!(f, "'{text}' is no interface name: a name has at most 15 bytes without spaces and slashes")
            }
        }
    }
}

impl std::error::Error for InterfaceSpecError {}

impl FromStr for InterfaceSpec {
    type Err = InterfaceSpecError;

    fn from_str(text: &str) -> Result<InterfaceSpec, InterfaceSpecError> {
        if text.is_empty() {
            return Err(InterfaceSpecError::Empty);
        }
        if text == "auto" {
            return Ok(InterfaceSpec::Auto);
        }
        if let Some((address, prefix)) = text.split_once('/') {
            let address: IpAddr = address.parse().map_err(|_| InterfaceSpecError::NetworkAddress(text.to_owned()))?;
            let prefix_max = if address.is_ipv4() { 32 } else { 128 };
            return match prefix.parse() {
                Ok(prefix) if prefix <= prefix_max => Ok(InterfaceSpec::Subnet(Subnet { address, prefix })),
                _ => Err(InterfaceSpecError::NetworkPrefix(text.to_owned())),
            };
        }
        if let Ok(address) = text.parse() {
            return Ok(InterfaceSpec::Address(address));
        }
        if INTERFACE_NAME_BYTES_MAX < text.len() || text.contains(char::is_whitespace) {
            return Err(InterfaceSpecError::Name(text.to_owned()));
        }
        Ok(InterfaceSpec::Name(text.to_owned()))
    }
}

impl fmt::Display for InterfaceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterfaceSpec::Auto => write!(f, "auto"),
            InterfaceSpec::Name(name) => write!(f, "{name}"),
            InterfaceSpec::Address(address) => write!(f, "{address}"),
            InterfaceSpec::Subnet(network) => write!(f, "{}/{}", network.address, network.prefix),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_is_auto_a_network_address_or_name() {
        let network = Subnet { address: "10.1.0.0".parse().unwrap(), prefix: 16 };
        let table = [
            ("auto", Ok(InterfaceSpec::Auto)),
            ("eth0", Ok(InterfaceSpec::Name("eth0".into()))),
            ("192.0.2.2", Ok(InterfaceSpec::Address("192.0.2.2".parse().unwrap()))),
            ("fe80::1", Ok(InterfaceSpec::Address("fe80::1".parse().unwrap()))),
            ("10.1.0.0/16", Ok(InterfaceSpec::Subnet(network))),
            ("", Err(InterfaceSpecError::Empty)),
            ("10.1.0.0/33", Err(InterfaceSpecError::NetworkPrefix("10.1.0.0/33".into()))),
            ("10.1.0.0/", Err(InterfaceSpecError::NetworkPrefix("10.1.0.0/".into()))),
            ("eth0/24", Err(InterfaceSpecError::NetworkAddress("eth0/24".into()))),
            ("a name of spaces", Err(InterfaceSpecError::Name("a name of spaces".into()))),
            ("sixteen-letters-", Err(InterfaceSpecError::Name("sixteen-letters-".into()))),
        ];
        for (text, expected) in table {
            let spec: Result<InterfaceSpec, InterfaceSpecError> = text.parse();
            assert_eq!(spec, expected, "{text}");
            if let Ok(spec) = spec {
                assert_eq!(spec.to_string(), text);
            }
        }
    }

    #[test]
    fn network_contains_addresses_with_its_prefix() {
        let contains = |network: &str, address: &str| match network.parse() {
            Ok(InterfaceSpec::Subnet(network)) => network.contains(address.parse().unwrap()),
            other => panic!("{other:?}"),
        };
        assert!(contains("0.0.0.0/0", "203.0.113.9"));
        assert!(contains("10.1.2.3/32", "10.1.2.3"));
        assert!(!contains("10.1.2.3/32", "10.1.2.2"));
        assert!(contains("10.1.0.0/16", "10.1.255.255"));
        assert!(!contains("10.1.0.0/16", "10.2.0.0"));
        assert!(contains("::/0", "fe80::1"));
        assert!(contains("fd00::/64", "fd00::7"));
        assert!(!contains("fd00::/64", "fd00:0:0:1::7"));
        assert!(!contains("::/0", "10.0.0.1"));
    }
}
