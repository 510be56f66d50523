//! Lock keys: what a caller names, and what it becomes on a server.
//!
//! A caller's key is any text that is not blank. On the server it stands behind the manager's namespace; a name that
//! would be over 512 bytes keeps a readable front and ends in its SHA-256. Companion names (fencing counter, buried
//! tokens) are made so that no lock key can equal them and so that they share the key's slot in a Cluster.

use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::error::{Config, InvalidKey, LockError};

/// The longest name that is used as it is.
const MAX_NAME: usize = 512;

/// How much of a longer name stays readable. With `~` and 64 hex digits the result is longer than [`MAX_NAME`], so no
/// name that is used as it is can equal a shortened one.
const READABLE: usize = 456;

/// The namespace of a manager that names none.
pub(crate) const DEFAULT_NAMESPACE: &str = "distlock";

/// Something a lock can be taken on by hand: a key text, or a typed declaration.
pub trait LockKey {
    /// What a lease on this key proves: `()` for a plain text.
    type Witness: 'static;

    /// The key's text.
    #[doc(hidden)]
    fn text(self) -> Result<String, LockError>;
}

impl LockKey for String {
    type Witness = ();

    fn text(self) -> Result<String, LockError> {
        Ok(self)
    }
}

impl LockKey for &str {
    type Witness = ();

    fn text(self) -> Result<String, LockError> {
        Ok(self.to_owned())
    }
}

impl LockKey for &String {
    type Witness = ();

    fn text(self) -> Result<String, LockError> {
        Ok(self.clone())
    }
}

/// A checked prefix of every key of a manager.
#[derive(Clone, Debug)]
pub(crate) struct Namespace(Arc<str>);

impl Default for Namespace {
    fn default() -> Self {
        Self(DEFAULT_NAMESPACE.into())
    }
}

impl Namespace {
    pub(crate) fn new(text: &str) -> Result<Self, LockError> {
        let fits = !text.is_empty()
            && text.len() <= 128
            && !text.chars().any(|c| "{}".contains(c) || c.is_whitespace() || c.is_control());
        if fits {
            Ok(Self(text.into()))
        } else {
            Err(Config::new(format!(
                "namespace `{}` cannot be used; write 1 to 128 bytes without braces, white space or control characters",
                text.escape_debug()
            ))
            .into())
        }
    }

    /// The names a key has on a server.
    pub(crate) fn name(&self, key: &str) -> Result<Arc<LockName>, LockError> {
        LockName::new(&self.0, key).map(Arc::new)
    }
}

/// The names that belong to one lock.
#[derive(Debug)]
pub(crate) struct LockName {
    /// The key as the caller gave it.
    pub(crate) key: Arc<str>,
    /// The lock key on the server: `<namespace>:<key>`.
    pub(crate) wire: Arc<str>,
    /// The fencing counter: one for the whole namespace.
    pub(crate) fence: Box<str>,
}

impl LockName {
    fn new(namespace: &str, key: &str) -> Result<Self, LockError> {
        if key.trim().is_empty() {
            return Err(InvalidKey::new(key, "it is empty; a lock needs a name").into());
        }
        if key.chars().any(char::is_control) {
            return Err(InvalidKey::new(key, "it has a control character; escape it, or leave it out").into());
        }
        let full = format!("{namespace}:{key}");
        let wire = if full.len() > MAX_NAME { shortened(&full) } else { full };
        if hash_tag(&wire).is_none() && wire.contains('}') {
            return Err(InvalidKey::new(key, "it has a `}` but no hash tag, so its companions would live in another slot of a cluster; remove the brace, or write a whole tag as in `{shop:7}:order`").into());
        }
        Ok(Self { key: key.into(), wire: wire.into(), fence: format!("{{{namespace}}}:fence").into() })
    }

    /// The name under which `token` is buried, so that a late copy of its acquisition is refused.
    pub(crate) fn gone(&self, token: &str) -> String {
        match hash_tag(&self.wire) {
            Some(tag) => format!("{{{tag}}}:{}:gone:{token}", self.wire),
            None => format!("{{{}}}:gone:{token}", self.wire),
        }
    }
}

/// The part of `name` that decides its slot in a Cluster, if it is not the whole name: what stands between the first
/// `{` and the next `}`, unless that is nothing.
fn hash_tag(name: &str) -> Option<&str> {
    let (_, rest) = name.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

fn shortened(full: &str) -> String {
    let mut end = READABLE;
    while !full.is_char_boundary(end) {
        end -= 1;
    }
    // The cut may go through a hash tag; an open brace at the end of the readable part would then pair with nothing,
    // and the whole name decides the slot.
    format!("{}~{}", &full[..end], hex_digest(full))
}

/// SHA-256 of `text` in lower-case hex.
pub(crate) fn hex_digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(key: &str) -> LockName {
        LockName::new("distlock", key).unwrap()
    }

    #[test]
    fn a_plain_key_stands_behind_its_namespace() {
        let name = name("order:7");
        assert_eq!(&*name.wire, "distlock:order:7");
        assert_eq!(name.gone("T"), "{distlock:order:7}:gone:T");
        assert_eq!(&*name.fence, "{distlock}:fence");
    }

    #[test]
    fn companions_share_the_slot_of_a_tagged_key() {
        let name = name("{shop:7}:coupon:42");
        assert_eq!(hash_tag(&name.wire), Some("shop:7"));
        assert_eq!(hash_tag(&name.gone("T")), Some("shop:7"));
    }

    #[test]
    fn blank_keys_and_stray_braces_are_refused() {
        for key in ["", " ", "\n\t", "a}b", "a{}b", "}{x"] {
            let refused = LockName::new("distlock", key);
            assert!(matches!(refused, Err(LockError::InvalidKey(_))), "{key:?}");
        }
        // Nothing closes the brace, so the whole name decides the slot for the key and for its companions.
        assert_eq!(hash_tag(&name("a{b").gone("T")), Some("distlock:a{b"));
    }

    #[test]
    fn long_keys_are_shortened_without_meeting_another_key() {
        let long = "é".repeat(50_000);
        let (a, b) = (name(&long), name(&format!("{long}!")));
        assert!(a.wire.len() > MAX_NAME && a.wire.len() < MAX_NAME + 64);
        assert_ne!(a.wire, b.wire);
        assert!(a.wire.starts_with("distlock:éé"));
        let longest = "k".repeat(MAX_NAME - "distlock:".len());
        assert_eq!(name(&longest).wire.len(), MAX_NAME);
    }

    #[test]
    fn a_namespace_cannot_break_the_names_built_on_it() {
        for text in ["", "a b", "a{b", "a}b", "a\n", &"n".repeat(129)] {
            assert!(Namespace::new(text).is_err(), "{text:?}");
        }
        assert!(Namespace::new("billing:eu-1").is_ok());
    }
}
