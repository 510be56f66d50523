//! Whether a name stands free in the tokens of an expression, so that it means what it means around it. Where that is not
//! certain, because the name may be bound on the way or stands in a macro that is not known, the answer is no.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use syn::ext::IdentExt;

/// Macros whose arguments are expressions and a format string that captures names.
const FORMATTING: [&str; 16] = [
    "anyhow", "bail", "debug", "ensure", "eprint", "eprintln", "error", "format", "info", "panic", "print", "println",
    "trace", "vec", "warn", "write",
];

/// Where the name stands free for the first time in the body of a closure with this pattern.
pub(crate) fn first_use(name: &str, pattern: &TokenStream, body: &TokenStream) -> Option<Span> {
    let tokens: Vec<TokenTree> = body.clone().into_iter().collect();
    if mentions(name, pattern) || binds(name, &tokens) {
        return None;
    }
    free(name, &tokens, false)
}

fn mentions(name: &str, tokens: &TokenStream) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => is(&ident, name),
        TokenTree::Group(group) => mentions(name, &group.stream()),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

fn is(ident: &Ident, name: &str) -> bool {
    ident.unraw() == name
}

fn is_punct(token: Option<&TokenTree>, expected: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == expected)
}

/// Whether the name stands anywhere where a pattern or an item could give it a meaning of its own.
fn binds(name: &str, tokens: &[TokenTree]) -> bool {
    let named = |tokens: &[TokenTree]| mentions(name, &tokens.iter().cloned().collect());
    tokens.iter().enumerate().any(|(at, token)| {
        let (before, rest) = (&tokens[..at], &tokens[at + 1..]);
        let until = |end: &dyn Fn(&TokenTree) -> bool| &rest[..rest.iter().position(end).unwrap_or(rest.len())];
        match token {
            TokenTree::Ident(word) if word == "let" => {
                named(until(&|token| is_punct(Some(token), '=') || is_punct(Some(token), ';')))
            }
            TokenTree::Ident(word) if word == "for" => {
                named(until(&|token| matches!(token, TokenTree::Ident(word) if word == "in")))
            }
            TokenTree::Ident(word)
                if ["fn", "const", "static", "use", "mod", "macro_rules"].iter().any(|item| word == item) =>
            {
                named(until(&|token| is_punct(Some(token), ';')))
            }
            // An assignment, or a named argument of a macro.
            TokenTree::Ident(word) if is(word, name) => is_punct(rest.first(), '=') && !is_operator(rest),
            // The argument of another closure.
            TokenTree::Punct(bar) if bar.as_char() == '|' => named(until(&|token| is_punct(Some(token), '|'))),
            // The patterns of a `match`, back to the comma or the braces that end the arm before.
            TokenTree::Punct(equals) if equals.as_char() == '=' && is_punct(rest.first(), '>') => {
                let start = before.iter().rposition(|token| is_punct(Some(token), ',')).map_or(0, |comma| comma + 1);
                named(&before[start..])
            }
            TokenTree::Group(group) => binds(name, &group.stream().into_iter().collect::<Vec<_>>()),
            _ => false,
        }
    })
}

/// Whether the `=` at the beginning is half of `==` or `=>`.
fn is_operator(tokens: &[TokenTree]) -> bool {
    is_punct(tokens.get(1), '=') || is_punct(tokens.get(1), '>')
}

