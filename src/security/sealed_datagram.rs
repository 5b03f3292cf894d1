//! Sealed datagrams, and how a key opens them.

use super::cipher::AeadKey;
use crate::wire::{self, KeyedHeader};
use bytes::{Bytes, BytesMut};

/// Decrypts a datagram, and returns it as one of open mode; `None` if it was not sealed with this key. The datagram is
/// copied only if something else refers to its bytes.
pub(super) fn open_datagram(key: &AeadKey, keyed: &KeyedHeader, datagram: Bytes) -> Option<Bytes> {
    let mut bytes = datagram.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    let (header, sealed) = bytes.split_at_mut(keyed.header_bytes);
    let records = key.open(keyed.header.number, header, sealed)?.len();
    bytes.truncate(keyed.header_bytes + records);
    Some(wire::into_open(bytes))
}
