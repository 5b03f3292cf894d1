//! The order of events in Redis over TLS.

use super::{REDIS_PREFIX, apply};
use crate::support::TempDir;
use crate::support::certificate::Authority;
use crate::support::command::Place;
use crate::support::exit_code::{DONE, FAILED, USAGE};
use crate::support::redis_server::RedisServer;
use seqcast::event::order::store::{Store, StoreOp};
use seqcast::storage::order::error::OrderError;
use seqcast::storage::order::redis::RedisStore;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A server with a port at which it encrypts, beside the other one.
struct EncryptedRedis {
    server: RedisServer,
    tls_port: u16,
}

impl EncryptedRedis {
    fn start(dir: &Path, [certificate, key]: &[PathBuf; 2], authority: &Authority) -> EncryptedRedis {
        let tls_port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        let paths = [certificate, key, authority.certificate()].map(|path| path.display().to_string());
        let port = tls_port.to_string();
        let arguments = [
            ["--tls-port", &port],
            ["--tls-cert-file", &paths[0]],
            ["--tls-key-file", &paths[1]],
            ["--tls-ca-cert-file", &paths[2]],
            ["--tls-auth-clients", "no"],
        ];
        EncryptedRedis { server: RedisServer::start(dir, arguments.as_flattened()), tls_port }
    }
}

/// Returns the error of a step.
fn refused(url: &str) -> OrderError {
    RedisStore::new(url, REDIS_PREFIX).map_or_else(|error| error, refused_by)
}

fn refused_by(mut store: RedisStore) -> OrderError {
    store.apply(&StoreOp::ReadMark).expect_err("refused")
}

#[test]
fn encrypted_redis_is_used_after_checks() {
    let dir = TempDir::new();
    let [trusted, other] = ["trusted", "other"].map(|name| Authority::new(dir.path(), name));
    let files = trusted.sign("server", "/CN=redis", "DNS:localhost", 2);
    let redis = EncryptedRedis::start(dir.path(), &files, &trusted);
    let server = &redis.server;
    let url = |host: &str, authority: Option<&Authority>| {
        let file = authority.map_or(String::new(), |authority| authority.certificate().display().to_string());
        let file = if file.is_empty() { file } else { format!("?sslrootcert={file}") };
        format!("rediss://ann:s3cret@{host}:{}/0{file}", redis.tls_port)
    };
    server.command::<String>(&["ACL", "SETUSER", "ann", "on", ">s3cret", "~*", "+@all"]);
    let mut store = RedisStore::new(&url("localhost", Some(&trusted)), REDIS_PREFIX).expect("an address");
    apply(&mut store, &StoreOp::ReadMark);
    let check = |url: &str, part: &str| {
        let error = refused(url);
        let text = format!("{error} {error:?}");
        assert!(text.contains(part) && !text.contains("s3cret") && !error.is_transient(), "{url}: {text}");
    };
    check(&url("127.0.0.1", Some(&trusted)), "is not for 127.0.0.1");
    check(&url("localhost", Some(&other)), "from an unknown authority");
    check(&url("localhost", None), "from an unknown authority");
    let plain = format!("rediss://:s3cret@localhost:{}/0?sslrootcert={}", server.port(), files[0].display());
    let silent = RedisStore::new(&plain, REDIS_PREFIX).expect("an address").answering_within(Duration::ZERO);
    let error = refused_by(silent);
    assert!(error.to_string().contains("no answer in time; its port may be one without TLS"), "{error}");
    check("rediss://:s3cret@localhost/0?sslrootcert=/no%20file", "the file /no file of sslrootcert cannot be used");
    check("rediss://:s3cret@localhost/0#insecure", "begins with #");
    let configure = |words: &[&str]| {
        server.command::<String>(&[&["CONFIG", "SET"], words].concat());
    };
    configure(&["tls-auth-clients", "yes"]);
    check(&url("localhost", Some(&trusted)), "requires a certificate of its clients");
    let own = [trusted.certificate().to_owned(), trusted.key().to_owned()].map(|path| path.display().to_string());
    configure(&["tls-auth-clients", "no", "tls-cert-file", &own[0], "tls-key-file", &own[1]]);
    check(&url("localhost", Some(&trusted)), "its certificate is that of an authority");
    let expired = trusted.sign("expired", "/CN=redis", "DNS:localhost", -1).map(|path| path.display().to_string());
    configure(&["tls-cert-file", &expired[0], "tls-key-file", &expired[1]]);
    check(&url("localhost", Some(&trusted)), "its certificate has expired");
}

#[test]
fn order_commands_use_an_encrypted_redis() {
    let place = Place::new();
    let authority = Authority::new(place.dir(), "authority");
    let files = authority.sign("server", "/CN=redis", "DNS:localhost", 2);
    let redis = EncryptedRedis::start(place.dir(), &files, &authority);
    let file = authority.certificate().display();
    let url = |host: &str| format!("rediss://{host}:{}/0?sslrootcert={file}", redis.tls_port);
    let push = |url: &str| place.run(&["order", "push", "a", "1", "--state", "", "--store", url]);
    push(&url("localhost")).exits(DONE);
    push(&url("127.0.0.1")).exits(FAILED).reports(&["cannot be used over TLS", "is not for 127.0.0.1"]);
    push("rediss://localhost?sslrootcert=none").exits(FAILED).reports(&["the file none of sslrootcert"]);
    push("rediss://localhost#insecure").exits(USAGE).reports(&["rediss://…"]);
    assert_eq!(redis.server.command::<u64>(&["LLEN", "seqcast:a:events"]), 1);
}
