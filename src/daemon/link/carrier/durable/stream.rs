//! The stream of the cluster that keeps durable messages, and its settings.

use super::hub_time;
use crate::link::durable::HubPosition;
use crate::subject::Pattern;
use crate::subject::pattern_set::PatternSet;
use crate::time::WallTime;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{Context, GetStreamError, GetStreamErrorKind, RequestError, RequestErrorKind};
use async_nats::jetstream::stream::{Config, RetentionPolicy, State, StorageType};
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// Settings of the stream, for the gateway that makes it.
#[derive(Clone, Debug)]
pub(in crate::daemon::link) struct HubStreamSettings {
    pub(in crate::daemon::link) name: String,
    /// Subjects that this site exports.
    pub(in crate::daemon::link) exports: PatternSet,
    pub(in crate::daemon::link) age_max: Duration,
    pub(in crate::daemon::link) bytes_max: usize,
    pub(in crate::daemon::link) copies: usize,
}

/// The stream, as the cluster has described it.
#[derive(Clone, Debug)]
pub(super) struct StreamInfo {
    pub(super) subjects: Vec<Pattern>,
    /// Time at which it was made, by the clock of the cluster.
    pub(super) created: WallTime,
    /// Sequence of the first message that it has, or of its next one if it has none.
    pub(super) first: u64,
    /// The last message that it has had.
    pub(super) last: HubPosition,
    /// Difference of its limits from the configured ones, if this site exports to it.
    pub(super) fault: Option<HubStreamFault>,
}

/// Why the stream cannot be used, or not as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HubStreamFault {
    /// The cluster has no JetStream, or none for this account.
    NoJetStream,
    /// The cluster does not answer, or refuses the request.
    Refused(String),
    /// It is not one that keeps all messages within its limits, on a disk.
    Kind(String),
    /// Its limits are others than the configured ones.
    Limits(String),
}

impl fmt::Display for HubStreamFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HubStreamFault::NoJetStream => {
                f.write_str("the cluster has no JetStream for this account: start its servers with --jetstream")
            }
            HubStreamFault::Refused(reason) => write!(f, "the cluster refuses the stream: {reason}"),
            HubStreamFault::Kind(name) => write!(
                f,
                "the stream {name} does not keep all messages in files within its limits: \
                 write another name as link-stream"
            ),
            HubStreamFault::Limits(differences) => f.write_str(differences),
        }
    }
}

/// Returns the description of the stream. Makes it, and adds the exported subjects, if this site exports any. Returns
/// `None` if there is no stream and this site needs none.
pub(super) async fn open(
    context: &Context,
    settings: &HubStreamSettings,
) -> Result<Option<StreamInfo>, HubStreamFault> {
    let exports: Vec<String> = settings.exports.patterns().iter().map(Pattern::to_string).collect();
    let exports_any = !exports.is_empty();
    let found = match context.get_stream(&settings.name).await {
        Ok(stream) => Some(stream.cached_info().clone()),
        Err(error) => match missing_stream(&error) {
            // Such a site learns nothing from a cluster that keeps no messages.
            Err(HubStreamFault::NoJetStream) if !exports_any => None,
            missing => missing.map(|()| None)?,
        },
    };
    let info = match found {
        None if exports.is_empty() => return Ok(None),
        None => {
            let config = new_stream(settings, exports);
            let made =
                context.create_stream(config).await.map_err(|error| HubStreamFault::Refused(error.to_string()))?;
            tracing::info!(stream = settings.name, "made the stream of the cluster");
            made.cached_info().clone()
        }
        Some(info) => {
            check_kind(settings, &info.config)?;
            let mut config = info.config.clone();
            match add_subjects(&mut config.subjects, &settings.exports) {
                false => info,
                true => {
                    let refuse = |error: &dyn fmt::Display| HubStreamFault::Refused(error.to_string());
                    context.update_stream(&config).await.map_err(|error| refuse(&error))?
                }
            }
        }
    };
    let State { first_sequence, last_sequence, last_timestamp, .. } = info.state;
    let fault = if exports_any { differences(settings, &info.config) } else { None };
    Ok(Some(StreamInfo {
        subjects: patterns(&info.config),
        created: hub_time(info.created).unwrap_or(WallTime::EPOCH),
        first: first_sequence,
        last: HubPosition { sequence: last_sequence, at: hub_time(last_timestamp) },
        fault,
    }))
}

