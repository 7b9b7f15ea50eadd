//! Meters of memory: an owner of bytes charges a meter and releases the charge when it is dropped, so nothing leaks.

use std::cell::Cell;
use std::rc::Rc;

/// The engine builds, keeps and passes on what is larger in pieces of at most so many bytes.
pub const LARGE_BYTES: usize = 64 << 10;

/// Bytes of a small thing: a line, the spare room of an empty buffer, a connection's least part of a shared budget.
pub const SMALL_BYTES: usize = 4 << 10;

/// Bytes held by all messages of an engine.
///
/// Entries and blocks charge it, and release their bytes when they are dropped, wherever that is.
#[derive(Debug, Clone, Default)]
pub struct Meter(Rc<Cell<u64>>);

impl Meter {
    pub fn used(&self) -> u64 {
        self.0.get()
    }

    pub(crate) fn charge(&self, bytes: u64) -> Charge {
        self.add(bytes);
        Charge { meter: self.clone(), bytes }
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.0.set(self.0.get() + bytes);
    }

    pub(crate) fn subtract(&self, bytes: u64) {
        self.0.set(self.0.get() - bytes);
    }
}

/// A charge of bytes that ends with its drop.
#[derive(Debug)]
pub(crate) struct Charge {
    meter: Meter,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.meter.subtract(self.bytes);
    }
}

/// Bytes of messages that a backlog or a queue keeps in memory, where no disk relieves it.
///
/// One may have an eighth of the memory, and all together half: so none of them refuses the publishes of others. What
/// several hold counts for each of them, but together they hold no more than there is of messages.
#[derive(Debug, Default)]
pub struct Stock {
    all: Meter,
    messages: Meter,
    max_memory: u64,
    bytes: u64,
}

impl Stock {
    /// One of what is no message: it has an eighth too, and takes nothing from the half.
    pub fn apart(max_memory: u64) -> Self {
        let (all, messages, bytes) = Default::default();
        Self { all, messages, max_memory, bytes }
    }

    pub fn used(&self) -> u64 {
        self.bytes
    }

    /// Bytes that it may have.
    pub fn most(&self) -> u64 {
        self.max_memory / 8
    }

    /// Whether it may have `cost` bytes more. An empty one may have any message.
    pub fn has_room_for(&self, cost: u64) -> bool {
        self.has_own_room_for(cost) && self.all.used().min(self.messages.used()) + cost <= self.max_memory / 2
    }

    /// The same whatever the others have.
    pub fn has_own_room_for(&self, cost: u64) -> bool {
        self.bytes == 0 || self.bytes + cost <= self.most()
    }

    pub fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.all.add(bytes);
    }

    pub fn subtract(&mut self, bytes: u64) {
        self.bytes -= bytes;
        self.all.subtract(bytes);
    }

    pub fn clear(&mut self) {
        self.subtract(self.bytes);
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        self.clear();
    }
}

/// What an engine's messages, and what becomes some, take. Limits of clients have meters of their own.
#[derive(Debug, Default)]
pub struct Memory {
    pub messages: Meter,
    pub(crate) stocks: Meter,   // of these, what no disk relieves
    pub(crate) layers: Meter,   // what is kept undecoded or unsealed
    pub(crate) partial: Meter,  // large messages that are being built
    pub(crate) reserved: Meter, // what is still to come of MPUBs that are kept whole
    pub(crate) names: Meter,    // names of publishers in traces
}

impl Memory {
    /// A stock of `messages`, empty.
    pub fn stock(&self, max_memory: u64) -> Stock {
        Stock { all: self.stocks.clone(), messages: self.messages.clone(), max_memory, bytes: 0 }
    }
}
