//! Lock keys: what a caller names, and what it becomes on a server.
//!
//! A caller's key is any text that is not blank. On the server it stands behind the manager's namespace; a name that
//! would be over 512 bytes keeps a readable front and ends in its SHA-256. Companion names (fencing counter, buried
//! tokens) are made so that no lock key can equal them and so that they share the key's slot in a Cluster.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::error::{Config, InvalidKey, LockError};
#[cfg(feature = "cluster")]
use crate::slot::{slot_of, tag_of};

/// The longest name that is used as it is.
const MAX_NAME: usize = 512;

/// How much of a longer name stays readable. With `~` and 64 hex digits the result is longer than [`MAX_NAME`], so no
/// name that is used as it is can equal a shortened one.
const READABLE: usize = 456;

/// The namespace of a manager that names none.
pub(crate) const DEFAULT_NAMESPACE: &str = "distlock";

/// The key texts of one lock, in the order in which they were declared.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Keys {
    first: KeyText,
    more: Vec<KeyText>,
}

#[derive(Clone, Debug)]
struct KeyText {
    text: String,
    /// Of the declaration; else the manager's.
    namespace: Option<&'static str>,
}

impl Keys {
    /// A single one.
    pub fn one(text: String) -> Self {
        Self { first: KeyText { text, namespace: None }, more: Vec::new() }
    }

    /// The same keys in a namespace of their own. One that was named before stays.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &'static str) -> Self {
        for key in std::iter::once(&mut self.first).chain(&mut self.more) {
            key.namespace.get_or_insert(namespace);
        }
        self
    }

    /// All keys of several parts.
    ///
    /// # Errors
    ///
    /// The first fault of a part; `InvalidKey` if there is no part.
    pub fn several(parts: impl IntoIterator<Item = Result<Self, LockError>>) -> Result<Self, LockError> {
        let mut parts = parts.into_iter();
        let Some(first) = parts.next() else {
            return Err(InvalidKey::new("", "a lock on several keys was given none; give it at least one").into());
        };
        let mut all = first?;
        for part in parts {
            let Self { first, more } = part?;
            all.more.push(first);
            all.more.extend(more);
        }
        Ok(all)
    }
}

/// A checked prefix of every key of a manager.
#[derive(Clone, Debug)]
pub(crate) struct Namespace {
    text: Arc<str>,
    fences: Fences,
    /// Says since when a server remembers what it granted.
    pub(crate) epoch: Arc<str>,
}

/// Which fencing counters a namespace has.
#[derive(Clone, Debug)]
enum Fences {
    /// One for the whole namespace.
    One(Arc<str>),
    /// One for each slot of a Cluster: a script reaches no other slot than that of its keys.
    #[cfg(feature = "cluster")]
    OnePerSlot,
}

impl Default for Namespace {
    fn default() -> Self {
        Self::named(DEFAULT_NAMESPACE)
    }
}

impl Namespace {
    pub(crate) fn new(text: &str) -> Result<Self, LockError> {
        let fits = !text.is_empty()
            && text.len() <= 128
            && !text.chars().any(|c| "{}".contains(c) || c.is_whitespace() || c.is_control());
        if fits {
            Ok(Self::named(text))
        } else {
            Err(Config::new(format!(
                "namespace `{}` cannot be used; write 1 to 128 bytes without braces, white space or control characters",
                text.escape_debug()
            ))
            .into())
        }
    }

    fn named(text: &str) -> Self {
        Self {
            text: text.into(),
            fences: Fences::One(format!("{{{text}}}:fence").into()),
            epoch: format!("{{{text}}}:epoch").into(),
        }
    }

    /// The same namespace in a Cluster. Locks on keys of different slots are refused.
    #[cfg(feature = "cluster")]
    pub(crate) fn in_cluster(self) -> Self {
        Self { fences: Fences::OnePerSlot, ..self }
    }

    /// Whether its locks are in a Cluster.
    pub(crate) fn is_in_cluster(&self) -> bool {
        !matches!(self.fences, Fences::One(_))
    }

