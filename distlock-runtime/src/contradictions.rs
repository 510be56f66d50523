//! Declarations whose keys can meet although they do not say the same.
//!
//! Two of them that lock one key with different settings do not exclude each other as either of them believes: the
//! shorter ttl frees the key of the longer one's holder. And a key without placeholders that another template can make as
//! well is one lock where two were meant. What a function says beside a typed lock is not compared: it names that
//! deliberately, and the lock is the type's.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::{Config, LockError};
use crate::registry::{Declaration, Declared, Piece, Template};
use crate::settings::{Renew, Settings};

/// Every contradiction as a sentence that names both places.
pub(crate) fn find(all: &[Declaration], default_ttl: Duration, namespace: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut first_of: BTreeMap<(&str, &str), Declaration> = BTreeMap::new();
    let mut literals = Vec::new();
    let mut patterns = Vec::new();
    // Another manager may be another server.
    for declaration in all.iter().filter(|of| !of.declared.own_manager) {
        let namespace = declaration.namespace().unwrap_or(namespace);
        for template in declaration.declared.templates.iter().filter(|template| is_seen(template)) {
            match first_of.get(&(namespace, template.label)) {
                Some(first) => found.extend(differ(first, declaration, template.label, default_ttl)),
                None => {
                    first_of.insert((namespace, template.label), *declaration);
                    let is_literal = template.pieces.iter().all(|piece| matches!(piece, Piece::Literal(_)));
                    let list = if is_literal { &mut literals } else { &mut patterns };
                    list.push((namespace, template, declaration));
                }
            }
        }
    }
    for (namespace, literal, declaration) in &literals {
        let key: String = literal.pieces.iter().map(literal_text).collect();
        for (_, template, other) in patterns.iter().filter(|(of, ..)| of == namespace) {
            if makes(template, &key) {
                found.push(format!(
                    "the key `{key}` of {} can be made by `{}` of {} too; begin one of them with another word",
                    place(declaration),
                    template.text,
                    place(other),
                ));
            }
        }
    }
    found
}

/// What is found as the error of a manager.
pub(crate) fn refuse(found: &[String]) -> Result<(), LockError> {
    let Some(first) = found.first() else { return Ok(()) };
    let more = match found.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more, which `distlock::assert_declarations()` lists)"),
    };
    Err(Config::new(format!("two lock declarations contradict each other: {first}{more}")).into())
}

fn place(declaration: &Declaration) -> String {
    format!("`{}` at {}:{}", declaration.function(), declaration.file(), declaration.line())
}

/// The first setting in which two declarations of one template differ.
fn differ(one: &Declaration, other: &Declaration, label: &str, default_ttl: Duration) -> Option<String> {
    let said = |declaration: &Declaration| resolved(&declaration.declared.settings, default_ttl);
    let both = [one, other];
    // Renewal or none is known, however long the interval may be.
    let is_off = both.iter().any(|of| matches!(of.declared.settings.renew, Some(Renew::Off)));
    let is_known = |name: &str| {
        let name_is_computed = both.iter().any(|of| of.declared.computed.contains(&name));
        let goes_by_ttl = name == "renew" && !is_off && both.iter().any(|of| renews_by_computed_ttl(of));
        !name_is_computed && !goes_by_ttl
    };
    let (of_one, of_other) = (said(one), said(other));
    let ((name, a), (_, b)) = of_one.into_iter().zip(of_other).find(|((name, a), (_, b))| is_known(name) && a != b)?;
    Some(format!(
        "`{label}` has `{name}` {a} in {} and {b} in {}; give both the same, or declare the lock once with `#[derive(LockKey)]`",
        place(one),
        place(other)
    ))
}

/// Without an interval of its own, the renewal goes by the ttl.
fn renews_by_computed_ttl(declaration: &Declaration) -> bool {
    let Declared { computed, settings, .. } = declaration.declared;
    matches!(settings.renew, None | Some(Renew::Auto)) && computed.contains(&"ttl")
}

/// The settings that must agree, as they work out.
fn resolved(settings: &Settings, default_ttl: Duration) -> [(&'static str, String); 4] {
    let ttl = settings.ttl.unwrap_or(default_ttl);
    let optional = |value: Option<Duration>| value.map_or_else(|| "none".to_owned(), |value| format!("{value:?}"));
    let renew = match settings.renew.unwrap_or_default() {
        Renew::Off => "off".to_owned(),
        Renew::Auto => format!("{:?}", ttl / 3),
        Renew::Every(interval) => format!("{interval:?}"),
    };
    [
        ("ttl", format!("{ttl:?}")),
        ("renew", renew),
        ("max_hold", optional(settings.max_hold)),
        ("min_hold", optional(settings.min_hold)),
    ]
}

/// Whether its keys can be told from its pieces.
fn is_seen(template: &Template) -> bool {
    !template.pieces.contains(&Piece::Constant)
}

fn literal_text(piece: &Piece) -> &'static str {
    match piece {
        Piece::Literal(text) => text,
        _ => "",
    }
}

