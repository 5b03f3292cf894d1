//! The shared state in Redis, for several hosts: Redis 7.0 or later, or Valkey; a single primary, with or without
//! replicas. A cluster is not supported, because the queued objects are one list.
//!
//! The keys are those of [`event::order::store`](crate::event::order::store), behind a prefix. No key of an object
//! equals that of another object or of a worker, since the part after the last colon distinguishes them. Further keys
//! are:
//!
//! | key | value |
//! |---|---|
//! | `generation` | a hash: `version` of the keys, `number` of the generation, `replid` of its first server |
//! | `next.event.id` | the bare count, as the seed defines it |
//! | `leases` | the end of the lease on each taken object: a sorted set of object, NUL, worker |
//! | `event.workers` | the names of the known workers |
//!
//! A server draws a new replication id whenever it starts and whenever it becomes a primary. The script of each step
//! compares this id with the id in `generation`. After a restart or a failover, all processes therefore wait for a new
//! generation. So every restart counts as a loss, even if no data was lost. The first replica and an hour without
//! replicas (`repl-backlog-ttl`) also count as a loss, since a primary then draws a new id, too.

mod address;

use super::error::{OrderError, OrderFault};
use crate::clock::Clock;
use crate::event::order::name::{Object, WorkerName};
use crate::event::order::stamp::{Generation, OrderStamp};
use crate::event::order::store::{
    BYTES_PER_STEP, EVENTS_PER_STEP, OBJECTS_PER_STEP, ObjectSnapshot, OpOutcome, STAMPS_PER_STEP, StampedEvent, Store,
    StoreOp, StoreSnapshot, WorkerContext, WorkerOp, WorkerSnapshot,
};
use crate::storage::server_tls::fault_behind;
use crate::time::Instant;
use address::RedisAddress;
use bytes::Bytes;
use redis::{Connection, ErrorKind, RedisError, Script, ServerErrorKind, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// Version of the keys; later programs have greater versions. In version 1 a worker had one event in process, not a
/// batch.
const VERSION: u32 = 2;
/// Maximum time for a server to answer. A step takes well below a millisecond.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// Minimum answer timeout. A busy disk delays answers, and the outcome of a step without an answer is unknown.
const ANSWER_TIME_MIN: Duration = Duration::from_secs(1);
/// Error text of an answer that exceeds the timeout.
const NO_ANSWER: &str = "no answer in time";
/// The same while an encrypted connection begins.
const NO_HANDSHAKE: &str = "no answer in time; its port may be one without TLS";
/// Idle time after which a connection is tested before its next use, since servers and network devices close idle
/// connections.
const IDLE_CHECK_AFTER: Duration = Duration::from_secs(1);
/// Maximum end of a lease, in milliseconds: scores of sorted sets are exact below 2^53.
const LEASE_END_MAX: u64 = (1 << 53) - 1;
/// Source of the script that runs the steps.
const SCRIPT_SOURCE: &str = include_str!("redis.lua");

/// A shared state in Redis.
pub struct RedisStore {
    address: RedisAddress,
    prefix: String,
    /// Maximum time for the server to answer.
    answer_time: Duration,
    script: Script,
    /// The connection, with the time of its last step.
    connection: Option<(Connection, Instant)>,
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore")
            .field("location", &self.address.location)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Creates a store for the state under `prefix` at `redis://[user:password@]host[:port][/database]`, or
    /// `rediss://…` for an encrypted connection. The first step connects to the server.
    ///
    /// # Errors
    /// The address is invalid, or the file of trusted authorities that it names cannot be used.
    pub fn new(url: &str, prefix: &str) -> Result<RedisStore, OrderError> {
        let address = RedisAddress::parse(url);
        let address = address.map_err(|fault| OrderError { location: "redis".into(), fault })?;
        let radix = OrderStamp::begin(Generation::new(1).expect("1 is one")).number();
        let head = format!(
            "local VERSION, OBJECTS_PER_STEP, EVENTS_PER_STEP, BYTES_PER_STEP = \
             '{VERSION}', {OBJECTS_PER_STEP}, {EVENTS_PER_STEP}, {BYTES_PER_STEP} \
             local COUNT_LAST, RADIX_HIGH, RADIX_LOW = {}, {}, {}\n",
            radix - 1 - STAMPS_PER_STEP,
            radix / 1_000_000,
            radix % 1_000_000
        );
        let script = Script::new(&(head + SCRIPT_SOURCE));
        let (prefix, answer_time) = (prefix.to_owned(), ANSWER_TIME_MAX);
        Ok(RedisStore { address, prefix, answer_time, script, connection: None })
    }

    /// Sets the answer timeout to `patience`, but at least 1 second and at most 5.
    pub fn answering_within(self, patience: Duration) -> RedisStore {
        RedisStore { answer_time: patience.clamp(ANSWER_TIME_MIN, ANSWER_TIME_MAX), ..self }
    }

    fn error(&self, fault: OrderFault) -> OrderError {
        OrderError { location: self.address.location.clone(), fault }
    }

    fn connect(&self) -> Result<Connection, OrderError> {
        let failed = |error: RedisError| self.error(fault(&error, false));
        let connection = self.address.client.get_connection_with_timeout(self.answer_time);
        let mut connection = connection.map_err(|error| self.error(self.connection_fault(&error)))?;
        connection.set_read_timeout(Some(self.answer_time)).map_err(failed)?;
        connection.set_write_timeout(Some(self.answer_time)).map_err(failed)?;
        let info: String = redis::cmd("INFO").query(&mut connection).map_err(failed)?;
        match misconfiguration(&info) {
            Some(reason) => Err(self.error(OrderFault::Misconfigured(reason))),
            None => Ok(connection),
        }
    }

    /// Converts an error of the handshake with the server.
    fn connection_fault(&self, error: &RedisError) -> OrderFault {
        if !self.address.is_encrypted {
            return fault(error, false);
        }
        match fault_behind(error) {
            Some(fault) => OrderFault::Tls(fault),
            None if error.is_timeout() => OrderFault::Unreachable(NO_HANDSHAKE.into()),
            None => fault(error, false),
        }
    }

    /// Returns a connection that was recently usable.
    fn live_connection(&mut self) -> Result<Connection, OrderError> {
        let Some((mut connection, last_used)) = self.connection.take() else { return self.connect() };
        if Clock::now().instant.since(last_used) < IDLE_CHECK_AFTER {
            return Ok(connection);
        }
        match redis::cmd("PING").exec(&mut connection) {
            Ok(()) => Ok(connection),
            Err(error) if error.is_timeout() => Err(self.error(fault(&error, false))),
            Err(_) => self.connect(),
        }
    }

    fn invoke_script(&mut self, op: &StoreOp) -> Result<Value, OrderError> {
        let mut connection = self.live_connection()?;
        match invocation(&self.script, &self.prefix, op).invoke(&mut connection) {
            Ok(value) => {
                self.connection = Some((connection, Clock::now().instant));
                Ok(value)
            }
            Err(error) => {
                // After an I/O error a later reply on the connection may belong to this step: it is not reused.
                if !error.is_io_error() {
                    self.connection = Some((connection, Clock::now().instant));
                }
                Err(self.error(fault(&error, true)))
            }
        }
    }
}

impl Store for RedisStore {
    type Error = OrderError;

    fn apply(&mut self, op: &StoreOp) -> Result<OpOutcome, OrderError> {
        let was_connected = self.connection.is_some();
        let mut reply = self.invoke_script(op);
        // A read-only step can be repeated: the server may have closed the connection since.
        let is_reading = matches!(op, StoreOp::ReadMark | StoreOp::Show { .. });
        let is_closed = |error: &OrderError| matches!(&error.fault, OrderFault::Unknown(reason) if reason != NO_ANSWER);
        if was_connected && is_reading && reply.as_ref().is_err_and(is_closed) {
            reply = self.invoke_script(op);
        }
        let what = format!("keys {}*", self.prefix);
        parse_outcome(reply?).ok_or_else(|| self.error(OrderFault::Foreign(what)))
    }
}

/// Returns the reason why the server may lose the state or cannot hold it, from its `INFO` output.
fn misconfiguration(info: &str) -> Option<&'static str> {
    let value_of = |name: &str| {
        let mut lines = info.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(found, _)| *found == name).map_or("", |(_, value)| value)
    };
    if value_of("cluster_enabled") == "1" {
        return Some("is a cluster, which the order cannot use: name a single primary");
    }
    let evicts = value_of("maxmemory") != "0" && value_of("maxmemory_policy").starts_with("allkeys");
    evicts.then_some("evicts keys when its memory is full: set maxmemory-policy to noeviction")
}

