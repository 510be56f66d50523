//! Which faults are found, together and apart. Their carets are shown by the compile-fail tests.

use super::errors;

const FN: &str = "async fn claim(id: u64, user: User) -> Result<(), E> { Ok(()) }";

fn one(attribute: &str) -> String {
    let mut errors = errors(attribute, FN);
    assert_eq!(errors.len(), 1, "{attribute}: {errors:?}");
    errors.remove(0)
}

#[test]
fn every_fault_is_reported_at_once() {
    let errors = errors(r#"key = "a{id}{id}:{nobody}", tll = "5s", wait = "5", on_busy = skp, ttl = "1ms""#, FN);
    assert_eq!(errors.len(), 6, "{errors:?}");
}

#[test]
fn no_fault_is_reported_twice() {
    for attribute in [
        r#"kee = "a""#,
        r#""a""#,
        r#"key"#,
        r#"key = "#,
        r#"key = "a" ttl = "5s""#,
        r#"key = "a",, ttl = "5s""#,
        r#"= "a""#,
        r#"keys = []"#,
        r#"keys = "a""#,
        r#"keys = [id]"#,
        r#"keys = ["a", 1]"#,
        r#"keys = ["a", "b", "a"]"#,
        r#"keys = ["a:{nobody.x}", "b"]"#,
        r#"keys = id"#,
        r#"keys"#,
        r#"keys("a", "b")"#,
        r#"keys()"#,
        r#"keys(for)"#,
        r#"keys(for id)"#,
        r#"keys(for id in ids)"#,
        r#"keys(for id in ids => id)"#,
        r#"keys(for id in ids => "a:{id}" x)"#,
        r#"keys(for item in ids => "a:{id}")"#,
        r#"keys(for item in ids => "a")"#,
        r#"keys(for _ in ids => "a:{id}")"#,
        r#"key = ["a", "b"]"#,
        r#"key = "a", keys = ["b"]"#,
        r#"keys = ["b"], key = "a""#,
        r#"key = "a", Order"#,
        r#"[]"#,
        r#"[Order "x"]"#,
        r#"Order(id)"#,
        r#"Order::new(id), ttl = "5s""#,
        r#"[Order(id), User { id }]"#,
        r#"lock = "a:{id}""#,
        r#"KEY = "a:{id}""#,
        r#"key = "a", TTL = "5s""#,
        r#"key = "a", after_ok = Keep("24h")"#,
        r#"key = "a", renew = off, max_hold = "5s""#,
        r#"key = "a", on_busy = Skip"#,
        r#"Order "x""#,
        r#"Order { id } "x""#,
        r#"Order { id } ttl = "5s""#,
        r#"Pair::<u64, u64> "x""#,
        r#"key = "a", ttl = ,"#,
        r#"key = "a", ttl = +"#,
        r#"key = format!("a:{id}")"#,
        r#"key = b"a""#,
        r#"key = "a", allow(x)"#,
        r#"key = "a", allow(a::b)"#,
        r#"key = "a", allow = x"#,
        r#"key = "a", allow"#,
        r#"key = "a", allow("x")"#,
        r#"key = "a", label = order"#,
        r#"key = "a", label = """#,
        r#"key = "a", label = "a:{id}""#,
        r#"key = "a", map_err = |err| err"#,
        r#"key = "a", after_ok = keep"#,
        r#"key = "a", after_ok = keep()"#,
        r#"key = "a", after_ok = keep("1h", "2h")"#,
        r#"key = "a", after_ok = "24h""#,
        r#"key = "a", after_ok = kepp"#,
        r#"key = "a", after_err = keep("5")"#,
        r#"key = "a", when = true"#,
        r#"key = "a", mode = shared"#,
        r#"key = "a", permits = 3"#,
        r#"name = "a""#,
        r#"key = "a", renew = "3s", ttl = "5s""#,
        r#"key = "a", renew = true"#,
        r#"key = "a", renew = "0s""#,
        r#"key = "a", manager"#,
        r#"key = "a", manager = "locks""#,
        r#"key: "a""#,
        r#"key = id"#,
        r#"key = keys::NIGHTLY"#,
        r#"key = "a", wait = 0"#,
        r#"key = "a", wait = "0""#,
        r#"key = "a", wait = "forever""#,
        r#"key = "a", ttl = "7d""#,
        r#"key = "a", renew = "off", ttl = "5s""#,
        r#"key = "a", on_busy = "skip""#,
        r#"key = "a", on_lost = skip"#,
        r#"key = "a", on_lost = |_| (id, user.name, id)"#,
    ] {
        one(attribute);
    }
}

#[test]
fn text_of_a_computed_key_is_not_filled_in() {
    for value in [r#"concat!("order:", "{id}")"#, r#"&"order:{id}""#, r#"("order:{id}")"#, r#"{ let k = "a:{id}"; k }"#]
    {
        for label in ["", ", label = \"order\""] {
            let text = one(&format!("key = {value}{label}"));
            assert!(text.contains("`{id}` is not filled in"), "{text}");
        }
        let allowed = format!("key = {value}, label = \"order\", allow(literal_arg_name)");
        assert_eq!(errors(&allowed, FN), [""; 0], "{value}");
    }
    for value in [
        r#"format!("order:{id}")"#,
        r#"ORDER"#,
        r#"concat!("order:", "{shop}")"#,
        r#"["{shop}:", &user.name].concat()"#,
        r#""order:{id}".replace("{id}", &id.to_string())"#,
        r#"mine!("order:{id}")"#,
    ] {
        assert_eq!(errors(&format!("key = {value}, label = \"order\""), FN), [""; 0], "{value}");
    }
}

#[test]
fn a_typed_lock_may_have_several_arguments() {
    for attribute in [
        "Pair::<u64, String> { a, b }",
        "Pair::<u64, String> { a, b }, ttl = \"5s\"",
        "locks::Pair::<u64, String>",
        "[Pair::<u64, String> { a, b }, Order { id }]",
    ] {
        assert_eq!(errors(attribute, FN), [""; 0], "{attribute}");
    }
}

#[test]
fn messages_say_what_to_write() {
    for (attribute, advice) in [
        (r#"keys = ["a"], key = "b""#, "`keys` and `key` exclude each other"),
        (r#"key = "b", keys = ["a"]"#, "`keys` and `key` exclude each other"),
        (r#"key = "b", key = "a""#, "option `key` is given twice"),
        (r#"keys = ["b"], keys = ["a"]"#, "option `keys` is given twice"),
        (r#"lock = "a:{id}""#, "unknown option `lock`; did you mean `key`?"),
        (r#"key = "a", TTL = "5s""#, "did you mean `ttl`?"),
        (r#"key = "a", onBusy = skip"#, "did you mean `on_busy`?"),
        (r#"key = "a", after_ok = Keep("24h")"#, "did you mean `keep`?"),
        (r#"key = "a", on_busy = Skip"#, "did you mean `skip`?"),
        (r#"Order(id)"#, "as in `Order { id }`"),
        (r#"locks::Order::new(id)"#, r#"`key = locks::Order::new(id), label = "order"`"#),
        (r#"key = "a", renew = off, max_hold = "5s""#, "`max_hold` contradicts `renew = off`"),
        (r#"key: "a""#, "write `=` instead of `:`"),
        (r#"key = keys::NIGHTLY"#, r#"write `key = "{keys::NIGHTLY}"`"#),
        (r#"key = user.id"#, r#"write `key = "{user.id}"`"#),
        (r#"key = format!("a:{id}")"#, r#"write `key = "a:{id}"`"#),
        (r#"key = format!("a:{}", id)"#, r#"write a template such as `key = "order:{id}"`"#),
        (r#"key = &user.name"#, r#"write `key = "{user.name}"`"#),
        (r#"keys(for item in ids => "a")"#, "as in `{item}`"),
        (r#"keys = [user.id, "a"]"#, r#"write `"{user.id}"`"#),
        (r#"keys = ["a", "b", "a"]"#, r#"`"a"` stands twice"#),
        (r#"key = "a", keys = ["b"]"#, "`keys = ["),
        (r#"key = "a", after_ok = "24h""#, r#"write `after_ok = keep("24h")`"#),
        (r#"key = "a", after_ok = relase"#, "did you mean `release`?"),
        (r#"key = "a", allow(literal_arg_nam)"#, "did you mean `literal_arg_name`?"),
        (r#"key = "a", label = "a:{id}""#, "without placeholders"),
        (r#"key = "a", ttl = "7d""#, "at most `24h`"),
        (r#"key = "a", on_busy = ignore"#, "`|busy| EXPR`"),
        (r#"key = "a", on_error = ignore"#, "`|err| EXPR`"),
        (r#"key = "a", on_lost = const |_| 1"#, "`|lost| EXPR`"),
    ] {
        let error = one(attribute);
        assert!(error.contains(advice), "{attribute}: {error}");
    }
}

#[test]
fn a_main_that_is_locked_names_its_manager() {
    for main in ["#[tokio::main] async fn main() {}", "#[::tokio::main(flavor = \"x\")] async fn main() {}"] {
        let found = errors("key = \"a\"", main);
        assert!(found[0].contains("name the manager") && found.len() == 1, "{found:?}");
        assert_eq!(errors("key = \"a\", manager = locks", main), [""; 0]);
    }
    assert_eq!(errors("key = \"a\"", "#[tokio::test] async fn test() {}"), [""; 0]);
}

#[test]
fn specs_for_integers_are_read() {
    for good in ["04", "x", "X", "o", "b", "#x", "#010b", "08x", "hash", "128b"] {
        let good = if good == "128b" { "0128b" } else { good };
        assert_eq!(errors(&format!("key = \"a:{{id:{good}}}\""), FN), [""; 0], "{good}");
    }
    for bad in [
        "",
        "?",
        "#?",
        ">4",
        "*^4",
        "4",
        "+",
        "00",
        "0",
        "#",
        "#04",
        "e",
        ".2",
        "x?",
        "Hash",
        "hash64",
        "0129",
        "04 ",
        "099999999999999999999",
    ] {
        one(&format!("key = \"a:{{id:{bad}}}\""));
    }
}

#[test]
fn placeholders_are_arguments_and_what_hangs_on_them() {
    for good in [
        "id",
        " id ",
        "user.id",
        "user.0.1",
        "user.name()",
        "user.get(1, \"x:}\")",
        "user[0].id",
        "user[id as_ref]",
        "Self::X",
        "crate::a::X",
        "REGION",
        "(user).id",
        "user.tags[id + 1]",
        "user.get(&id)",
    ] {
        let template = format!("a:{{{good}}}").replace('"', "\\\"");
        let found = errors(&format!("key = \"{template}\""), FN);
        let expected = usize::from(good.contains("as_ref"));
        assert_eq!(found.len(), expected, "{good}: {found:?}");
    }
    for bad in [
        "id?",
        "id.await",
        "id + 1",
        "-id",
        "!id",
        "&id",
        "*id",
        "f(id)",
        "unsafe {id}",
        "if x {1} else {2}",
        "|x| x",
        "1",
        "\\\"x\\\"",
        "id as u8",
        "id..",
        "m!()",
        "x::<u8>",
        "self",
        "self.id",
        "nobody.x",
        "id id",
        "id;",
        "'a",
        "id.map(|x| x)",
        "id.f(g(1))",
        "user[id?]",
        "<u8 as X>::Y",
        "0",
        "#id",
        "$id",
        "return id",
        "\\\"",
        "id // x",
        "id /*",
    ] {
        one(&format!("key = \"a:{{{bad}}}\""));
    }
}

#[test]
fn between_two_placeholders_stands_what_no_value_can_contain() {
    for good in [":", "a:", "-", "_", "{{", "}}", " ", "é:", ":%"] {
        assert_eq!(errors(&format!("key = \"{{id}}{good}{{id}}\""), FN), [""; 0], "{good}");
    }
    for bad in ["", "a", "%", "3A", "é", "%3A", "漢"] {
        one(&format!("key = \"{{id}}{bad}{{id}}\""));
    }
}

#[test]
fn items_that_are_no_async_function_are_refused() {
    for item in [
        "fn f() {}",
        "const fn f() {}",
        "async fn f();",
        "struct S;",
        "impl S {}",
        "mod m {}",
        "static X: u8 = 1;",
        "use a::b;",
        "trait T {}",
        "macro_rules! m { () => {} }",
        "m!();",
        "extern \"C\" { fn f(); }",
        "extern \"C\" {}",
        "const X: u8 = 1;",
        "async fn f() (x)",
        "|x| x",
        "",
        "async fn f() -> BoxFuture<'static, ()> {}",
        "async fn f() -> Pin<Box<dyn Future<Output = ()>>> {}",
        "async fn f() -> Result<impl Stream<Item = u8>, E> {}",
        "fn f() -> Pin<Box<dyn Future<Output = ()>>> { Box::pin(g()) }",
        "#[distributed_lock(key = \"b\")] async fn f() {}",
        "#[distlock::distributed_lock(key = \"b\")] async fn f() {}",
    ] {
        let errors = errors("key = \"a\"", item);
        assert_eq!(errors.len(), 1, "{item}: {errors:?}");
    }
}

#[test]
fn work_that_is_done_later_is_found_anywhere_in_the_output() {
    for output in [
        "JoinHandle<u64>",
        "tokio::task::JoinSet<u64>",
        "Result<Vec<JoinHandle<u64>>, E>",
        "Result<Sse<impl Stream<Item = u8>>, E>",
        "(u64, JoinHandle<u64>)",
        "R<JoinHandle<u64>>",
        "R<Pin<Box<dyn Future<Output = u8> + Send>>>",
        "R<[BoxFuture<'static, ()>; 2]>",
        "R<&'static [LocalBoxStream<'static, ()>]>",
        "impl Iterator<Item = JoinHandle<()>>",
        "impl FnOnce() -> Pin<Box<dyn Future<Output = u8>>>",
        "Box<dyn Fn() -> BoxFuture<'static, ()> + Send>",
    ] {
        let item = format!("async fn f() -> {output} {{ g() }}");
        let found = errors("key = \"a\"", &item);
        assert_eq!(found.len(), 1, "{output}: {found:?}");
        assert!(found[0].contains("allow(deferred_work)"), "{found:?}");
        assert_eq!(errors("key = \"a\", allow(deferred_work)", &item), [""; 0], "{output}");
    }
    for output in [
        "PhantomData<fn() -> JoinHandle<u64>>",
        "R<PhantomData<JoinHandle<u64>>>",
        "R<fn() -> BoxFuture<'static, ()>>",
        "Box<dyn Fn(JoinHandle<u64>) -> u32>",
        "impl Iterator<Item = u8>",
        "Futures<Stream, Future>",
    ] {
        assert_eq!(errors("key = \"a\"", &format!("async fn f() -> {output} {{ g() }}")), [""; 0], "{output}");
    }
}

#[test]
fn a_pattern_that_async_trait_moved_out_of_the_signature_is_named() {
    let item = "fn f<'async_trait>(__arg0: (u8, u8)) -> Pin<Box<dyn Future<Output = ()> + Send + 'async_trait>> { Box::pin(async move { let (a, b) = __arg0; }) }";
    let errors = errors("key = \"k:{a.x}\"", item);
    assert!(errors[0].contains("destructured"), "{errors:?}");
}
