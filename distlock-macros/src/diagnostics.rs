//! How the macro says what is wrong: every fault is collected, so that one build shows them all, and a fault inside the
//! key template is drawn under the template, because stable compilers cannot point into a string.

use std::ops::Range;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// The faults found so far.
#[derive(Debug, Default)]
pub(crate) struct Errors(Vec<syn::Error>);

impl Errors {
    pub(crate) fn at(&mut self, span: Span, message: impl std::fmt::Display) {
        self.0.push(syn::Error::new(span, message));
    }

    /// On all of these tokens.
    pub(crate) fn on(&mut self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.0.push(syn::Error::new_spanned(tokens, message));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn into_tokens(self) -> TokenStream {
        self.0.iter().map(syn::Error::to_compile_error).collect()
    }
}

/// The message with a picture of the template below it and a caret under the given bytes of it.
pub(crate) fn drawn(message: &str, template: &str, at: Range<usize>) -> String {
    let plain = |text: &str| -> String { text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect() };
    let before = template.get(..at.start).unwrap_or_default();
    let marked = template.get(at).unwrap_or_default();
    let indent = " ".repeat(before.chars().count());
    let carets = "^".repeat(marked.chars().count().max(1));
    format!("{message}\n\n    {}\n    {indent}{carets}", plain(template))
}

/// The candidate that the user most likely meant, if one is near enough.
pub(crate) fn nearest<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A third of the letters may be wrong: `tll` finds `ttl`, `colour` finds nothing.
    let limit = (given.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(given, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= limit && *distance < candidate.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Edits between two words; swapping two neighbours is one edit (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    // The first row and the first column count insertions and removals; the rest is overwritten.
    let mut rows: Vec<Vec<usize>> = (0..=a.len()).map(|i| (i..=i + b.len()).collect()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

/// `a`, `b` and `c`, each in backticks.
pub(crate) fn list<T: std::fmt::Display>(names: &[T], last: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((end, front)) => format!("{} {last} {end}", front.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let names = ["key", "ttl", "wait", "on_busy"];
        assert_eq!(nearest("tll", names), Some("ttl"));
        assert_eq!(nearest("kee", names), Some("key"));
        assert_eq!(nearest("on_bsuy", names), Some("on_busy"));
        assert_eq!(nearest("colour", names), None);
        assert_eq!(nearest("x", ["a"]), None);
    }

    #[test]
    fn the_caret_counts_characters() {
        assert_eq!(drawn("m", "ü:{id}", 4..6), "m\n\n    ü:{id}\n       ^^");
    }

    #[test]
    fn a_caret_outside_the_template_is_harmless() {
        assert_eq!(drawn("m", "ab", 7..9), "m\n\n    ab\n    ^");
    }
}
