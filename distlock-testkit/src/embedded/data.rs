//! What an embedded server keeps: values of four types under keys that may expire. Knows no commands.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::commands::Failure;

/// A key, a member, a value: any bytes.
pub(crate) type Bytes = Vec<u8>;

/// One value with its type.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(Bytes),
    List(List),
    Hash(Hash),
    Sorted(Sorted),
}

impl Value {
    /// What `TYPE` says.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::List(_) => "list",
            Self::Hash(_) => "hash",
            Self::Sorted(_) => "zset",
        }
    }
}

/// A list.
pub(crate) type List = VecDeque<Bytes>;

/// A hash; small ones keep the order of insertion on real servers, so all do here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hash {
    pub(crate) fields: Vec<(Bytes, Bytes)>,
}

impl Hash {
    pub(crate) fn get(&self, field: &[u8]) -> Option<&Bytes> {
        self.fields.iter().find(|(it, _)| it == field).map(|(_, value)| value)
    }

    /// True if the field is new.
    pub(crate) fn set(&mut self, field: &[u8], value: Bytes) -> bool {
        match self.fields.iter_mut().find(|(it, _)| it == field) {
            Some((_, old)) => {
                *old = value;
                false
            }
            None => {
                self.fields.push((field.to_vec(), value));
                true
            }
        }
    }

    pub(crate) fn remove(&mut self, field: &[u8]) -> bool {
        let before = self.fields.len();
        self.fields.retain(|(it, _)| it != field);
        self.fields.len() < before
    }
}

/// A score, ordered; it is neither NaN nor -0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Score(pub(crate) f64);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// A sorted set: by score, then by the bytes of the member.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sorted {
    scores: BTreeMap<Bytes, Score>,
    order: BTreeSet<(Score, Bytes)>,
}

impl Sorted {
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).map(|score| score.0)
    }

    pub(crate) fn set(&mut self, member: &[u8], score: f64) {
        let score = score + 0.0; // there is one zero
        self.remove(member);
        self.scores.insert(member.to_vec(), Score(score));
        self.order.insert((Score(score), member.to_vec()));
    }

    pub(crate) fn remove(&mut self, member: &[u8]) -> bool {
        let Some(score) = self.scores.remove(member) else { return false };
        self.order.remove(&(score, member.to_vec()))
    }

    /// From the lowest score to the highest.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&Bytes, f64)> {
        self.order.iter().map(|(score, member)| (member, score.0))
    }
}

/// A type that a value can have.
pub(crate) trait Shape: Default {
    fn of(value: &Value) -> Option<&Self>;
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    fn into_value(self) -> Value;
    /// A collection goes with its last element.
    fn is_gone(&self) -> bool;
}

macro_rules! shape {
    ($type:ty, $variant:ident, $is_gone:expr) => {
        impl Shape for $type {
            fn of(value: &Value) -> Option<&Self> {
                if let Value::$variant(it) = value { Some(it) } else { None }
            }

            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                if let Value::$variant(it) = value { Some(it) } else { None }
            }

            fn into_value(self) -> Value {
                Value::$variant(self)
            }

            fn is_gone(&self) -> bool {
                let is_gone: fn(&Self) -> bool = $is_gone;
                is_gone(self)
            }
        }
    };
}

shape!(Bytes, Text, |_| false);
shape!(List, List, |list| list.is_empty());
shape!(Hash, Hash, |hash| hash.fields.is_empty());
shape!(Sorted, Sorted, |sorted| sorted.len() == 0);

#[derive(Clone, Debug)]
struct Entry {
    value: Value,
    /// Milliseconds since the Unix epoch; the key is there up to and with this one.
    expires: Option<i64>,
}

/// All keys. Whoever looks at them first says what time it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keyspace {
    entries: BTreeMap<Bytes, Entry>,
    now: i64,
}

impl Keyspace {
    /// The time by which keys are expired from here on, in milliseconds since the Unix epoch.
    pub(crate) fn set_now(&mut self, now: i64) {
        self.now = now;
    }

    pub(crate) fn now(&self) -> i64 {
        self.now
    }

