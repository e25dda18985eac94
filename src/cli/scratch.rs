//! A directory that lasts as long as the program.

use super::error::Error;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A new directory, removed with all that is in it when this is dropped.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes one under the system's directory for such; its name begins with `prefix`.
    pub(super) fn new(prefix: &str) -> Result<Self, Error> {
        Self::within(&std::env::temp_dir(), prefix)
    }

    /// Makes one under that directory, which is made too if it is not there.
    pub(super) fn within(parent: &Path, prefix: &str) -> Result<Self, Error> {
        let path = parent.join(format!("{prefix}-{}", uuid::Uuid::new_v4().simple()));
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder
            .create(&path)
            .map_err(|error| Error::failure(format!("cannot make the directory {}: {error}", path.display())))?;
        Ok(Self(path))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is left to the system, which cleans its temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_directory_goes_with_its_owner() {
        let scratch = Scratch::new("orbit-test").unwrap();
        let path = scratch.path().to_owned();
        fs::write(path.join("file"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
