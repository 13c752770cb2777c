//! `events.jsonl`: what happened in a run, appended line by line, for watchers and for the run that resumes it.
// SIGNATURES for everybody; the owner of this file fills them in.

/// File name in the directory of the run.
pub(crate) const EVENTS: &str = "events.jsonl";
/// A watcher that asks the run to stop creates this file; the run removes it.
pub(crate) const STOP: &str = ".stop";

pub(crate) struct Writer;  // Writer::open(directory) -> io::Result<Writer>; write(at, &Event) (thins numeric/progress/checkpoints); flush at intervals
pub(crate) struct Reader;  // Reader::open(directory) -> io::Result<Reader>; read(&mut self, |at, Event|) -> io::Result<bool>: all whole lines since the last call; survives torn lines, a file that is not there yet, replaced or truncated
pub(crate) fn ask_to_stop(directory: &Path) -> io::Result<()>;
pub(crate) fn take_stop_request(directory: &Path) -> bool;
