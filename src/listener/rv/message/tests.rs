//! Known messages, random messages, and damaged ones.

use super::*;
use crate::rng::Rng;

/// Parses hexadecimal digits; spaces and bars between them have no meaning.
fn bytes(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| byte.is_ascii_hexdigit()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn encoded(message: &RvMessage<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&mut out).unwrap();
    out
}

fn one(id: Option<u16>, name: &'static str, value: RvValue<'static>) -> RvMessage<'static> {
    RvMessage { fields: vec![RvField { name: name.as_bytes(), id, value }] }
}

fn check(text: &str, expected: &RvMessage<'_>) {
    let known = bytes(text);
    assert_eq!(RvMessage::decode(&known).as_ref(), Ok(expected), "{text}");
    assert_eq!(encoded(expected), known, "{text}");
}

#[test]
fn known_messages_decode_and_encode() {
    check("00000008 9955eeaa", &RvMessage::default());
    for (text, value) in [
        ("00000011 9955eeaa | 02 6600 | 0b | 04 | fffeee90", RvValue::I32(-70_000)),
        ("00000015 9955eeaa | 02 6600 | 0c | 08 | 8000000000000000", RvValue::U64(1 << 63)),
        ("00000011 9955eeaa | 02 6600 | 0d | 04 | 3fc00000", RvValue::F32(1.5)),
        ("00000012 9955eeaa | 02 6600 | 08 | 05 | 7465787400", RvValue::String(b"text")),
        ("00000011 9955eeaa | 02 6600 | 0a | 04 | 0a040416", RvValue::IpAddress(Ipv4Addr::new(10, 4, 4, 22))),
        ("0000000f 9955eeaa | 02 6600 | 0a | 02 | 1d4c", RvValue::IpPort(7500)),
        ("0000000e 9955eeaa | 02 6600 | 09 | 01 | 01", RvValue::Bool(true)),
        (
            "00000015 9955eeaa | 02 6600 | 03 | 08 | 6553f100 0001e240",
            RvValue::DateTime { secs: 1_700_000_000, micros: 123_456 },
        ),
        (
            "00000013 9955eeaa | 02 6600 | 24 | 06 | ffff 0000 0001",
            RvValue::Array(RvArray { element: RvElement::I16, bytes: b"\xff\xff\0\0\0\x01" }),
        ),
        (
            "0000001a 9955eeaa | 02 6600 | 30 | 0d | 00000003 6f6e6500 74776f00 00",
            RvValue::Strings(vec![b"one", b"two", b""]),
        ),
        (
            "0000001f 9955eeaa | 02 6600 | 2f | 12 | 09 789cb349b4cbc8b4d14fb403000dd902b7",
            RvValue::Xml {
                text_bytes: 9,
                compressed: b"\x78\x9c\xb3\x49\xb4\xcb\xc8\xb4\xd1\x4f\xb4\x03\x00\x0d\xd9\x02\xb7",
            },
        ),
        (
            "0000001d 9955eeaa | 02 6600 | 01 | 7a | 00000010 9955eeaa 03 696e00 08 02 7800",
            RvValue::Message(one(None, "in", RvValue::String(b"x"))),
        ),
        (
            "00000035 9955eeaa | 02 6600 | 31 | 7a 00000028 | 00000002 |\
             00000010 9955eeaa 03 696e00 08 02 7800 | 00000010 9955eeaa 03 696e00 08 02 7900",
            RvValue::Messages(vec![one(None, "in", RvValue::String(b"x")), one(None, "in", RvValue::String(b"y"))]),
        ),
        (
            "0000001b 9955eeaa | 02 6600 | 02 79 000e | 02 | 06 54455354 00 | 05 535542 00",
            RvValue::Subject(vec![b"TEST", b"SUB"]),
        ),
    ] {
        check(text, &one(None, "f", value));
    }
    check("00000014 9955eeaa | 04 6600 1234 | 08 | 05 | 7465787400", &one(Some(0x1234), "f", RvValue::String(b"text")));
    check("00000012 9955eeaa | 03 00 004d | 0b | 04 | 00000007", &one(Some(77), "", RvValue::I32(7)));
    let opaque = format!("00000087 9955eeaa | 02 6600 | 07 | 79 007a | {}", "78".repeat(120));
    check(&opaque, &one(None, "f", RvValue::Opaque(&[b'x'; 120])));
}

