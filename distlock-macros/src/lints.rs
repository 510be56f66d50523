//! Our own lints: what compiles and is most likely not what was meant. They are errors, because a macro cannot warn on a
//! stable compiler, and each is silenced by `allow(NAME)`.

use proc_macro2::Ident;
use syn::Path;
use syn::ext::IdentExt;

use crate::diagnostics::{Errors, list, nearest};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lint {
    /// The name of an argument stands in a template as literal text.
    LiteralArgName,
    /// A parameter is a transaction that commits after the lock is released.
    OpenTransaction,
}

const NAMES: [(&str, Lint); 2] =
    [("literal_arg_name", Lint::LiteralArgName), ("open_transaction", Lint::OpenTransaction)];

impl Lint {
    pub(crate) fn named(path: &Path, errors: &mut Errors) -> Option<Self> {
        let name = path.get_ident().map(|name| Ident::unraw(name).to_string()).unwrap_or_default();
        let known = NAMES.iter().find(|(known, _)| *known == name).map(|(_, lint)| *lint);
        if known.is_none() {
            let names = NAMES.map(|(name, _)| name);
            let written = path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>().join("::");
            errors.on(
                path,
                match nearest(&written, names) {
                    Some(near) => format!("unknown lint `{written}`; did you mean `{near}`?"),
                    None => format!("unknown lint `{written}`; those of this attribute are {}", list(&names, "and")),
                },
            );
        }
        known
    }
}
