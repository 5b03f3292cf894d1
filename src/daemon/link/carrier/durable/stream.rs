//! The stream of the cluster that keeps durable messages, and its settings.

use crate::subject::Pattern;
use crate::subject::pattern_set::PatternSet;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{Context, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, RetentionPolicy, State, StorageType};
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
pub(super) struct StreamFacts {
    pub(super) subjects: Vec<Pattern>,
    pub(super) first: u64,
    pub(super) last: u64,
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
) -> Result<Option<StreamFacts>, HubStreamFault> {
    let exports: Vec<String> = settings.exports.patterns().iter().map(Pattern::to_string).collect();
    let exports_any = !exports.is_empty();
    let found = match context.get_stream(&settings.name).await {
        Ok(stream) => Some(stream.cached_info().clone()),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => None,
            _ if exports.is_empty() => return Ok(None),
            GetStreamErrorKind::JetStream(error) => return Err(refusal(error.error_code(), error.to_string())),
            _ => return Err(HubStreamFault::NoJetStream),
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
            let kept: PatternSet = patterns(&info.config).into_iter().collect();
            let lacking = settings.exports.patterns().iter().filter(|pattern| !kept.contains(pattern));
            let lacking: Vec<String> = lacking.map(Pattern::to_string).collect();
            if lacking.is_empty() {
                info
            } else {
                let mut config = info.config;
                // A subject may not contain another one.
                let is_kept = |subject: &String| {
                    subject.parse::<Pattern>().is_ok_and(|pattern| !settings.exports.contains(&pattern))
                };
                config.subjects.retain(is_kept);
                config.subjects.extend(lacking);
                let refuse = |error: &dyn fmt::Display| HubStreamFault::Refused(error.to_string());
                context.update_stream(&config).await.map_err(|error| refuse(&error))?
            }
        }
    };
    let State { first_sequence, last_sequence, .. } = info.state;
    let fault = if exports_any { differences(settings, &info.config) } else { None };
    Ok(Some(StreamFacts { subjects: patterns(&info.config), first: first_sequence, last: last_sequence, fault }))
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

/// Returns the subjects to which a reader limits itself: those of the stream that the site imports.
pub(super) fn wanted_subjects(facts: &StreamFacts, imports: &PatternSet) -> Vec<Pattern> {
    let mut wanted = Vec::new();
    for subject in &facts.subjects {
        let kept: PatternSet = [subject.clone()].into_iter().collect();
        if imports.contains(subject) {
            wanted.push(subject.clone());
            continue;
        }
        let inside: Vec<Pattern> =
            imports.patterns().iter().filter(|pattern| kept.contains(pattern)).cloned().collect();
        let overlaps = imports.patterns().iter().any(|pattern| pattern.intersects(subject));
        match inside.is_empty() {
            false => wanted.extend(inside),
            // The reader drops the others.
            true if overlaps => wanted.push(subject.clone()),
            true => {}
        }
    }
    wanted.sort();
    wanted.dedup();
    wanted
}
