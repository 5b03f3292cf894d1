//! The lines that people carry from host to host: they set up a realm.
//!
//! ```text
//! seqcast-join:          a realm with its secret
//! seqcast-request:       the certificate that a host signed itself, to be replaced by one of the authority
//! seqcast-certificate:   a certificate of the authority
//! ```
//!
//! After the colon stands the content in base64 (RFC 4648, section 5, without padding). The last four bytes are a
//! CRC-32C of the text up to the colon and of all bytes before them. It finds every wrong character, and every two
//! swapped neighbours. The content of a join line:
//!
//! ```text
//! +-------------+----------------------------+------------+-------------+-------------+-----------------+
//! | version = 1 | mode: 0 = realm, 1 = pki   | length (1) | realm name  | secret (32) | authority's key |
//! +-------------+----------------------------+------------+-------------+-------------+-----------------+
//! ```
//!
//! The authority's Ed25519 public key, 32 bytes, is present in the mode `pki` only.

use super::certificate::{CERTIFICATE_BYTES_MAX, Certificate, CertificateError};
use super::definition::{Realm, TrustAnchor};
use crate::security::secret::Secret;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fmt;
use zeroize::Zeroizing;

/// Maximum length of a line in bytes.
pub const SETUP_LINE_BYTES_MAX: usize =
    KIND_BYTES_MAX + (CERTIFICATE_BYTES_MAX + CHECK_BYTES).div_ceil(3).saturating_mul(4);

/// Maximum length of the text up to the colon.
const KIND_BYTES_MAX: usize = 20;
/// Bytes of the check value.
const CHECK_BYTES: usize = 4;
/// Version of the content of a join line.
const VERSION: u8 = 1;
/// Modes in a join line.
const REALM_MODE: u8 = 0;
const PKI_MODE: u8 = 1;

const _: () = assert!("seqcast-certificate:".len() == KIND_BYTES_MAX);

/// Kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupLineKind {
    /// `seqcast-join:`
    Join,
    /// `seqcast-request:`
    Request,
    /// `seqcast-certificate:`
    Certificate,
}

impl SetupLineKind {
    const ALL: [SetupLineKind; 3] = [SetupLineKind::Join, SetupLineKind::Request, SetupLineKind::Certificate];

    /// Returns the text at the start of the lines of this kind, with its colon.
    pub fn prefix(self) -> &'static str {
        match self {
            SetupLineKind::Join => "seqcast-join:",
            SetupLineKind::Request => "seqcast-request:",
            SetupLineKind::Certificate => "seqcast-certificate:",
        }
    }
}

/// A line with its content.
#[derive(Clone, Debug)]
pub enum SetupLine {
    /// A realm. The line holds its secret.
    Join(Realm),
    /// The certificate that a host signed itself; the signature is correct.
    Request(Certificate),
    /// A certificate; the signature is not checked yet.
    Certificate(Certificate),
}

/// Reason why a text is no line, or is a damaged one. It holds nothing of the content.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetupLineError {
    /// The text does not begin like a line.
    Unknown,
    /// The line exceeds [`SETUP_LINE_BYTES_MAX`].
    TooLong,
    /// The line has this character, which no line contains.
    Character(char),
    /// A character is wrong, missing or superfluous.
    Damaged,
    /// The content has this unknown version.
    Version(u8),
    /// The content of a join line is invalid.
    Content,
    /// The certificate is malformed.
    Certificate(CertificateError),
    /// The certificate of a request is not signed by the host itself.
    Forged,
}

impl fmt::Display for SetupLineError {
    /// Formats the problem, and the remedy after `; `.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [join, request, certificate] = SetupLineKind::ALL.map(SetupLineKind::prefix);
        let again = "copy the whole line again";
        match self {
            SetupLineError::Unknown => {
                write!(f, "the line does not begin with {join}, {request} or {certificate}; {again}")
            }
            SetupLineError::TooLong => {
                write!(f, "the line has more than {SETUP_LINE_BYTES_MAX} characters; copy this line alone")
            }
            SetupLineError::Character(c) => write!(f, "the line contains {c:?}, which no such line does; {again}"),
            SetupLineError::Damaged => write!(f, "a character of the line is wrong, missing or superfluous; {again}"),
            SetupLineError::Version(version) => write!(
                f,
                "the line has the version {version}, and this program knows version {VERSION}; update seqcast on this \
                 host"
            ),
            SetupLineError::Content => write!(f, "the content of the line is invalid; make a new line"),
            SetupLineError::Certificate(error @ CertificateError::Version(_)) => {
                write!(f, "{error}; update seqcast on this host")
            }
            SetupLineError::Certificate(error) => write!(f, "{error}; make a new line"),
            SetupLineError::Forged => {
                write!(f, "the host that made the request did not sign it; make a new request on that host")
            }
        }
    }
}

impl std::error::Error for SetupLineError {}

