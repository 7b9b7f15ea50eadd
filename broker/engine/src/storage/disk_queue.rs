//! One FIFO queue on disk, over segments that are written once and removed when all their records are done.

use std::collections::VecDeque;
use std::io;
use std::iter::Peekable;
use std::rc::Rc;

use crate::storage::job::{Errand, State};
use crate::storage::meta::{self, Entry, Meta};
use crate::storage::receipts::Receipt;
use crate::storage::record::{self, HEAD, Record};
use crate::storage::segment::{self, HEADER, Header, Kind, Segment};
use crate::storage::store::{Job, TEMPORARY, explain};
use crate::storage::volume::{Found, Volume};

/// What one write carries, where nobody waits: what was left when others did may be much.
pub(crate) const BATCH: usize = 2 << 20;

#[derive(Debug)]
pub struct DiskQueue {
    name: Rc<str>,
    segments: VecDeque<Segment>, // in order of reading; those of kind `Aside` are read apart
    unread: u64,                 // messages of the queue
    changes: u64,                // records written and read since the last sync
    unsynced: u64,               // bytes of records written since
    written_bytes: u64,          // ever
    begun_files: u64,            // ever
    highest_id: u64,
    saved: Vec<u8>,             // content of the last meta file; empty: unknown
    meta_there: bool,           // there may be one
    unwanted: Vec<String>,      // files to remove, until they are
    damaged: Vec<String>,       // files to set aside, until they are
    copied: Vec<Rc<Receipt>>,   // for records of other queues whose copies here are not on the device yet
    doubtful: Vec<Rc<Receipt>>, // the same of copies that may never get there
    errand: Rc<Errand>,
    begun: Option<Batch>, // behind the end of the last segment, where nobody looks yet
}

/// Records on their way to a file.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    count: u64,
    written: usize, // bytes
}

/// Bounds of one read: it ends at the first that it reaches.
#[derive(Debug, Clone, Copy)]
pub struct Portion {
    pub messages: u64,
    pub bytes: u64,
}

/// A record read from disk; it stays there until the receipt is dropped.
pub struct Read<'a> {
    pub record: Record<'a>,
    pub receipt: Rc<Receipt>,
    pub foreign: bool, // written by another incarnation: its times mean nothing here
}

impl DiskQueue {
    pub fn new(name: &str) -> Self {
        let (segments, saved, unwanted, damaged, copied, doubtful, errand, begun) = Default::default();
        let (unread, changes, unsynced, highest_id, meta_there) = Default::default();
        let (written_bytes, begun_files) = Default::default();
        Self {
            name: name.into(),
            segments,
            unread,
            changes,
            unsynced,
            written_bytes,
            begun_files,
            highest_id,
            saved,
            meta_there,
            unwanted,
            damaged,
            copied,
            doubtful,
            errand,
            begun,
        }
    }

    /// Messages that are not read yet.
    pub fn unread(&self) -> u64 {
        self.unread
    }

    /// Records written and read since the last sync.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Bytes of records written since the last sync.
    pub fn unsynced(&self) -> u64 {
        self.unsynced
    }

    /// Bytes written since it is there.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Files begun since it is there.
    pub fn begun_files(&self) -> u64 {
        self.begun_files
    }

    /// Whether a part of a message is written.
    pub fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// What is left of the message of which a part is written, in bytes.
    pub fn left_of_begun(&self) -> Option<u64> {
        self.begun.as_ref().map(|batch| (batch.bytes.len() - batch.written) as u64)
    }

    /// Of all messages that were ever written here.
    pub fn highest_id(&self) -> u64 {
        self.highest_id
    }

    // ---- start ----------------------------------------------------------------------------------------------------

    /// Take over what an earlier incarnation left. Damage is cut off or skipped, and reported.
    pub fn open(volume: &mut Volume, name: &str, found: &Found) -> io::Result<Self> {
        let mut queue = Self::new(name);
        let meta = queue.read_meta(volume, found)?;
        queue.highest_id = meta.highest_id;
        // A file that is on the list may be gone: its number stays taken, as long as the list is there.
        meta.entries.iter().for_each(|entry| volume.stay_above(entry.number));
        let newest = meta.entries.iter().map(|entry| entry.number).max();
        let mut left = found.segments.clone();
        for entry in &meta.entries {
            if let Some(len) = left.remove(&entry.number) {
                queue.adopt(volume, entry.number, len, Some(*entry))?;
            }
        }
        for (number, len) in left {
            if newest.is_some_and(|newest| number < newest) {
                volume.store.remove(&segment::file_name(name, number))?; // finished before the meta file
            } else {
                queue.adopt(volume, number, len, None)?;
            }
        }
        queue.unread = queue.in_order().map(|segment| segment.unread).sum();
        Ok(queue)
    }

