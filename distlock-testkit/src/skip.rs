//! Tests that need a server where there is none: skipped by name, never in silence.
//!
//! The test harness knows no skipping at run time and hides the output of a test that passes. So the name goes to the
//! real standard error, and into the file from which the test command lists the skipped ones.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

use crate::{Builder, Cluster, Error, Missing, SentinelBuilder, SentinelSet, Server};

/// Name of the environment variable with the file to which the names of skipped tests are appended.
pub const SKIP_LOG: &str = "DISTLOCK_SKIP_LOG";

/// Name of the environment variable that, set to `1`, makes a test fail instead of being skipped.
pub const REQUIRE_SERVER: &str = "DISTLOCK_REQUIRE_SERVER";

/// Gives the test a [`Server`], or ends it as skipped by name when this machine has none.
///
/// The first argument may be a [`Builder`] for a server with settings; `return EXPR` names what a test with a result
/// returns when it is skipped.
///
/// With `DISTLOCK_REQUIRE_SERVER=1` the test fails instead. A server that is there and does not start fails the test
/// in any case.
///
/// ```no_run
/// use distlock_testkit::{Server, server_or_skip};
///
/// # /*
/// #[test]
/// # */
/// fn a_key_can_be_set() {
///     let server = server_or_skip!();
///     server.command(&["SET", "k", "v"]).unwrap();
/// }
///
/// # /*
/// #[test]
/// # */
/// fn a_key_can_be_set_with_a_password() -> distlock_testkit::Result<()> {
///     let server = server_or_skip!(Server::builder().password("secret"), return Ok(()));
///     server.command(&["SET", "k", "v"])?;
///     Ok(())
/// }
/// ```
#[macro_export]
macro_rules! server_or_skip {
    () => {
        $crate::server_or_skip!($crate::Server::builder(), return)
    };
    (return $($value:expr)?) => {
        $crate::server_or_skip!($crate::Server::builder(), return $($value)?)
    };
    ($builder:expr) => {
        $crate::server_or_skip!($builder, return)
    };
    ($builder:expr, return $($value:expr)?) => {{
        fn here() {}
        match $crate::__private::server(&$crate::__private::name_of(&here), $builder) {
            ::core::option::Option::Some(server) => server,
            ::core::option::Option::None => return $($value)?,
        }
    }};
}

/// Gives the test this many [`Server`]s in a `Vec`; else as [`server_or_skip!`].
#[macro_export]
macro_rules! servers_or_skip {
    ($count:expr) => {
        $crate::servers_or_skip!($count, return)
    };
    ($count:expr, return $($value:expr)?) => {{
        fn here() {}
        match $crate::__private::servers(&$crate::__private::name_of(&here), $count) {
            ::core::option::Option::Some(servers) => servers,
            ::core::option::Option::None => return $($value)?,
        }
    }};
}

/// Gives the test a [`Cluster`](crate::Cluster); else as [`server_or_skip!`]. The argument, if there is one, changes the
/// [`Builder`] of each node.
#[macro_export]
macro_rules! cluster_or_skip {
    () => {
        $crate::cluster_or_skip!(|node| node)
    };
    ($settings:expr) => {{
        fn here() {}
        match $crate::__private::cluster(&$crate::__private::name_of(&here), $settings) {
            ::core::option::Option::Some(cluster) => cluster,
            ::core::option::Option::None => return,
        }
    }};
}

/// Gives the test a [`SentinelSet`]; else as [`server_or_skip!`]. The argument may be a [`SentinelBuilder`].
#[macro_export]
macro_rules! sentinels_or_skip {
    () => {
        $crate::sentinels_or_skip!($crate::SentinelSet::builder(), return)
    };
    ($builder:expr) => {
        $crate::sentinels_or_skip!($builder, return)
    };
    ($builder:expr, return $($value:expr)?) => {{
        fn here() {}
        match $crate::__private::sentinels(&$crate::__private::name_of(&here), $builder) {
            ::core::option::Option::Some(set) => set,
            ::core::option::Option::None => return $($value)?,
        }
    }};
}

/// The path of the function in which `here` was defined.
#[doc(hidden)]
#[must_use]
pub fn name_of<T>(here: &T) -> String {
    let path = std::any::type_name_of_val(here);
    // An async test runs in a closure of its own.
    path.trim_end_matches("::here").replace("::{{closure}}", "")
}

#[doc(hidden)]
#[must_use]
pub fn server(test: &str, builder: Builder) -> Option<Server> {
    or_skip(test, builder.spawn())
}

#[doc(hidden)]
#[must_use]
pub fn servers(test: &str, count: usize) -> Option<Vec<Server>> {
    or_skip(test, Server::spawn_many(count))
}

#[doc(hidden)]
#[must_use]
pub fn cluster(test: &str, settings: impl Fn(Builder) -> Builder) -> Option<Cluster> {
    or_skip(test, Cluster::spawn_with(settings))
}

#[doc(hidden)]
#[must_use]
pub fn sentinels(test: &str, builder: SentinelBuilder) -> Option<SentinelSet> {
    or_skip(test, builder.spawn())
}

fn or_skip<T>(test: &str, spawned: Result<T, Error>) -> Option<T> {
    match spawned {
        Ok(server) => Some(server),
        Err(Error::Missing(missing)) => {
            let required = env::var_os(REQUIRE_SERVER).is_some_and(|value| value == "1");
            assert!(!required, "{test} needs a server: {missing}");
            // Not `eprintln!`, whose output the harness keeps to itself when the test passes.
            let log = env::var_os(SKIP_LOG);
            if let Err(error) = report(test, &missing, &mut io::stderr(), log.as_deref().map(Path::new)) {
                panic!("{test} was skipped, and its name could not be written to `{SKIP_LOG}`: {error}");
            }
            None
        }
        Err(error) => panic!("{test} needs a server: {error}"),
    }
}

/// Names a skipped test to whoever looks: one line each, in a single write so that lines do not mix.
fn report(test: &str, missing: &Missing, out: &mut dyn io::Write, log: Option<&Path>) -> io::Result<()> {
    out.write_all(format!("SKIPPED {test}: {missing}\n").as_bytes())?;
    let Some(log) = log.filter(|log| !log.as_os_str().is_empty()) else {
        return Ok(());
    };
    OpenOptions::new().append(true).create(true).open(log)?.write_all(format!("{test}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Folder;

    #[test]
    fn a_test_is_named_by_its_path() {
        fn here() {}
        assert_eq!(name_of(&here), "distlock_testkit::skip::tests::a_test_is_named_by_its_path");
        let [name] = [()].map(|()| {
            fn here() {}
            name_of(&here)
        });
        assert_eq!(name, "distlock_testkit::skip::tests::a_test_is_named_by_its_path");
    }

    #[test]
    fn skipped_tests_are_listed_by_name() {
        let folder = Folder::new().unwrap();
        let log = folder.path().join("skipped");
        let missing = crate::Missing::for_tests();
        let mut out = Vec::new();
        report("one", &missing, &mut out, Some(&log)).unwrap();
        report("two", &missing, &mut out, Some(&log)).unwrap();
        report("three", &missing, &mut out, None).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(out.lines().map(|line| &line[..11]).eq(["SKIPPED one", "SKIPPED two", "SKIPPED thr"]), "{out}");
        assert_eq!(std::fs::read_to_string(log).unwrap(), "one\ntwo\n");
    }

    #[test]
    #[should_panic(expected = "broken needs a server: the server did not come up")]
    fn a_server_that_does_not_start_is_a_failure_and_no_skip() {
        let _ = or_skip::<Server>("broken", Err(Error::NotReady { log: String::new() }));
    }
}
