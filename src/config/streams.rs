//! The value of `streams`: the event streams, their contents, and their retention.
//!
//! A stream is a name, patterns of event types if it contains more than the events added to it, and its limits: `plant
//! line/?/ALARM time 7 days size 1 gb`. A lone `;` separates two streams in one text; in the file they may be a list.

use super::choice::ChoiceFormat;
use super::host_defaults::HostDefaults;
use super::quantity::{DurationFormat, SizeFormat};
use super::value_error::{STREAM_PARTS, STREAMS_MAX, StreamSettingsError, ValueError};
use super::value_format::{ValueFormat, split_list};
use crate::event::stream::store::{Policy, StreamLimits, StreamSettings};
use crate::subject::event_type::TypePattern;
use std::time::Duration;

const TIME: DurationFormat =
    DurationFormat { min: Duration::from_secs(1), max: Duration::from_secs(1000 * 365 * 86_400), reason: "" };
const SIZE: SizeFormat = SizeFormat { min: 1, max: 1 << 50 };

/// Format of `streams`.
pub(super) struct StreamsFormat;

impl ValueFormat for StreamsFormat {
    type Value = Vec<StreamSettings>;

    fn parse(&self, text: &str, defaults: &HostDefaults) -> Result<Vec<StreamSettings>, ValueError> {
        let mut streams: Vec<StreamSettings> = Vec::new();
        for words in split_list(text, &[])? {
            let stream = stream(&words, defaults).map_err(ValueError::Streams)?;
            if streams.iter().any(|other| other.name == stream.name) {
                return Err(ValueError::Streams(StreamSettingsError::Twice(format!("the stream {}", stream.name))));
            }
            streams.push(stream);
        }
        if STREAMS_MAX < streams.len() { Err(ValueError::Streams(StreamSettingsError::TooMany)) } else { Ok(streams) }
    }

    fn show(&self, value: &Vec<StreamSettings>) -> String {
        let stream = |stream: &StreamSettings| {
            let StreamLimits { age, bytes, policy } = stream.limits;
            let types = stream.types.iter().map(|pattern| format!(" {pattern}"));
            let time = age.map(|age| format!(" time {}", TIME.show(&age)));
            let size = bytes.map(|bytes| format!(" size {}", SIZE.show(&usize::try_from(bytes).unwrap_or(usize::MAX))));
            let policy = (policy == Policy::Block).then(|| " policy block".to_owned());
            let parts: String = types.chain(time).chain(size).chain(policy).collect();
            format!("{}{parts}", stream.name)
        };
        value.iter().map(stream).collect::<Vec<String>>().join(" ; ")
    }

    fn range(&self) -> String {
        format!(
            "up to {STREAMS_MAX} streams: a name, patterns of event types with a / for further events, then time, size and policy \
             (lapse; or block, with a size and no time) as far as it is limited"
        )
    }

    fn is_list(&self) -> bool {
        true
    }
}

fn stream(words: &[&str], defaults: &HostDefaults) -> Result<StreamSettings, StreamSettingsError> {
    let (name, words) = words.split_first().ok_or(StreamSettingsError::Empty)?;
    let name = name.parse().map_err(StreamSettingsError::Name)?;
    let end = words.iter().position(|word| STREAM_PARTS.contains(word)).unwrap_or(words.len());
    let (types, limits) = words.split_at(end);
    let pattern = |word: &&str| match word.contains('/') {
        true => word.parse().map_err(|_| StreamSettingsError::UnknownPart((*word).to_owned())),
        false => Err(StreamSettingsError::UnknownPart((*word).to_owned())),
    };
    let types = types.iter().map(pattern).collect::<Result<Vec<TypePattern>, StreamSettingsError>>()?;
    let mut stream = StreamSettings { name, types, limits: StreamLimits::default() };
    let mut policy = None;
    for chunk in limits.chunk_by(|_, next| !STREAM_PARTS.contains(next)) {
        let part = STREAM_PARTS.into_iter().find(|part| *part == chunk[0]).expect("a chunk begins with such a word");
        let text = chunk[1..].join(" ");
        let refused = |error| StreamSettingsError::Part(part, Box::new(error));
        let is_twice = match part {
            "time" => stream.limits.age.replace(TIME.parse(&text, defaults).map_err(refused)?).is_some(),
            "size" => stream.limits.bytes.replace(SIZE.parse(&text, defaults).map_err(refused)? as u64).is_some(),
            _ => policy.replace(POLICY.parse(&text, defaults).map_err(refused)?).is_some(),
        };
        if is_twice {
            return Err(StreamSettingsError::Twice(part.to_owned()));
        }
    }
    stream.limits.policy = policy.unwrap_or_default();
    match stream.limits {
        StreamLimits { policy: Policy::Block, age, bytes } if age.is_some() || bytes.is_none() => {
            Err(StreamSettingsError::IneffectiveBlock)
        }
        _ => Ok(stream),
    }
}

const POLICY: ChoiceFormat<Policy> =
    ChoiceFormat { words: &["lapse", "block"], values: &[Policy::Lapse, Policy::Block] };

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn defaults() -> HostDefaults {
        HostDefaults { host: "h".into(), runtime_dir: None, state_dir: Some(PathBuf::from("/s")), uid: 1 }
    }

    #[test]
    fn shown_streams_are_read_back() {
        for text in
            ["main", "main size 1 gb policy block ; plant line/?/ALARM a/* time 7days size 1 gb", "main size 10 mb"]
        {
            let value = StreamsFormat.parse(text, &defaults()).unwrap();
            let shown = StreamsFormat.show(&value);
            assert_eq!(StreamsFormat.parse(&shown, &defaults()).unwrap(), value, "{shown}");
        }
        let value = StreamsFormat.parse("a ; b x/* time 1 min policy lapse", &defaults()).unwrap();
        assert_eq!((value.len(), value[1].types.len()), (2, 1));
        let limits = StreamLimits { age: Some(Duration::from_secs(60)), bytes: None, policy: Policy::Lapse };
        assert_eq!(value[1].limits, limits);
    }

    #[test]
    fn invalid_streams_are_refused_with_the_reason() {
        for (text, part) in [
            ("", "a stream is missing"),
            ("a ;", "a stream is missing"),
            ("Main", "the name of a stream"),
            ("a ; a", "the stream a is repeated"),
            ("a x", "\"x\" is no pattern of event types"),
            ("a x/*y", "\"x/*y\" is no pattern"),
            ("a time 1 min time 2 min", "time is repeated"),
            ("a size", "size: "),
            ("a policy what", "policy: "),
            ("a policy block", "policy block needs a size"),
            ("a time 1 min size 1 mb policy block", "admits no time"),
        ] {
            let error = StreamsFormat.parse(text, &defaults()).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
