//! The records before the first frame, the fields of an init, and the answers to it.

use super::advisory::{self, AdvisoryClass};
use super::envelope::{self, RvEnvelope, RvLetter};
use super::fault::InitError;
use super::message::{RvMessage, RvValue, fields};
use super::parser::{INFO_BYTES, VERSION_BYTES};
use super::settings::Settings;
use std::net::IpAddr;

/// Version record of both sides.
pub const VERSION: [u8; VERSION_BYTES] = [0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
/// First word of the info record with which the daemon begins.
pub const OFFER: u8 = 2;
/// First word of the info record after which frames follow.
pub const AGREED: u8 = 1;
/// Protocol version of the daemon for a client that names none.
const PROTOCOL_VERSION: [i32; 3] = [5, 4, 2];
/// Maximum size of a network text in bytes.
const NETWORK_BYTES_MAX: usize = 1679;
/// Maximum size of a user id or a session in bytes.
const NAME_BYTES_MAX: usize = 63;

/// Returns an info record with this first word.
pub fn info(word: u8) -> [u8; INFO_BYTES] {
    let mut record = [0; INFO_BYTES];
    for (at, byte) in [(3, word), (7, 2), (15, 1), (20, 4), (24, 4)] {
        record[at] = byte;
    }
    record
}

/// Fields of an init.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RvInit {
    /// Name of the user; a label only.
    pub user: String,
    /// Session that the client names.
    pub session: Option<String>,
    /// Service as text.
    pub service: Vec<u8>,
    /// Network as text.
    pub network: Vec<u8>,
    /// Protocol version of the client.
    pub version: [i32; 3],
}

impl RvInit {
    /// Reads the fields of an init. Unknown fields are ignored.
    pub fn read(envelope: &RvEnvelope<'_>) -> RvInit {
        let mut init = RvInit {
            user: "nobody".to_owned(),
            session: None,
            service: Vec::new(),
            network: Vec::new(),
            version: PROTOCOL_VERSION,
        };
        for field in fields(envelope.bytes).into_iter().flatten().flatten() {
            let name = |text: &[u8]| Some(String::from_utf8_lossy(text).into_owned()).filter(|text| is_name(text));
            match (field.name, field.value()) {
                (b"userid", Ok(RvValue::String(text))) => init.user = name(text).unwrap_or(init.user),
                (b"session", Ok(RvValue::String(text))) => init.session = name(text),
                (b"service", Ok(RvValue::String(text))) => init.service = text.to_vec(),
                (b"network", Ok(RvValue::String(text))) => init.network = text.to_vec(),
                (b"vmaj", Ok(RvValue::I32(number))) => init.version[0] = number,
                (b"vmin", Ok(RvValue::I32(number))) => init.version[1] = number,
                (b"vupd", Ok(RvValue::I32(number))) => init.version[2] = number,
                _ => {}
            }
        }
        init
    }

    /// Checks that the init names the service and the network of the peer, or none.
    ///
    /// # Errors
    /// The init names another one, or is malformed.
    pub fn check(&self, settings: &Settings) -> Result<(), InitError> {
        let service = self.service.split(|byte| *byte == b':').next().unwrap_or_default();
        if !service.is_empty() {
            let number = std::str::from_utf8(service).ok().and_then(|text| text.parse::<u16>().ok());
            let number = number.filter(|number| 0 < *number).ok_or(InitError::Service)?;
            if number != settings.service {
                return Err(InitError::OtherService);
            }
        }
        if NETWORK_BYTES_MAX < self.network.len() {
            return Err(InitError::NetworkText);
        }
        // The part before the first semicolon names the interface, which the peer has chosen.
        let network = String::from_utf8_lossy(&self.network);
        let groups = network.split(';').skip(1).flat_map(|part| part.split(','));
        let is_own = |group: &str| group.parse::<IpAddr>().is_ok_and(|group| group == settings.group);
        let is_network = groups.map(str::trim).filter(|group| !group.is_empty()).all(is_own);
        if is_network { Ok(()) } else { Err(InitError::Network) }
    }
}

/// Returns whether the text can be a user or a session: elements of a subject of limited size.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.contains(char::is_control)
}

/// Returns the answer to the first init. `gob` is the unique name of the connection.
pub fn accepted(settings: &Settings, init: &RvInit, gob: &str) -> Vec<u8> {
    let mut data = RvMessage::default();
    data.push("ipaddr", RvValue::IpAddress(settings.host));
    data.push("ipport", RvValue::IpPort(settings.service));
    // Libraries of each version then meet a daemon of their own.
    for (name, number) in ["vmaj", "vmin", "vupd"].into_iter().zip(init.version) {
        data.push(name, RvValue::I32(number));
    }
    data.push("gob", RvValue::String(gob.as_bytes()));
    envelope::frame(b"RVD.INITRESP", RvLetter::Response, None, data).expect("a valid frame")
}

/// Returns the refusal of an init.
pub fn refused(error: InitError) -> Vec<u8> {
    let mut data = RvMessage::default();
    data.push("error", RvValue::I32(error.code()));
    envelope::frame(b"RVD.INITREFUSED", RvLetter::Response, None, data).expect("a valid frame")
}

/// Returns the end of the handshake.
pub fn connected() -> Vec<u8> {
    let name = "RVD.CONNECTED";
    let data = advisory::data(AdvisoryClass::Info, name, Vec::new());
    let subject = advisory::subject_text(AdvisoryClass::Info, name);
    envelope::frame(subject.as_bytes(), RvLetter::Data, None, data).expect("a valid frame")
}
