//! The value of `peers`: addresses of hosts to which multicasts are sent by unicast.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of addresses. Each of them gets a copy of every multicast, so a long list costs more than it gives.
pub(super) const ADDRESSES_MAX: usize = 64;

/// Reason why a text is no list of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerListError {
    /// A part that is no address, range or network.
    NotAnAddress(String),
    /// A range that ends before it begins, or whose ends are of two families.
    Range(String),
    /// The length of a network's prefix is no number of bits of its address.
    Prefix(String),
    /// An address that is no unicast address.
    NotUnicast(IpAddr),
    /// More than [`ADDRESSES_MAX`] addresses.
    TooMany,
}

impl fmt::Display for PeerListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerListError::NotAnAddress(part) => write!(f, "{part:?} is no address, range or network"),
            PeerListError::Range(part) => write!(f, "the range {part:?} ends before it begins"),
            PeerListError::Prefix(part) => write!(f, "the network {part:?} needs a prefix of 0 to 32 bits, or 128"),
            PeerListError::NotUnicast(address) => write!(f, "{address} is no address of a host"),
            PeerListError::TooMany => write!(f, "more than {ADDRESSES_MAX} addresses"),
        }
    }
}

impl PeerListError {
    /// Returns the replacement to suggest.
    pub(super) fn suggestion(&self) -> String {
        match self {
            PeerListError::TooMany => "list only hosts with a peer, at most 64".into(),
            _ => "write addresses such as 10.0.0.7, 10.0.0.8, a range 10.0.0.7-12 or a network 10.0.0.0/28".into(),
        }
    }
}

/// Returns the addresses that a list names, without repetitions, in ascending order.
///
/// # Errors
/// A part of the list is no address, range or network, or there are too many.
pub(super) fn parse_addresses(text: &str) -> Result<Vec<IpAddr>, PeerListError> {
    let mut addresses = Vec::new();
    for part in text.split([',', ';']).map(str::trim) {
        let (first, last) = span(part)?;
        addresses.extend(between(first, last)?);
        addresses.sort_unstable();
        addresses.dedup();
        if ADDRESSES_MAX < addresses.len() {
            return Err(PeerListError::TooMany);
        }
    }
    match addresses.iter().find(|address| !is_unicast(**address)) {
        Some(address) => Err(PeerListError::NotUnicast(*address)),
        None => Ok(addresses),
    }
}

/// Returns the first and the last address of an address, a range or a network.
fn span(part: &str) -> Result<(IpAddr, IpAddr), PeerListError> {
    let invalid = || PeerListError::NotAnAddress(part.to_owned());
    let address = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| invalid());
    if let Some((network, prefix)) = part.split_once('/') {
        let prefix: u32 = prefix.trim().parse().map_err(|_| PeerListError::Prefix(part.to_owned()))?;
        return network_span(address(network)?, prefix).ok_or_else(|| PeerListError::Prefix(part.to_owned()));
    }
    let Some((first, last)) = part.split_once('-') else {
        let address = address(part)?;
        return Ok((address, address));
    };
    let first = address(first)?;
    // The end of an IPv4 range may be its last number alone.
    let last = match (first, last.trim().parse::<u8>()) {
        (IpAddr::V4(v4), Ok(last)) => {
            let [a, b, c, _] = v4.octets();
            Ipv4Addr::new(a, b, c, last).into()
        }
        _ => address(last)?,
    };
    match first.is_ipv4() == last.is_ipv4() && first <= last {
        true => Ok((first, last)),
        false => Err(PeerListError::Range(part.to_owned())),
    }
}

/// Returns the first and the last address of a host in a network; `None` if the prefix is too long. An IPv4 network of
/// four or more addresses begins with its own address and ends with its broadcast address, which are left out.
fn network_span(address: IpAddr, prefix: u32) -> Option<(IpAddr, IpAddr)> {
    match address {
        IpAddr::V4(address) => {
            let free = u32::MAX.checked_shr(prefix).unwrap_or(0);
            let (first, last) = (address.to_bits() & !free, address.to_bits() | free);
            let more = u32::from(prefix < 31);
            let hosts = (Ipv4Addr::from_bits(first + more).into(), Ipv4Addr::from_bits(last - more).into());
            (prefix <= 32).then_some(hosts)
        }
        IpAddr::V6(address) => {
            let free = u128::MAX.checked_shr(prefix).unwrap_or(0);
            let (first, last) = (address.to_bits() & !free, address.to_bits() | free);
            (prefix <= 128).then_some((Ipv6Addr::from_bits(first).into(), Ipv6Addr::from_bits(last).into()))
        }
    }
}

