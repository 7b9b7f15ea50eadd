//! A message on its way: one allocation for the frame that every channel and consumer shares, and what each queue entry knows besides.

use std::cell::Cell;
use std::rc::Rc;

use crate::bucket::Nanos;
use crate::disk::ledger::Receipt;
use crate::disk::queue::Read;
use crate::disk::record::Record;
use crate::id::MessageId;
use crate::wire;

/// Bytes charged for a queue entry besides its frame: the entry, its share of the queue, the allocator's overhead.
const ENTRY_OVERHEAD: u64 = 128;

/// Bytes held by all messages of an engine. Charged by entries, released when they are dropped, wherever that is: it cannot leak.
#[derive(Debug, Clone, Default)]
pub struct Meter(Rc<Cell<u64>>);

impl Meter {
    pub fn used(&self) -> u64 {
        self.0.get()
    }

    /// What an entry with a body of `len` bytes will be charged.
    pub fn cost_of(len: usize) -> u64 {
        ENTRY_OVERHEAD + (wire::MESSAGE_HEADER + len) as u64
    }

    pub(crate) fn charge(&self, bytes: u64) -> Charge {
        self.0.set(self.0.get() + bytes);
        Charge { meter: self.clone(), bytes }
    }
}

/// Bytes held as long as this lives.
#[derive(Debug)]
pub(crate) struct Charge {
    meter: Meter,
    bytes: u64,
}

impl Clone for Charge {
    fn clone(&self) -> Self {
        self.meter.charge(self.bytes)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.meter.0.set(self.meter.0.get() - self.bytes);
    }
}

/// When things happened to a message. Channels copy it; the first three are the topic's and never change once it is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    pub arrival: Nanos, // effective: what the bucket counted
    pub due: Nanos,     // release instant of the bucket
    pub queued: Nanos,  // let go by the bucket, in fact: the wait for a channel and a consumer begins
    pub trace: u64,     // sequence number in the topic's trace
}

pub const NO_TRACE: u64 = u64::MAX;

/// An entry of a queue: the shared frame, and this channel's count of attempts.
#[derive(Debug, Clone)]
pub struct Message {
    pub id: MessageId,
    pub frame: Rc<[u8]>, // as `wire::build_message` made it
    pub attempts: u16,
    pub defer_ms: u32, // DPUB: deferred in each channel from the moment it gets there
    pub foreign: bool, // of an earlier incarnation: its times are none of ours
    pub times: Times,
    pub(crate) stored: Option<Rc<Receipt>>, // it came from disk, and is needed there until no copy is left
    _charge: Charge,
}

impl Message {
    /// `scratch` is reused between calls: the frame is the only allocation.
    pub fn new(scratch: &mut Vec<u8>, meter: &Meter, id: MessageId, wall_ns: i64, body: &[u8], arrival: Nanos, defer_ms: u32) -> Self {
        wire::build_message(scratch, wall_ns, id, body);
        Self {
            id,
            frame: Rc::from(scratch.as_slice()),
            attempts: 0,
            defer_ms,
            foreign: false,
            times: Times { arrival, due: arrival, queued: arrival, trace: NO_TRACE },
            stored: None,
            _charge: meter.charge(Meter::cost_of(body.len())),
        }
    }

    /// When it was published, by the wall clock.
    pub fn wall_ns(&self) -> i64 {
        wire::message_wall_ns(&self.frame)
    }

    /// A message that comes back from disk at `now`.
    pub fn from_disk(scratch: &mut Vec<u8>, meter: &Meter, read: Read<'_>, now: Nanos) -> Self {
        let Read { record, receipt, foreign } = read;
        let message = Self::new(scratch, meter, record.id, record.wall_ns, record.body, now, record.defer_ms);
        let times = if foreign { message.times } else { record.times };
        Self { attempts: record.attempts, foreign, times, stored: Some(receipt), ..message }
    }

    /// As it goes to disk; `until_wall_ns`: deferred until, 0 for not.
    pub fn record(&self, until_wall_ns: i64) -> Record<'_> {
        Record {
            id: self.id,
            wall_ns: self.wall_ns(),
            attempts: self.attempts,
            defer_ms: self.defer_ms,
            times: self.times,
            until_wall_ns,
            body: &self.frame[wire::MESSAGE_HEADER..],
        }
    }

    pub fn body_len(&self) -> usize {
        self.frame.len() - wire::MESSAGE_HEADER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_meter_is_back_at_zero_when_every_copy_is_gone() {
        let meter = Meter::default();
        let message = Message::new(&mut Vec::new(), &meter, MessageId(1), 0, b"body", 0, 0);
        assert_eq!(meter.used(), Meter::cost_of(4));
        let copy = message.clone();
        assert_eq!(meter.used(), 2 * Meter::cost_of(4));
        drop((message, copy));
        assert_eq!(meter.used(), 0);
    }
}
