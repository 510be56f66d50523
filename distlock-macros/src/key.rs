//! The key of a call as a model: the source of the attribute with its templates read in the function's scope.

use std::collections::BTreeSet;

use proc_macro2::Ident;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{Expr, LitStr, Pat};

use crate::attribute::{Given, Options};
use crate::diagnostics::Errors;
use crate::free::names_in;
use crate::lints::{self, Lint};
use crate::shape::{Binding, Function, bound_names};
use crate::source::{Source, TypedLock};
use crate::template::{self, Template};

/// As many as the library has tuples for.
const MOST_TYPED_LOCKS: usize = 6;

pub(crate) struct Key<'a> {
    pub(crate) form: Form<'a>,
    /// As it was written, for whoever lists declarations.
    pub(crate) text: String,
    /// What it is called where few names are wanted.
    pub(crate) label: String,
    /// The names that the key mentions.
    pub(crate) mentions: BTreeSet<String>,
}

pub(crate) enum Form<'a> {
    One(Template),
    Computed(&'a Expr),
    Several(Vec<Template>),
    ForEach { pattern: &'a Pat, items: &'a Expr, template: Template },
    Typed(&'a [TypedLock]),
}

/// The names that a template can use.
pub(crate) struct Scope<'a> {
    pub(crate) function: &'a Function,
    /// Bound by the loop of `keys(for …)`; they hide arguments.
    pub(crate) items: Vec<Binding>,
}

impl Scope<'_> {
    pub(crate) fn binding(&self, name: &str) -> Option<&Binding> {
        self.items.iter().find(|binding| binding.ident.unraw() == name).or_else(|| self.function.binding(name))
    }

    /// The names that a key can use.
    pub(crate) fn names(&self) -> Vec<String> {
        let items = self.items.iter().map(|binding| binding.ident.unraw().to_string());
        items.chain(self.function.names()).collect()
    }
}

/// The key of the options, if they have one and it can be read.
pub(crate) fn read<'a>(options: &'a Options, function: &Function, errors: &mut Errors) -> Option<Key<'a>> {
    let Given { value: source, .. } = options.source.as_ref()?;
    let mut scope = Scope { function, items: Vec::new() };
    let form = match source {
        Source::Template(literal) => Form::One(template::parse(literal, &scope, errors)?),
        Source::Computed(value) => {
            let is_allowed = options.allowed.contains(&Lint::LiteralArgName);
            let is_template = !is_allowed && lints::placeholder_in_computed(value, &scope, errors);
            if !is_template && !options.was_written("label") {
                needs_label(value, errors);
            }
            Form::Computed(value)
        }
        Source::Templates(literals) => {
            // All of them are read, so that the faults of all are reported.
            let read: Vec<Option<Template>> =
                literals.iter().map(|literal| template::parse(literal, &scope, errors)).collect();
            Form::Several(read.into_iter().collect::<Option<_>>()?)
        }
        Source::ForEach { pattern, items, template } => {
            let mut names: Vec<Ident> = Vec::new();
            bound_names(pattern, &mut names);
            scope.items = names.into_iter().map(|ident| Binding { ident, cfgs: Vec::new(), ty: None }).collect();
            let read = template::parse(template, &scope, errors)?;
            same_for_all(&read, &scope, template, errors);
            Form::ForEach { pattern, items, template: read }
        }
        Source::Typed(locks) => {
            if let Some(one_too_many) = locks.get(MOST_TYPED_LOCKS) {
                errors.on(one_too_many, format!("a call locks at most {MOST_TYPED_LOCKS} declarations together; put what belongs together into one key, or write `keys = [..]`"));
            }
            Form::Typed(locks)
        }
    };
    let templates = form.templates();
    if !options.allowed.contains(&Lint::LiteralArgName) {
        lints::literal_arg_name(&templates, &scope, errors);
    }
    let joined =
        |part: fn(&Template) -> String| templates.iter().map(|template| part(template)).collect::<Vec<_>>().join(", ");
    let given = options.label.as_ref().map(|given| given.value.value());
    let text = match &form {
        Form::Computed(value) => value.to_token_stream().to_string(),
        Form::Typed(locks) => comma_separated(locks.iter().map(|lock| lock.to_token_stream().to_string())),
        _ => joined(|template| template.literal.value()),
    };
    let label = given.unwrap_or_else(|| match &form {
        Form::Typed(locks) => comma_separated(locks.iter().map(TypedLock::name)),
        _ => joined(|template| template.label.clone()),
    });
    let mut mentions: BTreeSet<String> = templates.iter().flat_map(|template| template.mentions.clone()).collect();
    match &form {
        Form::Computed(value) => names_in(&value.to_token_stream(), &mut mentions, &mut Vec::new()),
        Form::ForEach { items, .. } => names_in(&items.to_token_stream(), &mut mentions, &mut Vec::new()),
        Form::Typed(locks) => {
            for lock in *locks {
                names_in(&lock.to_token_stream(), &mut mentions, &mut Vec::new());
            }
        }
        Form::One(_) | Form::Several(_) => {}
    }
    Some(Key { form, text, label, mentions })
}

impl Form<'_> {
    pub(crate) fn templates(&self) -> Vec<&Template> {
        match self {
            Form::One(template) | Form::ForEach { template, .. } => vec![template],
            Form::Several(templates) => templates.iter().collect(),
            Form::Computed(_) | Form::Typed(_) => Vec::new(),
        }
    }
}

fn comma_separated(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join(", ")
}

impl<'a> Key<'a> {
    /// That of a typed declaration.
    pub(crate) fn of_declaration(template: Template) -> Self {
        let (text, label, mentions) = (template.literal.value(), template.label.clone(), template.mentions.clone());
        Self { form: Form::One(template), text, label, mentions }
    }

    /// That of a lock set, which has none.
    pub(crate) fn none() -> Self {
        Self { form: Form::Several(Vec::new()), text: String::new(), label: String::new(), mentions: BTreeSet::new() }
    }
}

/// A computed key has no template to be called by.
fn needs_label(value: &Expr, errors: &mut Errors) {
    let template = crate::source::as_template(value);
    let template = template.map_or_else(
        || "write a template such as `key = \"order:{id}\"`".to_owned(),
        |template| format!("write `key = {template}`"),
    );
    errors.on(
        value,
        format!(
            "a computed key needs a `label`, what the lock is called in metrics; {template}, or add `label = \"order\"`"
        ),
    );
}

/// A loop whose template has nothing of the item locks one key however many there are.
fn same_for_all(template: &Template, scope: &Scope<'_>, literal: &LitStr, errors: &mut Errors) {
    // A wrong name is one fault.
    if template.left_to_rustc.is_some()
        || scope.items.iter().any(|item| template.mentions.contains(&item.ident.unraw().to_string()))
    {
        return;
    }
    let instead = match scope.items.first() {
        Some(item) => format!("use what the loop binds, as in `{{{}}}`", item.ident.unraw()),
        None => "have the loop bind a name, and use it".to_owned(),
    };
    errors.on(literal, format!("this key is the same for every item of the loop; {instead}"));
}