/// Converts an error to a fault. `is_sent` is true if the step may have reached the server.
fn fault(error: &RedisError, is_sent: bool) -> OrderFault {
    // The position in the script is removed, since users cannot use it.
    let detail = error.detail().unwrap_or_default().split(" script: ").next().unwrap_or_default();
    let text = || match error.code() {
        Some(code) => format!("{code} {detail}").trim().to_owned(),
        None => error.to_string(),
    };
    match error.kind() {
        ErrorKind::Io => {
            let reason = if error.is_timeout() { NO_ANSWER.to_owned() } else { error.to_string() };
            return if is_sent { OrderFault::Unknown(reason) } else { OrderFault::Unreachable(reason) };
        }
        ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm) => {
            return OrderFault::Denied(text());
        }
        ErrorKind::Server(ServerErrorKind::ReadOnly) => return OrderFault::ReadOnly,
        ErrorKind::Server(ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown) => return OrderFault::Busy,
        ErrorKind::Parse => return OrderFault::Foreign("no Redis server answers there".into()),
        _ => {}
    }
    match error.code() {
        Some("NOAUTH" | "WRONGPASS" | "NOPERM") => OrderFault::Denied(text()),
        Some("READONLY") => OrderFault::ReadOnly,
        Some("BUSY" | "LOADING" | "MASTERDOWN") => OrderFault::Busy,
        Some("WRONGTYPE") => OrderFault::Foreign(text()),
        Some("OOM" | "MISCONF" | "NOREPLICAS") => OrderFault::Full(text()),
        Some("SEQCASTVERSION") => OrderFault::Version { found: detail.to_owned(), supported: VERSION },
        Some(_) => OrderFault::Other(text()),
        None => OrderFault::Other(error.to_string()),
    }
}

