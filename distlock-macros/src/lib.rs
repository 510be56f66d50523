//! The attribute macro of distlock. Use it through the crate `distlock`, which re-exports it and documents it.
//!
//! The stages are parse ([`attribute`], [`template`], [`duration`], [`shape`]), check ([`valid`]) and expand
//! ([`expand`], the only one that writes code). What stands beside an error is [`fallback`]'s.

mod attribute;
mod diagnostics;
mod duration;
mod expand;
mod fallback;
mod options;
mod shape;
mod template;
#[cfg(test)]
mod tests;
mod valid;

/// Makes an `async fn` exclusive across every process that shares a Redis.
///
/// ```ignore
/// #[distributed_lock(key = "coupon:{campaign_id}", ttl = "5s")]
/// async fn claim(campaign_id: u64, user: User) -> Result<Coupon, ClaimError> { … }
/// ```
///
/// The crate `distlock` says which options there are and what they mean.
#[proc_macro_attribute]
pub fn distributed_lock(attribute: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    distributed_lock_tokens(attribute.into(), item.into()).into()
}

/// The same on streams that tests can make.
fn distributed_lock_tokens(
    attribute: proc_macro2::TokenStream,
    item: proc_macro2::TokenStream,
) -> proc_macro2::TokenStream {
    let mut errors = diagnostics::Errors::default();
    let options = attribute::parse(attribute, &mut errors);
    let Some(function) = shape::parse(item.clone(), &mut errors) else {
        return fallback::beside(errors, item);
    };
    let template = template::parse(&options, &function, &mut errors);
    valid::check(&options, &function, &mut errors);
    match template {
        Some(template) if errors.is_empty() => expand::expand(&options, &function, &template),
        _ => fallback::beside(errors, item),
    }
}
