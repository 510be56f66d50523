//! Our own lints: what compiles and is most likely not what was meant. They are errors, because a macro cannot warn on a
//! stable compiler, and each is silenced by `allow(NAME)`.

use std::collections::BTreeSet;
use std::ops::Range;

use proc_macro2::{Ident, Literal, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{Expr, FnArg, GenericArgument, LitStr, Path, PathArguments, Type};

use crate::diagnostics::{Errors, list, nearest};
use crate::free::{called_macro, names_in};
use crate::key::Scope;
use crate::shape::{Function, argument_of, ungroup};
use crate::template::Template;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lint {
    /// The name of an argument stands in a template as literal text.
    LiteralArgName,
    /// A parameter is a transaction that commits after the lock is released.
    OpenTransaction,
    /// The function returns work that is done after the lock is released.
    DeferredWork,
}

const NAMES: [(&str, Lint); 3] = [
    ("literal_arg_name", Lint::LiteralArgName),
    ("open_transaction", Lint::OpenTransaction),
    ("deferred_work", Lint::DeferredWork),
];

impl Lint {
    pub(crate) fn named(path: &Path, errors: &mut Errors) -> Option<Self> {
        let name = path.get_ident().map(|name| Ident::unraw(name).to_string()).unwrap_or_default();
        let known = NAMES.iter().find(|(known, _)| *known == name).map(|(_, lint)| *lint);
        if known.is_none() {
            let names = NAMES.map(|(name, _)| name);
            let written = path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>().join("::");
            errors.on(
                path,
                match nearest(&written, names) {
                    Some(near) => format!("unknown lint `{written}`; did you mean `{near}`?"),
                    None => format!("unknown lint `{written}`; those of this attribute are {}", list(&names, "and")),
                },
            );
        }
        known
    }
}

// ----- literal_arg_name -----

/// Conversions of `printf` and its like that stand for an argument.
const CONVERSIONS: [&str; 6] = ["s", "d", "i", "u", "v", "x"];

/// The name of an argument, or another language's placeholder, that stands as literal text: the lock would be one and the
/// same for all calls.
pub(crate) fn literal_arg_name(templates: &[&Template], scope: &Scope<'_>, errors: &mut Errors) {
    let is_used = |name: &str| templates.iter().any(|template| template.mentions.contains(name));
    let names: Vec<(String, bool)> = scope
        .items
        .iter()
        .chain(&scope.function.bindings)
        .filter(|binding| binding.ident != "self" && !binding.ident.to_string().starts_with('_'))
        .map(|binding| (binding.ident.unraw().to_string(), binding.ty.as_ref().is_some_and(is_like_a_key)))
        .filter(|(name, _)| !is_used(name))
        .collect();
    for template in templates {
        if let Some((at, name)) = meant(template, &names) {
            let text = template.literal.value();
            let written = text.get(at.clone()).unwrap_or_default();
            let what = if written.starts_with(|c: char| c.is_alphanumeric() || c == '_') {
                "is literal text, the same for every call"
            } else {
                "is how other languages write a placeholder"
            };
            template.fault(
                at,
                &format!("`{written}` {what}; did you mean `{{{name}}}`? if not, add `allow(literal_arg_name)`"),
                errors,
            );
        }
    }
}

/// The first place that was most likely meant as a placeholder, and what for.
fn meant(template: &Template, names: &[(String, bool)]) -> Option<(Range<usize>, String)> {
    let text = template.literal.value();
    let is_constant = template.holes.is_empty();
    let mut start = 0;
    let end = text.len()..text.len();
    for hole in template.holes.iter().cloned().chain(std::iter::once(end)) {
        let literal = start..hole.start;
        if text[literal.clone()].ends_with('$') && !hole.is_empty() {
            return Some((hole.start - 1..hole.end, text[hole.start + 1..hole.end - 1].to_owned()));
        }
        start = hole.end;
        for word in words(&text, literal) {
            let before = text[..word.start].chars().next_back();
            let further = before.map_or(0, char::len_utf8);
            let sign = text[..word.start - further].chars().next_back();
            let name = &text[word.clone()];
            let argument = names.iter().find(|(argument, _)| argument == name);
            let is_foreign = match before {
                Some('#' | '$') => true,
                // Between two texts it is a separator.
                Some(':') => !sign.is_some_and(|c| c.is_alphanumeric() || "_}:".contains(c)),
                _ => false,
            };
            match argument {
                Some((argument, _)) if is_foreign => {
                    return Some((word.start - further..word.end, argument.clone()));
                }
                Some((argument, true)) if is_constant => return Some((word, argument.clone())),
                _ => {}
            }
            if is_constant
                && before == Some('%')
                && CONVERSIONS.contains(&name)
                && let Some((argument, _)) = names.iter().find(|(_, is_like_a_key)| *is_like_a_key)
            {
                return Some((word.start - 1..word.end, argument.clone()));
            }
        }
    }
    None
}

/// The words of a part of the text.
fn words(text: &str, part: Range<usize>) -> Vec<Range<usize>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = Vec::new();
    let mut start = None;
    for (at, c) in text[part.clone()].char_indices() {
        match (is_word(c), start) {
            (true, None) => start = Some(at),
            (false, Some(first)) => {
                words.push(part.start + first..part.start + at);
                start = None;
            }
            _ => {}
        }
    }
    words.extend(start.map(|first| part.start + first..part.end));
    words
}

