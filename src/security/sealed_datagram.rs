//! Sealed datagrams, and how a key opens them.

use super::cipher::AeadKey;
use crate::wire::{self, KeyedHeader};
use bytes::Bytes;

/// Decrypts a datagram, and returns it as one of open mode; `None` if it was not sealed with this key.
pub(super) fn open_datagram(key: &AeadKey, keyed: &KeyedHeader, datagram: &Bytes) -> Option<Bytes> {
    let mut bytes = datagram.to_vec();
    let (header, sealed) = bytes.split_at_mut(keyed.header_bytes);
    let records = key.open(keyed.header.number, header, sealed)?.len();
    bytes.truncate(keyed.header_bytes + records);
    Some(wire::into_open(bytes))
}
