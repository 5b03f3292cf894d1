//! The state of the screen: which view is shown in which order, and what a key changes. It draws into a buffer and knows
//! no terminal.

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Clear, Paragraph, Row, Table, TableState, Wrap};

use super::args::TopView;
use super::sample::{TopSample, TopTable};

/// Rows that a Page key moves.
const PAGE_ROWS: u16 = 10;
/// Width of a column of text that is wider than its share.
const COLUMN_WIDTH_MAX: u16 = 40;

const KEYS: &str = "\
1 peers   2 subjects   3 loss   4 clients   5 listeners   6 lan   Tab next
s      order by the next column          r      other direction
/      filter; Enter keeps it, Esc ends it
p      pause and go on                   ?      these keys
arrows, PageUp, PageDown, Home           scroll
q      end";

/// Consequence of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyResult {
    /// The screen is drawn again.
    Redraw,
    /// The command ends.
    Quit,
}

/// The screen of `top`.
#[derive(Debug)]
pub(super) struct TopScreen {
    view: TopView,
    /// Column of the order, and whether it descends; `None`: that of the view.
    order: Option<(usize, bool)>,
    filter: String,
    is_typing: bool,
    is_helping: bool,
    pub(super) is_paused: bool,
    scroll: usize,
}

impl TopScreen {
    /// Creates a screen with this view.
    pub(super) fn new(view: TopView) -> TopScreen {
        TopScreen {
            view,
            order: None,
            filter: String::new(),
            is_typing: false,
            is_helping: false,
            is_paused: false,
            scroll: 0,
        }
    }

    /// Returns whether the screen shows the peers of the LAN.
    pub(super) fn shows_lan(&self) -> bool {
        self.view == TopView::Lan
    }

    /// Handles a key.
    pub(super) fn on_key(&mut self, key: KeyEvent) -> KeyResult {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return KeyResult::Quit;
        }
        if self.is_typing {
            self.type_filter(key.code);
            return KeyResult::Redraw;
        }
        if std::mem::take(&mut self.is_helping) {
            return KeyResult::Redraw;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return KeyResult::Quit,
            KeyCode::Char(digit @ '1'..='6') => self.show(TopView::ALL[digit as usize - '1' as usize]),
            KeyCode::Tab => self.show_next(1),
            KeyCode::BackTab => self.show_next(TopView::ALL.len() - 1),
            KeyCode::Char('s') => self.order_by_next_column(),
            KeyCode::Char('r') => self.order = Some((self.column(), !self.is_descending())),
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('?' | 'h') => self.is_helping = true,
            KeyCode::Down => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(PAGE_ROWS.into()),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(PAGE_ROWS.into()),
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
        KeyResult::Redraw
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(typed) => self.filter.push(typed),
            _ => {}
        }
    }

    fn show(&mut self, view: TopView) {
        (self.view, self.order, self.scroll) = (view, None, 0);
    }

    fn show_next(&mut self, steps: usize) {
        let at = TopView::ALL.iter().position(|view| *view == self.view).unwrap_or_default();
        self.show(TopView::ALL[(at + steps) % TopView::ALL.len()]);
    }

    /// Returns the table of the view in its order.
    fn table(&self, now: &TopSample, before: Option<&TopSample>) -> TopTable {
        let mut table = TopTable::new(self.view, now, before);
        let (column, is_descending) = self.order.unwrap_or((table.order, true));
        table.sort(column.min(table.columns.len() - 1), is_descending);
        table.filter(&self.filter);
        table
    }

    fn columns(&self) -> (usize, usize) {
        let empty = TopTable::new(self.view, &TopSample::empty(), None);
        (empty.columns.len(), empty.order)
    }

    fn column(&self) -> usize {
        self.order.map_or(self.columns().1, |(column, _)| column)
    }

    fn is_descending(&self) -> bool {
        self.order.is_none_or(|(_, is_descending)| is_descending)
    }

    fn order_by_next_column(&mut self) {
        let (count, _) = self.columns();
        self.order = Some(((self.column() + 1) % count, self.is_descending()));
    }

    /// Draws the screen. Any size will do.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, now: &TopSample, before: Option<&TopSample>) {
        let [heading, views, body, footer] =
            Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
                .areas(frame.area());
        let bold = Style::new().add_modifier(Modifier::BOLD);
        frame.render_widget(Line::styled(now.heading(), bold), heading);
        frame.render_widget(self.view_line(), views);

        let table = self.table(now, before);
        self.scroll = self.scroll.min(table.rows.len().saturating_sub(1));
        let widths: Vec<Constraint> = (0..table.columns.len()).map(|at| width(&table, at)).collect();
        let (ordered_by, is_descending) = self.order.unwrap_or((table.order, true));
        let headers = table.columns.iter().enumerate().map(|(at, column)| {
            let sign = if at != ordered_by {
                ""
            } else if is_descending {
                "▼"
            } else {
                "▲"
            };
            cell(format!("{}{sign}", column.header), column.left)
        });
        let header = Row::new(headers).style(Style::new().add_modifier(Modifier::REVERSED));
        let rows = table.rows.iter().map(|row| {
            Row::new(row.iter().zip(&table.columns).map(|(content, column)| cell(content.text.clone(), column.left)))
        });
        let mut state = TableState::new().with_offset(self.scroll);
        frame.render_stateful_widget(Table::new(rows, widths).header(header).column_spacing(2), body, &mut state);
        frame.render_widget(Line::raw(self.footer()), footer);
        if self.is_helping {
            frame.render_widget(Clear, body);
            frame.render_widget(Paragraph::new(KEYS).wrap(Wrap { trim: false }), body);
        }
    }

    fn view_line(&self) -> Line<'static> {
        let spans = TopView::ALL.iter().zip(1..).flat_map(|(view, key)| {
            let style = match *view == self.view {
                true => Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
                false => Style::new(),
            };
            [ratatui::text::Span::styled(format!("{key} {}", view.as_str()), style), "  ".into()]
        });
        Line::from_iter(spans)
    }

    fn footer(&self) -> String {
        match (self.is_typing, self.is_paused) {
            (true, _) => format!("filter: {}_", self.filter),
            (false, true) => "paused: p goes on, ? shows the keys, q ends".to_owned(),
            (false, false) if !self.filter.is_empty() => format!("filter: {}   ? keys   q end", self.filter),
            (false, false) => "? keys   s order   / filter   p pause   q end".to_owned(),
        }
    }
}