/// Returns what differs between the limits of the stream and the configured ones, if something does.
fn differences(settings: &HubStreamSettings, config: &Config) -> Option<HubStreamFault> {
    let limits = [
        ("link-stream-time", seconds(config.max_age), seconds(settings.age_max)),
        ("link-stream-size", config.max_bytes.to_string(), settings.bytes_max.to_string()),
        ("link-stream-copies", config.num_replicas.to_string(), settings.copies.to_string()),
    ];
    let differing = limits.iter().filter(|(_, has, wanted)| has != wanted);
    let differing: Vec<String> =
        differing.map(|(key, has, wanted)| format!("{key} is {wanted}, and the stream has {has}")).collect();
    let name = &settings.name;
    let text = || format!("{}: change the key, or the stream with 'nats stream edit {name}'", differing.join("; "));
    (!differing.is_empty()).then(|| HubStreamFault::Limits(text()))
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs())
}

/// Returns without an error if the answer says that there is no stream of this name.
fn missing_stream(error: &GetStreamError) -> Result<(), HubStreamFault> {
    let request = error.source().and_then(|source| source.downcast_ref::<RequestError>());
    match error.kind() {
        GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => Ok(()),
        GetStreamErrorKind::JetStream(error) => Err(refusal(error.error_code(), error.to_string())),
        _ if request.is_some_and(|request| request.kind() == RequestErrorKind::NoResponders) => {
            Err(HubStreamFault::NoJetStream)
        }
        _ => Err(HubStreamFault::Refused(error.to_string())),
    }
}

/// Adds the subjects of `exports` that the stream lacks. Returns whether there were any. Subjects that one of these
/// contains are removed, since a stream must not have both.
fn add_subjects(subjects: &mut Vec<String>, exports: &PatternSet) -> bool {
    let kept: PatternSet = subjects.iter().filter_map(|subject| subject.parse().ok()).collect();
    let lacking: Vec<&Pattern> = exports.patterns().iter().filter(|pattern| !kept.contains(pattern)).collect();
    if lacking.is_empty() {
        return false;
    }
    // Subjects that this program cannot read belong to others.
    subjects.retain(|subject| subject.parse::<Pattern>().map_or(true, |pattern| !exports.contains(&pattern)));
    subjects.extend(lacking.into_iter().map(Pattern::to_string));
    true
}

fn refusal(code: ErrorCode, reason: String) -> HubStreamFault {
    match code {
        ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => HubStreamFault::NoJetStream,
        _ => HubStreamFault::Refused(reason),
    }
}

fn check_kind(settings: &HubStreamSettings, config: &Config) -> Result<(), HubStreamFault> {
    let is_usable = config.retention == RetentionPolicy::Limits
        && config.storage == StorageType::File
        && !config.no_ack
        && config.max_messages_per_subject <= 0;
    if is_usable { Ok(()) } else { Err(HubStreamFault::Kind(settings.name.clone())) }
}

fn new_stream(settings: &HubStreamSettings, subjects: Vec<String>) -> Config {
    Config {
        name: settings.name.clone(),
        description: Some("Durable messages between the sites of seqcast".into()),
        subjects,
        max_age: settings.age_max,
        max_bytes: i64::try_from(settings.bytes_max).unwrap_or(i64::MAX),
        num_replicas: settings.copies,
        storage: StorageType::File,
        retention: RetentionPolicy::Limits,
        allow_direct: true,
        ..Config::default()
    }
}

fn patterns(config: &Config) -> Vec<Pattern> {
    config.subjects.iter().filter_map(|subject| subject.parse().ok()).collect()
}

