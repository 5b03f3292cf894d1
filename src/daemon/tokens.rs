//! Tokens by which the engine recognizes the sources of events.

use crate::message::ClientId;
use mio::Token;

pub(super) const GROUP: Token = Token(0);
pub(super) const INBOX: Token = Token(1);
pub(super) const LOCAL_SOCKET: Token = Token(2);
pub(super) const WAKER: Token = Token(3);
pub(super) const SIGNALS: Token = Token(4);
pub(super) const TIMER: Token = Token(5);
pub(super) const INTERFACES: Token = Token(6);
pub(super) const COPIES: Token = Token(7);
/// Tokens from here on belong to listeners.
pub(super) const LISTENERS: usize = 8;
/// Tokens from here on belong to clients, by their number.
pub(super) const CLIENTS: usize = 16;

/// Returns the token of a client.
pub(super) fn client_token(id: ClientId) -> Token {
    Token(CLIENTS + usize::try_from(id.0).expect("64-bit"))
}
