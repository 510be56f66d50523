//! The macro as a function from tokens to tokens.

mod expansion;
mod keys;
mod refusals;
mod soup;

use proc_macro2::TokenStream;
use syn::parse::Parser;

/// What the attribute makes of the item.
fn expand(attribute: &str, item: &str) -> TokenStream {
    crate::function::expand(attribute.parse().unwrap(), item.parse().unwrap())
}

/// The texts of all `compile_error!`s in front of the item.
pub(crate) fn errors(attribute: &str, item: &str) -> Vec<String> {
    let calls = |input: syn::parse::ParseStream<'_>| {
        let mut texts = Vec::new();
        while let Ok(call) = input.fork().parse::<syn::ItemMacro>() {
            if call.mac.path.segments.last().is_none_or(|last| last.ident != "compile_error") {
                break;
            }
            input.parse::<syn::ItemMacro>()?;
            texts.push(syn::parse2::<syn::LitStr>(call.mac.tokens)?.value());
        }
        input.parse::<TokenStream>()?;
        Ok(texts)
    };
    calls.parse2(expand(attribute, item)).unwrap()
}
