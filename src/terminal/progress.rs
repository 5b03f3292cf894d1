//! The progress of long work: a line on a terminal, and nothing where standard error is no terminal.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

use crate::time::Instant;

/// Time before the first text, as short work needs none, and between two texts.
const INTERVAL: Duration = Duration::from_secs(1);

/// The line that shows the progress of one piece of work. It disappears with the value, or with [`Progress::clear`].
#[derive(Debug)]
pub struct Progress {
    line: ProgressBar,
    /// Time of the last text, or the start of the work.
    shown: Instant,
}

impl Progress {
    /// Starts the progress of work that begins now. If it has a known number of parts, such as messages, bytes or
    /// nanoseconds, the line has a bar and the time left.
    pub fn new(total: Option<u64>, now: Instant) -> Progress {
        let template = match total {
            Some(_) => "{bar:20} {percent:>3} %  {wide_msg} {eta} left",
            None => "{wide_msg}",
        };
        Progress { line: line(total, template), shown: now }
    }

    /// Shows a text at once, and the time since then, for work that cannot report its progress.
    pub fn activity(text: String, now: Instant) -> Progress {
        let line = line(None, "{elapsed:>3} {wide_msg}");
        if !line.is_hidden() {
            line.set_message(text);
            line.enable_steady_tick(INTERVAL);
        }
        Progress { line, shown: now }
    }

    /// Shows a text, and that `done` parts of the work are done, if a second has passed since the last time.
    pub fn show(&mut self, now: Instant, done: u64, text: impl FnOnce() -> String) {
        if !self.line.is_hidden() && INTERVAL <= now.since(self.shown) {
            self.shown = now;
            // Each of the two draws the line, so that the bar never is behind the text.
            self.line.set_position(done);
            self.line.set_message(text());
        }
    }

    /// Removes the line; for output that follows while the value still exists.
    pub fn clear(&self) {
        self.line.finish_and_clear();
    }
}

fn line(total: Option<u64>, template: &str) -> ProgressBar {
    let target = match io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let style = ProgressStyle::with_template(template).expect("the template is well-formed");
    ProgressBar::with_draw_target(total, target).with_style(style).with_finish(ProgressFinish::AndClear)
}
