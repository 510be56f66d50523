//! Durations as the attribute takes them: `"5s"`, `"500ms"`, `"1m 30s"`, `"24h"`.

use std::time::Duration;

/// The units from the longest to the shortest, with their milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The duration that the text says, or what is wrong with it.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("the duration is empty; write one such as `\"5s\"`".to_owned());
    }
    if rest.starts_with('-') {
        return Err(format!("`{text}` is negative; write a duration such as `\"5s\"`"));
    }
    let mut millis: u64 = 0;
    // Units may only get shorter, so that no unit stands twice.
    let mut next_unit = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        if number.is_empty() {
            return Err(format!("`{text}` is no duration; write one such as `\"5s\"` or `\"1m 30s\"`"));
        }
        if tail.starts_with('.') || tail.starts_with(',') {
            return Err(format!("`{text}` has a fraction; use whole numbers of `h`, `m`, `s` and `ms`"));
        }
        let letters = tail.find(|c: char| c.is_ascii_digit() || c.is_whitespace()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        if unit.is_empty() {
            return Err(no_unit(number));
        }
        let Some(position) = UNITS.iter().position(|(name, _)| *name == unit) else {
            return Err(format!("unknown unit `{unit}` in `{text}`; use `ms`, `s`, `m` or `h`"));
        };
        if position < next_unit {
            return Err(format!("the units of `{text}` are out of order; write each once, the longest first"));
        }
        next_unit = position + 1;
        millis = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(UNITS[position].1))
            .and_then(|part| millis.checked_add(part))
            .ok_or_else(|| format!("`{text}` is too long; the longest duration that makes sense here is `24h`"))?;
        rest = tail.trim_start();
    }
    Ok(Duration::from_millis(millis))
}

/// Whether the text counts in days, which no lock does.
pub(crate) fn is_in_days(text: &str) -> bool {
    matches!(text.trim().trim_start_matches(|c: char| c.is_ascii_digit()).trim(), "d" | "day" | "days")
}

/// What to say of a number that stands alone.
pub(crate) fn no_unit(number: &str) -> String {
    format!("`{number}` has no unit; did you mean `\"{number}s\"` or `\"{number}ms\"`?")
}

/// The duration as a user would write it.
pub(crate) fn show(duration: Duration) -> String {
    let mut millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 {
        return "0s".to_owned();
    }
    let mut parts = Vec::new();
    for (unit, size) in UNITS {
        if millis / size > 0 {
            parts.push(format!("{}{unit}", millis / size));
            millis %= size;
        }
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_and_their_sum() {
        for (text, millis) in [
            ("500ms", 500),
            ("5s", 5_000),
            ("1m 30s", 90_000),
            ("1m30s", 90_000),
            ("24h", 86_400_000),
            ("0s", 0),
            (" 2s ", 2_000),
            ("1h 1m 1s 1ms", 3_661_001),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_shown_again() {
        for text in ["500ms", "5s", "1m 30s", "24h", "0s", "1h 1m 1s 1ms"] {
            assert_eq!(show(parse(text).unwrap()), text);
        }
    }

    #[test]
    fn faults_name_the_way_out() {
        for (text, part) in [
            ("", "empty"),
            ("  ", "empty"),
            ("5", "`5` has no unit; did you mean `\"5s\"` or `\"5ms\"`?"),
            ("1m 30", "`30` has no unit"),
            ("5sec", "unknown unit `sec` in `5sec`"),
            ("300d", "unknown unit `d`"),
            ("0.5ms", "fraction"),
            ("1,5s", "fraction"),
            ("-5s", "negative"),
            ("s", "no duration"),
            ("5s 1m", "out of order"),
            ("5s 5s", "out of order"),
            ("99999999999999999999h", "too long"),
            ("18446744073709551615h", "too long"),
            ("٣s", "no duration"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