fn free(name: &str, tokens: &[TokenTree], formatted: bool) -> Option<Span> {
    tokens.iter().enumerate().find_map(|(at, token)| {
        let (before, next) = (&tokens[..at], tokens.get(at + 1));
        let last = before.last();
        match token {
            TokenTree::Ident(ident) => {
                let is_range = is_punct(last, '.') && before.len() > 1 && is_punct(before.get(before.len() - 2), '.');
                let is_member = is_punct(last, '.') && !is_range;
                let is_path = is_punct(last, ':') && before.len() > 1 && is_punct(before.get(before.len() - 2), ':');
                let is_lifetime = is_punct(last, '\'');
                // `NAME: VALUE`, `NAME::MORE` and `NAME!(…)`, but not `NAME != …`.
                let is_name = is_punct(next, ':') || (is_punct(next, '!') && !is_punct(tokens.get(at + 2), '='));
                (is(ident, name) && !is_member && !is_path && !is_lifetime && !is_name).then(|| ident.span())
            }
            TokenTree::Group(group) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                match called_macro(before, group) {
                    None => free(name, &inner, false),
                    Some(called) if FORMATTING.iter().any(|known| called == known) => free(name, &inner, true),
                    Some(_) => None,
                }
            }
            TokenTree::Literal(literal) if formatted => captures(name, &literal.to_string()).then(|| literal.span()),
            TokenTree::Literal(_) | TokenTree::Punct(_) => None,
        }
    })
}

/// The macro whose arguments these are.
pub(crate) fn called_macro<'a>(before: &'a [TokenTree], arguments: &Group) -> Option<&'a Ident> {
    match before {
        [.., TokenTree::Ident(called), TokenTree::Punct(bang)]
            if bang.as_char() == '!' && arguments.delimiter() != Delimiter::None =>
        {
            Some(called)
        }
        _ => None,
    }
}

/// Whether a format string captures the name.
fn captures(name: &str, text: &str) -> bool {
    text.replace("{{", "").split('{').skip(1).any(|placeholder| {
        let end = placeholder.find([':', '}']).unwrap_or(placeholder.len());
        placeholder[..end].trim() == name
    })
}

/// Every identifier of the tokens, and every literal that could be a format string.
pub(crate) fn names_in(tokens: &TokenStream, names: &mut BTreeSet<String>, texts: &mut Vec<String>) {
    for token in tokens.clone() {
        match token {
            TokenTree::Ident(ident) => {
                names.insert(ident.unraw().to_string());
            }
            TokenTree::Group(group) => names_in(&group.stream(), names, texts),
            TokenTree::Literal(literal) => texts.extend(Some(literal.to_string()).filter(|text| text.contains('{'))),
            TokenTree::Punct(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_free(pattern: &str, body: &str) -> bool {
        first_use("id", &pattern.parse().unwrap(), &body.parse().unwrap()).is_some()
    }

    #[test]
    fn a_name_that_means_the_argument() {
        for body in [
            "id",
            "Ok(id)",
            "Ok(id.clone())",
            "&id",
            "0..id",
            "id != 1",
            "id == 1",
            "r#id",
            "{ let text = id; text }",
            "Claim { id }",
            "Claim { key: id }",
            "format!(\"{id}\")",
            "format!(\"{id:>4}\")",
            "format!(\"{}\", id)",
            "async { id }.await",
            "id(1)",
        ] {
            assert!(is_free("_", body), "{body}");
        }
    }

    #[test]
    fn a_name_that_means_something_else_or_may() {
        for body in [
            "lost.id",
            "lost.id()",
            "id::NONE",
            "lost::id",
            "Claim { id: 1 }",
            "id!(1)",
            "'id: loop {}",
            "{ let id = 1; id }",
            "{ let Claim { id, .. } = claim; id }",
            "match lost { id => id }",
            "match lost { A => {} Some(id) if id > 1 => id, _ => 0 }",
            "if let Some(id) = lost { id }",
            "for id in 0..3 { id; }",
            "lost.map(|id| id)",
            "{ fn id() {} id() }",
            "{ use other::id; id }",
            "format!(\"{{id}} {}\", 1)",
            "format!(\"{id}\", id = 1)",
            "matches!(lost, Some(id) if id > 1)",
            "\"{id}\"",
            "identity",
        ] {
            assert!(!is_free("_", body), "{body}");
        }
        assert!(!is_free("id", "id"));
        assert!(!is_free("Lost { id }", "id"));
    }
}
