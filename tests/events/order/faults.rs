//! Errors of a store are reported by name, and change nothing. After a possible loss no worker continues with the old
//! state.

use super::{REDIS_PREFIX, apply};
use crate::support::TempDir;
use crate::support::redis_server::{DURABLE, RedisServer};
use crate::support::wait::wait_until;
use bytes::Bytes;
use rusqlite::Connection;
use seqcast::event::order::name::Object;
use seqcast::event::order::stamp::{Generation, OrderStamp};
use seqcast::event::order::store::{OpOutcome, Store, StoreOp};
use seqcast::storage::order::error::{OrderError, OrderFault};
use seqcast::storage::order::front_end::{FrontEnd, Push, StateLoss};
use seqcast::storage::order::redis::RedisStore;
use seqcast::storage::order::sqlite::SqliteStore;
use std::fs;
use std::time::Duration;

fn redis(url: &str) -> RedisStore {
    RedisStore::new(url, REDIS_PREFIX).expect("an address")
}

fn push() -> Push {
    let (object, data, main) = (Object::new("x").expect("a name"), Bytes::from("d"), Bytes::from("e"));
    Push { object, data, main, subs: Vec::new() }
}

/// Returns the error of a push with little patience.
fn refused(store: impl Store<Error = OrderError>) -> OrderError {
    FrontEnd::new(store, None, Duration::ZERO).push(&push()).expect_err("refused")
}

fn begin<S: Store<Error = OrderError>>(store: &mut S) -> OrderStamp {
    let generation = Generation::new(7).expect("one");
    apply(store, &StoreOp::Begin { found: None, generation });
    OrderStamp::begin(generation)
}

/// Returns whether a replica is connected to its primary.
fn is_linked(replica: &RedisServer) -> bool {
    replica.command::<String>(&["INFO", "replication"]).contains("master_link_status:up")
}

#[test]
fn unreachable_redis_is_reported_without_the_password() {
    let dir = TempDir::new();
    let server = RedisServer::start(dir.path(), &["--requirepass", "right"]);
    let at = format!("127.0.0.1:{}/0", server.port());
    for url in [format!("redis://:wrong-one@{at}"), format!("redis://{at}"), format!("redis://ann:wrong-one@{at}")] {
        let error = refused(redis(&url));
        assert!(matches!(error.fault, OrderFault::Denied(_)) && !error.is_transient(), "{error:?}");
        assert!(error.to_string().contains(&at) && !error.to_string().contains("wrong-one"), "{error}");
    }
    let url = format!("redis://:right@{at}");
    // It takes connections, and does not answer on them.
    server.signal("STOP");
    let error = refused(redis(&url).answering_within(Duration::ZERO));
    assert!(matches!(&error.fault, OrderFault::Unreachable(reason) if reason == "no answer in time"), "{error:?}");
    server.signal("CONT");
    FrontEnd::new(redis(&url), None, Duration::ZERO).push(&push()).expect("pushed");
    server.kill();
    let error = refused(redis(&url));
    assert!(matches!(error.fault, OrderFault::Unreachable(_)) && error.is_transient(), "{error:?}");
}

#[test]
fn foreign_data_under_the_keys_is_left_alone() {
    let dir = TempDir::new();
    let server = RedisServer::start(dir.path(), &[]);
    for (key, words) in [
        ("t:x:events", ["SET", "t:x:events", "theirs"]),
        ("t:objects.with.events", ["SET", "t:objects.with.events", "theirs"]),
        ("t:x:data", ["LPUSH", "t:x:data", "theirs"]),
        ("t:next.event.id", ["SET", "t:next.event.id", "theirs"]),
        ("t:generation", ["SET", "t:generation", "theirs"]),
    ] {
        server.command::<()>(&["FLUSHALL"]);
        server.command::<i64>(&["DEL", "t:none"]);
        begin(&mut redis(&server.url()));
        server.command::<i64>(&["DEL", key]);
        server.command::<redis::Value>(&words);
        let before: usize = server.command(&["DBSIZE"]);
        let error = refused(redis(&server.url()));
        assert!(matches!(&error.fault, OrderFault::Foreign(what) if what.contains(key)), "{key}: {error:?}");
        assert_eq!(server.command::<usize>(&["DBSIZE"]), before, "{key}: something was written");
    }
    for version in ["1", "3"] {
        server.command::<()>(&["FLUSHALL"]);
        begin(&mut redis(&server.url()));
        server.command::<i64>(&["HSET", "t:generation", "version", version]);
        let error = refused(redis(&server.url()));
        assert_eq!(error.fault, OrderFault::Version { found: version.into(), supported: 2 });
    }
}

