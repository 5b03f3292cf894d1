//! Stateless cookies: only the peer at an address can return the cookie that was sent there.

use super::handshake_datagram::COOKIE_BYTES;
use super::secret::Secret;
use crate::message::Epoch;
use crate::time::Instant;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use subtle::ConstantTimeEq;

/// Time for which a cookie is valid at least; at most twice as long.
const VALIDITY: Duration = Duration::from_secs(60);

/// Makes and checks cookies.
#[derive(Debug)]
pub(super) struct CookieJar(Secret);

impl CookieJar {
    /// Creates cookies from a fresh random secret.
    pub(super) fn new(secret: Secret) -> CookieJar {
        CookieJar(secret)
    }

    /// Returns the cookie for a peer at an address.
    pub(super) fn cookie(&self, now: Instant, address: SocketAddr, epoch: Epoch) -> [u8; COOKIE_BYTES] {
        self.of_period(period(now), address, epoch)
    }

    /// Returns whether a cookie was made for this peer and address, in this period or the one before.
    pub(super) fn is_valid(
        &self,
        now: Instant,
        address: SocketAddr,
        epoch: Epoch,
        cookie: &[u8; COOKIE_BYTES],
    ) -> bool {
        let period = period(now);
        [period, period.wrapping_sub(1)].into_iter().any(|period| {
            let expected = self.of_period(period, address, epoch);
            bool::from(expected.ct_eq(cookie))
        })
    }

    fn of_period(&self, period: u64, address: SocketAddr, epoch: Epoch) -> [u8; COOKIE_BYTES] {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut info = ip.octets().to_vec();
        info.extend(address.port().to_be_bytes());
        info.extend(epoch.bits().to_be_bytes());
        info.extend(period.to_be_bytes());
        let mut cookie = [0; COOKIE_BYTES];
        self.0.expand(&info, &mut cookie);
        cookie
    }
}

fn period(now: Instant) -> u64 {
    now.as_nanos() / u64::try_from(VALIDITY.as_nanos()).expect("a minute fits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookie_is_bound_to_address_epoch_and_time() {
        let jar = CookieJar::new(Secret::new([7; 32]));
        let at = |secs: u64| Instant::from_nanos(secs * 1_000_000_000);
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let epoch = |bits| Epoch::new(bits).unwrap();
        let cookie = jar.cookie(at(119), address("10.0.0.1:7"), epoch(1));
        for (now, from, of, expected) in [
            (119, "10.0.0.1:7", 1, true),
            (179, "10.0.0.1:7", 1, true),
            (180, "10.0.0.1:7", 1, false),
            (119, "10.0.0.1:8", 1, false),
            (119, "10.0.0.2:7", 1, false),
            (119, "10.0.0.1:7", 2, false),
        ] {
            assert_eq!(jar.is_valid(at(now), address(from), epoch(of), &cookie), expected, "{now} {from} {of}");
        }
        assert!(!CookieJar::new(Secret::new([8; 32])).is_valid(at(119), address("10.0.0.1:7"), epoch(1), &cookie));
    }
}
