//! What may stand in a lock key, and how a key is put together from a template's literal text and its values.
//!
//! Two different sets of values never make the same key. The template's separators (every character of its literal text
//! that is neither a letter, a digit nor `%`) are escaped in values, and the macro has made sure that at least one stands
//! between any two placeholders: so the text up to the first separator is the first value, and so on. Braces are escaped
//! too, so that no value makes a hash tag of its own, and white space and control characters, so that a key stays one
//! word in a log. A value takes part by printing, so only types that print exactly one way are [`KeySegment`]s.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZero;
use std::rc::Rc;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::declarations::{Argument, Identity};
use crate::error::{InvalidKey, LockError};
use crate::key::Keys;

/// A value that can stand in a lock key: it prints exactly one way, so equal values give equal keys and different values
/// different ones.
///
/// Integers, `bool`, `char`, strings, `NonZero` integers, `Uuid` and IP addresses are, also behind references, `Box`,
/// `Rc`, `Arc` and `Cow`. `#[derive(KeySegment)]` adds newtypes of them and enums without fields; beyond that the set is
/// closed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot stand in a lock key",
    label = "not a type that prints exactly one way",
    note = "a key takes integers, `bool`, `char`, strings, `NonZero` integers, `Uuid` and IP addresses",
    note = "name the part that says what is locked, as in `{{user.id}}`; of an `Option`, a list or a float, decide first what the lock is on and pass that as an argument",
    note = "for an axum extractor write `Path(id): Path<u64>`, or `{{id.0}}`"
)]
pub trait KeySegment: Sealed {
    /// Tells types with such an argument apart while the crate is built.
    #[doc(hidden)]
    const IDENTITY: Identity = Identity { name: "", arguments: &[] };

    /// Writes the value as it is, without any escape.
    #[doc(hidden)]
    fn write_segment(&self, to: &mut dyn Write) -> fmt::Result;
}

/// Closes [`KeySegment`]; only the derive reaches it.
#[diagnostic::on_unimplemented(
    message = "`KeySegment` is not implemented by hand, here for `{Self}`",
    label = "needs `#[derive(KeySegment)]`",
    note = "derive it for a newtype or an enum without fields, so that every value has one text of its own"
)]
pub trait Sealed {}

/// An integer, for which a key may ask for a width or a radix.
#[diagnostic::on_unimplemented(
    message = "the format spec of this placeholder works on integers only, not on `{Self}`",
    label = "not an integer",
    note = "leave the spec out, or use `:hash` for a long or secret value"
)]
pub trait KeyInteger: KeySegment {
    /// Writes the value in the given form.
    fn write_integer(&self, format: IntegerFormat, to: &mut dyn Write) -> fmt::Result;
}

/// `[#][0N][x|X|o|b]`.
#[derive(Clone, Copy, Debug)]
pub struct IntegerFormat {
    /// The base of the digits.
    pub radix: Radix,
    /// The least number of characters, filled up with zeros.
    pub width: usize,
    /// Whether the base stands in front, as in `0x1f`.
    pub prefix: bool,
}

/// The base of a printed integer.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "they are the names of the traits in `std::fmt`")]
pub enum Radix {
    Decimal,
    LowerHex,
    UpperHex,
    Octal,
    Binary,
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Sealed for $integer {}

        #[diagnostic::do_not_recommend]
        impl KeySegment for $integer {
            const IDENTITY: Identity = Identity { name: stringify!($integer), arguments: &[] };

            fn write_segment(&self, to: &mut dyn Write) -> fmt::Result {
                write!(to, "{self}")
            }
        }

        #[diagnostic::do_not_recommend]
        impl KeyInteger for $integer {
            fn write_integer(&self, IntegerFormat { radix, width, prefix }: IntegerFormat, to: &mut dyn Write) -> fmt::Result {
                match (radix, prefix) {
                    (Radix::Decimal, _) => write!(to, "{self:0width$}"),
                    (Radix::LowerHex, false) => write!(to, "{self:0width$x}"),
                    (Radix::LowerHex, true) => write!(to, "{self:#0width$x}"),
                    (Radix::UpperHex, false) => write!(to, "{self:0width$X}"),
                    (Radix::UpperHex, true) => write!(to, "{self:#0width$X}"),
                    (Radix::Octal, false) => write!(to, "{self:0width$o}"),
                    (Radix::Octal, true) => write!(to, "{self:#0width$o}"),
                    (Radix::Binary, false) => write!(to, "{self:0width$b}"),
                    (Radix::Binary, true) => write!(to, "{self:#0width$b}"),
                }
            }
        }

