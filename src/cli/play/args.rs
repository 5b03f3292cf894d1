//! The arguments of `play`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::remap::SubjectMapping;
use crate::cli::bus_options::BusOptions;
use crate::subject::{Pattern, Subject};
use crate::terminal::value;
use crate::time::WallTime;

/// Below `seqcast play --help`.
pub const PLAY_HELP: &str = "\
Examples:
  seqcast play run.mcap                             with the pauses of the recording
  seqcast play run.mcap --rate 2 --loop
  seqcast play run.mcap --rate max --subjects 'plant.>'
  seqcast play run.mcap --from 30s --until 1m       relative to the first message
  seqcast play run.mcap --from 2026-11-25T22:15:00Z
  seqcast play run.mcap --remap plant=test.plant    plant.7 becomes test.plant.7
  seqcast play run.mcap --losses                    publishes nothing: shows what is missing

A file that was not closed, since 'seqcast record' was killed, is played up to its last complete part; the exit code \
is then 1, and also if a message is too large for the bus. Files of other programs are played too: their topics become subjects, /a/b becomes a.b, and the payloads \
stay as they are.";

/// `seqcast play`.
#[derive(Args, Clone, Debug)]
pub struct PlayOptions {
    /// The recording, in the format MCAP.
    pub file: PathBuf,
    /// Speed: 2 is twice as fast as it was recorded, 0.5 half as fast, max without pauses.
    #[arg(long, value_name = "FACTOR", value_parser = speed, default_value = "1")]
    pub rate: PlaySpeed,
    /// Begin at this time: a span after the first message, or a date in UTC.
    #[arg(long, value_name = "TIME", value_parser = time_point)]
    pub from: Option<TimePoint>,
    /// End before this time, given likewise.
    #[arg(long, value_name = "TIME", value_parser = time_point)]
    pub until: Option<TimePoint>,
    /// Begin again at the end, until Ctrl-C.
    #[arg(long = "loop", conflicts_with = "losses")]
    pub repeat: bool,
    /// Play subject a as b, and a.x as b.x; may be repeated, and the first one that matches decides.
    #[arg(long, value_name = "a=b")]
    pub remap: Vec<SubjectMapping>,
    /// Play only subjects that match this pattern, before --remap; may be repeated.
    #[arg(long, value_name = "PATTERN")]
    pub subjects: Vec<Pattern>,
    /// Publish nothing, and print the losses and drops of the recording.
    #[arg(long, conflicts_with_all = ["rate", "remap"])]
    pub losses: bool,
    /// Print JSON: an object at the end, and with --losses one for each loss.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Options of the bus.
    #[command(flatten)]
    pub bus: BusOptions,
}

/// Position of a message relative to the part between `--from` and `--until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartPosition {
    /// The message precedes the part.
    Before,
    /// The message belongs to the part.
    Within,
    /// The message follows the part.
    After,
}

impl PlayOptions {
    /// Returns the position of a message with this time, in a recording whose first message has the time `first`; both
    /// in nanoseconds since 1970.
    pub fn position_of(&self, log_time: u64, first: u64) -> PartPosition {
        if self.from.is_some_and(|from| log_time < from.nanos(first)) {
            PartPosition::Before
        } else if self.until.is_some_and(|until| until.nanos(first) <= log_time) {
            PartPosition::After
        } else {
            PartPosition::Within
        }
    }

    /// Returns whether `--subjects` selects a subject.
    pub fn selects(&self, subject: &Subject) -> bool {
        self.subjects.is_empty() || self.subjects.iter().any(|pattern| pattern.matches(subject))
    }
}

/// Speed of playing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PlaySpeed {
    /// A multiple of the recorded speed; above 0.
    Factor(f64),
    /// Without pauses.
    Max,
}

/// A time in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimePoint {
    /// Relative to the first message.
    Offset(Duration),
    /// A date.
    Date(WallTime),
}

impl TimePoint {
    /// Returns the time in nanoseconds since 1970, for a recording whose first message has the time `first`.
    fn nanos(self, first: u64) -> u64 {
        match self {
            TimePoint::Offset(span) => first.saturating_add(crate::time::nanos(span)),
            TimePoint::Date(date) => date.as_nanos(),
        }
    }
}

fn speed(text: &str) -> Result<PlaySpeed, String> {
    if text == "max" {
        return Ok(PlaySpeed::Max);
    }
    match text.strip_suffix('x').unwrap_or(text).parse::<f64>() {
        Ok(factor) if factor.is_finite() && 0.0 < factor => Ok(PlaySpeed::Factor(factor)),
        _ => Err("a speed is a number above 0, such as 0.5 or 2, or max".to_owned()),
    }
}

fn time_point(text: &str) -> Result<TimePoint, String> {
    let span = match value::wait(text) {
        Ok(span) => return Ok(TimePoint::Offset(span)),
        Err(error) => error,
    };
    let date = humantime::parse_rfc3339_weak(text).ok();
    let since_1970 = date.and_then(|date| date.duration_since(std::time::UNIX_EPOCH).ok());
    match since_1970 {
        Some(nanos) => Ok(TimePoint::Date(WallTime::from_nanos(crate::time::nanos(nanos)))),
        None => Err(format!("{span}; a date looks like 2026-11-25T22:15:00Z")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_numbers_or_max() {
        assert_eq!(
            (speed("0.5"), speed("2x"), speed("max")),
            (Ok(PlaySpeed::Factor(0.5)), Ok(PlaySpeed::Factor(2.0)), Ok(PlaySpeed::Max))
        );
        assert!(["0", "-1", "inf", "nan", "fast", ""].iter().all(|text| speed(text).is_err()));
    }

    #[test]
    fn times_are_spans_or_dates() {
        let second = Duration::from_secs(1);
        assert_eq!(time_point("1s"), Ok(TimePoint::Offset(second)));
        assert_eq!(time_point("1970-01-01T00:00:01Z"), Ok(TimePoint::Date(WallTime::from_nanos(1_000_000_000))));
        assert_eq!(time_point("1970-01-01 00:00:01"), time_point("1970-01-01T00:00:01Z"));
        assert!(["1", "soon", "1969-12-31T23:59:59Z", ""].iter().all(|text| time_point(text).is_err()));
        assert_eq!(TimePoint::Offset(second).nanos(u64::MAX), u64::MAX);
    }
}
