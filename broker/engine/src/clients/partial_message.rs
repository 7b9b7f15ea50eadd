//! A large message is built a portion in each turn. Memory that is new costs a fault a page, several microseconds each, most of them for clearing it: a
//! megabyte in one piece would stop everybody for milliseconds. Its command stays at the head of its connection's input meanwhile, which is deferred from turn
//! to turn (`scheduling/work_budget.rs`); what was built becomes the message without another copy.

use crate::id::MessageId;
use crate::memory::{Charge, Meter};
use crate::protocol::codec::{self, MESSAGE_HEADER};

/// Bytes of new memory that count as a unit of work.
const BUILT_A_UNIT: usize = 128;

/// The frame of a message as far as it is there: room for a header that is not known yet, and the first part of the body.
#[derive(Debug)]
pub(crate) struct Building {
    frame: Vec<u8>,
    _charge: Charge,
}

impl Building {
    /// `None`: the system gives no memory for a body of `len` bytes.
    pub(crate) fn new(len: usize, meter: &Meter) -> Option<Self> {
        let mut frame = Vec::new();
        frame.try_reserve_exact(MESSAGE_HEADER + len).ok()?;
        frame.resize(MESSAGE_HEADER, 0);
        Some(Self { frame, _charge: meter.charge(len as u64) })
    }

    pub(crate) fn done(&self) -> usize {
        self.frame.len() - MESSAGE_HEADER
    }

    /// Copy more of `body`, up to so many units; gives those that it took.
    pub(crate) fn add(&mut self, body: &[u8], units: u32) -> u32 {
        let rest = &body[self.done()..];
        let portion = &rest[..rest.len().min((units as usize).saturating_mul(BUILT_A_UNIT))];
        self.frame.extend_from_slice(portion);
        portion.len().div_ceil(BUILT_A_UNIT) as u32
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
