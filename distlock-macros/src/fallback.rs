//! What stands beside an error: the item as it was, so that a caller of the function does not get a second error, without
//! a second attribute of ours, and without warnings about arguments that only the key would have used.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::Attribute;
use syn::parse::{ParseStream, Parser};

use crate::diagnostics::Errors;
use crate::shape::is_ours;

/// The errors and the item.
pub(crate) fn beside(errors: Errors, item: TokenStream) -> TokenStream {
    let item = quiet(item.clone()).unwrap_or(item);
    let errors = errors.into_tokens();
    quote!(#errors #item)
}

fn quiet(item: TokenStream) -> syn::Result<TokenStream> {
    let (attrs, rest) =
        (|input: ParseStream<'_>| Ok((input.call(Attribute::parse_outer)?, input.parse::<TokenStream>()?)))
            .parse2(item)?;
    let attrs = attrs.iter().filter(|attribute| !is_ours(attribute)).map(ToTokens::to_token_stream);
    Ok(quote!(#(#attrs)* #[allow(unused_variables)] #rest))
}
