//! Every lock declaration of the program: typed ones and annotated functions, of every crate that was linked.
//!
//! The macros make each declaration a static and submit it to `inventory`, whose constructors run before `main`; targets
//! without them (WebAssembly, for one) have an empty list. A function may stand twice in it, because other attributes
//! may write it twice, so the list has those once that are the same in all.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::Location;
use std::time::Duration;

use crate::builder::Builder;
use crate::contradictions;
use crate::declarations::Spec;
use crate::error::LockError;
use crate::settings::{Defaults, Renew, Settings, Wait};

/// A declaration as the macros write it.
#[derive(Debug)]
#[doc(hidden)]
pub struct Declared {
    /// Where it stands and what it is called.
    pub spec: Spec,
    /// What declares it.
    pub kind: Kind,
    /// The keys it makes.
    pub templates: &'static [Template],
    /// Where its keys are, if not in the manager's namespace.
    pub namespace: Option<&'static str>,
    /// Whether it says which manager it locks on.
    pub own_manager: bool,
    /// What is known of its settings.
    pub settings: Settings,
    /// Settings whose value is known only when a call starts.
    pub computed: &'static [&'static str],
    /// The options as they were written.
    pub options: &'static [(&'static str, &'static str)],
}

/// A declaration as a static, to be read by the list and by the call.
#[derive(Debug)]
#[doc(hidden)]
pub struct Entry {
    /// What is declared.
    pub declared: Declared,
}

/// One of the list of all.
#[derive(Debug)]
#[doc(hidden)]
pub struct Registered(pub &'static Entry);

inventory::collect!(Registered);

impl Entry {
    /// What `#[distributed_lock]` says of a function, at the place of the attribute.
    #[track_caller]
    pub const fn function(
        function: &'static str,
        template: &'static str,
        label: &'static str,
        templates: &'static [Template],
        settings: Settings,
        options: &'static [(&'static str, &'static str)],
    ) -> Self {
        let place = Location::caller();
        let (file, line, column) = (place.file(), place.line(), place.column());
        let declared = Declared {
            spec: Spec { function, template, label, file, line, column },
            kind: Kind::Function,
            templates,
            namespace: None,
            own_manager: false,
            settings,
            computed: &[],
            options,
        };
        Self { declared }
    }

    /// That it is a type with `#[derive(LockKey)]`, in the namespace of its lock set.
    #[must_use]
    pub const fn of_type(mut self, namespace: Option<&'static str>) -> Self {
        self.declared.kind = Kind::Type;
        self.declared.namespace = namespace;
        self
    }

    /// That it says which manager it locks on.
    #[must_use]
    pub const fn on_own_manager(mut self) -> Self {
        self.declared.own_manager = true;
        self
    }

    /// Settings whose value is known only when a call starts.
    #[must_use]
    pub const fn computes(mut self, names: &'static [&'static str]) -> Self {
        self.declared.computed = names;
        self
    }
}

/// Puts an entry into the list, before `main`, where the target has a way to.
#[macro_export]
#[doc(hidden)]
macro_rules! __distlock_register {
    ($entry:ident) => {
        $crate::private::inventory::submit! { $crate::private::Registered(&$entry) }
    };
}

/// What declares a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Kind {
    /// `#[derive(LockKey)]`.
    Type,
    /// `#[distributed_lock]`.
    Function,
}

/// One key template, taken apart.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
#[doc(hidden)]
pub struct Template {
    /// As it was written.
    pub text: &'static str,
    /// With its placeholders blanked.
    pub label: &'static str,
    /// The characters that no value contains.
    pub separators: &'static str,
    /// What it is made of.
    pub pieces: &'static [Piece],
}

/// A piece of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[doc(hidden)]
pub enum Piece {
    /// Itself.
    Literal(&'static str),
    /// One value, which the macro cannot see; the same words may mean another one elsewhere.
    Constant,
    /// Any value.
    Text,
    /// Digits, for an integer in decimal.
    Decimal,
    /// Digits and letters, for an integer in another base.
    Number,
    /// 32 digits of hex.
    Hash,
}

/// One lock declaration of the program. Made by [`declarations`].
#[derive(Clone, Copy)]
pub struct Declaration {
    pub(crate) declared: &'static Declared,
}

impl Declaration {
    /// The name with few values for metrics and events: the template with its placeholders blanked.
    #[must_use]
    pub fn label(&self) -> &'static str {
        self.declared.spec.label
    }