/// Whether the template makes this key for some values.
fn makes(template: &Template, key: &str) -> bool {
    fits(template.pieces, template.separators, key)
}

fn fits(pieces: &[Piece], separators: &str, key: &str) -> bool {
    let Some((piece, rest)) = pieces.split_first() else { return key.is_empty() };
    if let Piece::Literal(text) = piece {
        return key.strip_prefix(text).is_some_and(|key| fits(rest, separators, key));
    }
    // A value ends where a character comes that it cannot have, so the longest one is the only one to try, unless
    // letters of the template follow on it.
    let longest = key.find(|c| !may_stand(*piece, separators, c)).unwrap_or(key.len());
    (1..=longest)
        .rev()
        .filter(|end| key.is_char_boundary(*end))
        .any(|end| is_value(*piece, &key[..end]) && fits(rest, separators, &key[end..]))
}

fn may_stand(piece: Piece, separators: &str, c: char) -> bool {
    match piece {
        Piece::Literal(_) | Piece::Constant => false,
        Piece::Text => !(separators.contains(c) || c == '{' || c == '}' || c.is_whitespace() || c.is_control()),
        Piece::Decimal => c.is_ascii_digit() || (c == '-' && !separators.contains('-')) || (c == '%' || c == 'D'),
        Piece::Number => c.is_ascii_alphanumeric(),
        Piece::Hash => c.is_ascii_digit() || ('a'..='f').contains(&c),
    }
}

fn is_value(piece: Piece, text: &str) -> bool {
    match piece {
        Piece::Literal(_) | Piece::Constant => false,
        Piece::Text => escapes_are_whole(text),
        Piece::Decimal => {
            let digits = text.strip_prefix('-').or_else(|| text.strip_prefix("%2D")).unwrap_or(text);
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        }
        Piece::Number => text.bytes().any(|byte| byte.is_ascii_hexdigit()),
        Piece::Hash => text.len() == 32,
    }
}

