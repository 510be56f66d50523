//! The attribute macro of distlock. Use it through the crate `distlock`, which re-exports it and documents it.
//!
//! The stages are parse (`attribute`, `source`, `values`, `duration`, `shape`, `key`, `template`), check (`valid`,
//! `lints`) and expand (`expand`, the only one that writes code); `function` goes through them. What stands beside an
//! error is `fallback`'s.

mod attribute;
mod declaration;
mod deferred;
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

#[doc = include_str!("distributed_lock.md")]
#[proc_macro_attribute]
pub fn distributed_lock(attribute: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    function::expand(attribute.into(), item.into()).into()
}

/// Makes a type a declaration of a lock: what it is on, and its settings, in one place for all who use it.
///
/// ```
/// use distlock::{Lease, LockError, LockKey, LockManager};
///
/// #[derive(LockKey)]
/// #[lock(key = "coupon:{campaign}:{user}", ttl = "5s")]
/// struct CouponLock {
///     campaign: u64,
///     user: u64,
/// }
///
/// /// Cannot be called without the lock.
/// async fn pay_out(held: &Lease<CouponLock>) -> u64 {
///     held.fencing_token()
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let locks = LockManager::in_memory();
/// let token = locks.lock(CouponLock { campaign: 7, user: 3 }).run(async |lease| pay_out(lease).await).await?;
/// assert!(token > 0);
/// # Ok(()) }
/// ```
///
/// Every field stands in the key, and every placeholder of the key is a field (or a constant), with `.field`,
/// `.method(args)` and a format behind it as in [`macro@distributed_lock`]. A `PhantomData` is left out. Type parameters are
/// key segments without borrows.
///
/// | option of `#[lock]` | value, default | meaning |
/// | --- | --- | --- |
/// | `key` | template, required | what the lock is on |
/// | `ttl`, `wait`, `renew`, `max_hold`, `min_hold` | as in the attribute, those of the set | the settings, known at build |
/// | `set` | path of a lock set, none | its namespace, its defaults, and that no other declaration of it has this template; see [`macro@lock_set`] |
/// | `witness` | name, `()` | the type of the lease, for a declaration with a lifetime |
/// | `crate` | a path | where the library is, when it is not `::distlock` |
///
/// # The witness
///
/// A lease on the declaration is a `Lease` of that type. A declaration that borrows cannot be one, for its borrow would
/// have to outlive the lease; it names a unit struct for it, which the derive makes if there is none of that name:
///
/// ```
/// use distlock::{Lease, LockKey};
///
/// #[derive(LockKey)]
/// #[lock(key = "mail:{address:hash}", witness = MailHeld)]
/// struct MailLock<'a> {
///     address: &'a str,
/// }
///
/// async fn send(_held: &Lease<MailHeld>) {}
/// ```
#[proc_macro_derive(LockKey, attributes(lock))]
pub fn derive_lock_key(item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    lock_key_tokens(item.into()).into()
}

fn lock_key_tokens(item: proc_macro2::TokenStream) -> proc_macro2::TokenStream {
    let mut errors = diagnostics::Errors::default();
    let Some(input) = declaration::input(item, &mut errors) else { return errors.into_tokens() };
    let beside = expand::declared::lock_key_fallback(&input);
    match declaration::parse(input, &mut errors) {
        Some(declaration) => expand::declared::lock_key(declaration),
        None => {
            let errors = errors.into_tokens();
            quote::quote!(#errors #beside)
        }
    }
}

/// Lets a type of one value stand in a lock key: a newtype prints what it holds, an enum without fields the name of its
/// variant.
///
/// ```
/// use distlock::{KeySegment, LockError, distributed_lock};
///
/// #[derive(KeySegment, Clone, Copy)]
/// struct OrderId(u64);
///
/// #[derive(KeySegment)]
/// enum Region {
///     Eu,
///     Us,
/// }
///
/// #[distributed_lock(key = "order:{region}:{id:08}")]
/// async fn ship(region: Region, id: OrderId) -> Result<(), LockError> {
///     Ok(())
/// }
/// ```
///
/// A field of type `PhantomData` does not count. Anything else is refused: a key needs one text for each value. Where the
/// library is not `::distlock`, `#[segment(crate = my_lib::distlock)]` says so.
#[proc_macro_derive(KeySegment, attributes(segment))]
pub fn derive_key_segment(item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    key_segment_tokens(item.into()).into()
}

fn key_segment_tokens(item: proc_macro2::TokenStream) -> proc_macro2::TokenStream {
    let mut errors = diagnostics::Errors::default();
    let Some(input) = declaration::input(item, &mut errors) else { return errors.into_tokens() };
    let segment = declaration::parse_segment(&input, &mut errors);
    let options = declaration::segment_options(&input, &mut errors);
    let tokens = expand::declared::key_segment(&input, &options, segment.as_ref());
    let errors = errors.into_tokens();
    quote::quote!(#errors #tokens)
}

/// Makes a lock set: a struct that declarations name with `#[lock(set = ..)]` to share a namespace and defaults, and to be
/// told apart.
///
/// ```
/// use distlock::LockKey;
///
/// distlock::lock_set! {
///     /// The locks of the billing service.
///     pub Locks { namespace = "billing", ttl = "15s" }
/// }
///
/// #[derive(LockKey)]
/// #[lock(key = "invoice:{id}", set = Locks)]
/// struct InvoiceLock {
///     id: u64,
/// }
/// ```
///
/// * `namespace` stands before the keys instead of the manager's.
/// * `ttl`, `wait`, `renew`, `max_hold` and `min_hold` are for declarations that do not say. A setting is taken from the
///   attribute, else from `#[lock]`, else from the set, else from the manager.
/// * Two declarations of the set whose templates are equal, whatever their placeholders are called, do not compile.
///
/// The declarations of a set belong to the crate that makes it.
#[proc_macro]
pub fn lock_set(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    lock_set_tokens(input.into()).into()
}

fn lock_set_tokens(input: proc_macro2::TokenStream) -> proc_macro2::TokenStream {
    let mut errors = diagnostics::Errors::default();
    let set = declaration::parse_set(input, &mut errors);
    let tokens = set.map(|set| expand::declared::lock_set(&set));
    let errors = errors.into_tokens();
    quote::quote!(#errors #tokens)
}
