//! The expansion as a reader sees it. A change here is a change of what every user compiles.

use expect_test::{Expect, expect};

use super::expand;

fn without_blanks(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

fn check(attribute: &str, item: &str, expected: &Expect) {
    let file = syn::parse2(expand(attribute, item)).unwrap();
    expected.assert_eq(&prettyplease::unparse(&file));
}

#[test]
fn a_function() {
    check(
        r#"key = "coupon:{campaign}:{user.id:04}", ttl = "5s""#,
        "pub async fn claim(&self, campaign: &str, user: User, _permit: Permit) -> Result<Coupon, AppError> { Ok(user) }",
        &expect![[r#"
            pub async fn claim(
                &self,
                campaign: &str,
                user: User,
                _permit: Permit,
            ) -> Result<Coupon, AppError> {
                use ::distlock::__private as __distlock_private;
                static __DISTLOCK: __distlock_private::Entry = __distlock_private::Entry::function(
                    __distlock_private::core::concat!(
                        __distlock_private::core::module_path!(), "::", "claim"
                    ),
                    "coupon:{campaign}:{user.id:04}",
                    "coupon:{}:{}",
                    &[
                        __distlock_private::Template {
                            text: "coupon:{campaign}:{user.id:04}",
                            label: "coupon:{}:{}",
                            separators: ":",
                            pieces: &[
                                __distlock_private::Piece::Literal("coupon:"),
                                __distlock_private::Piece::Text,
                                __distlock_private::Piece::Literal(":"),
                                __distlock_private::Piece::Decimal,
                            ],
                        },
                    ],
                    __distlock_private::INHERIT.ttl(__distlock_private::millis(5000u64)),
                    &[("ttl", "5s")],
                );
                __distlock_private::register!(__DISTLOCK);
                let __key = __distlock_private::KeyBuilder::new(":", "coupon:")
                    .value("campaign", &campaign, ":")
                    .integer(
                        "user.id",
                        &user.id,
                        __distlock_private::IntegerFormat {
                            radix: __distlock_private::Radix::Decimal,
                            width: 4usize,
                            prefix: false,
                        },
                        "",
                    )
                    .finish();
                return __distlock_private::locked(
                        &__DISTLOCK,
                        __key,
                        <Result<Coupon, AppError> as __distlock_private::CarriesBusyErrorLost>::of,
                        async move {
                            if false {
                                return __distlock_private::never_returned::<
                                    Result<Coupon, AppError>,
                                >();
                            }
                            #[allow(
                                clippy::used_underscore_binding,
                                reason = "named to be captured"
                            )]
                            let _ = &_permit;
                            let _ = &user;
                            let _ = &campaign;
                            '__distlock_body: { Ok(user) }
                        },
                    )
                    .await;
            }
        "#]],
    );
}

#[test]
fn a_lease_and_closures() {
    check(
        r#"key = "k:{id:hash}", wait = forever, renew = off, ttl = TTL, manager = self.locks, lease = lease, on_busy = |busy| { give(busy, id)? }, on_lost = |_| 7"#,
        "async fn claim(self, (id, rest): (u32, u32)) -> impl Display { id }",
        &expect![[r#"
            async fn claim(self, (id, rest): (u32, u32)) -> impl Display {
                use ::distlock::__private as __distlock_private;
                static __DISTLOCK: __distlock_private::Entry = __distlock_private::Entry::function(
                        __distlock_private::core::concat!(
                            __distlock_private::core::module_path!(), "::", "claim"
                        ),
                        "k:{id:hash}",
                        "k:{}",
                        &[
                            __distlock_private::Template {
                                text: "k:{id:hash}",
                                label: "k:{}",
                                separators: ":",
                                pieces: &[
                                    __distlock_private::Piece::Literal("k:"),
                                    __distlock_private::Piece::Hash,
                                ],
                            },
                        ],
                        __distlock_private::INHERIT
                            .ttl(__distlock_private::checked_ttl(TTL))
                            .wait(__distlock_private::Wait::Forever)
                            .renew(__distlock_private::Renew::Off),
                        &[
                            ("ttl", "TTL"),
                            ("wait", "forever"),
                            ("renew", "off"),
                            ("on_busy", "|..| .."),
                            ("on_lost", "|..| .."),
                        ],
                    )
                    .on_own_manager();
                __distlock_private::register!(__DISTLOCK);
                let __key = __distlock_private::KeyBuilder::new(":", "k:")
                    .hash("id", &id, "")
                    .finish();
                let __settings = __DISTLOCK.declared.settings;
                let __manager = __distlock_private::manager(&(self.locks));
                let __call = __distlock_private::call(&__DISTLOCK, __settings, __manager, __key);
                let __start = __call.start();
                let __policies = __distlock_private::Policies {
                    entry: &__DISTLOCK,
                    busy: __distlock_private::OnRefusal::Closure,
                    error: __distlock_private::OnRefusal::Fail(
                        <_ as __distlock_private::CarriesError>::of,
                    ),
                    lost: __distlock_private::OnLost::Value(|_| 7),
                    is_ok: __distlock_private::core::option::Option::None,
                };
                return __distlock_private::Locked::new(
                        __call,
                        __policies,
                        async move {
                            if false {
                                return __distlock_private::never_returned::<_>();
                            }
                            let _ = &id;
                            let lease = match __start.open::<()>() {
                                __distlock_private::Opened::Held(lease) => lease,
                                __distlock_private::Opened::Busy(__refusal) => {
                                    let busy = __refusal;
                                    #[allow(
                                        clippy::diverging_sub_expression,
                                        reason = "the closure may diverge"
                                    )]
                                    let __value: _ = '__distlock_policy: { give(busy, id)? };
                                    #[allow(unreachable_code, reason = "the closure may diverge")]
                                    return __value;
                                }
                                __distlock_private::Opened::Failed(__refusal) => {
                                    __distlock_private::polled_without_lease(&__refusal)
                                }
                            };
                            #[allow(
                                clippy::shadow_reuse,
                                clippy::shadow_same,
                                reason = "the body has the borrow only"
                            )]
                            let lease = &lease;
                            '__distlock_body: { id }
                        },
                    )
                    .await;
            }
        "#]],
    );
}

