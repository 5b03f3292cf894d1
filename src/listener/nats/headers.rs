//! Headers of published messages.

use super::message_writer::{HEADERS_LINE, RESERVED_PREFIX, STATUS};
use crate::message::Headers;

/// Converts headers to the form of the bus: removes a version line without a status, the final empty line, and fields
/// reserved for the bus. Returns `None` if the headers are invalid.
pub(super) fn convert_headers(text: &[u8]) -> Option<Headers> {
    let text = text.strip_suffix(b"\r\n")?;
    let lines = text.strip_prefix(HEADERS_LINE).or_else(|| Some(text).filter(|text| text.starts_with(STATUS)))?;
    let mut block = Vec::with_capacity(lines.len());
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        if !line.ends_with(b"\r\n") || line.len() == 2 {
            return None;
        }
        if !is_reserved(line) {
            block.extend_from_slice(line);
        }
    }
    Some(Headers::from_block(block.into()))
}

/// Returns whether a client library could parse the line as a field reserved for the bus. Some libraries trim names,
/// and some treat CR as the end of a line.
fn is_reserved(line: &[u8]) -> bool {
    line.split(|byte| *byte == b'\r').any(|part| {
        let name = part.trim_ascii_start();
        name.get(..RESERVED_PREFIX.len()).is_some_and(|name| name.eq_ignore_ascii_case(RESERVED_PREFIX))
    })
}