/// Returns all addresses from `first` to `last`, which are of one family.
fn between(first: IpAddr, last: IpAddr) -> Result<Vec<IpAddr>, PeerListError> {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let (low, high) = (bits(first), bits(last));
    if ADDRESSES_MAX as u128 <= high - low {
        return Err(PeerListError::TooMany);
    }
    let of_family = |bits: u128| match first {
        IpAddr::V4(_) => Ipv4Addr::from_bits(u32::try_from(bits).expect("below an IPv4 address")).into(),
        IpAddr::V6(_) => Ipv6Addr::from_bits(bits).into(),
    };
    Ok((low..=high).map(of_family).collect())
}

fn is_unicast(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !address.is_multicast() && !address.is_unspecified() && !is_broadcast
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(addresses: &[IpAddr]) -> String {
        addresses.iter().map(ToString::to_string).collect::<Vec<String>>().join(", ")
    }

    #[test]
    fn addresses_ranges_and_networks_are_expanded() {
        let table = [
            ("10.0.0.7", "10.0.0.7"),
            ("10.0.0.8, 10.0.0.7,10.0.0.8", "10.0.0.7, 10.0.0.8"),
            ("10.0.0.7 ; 10.0.1.7", "10.0.0.7, 10.0.1.7"),
            ("10.0.0.7-9", "10.0.0.7, 10.0.0.8, 10.0.0.9"),
            ("10.0.0.255 - 10.0.1.1", "10.0.0.255, 10.0.1.0, 10.0.1.1"),
            ("10.0.0.5/30", "10.0.0.5, 10.0.0.6"),
            ("10.0.0.5/31", "10.0.0.4, 10.0.0.5"),
            ("10.0.0.5/32, fd75::1/127", "10.0.0.5, fd75::, fd75::1"),
            ("fd75::1-fd75::3", "fd75::1, fd75::2, fd75::3"),
        ];
        for (text, expected) in table {
            let addresses = parse_addresses(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(shown(&addresses), expected, "{text}");
            assert_eq!(parse_addresses(expected).as_ref(), Ok(&addresses));
        }
        assert_eq!(parse_addresses("10.0.0.0/26").unwrap().len(), 62);
    }

    #[test]
    fn impossible_lists_are_refused() {
        use PeerListError::{NotAnAddress, NotUnicast, Prefix, Range, TooMany};
        let owned = str::to_owned;
        let table = [
            ("host.example", NotAnAddress(owned("host.example"))),
            ("10.0.0.7,", NotAnAddress(owned(""))),
            ("10.0.0.7:7500", NotAnAddress(owned("10.0.0.7:7500"))),
            ("10.0.0.7-300", NotAnAddress(owned("10.0.0.7-300"))),
            ("10.0.0.7-5", Range(owned("10.0.0.7-5"))),
            ("10.0.0.7-fd75::1", Range(owned("10.0.0.7-fd75::1"))),
            ("10.0.0.0/33", Prefix(owned("10.0.0.0/33"))),
            ("10.0.0.0/x", Prefix(owned("10.0.0.0/x"))),
            ("0.0.0.0/0", TooMany),
            ("::/0", TooMany),
            ("10.0.0.0/25", TooMany),
            ("10.0.0.1-40, 10.0.1.1-40", TooMany),
            ("239.1.2.3", NotUnicast([239, 1, 2, 3].into())),
            ("255.255.255.255", NotUnicast([255; 4].into())),
            ("0.0.0.0", NotUnicast([0; 4].into())),
        ];
        for (text, expected) in table {
            assert_eq!(parse_addresses(text), Err(expected), "{text}");
        }
    }
}