impl SetupLine {
    /// Returns the kind of the line.
    pub fn kind(&self) -> SetupLineKind {
        match self {
            SetupLine::Join(_) => SetupLineKind::Join,
            SetupLine::Request(_) => SetupLineKind::Request,
            SetupLine::Certificate(_) => SetupLineKind::Certificate,
        }
    }

    /// Returns the line as text. That of a realm is a secret.
    pub fn text(&self) -> Zeroizing<String> {
        match self {
            SetupLine::Join(realm) => encode_line(self.kind(), join_content(realm)),
            SetupLine::Request(certificate) | SetupLine::Certificate(certificate) => {
                encode_line(self.kind(), Zeroizing::new(certificate.encode()))
            }
        }
    }

    /// Reads a line. White space anywhere in it, such as line breaks of a mail, is left out.
    ///
    /// # Errors
    /// Returns the reason why the text is no line.
    pub fn parse(text: &str) -> Result<SetupLine, SetupLineError> {
        let mut line = Zeroizing::new(String::with_capacity(text.len().min(SETUP_LINE_BYTES_MAX)));
        for word in text.split_whitespace() {
            if SETUP_LINE_BYTES_MAX < line.len() + word.len() {
                return Err(SetupLineError::TooLong);
            }
            line.push_str(word);
        }
        let kind = SetupLineKind::ALL.into_iter().find(|kind| line.starts_with(kind.prefix()));
        let kind = kind.ok_or(SetupLineError::Unknown)?;
        let content = decode_content(kind, &line[kind.prefix().len()..])?;
        match kind {
            SetupLineKind::Join => read_join(&content).map(SetupLine::Join),
            SetupLineKind::Request => match Certificate::decode(&content).map_err(SetupLineError::Certificate)? {
                request if request.is_own() && request.is_intact() => Ok(SetupLine::Request(request)),
                _ => Err(SetupLineError::Forged),
            },
            SetupLineKind::Certificate => {
                Certificate::decode(&content).map(SetupLine::Certificate).map_err(SetupLineError::Certificate)
            }
        }
    }
}

fn check_value(kind: SetupLineKind, content: &[u8]) -> [u8; CHECK_BYTES] {
    crc32c::crc32c_append(crc32c::crc32c(kind.prefix().as_bytes()), content).to_be_bytes()
}

fn encode_line(kind: SetupLineKind, mut content: Zeroizing<Vec<u8>>) -> Zeroizing<String> {
    let check = check_value(kind, &content);
    content.extend(check);
    // A string that grows would leave copies of a secret behind.
    let mut line = Zeroizing::new(String::with_capacity(SETUP_LINE_BYTES_MAX));
    line.push_str(kind.prefix());
    URL_SAFE_NO_PAD.encode_string(content.as_slice(), &mut line);
    line
}

fn decode_content(kind: SetupLineKind, text: &str) -> Result<Zeroizing<Vec<u8>>, SetupLineError> {
    let is_digit = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if let Some(c) = text.chars().find(|c| !is_digit(*c)) {
        return Err(SetupLineError::Character(c));
    }
    let mut content = Zeroizing::new(URL_SAFE_NO_PAD.decode(text).map_err(|_| SetupLineError::Damaged)?);
    let length = content.len().checked_sub(CHECK_BYTES).ok_or(SetupLineError::Damaged)?;
    if content[length..] != check_value(kind, &content[..length]) {
        return Err(SetupLineError::Damaged);
    }
    content.truncate(length);
    Ok(content)
}

/// Returns the content of the join line of a realm.
fn join_content(realm: &Realm) -> Zeroizing<Vec<u8>> {
    let name = realm.name.as_str().as_bytes();
    // No growth leaves copies of the secret behind.
    let mut content = Zeroizing::new(Vec::with_capacity(256));
    let (mode, authority) = match &realm.anchor {
        TrustAnchor::OwnKey => (REALM_MODE, &[][..]),
        TrustAnchor::Authority(key) => (PKI_MODE, &key[..]),
    };
    content.extend([VERSION, mode, u8::try_from(name.len()).expect("a realm name has at most 64 bytes")]);
    for part in [name, &realm.secret.bytes()[..], authority] {
        content.extend(part);
    }
    content
}

fn read_join(content: &[u8]) -> Result<Realm, SetupLineError> {
    let (version, rest) = content.split_first().ok_or(SetupLineError::Content)?;
    if *version != VERSION {
        return Err(SetupLineError::Version(*version));
    }
    read_realm(rest).ok_or(SetupLineError::Content)
}

/// Reads a realm from the bytes behind the version.
fn read_realm(bytes: &[u8]) -> Option<Realm> {
    let ([mode, length], rest) = bytes.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    let name = std::str::from_utf8(name).ok()?.parse().ok()?;
    let (secret, rest) = rest.split_first_chunk()?;
    let anchor = match (*mode, rest) {
        (REALM_MODE, []) => TrustAnchor::OwnKey,
        (PKI_MODE, key) => TrustAnchor::Authority(key.try_into().ok()?),
        _ => return None,
    };
    Some(Realm { name, anchor, secret: Secret::new(*secret) })
}

