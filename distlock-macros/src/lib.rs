//! The attribute macro of distlock. Use it through the crate `distlock`, which re-exports it and documents it.
//!
//! The stages are parse (`attribute`, `source`, `values`, `duration`, `shape`, `key`, `template`), check (`valid`,
//! `lints`) and expand (`expand`, the only one that writes code); `function` goes through them. What stands beside an
//! error is `fallback`'s.

mod attribute;
mod diagnostics;
mod duration;
mod expand;
mod fallback;
mod free;
mod function;
mod key;
mod lints;
mod options;
mod shape;
mod source;
mod template;
#[cfg(test)]
mod tests;
mod valid;
mod values;

/// Makes an `async fn` exclusive across every process that shares a lock service.
///
/// ```
/// use distlock::{LockError, LockManager, distributed_lock};
///
/// #[distributed_lock(key = "coupon:{campaign}:{user.id}", ttl = "5s", wait = "300ms")]
/// async fn claim(campaign: &str, user: User) -> Result<u64, LockError> {
///     Ok(user.id)
/// }
///
/// struct User {
///     id: u64,
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// distlock::init(LockManager::in_memory())?;
/// assert_eq!(claim("summer", User { id: 7 }).await?, 7);
/// # Ok(()) }
/// ```
///
/// The body runs under the lease or not at all. The key is made from references to the arguments before anything else
/// happens, so the body may move them; nothing is sent before the first poll. The function keeps its signature, its
/// attributes, its generics, and whether its future is `Send`.
///
/// # The key
///
/// `key = "TEMPLATE"` is literal text with placeholders; `{{` and `}}` are braces.
///
/// * A placeholder is an argument, `self`, a name that a pattern binds, or a constant, then any of `.field`, `.0`,
///   `.method(args)` and `[index]`.
/// * Values are `KeySegment`s: integers, `bool`, `char`, strings, `NonZero` integers, `Uuid` and IP addresses. Floats,
///   `Option` and whatever only prints are refused.
/// * Two different sets of values never make the same key: the template's separators are escaped in values, and two
///   placeholders need one between them. A value that is empty or blank is an `InvalidKey` error.
/// * `{email:hash}` puts 128 bits of the value's SHA-256 in its place. Integers take `{id:08}`, `{id:x}`, `{id:X}`,
///   `{id:o}` and `{id:b}`.
/// * `"{{shop:{shop}}}:coupon:{id}"` has a hash tag for Redis Cluster.
///
/// # Options
///
/// | option | value, default | meaning |
/// | --- | --- | --- |
/// | `key` | template, required | what the lock is on |
/// | `ttl` | duration, 30 s | how long the key outlives a crashed holder; the lease is renewed while the body runs |
/// | `wait` | duration or `forever`, one try | how long to try to get the lock, everything included |
/// | `renew` | `auto`, `off` or a duration, a third of `ttl` | how the lease is prolonged |
/// | `max_hold` | duration, none | the lease is lost then, whatever the body does |
/// | `min_hold` | duration, none | the key stays taken at least this long |
/// | `reentrant` | `error` or `allow`, `error` | whether a task may enter a lock that it holds |
/// | `on_busy` | `error`, `skip` or a closure, `error` | what the call gives when somebody else holds the lock |
/// | `on_error` | `error`, `skip` or a closure, `error` | what it gives when the lock cannot be had for another reason |
/// | `on_lost` | `cancel`, `finish` or a closure, `cancel` | whether the loss of the lease ends the body, and what the call gives then |
/// | `lease` | a name | what the body calls its `&Lease`; a task or thread that the body starts takes `lease.handle()` |
/// | `manager` | an expression | the manager to use; else that of `scope`, else that of `init` |
/// | `crate` | a path | where the library is, when it is not `::distlock` |
///
/// A duration is a string such as `"5s"`, `"500ms"`, `"1m 30s"`, the path of a constant, or any expression. Strings and
/// constants are checked at build; the value of an expression is checked when the call starts.
///
/// # When the lock is not to be had
///
/// With `error` and `cancel`, the function returns a `Result` whose error is `From<LockError>`. `skip` leaves the call out:
/// it gives `()`, `None`, `Outcome::Skipped` (only `on_busy`), or one of them in `Ok`. A closure gives a value of its own.
/// Those of `on_busy` and `on_error` are pasted into the function: they may use and move the arguments, await, `?` and
/// return. That of `on_lost` cannot use the arguments, for the body had them: it is given the `Lost`, and what more it needs
/// the body must return itself.
///
/// ```
/// use distlock::distributed_lock;
///
/// #[distributed_lock(key = "nightly", on_busy = skip, on_error = skip, on_lost = finish)]
/// async fn clean_up() {}
///
/// #[distributed_lock(key = "report:{name}", on_busy = |busy| format!("{name}: {busy}"), on_error = |err| err.to_string(), on_lost = |lost| lost.to_string())]
/// async fn report(name: String) -> String {
///     name
/// }
/// ```
///
/// # Other attributes
///
/// Put it above `#[tokio::test]` and `#[rstest]`, which make the function synchronous; on either side of `#[instrument]`
/// and of the attributes of web frameworks; and on the methods in an impl or trait under `#[async_trait]`.
///
/// Above `#[tokio::main]` the lock is taken before the body of `main`, so `distlock::init` in the body would come too late:
/// name the manager, as in `manager = LockManager::connect(URL).await?`, or lock a function that `main` calls.
#[proc_macro_attribute]
pub fn distributed_lock(attribute: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    function::expand(attribute.into(), item.into()).into()
}