// ---- requests

fn invocation<'a>(script: &'a Script, prefix: &str, op: &StoreOp) -> redis::ScriptInvocation<'a> {
    let mut invocation = script.prepare_invoke();
    invocation.arg(prefix).arg(step_name(op));
    match op {
        StoreOp::ReadMark => {}
        StoreOp::Begin { found, generation } => {
            invocation.arg(found.map(|found| found.number().to_string()).unwrap_or_default()).arg(generation.number());
        }
        StoreOp::Push { mark, object, data, main, subs } => {
            push_mark_args(&mut invocation, *mark);
            invocation.arg(object.as_str()).arg(&data[..]).arg(&main[..]);
            for sub in subs {
                invocation.arg(&sub[..]);
            }
        }
        StoreOp::Open { context } => push_caller_args(&mut invocation, context, None),
        StoreOp::WorkerOp { context, session, op } => {
            push_caller_args(&mut invocation, context, Some(*session));
            match op {
                WorkerOp::Take | WorkerOp::TakeOver | WorkerOp::Leave => {}
                WorkerOp::Claim { object } | WorkerOp::Drop { object } => {
                    invocation.arg(object.as_str());
                }
                WorkerOp::Next { object, token } | WorkerOp::Renew { object, token } => {
                    invocation.arg(object.as_str()).arg(token.number());
                }
                WorkerOp::Record { object, token, id } | WorkerOp::Advance { object, token, id } => {
                    invocation.arg(object.as_str()).arg(token.number()).arg(id.number());
                }
            }
        }
        StoreOp::Show { objects, queued_max } => {
            invocation.arg(*queued_max);
            for object in objects {
                invocation.arg(object.as_str());
            }
        }
    }
    invocation
}

/// Returns the name of the step in the script.
fn step_name(op: &StoreOp) -> &'static str {
    match op {
        StoreOp::ReadMark => "read mark",
        StoreOp::Begin { .. } => "begin",
        StoreOp::Push { .. } => "push",
        StoreOp::Open { .. } => "open",
        StoreOp::Show { .. } => "show",
        StoreOp::WorkerOp { op, .. } => match op {
            WorkerOp::Take => "take",
            WorkerOp::TakeOver => "take over",
            WorkerOp::Claim { .. } => "claim",
            WorkerOp::Next { .. } => "next",
            WorkerOp::Advance { .. } => "advance",
            WorkerOp::Record { .. } => "record",
            WorkerOp::Renew { .. } => "renew",
            WorkerOp::Drop { .. } => "drop",
            WorkerOp::Leave => "leave",
        },
    }
}

fn push_mark_args(invocation: &mut redis::ScriptInvocation<'_>, mark: OrderStamp) {
    invocation.arg(mark.generation().number()).arg(mark.count());
}

