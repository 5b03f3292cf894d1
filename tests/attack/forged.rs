//! Datagrams as another implementation writes them, by hand from `docs/wire.md`. Nothing here is code of the product.

/// Mode of open datagrams.
pub const OPEN: u8 = 0;
/// Modes of keyed datagrams.
pub const KEYED: [u8; 2] = [1, 2];
/// Kinds of datagrams.
pub const DATA: u8 = 0;
pub const DIRECTED: u8 = 1;
pub const CONTROL: u8 = 2;
pub const HANDSHAKE: u8 = 3;

/// Bytes of a REQUEST and of a COOKIE.
pub const REQUEST_BYTES: usize = 80;
/// Bytes of an INIT.
pub const INIT_BYTES: usize = 1200;

/// Header of a datagram, 36 bytes, or 44 of a DIRECTED one.
#[derive(Clone, Copy, Debug)]
pub struct ForgedHeader {
    pub mode: u8,
    pub kind: u8,
    pub flags: u8,
    pub group: u16,
    pub epoch: u64,
    pub number: u64,
    pub count: u64,
    /// Milliseconds since the start of the epoch, as claimed.
    pub uptime_ms: u32,
    /// Epoch of the receiver; only DIRECTED has it.
    pub receiver: u64,
}

impl ForgedHeader {
    /// Returns the bytes of the header.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0x53, 0x43, 1, self.mode, self.kind, self.flags];
        bytes.extend(self.group.to_be_bytes());
        for value in [self.epoch, self.number, self.count] {
            bytes.extend(value.to_be_bytes());
        }
        bytes.extend(self.uptime_ms.to_be_bytes());
        if self.kind == DIRECTED {
            bytes.extend(self.receiver.to_be_bytes());
        }
        bytes
    }

    /// Returns a datagram of open mode with a correct check value.
    pub fn open(&self, records: &[u8]) -> Vec<u8> {
        let mut bytes = ForgedHeader { mode: OPEN, flags: 0, ..*self }.bytes();
        bytes.extend(records);
        bytes.extend(crc32c(&bytes).to_be_bytes());
        bytes
    }

    /// Returns a datagram of a keyed mode whose records and tag are random.
    pub fn sealed_without_key(&self, sealed_bytes: usize, mut random: impl FnMut() -> u8) -> Vec<u8> {
        let mut bytes = self.bytes();
        bytes.extend((0..sealed_bytes + TAG_BYTES).map(|_| random()));
        bytes
    }
}

/// Returns a datagram of a handshake whose nonce, body and tag are random.
pub fn encode_handshake(
    step: u8,
    group: u16,
    epochs: [u64; 2],
    bytes_all: usize,
    mut random: impl FnMut() -> u8,
) -> Vec<u8> {
    let mut bytes = vec![0x53, 0x43, 1, 1, HANDSHAKE, step];
    bytes.extend(group.to_be_bytes());
    bytes.extend(epochs[0].to_be_bytes());
    bytes.extend(epochs[1].to_be_bytes());
    bytes.extend((bytes.len()..bytes_all).map(|_| random()));
    bytes
}

/// Returns a RUN of one message without a seq.
pub fn encode_run(subject: &str, payload: &str) -> Vec<u8> {
    let mut body = encode_text(subject);
    body.extend(1u16.to_be_bytes());
    body.push(u8::try_from(payload.len()).ok().filter(|bytes| *bytes < 0x80).expect("a varint of one byte"));
    body.extend(payload.bytes());
    encode_record(0x01, 0x04, &body)
}

/// Returns one record of each control type of the specification, by its name. They claim that the publisher with this
/// epoch has sent `high` datagrams, and that everything before is gone.
pub fn control_records(name: &str, epoch: u64, high: u64) -> Vec<(&'static str, Vec<u8>)> {
    let heartbeat = encode_heartbeat(name, high);
    let hello = [&0x1234_5678_u64.to_be_bytes()[..], &[1], &heartbeat].concat();
    let range = [1, high].map(u64::to_be_bytes).concat();
    let ranges = [&1u16.to_be_bytes()[..], &range].concat();
    let addressed = |numbers: &[u64]| [epoch].iter().chain(numbers).copied().flat_map(u64::to_be_bytes).collect();
    let report: Vec<u8> = addressed(&[high, 1, 1, 0]);
    let interest_request: Vec<u8> = addressed(&[0, 0]);
    let resend_request = [&epoch.to_be_bytes()[..], &ranges].concat();
    // One datagram, which held nothing.
    let manifest = [&high.to_be_bytes()[..], &high.to_be_bytes(), &1u16.to_be_bytes(), &0u16.to_be_bytes()].concat();
    // All subscriptions of the peer have ended.
    let numbers = [0, 1000, 1000, 0].map(u64::to_be_bytes).concat();
    let entry = [&[0][..], &encode_text("t.>"), &[0]].concat();
    let interest = [&numbers[..], &1u16.to_be_bytes(), &entry].concat();
    vec![
        ("HEARTBEAT", encode_record(0x40, 0, &heartbeat)),
        ("HELLO", encode_record(0x41, 0, &hello)),
        ("BYE", encode_record(0x42, 0, &heartbeat)),
        ("RESEND_REQUEST", encode_record(0x43, 0, &resend_request)),
        ("MANIFEST", encode_record(0x44, 0, &manifest)),
        ("EXPIRED", encode_record(0x45, 0, &ranges)),
        ("INTEREST", encode_record(0x48, 0, &interest)),
        ("INTEREST_REQUEST", encode_record(0x49, 0, &interest_request)),
        ("RECEIVER_REPORT", encode_record(0x4b, 0, &report)),
    ]
}

/// Returns a MANIFEST of one datagram, which held one message without a seq.
pub fn encode_manifest(first: u64, before: u64, subject: &str) -> Vec<u8> {
    let numbers = [first, before].map(u64::to_be_bytes).concat();
    let counts = [1u16, 1].map(u16::to_be_bytes).concat();
    encode_record(0x44, 0, &[&numbers[..], &counts, &[0x04], &encode_text(subject), &1u16.to_be_bytes()].concat())
}

/// Returns an EXPIRED of one datagram.
pub fn encode_expired(number: u64) -> Vec<u8> {
    encode_record(0x45, 0, &[&1u16.to_be_bytes()[..], &number.to_be_bytes(), &number.to_be_bytes()].concat())
}

/// Returns records with padding, so that they have at least this size.
pub fn padded(mut records: Vec<u8>, bytes_min: usize) -> Vec<u8> {
    let missing = bytes_min.saturating_sub(records.len() + 4);
    records.extend(encode_record(0x00, 0, &vec![0; missing]));
    records
}

/// Returns the body of HEARTBEAT and BYE.
fn encode_heartbeat(name: &str, high: u64) -> Vec<u8> {
    let mut body = [high, high + 1, high + 1].map(u64::to_be_bytes).concat();
    body.extend([1000u32, 10_000].map(u32::to_be_bytes).concat());
    body.extend([0; 24]);
    body.extend(encode_text(name));
    body
}

/// Returns a text after its length.
fn encode_text(text: &str) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(text.len()).expect("a short text")];
    bytes.extend(text.bytes());
    bytes
}

fn encode_record(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).expect("it fits a datagram");
    [&[kind, flags][..], &length.to_be_bytes(), body].concat()
}

/// Returns the CRC32C of RFC 3720, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// Uptime of forged datagrams, unless it matters.
pub const UPTIME_MS: u32 = 5000;
const TAG_BYTES: usize = 16;

#[test]
fn check_value_is_that_of_the_specification() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}
