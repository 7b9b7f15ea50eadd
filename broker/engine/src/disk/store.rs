//! What a queue needs of the disk. Files are named without a path; all of them are in one directory.

use std::fmt::Debug;
use std::io;

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

    /// Rename to `FILE.bad`, for people to look at.
    fn set_aside(&mut self, file: &str) -> io::Result<()>;

    /// Not an error if it is not there.
    fn remove(&mut self, file: &str) -> io::Result<()>;

    /// Begin a job; jobs run in order, elsewhere, and report to `outcomes`.
    fn begin(&mut self, job: Job);

    /// The outcomes of jobs that ended since the last time.
    fn outcomes(&mut self) -> Vec<io::Result<()>>;

    /// Wait for all jobs.
    fn wait(&mut self) -> Vec<io::Result<()>>;
}

/// What may take long. Its parts run in this order, each only if the one before succeeded.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Job {
    pub sync: Vec<String>,                  // to the device
    pub replace: Option<(String, Vec<u8>)>, // write whole: afterwards the old content or the new, never a mixture
    pub set_aside: Vec<String>,
    pub remove: Vec<String>,
}

impl Job {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// An error of the disk with the operation and the file.
#[cold]
pub fn explain(doing: &str, file: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{doing} {file}: {error}"))
}