fn push_caller_args(
    invocation: &mut redis::ScriptInvocation<'_>,
    context: &WorkerContext,
    session: Option<OrderStamp>,
) {
    push_mark_args(invocation, context.mark);
    invocation
        .arg(context.worker.as_str())
        .arg(session.map(|session| session.number().to_string()).unwrap_or_default());
    invocation.arg(context.now_ms.min(LEASE_END_MAX)).arg(context.lease_end_ms().min(LEASE_END_MAX));
}

// ---- replies

/// Reader of the parts of a reply, in their order. Each method returns `None` for an unexpected part.
struct ReplyParts(std::vec::IntoIter<Value>);

impl ReplyParts {
    fn of(value: Value) -> Option<ReplyParts> {
        match value {
            Value::Array(parts) => Some(ReplyParts(parts.into_iter())),
            _ => None,
        }
    }

    /// Returns `Some(None)` if the part is nil, or is omitted at the end.
    fn bytes(&mut self) -> Option<Option<Vec<u8>>> {
        match self.0.next() {
            None | Some(Value::Nil) => Some(None),
            Some(Value::BulkString(bytes)) => Some(Some(bytes)),
            Some(Value::Int(number)) => Some(Some(number.to_string().into_bytes())),
            Some(_) => None,
        }
    }

    fn parse_text<T>(&mut self, parse: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
        match self.bytes()? {
            None => Some(None),
            Some(bytes) => Some(Some(parse(std::str::from_utf8(&bytes).ok()?)?)),
        }
    }

    fn number(&mut self) -> Option<Option<u64>> {
        self.parse_text(|text| text.parse().ok())
    }

    fn stamp(&mut self) -> Option<Option<OrderStamp>> {
        self.parse_text(|text| OrderStamp::from_number(text.parse().ok()?))
    }

    fn object(&mut self) -> Option<Option<Object>> {
        self.parse_text(|text| Object::new(text).ok())
    }

    fn worker(&mut self) -> Option<Option<WorkerName>> {
        self.parse_text(|text| WorkerName::new(text).ok())
    }

    /// Reads a batch, which may be empty: the last id, the id before the batch, and then its events.
    fn batch(&mut self) -> Option<Vec<StampedEvent>> {
        let (last, mut prev) = (self.stamp()?, self.stamp()?);
        let payload = |value| match value {
            Value::BulkString(bytes) => Some(Bytes::from(bytes)),
            _ => None,
        };
        let payloads: Vec<Bytes> = self.0.by_ref().map(payload).collect::<Option<_>>()?;
        let Some(last) = last else { return payloads.is_empty().then(Vec::new) };
        let before = last.number().checked_sub(payloads.len() as u64)?;
        let stamp = |(number, payload)| {
            let id = OrderStamp::from_number(number)?;
            Some(StampedEvent { id, prev: prev.replace(id), payload })
        };
        (before + 1..).zip(payloads).map(stamp).collect()
    }

    /// Reads a batch of at least one event.
    fn events(&mut self) -> Option<Vec<StampedEvent>> {
        self.batch().filter(|batch| !batch.is_empty())
    }

    /// Reads a list whose elements have parts of their own.
    fn list<T>(&mut self, read: impl Fn(&mut ReplyParts) -> Option<T>) -> Option<Vec<T>> {
        let Some(Value::Array(all)) = self.0.next() else { return None };
        all.into_iter().map(|parts| read(&mut ReplyParts::of(parts)?)).collect()
    }
}

/// Parses a reply. Returns `None` if the script never returns such a reply.
fn parse_outcome(value: Value) -> Option<OpOutcome> {
    let mut parts = ReplyParts::of(value)?;
    Some(match parts.bytes()??.as_slice() {
        b"lost" => {
            OpOutcome::LostGeneration { found: parts.parse_text(|text| text.parse().ok().and_then(Generation::new))? }
        }
        b"mark" => OpOutcome::MarkRead { mark: parts.stamp()?? },
        b"pushed" => OpOutcome::Pushed { mark: parts.stamp()?? },
        b"opened" => OpOutcome::Opened { session: parts.stamp()??, object: parts.object()? },
        b"superseded" => OpOutcome::Superseded,
        b"not held" => OpOutcome::NotHeld,
        b"taken" => OpOutcome::Taken { object: parts.object()?? },
        b"empty" => OpOutcome::Empty,
        b"none ended" => OpOutcome::NoneEnded { first_ms: parts.number()? },
        b"claimed" => OpOutcome::Claimed { token: parts.stamp()??, unfinished: parts.batch()? },
        b"owned" => OpOutcome::Owned,
        b"next" => OpOutcome::Next(parts.events()?),
        b"emptied" => OpOutcome::Emptied,
        b"advanced" => OpOutcome::Advanced { object: parts.object()??, token: parts.stamp()??, batch: parts.events()? },
        b"paused" => OpOutcome::Paused,
        b"done" => OpOutcome::Done,
        b"shown" => OpOutcome::Shown(parse_snapshot(&mut parts)?),
        _ => return None,
    })
}