    fn entry(&mut self, key: &[u8]) -> Option<&mut Entry> {
        if self.entries.get(key)?.expires.is_some_and(|expires| self.now > expires) {
            self.entries.remove(key);
        }
        self.entries.get_mut(key)
    }

    pub(crate) fn value(&mut self, key: &[u8]) -> Option<&Value> {
        self.entry(key).map(|entry| &entry.value)
    }

    pub(crate) fn exists(&mut self, key: &[u8]) -> bool {
        self.entry(key).is_some()
    }

    /// The value under a key, which must be of this type if there is one.
    pub(crate) fn read<S: Shape>(&mut self, key: &[u8]) -> Result<Option<&S>, Failure> {
        match self.entry(key) {
            Some(entry) => S::of(&entry.value).map(Some).ok_or(Failure::WRONG_TYPE),
            None => Ok(None),
        }
    }

    /// Changes the value under a key; `None` if there is none.
    pub(crate) fn change<S: Shape, R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut S) -> R,
    ) -> Result<Option<R>, Failure> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        let value = S::of_mut(&mut entry.value).ok_or(Failure::WRONG_TYPE)?;
        let result = change(value);
        if value.is_gone() {
            self.entries.remove(key);
        }
        Ok(Some(result))
    }

    /// Changes the value under a key, beginning with an empty one if there is none.
    pub(crate) fn make<S: Shape, R>(&mut self, key: &[u8], change: impl FnOnce(&mut S) -> R) -> Result<R, Failure> {
        if !self.exists(key) {
            self.set(key, S::default().into_value(), None);
        }
        self.change(key, change)?.ok_or(Failure::WRONG_TYPE)
    }

    /// Puts a value under a key, whatever was there.
    pub(crate) fn set(&mut self, key: &[u8], value: Value, expires: Option<i64>) {
        self.entries.insert(key.to_vec(), Entry { value, expires });
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        self.entry(key).is_some() && self.entries.remove(key).is_some()
    }

    /// When the key expires: `None` if there is no key, `Some(None)` if it does not.
    pub(crate) fn expires(&mut self, key: &[u8]) -> Option<Option<i64>> {
        self.entry(key).map(|entry| entry.expires)
    }

    /// False if there is no such key.
    pub(crate) fn set_expires(&mut self, key: &[u8], expires: Option<i64>) -> bool {
        self.entry(key).map(|entry| entry.expires = expires).is_some()
    }

    /// The names of all keys, in order.
    pub(crate) fn keys(&mut self) -> impl Iterator<Item = &Bytes> {
        let now = self.now;
        self.entries.retain(|_, entry| entry.expires.is_none_or(|expires| now <= expires));
        self.entries.keys()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_lives_through_its_last_millisecond() {
        let mut data = Keyspace::default();
        data.set(b"k", Value::Text(b"v".to_vec()), Some(10));
        data.set_now(10);
        assert!(data.exists(b"k"));
        data.set_now(11);
        assert!(!data.exists(b"k"));
        data.set_now(10);
        assert!(!data.exists(b"k"), "what was seen to be gone stays gone, though the clock steps back");
    }

    #[test]
    fn a_collection_goes_with_its_last_element_and_keeps_its_type_until_then() {
        let mut data = Keyspace::default();
        data.make::<List, _>(b"k", |list| list.push_back(b"a".to_vec())).unwrap();
        assert!(data.read::<Hash>(b"k").is_err());
        assert!(data.make::<Hash, _>(b"k", |_| ()).is_err());
        data.change::<List, _>(b"k", |list| list.pop_back()).unwrap();
        assert!(!data.exists(b"k"));
    }

    #[test]
    fn a_sorted_set_is_sorted_by_score_and_then_by_member() {
        let mut sorted = Sorted::default();
        for (member, score) in [("b", 1.0), ("c", 0.0), ("a", 1.0), ("z", f64::NEG_INFINITY), ("c", 2.0)] {
            sorted.set(member.as_bytes(), score);
        }
        let order: Vec<_> = sorted.iter().map(|(member, _)| String::from_utf8_lossy(member).into_owned()).collect();
        assert_eq!(order, ["z", "a", "b", "c"]);
        assert!(sorted.remove(b"z") && !sorted.remove(b"z"));
    }
}