/// Readers accept more than writers write.
#[test]
fn other_forms_decode_to_shortest_form() {
    for (text, canonical) in [
        // A name that is a NUL only, long forms of a short size, a size of 120 in one byte.
        ("0000000d 9955eeaa 0100 09 01 01", "0000000c 9955eeaa 00 09 01 01"),
        ("00000010 9955eeaa 02 6600 07 79 0003 78", "0000000e 9955eeaa 02 6600 07 01 78"),
        ("00000012 9955eeaa 02 6600 07 7a 00000005 78", "0000000e 9955eeaa 02 6600 07 01 78"),
        // A string without its NUL, a truth value of four bytes, a subject whose size has one byte.
        ("0000000f 9955eeaa 02 6600 08 02 6869", "00000010 9955eeaa 02 6600 08 03 686900"),
        ("00000011 9955eeaa 02 6600 09 04 00000001", "0000000e 9955eeaa 02 6600 09 01 01"),
        ("00000011 9955eeaa 02 6600 02 04 01 03 61 00", "00000013 9955eeaa 02 6600 02 79 0006 01 03 61 00"),
    ] {
        let known = bytes(text);
        let message = RvMessage::decode(&known).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(encoded(&message), bytes(canonical), "{text}");
    }
    let (size_120, data) = ("00000085 9955eeaa 02 6600 07 78", "78".repeat(120));
    let known = bytes(&format!("{size_120}{data}"));
    assert_eq!(RvMessage::decode(&known), Ok(one(None, "f", RvValue::Opaque(&[b'x'; 120]))));
}

#[test]
fn malformed_messages_are_refused() {
    for (text, expected) in [
        ("", RvDecodeError::Length),
        ("00000008 9955ee", RvDecodeError::Length),
        ("00000009 9955eeaa", RvDecodeError::Length),
        ("00000000 9955eeaa", RvDecodeError::Length),
        ("00000008 9955eeab", RvDecodeError::Magic),
        ("00000009 9955eeaa 05", RvDecodeError::Bounds),
        ("0000000d 9955eeaa 02 6600 07 02", RvDecodeError::Bounds),
        ("0000000f 9955eeaa 02 6600 07 79 0001", RvDecodeError::Bounds),
        ("00000011 9955eeaa 02 6600 07 7a 00000003", RvDecodeError::Bounds),
        ("00000011 9955eeaa 02 6600 07 7a ffffffff", RvDecodeError::Bounds),
        ("0000000c 9955eeaa 01 66 09 00", RvDecodeError::Name),
        ("00000012 9955eeaa 06 61 00 62 63 64 00 09 01 01", RvDecodeError::Name),
        ("0000000d 9955eeaa 02 6600 09 00", RvDecodeError::Size(9)),
        ("00000010 9955eeaa 02 6600 0b 03 010203", RvDecodeError::Size(11)),
        ("00000010 9955eeaa 02 6600 24 03 010203", RvDecodeError::Size(0x24)),
        ("0000000d 9955eeaa 02 6600 00 00", RvDecodeError::Kind(0)),
        ("0000000d 9955eeaa 02 6600 80 00", RvDecodeError::Kind(128)),
        ("0000000d 9955eeaa 02 6600 02 00", RvDecodeError::Subject),
        ("0000000e 9955eeaa 02 6600 02 01 00", RvDecodeError::Subject),
        ("00000010 9955eeaa 02 6600 02 03 01 02 00", RvDecodeError::Subject),
        ("00000011 9955eeaa 02 6600 02 04 02 03 61 00", RvDecodeError::Subject),
        ("00000011 9955eeaa 02 6600 02 04 01 03 2e 00", RvDecodeError::Subject),
        ("00000011 9955eeaa 02 6600 02 04 01 03 61 01", RvDecodeError::Subject),
        ("00000015 9955eeaa 02 6600 01 08 00000008 9955eeaa", RvDecodeError::Size(1)),
        ("00000015 9955eeaa 02 6600 01 7a 00000007 9955eeaa", RvDecodeError::Length),
        ("00000015 9955eeaa 02 6600 01 7a 00000000 9955eeaa", RvDecodeError::Length),
        ("00000015 9955eeaa 02 6600 01 7a 00000008 9955eeab", RvDecodeError::Magic),
        ("00000011 9955eeaa 02 6600 30 04 00000001", RvDecodeError::Size(48)),
        ("00000012 9955eeaa 02 6600 30 05 00000000 00", RvDecodeError::Size(48)),
        ("00000011 9955eeaa 02 6600 31 04 ffffffff", RvDecodeError::Bounds),
    ] {
        let mut known = bytes(text);
        // The table need not count: a message that names more than eight bytes has its own length.
        if known.len() > 9 {
            let length = (known.len() as u32).to_be_bytes();
            known[..4].copy_from_slice(&length);
        }
        assert_eq!(RvMessage::decode(&known), Err(expected), "{text}");
    }
}