        impl Sealed for NonZero<$integer> {}

        #[diagnostic::do_not_recommend]
        impl KeySegment for NonZero<$integer> {
            const IDENTITY: Identity = Identity { name: concat!("NonZero<", stringify!($integer), ">"), arguments: &[] };

            fn write_segment(&self, to: &mut dyn Write) -> fmt::Result {
                self.get().write_segment(to)
            }
        }

        #[diagnostic::do_not_recommend]
        impl KeyInteger for NonZero<$integer> {
            fn write_integer(&self, format: IntegerFormat, to: &mut dyn Write) -> fmt::Result {
                self.get().write_integer(format, to)
            }
        }
    )*};
}

integers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

macro_rules! printed {
    ($($ty:ty)*) => {$(
        impl Sealed for $ty {}

        #[diagnostic::do_not_recommend]
        impl KeySegment for $ty {
            const IDENTITY: Identity = Identity { name: stringify!($ty), arguments: &[] };

            fn write_segment(&self, to: &mut dyn Write) -> fmt::Result {
                write!(to, "{self}")
            }
        }
    )*};
}

printed!(bool char Uuid IpAddr Ipv4Addr Ipv6Addr);

impl Sealed for str {}

#[diagnostic::do_not_recommend]
impl KeySegment for str {
    const IDENTITY: Identity = Identity { name: "str", arguments: &[] };

    fn write_segment(&self, to: &mut dyn Write) -> fmt::Result {
        to.write_str(self)
    }
}

impl Sealed for String {}

#[diagnostic::do_not_recommend]
impl KeySegment for String {
    const IDENTITY: Identity = Identity { name: "String", arguments: &[] };

    fn write_segment(&self, to: &mut dyn Write) -> fmt::Result {
        to.write_str(self)
    }
}

macro_rules! pointers {
    ($($ty:ty)*) => {$(
        impl<T: Sealed + ?Sized> Sealed for $ty {}

        #[diagnostic::do_not_recommend]
        impl<T: KeySegment + ?Sized> KeySegment for $ty {
            const IDENTITY: Identity = Identity { name: stringify!($ty), arguments: &[Argument::Type(T::IDENTITY)] };

            fn write_segment(&self, to: &mut dyn Write) -> fmt::Result {
                T::write_segment(self, to)
            }
        }

        #[diagnostic::do_not_recommend]
        impl<T: KeyInteger + ?Sized> KeyInteger for $ty {
            fn write_integer(&self, format: IntegerFormat, to: &mut dyn Write) -> fmt::Result {
                T::write_integer(self, format, to)
            }
        }
    )*};
}

pointers!(&T &mut T Box<T> Rc<T> Arc<T>);

impl<T: ToOwned + Sealed + ?Sized> Sealed for Cow<'_, T> {}

#[diagnostic::do_not_recommend]
impl<T: ToOwned + KeySegment + ?Sized> KeySegment for Cow<'_, T> {
    const IDENTITY: Identity = Identity { name: "Cow", arguments: &[Argument::Type(T::IDENTITY)] };

    fn write_segment(&self, to: &mut dyn Write) -> fmt::Result {
        T::write_segment(self, to)
    }
}

/// Puts one key together. What goes wrong on the way is said at the end.
#[derive(Debug)]
pub struct KeyBuilder {
    separators: &'static str,
    text: String,
    problem: Option<String>,
}

impl KeyBuilder {
    /// `separators` are the characters of the template's literal text that must not stand in a value; `literal` is the
    /// text in front of the first value.
    pub fn new(separators: &'static str, literal: &str) -> Self {
        Self { separators, text: literal.to_owned(), problem: None }
    }

    /// A value, escaped, and the text behind it. `source` is what stands in the placeholder.
    pub fn value<T: KeySegment + ?Sized>(mut self, source: &str, value: &T, literal: &str) -> Self {
        let mut escaped = Escaped::new(self.separators, &mut self.text);
        let written = value.write_segment(&mut escaped);
        let blank = escaped.blank;
        self.note(source, blank, written, literal)
    }

    /// An integer with a width or a radix, escaped like any value: it may bring a sign along.
    pub fn integer<T: KeyInteger + ?Sized>(
        mut self,
        source: &str,
        value: &T,
        format: IntegerFormat,
        literal: &str,
    ) -> Self {
        let mut escaped = Escaped::new(self.separators, &mut self.text);
        let written = value.write_integer(format, &mut escaped);
        let blank = escaped.blank;
        self.note(source, blank, written, literal)
    }