    fn read_meta(&mut self, volume: &mut Volume, found: &Found) -> io::Result<Meta> {
        let Some(len) = found.meta else { return Ok(Meta::default()) };
        let file = meta::file_name(&self.name);
        self.meta_there = true;
        self.saved = volume.read_all(&file, len)?;
        Ok(Meta::decode(&self.saved).unwrap_or_else(|| {
            volume.report(&file, "is damaged: all that is there is delivered, some of it again".into());
            Meta::default()
        }))
    }

    fn adopt(&mut self, volume: &mut Volume, number: u64, len: u64, entry: Option<Entry>) -> io::Result<()> {
        let file = segment::file_name(&self.name, number);
        let head = volume.read_all(&file, len.min(HEADER as u64))?;
        let Some(header) = Header::decode(&head).filter(|header| header.number == number) else {
            if len <= HEADER as u64 {
                return volume.store.remove(&file); // made in the moment of the crash: nothing is in it
            }
            volume.report(&file, format!("has no sound header: set aside with {len} bytes"));
            return volume.store.set_aside(&file);
        };
        let mut segment = Segment { sealed: true, ..Segment::new(&self.name, header) };
        let mut known = HEADER as u64;
        if let Some(entry) = entry {
            segment.read = entry.start.clamp(HEADER as u64, len);
            known = segment.read;
            let holds = entry.end.saturating_sub(segment.read) / HEAD as u64;
            if entry.end <= len && entry.start <= entry.end && entry.count <= holds {
                (known, segment.unread) = (entry.end, entry.count);
            } else {
                let end = entry.end;
                let cut = || format!("has {len} bytes where {end} were written");
                volume.report(
                    &file,
                    if end > len {
                        cut()
                    } else {
                        "is not as its meta file says: all that is there is delivered".into()
                    },
                );
            }
        }
        let scan = volume.scan(&file, known, len, header.salt)?;
        segment.end = scan.end;
        segment.unread += scan.count;
        self.highest_id = self.highest_id.max(scan.highest_id);
        if scan.end < len {
            volume
                .report(&file, format!("had a torn end: cut at the last whole message, {} bytes off", len - scan.end));
            volume.store.truncate(&file, scan.end)?;
        }
        if segment.is_spent() {
            return volume.store.remove(&file);
        }
        self.segments.push_back(segment);
        Ok(())
    }

