//! A disk in memory that fails as told. Clones are the same disk: a test keeps one, and what was written survives the engine.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::rc::Rc;

use crate::disk::store::{Job, Store};

#[derive(Debug, Default, Clone)]
pub struct MemoryStore(Rc<RefCell<Disk>>);

#[derive(Debug, Default)]
pub struct Disk {
    pub files: BTreeMap<String, Vec<u8>>,
    pub space: Option<usize>, // bytes that may still be written; then ENOSPC, after as much as there is room for
    pub unreadable: Option<String>, // EIO for files whose name contains this
    pub unwritable: bool,     // EIO for every change
    pub writes: usize,
    pub jobs: Vec<Job>,
    pub dead: bool, // the process was killed: nothing more gets there
    outcomes: Vec<io::Result<()>>,
}

impl MemoryStore {
    /// Look at the disk, or tell it to fail.
    pub fn with<T>(&self, look: impl FnOnce(&mut Disk) -> T) -> T {
        look(&mut self.0.borrow_mut())
    }

    pub fn names(&self) -> Vec<String> {
        self.with(|disk| disk.files.keys().cloned().collect())
    }

    /// The disk as a process finds it that starts after this one was killed.
    pub fn after_kill(&self) -> Self {
        let files = self.with(|disk| {
            disk.dead = true;
            disk.files.clone()
        });
        Self(Rc::new(RefCell::new(Disk { files, ..Disk::default() })))
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

    fn run(&mut self, job: &Job) -> io::Result<()> {
        self.change()?;
        if let Some((file, content)) = &job.replace {
            self.files.insert(file.clone(), content.clone());
        }
        for file in &job.set_aside {
            let content = self.files.remove(file).ok_or_else(missing)?;
            self.files.insert(format!("{file}.bad"), content);
        }
        for file in &job.remove {
            self.files.remove(file);
        }
        Ok(())
    }
}

impl Store for MemoryStore {
    fn list(&mut self) -> io::Result<Vec<(String, u64)>> {
        Ok(self.with(|disk| disk.files.iter().map(|(name, content)| (name.clone(), content.len() as u64)).collect()))
    }

    fn read(&mut self, file: &str, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.with(|disk| {
            if disk.unreadable.as_ref().is_some_and(|part| file.contains(part)) {
                return Err(error(libc::EIO));
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
            disk.files.get_mut(file).ok_or_else(missing)?.resize(len as usize, 0);
            Ok(())
        })
    }

    fn set_aside(&mut self, file: &str) -> io::Result<()> {
        self.with(|disk| disk.run(&Job { set_aside: vec![file.into()], ..Job::default() }))
    }

    fn remove(&mut self, file: &str) -> io::Result<()> {
        self.with(|disk| disk.run(&Job { remove: vec![file.into()], ..Job::default() }))
    }

    fn begin(&mut self, job: Job) {
        self.with(|disk| {
            let outcome = disk.run(&job);
            disk.outcomes.push(outcome);
            disk.jobs.push(job);
        });
    }

    fn outcomes(&mut self) -> Vec<io::Result<()>> {
        self.with(|disk| std::mem::take(&mut disk.outcomes))
    }

    fn wait(&mut self) -> Vec<io::Result<()>> {
        self.outcomes()
    }
}
