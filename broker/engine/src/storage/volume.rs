//! The directory shared by all queues: the store, numbers of new segments, record reads, and repair reports.

use std::collections::BTreeMap;
use std::io;

use crate::storage::meta;
use crate::storage::record::{self, HEAD, MARKER, Record};
use crate::storage::segment::{self, Header, Kind, MAX_NUMBER};
use crate::storage::store::{BAD, Store, explain};

/// What one read brings: some hundred messages.
const CHUNK: u64 = 256 << 10;

/// What a search for the next sound record may look at: bodies full of markers must not stop the broker for minutes.
const SEARCH: u64 = 256 << 20;

/// A report of damage on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub file: String,
    pub what: String,
}

/// Files of one queue found at the start.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub segments: BTreeMap<u64, u64>, // {number: length}
    pub meta: Option<u64>,            // its length
}

#[derive(Debug)]
pub struct Volume {
    pub store: Box<dyn Store>,
    pub incarnation: u64,
    pub max_bytes_per_file: u64,
    pub reports: Vec<Report>,
    pub(crate) batch: Vec<u8>,
    next_number: u64,
    window: Window,
}

/// The part of a file that was read last.
#[derive(Debug, Default)]
struct Window {
    file: String,
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn from(&self, offset: u64) -> &[u8] {
        &self.bytes[(offset - self.start) as usize..]
    }

    fn holds(&self, file: &str, offset: u64, want: u64) -> bool {
        self.file == file && self.start <= offset && offset + want <= self.start + self.bytes.len() as u64
    }
}

/// Result of a scan of a segment's records.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Scan {
    pub end: u64, // behind the last sound record
    pub count: u64,
    pub highest_id: u64,
    pub damaged: bool, // something between the sound records is not
}

impl Volume {
    /// `incarnation`: of this process, one that no other has.
    pub fn new(store: Box<dyn Store>, incarnation: u64, max_bytes_per_file: u64) -> Self {
        let (reports, batch, window) = Default::default();
        Self { store, incarnation, max_bytes_per_file, reports, batch, next_number: 0, window }
    }

    /// What earlier incarnations left, by queue. New segments get higher numbers than those of any file.
    pub fn found(&mut self) -> io::Result<BTreeMap<String, Found>> {
        let mut queues = BTreeMap::<String, Found>::new();
        for (name, len) in self.store.list()? {
            if let Some((_, number)) = name.strip_suffix(BAD).and_then(segment::parse_file_name) {
                self.stay_above(number);
            } else if let Some((queue, number)) = segment::parse_file_name(&name) {
                queues.entry(queue.into()).or_default().segments.insert(number, len);
                self.stay_above(number);
            } else if let Some(queue) = meta::parse_file_name(&name) {
                queues.entry(queue.into()).or_default().meta = Some(len);
            }
        }
        Ok(queues)
    }

    /// New segments get higher numbers than this one.
    pub fn stay_above(&mut self, number: u64) {
        if number <= MAX_NUMBER {
            self.next_number = self.next_number.max(number + 1);
        }
    }

    pub fn report(&mut self, file: &str, what: String) {
        self.reports.push(Report { file: file.into(), what });
    }

    pub fn new_header(&mut self, kind: Kind) -> Header {
        let number = self.next_number;
        self.next_number += 1;
        // Nobody outside can guess it: a body that looks like a record does not pass for one.
        let salt = crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), &self.incarnation.to_le_bytes());
        Header { kind, salt, incarnation: self.incarnation, number }
    }

    /// The whole of a small file.
    pub fn read_all(&mut self, file: &str, len: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len as usize];
        let there = self.store.read(file, 0, &mut bytes).map_err(|error| explain("read", file, &error))?;
        bytes.truncate(there);
        Ok(bytes)
    }

    /// Have the bytes from `offset` on at hand: `want` of them, if there are that many before `limit`.
    fn load(&mut self, file: &str, offset: u64, limit: u64, want: usize) -> io::Result<()> {
        let there = limit.saturating_sub(offset);
        let want = there.min(want as u64);
        if self.window.holds(file, offset, want) {
            return Ok(());
        }
        let Window { bytes, .. } = std::mem::take(&mut self.window);
        let mut bytes = bytes;
        bytes.resize(want.max(CHUNK).min(there) as usize, 0);
        let len = self.store.read(file, offset, &mut bytes).map_err(|error| explain("read", file, &error))?;
        bytes.truncate(len);
        self.window = Window { file: file.into(), start: offset, bytes };
        Ok(())
    }

    /// The record at `offset` of a segment that ends at `limit`. `None`: no sound one is there.
    pub fn record_at(&mut self, file: &str, offset: u64, limit: u64, salt: u32) -> io::Result<Option<Record<'_>>> {
        self.load(file, offset, limit, HEAD)?;
        let Some(size) = record::expected_size(self.window.from(offset)) else { return Ok(None) };
        if offset + size as u64 > limit {
            return Ok(None);
        }
        self.load(file, offset, limit, size)?;
        Ok(record::decode(self.window.from(offset), salt))
    }

    /// The offset of the next sound record from `offset` on.
    pub fn find_record(&mut self, file: &str, mut offset: u64, limit: u64, salt: u32) -> io::Result<Option<u64>> {
        let mut left = SEARCH;
        while offset + HEAD as u64 <= limit {
            self.load(file, offset, limit, HEAD)?;
            let bytes = self.window.from(offset);
            if bytes.len() < HEAD {
                return Ok(None); // the file has become shorter
            }
            let Some(at) = bytes.windows(MARKER.len()).position(|window| window == MARKER) else {
                offset += (bytes.len() - (MARKER.len() - 1)) as u64;
                continue;
            };
            let size = record::expected_size(&bytes[at..]).unwrap_or(0) as u64;
            offset += at as u64;
            if offset + size <= limit {
                left = left.saturating_sub(size);
                if left == 0 {
                    return Ok(None);
                }
                if self.record_at(file, offset, limit, salt)?.is_some() {
                    return Ok(Some(offset));
                }
            }
            offset += 1;
        }
        Ok(None)
    }

    /// Look at every record from `offset` on.
    pub fn scan(&mut self, file: &str, mut offset: u64, limit: u64, salt: u32) -> io::Result<Scan> {
        let mut scan = Scan { end: offset, ..Scan::default() };
        while offset < limit {
            if let Some(record) = self.record_at(file, offset, limit, salt)? {
                offset += record.size() as u64;
                scan.highest_id = scan.highest_id.max(record.id.0);
                scan.end = offset;
                scan.count += 1;
            } else if let Some(next) = self.find_record(file, offset + 1, limit, salt)? {
                scan.damaged = true;
                offset = next;
            } else {
                break;
            }
        }
        Ok(scan)
    }
}
