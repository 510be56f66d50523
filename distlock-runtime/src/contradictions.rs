//! Declarations whose keys can meet although they do not say the same.
//!
//! Two of them that lock one key with different settings do not exclude each other as either of them believes: the
//! shorter ttl frees the key of the longer one's holder. And a key without placeholders that another template can make as
//! well is one lock where two were meant. What a function says beside a typed lock is not compared: it names that
//! deliberately, and the lock is the type's.
//!
//! Beside them, the declarations that contradict themselves: no call with such settings would get its lock.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::error::{Config, LockError};
use crate::registry::{Declaration, Declared, Piece, Template};
use crate::settings::{Defaults, Renew};

/// Every contradiction as a sentence that names both places.
pub(crate) fn find(all: &[Declaration], default_ttl: Duration, namespace: &str) -> Vec<String> {
    let mut groups: BTreeMap<(&str, &str), Group> = BTreeMap::new();
    // Another manager may be another server.
    for declaration in all.iter().filter(|of| !of.declared.own_manager) {
        let namespace = declaration.namespace().unwrap_or(namespace);
        for template in declaration.declared.templates.iter().filter(|template| is_seen(template)) {
            groups.entry((namespace, template.label)).or_default().add(template, *declaration, default_ttl);
        }
    }
    let mut found = Vec::new();
    for ((_, label), group) in &groups {
        for (at, (said, one)) in group.sayings.iter().enumerate() {
            let others = &group.sayings[at + 1..];
            found.extend(
                others.iter().filter_map(|(other_said, other)| differ(label, (said, one), (other_said, other))),
            );
        }
    }
    let forms = || groups.iter().flat_map(|((of, _), group)| group.forms.iter().map(move |form| (of, form)));
    for (namespace, (literal, declaration)) in forms().filter(|(_, (template, _))| is_literal(template)) {
        let key: String = literal.pieces.iter().map(literal_text).collect();
        for (of, (template, other)) in forms() {
            if of == namespace && !is_literal(template) && makes(template, &key) {
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

/// The declarations of one label in one namespace: the first of each that say the same.
#[derive(Default)]
struct Group {
    sayings: Vec<(Said, Declaration)>,
    /// Equal labels may have values of another form.
    forms: Vec<(&'static Template, Declaration)>,
}

impl Group {
    fn add(&mut self, template: &'static Template, declaration: Declaration, default_ttl: Duration) {
        let said = said(declaration.declared, default_ttl);
        if self.sayings.iter().all(|(known, _)| *known != said) {
            self.sayings.push((said, declaration));
        }
        if self.forms.iter().all(|(known, _)| known.pieces != template.pieces) {
            self.forms.push((template, declaration));
        }
    }
}

/// The settings without which a plan is not known.
const PLANNED: [&str; 6] = ["ttl", "renew", "max_hold", "min_hold", "after_ok", "after_err"];

/// Every declaration whose own settings cannot work, as a sentence that names the place. The longest ttl is left to the
/// call, for a program may have managers of which each takes some of its locks.
pub(crate) fn unworkable(all: &[Declaration], defaults: &Defaults) -> Vec<String> {
    let problem = |of: &Declaration| {
        let Declared { settings, own_manager, .. } = of.declared;
        // The defaults of another manager are not known.
        let ttl = if *own_manager { settings.ttl? } else { defaults.ttl };
        let defaults = Defaults { ttl, max_ttl: Duration::MAX, ..*defaults };
        let error = if is_whole(of.declared) { settings.plan(&defaults).err()? } else { return None };
        Some(format!("{}: {error}", place(of)))
    };
    all.iter().filter_map(problem).collect()
}

/// Whether its settings are all there: the key of a function may be a type, which has settings too.
fn is_whole(declared: &Declared) -> bool {
    let Declared { templates, computed, .. } = declared;
    !templates.is_empty() && !PLANNED.iter().any(|name| computed.contains(name))
}

/// What is found as the error of a manager.
pub(crate) fn refuse(what: &str, found: &[String]) -> Result<(), LockError> {
    let Some(first) = found.first() else { return Ok(()) };
    let more = match found.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more, which `distlock::assert_declarations()` lists)"),
    };
    Err(Config::new(format!("{what}: {first}{more}")).into())
}

fn place(declaration: &Declaration) -> String {
    format!("`{}` at {}:{}", declaration.function(), declaration.file(), declaration.line())
}

/// The settings that must agree, as they work out.
type Said = [(&'static str, Value); 4];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    /// Only the call knows it.
    Computed,
    None,
    Off,
    /// Renewed, but only the call knows how often.
    On,
    Time(Duration),
}

impl Value {
    fn contradicts(self, other: Self) -> bool {
        match (self, other) {
            (Self::Computed, _) | (_, Self::Computed) => false,
            // Renewal or none is known, however long the interval may be.
            (Self::On, Self::Time(_)) | (Self::Time(_), Self::On) => false,
            (one, other) => one != other,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Computed => f.write_str("computed"),
            Self::None => f.write_str("none"),
            Self::Off => f.write_str("off"),
            Self::On => f.write_str("on"),
            Self::Time(time) => write!(f, "{time:?}"),
        }
    }
}

fn said(declared: &Declared, default_ttl: Duration) -> Said {
    let Declared { settings, computed, .. } = declared;
    let is_computed = |name: &str| computed.contains(&name);
    let ttl = settings.ttl.unwrap_or(default_ttl);
    let renew = match settings.renew.unwrap_or_default() {
        _ if is_computed("renew") => Value::Computed,
        Renew::Off => Value::Off,
        // Without an interval of its own, the renewal goes by the ttl.
        Renew::Auto if is_computed("ttl") => Value::On,
        Renew::Auto => Value::Time(ttl / 3),
        Renew::Every(interval) => Value::Time(interval),
    };
    let time = |name, value: Option<Duration>| match value {
        _ if is_computed(name) => (name, Value::Computed),
        None => (name, Value::None),
        Some(time) => (name, Value::Time(time)),
    };
    [time("ttl", Some(ttl)), ("renew", renew), time("max_hold", settings.max_hold), time("min_hold", settings.min_hold)]
}

/// The first setting in which two declarations of one template differ.
fn differ(label: &str, one: (&Said, &Declaration), other: (&Said, &Declaration)) -> Option<String> {
    let (name, a, b) =
        one.0.iter().zip(other.0).find_map(|((name, a), (_, b))| a.contradicts(*b).then_some((name, a, b)))?;
    Some(format!(
        "`{label}` has `{name}` {a} in {} and {b} in {}; give both the same, or declare the lock once with `#[derive(LockKey)]`",
        place(one.1),
        place(other.1)
    ))
}

/// Whether its keys can be told from its pieces.
fn is_seen(template: &Template) -> bool {
    !template.pieces.contains(&Piece::Constant)
}

fn is_literal(template: &Template) -> bool {
    template.pieces.iter().all(|piece| matches!(piece, Piece::Literal(_)))
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
    use crate::settings::{Settings, Wait};

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
    fn every_two_are_compared_whatever_their_order() {
        let ttl = |ttl| Settings { ttl: Some(ms(ttl)), ..Settings::INHERIT };
        let a = order(1, Settings::INHERIT);
        let a = Declaration { declared: Box::leak(Box::new(Declared { computed: &["ttl"], ..*a.declared })) };
        let (b, c) = (order(2, ttl(5_000)), order(3, ttl(9_000)));
        for all in [[a, b, c], [b, a, c], [c, b, a]] {
            let all = found(&all);
            assert!(all.len() == 1 && all[0].contains(":2") && all[0].contains(":3"), "{all:?}");
        }
        // Those that say the same are one.
        assert_eq!(found(&[b, order(4, ttl(5_000)), c, order(5, ttl(9_000)), order(6, ttl(9_000))]).len(), 1);
        assert_eq!(found(&[b, c, order(4, ttl(7_000))]).len(), 3);
    }

    #[test]
    fn equal_labels_may_have_values_of_another_form() {
        let number = declared("order:{}", vec![Piece::Literal("order:"), Piece::Decimal], 1, Settings::INHERIT);
        let literal = declared("order:nightly", vec![Piece::Literal("order:nightly")], 3, Settings::INHERIT);
        assert_eq!(found(&[number, literal]), [""; 0]);
        let all = found(&[number, order(2, Settings::INHERIT), literal]);
        assert!(all.len() == 1 && all[0].contains("src/shop.rs:2"), "{all:?}");
    }

    #[test]
    fn settings_that_cannot_work_are_found() {
        let defaults = Defaults {
            ttl: ms(30_000),
            wait: Wait::For(Duration::ZERO),
            max_ttl: ms(60_000),
            drift: 0.01,
            grace: Duration::ZERO,
        };
        let found = |of: Declaration| unworkable(&[of], &defaults);
        let with = |of: Declaration, change: fn(Declared) -> Declared| {
            let same = Declared { computed: &[], ..*of.declared };
            Declaration { declared: Box::leak(Box::new(change(same))) }
        };
        let short = Settings { max_hold: Some(ms(10_000)), ..Settings::INHERIT };
        let all = found(order(7, short));
        assert!(all.len() == 1 && all[0].contains("src/shop.rs:7") && all[0].contains("`max_hold` (10s)"), "{all:?}");
        let ttl = Some(ms(5_000));
        assert_eq!(found(order(1, Settings { ttl, ..short })), [""; 0]);
        let often = Settings { ttl, renew: Some(Renew::Every(ms(4_000))), ..Settings::INHERIT };
        assert_eq!(found(order(1, often)).len(), 1);
        // It may be another manager's.
        assert_eq!(found(order(1, Settings { ttl: Some(ms(90_000)), ..Settings::INHERIT })), [""; 0]);
        // What is not known may well work.
        assert_eq!(found(with(order(1, short), |of| Declared { computed: &["ttl"], ..of })), [""; 0]);
        assert_eq!(found(with(order(1, short), |of| Declared { computed: &["wait"], ..of })).len(), 1);
        assert_eq!(found(with(order(1, short), |of| Declared { templates: &[], ..of })), [""; 0]);
        // Another manager has other defaults.
        assert_eq!(found(with(order(1, short), |of| Declared { own_manager: true, ..of })), [""; 0]);
        assert_eq!(found(with(order(1, often), |of| Declared { own_manager: true, ..of })).len(), 1);
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
