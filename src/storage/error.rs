use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What was tried, where, and what the system said.
///
/// Every [`io::Error`] that leaves a [`Storage`](super::Storage) carries one, so that a message names the
/// path and [`errno_of`] still finds the number.
#[derive(Debug)]
pub struct PathError {
    /// What was tried, as a verb: `create`, `write`, `sync`.
    pub operation: &'static str,
    /// What it was tried on.
    pub path: PathBuf,
    /// The second path of an operation on two.
    pub target: Option<PathBuf>,
    /// What the system said.
    pub source: io::Error,
}

impl PathError {
    /// An [`io::Error`] of the same kind as `source` that names the operation and the path.
    pub fn wrap(operation: &'static str, path: &Path, source: io::Error) -> io::Error {
        PathError::new(operation, path, None, source).into_io()
    }

    /// The same for an operation on two paths.
    pub fn wrap_pair(
        operation: &'static str,
        path: &Path,
        target: &Path,
        source: io::Error,
    ) -> io::Error {
        PathError::new(operation, path, Some(target), source).into_io()
    }

    fn new(
        operation: &'static str,
        path: &Path,
        target: Option<&Path>,
        source: io::Error,
    ) -> PathError {
        PathError {
            operation,
            path: path.to_owned(),
            target: target.map(Path::to_owned),
            source,
        }
    }

    fn into_io(self) -> io::Error {
        io::Error::new(self.source.kind(), self)
    }
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}", self.operation, self.path.display())?;
        if let Some(target) = &self.target {
            write!(f, " to {}", target.display())?;
        }
        write!(f, ": {}", self.source)
    }
}

impl Error for PathError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

/// The error number of the system and the path it is about, however deep they are wrapped.
///
/// `None` if the error did not come from the system, or not through a [`Storage`](super::Storage).
///
/// # Example
///
/// ```
/// use std::path::Path;
/// use pitstop::storage::{errno_of, Local, Storage};
///
/// let error = Local::new().list(Path::new("/no/such/directory")).unwrap_err();
/// let (errno, path) = errno_of(&error).unwrap();
/// assert_eq!(path, Path::new("/no/such/directory"));
/// # #[cfg(unix)]
/// assert_eq!(errno, 2);
/// ```
pub fn errno_of(error: &io::Error) -> Option<(i32, PathBuf)> {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(current) = next {
        if let Some(found) = current.downcast_ref::<PathError>() {
            return Some((found.source.raw_os_error()?, found.path.clone()));
        }
        // An `io::Error` skips what it wraps when it is asked for its source.
        next = match current.downcast_ref::<io::Error>() {
            Some(wrapper) => wrapper.get_ref().map(|inner| inner as _),
            None => current.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_space() -> io::Error {
        PathError::wrap(
            "write",
            Path::new("runs/a"),
            io::Error::from_raw_os_error(28),
        )
    }

    #[test]
    fn the_message_names_operation_and_path() {
        let message = no_space().to_string();
        assert!(message.starts_with("cannot write runs/a: "), "{message}");
        let source = io::Error::from_raw_os_error(17);
        let pair = PathError::wrap_pair("rename", Path::new("a"), Path::new("b"), source);
        assert!(pair.to_string().starts_with("cannot rename a to b: "));
    }

    #[test]
    fn kind_and_errno_survive_wrapping() {
        assert_eq!(no_space().kind(), io::Error::from_raw_os_error(28).kind());
        let twice = io::Error::other(io::Error::other(no_space()));
        assert_eq!(errno_of(&twice), Some((28, PathBuf::from("runs/a"))));
    }

    #[test]
    fn without_a_number_or_a_path_there_is_no_errno() {
        assert_eq!(errno_of(&io::Error::from_raw_os_error(5)), None);
        let bare = PathError::wrap("read", Path::new("a"), io::Error::other("gone"));
        assert_eq!(errno_of(&bare), None);
    }
}