#[test]
fn a_job() {
    check(
        r#"key = "nightly", on_busy = skip, on_error = skip, on_lost = finish, crate = mine::locks, ttl = Self::TTL, max_hold = limit"#,
        "async fn tick() {}",
        &expect![[r#"
            async fn tick() {
                use mine::locks::__private as __distlock_private;
                static __DISTLOCK: __distlock_private::Entry = __distlock_private::Entry::function(
                        __distlock_private::core::concat!(
                            __distlock_private::core::module_path!(), "::", "tick"
                        ),
                        "nightly",
                        "nightly",
                        &[
                            __distlock_private::Template {
                                text: "nightly",
                                label: "nightly",
                                separators: "",
                                pieces: &[__distlock_private::Piece::Literal("nightly")],
                            },
                        ],
                        __distlock_private::INHERIT,
                        &[
                            ("ttl", "Self :: TTL"),
                            ("max_hold", "limit"),
                            ("on_busy", "skip"),
                            ("on_error", "skip"),
                            ("on_lost", "finish"),
                        ],
                    )
                    .computes(&["ttl", "max_hold"]);
                __distlock_private::register!(__DISTLOCK);
                let __key = __distlock_private::KeyBuilder::new("", "nightly").finish();
                let __settings = __DISTLOCK
                    .declared
                    .settings
                    .ttl(const { __distlock_private::checked_ttl(Self::TTL) })
                    .max_hold(__distlock_private::duration(limit));
                let __manager = __distlock_private::current();
                let __call = __distlock_private::call(&__DISTLOCK, __settings, __manager, __key);
                let __policies = __distlock_private::Policies {
                    entry: &__DISTLOCK,
                    busy: __distlock_private::OnRefusal::Skip(
                        <() as __distlock_private::SkipBusy>::skipped,
                    ),
                    error: __distlock_private::OnRefusal::Skip(
                        <() as __distlock_private::SkipError>::skipped,
                    ),
                    lost: __distlock_private::OnLost::Finish,
                    is_ok: __distlock_private::core::option::Option::None,
                };
                return __distlock_private::Locked::new(
                        __call,
                        __policies,
                        async move {
                            if false {
                                return __distlock_private::never_returned::<()>();
                            }
                            '__distlock_body: {}
                        },
                    )
                    .await;
            }
        "#]],
    );
}

#[test]
fn a_method_of_async_trait() {
    check(
        r#"key = "save:{id}""#,
        "fn save<'life0, 'async_trait>(&'life0 self, id: u64) -> ::core::pin::Pin<Box<dyn ::core::future::Future<Output = Result<(), E>> + ::core::marker::Send + 'async_trait>>
        where 'life0: 'async_trait, Self: 'async_trait {
            Box::pin(async move {
                let __self = self;
                let id = id;
                let __ret: Result<(), E> = { __self.put(id).await };
                __ret
            })
        }",
        &expect![[r#"
            fn save<'life0, 'async_trait>(
                &'life0 self,
                id: u64,
            ) -> ::core::pin::Pin<
                Box<
                    dyn ::core::future::Future<
                        Output = Result<(), E>,
                    > + ::core::marker::Send + 'async_trait,
                >,
            >
            where
                'life0: 'async_trait,
                Self: 'async_trait,
            {
                Box::pin(async move {
                    use ::distlock::__private as __distlock_private;
                    static __DISTLOCK: __distlock_private::Entry = __distlock_private::Entry::function(
                        __distlock_private::core::concat!(
                            __distlock_private::core::module_path!(), "::", "save"
                        ),
                        "save:{id}",
                        "save:{}",
                        &[
                            __distlock_private::Template {
                                text: "save:{id}",
                                label: "save:{}",
                                separators: ":",
                                pieces: &[
                                    __distlock_private::Piece::Literal("save:"),
                                    __distlock_private::Piece::Decimal,
                                ],
                            },
                        ],
                        __distlock_private::INHERIT,
                        &[],
                    );
                    __distlock_private::register!(__DISTLOCK);
                    let __key = __distlock_private::KeyBuilder::new(":", "save:")
                        .value("id", &id, "")
                        .finish();
                    return __distlock_private::locked(
                            &__DISTLOCK,
                            __key,
                            <Result<(), E> as __distlock_private::CarriesBusyErrorLost>::of,
                            async move {
                                if false {
                                    return __distlock_private::never_returned::<Result<(), E>>();
                                }
                                '__distlock_body: {
                                    let __self = self;
                                    let id = id;
                                    let __ret: Result<(), E> = { __self.put(id).await };
                                    __ret
                                }
                            },
                        )
                        .await;
                })
            }
        "#]],
    );
}

#[test]
fn a_value_that_is_called_for_has_a_statement_of_its_own() {
    let expanded =
        expand(r#"key = "a:{id}:{m.lock().0}:{id}:{m.lock().1:02}""#, "async fn f(id: u8, m: &M) {}").to_string();
    let key = without_blanks(expanded.split("let __key = ").nth(1).unwrap().split("return").next().unwrap());
    let expected = r#"{
        let __builder = p::KeyBuilder::new(":", "a:").value("id", &id, ":");
        let __builder = __builder.value("m.lock().0", &m.lock().0, ":");
        let __builder = __builder.value("id", &id, ":");
        let __builder = __builder.integer("m.lock().1", &m.lock().1, p::IntegerFormat { radix: p::Radix::Decimal, width: 2usize, prefix: false }, "");
        __builder.finish()
    };"#;
    assert_eq!(key, without_blanks(&expected.replace("p::", "__distlock_private::")));
}

#[test]
fn the_signature_and_the_attributes_stay() {
    let item = "#[must_use] #[doc = \"x\"] pub(in crate::a) default async unsafe extern \"C\" fn r#type<'a, T: ?Sized, const N: usize>(mut self: Box<Self>, #[cfg(x)] a: &'a T) -> Result<(), E> where T: 'a";
    let expanded = without_blanks(&expand("key = \"k\"", &format!("{item} {{}}")).to_string());
    assert!(expanded.starts_with(&without_blanks(item)), "{expanded}");
}

#[test]
fn an_error_stands_beside_the_item() {
    let item = "pub async fn claim(id: u32) {}";
    let expanded = expand("kee = \"k\"", item).to_string();
    assert!(expanded.ends_with("# [allow (unused_variables)] pub async fn claim (id : u32) { }"), "{expanded}");
}

#[test]
fn the_page_about_the_macro_shows_what_it_writes() {
    let page = include_str!("../../../docs/macro.md");
    let mut blocks = page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next());
    let (input, output) = (blocks.next().unwrap(), blocks.next().unwrap());
    let (attribute, item) = input.trim().strip_prefix("#[distributed_lock(").unwrap().split_once(")]\n").unwrap();
    // The page says why in comments, and writes one path short.
    let lines = output.lines().map(|line| line.split(" // ").next().unwrap_or_default());
    let shown =
        lines.collect::<String>().replace("p::", "__distlock_private::").replace("as p;", "as __distlock_private;");
    assert_eq!(without_blanks(&shown), without_blanks(&expand(attribute, item).to_string()));
}