    /// The key template as it was written; what stands in its place in a function with a typed or computed key. Of
    /// several the first.
    #[must_use]
    pub fn template(&self) -> &'static str {
        self.templates().next().unwrap_or(self.declared.spec.template)
    }

    /// Every key template; none where the key is typed or computed.
    pub fn templates(&self) -> impl Iterator<Item = &'static str> {
        self.declared.templates.iter().map(|template| template.text)
    }

    /// The namespace of its lock set, if that names one; else the manager's holds.
    #[must_use]
    pub fn namespace(&self) -> Option<&'static str> {
        self.declared.namespace
    }

    /// The `ttl` it declares, by itself or through its set; `None` leaves it to the manager, or computes it.
    #[must_use]
    pub fn ttl(&self) -> Option<Duration> {
        self.declared.settings.ttl
    }

    /// The `wait` it declares; see [`ttl`](Self::ttl).
    #[must_use]
    pub fn wait(&self) -> Option<Wait> {
        self.declared.settings.wait
    }

    /// The `renew` it declares; see [`ttl`](Self::ttl).
    #[must_use]
    pub fn renew(&self) -> Option<Renew> {
        self.declared.settings.renew
    }

    /// The `max_hold` it declares; see [`ttl`](Self::ttl).
    #[must_use]
    pub fn max_hold(&self) -> Option<Duration> {
        self.declared.settings.max_hold
    }

    /// The `min_hold` it declares; see [`ttl`](Self::ttl).
    #[must_use]
    pub fn min_hold(&self) -> Option<Duration> {
        self.declared.settings.min_hold
    }

    /// Its own options, each with its value as it was written.
    pub fn options(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.declared.options.iter().copied()
    }

    /// Whether it is a type with `#[derive(LockKey)]`, not a function.
    #[must_use]
    pub fn is_type(&self) -> bool {
        self.declared.kind == Kind::Type
    }

    /// The name of the function or the type.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.path().1
    }

    /// The module that it stands in.
    #[must_use]
    pub fn module(&self) -> &'static str {
        self.path().0
    }

    /// The function or the type with its module.
    #[must_use]
    pub fn function(&self) -> &'static str {
        self.declared.spec.function
    }

    /// The source file.
    #[must_use]
    pub fn file(&self) -> &'static str {
        self.declared.spec.file
    }

    /// The line of the attribute.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.declared.spec.line
    }

    /// The column of the attribute.
    #[must_use]
    pub fn column(&self) -> u32 {
        self.declared.spec.column
    }

    fn path(&self) -> (&'static str, &'static str) {
        let function = self.function();
        function.rsplit_once("::").unwrap_or(("", function))
    }

    /// What tells declarations apart, in the order of the list: the place, and for those of one macro call what they
    /// say.
    fn identity(&self) -> impl Ord + use<> {
        let Declared { spec, templates, namespace, own_manager, ref settings, computed, options, .. } = *self.declared;
        let Spec { file, line, column, function, template, .. } = spec;
        let place = (file, line, column, function, template);
        (place, templates, namespace, own_manager, values(settings), computed, options)
    }
}

/// The settings as something that has an order.
fn values(settings: &Settings) -> impl Ord + use<> {
    let Settings { ttl, wait, renew, max_hold, min_hold, after_ok, after_err, reentrant, disputed: _ } = *settings;
    let wait = wait.map(|wait| match wait {
        Wait::For(wait) => wait,
        Wait::Forever => Duration::MAX,
    });
    let renew = renew.map(|renew| match renew {
        Renew::Auto => (0, Duration::ZERO),
        Renew::Off => (1, Duration::ZERO),
        Renew::Every(interval) => (2, interval),
    });
    (ttl, wait, renew, max_hold, min_hold, after_ok, after_err, reentrant)
}

