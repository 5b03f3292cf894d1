//! Servers of the cluster that joins sites, as this host reaches them by TCP.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::thread;
use std::time::Duration;

/// Maximum time for a connection.
const CONNECT_TIME: Duration = Duration::from_secs(1);
/// Maximum number of addresses of one server that are tried.
const ADDRESSES_MAX: usize = 2;

/// Whether a server of the cluster accepts a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HubProbe {
    /// Its address as configured, such as `nats://hub1:4222`.
    pub(crate) address: String,
    /// Reason why there is no connection.
    pub(crate) failure: Option<String>,
}

/// Connects to each server, and ends the connections at once.
pub(super) fn probe(addresses: &[String]) -> Vec<HubProbe> {
    thread::scope(|scope| {
        let probes: Vec<_> = addresses.iter().map(|address| scope.spawn(move || connect(address))).collect();
        let outcomes = probes.into_iter().map(|probe| probe.join().expect("a connection does not panic"));
        addresses
            .iter()
            .zip(outcomes)
            .map(|(address, outcome)| HubProbe {
                address: address.clone(),
                failure: outcome.err().map(|error| error.to_string()),
            })
            .collect()
    })
}

/// Connects to a server at `nats://HOST:PORT` or `tls://HOST:PORT`.
fn connect(address: &str) -> io::Result<()> {
    let (_, host) = address.split_once("://").unwrap_or(("", address));
    let mut outcome = Err(io::Error::other("its name has no address"));
    for address in host.to_socket_addrs()?.take(ADDRESSES_MAX) {
        outcome = TcpStream::connect_timeout(&address, CONNECT_TIME).map(drop);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn server_is_reached_or_not() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("nats://{}", server.local_addr().unwrap());
        let probes = || probe(&[address.clone(), "tls://host.invalid:4222".to_owned()]);
        let [reached, unknown] = &probes()[..] else { panic!("one for each address") };
        assert_eq!((&reached.address, &reached.failure), (&address, &None));
        assert!(unknown.failure.is_some());
        drop(server);
        assert!(probes()[0].failure.as_ref().unwrap().contains("refused"));
    }
}
