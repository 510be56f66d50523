//! The pictures of a run as one SVG, written by hand: bars, and curves of how long things took.

use std::fmt::Write as _;

use crate::report::{Chart, number};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 210.0;
const RIGHT: f64 = 110.0;
const BAR: f64 = 24.0;
const CURVES: f64 = 240.0;

/// Told apart by most eyes that see few colours; the first is the floor's or ours.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// The shares of all measurements that a curve shows.
const SHARES: std::ops::RangeInclusive<u32> = 0..=199;

pub(crate) fn svg(title: &str, charts: &[Chart]) -> String {
    let mut body = String::new();
    let mut top = 50.0;
    for chart in charts {
        top = match chart {
            Chart::Bars { title, unit, bars } => draw_bars(&mut body, top, title, unit, bars),
            Chart::Curves { title, unit, curves } => draw_curves(&mut body, top, title, unit, curves),
        };
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{top}\" fill=\"white\"/>\n<text x=\"16\" y=\"28\" font-size=\"16\">{}</text>\n{body}</svg>\n",
        escaped(title)
    )
}

fn heading(out: &mut String, top: f64, title: &str, unit: &str) {
    let _ = writeln!(out, "<text x=\"16\" y=\"{}\" font-weight=\"bold\">{}, {unit}</text>", top + 16.0, escaped(title));
}

fn draw_bars(out: &mut String, top: f64, title: &str, unit: &str, bars: &[(String, f64)]) -> f64 {
    heading(out, top, title, unit);
    let most = bars.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let mut y = top + 28.0;
    for (place, (name, value)) in bars.iter().enumerate() {
        let width = (value / most * (WIDTH - LEFT - RIGHT)).max(1.0);
        let text = y + BAR / 2.0 + 2.0;
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{text}\" text-anchor=\"end\">{}</text><rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" fill=\"{}\"/><text x=\"{:.1}\" y=\"{text}\">{}</text>",
            LEFT - 8.0,
            escaped(name),
            BAR - 6.0,
            COLOURS[place % COLOURS.len()],
            LEFT + width + 6.0,
            number(*value)
        );
        y += BAR;
    }
    y + 20.0
}

/// Share of the measurements from left to right, their value upwards, by powers of ten.
fn draw_curves(
    out: &mut String,
    top: f64,
    title: &str,
    unit: &str,
    curves: &[(String, crate::figures::Sample)],
) -> f64 {
    heading(out, top, title, unit);
    let top = top + 34.0;
    let (x0, x1) = (70.0, WIDTH - 250.0);
    let least = curves.iter().map(|(_, sample)| sample.min()).fold(f64::MAX, f64::min).max(0.001);
    let most = curves.iter().map(|(_, sample)| sample.quantile(0.995)).fold(least * 1.001, f64::max);
    let (low, high) = (least.log10().floor(), most.log10().ceil());
    let y_of =
        |value: f64| top + CURVES * (1.0 - (value.max(least).log10() - low) / (high - low).max(1.0)).clamp(0.0, 1.0);
    let mut power = low;
    while power <= high {
        let y = y_of(10_f64.powf(power));
        let _ = writeln!(
            out,
            "<line x1=\"{x0}\" x2=\"{x1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            x0 - 6.0,
            y + 4.0,
            number(10_f64.powf(power))
        );
        power += 1.0;
    }
    for (share, name) in [(0.0, "0 %"), (0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %")] {
        let x = x0 + share * (x1 - x0);
        let _ =
            writeln!(out, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>", top + CURVES + 16.0);
    }
    for (place, (name, sample)) in curves.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        let mut points = String::new();
        for step in SHARES {
            let share = f64::from(step) / 200.0;
            let _ = write!(points, "{:.1},{:.1} ", x0 + share * (x1 - x0), y_of(sample.quantile(share)));
        }
        let y = top + 14.0 + 18.0 * place as f64;
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/><text x=\"{}\" y=\"{y}\" fill=\"{colour}\">{}</text>",
            points.trim_end(),
            x1 + 12.0,
            escaped(name)
        );
    }
    top + CURVES + 44.0
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Sample;

    #[test]
    fn a_picture_is_well_formed_and_names_what_it_shows() {
        let charts = [
            Chart::Bars {
                title: "a < b".to_owned(),
                unit: "calls/s",
                bars: vec![("one".to_owned(), 0.0), ("two".to_owned(), 5.0)],
            },
            Chart::Curves {
                title: "c".to_owned(),
                unit: "us",
                curves: vec![("three".to_owned(), Sample::new([1.0, 90.0]))],
            },
        ];
        let svg = svg("all", &charts);
        for part in ["a &lt; b", "one", "two", "three", "<polyline"] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("inf"));
    }
}