fn parse_snapshot(parts: &mut ReplyParts) -> Option<StoreSnapshot> {
    let (mark, is_suspect, queued) = (parts.stamp()?, parts.number()?? == 1, parts.number()??);
    let workers = parts.list(|parts| {
        let (name, object) = (parts.worker()??, parts.object()?);
        let (lease_end_ms, events, last) = (parts.number()?, parts.number()??, parts.stamp()?);
        Some((name.clone(), WorkerSnapshot { name, object, lease_end_ms, events, last }))
    })?;
    let objects = parts.list(|parts| {
        let (name, queued) = (parts.object()??, parts.number()??);
        Some((name.clone(), ObjectSnapshot { name, queued, last: parts.stamp()?, owner: parts.worker()? }))
    })?;
    // Sorted by name.
    let workers = BTreeMap::from_iter(workers).into_values().collect();
    let objects = BTreeMap::from_iter(objects).into_values().collect();
    Some(StoreSnapshot { mark, is_suspect, queued, workers, objects })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::order::REDIS_PREFIX;

    #[test]
    fn address_is_shown_without_its_password() {
        let store = RedisStore::new("redis://ann:secret@example.org:7000/3", REDIS_PREFIX).unwrap();
        assert_eq!(store.address.location, "redis://example.org:7000/3");
        assert!(!format!("{store:?}").contains("secret"));
        let store = RedisStore::new("rediss://ann:secret@example.org", REDIS_PREFIX).unwrap();
        assert_eq!(store.address.location, "rediss://example.org:6379/0");
        for url in [
            "rediss://:secret@a#insecure",
            "rediss://:secret@a:b",
            "unix:///secret",
            "redis://:secret@a:b",
            "secret",
            "redis://:secret@a/b",
        ] {
            let error = RedisStore::new(url, REDIS_PREFIX).unwrap_err();
            assert!(!error.to_string().contains("secret") && error.to_string().contains("redis://"), "{url}: {error}");
        }
    }

    #[test]
    fn evicting_server_or_cluster_is_refused() {
        let info = |memory: &str, policy: &str, cluster: &str| {
            format!("# Memory\r\nmaxmemory:{memory}\r\nmaxmemory_policy:{policy}\r\ncluster_enabled:{cluster}\r\n")
        };
        assert_eq!(misconfiguration(&info("0", "allkeys-lru", "0")), None);
        assert_eq!(misconfiguration(&info("1000", "volatile-lru", "0")), None);
        assert!(misconfiguration(&info("1000", "allkeys-lru", "0")).unwrap().contains("noeviction"));
        assert!(misconfiguration(&info("0", "noeviction", "1")).unwrap().contains("cluster"));
    }

    #[test]
    fn unexpected_reply_is_refused() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let stamp = OrderStamp::from_number;
        let of = |id, prev, payload| StampedEvent { id: stamp(id).unwrap(), prev, payload };
        let [a, b] = ["a", "b"].map(Bytes::from);
        let batch = OpOutcome::Next(vec![of(274877906945, None, a), of(274877906946, stamp(274877906945), b)]);
        for (parts, expected) in [
            (vec![text("taken"), text("x")], Some(OpOutcome::Taken { object: Object::new("x").unwrap() })),
            (vec![text("taken"), text("a\nb")], None),
            (vec![text("taken")], None),
            (vec![text("mark"), text("7")], None),
            (vec![text("next"), text("274877906945"), Value::Nil], None),
            (vec![text("next"), Value::Nil, Value::Nil], None),
            (vec![text("next"), text("274877906945"), Value::Nil, Value::Nil], None),
            (vec![text("next"), text("274877906945"), Value::Nil, text("a"), text("b"), text("c")], None),
            (vec![text("next"), text("274877906946"), Value::Nil, text("a"), text("b")], Some(batch)),
            (vec![text("none ended"), text("soon")], None),
            (vec![text("none ended"), Value::Nil], Some(OpOutcome::NoneEnded { first_ms: None })),
            (vec![text("what")], None),
            (vec![], None),
        ] {
            assert_eq!(parse_outcome(Value::Array(parts.clone())), expected, "{parts:?}");
        }
    }
}
