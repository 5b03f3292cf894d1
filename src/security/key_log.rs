//! A log of keys: the secrets by which the datagrams of a capture can be opened later, as `SSLKEYLOGFILE` has them for
//! TLS.
//!
//! Each line has six fields, separated by single spaces: group, epoch of the sender, epoch of the receiver or `-` for the
//! group, suite, phase, and the secret in hexadecimal digits.

use super::cipher::Suite;
use super::key_schedule::{GroupKeys, PairwiseKeys, SenderContext};
use super::sealed_datagram::open_datagram;
use super::secret::{SECRET_BYTES, Secret};
use crate::message::Epoch;
use crate::wire::{self, KeyChoice, KeyedHeader, Kind};
use bytes::Bytes;
use std::collections::HashMap;
use std::fmt::Write;
use zeroize::Zeroizing;

/// First line of a log. It begins with `#`, as comments do.
pub const KEY_LOG_TITLE: &str = "# seqcast key log, version 1: whoever reads it can read the messages of these epochs";

/// The secret of what one sender sends to the group, or to one receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedSecret {
    pub(super) sender: SenderContext,
    /// `None` for the group.
    pub(super) receiver: Option<Epoch>,
    pub(super) secret: Secret,
}

impl LoggedSecret {
    /// Returns the line of a log, without its end.
    pub fn line(&self) -> Zeroizing<String> {
        let SenderContext { suite, phase, group, epoch } = self.sender;
        let receiver = self.receiver.map_or("-".to_owned(), |receiver| receiver.to_string());
        // No growth leaves copies of the secret behind.
        let mut line = Zeroizing::new(String::with_capacity(160));
        let _ = write!(*line, "{group} {epoch} {receiver} {} {phase} ", suite.as_str());
        for byte in self.secret.bytes() {
            let _ = write!(*line, "{byte:02x}");
        }
        line
    }

    /// Reads a line of a log; `None` if it is not one.
    pub fn parse(line: &str) -> Option<LoggedSecret> {
        let mut fields = line.split(' ');
        let mut next = || fields.next();
        let group = next()?.parse().ok()?;
        let epoch = parse_epoch(next()?)?;
        let receiver = match next()? {
            "-" => None,
            text => Some(parse_epoch(text)?),
        };
        let suite = next()?;
        let suite = [Suite::Aes256Gcm, Suite::ChaCha20Poly1305].into_iter().find(|known| known.as_str() == suite)?;
        let phase = next()?.parse().ok()?;
        let digits = next().filter(|digits| digits.len() == 2 * SECRET_BYTES && digits.is_ascii())?;
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        for (byte, digits) in secret.iter_mut().zip(digits.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        let sender = SenderContext { suite, phase, group, epoch };
        fields.next().is_none().then_some(LoggedSecret { sender, receiver, secret: Secret::new(*secret) })
    }
}

fn parse_epoch(digits: &str) -> Option<Epoch> {
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok().and_then(Epoch::new))?
}

/// The keys of a log, which open the datagrams of a capture.
#[derive(Debug, Default)]
pub struct LoggedKeys {
    /// Keys of what each sender sent to the group. Another peer with the same epoch does not exist.
    group: HashMap<(u16, Epoch), Vec<GroupKeys>>,
    /// Keys of what each sender sent to single receivers: each handshake has others.
    pairwise: HashMap<(u16, Epoch), Vec<PairwiseKeys>>,
}

impl LoggedKeys {
    /// Adds the keys of a secret.
    pub fn add(&mut self, logged: &LoggedSecret) {
        let LoggedSecret { sender, receiver, secret } = logged;
        let epoch = (sender.group, sender.epoch);
        match receiver {
            None => self.group.entry(epoch).or_default().push(GroupKeys::new(sender, secret)),
            Some(receiver) => {
                self.pairwise.entry(epoch).or_default().push(PairwiseKeys::new(sender, secret, *receiver));
            }
        }
    }

    /// Returns a keyed datagram as one of open mode, with its check value; `None` if no key of the log opens it.
    pub fn open(&self, datagram: &Bytes) -> Option<Bytes> {
        self.decrypt(datagram).map(|opened| wire::with_check_value(&opened))
    }

    fn decrypt(&self, datagram: &Bytes) -> Option<Bytes> {
        let keyed = KeyedHeader::decode(datagram).filter(|keyed| Suite::of_mode(keyed.mode).is_some())?;
        let epoch = (keyed.header.group, keyed.header.epoch);
        if matches!(keyed.key, KeyChoice::Pairwise { .. }) {
            let mut keys = self.pairwise.get(&epoch)?.iter();
            return match keyed.header.kind {
                Kind::Directed => keys.find_map(|keys| open_datagram(&keys.directed, &keyed, datagram.clone())),
                Kind::Control => keys.find_map(|keys| open_datagram(&keys.control, &keyed, datagram.clone())),
                Kind::Data => None,
            };
        }
        let mut keys = self.group.get(&epoch)?.iter();
        match keyed.header.kind {
            Kind::Data => keys.find_map(|keys| open_datagram(&keys.data, &keyed, datagram.clone())),
            Kind::Control => keys.find_map(|keys| open_datagram(&keys.control, &keyed, datagram.clone())),
            Kind::Directed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(receiver: Option<u64>) -> LoggedSecret {
        let sender =
            SenderContext { suite: Suite::ChaCha20Poly1305, phase: 3, group: 7500, epoch: Epoch::new(0x1f).unwrap() };
        let receiver = receiver.and_then(Epoch::new);
        LoggedSecret { sender, receiver, secret: Secret::new([0xa5; SECRET_BYTES]) }
    }

    #[test]
    fn line_is_read_as_it_was_written() {
        for receiver in [None, Some(0x2e)] {
            let line = logged(receiver).line();
            assert_eq!(LoggedSecret::parse(&line), Some(logged(receiver)), "{}", *line);
        }
        let digits = "a5".repeat(SECRET_BYTES);
        assert_eq!(*logged(None).line(), format!("7500 000000000000001f - chacha20-poly1305 3 {digits}"));
    }

    #[test]
    fn damaged_line_is_no_secret() {
        let line = logged(Some(0x2e)).line();
        let damaged = [
            line.replace("7500", "75000"),
            line.replace("000000000000001f", "0000000000000000"),
            line.replace("000000000000002e", "2e"),
            line.replace("poly", "Poly"),
            line.replace(" 3 ", " 256 "),
            line.replace("a5a5", "a5"),
            line.replacen("a5", "é", 1),
            line.replacen("a5", "+5", 1).replace('+', "g"),
            format!("{} x", *line),
            line.replacen(' ', "  ", 1),
            String::new(),
        ];
        for damaged in damaged {
            assert_eq!(LoggedSecret::parse(&damaged), None, "{damaged}");
        }
    }
}