#[test]
fn evicting_redis_is_refused() {
    let dir = TempDir::new();
    let server = RedisServer::start(dir.path(), &[]);
    begin(&mut redis(&server.url()));
    let replica = RedisServer::start(dir.path(), &["--replicaof", "127.0.0.1", &server.port().to_string()]);
    wait_until("the replica has met its primary", || is_linked(&replica));
    // The arrival of the first replica looks like a restart.
    FrontEnd::new(redis(&server.url()), None, Duration::ZERO).push(&push()).expect("pushed");
    assert_eq!(refused(redis(&replica.url())).fault, OrderFault::ReadOnly);
    server.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(matches!(refused(redis(&server.url())).fault, OrderFault::Full(_)));
    server.command::<()>(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    assert!(matches!(refused(redis(&server.url())).fault, OrderFault::Misconfigured(_)));
    server.command::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    FrontEnd::new(redis(&server.url()), None, Duration::ZERO).push(&push()).expect("pushed");
}

/// Each of these may have lost something, with or without doing so.
#[test]
fn lost_redis_state_begins_a_new_generation() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let mut server = RedisServer::start(dir.path(), DURABLE);
    let mut front_end = FrontEnd::new(redis(&server.url()), None, Duration::from_secs(5));
    let mut mark = front_end.push(&push()).expect("pushed").mark;
    let mut check = |server: &RedisServer, is_empty: bool| {
        let found = (!is_empty).then_some(mark.generation());
        let outcome = apply(&mut redis(&server.url()), &StoreOp::ReadMark);
        assert_eq!(outcome, OpOutcome::LostGeneration { found }, "every reader learns of it");
        let mut front_end = FrontEnd::new(redis(&server.url()), Some(mark), Duration::from_secs(5));
        let pushed = front_end.push(&push()).expect("pushed");
        assert_eq!(pushed.lost, Some(StateLoss { known: Some(mark.generation()), found }));
        assert!(mark.generation() < pushed.mark.generation());
        mark = pushed.mark;
    };
    server = RedisServer::start_on(server.kill(), dir.path(), DURABLE);
    check(&server, false);
    server.command::<()>(&["FLUSHALL"]);
    check(&server, true);
    let replica = RedisServer::start(other.path(), &["--replicaof", "127.0.0.1", &server.port().to_string()]);
    wait_until("the replica has met its primary", || is_linked(&replica));
    replica.command::<()>(&["REPLICAOF", "NO", "ONE"]);
    check(&replica, false);
    // A primary that becomes a replica and a primary again is the same process, and has another's data.
    let port = replica.port().to_string();
    server.command::<()>(&["REPLICAOF", "127.0.0.1", &port]);
    wait_until("the former primary has met its primary", || is_linked(&server));
    server.command::<()>(&["REPLICAOF", "NO", "ONE"]);
    check(&server, false);
}

#[test]
fn foreign_or_damaged_file_is_refused_unchanged() {
    let dir = TempDir::new();
    let open = |path: &std::path::Path| SqliteStore::open(path).map(drop).map_err(|error| error.fault);
    let text = dir.file("text", "some text");
    assert!(matches!(open(&text), Err(OrderFault::Foreign(_))));
    assert_eq!(fs::read(&text).expect("it is there"), b"some text");
    let foreign = dir.path().join("foreign.db");
    Connection::open(&foreign).and_then(|file| file.execute_batch("CREATE TABLE a (b)")).expect("a file");
    assert!(matches!(open(&foreign), Err(OrderFault::Foreign(_))));
    let ours = dir.path().join("order.db");
    let mut front_end = FrontEnd::new(SqliteStore::open(&ours).expect("a file"), None, Duration::ZERO);
    for _ in 0..300 {
        front_end.push(&push()).expect("pushed");
    }
    drop(front_end);
    for version in [1, 3] {
        Connection::open(&ours).and_then(|file| file.pragma_update(None, "user_version", version)).expect("a file");
        assert_eq!(open(&ours), Err(OrderFault::Version { found: version.to_string(), supported: 2 }));
    }
    Connection::open(&ours).and_then(|file| file.pragma_update(None, "user_version", 2)).expect("a file");
    assert_eq!(open(&ours), Ok(()));
    let whole = fs::read(&ours).expect("it is there");
    fs::write(&ours, &whole[..whole.len() - 5000]).expect("written");
    assert!(matches!(open(&ours), Err(OrderFault::Damaged(_))));
}

#[test]
fn copied_file_begins_a_new_generation() {
    let dir = TempDir::new();
    let (path, copy) = (dir.path().join("order.db"), dir.path().join("copy.db"));
    let mark = FrontEnd::new(SqliteStore::open(&path).expect("a file"), None, Duration::ZERO)
        .push(&push())
        .expect("pushed")
        .mark;
    fs::copy(&path, &copy).expect("copied");
    let mut again = SqliteStore::open(&path).expect("a file");
    assert_eq!(apply(&mut again, &StoreOp::ReadMark), OpOutcome::MarkRead { mark });
    fs::rename(&copy, &path).expect("replaced");
    assert_eq!(again.apply(&StoreOp::ReadMark).map_err(|error| error.fault), Err(OrderFault::Replaced));
    let mut restored = SqliteStore::open(&path).expect("a file");
    let found = Some(mark.generation());
    assert_eq!(apply(&mut restored, &StoreOp::ReadMark), OpOutcome::LostGeneration { found });
    let pushed = FrontEnd::new(restored, None, Duration::ZERO).push(&push()).expect("pushed");
    assert_eq!(pushed.lost, Some(StateLoss { known: None, found }));
}