/// A `%` stands in a value only as the front of an escape.
fn escapes_are_whole(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declarations::Spec;
    use crate::registry::Kind;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn declared(label: &'static str, pieces: Vec<Piece>, line: u32, settings: Settings) -> Declaration {
        let separators = ":";
        let template = Template { text: label, label, separators, pieces: pieces.leak() };
        let spec = Spec { function: "shop::claim", template: label, label, file: "src/shop.rs", line, column: 1 };
        let declared = Box::leak(Box::new(Declared {
            spec,
            kind: Kind::Function,
            templates: vec![template].leak(),
            namespace: None,
            own_manager: false,
            settings,
            computed: &[],
            options: &[],
        }));
        Declaration { declared }
    }

    fn order(line: u32, settings: Settings) -> Declaration {
        declared("order:{}", vec![Piece::Literal("order:"), Piece::Text], line, settings)
    }

    fn found(all: &[Declaration]) -> Vec<String> {
        find(all, ms(30_000), "distlock")
    }

    #[test]
    fn equal_templates_must_say_the_same() {
        let ttl = |ttl| Settings { ttl: Some(ms(ttl)), ..Settings::INHERIT };
        assert_eq!(found(&[order(1, ttl(5_000)), order(2, ttl(5_000))]), [""; 0]);
        let all = found(&[order(1, ttl(5_000)), order(2, ttl(9_000))]);
        assert!(all.len() == 1 && all[0].contains("src/shop.rs:1") && all[0].contains("src/shop.rs:2"), "{all:?}");
        assert!(all[0].contains("`ttl` 5s") && all[0].contains("9s"), "{all:?}");
        // What nobody says is the manager's.
        assert_eq!(found(&[order(1, ttl(30_000)), order(2, Settings::INHERIT)]), [""; 0]);
        assert_eq!(found(&[order(1, ttl(5_000)), order(2, Settings::INHERIT)]).len(), 1);
        let renew = |renew| Settings { renew: Some(renew), ..Settings::INHERIT };
        assert_eq!(found(&[order(1, renew(Renew::Off)), order(2, Settings::INHERIT)]).len(), 1);
        assert_eq!(found(&[order(1, renew(Renew::Every(ms(10_000)))), order(2, Settings::INHERIT)]), [""; 0]);
        let max_hold = Settings { max_hold: Some(ms(60_000)), ..Settings::INHERIT };
        assert_eq!(found(&[order(1, max_hold), order(2, Settings::INHERIT)]).len(), 1);
        let min_hold = Settings { min_hold: Some(ms(60_000)), ..Settings::INHERIT };
        assert_eq!(found(&[order(1, min_hold), order(2, Settings::INHERIT)]).len(), 1);
    }

    #[test]
    fn what_only_the_call_knows_contradicts_nothing() {
        let computed = |of: &Declaration| Declaration {
            declared: Box::leak(Box::new(Declared { computed: &["ttl"], ..*of.declared })),
        };
        let ttl = Settings { ttl: Some(ms(5_000)), ..Settings::INHERIT };
        assert_eq!(found(&[computed(&order(1, Settings::INHERIT)), order(2, ttl)]), [""; 0]);
        // What is said beside it still does.
        let off = Settings { renew: Some(Renew::Off), ..ttl };
        assert_eq!(found(&[computed(&order(1, Settings::INHERIT)), order(2, off)]).len(), 1);
        let hold = Settings { max_hold: Some(ms(60_000)), ..ttl };
        assert_eq!(found(&[computed(&order(1, Settings::INHERIT)), order(2, hold)]).len(), 1);
    }

    #[test]
    fn a_constant_may_be_another_value_elsewhere() {
        let ttl = |ttl| Settings { ttl: Some(ms(ttl)), ..Settings::INHERIT };
        let of =
            |line, settings| declared("{}:{}", vec![Piece::Constant, Piece::Literal(":"), Piece::Text], line, settings);
        assert_eq!(found(&[of(1, ttl(5_000)), of(2, ttl(9_000))]), [""; 0]);
        assert_eq!(found(&[of(1, ttl(5_000)), declared("x:y", vec![Piece::Literal("x:y")], 2, ttl(9_000))]), [""; 0]);
    }

    #[test]
    fn another_manager_may_be_another_server() {
        let ttl = |ttl| Settings { ttl: Some(ms(ttl)), ..Settings::INHERIT };
        let elsewhere = |of: &Declaration| Declaration {
            declared: Box::leak(Box::new(Declared { own_manager: true, ..*of.declared })),
        };
        assert_eq!(found(&[elsewhere(&order(1, ttl(5_000))), order(2, ttl(9_000))]), [""; 0]);
        assert_eq!(found(&[order(1, ttl(5_000)), elsewhere(&order(2, ttl(9_000)))]), [""; 0]);
        let literal = declared("order:7", vec![Piece::Literal("order:7")], 3, Settings::INHERIT);
        assert_eq!(found(&[elsewhere(&literal), order(2, Settings::INHERIT)]), [""; 0]);
        assert_eq!(found(&[literal, elsewhere(&order(2, Settings::INHERIT))]), [""; 0]);
    }

    #[test]
    fn a_key_that_another_template_can_make_is_found() {
        let literal = |text: &'static str| declared(text, vec![Piece::Literal(text)], 1, Settings::INHERIT);
        let all = found(&[literal("order:7"), order(2, Settings::INHERIT)]);
        assert!(all.len() == 1 && all[0].contains("the key `order:7`") && all[0].contains("src/shop.rs:2"), "{all:?}");
        for text in ["order:", "orders:7", "order:7:8", "order", "order:a b", "order:5%", "order:%4"] {
            assert_eq!(found(&[literal(text), order(2, Settings::INHERIT)]), [""; 0], "{text}");
        }
        assert_eq!(found(&[literal("order:a%20b"), order(2, Settings::INHERIT)]).len(), 1);
    }

    #[test]
    fn values_of_a_known_form_make_fewer_keys() {
        let literal = |text: &'static str| declared(text, vec![Piece::Literal(text)], 1, Settings::INHERIT);
        let of = |piece| declared("o:{}", vec![Piece::Literal("o:"), piece], 2, Settings::INHERIT);
        let meets = |text, piece| !found(&[literal(text), of(piece)]).is_empty();
        assert!(meets("o:12", Piece::Decimal) && meets("o:-12", Piece::Decimal));
        assert!(
            !meets("o:nightly", Piece::Decimal) && !meets("o:1-2", Piece::Decimal) && !meets("o:-", Piece::Decimal)
        );
        assert!(meets("o:ba7816bf8f01cfea414140de5dae2223", Piece::Hash) && !meets("o:ba78", Piece::Hash));
        // Letters of the template may follow on a value.
        let pieces = vec![Piece::Literal("o:"), Piece::Text, Piece::Literal("x:"), Piece::Text];
        let many = declared("o:{}x:{}", pieces, 2, Settings::INHERIT);
        assert_eq!(found(&[literal("o:axx:b"), many]).len(), 1);
    }
}