    /// As it was given.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Another namespace of the same manager.
    fn sibling(&self, text: &str) -> Result<Self, LockError> {
        let sibling = Self::new(text)?;
        match self.fences {
            Fences::One(_) => Ok(sibling),
            #[cfg(feature = "cluster")]
            Fences::OnePerSlot => Ok(sibling.in_cluster()),
        }
    }

    /// The fencing counter of a lock key. No lock key can equal it.
    #[cfg_attr(not(feature = "cluster"), expect(unused_variables))]
    fn fence(&self, wire: &str) -> Arc<str> {
        match &self.fences {
            Fences::One(fence) => fence.clone(),
            #[cfg(feature = "cluster")]
            Fences::OnePerSlot => format!("{{{}}}:{}:fence", tag_of(slot_of(wire)), self.text).into(),
        }
    }

    /// The names that keys have on a server.
    pub(crate) fn names(&self, keys: &Keys) -> Result<Arc<Names>, LockError> {
        let name = |key: &KeyText| match key.namespace {
            Some(own) if own != &*self.text => self.sibling(own)?.name(&key.text),
            _ => self.name(&key.text),
        };
        let first = name(&keys.first)?;
        if keys.more.is_empty() {
            return Ok(Arc::new(Names::one(first)));
        }
        let declared = std::iter::once(Ok(first)).chain(keys.more.iter().map(name)).collect::<Result<Vec<_>, _>>()?;
        #[cfg(feature = "cluster")]
        if matches!(self.fences, Fences::OnePerSlot) {
            in_one_slot(&declared)?;
        }
        Ok(Arc::new(Names::several(declared)))
    }

    fn name(&self, key: &str) -> Result<LockName, LockError> {
        LockName::new(self, key)
    }
}

/// The keys of one lock as the engine and the stores see them: sorted and without repeats, so that two locks that share
/// keys take them in the same order.
#[derive(Debug)]
pub(crate) struct Names {
    first: LockName,
    more: Box<[LockName]>,
    /// Where each key stands, in the order in which they were declared. Empty for one key.
    places: Box<[usize]>,
}

impl Names {
    fn one(name: LockName) -> Self {
        Self { first: name, more: Box::default(), places: Box::default() }
    }

    /// `declared` is not empty.
    fn several(declared: Vec<LockName>) -> Self {
        let mut sorted = declared.clone();
        sorted.sort_by(|a, b| a.wire.cmp(&b.wire));
        sorted.dedup_by(|a, b| a.wire == b.wire);
        // Every name of the one list is in the other, so the search never fails.
        let place = |name: &LockName| sorted.binary_search_by(|other| other.wire.cmp(&name.wire)).unwrap_or_default();
        let places = declared.iter().map(place).collect();
        let first = sorted.remove(0);
        Self { first, more: sorted.into(), places }
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &LockName> {
        (0..self.len()).map(|place| self.at(place))
    }

    /// How many different keys there are; at least one.
    pub(crate) fn len(&self) -> usize {
        1 + self.more.len()
    }

    /// The one key, or the first of several in their sorted order.
    pub(crate) fn first(&self) -> &LockName {
        &self.first
    }

    /// The key at a place of the sorted order; the first one beyond the end.
    pub(crate) fn at(&self, place: usize) -> &LockName {
        place.checked_sub(1).and_then(|place| self.more.get(place)).unwrap_or(&self.first)
    }

    /// How many keys were declared.
    pub(crate) fn parts(&self) -> usize {
        self.places.len().max(1)
    }

    /// Where the key of a declared part stands in the sorted order.
    pub(crate) fn place(&self, part: usize) -> usize {
        self.places.get(part).copied().unwrap_or_default()
    }

    /// Whether every key of `other` is one of these.
    pub(crate) fn cover(&self, other: &Self) -> bool {
        other.iter().all(|name| self.iter().any(|own| own.wire == name.wire))
    }

    /// The first key, in the sorted order, that both have.
    pub(crate) fn shared<'a>(&'a self, other: &Self) -> Option<&'a LockName> {
        self.iter().find(|own| other.iter().any(|name| own.wire == name.wire))
    }
}