#[test]
fn nesting_and_numbers_of_items_are_limited() {
    let nested =
        |depth: usize| (1..depth).fold(RvMessage::default(), |message, _| one(None, "m", RvValue::Message(message)));
    assert!(RvMessage::decode(&encoded(&nested(DEPTH_MAX))).is_ok());
    assert_eq!(RvMessage::decode(&encoded(&nested(DEPTH_MAX + 1))), Err(RvDecodeError::Depth));
    assert_eq!(RvMessage::decode(&encoded(&nested(200))), Err(RvDecodeError::Depth));
    for (count, is_valid) in [(ITEMS_MAX - 1, true), (ITEMS_MAX, false)] {
        let strings = one(None, "s", RvValue::Strings(vec![b""; count]));
        assert_eq!(RvMessage::decode(&encoded(&strings)).is_ok(), is_valid, "{count}");
    }
}

#[test]
fn values_that_cannot_be_expressed_are_refused() {
    let long = [b'x'; NAME_BYTES_MAX + 1];
    let field = |name, id, value| RvField { name, id, value }.encode(&mut Vec::new());
    assert_eq!(field(&long[..NAME_BYTES_MAX], None, RvValue::I8(1)), Ok(()));
    assert_eq!(field(&long, None, RvValue::I8(1)), Err(RvEncodeError::Name));
    assert_eq!(field(&long[..NAME_BYTES_MAX - 1], Some(1), RvValue::I8(1)), Err(RvEncodeError::Name));
    assert_eq!(field(b"a\0b", None, RvValue::I8(1)), Err(RvEncodeError::Name));
    let elements = [&b""[..], b"a.b", b"a\0", &long[..ELEMENT_BYTES_MAX + 1]];
    for element in elements {
        assert_eq!(field(b"s", None, RvValue::Subject(vec![element])), Err(RvEncodeError::Subject));
    }
    assert_eq!(field(b"s", None, RvValue::Subject(vec![])), Err(RvEncodeError::Subject));
    assert_eq!(field(b"s", None, RvValue::Subject(vec![b"a"; 256])), Err(RvEncodeError::Subject));
    assert_eq!(field(b"s", None, RvValue::Subject(vec![&long[..ELEMENT_BYTES_MAX]; 255])), Ok(()));
    assert_eq!(field(b"s", None, RvValue::Strings(vec![b"\0"])), Err(RvEncodeError::String));
    let array = RvArray { element: RvElement::F64, bytes: &long[..9] };
    assert_eq!(field(b"s", None, RvValue::Array(array)), Err(RvEncodeError::Array));
}

/// Bytes from which random values borrow.
static POOL: [u8; 40_000] = [b'p'; 40_000];

fn random_bytes(rng: &mut Rng) -> &'static [u8] {
    let size = [rng.below(4), rng.below(200), rng.below(40_000)][rng.below(3) as usize];
    &POOL[..size as usize]
}

fn random_message(rng: &mut Rng, depth: u64) -> RvMessage<'static> {
    let field = |rng: &mut Rng| RvField {
        name: &POOL[..rng.below(253) as usize],
        id: rng.chance(0.2).then(|| rng.next_u32() as u16),
        value: random_value(rng, depth),
    };
    RvMessage { fields: (0..rng.below(6)).map(|_| field(rng)).collect() }
}

