//! The real `Store`: one directory. Its own thread does slow work (fsync, unlinking large files), in order.
//! Its files are for their owner alone.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};

use crate::io::progress::Progress;
use crate::storage::store::{BAD, Job, Outcome, Store, TEMPORARY, explain, lacks_descriptors};

/// Files kept open, since a broker may have more queues than descriptors. Far fewer than the reserve in `io::socket`.
const MAX_OPEN: usize = 32;

/// Bytes of one write call, so that progress on a slow disk is visible.
const PIECE: usize = 1 << 20;

pub struct Files {
    directory: PathBuf,
    open: HashMap<String, File>,
    jobs: Sender<Job>,
    results: Receiver<Outcome>,
    under_way: usize,
    progress: Progress,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files")
            .field("directory", &self.directory)
            .field("under_way", &self.under_way)
            .finish_non_exhaustive()
    }
}

impl Files {
    /// Opens the directory. The thread calls `told` at every outcome; `progress` counts finished file operations.
    pub fn open(directory: &Path, progress: Progress, told: impl Fn() + Send + 'static) -> io::Result<Self> {
        if let Err(error) = fs::create_dir(directory)
            && error.kind() != ErrorKind::AlreadyExists
        {
            return Err(error);
        }
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.to_str().is_some_and(|path| path.ends_with(TEMPORARY)) {
                fs::remove_file(path)?;
            }
        }
        let ((jobs, to_do), (done, results)) = (mpsc::channel(), mpsc::channel());
        let place = Place { directory: directory.to_owned(), progress: progress.clone() };
        std::thread::Builder::new().name("srtm-disk".into()).spawn(move || place.work(&to_do, &done, told))?;
        Ok(Self { directory: directory.into(), open: HashMap::new(), jobs, results, under_way: 0, progress })
    }

    fn file(&mut self, name: &str) -> io::Result<&File> {
        if !self.open.contains_key(name) {
            let path = self.directory.join(name);
            let file = self.opened(|| OpenOptions::new().read(true).write(true).open(&path))?;
            self.keep(name, file);
        }
        self.open.get(name).ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Once more without the files that are kept, if no descriptor is left.
    fn opened(&mut self, mut open: impl FnMut() -> io::Result<File>) -> io::Result<File> {
        match open() {
            Err(error) if lacks_descriptors(&error) && !self.open.is_empty() => {
                self.open.clear();
                open()
            }
            result => result,
        }
    }

    fn keep(&mut self, name: &str, file: File) {
        if self.open.len() == MAX_OPEN {
            self.open.clear(); // rare, and what is in use is soon open again
        }
        self.open.insert(name.into(), file);
    }
}

impl Store for Files {
    fn list(&mut self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if let (Ok(name), true) = (entry.file_name().into_string(), entry.file_type()?.is_file()) {
                files.push((name, entry.metadata()?.len()));
            }
        }
        Ok(files)
    }

    fn read(&mut self, file: &str, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let file = self.file(file)?;
        let mut len = 0;
        while len < into.len() {
            match file.read_at(&mut into[len..], offset + len as u64) {
                Ok(0) => break,
                Ok(more) => len += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(len)
    }

    fn create(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let path = self.directory.join(name);
        let file = self.opened(|| private().create_new(true).open(&path))?;
        file.write_all_at(content, 0)?;
        self.progress.note();
        self.keep(name, file);
        Ok(())
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let progress = self.progress.clone();
        let file = self.file(file)?;
        for (piece, at) in bytes.chunks(PIECE).zip((offset..).step_by(PIECE)) {
            file.write_all_at(piece, at)?;
            progress.note();
        }
        Ok(())
    }

    fn truncate(&mut self, file: &str, len: u64) -> io::Result<()> {
        self.file(file)?.set_len(len)
    }

    fn set_aside(&mut self, file: &str) -> io::Result<()> {
        self.open.remove(file);
        rename(&self.directory, file, BAD)
    }

    fn discard(&mut self, file: &str) -> io::Result<()> {
        self.open.remove(file);
        rename(&self.directory, file, TEMPORARY)
    }

    fn remove(&mut self, file: &str) -> io::Result<()> {
        self.open.remove(file);
        remove(&self.directory, file)
    }

    fn begin(&mut self, job: Job) {
        for file in job.remove.iter().chain(&job.set_aside) {
            self.open.remove(file);
        }
        if self.jobs.send(job).is_ok() {
            self.under_way += 1;
        }
    }

    fn outcomes(&mut self) -> Vec<Outcome> {
        let outcomes: Vec<_> = if self.under_way == 0 { Vec::new() } else { self.results.try_iter().collect() };
        self.under_way -= outcomes.len();
        outcomes
    }

    fn wait(&mut self) -> Vec<Outcome> {
        let outcomes: Vec<_> = self.results.iter().take(self.under_way).collect();
        self.under_way = 0;
        outcomes
    }
}

/// What the thread works on.
struct Place {
    directory: PathBuf,
    progress: Progress,
}

impl Place {
    /// Until the store is gone.
    fn work(&self, jobs: &Receiver<Job>, done: &Sender<Outcome>, told: impl Fn()) {
        for job in jobs {
            if done.send(self.run(&job)).is_err() {
                return;
            }
            told();
        }
    }

    fn run(&self, job: &Job) -> Outcome {
        match self.sync(job) {
            Ok(()) => Outcome { synced: true, result: self.clear_away(job).and_then(|()| self.replace(job)) },
            Err(error) => Outcome { synced: false, result: Err(error) },
        }
    }

    fn sync(&self, job: &Job) -> io::Result<()> {
        for file in &job.sync {
            let synced = File::open(self.directory.join(file)).and_then(|open| open.sync_data());
            present(synced).map_err(|error| explain("sync", file, &error))?;
            self.progress.note();
        }
        if job.sync.is_empty() { Ok(()) } else { self.sync_directory() }
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(&self.directory)
            .and_then(|open| open.sync_all())
            .map_err(|error| explain("sync", "the directory of queues", &error))?;
        self.progress.note();
        Ok(())
    }

    fn clear_away(&self, job: &Job) -> io::Result<()> {
        let mut result = Ok(());
        for file in &job.set_aside {
            result = result.and(rename(&self.directory, file, BAD).map_err(|error| explain("rename", file, &error)));
            self.progress.note();
        }
        for file in &job.remove {
            result = result.and(remove(&self.directory, file).map_err(|error| explain("remove", file, &error)));
            self.progress.note();
        }
        result
    }

    fn replace(&self, job: &Job) -> io::Result<()> {
        let Some((file, content)) = &job.replace else { return Ok(()) };
        write_anew(&self.directory.join(file), content).map_err(|error| explain("write", file, &error))?;
        self.progress.note();
        self.sync_directory()
    }
}

/// What was removed meanwhile needs no care any more.
fn present(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

fn remove(directory: &Path, file: &str) -> io::Result<()> {
    present(fs::remove_file(directory.join(file)))
}

fn rename(directory: &Path, file: &str, ending: &str) -> io::Result<()> {
    present(fs::rename(directory.join(file), directory.join(format!("{file}{ending}"))))
}

/// How a file is made: it holds messages, or who they are for.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

fn write_anew(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(TEMPORARY);
    let mut file = private().create(true).truncate(true).open(&temporary)?;
    file.write_all(content)?;
    file.sync_data()?;
    fs::rename(temporary, path)
}

#[cfg(test)]
#[path = "../tests/files.rs"]
mod tests;
