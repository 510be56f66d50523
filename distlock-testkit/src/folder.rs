//! A folder of one's own under the system's temporary folder, removed with its handle.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

/// Tells the folders of one process apart.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A private, empty folder; dropping the handle removes it and all that is in it.
#[derive(Debug)]
#[must_use = "the folder is removed when this is dropped"]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes a folder that only this user can enter.
    ///
    /// # Errors
    ///
    /// What the system says when the temporary folder cannot be written to.
    pub fn new() -> io::Result<Self> {
        // Without symbolic links, so that the name is the one a server reports for it.
        let parent = std::env::temp_dir().canonicalize()?;
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("distlock-{}-{number}", process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path }),
                // Left behind by an earlier process of the same number: take the next name.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it is: absolute and free of symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing sensible is left to be done about a failure here.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_private_and_goes_with_its_handle() {
        let (one, two) = (Folder::new().unwrap(), Folder::new().unwrap());
        assert_ne!(one.path(), two.path());
        fs::write(one.path().join("file"), "x").unwrap();
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists());
    }
}
