//! From the model to code. Only this file and those in its folder write tokens of the expansion.
//!
//! ```text
//! // Input
//! #[distributed_lock(key = "coupon:{id}", ttl = "5s", on_busy = |busy| EXPR)]
//! async fn claim(id: u64, user: User) -> Ret { BODY }
//!
//! // Output, names of the expansion with two underscores in front
//! async fn claim(id: u64, user: User) -> Ret {
//!     static __DISTLOCK: Entry = Entry::function("claim", …);              // what is known at build
//!     register!(__DISTLOCK);
//!     let __key = KeyBuilder::new(":", "coupon:").value("id", &id, "").finish();
//!     let __call = call_as_declared(&__DISTLOCK, __key);
//!     let __start = __call.start();
//!     let __policies = Policies { entry: &__DISTLOCK, … };
//!     Locked::new(__call, __policies, async move {
//!         if false { return never_returned::<Ret>(); }                     // pins the type of BODY
//!         let _ = &user; let _ = &id;                                      // last argument first
//!         match __start.open() { Held(_) => {} Busy(__busy) => { let busy = __busy; return EXPR } … }
//!         '__distlock_body: { BODY }
//!     }).await
//! }
//! ```
//!
//! The key is an owned value made in a statement of its own, so none of its temporaries lives across an await and the
//! body may move what the key was made from. The body is given by value to a hand-written future, not to an `async fn`,
//! which would double its size, nor to a nested function, which would lose generics and `Self`. No item with a name is
//! written beside the function, because other attributes may emit it twice. Without options all is one call, `locked`.

mod body;
pub(crate) mod declared;
mod key;
mod policies;
mod registry;
mod settings;
mod typed;
mod types;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Lifetime, Type};

use self::policies::Policies;
use self::registry::entry;
use crate::attribute::{Given, Options};
use crate::key::Key;
use crate::shape::{Body, Function};