/// Types by which things are told apart.
fn is_like_a_key(ty: &Type) -> bool {
    const KINDS: [&str; 22] = [
        "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "str", "String",
        "char", "Cow", "Uuid", "NonZero", "IpAddr", "Ipv4Addr", "Ipv6Addr", "Key",
    ];
    match ungroup(ty) {
        Type::Reference(reference) => is_like_a_key(&reference.elem),
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            let name = last.ident.to_string();
            match name.as_str() {
                "Box" | "Arc" | "Rc" => argument_of(ty, &name).is_some_and(is_like_a_key),
                name => KINDS.contains(&name) || name.starts_with("NonZero") || name.ends_with("Id"),
            }
        }),
        _ => false,
    }
}

/// The placeholder of an argument in the text of a computed key, which nobody fills in; whether there was one.
pub(crate) fn placeholder_in_computed(value: &Expr, scope: &Scope<'_>, errors: &mut Errors) -> bool {
    let tokens = value.to_token_stream();
    let mut called = BTreeSet::new();
    names_in(&tokens, &mut called, &mut Vec::new());
    // What is replaced is filled in.
    if called.contains("replace") || called.contains("replacen") {
        return false;
    }
    let Some((text, name)) = placeholder(&tokens, &scope.names()) else { return false };
    errors.on(text, format!("`{{{name}}}` is not filled in where a key is computed, so it is the same for every call; write the whole key as a template in quotes, as in `key = \"order:{{{name}}}\"`, or add `allow(literal_arg_name)`"));
    true
}

fn placeholder(tokens: &TokenStream, names: &[String]) -> Option<(Literal, String)> {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    tokens.iter().enumerate().find_map(|(at, token)| match token {
        // Of macros only `concat!` leaves text as it is for certain.
        TokenTree::Group(group) => match called_macro(&tokens[..at], group) {
            Some(called) if called != "concat" => None,
            _ => placeholder(&group.stream(), names),
        },
        TokenTree::Literal(literal) => {
            let text = syn::parse2::<LitStr>(token.to_token_stream()).ok()?.value();
            let name = names.iter().find(|name| text.contains(&format!("{{{name}}}")))?;
            Some((literal.clone(), name.clone()))
        }
        TokenTree::Ident(_) | TokenTree::Punct(_) => None,
    })
}

// ----- open_transaction -----

/// A parameter that is a transaction of the caller: others get the lock before the caller commits, and do not see what
/// was written under it.
pub(crate) fn open_transaction(function: &Function, errors: &mut Errors) {
    for argument in &function.sig.inputs {
        let FnArg::Typed(argument) = argument else { continue };
        if is_transaction(&argument.ty) {
            errors.on(
                &argument.ty,
                "the lock is released before the caller commits this transaction, so the next holder does not see what was written; begin and commit it in this function, or take the lock around both, or add `allow(open_transaction)`",
            );
        }
    }
}

