//! Meters of memory: what holds bytes charges a meter, and its end releases them, so nothing leaks.

use std::cell::Cell;
use std::rc::Rc;

/// Bytes held by all messages of an engine. Charged by entries and blocks, released when they are dropped, wherever that is: it cannot leak.
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

/// Bytes held as long as this lives.
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

/// What an engine's messages, and what becomes some, take. Limits of clients have meters of their own.
#[derive(Debug, Default)]
pub struct Memory {
    pub messages: Meter,
    pub(crate) layers: Meter,   // what is kept undecoded or unsealed
    pub(crate) partial: Meter,  // large messages that are being built
    pub(crate) reserved: Meter, // what is still to come of MPUBs that are kept whole
}
