//! The static facts of one annotated function, as the macro writes them.

/// One lock declaration. It is built at compile time and lives in the binary's constants.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Module path and name of the function.
    pub function: &'static str,
    /// The key template as it was written.
    pub template: &'static str,
    /// The template with its placeholders blanked.
    pub label: &'static str,
    /// Where the attribute stands.
    pub file: &'static str,
    /// Where the attribute stands.
    pub line: u32,
    /// Where the attribute stands.
    pub column: u32,
}
