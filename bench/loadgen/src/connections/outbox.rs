//! What one publisher connection has yet to write, with the boundaries of its commands: after a broken connection the
//! command that was cut off is sent again whole, and those before it are not.

use std::collections::VecDeque;

/// A command on its way. `messages` is 0 for what gets no answer (NOP).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command {
    pub messages: u32,
    pub measured: bool,
    pub intended_ns: i64,
}

impl Command {
    pub const UNANSWERED: Command = Command { messages: 0, measured: false, intended_ns: 0 };
}

#[derive(Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    /// Commands not wholly written, each with where it ends in `bytes`; ends grow.
    commands: VecDeque<(Command, usize)>,
    /// Where the first command of `commands` begins; at most `written`.
    begun: usize,
    written: usize,
}

/// Written bytes are dropped when they are this many, so that a blocked connection does not keep them.
const COMPACT_BYTES: usize = 1 << 16;

impl Outbox {
    pub fn push(&mut self, command: Command, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.commands.push_back((command, self.bytes.len()));
    }

    pub fn unwritten(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// `count` more bytes were written: hands over the commands that this completes.
    pub fn advance(&mut self, count: usize, mut complete: impl FnMut(Command)) {
        self.written += count;
        while let Some((command, end)) = self.commands.front().copied().filter(|(_, end)| *end <= self.written) {
            self.commands.pop_front();
            self.begun = end;
            complete(command);
        }
        if self.commands.is_empty() || self.begun > COMPACT_BYTES {
            self.forget_written();
        }
    }

    /// The connection is gone: the command that was cut off starts afresh.
    pub fn rewind(&mut self) {
        self.written = self.begun;
        self.forget_written();
    }

    fn forget_written(&mut self) {
        self.bytes.drain(..self.begun);
        self.commands.iter_mut().for_each(|(_, end)| *end -= self.begun);
        self.written -= self.begun;
        self.begun = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(n: u32) -> Command {
        Command { messages: n, measured: true, intended_ns: 0 }
    }

    fn advanced(outbox: &mut Outbox, count: usize) -> Vec<u32> {
        let mut complete = Vec::new();
        outbox.advance(count, |c| complete.push(c.messages));
        complete
    }

    #[test]
    fn a_command_is_complete_with_its_last_byte() {
        let mut outbox = Outbox::default();
        outbox.push(command(1), |out| out.extend(b"abc"));
        outbox.push(command(2), |out| out.extend(b"de"));
        assert!(advanced(&mut outbox, 2).is_empty());
        assert_eq!(advanced(&mut outbox, 2), [1]);
        assert_eq!(outbox.unwritten(), b"e");
        assert_eq!(advanced(&mut outbox, 1), [2]);
        assert_eq!(outbox.unwritten(), b"");
    }

    #[test]
    fn a_cut_off_command_is_sent_again_whole_and_complete_ones_are_not() {
        let mut outbox = Outbox::default();
        outbox.push(command(1), |out| out.extend(b"abc"));
        outbox.push(command(2), |out| out.extend(b"de"));
        outbox.push(command(3), |out| out.extend(b"f"));
        assert_eq!(advanced(&mut outbox, 4), [1]);
        outbox.rewind();
        assert_eq!(outbox.unwritten(), b"def");
        assert_eq!(advanced(&mut outbox, 3), [2, 3]);
    }

    #[test]
    fn a_connection_that_stays_blocked_does_not_keep_what_was_written() {
        let mut outbox = Outbox::default();
        (0..4).for_each(|n| outbox.push(command(n), |out| out.extend([0; COMPACT_BYTES])));
        assert_eq!(advanced(&mut outbox, 2 * COMPACT_BYTES + 1), [0, 1]);
        assert_eq!(outbox.bytes.len(), 2 * COMPACT_BYTES);
        assert_eq!(outbox.unwritten().len(), 2 * COMPACT_BYTES - 1);
        assert_eq!(advanced(&mut outbox, 2 * COMPACT_BYTES - 1), [2, 3]);
    }
}