fn cell(text: String, is_left: bool) -> Text<'static> {
    let text = Text::raw(text);
    if is_left { text.left_aligned() } else { text.right_aligned() }
}

/// Returns the width of a column: as its widest cell, with room for the sign of the order.
fn width(table: &TopTable, at: usize) -> Constraint {
    let header = table.columns[at].header.chars().count() + 1;
    let widest = table.rows.iter().map(|row| row[at].text.chars().count()).max().unwrap_or_default();
    let width = u16::try_from(widest.max(header)).unwrap_or(u16::MAX).min(COLUMN_WIDTH_MAX);
    if table.columns[at].left { Constraint::Max(width) } else { Constraint::Length(width) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    fn sample(millis: u64, messages: u64) -> TopSample {
        let peers = json!({ "rows": [
            { "epoch": "1", "publisher": "B.test", "address": "10.0.0.2:4000", "state": "up", "messages_in": messages,
              "datagrams_in": messages, "lost": 3, "unverified": 0 },
            { "epoch": "2", "publisher": "C.test", "address": "10.0.0.3:4000", "state": "silent", "messages_in": 0,
              "datagrams_in": 0, "lost": 9, "unverified": 0 }] });
        let status = json!({ "status": { "name": "A.test", "group": "239.1.2.3", "port": 7500, "interface": "eth0" } });
        TopSample::example(
            millis,
            &[("peers", peers), ("status", status), ("health", json!({ "health": { "state": "ok" } }))],
        )
    }

    /// Draws the screen after these keys, and returns its lines.
    fn drawn(keys: &str, (width, height): (u16, u16)) -> Vec<String> {
        let mut screen = TopScreen::new(TopView::Peers);
        for key in keys.chars() {
            let code = if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) };
            screen.on_key(KeyEvent::new(code, KeyModifiers::NONE));
        }
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame, &sample(2_000, 50), Some(&sample(0, 10)))).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |row: u16| (0..width).map(|column| buffer[(column, row)].symbol()).collect::<String>();
        (0..height).map(|row| line(row).trim_end().to_owned()).collect()
    }

    #[test]
    fn view_fits_eighty_columns() {
        let lines = drawn("", (80, 8));
        assert!(lines[0].starts_with("A.test  239.1.2.3 port 7500 on eth0  health ok  1 peer up"), "{lines:#?}");
        assert_eq!(lines[1], "1 peers  2 subjects  3 loss  4 clients  5 listeners  6 lan");
        assert!(lines[2].starts_with("peer") && lines[2].contains("msgs/s▼"), "{lines:#?}");
        assert!(lines[3].starts_with("B.test  10.0.0.2:4000  up") && lines[3].contains("20.0"), "{lines:#?}");
        assert!(lines[4].starts_with("C.test") && lines[4].ends_with('0'), "{lines:#?}");
        assert_eq!(lines[7], "? keys   s order   / filter   p pause   q end");
    }

    #[test]
    fn keys_change_order_and_filter() {
        assert!(drawn("ss", (80, 8))[3].starts_with("C.test"), "the order is by losses");
        assert!(drawn("ssr", (80, 8))[3].starts_with("B.test"), "and in the other direction");
        let lines = drawn("/C.t\n", (80, 8));
        assert!(lines[3].starts_with("C.test") && lines[4].is_empty(), "{lines:#?}");
        assert_eq!(lines[7], "filter: C.t   ? keys   q end");
        assert_eq!(drawn("p", (80, 8))[7], "paused: p goes on, ? shows the keys, q ends");
        assert!(drawn("?", (80, 8))[2].starts_with("1 peers   2 subjects"));
        let quit = TopScreen::new(TopView::Loss).on_key(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE));
        assert_eq!(quit, KeyResult::Quit);
    }

    #[test]
    fn tiny_screen_is_drawn() {
        for size in [(20, 6), (20, 1), (1, 1), (3, 40), (200, 60)] {
            for keys in ["", "2", "3", "4", "5", "6", "?", "/x"] {
                drawn(keys, size);
            }
        }
    }
}
