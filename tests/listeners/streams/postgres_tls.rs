//! Event streams and their archive in a PostgreSQL database over TLS.

use super::{add, peer};
use crate::support::TempDir;
use crate::support::certificate::Authority;
use crate::support::command::Place;
use crate::support::exit_code::{DONE, FAILED};
use crate::support::postgres_server::PostgresServer;
use crate::support::wait::wait_until;
use seqcast::storage::streams::postgres::PostgresStreams;
use serde_json::json;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// Lets a server with this directory use a certificate and its key.
fn encrypt(server: &PostgresServer, dir: &Path, files: &[PathBuf; 2]) {
    let data = dir.join("data");
    let owner = fs::metadata(&data).unwrap();
    for (file, name) in files.iter().zip(["server.crt", "server.key"]) {
        let path = data.join(name);
        fs::copy(file, &path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    server.sql("ALTER SYSTEM SET ssl = on");
    server.sql("SELECT pg_reload_conf()");
}

#[test]
fn encrypted_database_is_checked_as_sslmode_says() {
    let (dir, certificates) = (TempDir::new(), TempDir::new());
    let server = PostgresServer::start(dir.path());
    let [trusted, other] = ["trusted", "other"].map(|name| Authority::new(certificates.path(), name));
    let file = |authority: &Authority| format!("&sslrootcert={}", authority.certificate().display());
    let url = |host: &str, parameters: &str| {
        format!("postgres://postgres:s3cret@{host}:{}/postgres?{parameters}", server.port())
    };
    let refused = |host: &str, parameters: &str, part: &str| {
        let error = PostgresStreams::open(&url(host, parameters)).expect_err("refused");
        let text = format!("{error} {error:?}");
        assert!(text.contains(part) && !text.contains("s3cret"), "{parameters}: {text}");
    };
    refused("localhost", &format!("sslmode=verify-full{}", file(&trusted)), "does not encrypt");
    encrypt(&server, dir.path(), &trusted.sign("server", "/CN=database", "DNS:localhost", 2));
    let full = format!("sslmode=verify-full{}", file(&trusted));
    wait_until("the server encrypts", || PostgresStreams::open(&url("localhost", &full)).is_ok());
    for (host, parameters) in [
        ("localhost", full.clone()),
        ("127.0.0.1", format!("sslmode=verify-ca{}", file(&trusted))),
        ("127.0.0.1", format!("sslmode=require{}&application_name=seqcast", file(&trusted))),
        ("127.0.0.1", "sslmode=require".to_owned()),
    ] {
        let store = PostgresStreams::open(&url(host, &parameters));
        let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
            WHERE ssl AND application_name = 'seqcast'";
        assert_eq!(server.sql(encrypted), "1", "{parameters}: {store:?}");
        drop(store);
        wait_until("the connection ends", || server.sql(encrypted) == "0");
    }
    let text = certificates.file("text", "no PEM");
    refused("127.0.0.1", &full, "is not for 127.0.0.1: write a name of the certificate in the address (localhost)");
    for mode in ["verify-full", "verify-ca", "require"] {
        refused("localhost", &format!("sslmode={mode}{}", file(&other)), "from an unknown authority");
        refused("localhost", &format!("sslmode={mode}&sslrootcert=/no%20file"), "the file /no file of sslrootcert");
        refused("localhost", &format!("sslmode={mode}&sslrootcert={}", text.display()), "holds no certificate");
    }
    // The certificate comes from none of the authorities of the system, if it has any.
    refused("localhost", "sslmode=verify-full", "authorit");
    refused("localhost", "sslmode=prefer", "unencrypted without notice");
    refused("localhost", "sslmode=allow", "unencrypted without notice");
    refused("localhost", "sslmode=what", "sslmode is disable, require, verify-ca or verify-full");
    refused("localhost", &file(&trusted), "add sslmode=verify-full");
    encrypt(&server, dir.path(), &trusted.sign("expired", "/CN=database", "DNS:localhost", -1));
    let is_expired = || {
        let opened = PostgresStreams::open(&url("localhost", &full));
        opened.is_err_and(|error| error.to_string().contains("its certificate has expired"))
    };
    wait_until("the server uses its other certificate", is_expired);
}

#[test]
fn peer_and_archive_use_an_encrypted_database() {
    let (dir, place) = (TempDir::new(), Place::new());
    let server = PostgresServer::start(dir.path());
    let authority = Authority::new(place.dir(), "authority");
    encrypt(&server, dir.path(), &authority.sign("server", "/CN=database", "DNS:localhost", 2));
    let url = |host: &str| {
        let file = authority.certificate().display();
        format!("postgres://postgres@{host}:{}/postgres?sslmode=verify-full&sslrootcert={file}", server.port())
    };
    wait_until("the server encrypts", || PostgresStreams::open(&url("localhost")).is_ok());
    let store = |host: &str| format!("stream-store={}", url(host));
    let refused = place.run(&["peer", "--set", "ftn18=0", "--set", &store("127.0.0.1")]).exits(FAILED);
    refused.reports(&["cannot be used over TLS: its certificate is not for 127.0.0.1"]);
    let _peer = peer(&place, &[&store("localhost")]);
    assert_eq!(add(&place, "/", "A", &json!(1)), 1);
    let archive = |host: &str| place.run(&["stream", "archive", "--to", &url(host), "--once"]);
    archive("127.0.0.1").exits(FAILED).reports(&["is not for 127.0.0.1"]);
    archive("localhost").exits(DONE);
    assert_eq!(server.sql("SELECT count(*) FROM stream_archive_event"), "1");
}