fn random_value(rng: &mut Rng, depth: u64) -> RvValue<'static> {
    let bits = rng.next_u64();
    match rng.below(if depth == 0 { 21 } else { 23 }) {
        0 => RvValue::Subject((0..rng.between(1, 255)).map(|_| &POOL[..rng.between(1, 253) as usize]).collect()),
        1 => RvValue::DateTime { secs: bits as u32, micros: (bits >> 32) as u32 },
        2 => RvValue::Opaque(random_bytes(rng)),
        3 => RvValue::String(random_bytes(rng)),
        4 => RvValue::Bool(rng.chance(0.5)),
        5 => RvValue::IpAddress(Ipv4Addr::from_bits(bits as u32)),
        6 => RvValue::IpPort(bits as u16),
        7 => RvValue::I8(bits as i8),
        8 => RvValue::I16(bits as i16),
        9 => RvValue::I32(bits as i32),
        10 => RvValue::I64(bits as i64),
        11 => RvValue::U8(bits as u8),
        12 => RvValue::U16(bits as u16),
        13 => RvValue::U32(bits as u32),
        14 => RvValue::U64(bits),
        15 => RvValue::F32(bits as f32),
        16 => RvValue::F64(bits as f64),
        17 => RvValue::Encrypted(random_bytes(rng)),
        18 => {
            let (element, bytes) = (ELEMENTS[rng.below(10) as usize].1, random_bytes(rng));
            RvValue::Array(RvArray { element, bytes: &bytes[bytes.len() % element.width()..] })
        }
        19 => RvValue::Xml { text_bytes: bits as u32 >> rng.between(4, 31), compressed: random_bytes(rng) },
        20 => RvValue::Strings((0..rng.below(5)).map(|_| random_bytes(rng)).collect()),
        21 => RvValue::Message(random_message(rng, depth - 1)),
        _ => RvValue::Messages((0..rng.below(4)).map(|_| random_message(rng, depth - 1)).collect()),
    }
}

/// Checks that bytes which decode also encode, and decode to the same message again.
fn check_round_trip(bytes: &[u8]) -> bool {
    let Ok(message) = RvMessage::decode(bytes) else { return false };
    let again = encoded(&message);
    let decoded = RvMessage::decode(&again).expect("an encoded message");
    // Numbers that are no numbers are not equal to themselves.
    assert_eq!(format!("{decoded:?}"), format!("{message:?}"));
    assert_eq!(encoded(&decoded), again);
    true
}

#[test]
fn random_messages_round_trip() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let message = random_message(&mut rng, 3);
        let bytes = encoded(&message);
        assert_eq!(RvMessage::decode(&bytes).as_ref(), Ok(&message), "seed {seed}");
        let walked: usize = fields(&bytes).unwrap().map(|field| field.unwrap().bytes.len()).sum();
        assert_eq!(walked + HEAD_BYTES, bytes.len(), "seed {seed}");
    }
}

#[test]
fn damaged_messages_never_panic() {
    let mut decoded = 0;
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let bytes = encoded(&random_message(&mut rng, 2));
        let mut bytes = bytes[..bytes.len().min(600)].to_vec();
        for _ in 0..20 {
            let cut = rng.below(bytes.len() as u64 + 1) as usize;
            check_round_trip(&bytes[..cut]);
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u32() as u8;
            let length = (bytes.len() as u32).to_be_bytes();
            bytes[..4].copy_from_slice(&length);
            decoded += usize::from(check_round_trip(&bytes));
        }
    }
    assert!(100 < decoded, "{decoded}");
}