    fn in_order(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.header.kind == Kind::Queue)
    }

    // ---- writing --------------------------------------------------------------------------------------------------

    /// Appends records until they come to `most` bytes; returns the number of complete ones, and the error that stopped
    /// it.
    ///
    /// A partly written record must be the first of `records` at the next call, which continues it.
    pub fn append<'a>(
        &mut self,
        volume: &mut Volume,
        records: impl Iterator<Item = Record<'a>>,
        most: u64,
    ) -> (u64, io::Result<()>) {
        let (written, result) = self.write(volume, Kind::Queue, records, most);
        self.unread += written;
        (written, result)
    }

    /// Writes records in front of all unread ones, at shutdown.
    pub fn prepend<'a>(
        &mut self,
        volume: &mut Volume,
        records: impl Iterator<Item = Record<'a>>,
    ) -> (u64, io::Result<()>) {
        let before = self.segments.len();
        self.seal();
        let (written, result) = self.write(volume, Kind::Queue, records, u64::MAX);
        self.unread += written;
        self.seal();
        let new = self.segments.len() - before;
        self.segments.rotate_right(new);
        (written, result)
    }

    /// Writes the records beside the queue, at shutdown.
    pub fn put_aside<'a>(
        &mut self,
        volume: &mut Volume,
        records: impl Iterator<Item = Record<'a>>,
    ) -> (u64, io::Result<()>) {
        let result = self.write(volume, Kind::Aside, records, u64::MAX);
        self.seal();
        result
    }

    /// Keeps the source of a copied record until the copy, the record written last, is synced.
    ///
    /// Only a record of another queue needs this; a queue syncs its own new records before it removes old ones.
    pub fn keep_until_synced(&mut self, receipt: Option<Rc<Receipt>>) {
        self.copied.extend(receipt.filter(|receipt| !receipt.is_of(&self.name)));
    }

    /// Whether it holds unsynced copies of records elsewhere. A crash now would deliver both.
    pub fn has_copies(&self) -> bool {
        !self.copied.is_empty()
    }

    /// Ends the last segment for writes.
    fn seal(&mut self) {
        if let Some(last) = self.segments.back_mut() {
            last.sealed = true;
        }
    }

    fn write<'a>(
        &mut self,
        volume: &mut Volume,
        kind: Kind,
        records: impl Iterator<Item = Record<'a>>,
        most: u64,
    ) -> (u64, io::Result<()>) {
        let (mut records, mut written, mut left) = (records.peekable(), 0, most);
        while let Some(next) = records.peek().filter(|_| left > 0) {
            let first = next.size() as u64;
            match self.write_batch(volume, kind, first, &mut records, left) {
                Ok((count, bytes)) => (written, left) = (written + count, left.saturating_sub(bytes)),
                Err(error) => return (written, Err(error)),
            }
        }
        (written, Ok(()))
    }

    /// Writes at most `most` bytes: the rest of the last batch, or a new batch from byte `first` on. Returns the
    /// complete records and the bytes.
    fn write_batch<'a>(
        &mut self,
        volume: &mut Volume,
        kind: Kind,
        first: u64,
        records: &mut Peekable<impl Iterator<Item = Record<'a>>>,
        most: u64,
    ) -> io::Result<(u64, u64)> {
        let begun = self.begun.take();
        let goes_on = begun.is_some();
        let mut batch = match begun {
            Some(batch) => batch,
            None => self.encode(volume, kind, first, records, most)?,
        };
        let Some(segment) = self.segments.back_mut() else { return Ok((0, 0)) };
        let left = &batch.bytes[batch.written..];
        let part = &left[..left.len().min(usize::try_from(most).unwrap_or(usize::MAX))];
        if let Err(error) = volume.store.write(&segment.file, segment.end + batch.written as u64, part) {
            // A part of it may be there. Where it cannot be cut off nothing may follow it.
            segment.sealed = volume.store.truncate(&segment.file, segment.end).is_err();
            return Err(explain("write", &segment.file, &error));
        }
        let bytes = part.len();
        self.written_bytes += bytes as u64;
        batch.written += bytes;
        if batch.written < batch.bytes.len() {
            self.begun = Some(batch);
            return Ok((0, bytes as u64));
        }
        segment.end += batch.bytes.len() as u64;
        segment.unread += batch.count;
        segment.synced = false;
        self.changes += batch.count;
        self.unsynced += batch.bytes.len() as u64;
        if goes_on {
            (0..batch.count).for_each(|_| _ = records.next()); // they were encoded when it began
        }
        volume.batch = batch.bytes;
        volume.batch.shrink_to(BATCH);
        Ok((batch.count, bytes as u64))
    }

    /// As many of `records` as go into the last segment, a batch, and `most` bytes, one at least.
    fn encode<'a>(
        &mut self,
        volume: &mut Volume,
        kind: Kind,
        first: u64,
        records: &mut Peekable<impl Iterator<Item = Record<'a>>>,
        most: u64,
    ) -> io::Result<Batch> {
        let max = volume.max_bytes_per_file;
        let fits = |segment: &Segment| segment.end + first <= max || segment.end == HEADER as u64;
        if !self.segments.back().is_some_and(|last| !last.sealed && last.header.kind == kind && fits(last)) {
            self.add_segment(volume, kind)?;
        }
        let mut batch = Batch { bytes: std::mem::take(&mut volume.batch), ..Batch::default() };
        batch.bytes.clear();
        let Some(segment) = self.segments.back() else { return Ok(batch) };
        let room = usize::try_from(max.saturating_sub(segment.end).min(most)).unwrap_or(usize::MAX).min(BATCH);
        while let Some(record) = records.next_if(|next| batch.count == 0 || batch.bytes.len() + next.size() <= room) {
            record::encode(&mut batch.bytes, &record, segment.header.salt);
            self.highest_id = self.highest_id.max(record.id.0);
            batch.count += 1;
        }
        Ok(batch)
    }

    fn add_segment(&mut self, volume: &mut Volume, kind: Kind) -> io::Result<()> {
        self.seal();
        let segment = Segment::new(&self.name, volume.new_header(kind));
        if let Err(error) = volume.store.create(&segment.file, &segment.header.encode()) {
            // Half a header may be there; if not even that can be removed the next start does.
            let _ = volume.store.remove(&segment.file);
            return Err(explain("create", &segment.file, &error));
        }
        self.segments.push_back(segment);
        self.begun_files += 1;
        Ok(())
    }

    // ---- reading --------------------------------------------------------------------------------------------------

    /// Passes the oldest messages to `sink`, in order; returns their number. Skips damage up to the next sound record,
    /// and reports it.
    pub fn read(&mut self, volume: &mut Volume, portion: Portion, mut sink: impl FnMut(Read<'_>)) -> io::Result<u64> {
        let (mut left, mut result) = (portion, Ok(()));
        while result.is_ok()
            && left.messages > 0
            && left.bytes > 0
            && let Some(index) = self
                .segments
                .iter()
                .position(|segment| segment.header.kind == Kind::Queue && segment.read < segment.end)
        {
            let before = self.segments[index].unread;
            result = self.read_segment(volume, index, &mut left, &mut sink);
            self.unread = self.unread.saturating_sub(before) + self.segments[index].unread;
        }
        let count = portion.messages - left.messages;
        self.changes += count;
        result.map(|()| count)
    }

    /// Give all that stands beside the queue to `sink`.
    pub fn read_aside(&mut self, volume: &mut Volume, mut sink: impl FnMut(Read<'_>)) -> io::Result<()> {
        while let Some(index) =
            self.segments.iter().position(|segment| segment.header.kind == Kind::Aside && segment.read < segment.end)
        {
            let mut all = Portion { messages: u64::MAX, bytes: u64::MAX };
            self.read_segment(volume, index, &mut all, &mut sink)?;
        }
        Ok(())
    }

    fn read_segment(
        &mut self,
        volume: &mut Volume,
        index: usize,
        left: &mut Portion,
        sink: &mut impl FnMut(Read<'_>),
    ) -> io::Result<()> {
        let segment = &mut self.segments[index];
        let salt = segment.header.salt;
        while left.messages > 0 && left.bytes > 0 && segment.read < segment.end {
            let foreign = segment.header.incarnation != volume.incarnation;
            if let Some(record) = volume.record_at(&segment.file, segment.read, segment.end, salt)? {
                let receipt = segment.ledger.open(segment.read);
                segment.read += record.size() as u64;
                segment.unread = segment.unread.saturating_sub(1);
                left.messages -= 1;
                left.bytes = left.bytes.saturating_sub(record.size() as u64);
                sink(Read { record, receipt, foreign });
            } else {
                skip_damage(volume, segment)?;
            }
        }
        Ok(())
    }

    /// Skips the oldest message, whose record has `size` bytes: the caller has kept it.
    pub fn skip(&mut self, size: u64) -> Option<Rc<Receipt>> {
        let segment = self
            .segments
            .iter_mut()
            .find(|segment| segment.header.kind == Kind::Queue && segment.read < segment.end)?;
        let receipt = segment.ledger.open(segment.read);
        segment.read += size;
        segment.unread -= 1;
        self.unread -= 1;
        self.changes += 1;
        Some(receipt)
    }

    /// Gives up the next segment, which is unreadable, and keeps its file for the operator.
    pub fn give_up_segment(&mut self, volume: &mut Volume) {
        let next = |segment: &&mut Segment| segment.header.kind == Kind::Queue && segment.read < segment.end;
        let Some(segment) = self.segments.iter_mut().find(next) else { return };
        let lost = segment.end - segment.read;
        volume.report(
            &segment.file,
            format!("cannot be read: set aside with about {} messages in {lost} bytes", segment.unread),
        );
        self.unread -= segment.unread;
        (segment.unread, segment.read, segment.damaged) = (0, segment.end, true);
    }

    // ---- syncing --------------------------------------------------------------------------------------------------

    /// The job that makes the queue durable. `None`: nothing changed, or the last job is still under way.
    ///
    /// `errand` receives its outcome; the next job repeats what failed. But a kernel that could not write pages may
    /// drop them and call the next sync a success (Rebello and others, "Can applications recover from fsync failures?",
    /// ATC 2020). So the sources of copies that were written by then stay until the process ends.
    pub fn sync(&mut self) -> Option<Job> {
        match self.errand.state() {
            State::UnderWay => return None,
            State::Done => (self.unwanted, self.damaged) = Default::default(),
            State::Synced => self.saved = Vec::new(),
            State::Failed => {
                self.saved = Vec::new();
                self.segments.iter_mut().for_each(|segment| segment.synced = false);
                self.doubtful.extend(self.errand.take_receipts());
                self.doubtful.append(&mut self.copied);
            }
        }
        (self.changes, self.unsynced) = (0, 0);
        self.part_with_spent();
        let unsynced =
            |segment: &mut Segment| (!std::mem::replace(&mut segment.synced, true)).then(|| segment.file.clone());
        let sync = self.segments.iter_mut().filter_map(unsynced).collect();
        let replace = self.replace_meta();
        let job = Job { sync, set_aside: self.damaged.clone(), remove: self.unwanted.clone(), replace };
        if job.is_empty() {
            return None;
        }
        self.errand.begin(std::mem::take(&mut self.copied));
        Some(job)
    }

    pub fn errand(&self) -> Rc<Errand> {
        Rc::clone(&self.errand)
    }

    fn part_with_spent(&mut self) {
        let idle = self.unread == 0 && self.begun.is_none() && self.segments.iter().all(Segment::is_spent);
        let (spent, kept): (VecDeque<_>, _) =
            self.segments.drain(..).partition(|segment| segment.is_spent() && (segment.sealed || idle));
        self.segments = kept;
        for segment in spent {
            let list = if segment.damaged { &mut self.damaged } else { &mut self.unwanted };
            list.push(segment.file);
        }
        if self.segments.is_empty() && std::mem::take(&mut self.meta_there) {
            self.unwanted.push(meta::file_name(&self.name)); // behind the segments: without it they would be read again
            self.saved = Vec::new();
        }
    }

    fn replace_meta(&mut self) -> Option<(String, Vec<u8>)> {
        let meta = self.meta().encode();
        if self.segments.is_empty() || meta == self.saved {
            return None;
        }
        self.saved.clone_from(&meta);
        self.meta_there = true;
        Some((meta::file_name(&self.name), meta))
    }

    fn meta(&self) -> Meta {
        let entry = |s: &Segment| Entry { number: s.header.number, start: s.start(), end: s.end, count: s.count() };
        Meta { highest_id: self.highest_id, entries: self.segments.iter().map(entry).collect() }
    }

    /// Nothing of it is there, but for files that are being removed.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// No file is left, and nobody holds a receipt.
    pub fn is_gone(&self) -> bool {
        self.segments.is_empty() && self.unwanted.is_empty() && self.damaged.is_empty()
    }

    /// Removes all files of the queue.
    ///
    /// Segments are renamed at once; the job, which may take long, removes them. It also removes the meta file again,
    /// since a running job may still write it, and that job's files.
    pub fn destroy(self, volume: &mut Volume) -> (Job, io::Result<()>) {
        let meta = meta::file_name(&self.name);
        let mut result = volume.store.remove(&meta);
        for segment in &self.segments {
            result = volume.store.discard(&segment.file).and(result);
        }
        let mut remove = self.unwanted;
        remove.extend(self.segments.iter().map(|segment| format!("{}{TEMPORARY}", segment.file)));
        remove.push(meta);
        (Job { set_aside: self.damaged, remove, ..Job::default() }, result)
    }
}

/// Go on behind a record that is not sound.
#[cold]
fn skip_damage(volume: &mut Volume, segment: &mut Segment) -> io::Result<()> {
    let from = segment.read;
    let salt = segment.header.salt;
    let next = volume.find_record(&segment.file, from + 1, segment.end, salt)?;
    let to = next.unwrap_or(segment.end);
    let left = volume.scan(&segment.file, to, segment.end, salt)?.count;
    volume.report(
        &segment.file,
        format!("is damaged at {from}: {} bytes skipped, up to the next sound message", to - from),
    );
    (segment.read, segment.unread, segment.damaged) = (to, left, true);
    Ok(())
}

#[cfg(test)]
#[path = "../tests/disk_queue/mod.rs"]
mod tests;
