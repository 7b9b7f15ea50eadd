//! A disk in memory that fails as told. Clones are the same disk: a test keeps one, and what was written survives the
//! engine.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, ErrorKind};
use std::rc::Rc;

use crate::storage::store::{BAD, Job, Outcome, Store, TEMPORARY};

#[derive(Debug, Default, Clone)]
pub struct MemoryStore(Rc<RefCell<Disk>>);

#[derive(Debug, Default)]
pub struct Disk {
    pub files: BTreeMap<String, Vec<u8>>,
    pub space: Option<usize>, // bytes that may still be written; then ENOSPC, after as much as there is room for
    pub unreadable: Option<(String, i32)>, // this error for files whose name contains that
    pub unreadable_from: u64, // only there
    pub unwritable: bool,     // EIO for every change
    pub unsyncable: bool,     // EIO for every sync
    pub drops_pages: bool,    // what a failed sync was to write never gets there, though the next sync succeeds
    pub unremovable: bool,    // EIO for every removal by a job
    pub writes: usize,
    pub jobs: Vec<Job>,
    pub slow: bool,                  // jobs wait, until somebody waits for them
    pub lives: Option<usize>,        // the process is killed after so many parts of jobs
    pub dead: bool,                  // the process was killed: nothing more gets there
    dropped: BTreeSet<String>,       // files of which pages were dropped
    synced: BTreeMap<String, usize>, // how much of a file is on the device
    pub waiting: VecDeque<Job>,
    outcomes: Vec<Outcome>,
}

impl MemoryStore {
    /// Look at the disk, or tell it to fail.
    pub fn with<T>(&self, look: impl FnOnce(&mut Disk) -> T) -> T {
        look(&mut self.0.borrow_mut())
    }

    pub fn names(&self) -> Vec<String> {
        self.with(|disk| disk.files.keys().cloned().collect())
    }

    /// Bytes in all files.
    pub fn bytes(&self) -> usize {
        self.with(|disk| disk.files.values().map(Vec::len).sum())
    }

    /// The disk as a process finds it that starts after this one was killed.
    pub fn after_kill(&self) -> Self {
        let (files, synced) = self.with(|disk| {
            disk.dead = true;
            (disk.files.clone(), disk.synced.clone())
        });
        Self(Rc::new(RefCell::new(Disk { files, synced, ..Disk::default() })))
    }

    /// The disk as it is found after a power cut, at its worst: of a segment there is what was synced.
    pub fn after_power_cut(&self) -> Self {
        let after = self.after_kill();
        after.with(|disk| {
            disk.files.retain(|file, content| {
                let there =
                    if file.ends_with(".meta") { content.len() } else { disk.synced.get(file).copied().unwrap_or(0) };
                content.truncate(there);
                there > 0
            });
        });
        after
    }
}

fn error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

fn missing() -> io::Error {
    error(libc::ENOENT)
}

impl Disk {
    fn put(&mut self, file: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.change()?;
        self.writes += 1;
        let content = self.files.get_mut(file).ok_or_else(missing)?;
        let written = self.space.map_or(bytes.len(), |space| space.min(bytes.len()));
        let (start, end) = (offset as usize, offset as usize + written);
        content.resize(content.len().max(end), 0);
        content[start..end].copy_from_slice(&bytes[..written]);
        if let Some(space) = &mut self.space {
            *space -= written;
        }
        if written < bytes.len() { Err(error(libc::ENOSPC)) } else { Ok(()) }
    }

    fn change(&self) -> io::Result<()> {
        if self.unwritable || self.dead { Err(error(libc::EIO)) } else { Ok(()) }
    }

    fn give_back(&mut self, bytes: usize) {
        if let Some(space) = &mut self.space {
            *space += bytes;
        }
    }

    fn delete(&mut self, file: &str) -> io::Result<()> {
        self.change()?;
        let content = self.files.remove(file);
        self.give_back(content.map_or(0, |content| content.len()));
        Ok(())
    }

    fn rename(&mut self, file: &str, ending: &str) -> io::Result<()> {
        self.change()?;
        if let Some(content) = self.files.remove(file) {
            self.files.insert(format!("{file}{ending}"), content);
        }
        Ok(())
    }