fn is_transaction(ty: &Type) -> bool {
    match ungroup(ty) {
        Type::Reference(reference) => is_transaction(&reference.elem),
        Type::Path(path) => {
            let segments = &path.path.segments;
            let Some(last) = segments.last() else { return false };
            let has_lifetime = match &last.arguments {
                PathArguments::AngleBracketed(arguments) => {
                    arguments.args.iter().any(|argument| matches!(argument, GenericArgument::Lifetime(_)))
                }
                _ => false,
            };
            let of_sqlx = segments.len() > 1 && segments[0].ident == "sqlx";
            last.ident == "Transaction" && (has_lifetime || of_sqlx)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::errors;

    fn refused(attribute: &str, arguments: &str) -> Vec<String> {
        errors(attribute, &format!("async fn f({arguments}) -> Result<(), E> {{ Ok(()) }}"))
    }

    #[test]
    fn literal_text_that_was_meant_as_a_placeholder() {
        const ARGUMENTS: &str = "id: u64, code: &str, order: Order, name: Arc<str>, user_id: UserId";
        for (template, meant) in [
            ("#id", "id"),
            ("hotel:#order", "order"),
            ("{id}:#code", "code"),
            ("$code", "code"),
            ("hotel:${code}", "code"),
            ("${id}:{code}", "id"),
            ("/orders/:id", "id"),
            (":order", "order"),
            ("{id}/:code", "code"),
            ("hotel:%d", "id"),
            ("hotel-%s", "id"),
            ("order:id", "id"),
            ("id", "id"),
            ("order:{{id}}", "id"),
            ("name of it", "name"),
            ("by user_id", "user_id"),
            ("<code>", "code"),
        ] {
            let found = refused(&format!("key = \"{template}\""), ARGUMENTS);
            assert!(
                found.len() == 1 && found[0].contains(&format!("did you mean `{{{meant}}}`?")),
                "{template}: {found:?}"
            );
            let allowed = refused(&format!("key = \"{template}\", allow(literal_arg_name)"), ARGUMENTS);
            assert_eq!(allowed, [""; 0], "{template}");
        }
    }

    #[test]
    fn literal_text_that_is_meant() {
        const ARGUMENTS: &str =
            "id: u64, code: &str, order: Order, force: bool, list: Vec<u64>, _skip: u64, (a, b): (u8, u8)";
        for template in [
            "nightly",
            "order",
            "order:{id}",
            "order#{id}",
            "id:{id}",
            "#id:{id}",
            "{id}:code",
            "{id}-code",
            "code:{id}",
            "order#123",
            "identity",
            "ids",
            "force",
            "list",
            "skip",
            "_skip",
            "100%",
            "%discount",
            "{order.id}:order",
            "a",
        ] {
            let found = refused(&format!("key = \"{template}\""), ARGUMENTS);
            assert_eq!(found, [""; 0], "{template}");
        }
        assert_eq!(refused("key = \"hotel:%d\"", ""), [""; 0]);
    }

    #[test]
    fn names_are_looked_for_in_all_keys() {
        assert_eq!(refused(r##"keys = ["#id", "b:{id}"]"##, "id: u64"), [""; 0]);
        assert_eq!(refused(r##"keys = ["#id", "b:{code}"]"##, "id: u64, code: u64").len(), 1);
        assert_eq!(refused(r##"keys(for code in &codes => "{code}:#id")"##, "id: u64, codes: Vec<u64>").len(), 1);
        assert_eq!(refused(r#"keys(for code in &codes => "{code}:id")"#, "id: u64, codes: Vec<u64>"), [""; 0]);
    }

    #[test]
    fn transactions_of_the_caller() {
        for ty in [
            "Transaction<'_, Postgres>",
            "&mut Transaction<'_, Postgres>",
            "sqlx::Transaction<Postgres>",
            "&mut sqlx::Transaction<'a, Postgres>",
            "&mut sqlx::postgres::Transaction",
            "&'c mut tokio_postgres::Transaction<'c>",
        ] {
            let found = refused("key = \"a\"", &format!("tx: {ty}"));
            assert!(found.len() == 1 && found[0].contains("allow(open_transaction)"), "{ty}: {found:?}");
            assert_eq!(refused("key = \"a\", allow(open_transaction)", &format!("tx: {ty}")), [""; 0], "{ty}");
        }
        for ty in ["Transaction", "Transaction<Bitcoin>", "bank::Transaction", "&PgPool", "TransactionId"] {
            assert_eq!(refused("key = \"a\"", &format!("tx: {ty}")), [""; 0], "{ty}");
        }
    }
}
