//! What compiles, and what does not and with which words. One fault per file in `fail`; its first line says which.

#[test]
fn accepted() {
    trybuild::TestCases::new().pass("pass/*.rs");
}

#[test]
fn refused() {
    trybuild::TestCases::new().compile_fail("fail/*.rs");
}