/// The names that belong to one key.
#[derive(Clone, Debug)]
pub(crate) struct LockName {
    /// The key as the caller gave it.
    pub(crate) key: Arc<str>,
    /// The lock key on the server: `<namespace>:<key>`.
    pub(crate) wire: Arc<str>,
    /// The fencing counter: one for the whole namespace, in a Cluster one for each slot.
    pub(crate) fence: Arc<str>,
}

impl LockName {
    fn new(namespace: &Namespace, key: &str) -> Result<Self, LockError> {
        if key.trim().is_empty() {
            return Err(InvalidKey::new(key, "it is empty; a lock needs a name").into());
        }
        if key.chars().any(char::is_control) {
            return Err(InvalidKey::new(key, "it has a control character; escape it, or leave it out").into());
        }
        let full = [&*namespace.text, ":", key].concat();
        let wire = if full.len() > MAX_NAME { shortened(&full) } else { full };
        if hash_tag(&wire).is_none() && wire.contains('}') {
            return Err(InvalidKey::new(key, "it has a `}` but no hash tag, so its companions would live in another slot of a cluster; remove the brace, or write a whole tag as in `{shop:7}:order`").into());
        }
        let fence = namespace.fence(&wire);
        Ok(Self { key: key.into(), wire: wire.into(), fence })
    }

    /// The name under which `token` is buried, so that a late copy of its acquisition is refused.
    pub(crate) fn gone<'a>(&'a self, token: &'a str) -> Companion<'a> {
        Companion { of: &self.wire, kind: "gone:", rest: token }
    }

    /// Who waits for the key, in order.
    pub(crate) fn queue(&self) -> Companion<'_> {
        Companion { of: &self.wire, kind: "queue", rest: "" }
    }

    /// What is known of those who wait.
    pub(crate) fn waiters(&self) -> Companion<'_> {
        Companion { of: &self.wire, kind: "waiters", rest: "" }
    }
}

/// The name of a companion of a lock key. No lock key can equal it, and it shares the key's slot in a Cluster.
pub(crate) struct Companion<'a> {
    of: &'a str,
    kind: &'static str,
    rest: &'a str,
}

impl fmt::Display for Companion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, kind, rest } = self;
        match hash_tag(of) {
            Some(tag) => write!(f, "{{{tag}}}:{of}:{kind}{rest}"),
            None => write!(f, "{{{of}}}:{kind}{rest}"),
        }
    }
}

