//! Return types as they can be written inside the function.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned;
use syn::{GenericArgument, PathArguments, Type};

/// The type with every `impl Trait` in it left to inference, for it cannot be written inside the function.
pub(super) fn nameable(ty: &Type) -> TokenStream {
    if !has_impl(ty.to_token_stream()) {
        return ty.to_token_stream();
    }
    let erased = erase(ty.clone()).to_token_stream();
    if has_impl(erased.clone()) { quote_spanned!(ty.span()=> _) } else { erased }
}

fn has_impl(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == "impl",
        TokenTree::Group(group) => has_impl(group.stream()),
        _ => false,
    })
}

fn erase(ty: Type) -> Type {
    match ty {
        Type::ImplTrait(ty) => {
            Type::Infer(syn::TypeInfer { attrs: Vec::new(), underscore_token: syn::Token![_](ty.span()) })
        }
        Type::Path(mut path) => {
            for segment in &mut path.path.segments {
                if let PathArguments::AngleBracketed(arguments) = &mut segment.arguments {
                    for argument in &mut arguments.args {
                        if let GenericArgument::Type(ty) = argument {
                            *ty = erase(ty.clone());
                        }
                    }
                }
            }
            Type::Path(path)
        }
        Type::Tuple(mut tuple) => {
            tuple.elems.iter_mut().for_each(|elem| *elem = erase(elem.clone()));
            Type::Tuple(tuple)
        }
        Type::Reference(mut ty) => {
            *ty.elem = erase((*ty.elem).clone());
            Type::Reference(ty)
        }
        Type::Array(mut ty) => {
            *ty.elem = erase((*ty.elem).clone());
            Type::Array(ty)
        }
        Type::Paren(mut ty) => {
            *ty.elem = erase((*ty.elem).clone());
            Type::Paren(ty)
        }
        Type::Group(mut ty) => {
            *ty.elem = erase((*ty.elem).clone());
            Type::Group(ty)
        }
        other => other,
    }
}
