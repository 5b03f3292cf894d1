//! Tables as seed 002 prints `show loss`: right-aligned cells, centred headers, `|` between columns.

use std::fmt;

/// One column: its header and the minimum width of its cells.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Header above the cells.
    pub header: &'static str,
    /// Minimum width in characters; longer cells and a longer header widen the column.
    pub width: usize,
    /// True if the cells are left-aligned.
    pub left: bool,
}

impl Column {
    /// Returns a right-aligned column that is as wide as its header or its widest cell.
    pub const fn new(header: &'static str) -> Column {
        Column { header, width: 0, left: false }
    }

    /// Returns the same column with left-aligned cells; for text of different lengths.
    pub const fn left(self) -> Column {
        Column { left: true, ..self }
    }

    /// Returns the same column, at least `width` characters wide.
    pub const fn wide(self, width: usize) -> Column {
        Column { width, ..self }
    }
}

/// Columns and rows, ready to print.
#[derive(Clone, Debug)]
pub struct TextTable {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// Creates a table without rows.
    pub fn new(columns: &[Column]) -> TextTable {
        TextTable { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; it has one cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "a row has one cell for each column");
        self.rows.push(cells);
    }
}

impl fmt::Display for TextTable {
    /// Writes the header line, the separator and the rows; each line ends with a line feed. The odd space of a centred
    /// header is on its left. The last column keeps its blanks unless it is left-aligned, as in the seed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = self.columns.iter().enumerate().map(|(at, column)| self.width(at, column)).collect();
        for (at, (column, width)) in self.columns.iter().zip(&widths).enumerate() {
            let spare = width - column.header.chars().count();
            let (before, after) = match column.left {
                true => (0, if at + 1 == widths.len() { 0 } else { spare }),
                false => (spare.div_ceil(2), spare / 2),
            };
            let between = if at == 0 { "" } else { " | " };
            write!(f, "{between}{:before$}{}{:after$}", "", column.header, "")?;
        }
        f.write_str("\n")?;
        for (at, width) in widths.iter().enumerate() {
            let last = at + 1 == widths.len();
            let dashes = width + if at == 0 || last { 1 } else { 2 };
            write!(f, "{}{}", "-".repeat(dashes), if last { "\n" } else { "+" })?;
        }
        for row in &self.rows {
            for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let between = if at == 0 { "" } else { " | " };
                match self.columns[at].left {
                    true if at + 1 == widths.len() => write!(f, "{between}{cell}")?,
                    true => write!(f, "{between}{cell:<width$}")?,
                    false => write!(f, "{between}{cell:>width$}")?,
                }
            }
            f.write_str("\n")?;
        }
        Ok(())
    }
}

impl TextTable {
    fn width(&self, at: usize, column: &Column) -> usize {
        let cells = self.rows.iter().map(|row| row[at].chars().count());
        cells.fold(column.width.max(column.header.chars().count()), usize::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_grow_with_their_cells() {
        let mut table = TextTable::new(&[Column::new("a").left(), Column::new("nn").wide(3), Column::new("t")]);
        assert_eq!(table.to_string(), "a |  nn | t\n--+-----+--\n");
        table.row(vec!["peer".into(), "1".into(), "12:00".into()]);
        table.row(vec!["b".into(), "1234".into(), String::new()]);
        assert_eq!(
            table.to_string(),
            "a    |  nn  |   t  \n-----+------+------\npeer |    1 | 12:00\nb    | 1234 |      \n"
        );
    }
}
