//! The lint `deferred_work`: a function whose output is not the work but what will do it, so that the lock would be
//! released before the work is done.

use syn::ext::IdentExt;
use syn::{GenericArgument, Path, PathArguments, ReturnType, Type, TypeParamBound};

use crate::diagnostics::Errors;
use crate::shape::{Function, ungroup};

/// Types that stand for work which somebody else does, or does later.
const DEFERRED: [&str; 6] = ["JoinHandle", "JoinSet", "BoxFuture", "LocalBoxFuture", "BoxStream", "LocalBoxStream"];

/// A return type that only promises the work: the lock would be gone before the work is done.
pub(crate) fn check(function: &Function, errors: &mut Errors) {
    if let Some((ty, kind)) = function.output.as_ref().and_then(deferred) {
        errors.on(ty, format!("`#[distributed_lock]` would be released before the work of {kind} is done; await it in the function and return what it gives, or add `allow(deferred_work)` if that work needs no lock"));
    }
}

/// Where such a type stands in this one, and what it is. A pointer to a function carries no work of the call, and a marker
/// carries nothing.
pub(crate) fn deferred(ty: &Type) -> Option<(&Type, String)> {
    match ungroup(ty) {
        Type::ImplTrait(bounds) => promised(&bounds.bounds, ty, "an `impl"),
        Type::TraitObject(bounds) => promised(&bounds.bounds, ty, "a `dyn"),
        Type::Path(path) => {
            let last = path.path.segments.last()?;
            let name = last.ident.unraw().to_string();
            if DEFERRED.contains(&name.as_str()) {
                return Some((ty, format!("a `{name}`")));
            }
            if name == "PhantomData" { None } else { in_arguments(&path.path) }
        }
        Type::Tuple(tuple) => tuple.elems.iter().find_map(deferred),
        Type::Array(array) => deferred(&array.elem),
        Type::Slice(slice) => deferred(&slice.elem),
        Type::Reference(reference) => deferred(&reference.elem),
        _ => None,
    }
}

fn promised<'a>(
    bounds: impl IntoIterator<Item = &'a TypeParamBound>,
    whole: &'a Type,
    kind: &str,
) -> Option<(&'a Type, String)> {
    bounds.into_iter().find_map(|bound| {
        let TypeParamBound::Trait(bound) = bound else { return None };
        let name = &bound.path.segments.last()?.ident;
        if name == "Future" || name == "Stream" {
            return Some((whole, format!("{kind} {name}`")));
        }
        in_arguments(&bound.path)
    })
}

/// In `<T, Item = T>`, and in what a closure gives.
fn in_arguments(path: &Path) -> Option<(&Type, String)> {
    path.segments.iter().find_map(|segment| match &segment.arguments {
        PathArguments::None => None,
        PathArguments::AngleBracketed(arguments) => arguments.args.iter().find_map(|argument| match argument {
            GenericArgument::Type(ty) => deferred(ty),
            GenericArgument::AssocType(assoc) => deferred(&assoc.ty),
            _ => None,
        }),
        PathArguments::Parenthesized(arguments) => match &arguments.output {
            ReturnType::Type(_, ty) => deferred(ty),
            ReturnType::Default => None,
        },
    })
}
