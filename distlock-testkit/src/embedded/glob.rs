//! Patterns as in `KEYS`: `*`, `?`, `[a-c]`, `[^a]`, and `\` before what is meant literally.

/// True if the whole of `text` fits the pattern.
pub(crate) fn fits(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|skipped| fits(rest, &text[skipped..])),
        Some((first, rest)) => {
            let Some((byte, text)) = text.split_first() else { return false };
            match first {
                b'?' => fits(rest, text),
                b'[' => {
                    let (is_in, rest) = class(rest, *byte);
                    is_in && fits(rest, text)
                }
                b'\\' if !rest.is_empty() => rest[0] == *byte && fits(&rest[1..], text),
                _ => first == byte && fits(rest, text),
            }
        }
    }
}

/// Whether the byte is in the class that begins here, and what follows the class.
fn class(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let (negated, mut rest) = match pattern.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let mut is_in = false;
    loop {
        match rest {
            // A class without an end is closed by the end of the pattern.
            [] => return (is_in != negated, rest),
            [b']', after @ ..] => return (is_in != negated, after),
            [b'\\', literal, after @ ..] => {
                is_in |= *literal == byte;
                rest = after;
            }
            [from, b'-', to, after @ ..] => {
                is_in |= (*from.min(to)..=*from.max(to)).contains(&byte);
                rest = after;
            }
            [one, after @ ..] => {
                is_in |= *one == byte;
                rest = after;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_what_they_should() {
        let fitting = [("*", ""), ("a*c", "abbc"), ("a?c", "abc"), ("a[b-d]e", "ace"), ("a[^b]", "ac"), ("\\*", "*")];
        for (pattern, text) in fitting {
            assert!(fits(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        let others =
            [("", "a"), ("a", ""), ("a?c", "ac"), ("a[b-d]e", "aee"), ("a[^b]", "ab"), ("\\*", "a"), ("a*c", "ab")];
        for (pattern, text) in others {
            assert!(!fits(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }
}
