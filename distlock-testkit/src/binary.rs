//! Finding a lock server on this machine. Starting it is the business of `server.rs`.

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Name of the environment variable that names the server's program; it wins over the search on `PATH`.
pub const SERVER_BIN: &str = "DISTLOCK_SERVER_BIN";

/// The programs looked for on `PATH`, in this order.
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

/// No server can be had on this machine. The text says what was looked for and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    named: Option<PathBuf>,
    /// The program is there and was built without TLS.
    without_tls: bool,
}

impl Missing {
    #[cfg(feature = "tls")]
    pub(crate) fn tls_in(program: &Path) -> Self {
        Self { named: Some(program.to_owned()), without_tls: true }
    }
}

#[cfg(test)]
impl Missing {
    pub(crate) fn for_tests() -> Self {
        Self { named: None, without_tls: false }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.named {
            Some(path) if self.without_tls => write!(
                f,
                "`{}` was built without TLS; install one that has it (`apt-get install redis-server`)",
                path.display()
            ),
            Some(path) => write!(
                f,
                "`{SERVER_BIN}` names `{}`, which is no program; set it to a redis-server or valkey-server, or unset it",
                path.display()
            ),
            None => write!(
                f,
                "no redis-server or valkey-server on `PATH`; install one (`apt-get install redis-server`) or set `{SERVER_BIN}`"
            ),
        }
    }
}

impl Error for Missing {}

/// Finds the server's program as the environment says.
pub(crate) fn find() -> Result<PathBuf, Missing> {
    find_in(env::var_os(SERVER_BIN).as_deref(), env::var_os("PATH").as_deref())
}

/// [`find`] for a given environment. An empty `named` counts as unset; a wrong one is not papered over by the search.
fn find_in(named: Option<&OsStr>, path: Option<&OsStr>) -> Result<PathBuf, Missing> {
    let folders = || path.map(env::split_paths).into_iter().flatten();
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        // A bare name is looked up like any command; with a slash in it, it is a path.
        let found = if named.components().count() > 1 {
            Some(named.clone()).filter(|path| is_program(path))
        } else {
            folders().map(|folder| folder.join(&named)).find(|path| is_program(path))
        };
        return found.ok_or(Missing { named: Some(named), without_tls: false });
    }
    PROGRAMS
        .iter()
        .flat_map(|program| folders().map(move |folder| folder.join(program)))
        .find(|path| is_program(path))
        .ok_or(Missing { named: None, without_tls: false })
}

/// Every server that this machine has: the named one, and each kind on `PATH`.
pub(crate) fn find_all() -> Vec<PathBuf> {
    let path = env::var_os("PATH");
    let on_path = |name: &str| find_in(Some(OsStr::new(name)), path.as_deref()).ok();
    let mut found: Vec<PathBuf> = find().into_iter().chain(PROGRAMS.into_iter().filter_map(on_path)).collect();
    let mut seen = std::collections::BTreeSet::new();
    // The same program by two names is one server.
    found.retain(|program| seen.insert(program.canonicalize().unwrap_or_else(|_| program.clone())));
    found
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Folder;
    use std::fs;

    fn program(folder: &Folder, name: &str, mode: u32) -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn redis_is_preferred_and_a_file_that_cannot_run_is_passed_over() {
        let folder = Folder::new().unwrap();
        let path = Some(folder.path().as_os_str());
        assert_eq!(find_in(None, path), Err(Missing { named: None, without_tls: false }));

        program(&folder, "redis-server", 0o644);
        let valkey = program(&folder, "valkey-server", 0o755);
        assert_eq!(find_in(None, path), Ok(valkey));

        let redis = program(&folder, "redis-server", 0o755);
        assert_eq!(find_in(None, path), Ok(redis.clone()));
        assert_eq!(find_in(Some(OsStr::new("")), path), Ok(redis));
    }

    #[test]
    fn a_named_program_wins_and_a_wrong_name_is_not_replaced_by_another_server() {
        let folder = Folder::new().unwrap();
        let path = Some(folder.path().as_os_str());
        program(&folder, "redis-server", 0o755);
        let mine = program(&folder, "my-server", 0o755);

        assert_eq!(find_in(Some(mine.as_os_str()), path), Ok(mine.clone()));
        assert_eq!(find_in(Some(OsStr::new("my-server")), path), Ok(mine));

        let wrong = find_in(Some(OsStr::new("/no/such/server")), path).unwrap_err();
        assert!(wrong.to_string().contains("`/no/such/server`"), "{wrong}");
    }
}
