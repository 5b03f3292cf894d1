//! Datagrams that a member of the realm can seal: its keys are derived by hand from a log of keys, by `docs/wire.md`
//! section 18.1.

use super::forged::{CONTROL, DATA, DIRECTED, ForgedHeader};
use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};
use std::fs;

/// Secret by which one sender seals datagrams to the group, or to one receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderSecret {
    mode: u8,
    phase: u8,
    group: u16,
    /// Epoch of the sender.
    pub epoch: u64,
    /// Epoch of the receiver; `None` for the group.
    pub receiver: Option<u64>,
    secret: Vec<u8>,
}

impl SenderSecret {
    /// Reads the log of keys that a peer has written.
    pub fn read_log(path: &str) -> Vec<SenderSecret> {
        let text = fs::read_to_string(path).expect("the peer writes the log");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| SenderSecret::parse(line).expect("a line of docs/security.md")).collect()
    }

    fn parse(line: &str) -> Option<SenderSecret> {
        let fields: Vec<&str> = line.split(' ').collect();
        let [group, epoch, receiver, suite, phase, secret] = fields[..] else { return None };
        let parse_epoch = |text: &str| u64::from_str_radix(text, 16).ok();
        Some(SenderSecret {
            mode: match suite {
                "aes-256-gcm" => AES,
                "chacha20-poly1305" => CHACHA,
                _ => return None,
            },
            phase: phase.parse().ok()?,
            group: group.parse().ok()?,
            epoch: parse_epoch(epoch)?,
            receiver: if receiver == "-" { None } else { Some(parse_epoch(receiver)?) },
            secret: decode_hex(secret)?,
        })
    }

    /// Returns whether a key for datagrams of this kind follows from the secret.
    pub fn can_seal(&self, kind: u8) -> bool {
        kind == CONTROL || (kind == DIRECTED) == self.receiver.is_some()
    }

    /// Returns the same secret as that of another sender, or for another receiver.
    pub fn claimed_for(&self, epoch: u64, receiver: Option<u64>) -> SenderSecret {
        SenderSecret { epoch, receiver, ..self.clone() }
    }

    /// Returns a datagram with this header and these records. The header gets the mode and the flags of the secret.
    pub fn seal(&self, header: ForgedHeader, records: &[u8]) -> Vec<u8> {
        let purpose = match (header.kind, self.receiver) {
            (DATA, None) => "data",
            (CONTROL, None) => "control",
            (DIRECTED, Some(_)) => "directed",
            (CONTROL, Some(_)) => "pairwise control",
            other => panic!("no key is for {other:?}"),
        };
        let flags = if self.receiver.is_some() { PAIRWISE } else { ODD_PHASE * (self.phase % 2) };
        let header = ForgedHeader { mode: self.mode, flags, ..header };
        let bytes = self.derive(purpose);
        let (key, salt) = bytes.split_at(KEY_BYTES);
        let algorithm = if self.mode == AES { &AES_256_GCM } else { &CHACHA20_POLY1305 };
        let key = LessSafeKey::new(UnboundKey::new(algorithm, key).expect("both ciphers have keys of 32 bytes"));
        let nonce = [salt, &header.number.to_be_bytes()].concat();
        let nonce = Nonce::try_assume_unique_for_key(&nonce).expect("salt and number are a nonce");
        let (header, mut sealed) = (header.bytes(), records.to_vec());
        key.seal_in_place_append_tag(nonce, Aad::from(&header), &mut sealed).expect("a datagram is short");
        [header, sealed].concat()
    }

    /// Returns the key and the salt for one purpose.
    fn derive(&self, purpose: &str) -> Vec<u8> {
        let mut info = format!("seqcast 1 {purpose}").into_bytes();
        info.extend([0, self.mode, self.phase]);
        info.extend(self.group.to_be_bytes());
        info.extend(self.epoch.to_be_bytes());
        info.extend(self.receiver.into_iter().flat_map(u64::to_be_bytes));
        let prk = Prk::new_less_safe(HKDF_SHA256, &self.secret);
        let (info, mut derived) = ([&info[..]], vec![0; KEY_BYTES + SALT_BYTES]);
        let output = prk.expand(&info, KeyWithSalt).expect("36 bytes are little");
        output.fill(&mut derived).expect("the length is that of the output");
        derived
    }
}

/// Length of a key with its salt.
struct KeyWithSalt;

impl KeyType for KeyWithSalt {
    fn len(&self) -> usize {
        KEY_BYTES + SALT_BYTES
    }
}

fn decode_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok());
    pairs.collect()
}

/// Modes of the two ciphers.
const AES: u8 = 1;
const CHACHA: u8 = 2;
/// Flags of a header.
const PAIRWISE: u8 = 1;
const ODD_PHASE: u8 = 2;
const KEY_BYTES: usize = 32;
const SALT_BYTES: usize = 4;

/// The values of the known answers that have this name, in their order.
fn known_answers(name: &str) -> Vec<Vec<u8>> {
    let page = include_str!("../../docs/wire.md");
    let block = page.split("```known-answers\n").nth(1).and_then(|rest| rest.split("\n```").next());
    // A line that begins with spaces continues the one before.
    let block = block.expect("the page has them").replace("\n  ", "");
    let values = block.lines().filter_map(|line| line.split_once(' ')).filter(|(of, _)| *of == name);
    values.map(|(_, digits)| decode_hex(digits).expect("hexadecimal digits")).collect()
}

#[test]
fn sealed_datagrams_are_the_known_answers() {
    let u64_of = |bytes: &[u8]| bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    let [epochs, modes] = ["epoch", "mode"].map(known_answers);
    let group = u64_of(&known_answers("group")[0]) as u16;
    for party in 0..2 {
        for (name, is_pairwise) in [("data", false), ("control", false), ("directed", true), ("pairwise-control", true)]
        {
            let secrets = known_answers(if is_pairwise { "pairwise-secret" } else { "group-secret" });
            let secret = SenderSecret {
                mode: modes[party][0],
                phase: 0,
                group,
                epoch: u64_of(&epochs[party]),
                receiver: is_pairwise.then(|| u64_of(&epochs[1 - party])),
                secret: secrets[party].clone(),
            };
            let open = &known_answers(&format!("open-{name}"))[party];
            let records_at = if open[4] == DIRECTED { 44 } else { 36 };
            let header = ForgedHeader {
                mode: 0,
                kind: open[4],
                flags: 0,
                group,
                epoch: u64_of(&open[8..16]),
                number: u64_of(&open[16..24]),
                count: u64_of(&open[24..32]),
                uptime_ms: u64_of(&open[32..36]) as u32,
                receiver: u64_of(&open[36..records_at]),
            };
            let sealed = secret.seal(header, &open[records_at..open.len() - 4]);
            assert_eq!(sealed, known_answers(&format!("sealed-{name}"))[party], "{name} of party {party}");
        }
    }
}

#[test]
fn line_of_a_key_log_is_read() {
    let digits = "a5".repeat(32);
    let secret =
        SenderSecret { mode: CHACHA, phase: 3, group: 7500, epoch: 0x1f, receiver: Some(0x2e), secret: vec![0xa5; 32] };
    let line = format!("7500 000000000000001f 000000000000002e chacha20-poly1305 3 {digits}");
    assert_eq!(SenderSecret::parse(&line), Some(secret.clone()));
    let line = line.replace("000000000000002e", "-");
    assert_eq!(SenderSecret::parse(&line), Some(SenderSecret { receiver: None, ..secret }));
}
