//! Two different sets of values never make the same key, whatever the template: templates that the macro accepts, divided
//! by the macro, filled in by the runtime.

use std::collections::HashMap;

use distlock::__private::KeyBuilder;
use syn::LitStr;

use crate::diagnostics::Errors;
use crate::key::Scope;
use crate::shape;
use crate::template::{self, Part, Spec, Template};

/// What templates are made of: placeholders, separators, and letters that an escape is made of.
const PIECES: [&str; 22] = [
    "{a}", "{b}", "{c}", "{a}", "{b}", "{a:hash}", ":", "-", "/", "_", ".", "%", "{{", "}}", "3A", "2D", "a", "%3A",
    "é", " ", "::", "#",
];

/// What values are made of.
const HOSTILE: [&str; 24] = [
    ":", "%", "{", "}", "/", "-", "_", ".", "#", "a", "3A", "2D", "25", "%3A", "%25", "%2D", " ", "\n", "\0", "é",
    "\u{3000}", "\u{202e}", "{a}", "}}",
];

fn accepted(text: &str) -> Option<Template> {
    let item = "async fn f(a: &str, b: &str, c: &str) {}".parse().unwrap();
    let mut errors = Errors::default();
    let function = shape::parse(item, &mut errors)?;
    let scope = Scope { function: &function, items: Vec::new() };
    let template = template::parse(&LitStr::new(text, proc_macro2::Span::call_site()), &scope, &mut errors)?;
    (template.parts.iter().any(|part| matches!(part, Part::Value(_)))).then_some(template)
}

/// The templates of a run live as long as the test's process, as a literal would.
fn leaked(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

/// The key with these values of `a`, `b` and `c`, and the values that stand in it.
fn filled(template: &Template, values: &[String; 3]) -> Option<(String, Vec<String>)> {
    let (first, placeholders) = template.values();
    let mut builder = KeyBuilder::new(leaked(&template.separators), first);
    let mut used = Vec::new();
    for (placeholder, behind) in placeholders {
        let value = &values["abc".find(&placeholder.source)?];
        used.push(value.clone());
        builder = match placeholder.spec {
            Spec::Hash => builder.hash("value", value, behind),
            _ => builder.value("value", value, behind),
        };
    }
    Some((builder.text().ok()?, used))
}

fn random(random: &mut fastrand::Rng, pieces: &[&str], most: usize) -> String {
    (0..random.usize(1..=most)).map(|_| pieces[random.usize(..pieces.len())]).collect()
}

#[test]
fn no_two_sets_of_values_share_a_key() {
    let mut generator = fastrand::Rng::with_seed(29);
    let (mut templates, mut pairs) = (0, 0);
    while templates < 400 {
        let text = random(&mut generator, &PIECES, 7);
        let Some(template) = accepted(&text) else { continue };
        templates += 1;
        let mut seen: HashMap<String, Vec<String>> = HashMap::new();
        for _ in 0..100 {
            let values = [(); 3].map(|()| random(&mut generator, &HOSTILE, 4));
            let Some((key, used)) = filled(&template, &values) else { continue };
            pairs += 1;
            if let Some(other) = seen.insert(key.clone(), used.clone()) {
                assert_eq!(other, used, "`{text}` makes {key:?} of both");
            }
        }
    }
    assert!(pairs >= 10_000, "only {pairs} pairs of a template and values were tried");
}

#[test]
fn values_stay_readable_where_nothing_forbids_it() {
    for (template, value, key) in [
        ("day:{a}", "2026-01-01", "day:2026-01-01"),
        ("mail:{a}", "ada@example.org", "mail:ada@example.org"),
        ("path/{a}", "a:b.c_d", "path/a:b.c_d"),
        ("user:{a}", "Zoë", "user:Zoë"),
        ("day-{a}", "2026-01-01", "day-2026%2D01%2D01"),
        ("a:{a}", "x:y z", "a:x%3Ay%20z"),
    ] {
        let values = [value.to_owned(), String::new(), String::new()];
        assert_eq!(filled(&accepted(template).unwrap(), &values).unwrap().0, key);
    }
}
