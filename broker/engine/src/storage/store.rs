//! What a queue needs of the disk. Files are named without a path; all of them are in one directory.

use std::fmt::{self, Debug};
use std::io;

/// Suffix of a file that is set aside.
pub const BAD: &str = ".bad";

/// Suffix of a file to discard: incomplete or not needed. The start removes every such file.
pub const TEMPORARY: &str = ".tmp";

pub trait Store: Debug {
    /// Names and lengths of all files.
    fn list(&mut self) -> io::Result<Vec<(String, u64)>>;

    /// Fill `into` from `offset` on; gives how much of it there was before the end of the file.
    fn read(&mut self, file: &str, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Make a file with this content. An error if there is one of that name.
    fn create(&mut self, file: &str, content: &[u8]) -> io::Result<()>;

    /// Write all of `bytes` at `offset`. After an error some of them may be there.
    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> io::Result<()>;

    fn truncate(&mut self, file: &str, len: u64) -> io::Result<()>;

    /// Renames to `FILE.bad` (`BAD`), for the operator. A missing file is not an error.
    fn set_aside(&mut self, file: &str) -> io::Result<()>;

    /// Renames to `FILE.tmp` (`TEMPORARY`), for a job to remove: a large file takes long. A missing file is not an
    /// error.
    fn discard(&mut self, file: &str) -> io::Result<()>;

    /// Not an error if it is not there.
    fn remove(&mut self, file: &str) -> io::Result<()>;

    /// Begin a job; jobs run in order, elsewhere, and report to `outcomes`.
    fn begin(&mut self, job: Job);

    /// The outcomes of jobs that ended since the last time, in the order in which they were begun.
    fn outcomes(&mut self) -> Vec<Outcome>;

    /// Wait for all jobs.
    fn wait(&mut self) -> Vec<Outcome>;
}

/// Disk work that may take long.
///
/// Its parts run in this order, each only if the one before succeeded; each file to set aside or remove is attempted.
/// Files are removed before the list is written, which frees space on a full disk. A file that is not on the list is a
/// new one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Job {
    pub sync: Vec<String>, // to the device
    pub set_aside: Vec<String>,
    pub remove: Vec<String>,
    pub replace: Option<(String, Vec<u8>)>, // write whole: afterwards the old content or the new, never a mixture
}

/// What became of a job.
#[derive(Debug)]
pub struct Outcome {
    pub synced: bool, // what was to be synced is on the device, whatever failed then
    pub result: io::Result<()>,
}

impl Job {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug)]
struct Explained {
    text: String,
    number: Option<i32>, // as the system gave it: kinds do not tell all of them apart
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Explained {}

/// An error of the disk with the operation and the file.
#[cold]
pub fn explain(doing: &str, file: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), Explained { text: format!("{doing} {file}: {error}"), number: error.raw_os_error() })
}

/// No descriptor was left.
pub fn lacks_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// An explained error that says nothing about the file: the system lacked descriptors or memory.
pub fn is_no_damage(error: &io::Error) -> bool {
    let explained = error.get_ref().and_then(|inner| inner.downcast_ref::<Explained>());
    matches!(explained.and_then(|explained| explained.number), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}