pub(crate) fn expand(options: &Options, function: &Function, key: &Key<'_>) -> TokenStream {
    let expansion = Expansion { options, function, key, private: private(Span::mixed_site()) };
    let Function { attrs, vis, default, sig, block, body, .. } = function;
    let mut tokens = quote!(#(#attrs)* #vis #default #sig);
    let statements = match body {
        Body::Async => expansion.locked(block, true),
        Body::Boxed(boxed) => {
            // `#[async_trait]` has made the whole body one future already; the lock goes inside it.
            let inner = grouped(Delimiter::Brace, expansion.locked(&boxed.block, false), boxed.block.span());
            let head = &boxed.head;
            let arguments = grouped(Delimiter::Parenthesis, quote!(#head #inner), boxed.span);
            let prefix = &boxed.prefix;
            quote!(#prefix #arguments)
        }
    };
    tokens.extend([TokenTree::Group(grouped(Delimiter::Brace, statements, block.span()))]);
    tokens
}

/// The one name under which everything generated stands, shown at a place. It is imported once, so that a wrong path of
/// the user is one error, and a long path is not looked up for every name.
fn private(span: Span) -> Ident {
    Ident::new(IMPORTED, span)
}

/// Brings it into scope.
fn import(options: &Options) -> TokenStream {
    let private = private(Span::mixed_site());
    match &options.krate {
        Some(Given { value: path, .. }) => quote_spanned!(Span::mixed_site()=> use #path::__private as #private;),
        None => quote_spanned!(Span::mixed_site()=> use ::distlock::__private as #private;),
    }
}

/// What the library is called inside of what is generated. Names of items have no hygiene.
const IMPORTED: &str = "__distlock_private";

struct Expansion<'a> {
    options: &'a Options,
    function: &'a Function,
    key: &'a Key<'a>,
    private: Ident,
}

/// A name of ours, which no name of the user can meet.
fn own(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

impl Expansion<'_> {
    fn locked(&self, block: &Group, name_captures: bool) -> TokenStream {
        let p = &self.private;
        let (key, entry) = (own("__key"), entry());
        let import = import(self.options);
        let registered = self.registered_function();
        let hints = self.hints();
        let key_statement = self.key(&key);
        let edge = self.edge();
        let captures = name_captures.then(|| self.captures(&block.stream()));
        let start = own("__start");
        let opening = self.opening(&start);
        let user_block = Self::user_block(block);
        let body = quote_spanned!(Span::mixed_site()=> async move { #edge #captures #opening #user_block });
        let (begin, locked) = match (self.begin(&key), self.policies(), &opening) {
            (None, Policies::Failing(fail), None) => {
                (None, quote_spanned!(Span::mixed_site()=> #p::locked(&#entry, #key, #fail, #body).await))
            }
            (begin, policies, opening) => {
                let [call, policy] = ["__call", "__policies"].map(own);
                let begin = begin.unwrap_or_else(
                    || quote_spanned!(Span::mixed_site()=> let #call = #p::call_as_declared(&#entry, #key);),
                );
                let policies = match policies {
                    Policies::Failing(fail) => {
                        quote_spanned!(Span::mixed_site()=> #p::Policies::failing(&#entry, #fail))
                    }
                    Policies::Various(policies) => policies,
                };
                let start = opening.as_ref().map(|_| quote_spanned!(Span::mixed_site()=> let #start = #call.start();));
                let begin = quote_spanned! {Span::mixed_site()=>
                    #begin
                    #start
                    let #policy = #policies;
                };
                (Some(begin), quote_spanned!(Span::mixed_site()=> #p::Locked::new(#call, #policy, #body).await))
            }
        };
        let result = match &self.function.output {
            // To return what never comes would be unreachable.
            Some(Type::Never(_)) => locked,
            // Written out for the lint that wants it so; the opposite lint leaves expansions alone.
            _ => quote_spanned!(Span::mixed_site()=> return #locked;),
        };
        quote_spanned! {Span::mixed_site()=>
            #import
            #registered
            #hints
            #key_statement
            #begin
            #result
        }
    }

    /// The statements that make the call, where options say more than what is known at build.
    fn begin(&self, key: &Ident) -> Option<TokenStream> {
        let is_computed = !self.computed().is_empty();
        if self.options.manager.is_none() && !is_computed && !self.is_declared() {
            return None;
        }
        let p = &self.private;
        let [settings, manager, call] = ["__settings", "__manager", "__call"].map(own);
        let entry = entry();
        let mut settings_value = self.settings();
        if self.is_declared() {
            let declared = own("__declared");
            settings_value = quote_spanned!(Span::mixed_site()=> #settings_value.or(#declared));
        }
        let manager_value = self.manager();
        Some(quote_spanned! {Span::mixed_site()=>
            let #settings = #settings_value;
            let #manager = #manager_value;
            let #call = #p::call(&#entry, #settings, #manager, #key);
        })
    }

    fn manager(&self) -> TokenStream {
        let p = &self.private;
        match &self.options.manager {
            None => quote_spanned!(Span::mixed_site()=> #p::current()),
            Some(Given { value, .. }) => {
                let span = Span::mixed_site().located_at(value.span());
                let p = private(span);
                let arguments = grouped(Delimiter::Parenthesis, quote_spanned!(span=> &(#value)), span);
                quote_spanned!(span=> #p::manager #arguments)
            }
        }
    }

    /// The user's statements in braces of their own, so that nothing of ours stands in front of their items. The label
    /// keeps lints about superfluous braces away and, in the user's span, gives the block the user's edition.
    fn user_block(block: &Group) -> TokenStream {
        let label = Lifetime::new("'__distlock_body", block.span_open());
        quote!(#label: #block)
    }
}

fn grouped(delimiter: Delimiter, tokens: TokenStream, span: Span) -> Group {
    let mut group = Group::new(delimiter, tokens);
    group.set_span(span);
    group
}
