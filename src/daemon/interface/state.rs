//! The present state of the interface in use, and the address by which the peer continues after a change.

use super::{ChosenInterface, Family, Interface, choose_from, is_link_local};
use crate::config::InterfaceSpec;
use std::net::IpAddr;

/// Present state of the interface in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InterfaceState {
    /// The interface is up, has a carrier, and has the address.
    Usable,
    /// No interface has the name.
    Absent,
    /// The administrator has switched it off.
    Down,
    /// No cable, or no radio network.
    NoCarrier,
    /// The interface has other addresses of the family only.
    AddressGone(Vec<IpAddr>),
}

/// Returns the state of the interface in use.
pub(crate) fn state_of(interfaces: &[Interface], current: &ChosenInterface) -> InterfaceState {
    let Some(interface) = interfaces.iter().find(|interface| interface.name == current.name) else {
        return InterfaceState::Absent;
    };
    let addresses = || interface.addresses.iter().map(|entry| entry.ip);
    if !interface.up {
        InterfaceState::Down
    } else if !interface.running {
        InterfaceState::NoCarrier
    } else if !addresses().any(|ip| ip == current.address) {
        InterfaceState::AddressGone(addresses().filter(|ip| can_replace(current.address, *ip)).collect())
    } else {
        InterfaceState::Usable
    }
}

/// Returns whether a peer can continue with another address: it is of the same family. A link-local address replaces no
/// other one, because it does not lead to the unicast addresses of other peers.
fn can_replace(former: IpAddr, next: IpAddr) -> bool {
    former.is_ipv4() == next.is_ipv4() && (is_link_local(former) || !is_link_local(next))
}

/// Returns the interface with which the peer continues if the one in use has lost its address, or exists anew under
/// another number. A peer that was given a name, or `auto`, stays with the name of its interface. `None` means that the
/// one in use is still there, or that there is no other yet.
pub(crate) fn successor(
    interfaces: &[Interface],
    spec: &InterfaceSpec,
    current: &ChosenInterface,
) -> Option<ChosenInterface> {
    let has = |interface: &Interface, ip| interface.addresses.iter().any(|entry| entry.ip == ip);
    let is_current = |interface: &Interface| interface.name == current.name && interface.index == current.index;
    if interfaces.iter().any(|interface| is_current(interface) && has(interface, current.address)) {
        return None;
    }
    let spec = match spec {
        InterfaceSpec::Auto | InterfaceSpec::Name(_) => InterfaceSpec::Name(current.name.clone()),
        InterfaceSpec::Address(_) | InterfaceSpec::Subnet(_) => spec.clone(),
    };
    let chosen = choose_from(interfaces, None, &spec, Family::of(current.address)).ok()?;
    // The kernel refuses to bind a tentative address, and a temporary one would soon change again.
    let is_stable = |interface: &Interface| {
        interface.name == chosen.name
            && interface.addresses.iter().any(|entry| entry.ip == chosen.address && entry.stable)
    };
    let ChosenInterface { reason, others, .. } = current.clone();
    let is_usable = can_replace(current.address, chosen.address) && interfaces.iter().any(is_stable);
    is_usable.then_some(ChosenInterface { reason, others, ..chosen })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::interface::ChoiceReason;
    use crate::daemon::interface::tests::host;

    /// Returns an interface that is up, with these stable addresses.
    fn interface(name: &str, index: u32, addresses: &[&str]) -> Interface {
        Interface { index, ..host(&format!("{name} {}", addresses.join(" "))).remove(0) }
    }

    fn current(address: &str) -> ChosenInterface {
        ChosenInterface {
            name: "eth0".to_owned(),
            index: 2,
            address: address.parse().unwrap(),
            mtu: 1500,
            loopback: false,
            reason: ChoiceReason::DefaultRoute,
            others: vec!["eth1".to_owned()],
        }
    }

    #[test]
    fn interface_state_names_the_first_defect() {
        let usable = interface("eth0", 2, &["10.0.0.7"]);
        let state = |interface: &Interface| state_of(std::slice::from_ref(interface), &current("10.0.0.7"));
        assert_eq!(state(&usable), InterfaceState::Usable);
        assert_eq!(state(&Interface { up: false, running: false, ..usable.clone() }), InterfaceState::Down);
        assert_eq!(state(&Interface { running: false, ..usable.clone() }), InterfaceState::NoCarrier);
        assert_eq!(state(&interface("eth1", 2, &["10.0.0.7"])), InterfaceState::Absent);
        let moved = interface("eth0", 2, &["10.0.0.8", "fd00::8"]);
        assert_eq!(state(&moved), InterfaceState::AddressGone(vec![[10, 0, 0, 8].into()]));
    }

    /// Returns the number and the address of the successor of 10.0.0.7 or `fe80::7` on `eth0` with the number 2.
    fn next(spec: &str, address: &str, interfaces: &[Interface]) -> Option<(u32, String)> {
        let next = successor(interfaces, &spec.parse().unwrap(), &current(address))?;
        assert_eq!((next.reason, &next.others[..]), (ChoiceReason::DefaultRoute, &["eth1".to_owned()][..]));
        Some((next.index, next.address.to_string()))
    }

    #[test]
    fn lost_address_is_followed_by_another_one() {
        let of = |addresses: &[&str]| [interface("eth0", 2, addresses), interface("eth1", 3, &["10.0.0.9"])];
        let found = |index, address: &str| Some((index, address.to_owned()));
        for spec in ["auto", "eth0"] {
            assert_eq!(next(spec, "10.0.0.7", &of(&["10.0.0.8", "10.0.0.7"])), None, "the address is still there");
            assert_eq!(next(spec, "10.0.0.7", &of(&["fd00::8"])), None, "another family");
            assert_eq!(next(spec, "10.0.0.7", &of(&["fd00::8", "10.0.0.8"])), found(2, "10.0.0.8"));
            assert_eq!(next(spec, "fe80::7", &of(&["10.0.0.8", "fd00::8"])), found(2, "fd00::8"));
        }
        assert_eq!(next("eth0", "fd00::7", &of(&["fe80::8"])), None, "a link-local address leads to no other host");
        // The new network card has the same name and another number.
        assert_eq!(next("auto", "10.0.0.7", &[interface("eth0", 5, &["10.0.0.7"])]), found(5, "10.0.0.7"));
        assert_eq!(next("10.0.0.7", "10.0.0.7", &[interface("eth0", 5, &["10.0.0.7"])]), found(5, "10.0.0.7"));
        assert_eq!(next("10.0.0.7", "10.0.0.7", &of(&["10.0.0.8"])), None, "the address itself is asked for");
        assert_eq!(next("10.0.0.0/24", "10.0.0.7", &of(&["10.1.0.8"])), found(3, "10.0.0.9"));
        assert_eq!(next("10.0.0.0/24", "10.0.0.7", &of(&["10.0.0.8"])), None, "two interfaces fit");
    }

    #[test]
    fn address_that_cannot_be_bound_is_awaited() {
        let mut tentative = interface("eth0", 2, &["fd00::8"]);
        tentative.addresses[0].stable = false;
        assert_eq!(next("eth0", "fd00::7", &[tentative.clone()]), None);
        assert_eq!(next("eth0", "fd00::7", &[Interface { up: false, ..interface("eth0", 2, &["fd00::8"]) }]), None);
        tentative.addresses[0].stable = true;
        assert_eq!(next("eth0", "fd00::7", &[tentative]), Some((2, "fd00::8".to_owned())));
    }
}