/// Returns the subjects to which a reader limits itself: those of the stream that the site imports. No two of them match
/// the same subject, since servers refuse such readers.
pub(super) fn wanted_subjects(info: &StreamInfo, imports: &PatternSet) -> Vec<Pattern> {
    let mut wanted: Vec<Pattern> =
        info.subjects.iter().flat_map(|subject| wanted_of_subject(subject, imports)).collect();
    wanted.sort();
    wanted.dedup();
    wanted
}

/// Returns the patterns by which a reader selects what the site imports of one subject of the stream.
fn wanted_of_subject(subject: &Pattern, imports: &PatternSet) -> Vec<Pattern> {
    let contains = |outer: &Pattern, inner: &Pattern| PatternSet::from_iter([outer.clone()]).contains(inner);
    let common: Vec<&Pattern> = imports.patterns().iter().filter(|pattern| pattern.intersects(subject)).collect();
    let is_maximal = |pattern: &Pattern| !common.iter().any(|other| *other != pattern && contains(other, pattern));
    let mut selected: Vec<Pattern> = common.iter().copied().filter(|pattern| is_maximal(pattern)).cloned().collect();
    selected.sort();
    selected.dedup();
    let is_separate = |pattern: &Pattern| {
        contains(subject, pattern) && !selected.iter().any(|other| other != pattern && other.intersects(pattern))
    };
    if selected.iter().all(is_separate) {
        selected
    } else {
        // The importer drops the others.
        vec![subject.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn reader_selects_disjoint_subjects_of_all_imports() {
        for (subjects, imports, expected) in [
            (&["orders.>"][..], &["orders.>"][..], &["orders.>"][..]),
            (&["orders.>"], &["orders.eu"], &["orders.eu"]),
            (&["orders.>"], &["orders.eu", "orders.us.>"], &["orders.eu", "orders.us.>"]),
            (&["orders.>", "news.>"], &["orders.eu"], &["orders.eu"]),
            (&["orders.>"], &["stocks.>"], &[]),
            (&["orders.eu", "orders.us"], &[">"], &["orders.eu", "orders.us"]),
            (&["orders.>"], &["orders.eu", "*.us"], &["orders.>"]),
            (&["orders.>"], &["orders.*", "orders.x"], &["orders.*"]),
            (&["orders.>"], &["orders.*.x", "orders.y.*"], &["orders.>"]),
            (&["orders.>"], &["orders.x", "orders.x"], &["orders.x"]),
        ] {
            let info = StreamInfo {
                subjects: patterns(subjects),
                created: WallTime::EPOCH,
                first: 1,
                last: HubPosition::default(),
                fault: None,
            };
            let wanted = wanted_subjects(&info, &patterns(imports).into_iter().collect());
            assert_eq!(wanted, patterns(expected), "{subjects:?} {imports:?}");
        }
    }

    #[test]
    fn subjects_that_cannot_be_read_stay() {
        let exports: PatternSet = patterns(&["orders.>"]).into_iter().collect();
        let config = Config { subjects: vec!["orders.eu".into(), "a..b".into()], ..Config::default() };
        let mut subjects = config.subjects.clone();
        assert!(add_subjects(&mut subjects, &exports));
        assert_eq!(subjects, ["a..b", "orders.>"]);
        assert!(!add_subjects(&mut subjects, &exports), "it has them by now");
    }

    #[test]
    fn only_a_missing_stream_is_no_fault() {
        let of_code = |code: u64| {
            let error = serde_json::json!({"code": 500, "err_code": code, "description": "text"});
            GetStreamErrorKind::JetStream(serde_json::from_value(error).unwrap())
        };
        let found = |kind| missing_stream(&GetStreamError::new(kind));
        assert_eq!(found(of_code(10059)), Ok(()), "the stream is not found");
        assert_eq!(found(of_code(10076)), Err(HubStreamFault::NoJetStream));
        for kind in [of_code(10008), GetStreamErrorKind::Request] {
            assert!(matches!(found(kind.clone()), Err(HubStreamFault::Refused(_))), "{kind:?}");
        }
        let unserved = RequestError::new(RequestErrorKind::NoResponders);
        let unserved = GetStreamError::with_source(GetStreamErrorKind::Request, unserved);
        assert_eq!(missing_stream(&unserved), Err(HubStreamFault::NoJetStream));
    }
}