    /// The first 128 bits of the value's SHA-256, as 32 digits of lower-case hex.
    pub fn hash<T: KeySegment + ?Sized>(mut self, source: &str, value: &T, literal: &str) -> Self {
        let mut hashed = Hashed { digest: Sha256::new(), blank: true };
        let written = value.write_segment(&mut hashed);
        for byte in &hashed.digest.finalize()[..16] {
            // Writing to a `String` cannot fail.
            let _ = write!(self.text, "{byte:02x}");
        }
        self.note(source, hashed.blank, written, literal)
    }

    /// The key, unless a value was blank.
    pub fn finish(self) -> Result<Keys, LockError> {
        self.text().map(Keys::one)
    }

    /// Its text.
    pub fn text(self) -> Result<String, LockError> {
        match self.problem {
            None => Ok(self.text),
            Some(problem) => Err(InvalidKey::new(self.text, problem).into()),
        }
    }

    fn note(mut self, source: &str, blank: bool, written: fmt::Result, literal: &str) -> Self {
        if written.is_err() {
            self.problem.get_or_insert_with(|| format!("`{{{source}}}` could not be printed"));
        } else if blank {
            self.problem.get_or_insert_with(|| format!("`{{{source}}}` is blank, so calls that have nothing to do with each other would share one lock; check the value before the call"));
        }
        self.text.push_str(literal);
        self
    }
}

/// Writes `%XX` for every byte of a character that must not stand in a value.
struct Escaped<'a> {
    separators: &'static str,
    text: &'a mut String,
    /// Whether nothing but white space came.
    blank: bool,
}

impl<'a> Escaped<'a> {
    fn new(separators: &'static str, text: &'a mut String) -> Self {
        Self { separators, text, blank: true }
    }

    fn stands(&self, c: char) -> bool {
        c.is_ascii_alphanumeric()
            || !(c == '%' || c == '{' || c == '}' || c.is_whitespace() || c.is_control() || self.separators.contains(c))
    }
}

impl Write for Escaped<'_> {
    fn write_str(&mut self, value: &str) -> fmt::Result {
        for c in value.chars() {
            self.blank &= c.is_whitespace();
            if self.stands(c) {
                self.text.push(c);
            } else {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    write!(self.text, "%{byte:02X}")?;
                }
            }
        }
        Ok(())
    }
}

struct Hashed {
    digest: Sha256,
    blank: bool,
}

