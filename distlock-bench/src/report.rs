//! What a run found: lines with a verdict, and the pictures that go with them.

use std::fmt::Write as _;

use crate::figures::Sample;

/// One line of the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pub(crate) line: String,
    /// The figure that is judged, in `unit`.
    pub(crate) figure: f64,
    pub(crate) unit: &'static str,
    /// Against what the line compares with, where it compares.
    pub(crate) ratio: Option<f64>,
    /// What has to be reached; empty for a line that is there to be compared with.
    pub(crate) target: String,
    /// `None` for a line that is there to be compared with, or that was skipped.
    pub(crate) holds: Option<bool>,
    /// Spread, and what else belongs to the figure.
    pub(crate) note: String,
}

/// A picture.
#[derive(Clone, Debug)]
pub(crate) enum Chart {
    /// One bar for each name.
    Bars { title: String, unit: &'static str, bars: Vec<(String, f64)> },
    /// For each name, the value that a share of all measurements does not exceed.
    Curves { title: String, unit: &'static str, curves: Vec<(String, Sample)> },
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) lines: Vec<Line>,
    pub(crate) charts: Vec<Chart>,
}

impl Report {
    /// Adds a line, and prints it.
    pub(crate) fn add(&mut self, line: Line) {
        println!("{}", row(&line));
        self.lines.push(line);
    }

    pub(crate) fn draw(&mut self, chart: Chart) {
        self.charts.push(chart);
    }

    pub(crate) fn all_hold(&self) -> bool {
        self.lines.iter().all(|line| line.holds != Some(false))
    }

    /// The lines as a JSON array.
    pub(crate) fn json(&self) -> String {
        let mut out = String::from("[\n");
        for (place, line) in self.lines.iter().enumerate() {
            let ratio = line.ratio.map_or("null".to_owned(), number);
            let holds = line.holds.map_or("null".to_owned(), |holds| holds.to_string());
            let comma = if place + 1 < self.lines.len() { "," } else { "" };
            let _ = writeln!(
                out,
                "  {{\"line\": {}, \"figure\": {}, \"unit\": {}, \"ratio\": {ratio}, \"holds\": {holds}, \"target\": {}, \"note\": {}}}{comma}",
                text(&line.line),
                number(line.figure),
                text(line.unit),
                text(&line.target),
                text(&line.note),
            );
        }
        out + "]\n"
    }
}

fn row(line: &Line) -> String {
    let verdict = match line.holds {
        Some(true) => "holds",
        Some(false) => "FAILS",
        None => "",
    };
    let ratio = line.ratio.map_or(String::new(), |ratio| format!("{}x", number(ratio)));
    let figure = format!("{} {}", number(line.figure), line.unit);
    let row = format!("{verdict:<5}  {:<58} {figure:>16} {ratio:>9}  {:<14} {}", line.line, line.target, line.note);
    row.trim_end().to_owned()
}

/// With as many places as say something.
pub(crate) fn number(value: f64) -> String {
    match value {
        value if !value.is_finite() => "0".to_owned(),
        value if value == value.trunc() || value.abs() >= 1000.0 => format!("{value:.0}"),
        value if value.abs() >= 100.0 => format!("{value:.1}"),
        value if value.abs() >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

fn text(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_json() {
        let mut report = Report::default();
        let line = Line { line: "a \"b\"\n".to_owned(), figure: 1.5, unit: "us", ..Line::default() };
        report.add(line.clone());
        report.add(Line { ratio: Some(0.25), holds: Some(false), target: "<= 1".to_owned(), ..line });
        let expected = "[\n  {\"line\": \"a \\\"b\\\" \", \"figure\": 1.50, \"unit\": \"us\", \"ratio\": null, \"holds\": null, \"target\": \"\", \"note\": \"\"},\n  \
             {\"line\": \"a \\\"b\\\" \", \"figure\": 1.50, \"unit\": \"us\", \"ratio\": 0.250, \"holds\": false, \"target\": \"<= 1\", \"note\": \"\"}\n]\n";
        assert_eq!(report.json(), expected);
        assert!(!report.all_hold());
    }

    #[test]
    fn numbers_have_as_many_places_as_say_something() {
        let shown = [0.0, 2.0, 1.104, 0.85, 123.45, 12_345.6, f64::NAN].map(number);
        assert_eq!(shown, ["0", "2", "1.10", "0.850", "123.5", "12346", "0"]);
    }
}
