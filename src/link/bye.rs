//! The last word of a gateway that leaves: up to where its manifests have named everything, in JSON.

use super::envelope::parse_epoch;
use super::shares::SHARES;
use super::site_name::SiteName;
use crate::message::Epoch;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Maximum size in bytes. The longest one that a gateway writes has 421.
pub const BYE_BYTES_MAX: usize = 1024;

/// Announcement of a gateway that leaves. It follows the last manifests on the same connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayBye {
    /// Site of the gateway.
    pub site: SiteName,
    /// Epoch of the gateway.
    pub gateway: Epoch,
    /// Number of each share up to which the rounds of the gateway name all streams; `None` if other gateways account
    /// for the share.
    pub named_to: [Option<u64>; SHARES as usize],
}

/// Reason for which bytes are no such announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidBye {
    /// There are more than [`BYE_BYTES_MAX`] bytes.
    TooLong,
    /// The bytes are not the JSON of an announcement, or a field has another form: the name of the field.
    Malformed(&'static str),
}

impl fmt::Display for InvalidBye {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidBye::TooLong => write!(f, "the BYE of a gateway exceeds {BYE_BYTES_MAX} bytes"),
            InvalidBye::Malformed(field) => write!(f, "the BYE of a gateway has a malformed {field}"),
        }
    }
}

impl std::error::Error for InvalidBye {}

/// The JSON of the announcement.
#[derive(Serialize, Deserialize)]
struct ByeText {
    site: String,
    gateway: String,
    named_to: Vec<Option<u64>>,
}

impl GatewayBye {
    /// Returns the announcement as JSON.
    pub fn to_json(&self) -> Vec<u8> {
        let (site, gateway) = (self.site.to_string(), self.gateway.to_string());
        let text = ByeText { site, gateway, named_to: self.named_to.to_vec() };
        serde_json::to_vec(&text).expect("strings and numbers can be written")
    }

    /// Parses an announcement.
    ///
    /// # Errors
    /// The bytes are too many, or are not the JSON of an announcement.
    pub fn from_json(bytes: &[u8]) -> Result<GatewayBye, InvalidBye> {
        if BYE_BYTES_MAX < bytes.len() {
            return Err(InvalidBye::TooLong);
        }
        let text: ByeText = serde_json::from_slice(bytes).map_err(|_| InvalidBye::Malformed("JSON"))?;
        Ok(GatewayBye {
            site: text.site.parse().map_err(|_| InvalidBye::Malformed("site"))?,
            gateway: parse_epoch(&text.gateway).ok_or(InvalidBye::Malformed("gateway"))?,
            named_to: text.named_to.try_into().map_err(|_| InvalidBye::Malformed("named_to"))?,
        })
    }
}