#[cfg(test)]
mod tests {
    use super::super::certificate::PeerPermissions;
    use super::super::identity::HostIdentity;
    use super::*;

    fn realm(anchor: TrustAnchor) -> Realm {
        Realm { name: "plant1".parse().unwrap(), anchor, secret: Secret::new([0x5a; 32]) }
    }

    fn own_certificate() -> Certificate {
        let (realm, name) = ("plant1".parse().unwrap(), "A.test".parse().unwrap());
        Certificate::sign_own(realm, name, &HostIdentity::from_seed(&[1; 32]), PeerPermissions::default(), 3).unwrap()
    }

    fn lines() -> [SetupLine; 4] {
        let certificate = own_certificate();
        [
            SetupLine::Join(realm(TrustAnchor::OwnKey)),
            SetupLine::Join(realm(TrustAnchor::Authority([7; 32]))),
            SetupLine::Request(certificate.clone()),
            SetupLine::Certificate(certificate),
        ]
    }

    #[test]
    fn join_line_has_the_documented_content() {
        let text = lines()[0].text();
        let content = URL_SAFE_NO_PAD.decode(text.strip_prefix("seqcast-join:").unwrap()).unwrap();
        let expected = [b"\x01\x00\x06plant1", &[0x5a; 32][..]].concat();
        let check = crc32c::crc32c(&[b"seqcast-join:", &expected[..]].concat()).to_be_bytes();
        assert_eq!(content, [&expected[..], &check].concat());
    }

    #[test]
    fn lines_are_read_back_with_white_space() {
        for line in lines() {
            let text = line.text();
            let (first, second) = text.split_at(40);
            for text in [text.to_string(), format!("  {first}\r\n\t{second}\n")] {
                let again = SetupLine::parse(&text).unwrap();
                assert_eq!((again.kind(), again.text()), (line.kind(), line.text()));
            }
        }
    }

    #[test]
    fn each_changed_character_is_refused() {
        for line in lines() {
            let text = line.text();
            for at in 0..text.len() {
                for other in "AZaz09-_:=+/. ü".chars().filter(|c| !text[at..].starts_with(*c)) {
                    let changed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
                    assert!(SetupLine::parse(&changed).is_err(), "{other:?} at {at}");
                }
            }
        }
    }

    #[test]
    fn missing_doubled_and_swapped_characters_are_refused() {
        for line in lines() {
            let text = line.text();
            for at in 0..text.len() {
                let (before, after) = text.split_at(at);
                let missing = format!("{before}{}", &after[1..]);
                let doubled = format!("{before}{}{after}", &after[..1]);
                assert!(SetupLine::parse(&missing).is_err() && SetupLine::parse(&doubled).is_err(), "at {at}");
                let mut swapped = text.as_bytes().to_vec();
                if at + 1 < swapped.len() && swapped[at] != swapped[at + 1] {
                    swapped.swap(at, at + 1);
                    assert!(SetupLine::parse(std::str::from_utf8(&swapped).unwrap()).is_err(), "swapped at {at}");
                }
            }
        }
    }

    #[test]
    fn problems_of_lines_are_named() {
        let check = |text: &str, expected: SetupLineError| {
            assert_eq!(SetupLine::parse(text).err(), Some(expected), "{text}");
        };
        let line = |content: &[u8]| encode_line(SetupLineKind::Join, Zeroizing::new(content.to_vec()));
        let content = join_content(&realm(TrustAnchor::OwnKey));
        check("hello", SetupLineError::Unknown);
        check("", SetupLineError::Unknown);
        check("seqcast-join:", SetupLineError::Damaged);
        check("seqcast-join:ab!", SetupLineError::Character('!'));
        check(&"x".repeat(SETUP_LINE_BYTES_MAX + 1), SetupLineError::TooLong);
        check(&line(&[]), SetupLineError::Content);
        check(&line(&[&[2][..], &content[1..]].concat()), SetupLineError::Version(2));
        check(&line(&[&content[..1], &[1], &content[2..]].concat()), SetupLineError::Content);
        check(&line(&[&content[..1], &[2], &content[2..]].concat()), SetupLineError::Content);
        check(&line(&[&content[..], &[0]].concat()), SetupLineError::Content);
        check(&line(&content[..content.len() - 1]), SetupLineError::Content);
        let mut other = own_certificate();
        other.fields.serial += 1;
        check(&SetupLine::Request(other.clone()).text(), SetupLineError::Forged);
        assert!(SetupLine::parse(&SetupLine::Certificate(other).text()).is_ok());
    }

    #[test]
    fn longest_certificate_fits_in_a_line() {
        let content = Zeroizing::new(vec![0; CERTIFICATE_BYTES_MAX]);
        let line = encode_line(SetupLineKind::Certificate, content);
        assert!(line.len() <= SETUP_LINE_BYTES_MAX, "{}", line.len());
        assert_eq!(SetupLine::parse(&line).err(), Some(SetupLineError::Certificate(CertificateError::Magic)));
    }
}
