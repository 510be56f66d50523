//! Whatever tokens come, the macro answers with tokens: it never panics.

use proc_macro2::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

/// Words that lead far into the parsers.
const WORDS: [&str; 40] = [
    "key", "ttl", "wait", "renew", "on_busy", "on_error", "on_lost", "lease", "manager", "crate", "keys", "allow",
    "skip", "error", "off", "auto", "forever", "finish", "async", "fn", "pub", "const", "unsafe", "impl", "self",
    "label", "after_ok", "keep", "map_err", "for", "in", "Self", "where", "dyn", "mut", "struct", "TTL", "Result",
    "id", "move",
];

const TEXTS: [&str; 14] = [
    "a:{id}",
    "{",
    "}",
    "{}",
    "{{",
    "5s",
    "5",
    "",
    "{id:04}",
    "{self.id}",
    "{a{b}c}",
    "é{id}漢{id}",
    "{\"}",
    "{id:hash}:{x.await}",
];

const PUNCTS: &str = "=,:;|.&<>!?#-+*'$@%^~/";

fn soup(random: &mut fastrand::Rng, depth: usize) -> TokenStream {
    (0..random.usize(..9)).map(|_| token(random, depth)).collect()
}

fn token(random: &mut fastrand::Rng, depth: usize) -> TokenTree {
    match random.usize(..10) {
        0..4 => TokenTree::Ident(Ident::new(WORDS[random.usize(..WORDS.len())], Span::call_site())),
        4..6 => TokenTree::Literal(match random.usize(..5) {
            0 => Literal::u8_unsuffixed(random.u8(..)),
            1 => Literal::f32_unsuffixed(1.5),
            2 => Literal::character('x'),
            3 => Literal::byte_string(b"a"),
            _ => Literal::string(TEXTS[random.usize(..TEXTS.len())]),
        }),
        6..9 => {
            let punct = PUNCTS.chars().nth(random.usize(..PUNCTS.len())).unwrap();
            TokenTree::Punct(Punct::new(punct, if random.bool() { Spacing::Joint } else { Spacing::Alone }))
        }
        _ => {
            let delimiters = [Delimiter::Parenthesis, Delimiter::Brace, Delimiter::Bracket, Delimiter::None];
            let inner = if depth == 0 { TokenStream::new() } else { soup(random, depth - 1) };
            TokenTree::Group(Group::new(delimiters[random.usize(..4)], inner))
        }
    }
}

/// Options that are well-formed up to one place.
fn nearly_options(random: &mut fastrand::Rng) -> TokenStream {
    let mut tokens = TokenStream::new();
    for _ in 0..random.usize(1..5) {
        let name = Ident::new(WORDS[random.usize(..12)], Span::call_site());
        let value = match random.usize(..7) {
            0 => soup(random, 2),
            3 => "keep(TTL)".parse().unwrap(),
            4 => "[\"a:{id}\", \"b\"]".parse().unwrap(),
            1 => "|busy| f::<A, B>(busy)?".parse().unwrap(),
            2 => TokenTree::Ident(Ident::new(WORDS[random.usize(12..18)], Span::call_site())).into(),
            _ => TokenTree::Literal(Literal::string(TEXTS[random.usize(..TEXTS.len())])).into(),
        };
        tokens.extend(match random.usize(..5) {
            0 => quote::quote!(keys(for x in id => #value),),
            _ => quote::quote!(#name = #value,),
        });
    }
    tokens
}

const ITEMS: [&str; 6] = [
    "async fn f(id: u8, (a, b): (u8, u8)) -> Result<impl X, E> { a }",
    "fn f() -> Pin<Box<dyn Future<Output = T>>> { Box::pin(async move { x }) }",
    "pub(crate) async unsafe fn f<T>(mut self: Arc<Self>, _: T) {}",
    "async fn f(&self);",
    "struct S;",
    "fn f() {}",
];

#[test]
fn no_tokens_make_it_panic() {
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..10_000 {
        let attribute = if round % 2 == 0 { soup(&mut random, 3) } else { nearly_options(&mut random) };
        let item =
            if round % 3 == 0 { soup(&mut random, 3) } else { ITEMS[random.usize(..ITEMS.len())].parse().unwrap() };
        let empty = item.is_empty();
        let expanded = crate::function::expand(attribute, item);
        assert!(empty || !expanded.is_empty());
    }
}

#[test]
fn no_template_makes_it_panic() {
    const PIECES: [&str; 30] = [
        "{", "}", "{{", "}}", "id", ":", "::", "04", "hash", "\"", "\\", "'", "(", ")", "[", "]", ".", "x", "#", "é",
        "漢", " ", "\n", "\0", "r#", "await", "/*", "//", "self", "0",
    ];
    let mut random = fastrand::Rng::with_seed(13);
    let item: TokenStream = ITEMS[0].parse().unwrap();
    for _ in 0..10_000 {
        let template: String = (0..random.usize(..12)).map(|_| PIECES[random.usize(..PIECES.len())]).collect();
        let literal = Literal::string(&template);
        let expanded = crate::function::expand(quote::quote!(key = #literal), item.clone());
        assert!(!expanded.is_empty());
    }
}