/// The part of `name` that decides its slot in a Cluster, if it is not the whole name: what stands between the first
/// `{` and the next `}`, unless that is nothing.
pub(crate) fn hash_tag(name: &str) -> Option<&str> {
    let (_, rest) = name.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// A script in a Cluster reaches one slot, so keys that are taken together must be in one.
#[cfg(feature = "cluster")]
fn in_one_slot(names: &[LockName]) -> Result<(), LockError> {
    let Some((first, more)) = names.split_first() else { return Ok(()) };
    let slot = slot_of(&first.wire);
    match more.iter().find(|name| slot_of(&name.wire) != slot) {
        Some(other) => Err(InvalidKey::new(
            &*other.key,
            format!(
                "it is in another slot of the cluster than `{}`, and keys that are taken together must be in one; give them a common hash tag, as in `{{shop:7}}:order`",
                first.key
            ),
        )
        .into()),
        None => Ok(()),
    }
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
        LockName::new(&Namespace::default(), key).unwrap()
    }

    #[test]
    fn a_plain_key_stands_behind_its_namespace() {
        let name = name("order:7");
        assert_eq!(&*name.wire, "distlock:order:7");
        assert_eq!(name.gone("T").to_string(), "{distlock:order:7}:gone:T");
        assert_eq!(&*name.fence, "{distlock}:fence");
    }

    #[test]
    fn companions_share_the_slot_of_a_tagged_key() {
        let name = name("{shop:7}:coupon:42");
        assert_eq!(hash_tag(&name.wire), Some("shop:7"));
        assert_eq!(hash_tag(&name.gone("T").to_string()), Some("shop:7"));
    }

    #[test]
    fn blank_keys_and_stray_braces_are_refused() {
        for key in ["", " ", "\n\t", "a}b", "a{}b", "}{x"] {
            let refused = LockName::new(&Namespace::default(), key);
            assert!(matches!(refused, Err(LockError::InvalidKey(_))), "{key:?}");
        }
        // Nothing closes the brace, so the whole name decides the slot for the key and for its companions.
        assert_eq!(hash_tag(&name("a{b").gone("T").to_string()), Some("distlock:a{b"));
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
    fn several_keys_are_sorted_and_without_repeats_and_each_part_finds_its_own() {
        let parts = ["b", "a", "b", "c"].map(|text| Ok(Keys::one(text.to_owned())));
        let names = Namespace::default().names(&Keys::several(parts).unwrap()).unwrap();
        let keys: Vec<&str> = names.iter().map(|name| &*name.key).collect();
        assert_eq!(keys, ["a", "b", "c"]);
        let declared: Vec<&str> = (0..names.parts()).map(|part| &*names.at(names.place(part)).key).collect();
        assert_eq!(declared, ["b", "a", "b", "c"]);
        assert!(matches!(Keys::several([]), Err(LockError::InvalidKey(_))));
    }

    #[test]
    fn a_namespace_of_its_own_goes_before_the_managers() {
        let keys = Keys::one("k".to_owned()).in_namespace("billing").in_namespace("other");
        let names = Namespace::default().names(&keys).unwrap();
        assert_eq!((&*names.first().wire, &*names.first().fence), ("billing:k", "{billing}:fence"));
        assert!(Namespace::default().names(&Keys::one("k".to_owned()).in_namespace("a b")).is_err());
    }

    /// Names made of what decides a slot, and of what looks like it.
    #[cfg(feature = "cluster")]
    fn hostile_keys() -> impl Iterator<Item = String> {
        let mut dice = fastrand::Rng::with_seed(7);
        (0..20_000).map(move |_| {
            let pieces = ["{", "}", "{}", "a", ":", "{x}", "queue", "é", "%7B", "fence", "gone:"];
            let length = if dice.u8(..) == 0 { 300 } else { dice.usize(1..8) };
            (0..length).map(|_| pieces[dice.usize(..pieces.len())]).collect()
        })
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn whatever_belongs_to_a_key_is_in_its_slot_and_equals_no_lock_key() {
        let namespace = Namespace::default().in_cluster();
        let mut taken = 0;
        for key in hostile_keys() {
            let Ok(name) = LockName::new(&namespace, &key) else { continue };
            taken += 1;
            let slot = slot_of(&name.wire);
            let own = [name.queue().to_string(), name.waiters().to_string(), name.gone("T").to_string()];
            for companion in own.iter().map(|name| &**name).chain([&*name.fence]) {
                assert_eq!(slot_of(companion), slot, "{key:?}: {companion:?}");
                assert!(!companion.starts_with("distlock:"), "{companion:?}");
            }
        }
        assert!(taken > 1000, "{taken}");
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn keys_of_one_lock_in_a_cluster_are_in_one_slot_or_refused() {
        let cluster = Namespace::default().in_cluster();
        let keys = |texts: [&str; 2]| Keys::several(texts.map(|text| Ok(Keys::one(text.to_owned())))).unwrap();
        let names = cluster.names(&keys(["{shop:7}:a", "{shop:7}:b"])).unwrap();
        assert_eq!(names.at(0).fence, names.at(1).fence);
        let Err(LockError::InvalidKey(refused)) = cluster.names(&keys(["a", "b"])) else { panic!("not refused") };
        assert!(refused.problem().contains("hash tag"), "{refused}");
        // The manager's cluster holds for declarations with a namespace of their own as well.
        assert!(cluster.names(&keys(["a", "b"]).in_namespace("billing")).is_err());
        let own = cluster.names(&Keys::one("{x}k".to_owned()).in_namespace("billing")).unwrap();
        assert!(own.first().fence.ends_with("}:billing:fence"), "{own:?}");
        // Elsewhere slots mean nothing.
        Namespace::default().names(&keys(["a", "b"])).unwrap();
    }

    #[test]
    fn a_namespace_cannot_break_the_names_built_on_it() {
        for text in ["", "a b", "a{b", "a}b", "a\n", &"n".repeat(129)] {
            assert!(Namespace::new(text).is_err(), "{text:?}");
        }
        assert!(Namespace::new("billing:eu-1").is_ok());
    }
}