impl fmt::Debug for Declaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Declaration")
            .field("label", &self.label())
            .field("function", &self.function())
            .field("file", &self.file())
            .field("line", &self.line())
            .field("options", &self.declared.options)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Declaration {
    /// `coupon:{}` (shop::claim at src/claim.rs:7).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({} at {}:{})", self.label(), self.function(), self.file(), self.line())
    }
}

/// Every lock declaration of every crate that the program is made of: types with `#[derive(LockKey)]` and functions with
/// `#[distributed_lock]`, sorted by place.
///
/// ```text
/// for declaration in distlock::declarations() {
///     println!("{declaration}: ttl {:?}", declaration.ttl());
/// }
/// ```
///
/// The list is made by constructors that run before `main`. Where a target has none, it is empty.
#[must_use]
pub fn declarations() -> Vec<Declaration> {
    let mut all: Vec<Declaration> = inventory::iter::<Registered>
        .into_iter()
        .map(|Registered(entry)| Declaration { declared: &entry.declared })
        .collect();
    once(&mut all);
    all
}

/// The namespaces that declarations have of their own.
pub(crate) fn namespaces() -> BTreeSet<&'static str> {
    inventory::iter::<Registered>.into_iter().filter_map(|Registered(entry)| entry.declared.namespace).collect()
}

/// Sorts them, and leaves one of those that are the same.
fn once(all: &mut Vec<Declaration>) {
    all.sort_by_key(Declaration::identity);
    all.dedup_by_key(|declaration| declaration.identity());
}

/// Panics with a list of all contradictions between the declarations of the program, and of all declarations that cannot
/// work: for a test of one line.
///
/// ```text
/// #[test]
/// fn locks_agree() {
///     distlock::assert_declarations();
/// }
/// ```
///
/// Contradictory are two declarations whose keys can meet although they do not say the same: equal templates (with their
/// placeholders blanked) in one namespace with another `ttl`, `renew`, `max_hold` or `min_hold`, and a key without
/// placeholders that another template can make as well. What neither says counts as the built-in default. Templates with a constant in them,
/// and functions that name a `manager` of their own, are not compared: their keys are elsewhere, or may be.
///
/// A declaration cannot work if its settings exclude each other, as a `max_hold` shorter than the `ttl` does, also if
/// constants hold them, or the set or the manager gives one of them. What only a call knows is checked when it starts. Building a
/// manager makes the same check with its own defaults.
///
/// # Panics
///
/// If there is such a declaration, and on a target on which the declarations are not known.
pub fn assert_declarations() {
    if !ARE_KNOWN {
        panic!(
            "this target has no constructors before `main`, so the lock declarations are not known; run the test on another target"
        );
    }
    let all = declarations();
    let defaults = Builder::default().defaults;
    let unworkable = contradictions::unworkable(&all, &defaults);
    let found = contradictions::find(&all, defaults.ttl, crate::key::DEFAULT_NAMESPACE);
    let lists = [("lock declarations that cannot work", unworkable), ("contradictory lock declarations", found)];
    let lists = lists.iter().filter(|(_, found)| !found.is_empty());
    let text: Vec<String> = lists.map(|(what, found)| format!("{what}:\n{}", found.join("\n"))).collect();
    assert!(text.is_empty(), "{}", text.join("\n"));
}

/// Whether this target runs the constructors that fill the list.
pub(crate) const ARE_KNOWN: bool = cfg!(not(target_family = "wasm"));

/// The check when a manager is built. Gives the number of declarations.
pub(crate) fn check(defaults: &Defaults, namespace: &str) -> (usize, Result<(), LockError>) {
    let all = declarations();
    let unworkable = contradictions::unworkable(&all, defaults);
    let found = contradictions::find(&all, defaults.ttl, namespace);
    let agree = contradictions::refuse("a lock declaration cannot work", &unworkable)
        .and_then(|()| contradictions::refuse("two lock declarations contradict each other", &found));
    (all.len(), agree)
}