impl Write for Hashed {
    fn write_str(&mut self, value: &str) -> fmt::Result {
        self.blank &= value.chars().all(char::is_whitespace);
        self.digest.update(value.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Literal text and values of a template, as the macro would have divided it.
    fn key(separators: &'static str, literals: &[&'static str], values: &[&str]) -> Result<String, LockError> {
        let mut builder = KeyBuilder::new(separators, literals[0]);
        for (literal, value) in literals[1..].iter().zip(values) {
            builder = builder.value("value", value, literal);
        }
        builder.text()
    }

    #[test]
    fn values_stay_readable() {
        let key = KeyBuilder::new(":@", "user:")
            .value("name", "Ada Lovelace", ":")
            .value("mail", "ada@example.org", ":")
            .value("id", &42_u64, "")
            .text();
        assert_eq!(key.unwrap(), "user:Ada%20Lovelace:ada%40example.org:42");
    }

    #[test]
    fn what_could_be_mistaken_is_escaped() {
        for (value, escaped) in [
            ("a:b", "a%3Ab"),
            ("{x}", "%7Bx%7D"),
            ("100%", "100%25"),
            ("a\u{7f}\nb", "a%7F%0Ab"),
            ("a\u{2003}b", "a%E2%80%83b"),
            ("é-_.", "é-_."),
            ("%3A", "%253A"),
        ] {
            assert_eq!(key(":", &["k:", ""], &[value]).unwrap(), format!("k:{escaped}"));
        }
    }

    #[test]
    fn blank_values_are_no_key() {
        for value in ["", " ", "\t\n", "\u{3000}"] {
            let err = key(":", &["k:", ":", ""], &["x", value]).unwrap_err();
            assert!(err.to_string().contains("`{value}` is blank"), "{err}");
            let err = KeyBuilder::new(":", "").hash("mail", value, "").text().unwrap_err();
            assert!(err.to_string().contains("`{mail}` is blank"), "{err}");
        }
        assert!(KeyBuilder::new("", "").value("c", &' ', "").text().is_err());
    }

    #[test]
    fn every_type_prints_as_itself() {
        fn printed<T: KeySegment + ?Sized>(value: &T) -> String {
            KeyBuilder::new("", "").value("v", value, "").text().unwrap()
        }
        assert_eq!(printed(&u128::MAX), u128::MAX.to_string());
        assert_eq!(printed(&i8::MIN), "-128");
        assert_eq!(printed(&NonZero::<u16>::MIN), "1");
        assert_eq!(printed(&true), "true");
        assert_eq!(printed(&'x'), "x");
        assert_eq!(printed("x"), "x");
        assert_eq!(printed(&String::from("x")), "x");
        assert_eq!(printed(&Cow::Borrowed("x")), "x");
        assert_eq!(printed(&Box::<str>::from("x")), "x");
        assert_eq!(printed(&Arc::<str>::from("x")), "x");
        assert_eq!(printed(&Rc::new(7)), "7");
        assert_eq!(printed(&&&mut 7), "7");
        assert_eq!(printed(&Uuid::nil()), "00000000-0000-0000-0000-000000000000");
        assert_eq!(printed(&IpAddr::from([127, 0, 0, 1])), "127.0.0.1");
        assert_eq!(printed(&Ipv6Addr::LOCALHOST), "::1");
    }

    #[test]
    fn integers_take_a_width_and_a_radix() {
        let printed = |value: i32, radix, width, prefix| {
            KeyBuilder::new("-", "").integer("v", &value, IntegerFormat { radix, width, prefix }, "").text().unwrap()
        };
        assert_eq!(printed(7, Radix::Decimal, 4, false), "0007");
        assert_eq!(printed(-7, Radix::Decimal, 4, false), "%2D007");
        assert_eq!(printed(255, Radix::LowerHex, 0, false), "ff");
        assert_eq!(printed(255, Radix::UpperHex, 6, true), "0x00FF");
        assert_eq!(printed(8, Radix::Octal, 0, true), "0o10");
        assert_eq!(printed(5, Radix::Binary, 8, false), "00000101");
        assert_eq!(printed(-1, Radix::LowerHex, 0, false), "ffffffff");
    }

    #[test]
    fn a_hash_is_half_a_sha256_of_the_value_itself() {
        let hashed = |value: &str| KeyBuilder::new("b", "").hash("v", value, "").text().unwrap();
        // SHA-256 of `abc` is the first example of FIPS 180-4.
        assert_eq!(hashed("abc"), "ba7816bf8f01cfea414140de5dae2223");
        assert_ne!(hashed("a:b"), hashed("a%3Ab"));
    }

    /// The characters that could confuse: separators, escapes, braces, blanks, and letters that an escape is made of.
    const HOSTILE: [&str; 16] =
        [":", "%", "{", "}", "/", "-", "a", "3A", "25", "%3A", "%25", " ", "\n", "é", "\u{3000}", "_"];

    fn hostile(random: &mut fastrand::Rng) -> String {
        (0..random.usize(1..5)).map(|_| HOSTILE[random.usize(..HOSTILE.len())]).collect()
    }

    #[test]
    fn different_values_never_make_the_same_key() {
        // Every template here is one that the macro accepts; separators as it computes them.
        let templates: [(&str, &[&str]); 7] = [
            (":", &["k:", ":", ""]),
            ("-", &["", "a-3A", ""]),
            ("/", &["%", "%/", "a"]),
            ("{:}", &["{shop:", "}:", ""]),
            (":/", &["", ":", "/", ""]),
            ("_", &["a_", "_3A25", "%3A"]),
            ("é%:", &["", ":é", ""]),
        ];
        let mut random = fastrand::Rng::with_seed(7);
        for (separators, literals) in templates {
            let mut seen = std::collections::HashMap::new();
            for _ in 0..20_000 {
                let values: Vec<String> = (1..literals.len()).map(|_| hostile(&mut random)).collect();
                let texts: Vec<&str> = values.iter().map(String::as_str).collect();
                let Ok(key) = key(separators, literals, &texts) else { continue };
                if let Some(other) = seen.insert(key.clone(), values.clone()) {
                    assert_eq!(other, values, "{literals:?} makes {key:?} of both");
                }
            }
            assert!(seen.len() > 5_000, "{literals:?} was tried on {} keys only", seen.len());
        }
    }
}