fn check_text(text: &str, written: &str) {
    let bytes = encode_text(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(RvMessage::decode(&bytes).expect("an encoded message").to_string(), written, "{text}");
    assert_eq!(encode_text(written), Ok(bytes), "{text}");
}

#[test]
fn texts_are_messages() {
    for (text, written) in [
        ("", ""),
        ("price=21.5", "price=21.5"),
        (
            " sym = IBM , size=100, big=3000000000, huge=18446744073709551615, open=true",
            r#"sym="IBM", size=100, big:i64=3000000000, huge:u64=18446744073709551615, open=true"#,
        ),
        (r#"note="a, \"b\"\x00\n""#, r#"note="a, \"b\"\x00\n""#),
        ("n:u16=5, r:f32=1, nan:f64=NaN, i:i8=-1", "n:u16=5, r:f32=1.0, nan:f64=NaN, i:i8=-1"),
        ("in={x=1, deep={}}, l=[{a=1}, {}]", "in={x=1, deep={}}, l:msg[]=[{a=1}, {}]"),
        (
            "a=[1, 2], b=[1.5,2], c=[one, two], d:u8[]=[]",
            r#"a:i32[]=[1, 2], b:f64[]=[1.5, 2.0], c:string[]=["one", "two"], d:u8[]=[]"#,
        ),
        (
            "raw:opaque=0x00ff, key:encrypted=0x, doc:xml=9:0x789c",
            "raw:opaque=0x00ff, key:encrypted=0x, doc:xml=9:0x789c",
        ),
        (
            "at:datetime=2023-11-14T22:13:20.123456Z, ip:ip=10.4.4.22, port:port=7500",
            "at:datetime=2023-11-14T22:13:20.123456Z, ip:ip=10.4.4.22, port:port=7500",
        ),
        ("to:subject=TEST.SUB", r#"to:subject="TEST.SUB""#),
        (r##""two words"#77=1, #78=x, =y, a="inf", b=inf"##, r##""two words"#77=1, #78="x", ="y", a="inf", b="inf""##),
        (r#"n:i64="7", s:string=7"#, r#"n:i64=7, s="7""#),
    ] {
        check_text(text, written);
    }
}

#[test]
fn malformed_texts_name_their_mistake() {
    for (text, expected) in [
        ("price", "the text ends where '=' and a value is expected (column 6)"),
        ("a=1 b=2", "a text with = \" { or [ needs quotes (column 6)"),
        ("a=\"x", "the text in quotes does not end (column 3)"),
        ("a=\"\\q\"", "after a backslash in quotes"),
        ("a={b=1", "the text ends where a comma or '}' is expected (column 7)"),
        ("a=1}", "a comma or the end is expected before '}' (column 4)"),
        ("a b=1", "a name needs quotes"),
        ("a#70000=1", "\"70000\" is not an id (0 to 65535) (column 3)"),
        ("a:u8=256", "\"256\" is not a u8 (0 to 255) (column 6)"),
        ("a:u9=1", "the type \"u9\" is unknown"),
        ("a:opaque=0x0", "\"0x0\" is not 0x and pairs"),
        ("a:datetime=yesterday", "a time is written like"),
        ("a:datetime=1969-12-31T00:00:00Z", "is before 1970"),
        ("a:subject=x..y", "a subject has an element that is empty"),
        ("a:i8=[1]", "values in brackets are no i8"),
        ("a=[]", "an empty array needs a type"),
        ("a=[1, {}]", "has another value"),
        ("a:msg=1", "a message stands in braces"),
        ("a:i8[]=1", "i8[] stands in brackets"),
    ] {
        let error = encode_text(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let deep = |levels: usize| format!("{}a=1{}", "a={".repeat(levels), "}".repeat(levels));
    assert!(encode_text(&deep(DEPTH_MAX - 1)).is_ok());
    assert!(encode_text(&deep(DEPTH_MAX)).unwrap_err().reason.contains("nested deeper than 32"));
    assert!(encode_text(&format!("a={}", "[".repeat(10_000))).unwrap_err().reason.contains("nested deeper than 32"));
}

#[test]
fn random_messages_are_their_texts() {
    for seed in 0..60 {
        let text = random_message(&mut Rng::new(seed), 3).to_string();
        let bytes = encode_text(&text).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(RvMessage::decode(&bytes).expect("an encoded message").to_string(), text, "seed {seed}");
    }
}

#[test]
fn fields_are_json() {
    let text = r##"a=1, b#7="x", c={d=[1, 2]}, e:f64=inf, f:opaque=0x00, g=[{}], h=["y"], i:u64=18446744073709551615"##;
    let bytes = encode_text(text).expect("a valid text");
    assert_eq!(
        json(&RvMessage::decode(&bytes).expect("an encoded message")),
        serde_json::json!([
            { "name": "a", "type": "i32", "value": 1 },
            { "name": "b", "id": 7, "type": "string", "value": "x" },
            { "name": "c", "type": "msg", "value": [{ "name": "d", "type": "i32[]", "value": [1, 2] }] },
            { "name": "e", "type": "f64", "value": "inf" },
            { "name": "f", "type": "opaque", "value": "0x00" },
            { "name": "g", "type": "msg[]", "value": [[]] },
            { "name": "h", "type": "string[]", "value": ["y"] },
            { "name": "i", "type": "u64", "value": u64::MAX },
        ])
    );
}
