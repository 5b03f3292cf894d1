//! `top`: a live view of a peer on a terminal, or the same tables as text.

pub mod args;
mod lan;
mod sample;
mod screen;

use std::io::{self, IsTerminal};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyEventKind};

use self::args::{TopOptions, TopView};
use self::lan::LanSampler;
use self::sample::{TopSample, TopTable};
use self::screen::{KeyResult, TopScreen};
use super::connect;
use super::group_reports;
use crate::bus::Bus;
use crate::clock::Clock;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::Output;

/// Maximum time after which a signal is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Interval between two looks whether the peers of the LAN have answered.
const ANSWER_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Runs `top`.
///
/// # Errors
/// The peer cannot be reached, or ends; the terminal fails.
pub fn run(options: &TopOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let bus = connect::attach(options.socket.as_ref(), "top")?;
    let interrupt = Interrupt::watch()?;
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if options.once || !is_terminal {
        return print(options, &bus, &interrupt, out);
    }
    // The first sample comes before the screen changes, so that its failure is readable.
    let first = TopSample::take(&bus, options.at.as_ref())?;
    let mut terminal = ratatui::try_init()?;
    let result = show(options, &bus, &interrupt, &mut terminal, first);
    ratatui::restore();
    result
}

/// Prints all views as text, with the rates between two samples.
fn print(options: &TopOptions, bus: &Bus, interrupt: &Interrupt, out: &mut Output) -> Result<Exit, CommandFailure> {
    let mut lan = LanSampler::new();
    let before = TopSample::take(bus, options.at.as_ref())?;
    ask_lan(&mut lan, bus, interrupt)?;
    interrupt.sleep(options.interval);
    let mut now = TopSample::take(bus, options.at.as_ref())?;
    ask_lan(&mut lan, bus, interrupt)?;
    if interrupt.is_raised() {
        return Ok(Exit::Failed);
    }
    now.set_lan(lan.rows());
    out.line(now.heading())?;
    for view in TopView::ALL {
        let mut table = TopTable::new(view, &now, Some(&before));
        table.sort(table.order, true);
        out.line(format_args!("\n{}\n{}", view.as_str(), table.to_text().to_string().trim_end_matches('\n')))?;
    }
    Ok(Exit::Done)
}

/// Asks each peer of the LAN for its summary, and waits for the answers, until a signal.
fn ask_lan(lan: &mut LanSampler, bus: &Bus, interrupt: &Interrupt) -> Result<(), CommandFailure> {
    let began = Clock::now().instant;
    lan.update_peers(&group_reports::peers(bus)?);
    lan.ask_all();
    while !lan.is_complete(began) && !interrupt.is_raised() {
        lan.poll(bus);
        interrupt.sleep(ANSWER_CHECK_INTERVAL);
    }
    Ok(())
}

/// Shows the screen until the user ends it.
fn show(
    options: &TopOptions,
    bus: &Bus,
    interrupt: &Interrupt,
    terminal: &mut ratatui::DefaultTerminal,
    first: TopSample,
) -> Result<Exit, CommandFailure> {
    let mut screen = TopScreen::new(options.view);
    let (mut now, mut before) = (first, None);
    let mut lan = LanSampler::new();
    lan.update_peers(&group_reports::peers(bus)?);
    let mut next = Clock::now().instant + options.interval;
    loop {
        now.set_lan(lan.rows());
        terminal.draw(|frame| screen.draw(frame, &now, before.as_ref()))?;
        loop {
            if interrupt.is_raised() {
                return Ok(Exit::Done);
            }
            let asks_lan = screen.shows_lan() && !screen.is_paused;
            if asks_lan {
                lan.poll(bus);
            }
            let left = next.since(Clock::now().instant);
            if left.is_zero() {
                next = Clock::now().instant + options.interval;
                if asks_lan {
                    lan.update_peers(&group_reports::peers(bus)?);
                }
                if !screen.is_paused {
                    let sample = TopSample::take(bus, options.at.as_ref())?;
                    before = Some(std::mem::replace(&mut now, sample));
                    break;
                }
                continue;
            }
            if event::poll(left.min(POLL_INTERVAL))? {
                match event::read()? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => match screen.on_key(key) {
                        KeyResult::Quit => return Ok(Exit::Done),
                        KeyResult::Redraw => break,
                    },
                    Event::Resize(..) => break,
                    _ => {}
                }
            }
        }
    }
}
