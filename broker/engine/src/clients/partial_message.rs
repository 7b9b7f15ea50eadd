//! A large message under construction, one portion in each turn.
//!
//! New memory costs one page fault a page, several microseconds each, most of them for clearing it. One megabyte at
//! once would delay all clients for milliseconds. The command stays at the head of its connection's input, which is
//! deferred from turn to turn (`scheduling/work_budget.rs`). The finished buffer becomes the message without a copy.

use crate::id::MessageId;
use crate::memory::{Charge, Meter};
use crate::protocol::codec::{self, MESSAGE_HEADER};
use crate::scheduling::work_budget::COPIED_A_UNIT;

/// An unfinished frame: room for the header, then the first part of the body.
#[derive(Debug)]
pub(crate) struct Building {
    frame: Vec<u8>,
    _charge: Charge,
}

impl Building {
    /// An empty frame for a body of `len` bytes. `None`: the system refused the memory.
    pub(crate) fn new(len: usize, meter: &Meter) -> Option<Self> {
        let mut frame = Vec::new();
        frame.try_reserve_exact(MESSAGE_HEADER + len).ok()?;
        frame.resize(MESSAGE_HEADER, 0);
        Some(Self { frame, _charge: meter.charge(len as u64) })
    }

    pub(crate) fn done(&self) -> usize {
        self.frame.len() - MESSAGE_HEADER
    }

    /// Copies more of `body`, up to a number of work units; returns the units used.
    pub(crate) fn add(&mut self, body: &[u8], units: u32) -> u32 {
        let rest = &body[self.done()..];
        let portion = &rest[..rest.len().min((units as usize).saturating_mul(COPIED_A_UNIT))];
        self.frame.extend_from_slice(portion);
        portion.len().div_ceil(COPIED_A_UNIT) as u32
    }

    /// The frame, with all of `body`.
    pub fn finish(mut self, wall_ns: i64, id: MessageId, body: &[u8]) -> Vec<u8> {
        debug_assert!(body.starts_with(&self.frame[MESSAGE_HEADER..]), "it was begun for another message");
        self.frame.extend_from_slice(&body[self.done()..]);
        self.frame[..MESSAGE_HEADER].copy_from_slice(&codec::message_header(wall_ns, id, body.len()));
        self.frame
    }
}

#[cold]
pub(crate) fn no_memory_for(len: usize) -> String {
    format!("the system gives no memory for {len} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_the_system_has_no_memory_for_is_not_begun_and_charged_nothing() {
        let meter = Meter::default();
        assert!(Building::new(isize::MAX as usize, &meter).is_none());
        assert_eq!(meter.used(), 0);
    }
}