    /// The new content has to have room beside the old.
    fn replace(&mut self, file: &str, content: &[u8]) -> io::Result<()> {
        self.change()?;
        if self.space.is_some_and(|space| space < content.len()) {
            return Err(error(libc::ENOSPC));
        }
        self.space = self.space.map(|space| space - content.len());
        let old = self.files.insert(file.into(), content.into());
        self.give_back(old.map_or(0, |old| old.len()));
        Ok(())
    }

    fn sync(&mut self, file: &str) -> io::Result<()> {
        self.change()?;
        if self.unsyncable {
            self.dropped.extend(self.drops_pages.then(|| file.to_owned()));
            return Err(error(libc::EIO));
        }
        if self.dropped.contains(file) {
            return Ok(());
        }
        self.synced.extend(self.files.get(file).map(|content| (file.to_owned(), content.len())));
        Ok(())
    }

    fn run(&mut self, job: &Job) -> Outcome {
        let synced = job.sync.iter().try_for_each(|file| self.part(|disk| disk.sync(file)));
        match synced {
            Ok(()) => Outcome { synced: true, result: self.run_rest(job) },
            Err(error) => Outcome { synced: false, result: Err(error) },
        }
    }

    fn run_rest(&mut self, job: &Job) -> io::Result<()> {
        let mut result = Ok(());
        for file in &job.set_aside {
            result = result.and(self.part(|disk| disk.rename(file, BAD)));
        }
        for file in &job.remove {
            let refused = self.unremovable;
            result = result.and(self.part(|disk| if refused { Err(error(libc::EIO)) } else { disk.delete(file) }));
        }
        result?;
        job.replace.iter().try_for_each(|(file, content)| self.part(|disk| disk.replace(file, content)))
    }

    fn part(&mut self, run: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.dead |= self.lives == Some(0);
        self.lives = self.lives.map(|lives| lives.saturating_sub(1));
        run(self)
    }

    fn run_waiting(&mut self) {
        while let Some(job) = self.waiting.pop_front() {
            let outcome = self.run(&job);
            self.outcomes.push(outcome);
            self.jobs.push(job);
        }
    }
}

impl Store for MemoryStore {
    fn list(&mut self) -> io::Result<Vec<(String, u64)>> {
        Ok(self.with(|disk| disk.files.iter().map(|(name, content)| (name.clone(), content.len() as u64)).collect()))
    }

    fn read(&mut self, file: &str, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.with(|disk| {
            if let Some((part, number)) = &disk.unreadable
                && file.contains(part)
                && offset + into.len() as u64 > disk.unreadable_from
            {
                return Err(error(*number));
            }
            let content = disk.files.get(file).ok_or_else(missing)?;
            let rest = content.get(offset as usize..).unwrap_or_default();
            let len = rest.len().min(into.len());
            into[..len].copy_from_slice(&rest[..len]);
            Ok(len)
        })
    }

    fn create(&mut self, file: &str, content: &[u8]) -> io::Result<()> {
        self.with(|disk| {
            disk.change()?;
            if disk.files.contains_key(file) {
                return Err(ErrorKind::AlreadyExists.into());
            }
            disk.files.insert(file.into(), Vec::new());
            disk.put(file, 0, content)
        })
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(|disk| disk.put(file, offset, bytes))
    }

    fn truncate(&mut self, file: &str, len: u64) -> io::Result<()> {
        self.with(|disk| {
            disk.change()?;
            let content = disk.files.get_mut(file).ok_or_else(missing)?;
            let before = content.len();
            content.resize(len as usize, 0);
            disk.give_back(before.saturating_sub(len as usize));
            Ok(())
        })
    }

    fn set_aside(&mut self, file: &str) -> io::Result<()> {
        self.with(|disk| disk.rename(file, BAD))
    }

    fn discard(&mut self, file: &str) -> io::Result<()> {
        self.with(|disk| disk.rename(file, TEMPORARY))
    }

    fn remove(&mut self, file: &str) -> io::Result<()> {
        self.with(|disk| disk.delete(file))
    }

    fn begin(&mut self, job: Job) {
        self.with(|disk| {
            disk.waiting.push_back(job);
            if !disk.slow {
                disk.run_waiting();
            }
        });
    }

    fn outcomes(&mut self) -> Vec<Outcome> {
        self.with(|disk| {
            if !disk.slow {
                disk.run_waiting();
            }
            std::mem::take(&mut disk.outcomes)
        })
    }

    fn wait(&mut self) -> Vec<Outcome> {
        self.with(|disk| {
            disk.run_waiting();
            std::mem::take(&mut disk.outcomes)
        })
    }
}
