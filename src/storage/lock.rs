use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The right to write into a directory: held until dropped, or until the process dies.
pub trait Lock: Send + Sync + fmt::Debug {
    /// Lets go of the copy of this lock that a forked child was born with. The parent keeps its lock.
    ///
    /// A child that outlives a killed parent would otherwise keep the directory locked. Does nothing in
    /// the process that took the lock, so that a wrong call can't give the directory away.
    fn abandon_in_child(&self);

    /// Whether the lock file at `path` is still the one that is locked. If it was removed, or its directory
    /// replaced, the lock guards nothing any more.
    fn guards(&self, path: &Path) -> bool {
        let _ = path;
        true
    }
}

/// Why a lock was not given.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else holds it, in this process or another.
    #[error("{} is locked by {}", path.display(), holder(*pid))]
    Held {
        /// The process that holds it; `None` if it could not be read.
        pid: Option<u32>,
        /// The lock file.
        path: PathBuf,
    },
    /// The lock file could not be made or locked at all.
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn holder(pid: Option<u32>) -> String {
    match pid {
        None => "another writer".into(),
        Some(pid) if pid == std::process::id() => {
            format!("this process ({pid}): close the other checkpointer first")
        }
        Some(pid) => format!("process {pid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_names_the_holder() {
        let path = PathBuf::from("runs/.lock");
        let known = LockError::Held {
            pid: Some(7),
            path: path.clone(),
        };
        assert_eq!(known.to_string(), "runs/.lock is locked by process 7");
        let unknown = LockError::Held { pid: None, path };
        assert_eq!(
            unknown.to_string(),
            "runs/.lock is locked by another writer"
        );
    }
}
