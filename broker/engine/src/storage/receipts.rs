//! Records of a segment that were read and are still needed.
//!
//! All copies of a message from disk share one receipt. Its drop (the message is finished, or written elsewhere) frees
//! the record.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

#[derive(Debug, Default)]
pub struct Ledger {
    queue: Rc<str>,
    window: RefCell<Window>,
}

/// From the first record that is still needed to the last that was read.
#[derive(Debug, Default)]
struct Window {
    first: u64,                     // sequence number of entries[0]
    entries: VecDeque<(u64, bool)>, // (offset in the segment, still needed)
}

impl Ledger {
    pub fn new(queue: &Rc<str>) -> Self {
        Self { queue: Rc::clone(queue), window: RefCell::default() }
    }

    /// The record at `offset` has been read. Offsets ascend.
    pub fn open(self: &Rc<Self>, offset: u64) -> Rc<Receipt> {
        let mut window = self.window.borrow_mut();
        let sequence = window.first + window.entries.len() as u64;
        window.entries.push_back((offset, true));
        Rc::new(Receipt { ledger: Rc::clone(self), sequence })
    }

    fn close(&self, sequence: u64) {
        let mut window = self.window.borrow_mut();
        let index = (sequence - window.first) as usize;
        if let Some((_, needed)) = window.entries.get_mut(index) {
            *needed = false;
        }
        while window.entries.front().is_some_and(|(_, needed)| !needed) {
            window.entries.pop_front();
            window.first += 1;
        }
    }

    pub fn is_clear(&self) -> bool {
        self.window.borrow().entries.is_empty()
    }

    /// Offset of the first record that is still needed.
    pub fn first_open(&self) -> Option<u64> {
        self.window.borrow().entries.front().map(|(offset, _)| *offset)
    }

    /// Records from that one to the last that was read.
    pub fn span(&self) -> u64 {
        self.window.borrow().entries.len() as u64
    }
}

/// Held by a message as long as its record is needed.
#[derive(Debug)]
pub struct Receipt {
    ledger: Rc<Ledger>,
    sequence: u64,
}

impl Receipt {
    /// Whether the record is one of the queue with this very name.
    pub fn is_of(&self, queue: &Rc<str>) -> bool {
        Rc::ptr_eq(&self.ledger.queue, queue)
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        self.ledger.close(self.sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_record_that_is_needed_moves_only_when_it_is_given_back() {
        let ledger = Rc::new(Ledger::default());
        let (a, b, c) = (ledger.open(10), ledger.open(20), ledger.open(30));
        drop(b);
        assert_eq!((ledger.first_open(), ledger.span()), (Some(10), 3));
        let copy = Rc::clone(&a);
        drop(a);
        assert_eq!(ledger.first_open(), Some(10), "a copy still needs it");
        drop(copy);
        assert_eq!((ledger.first_open(), ledger.span()), (Some(30), 1));
        drop(c);
        assert!(ledger.is_clear());
        assert_eq!(ledger.open(40).sequence, 3);
    }
}
