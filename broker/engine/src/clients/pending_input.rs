//! State of a connection's input: whether its next commands run, what they wait for, and which reads it keeps.

use crate::memory::LARGE_BYTES;
use crate::time::Nanos;
use crate::transport::buffer::MAX_KEPT_READS;

/// Cause for which the next commands of a connection wait, besides the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitFor {
    /// A later turn: the work budget of this one is used up.
    Turn,
    /// The client, which has to read its answers.
    Client,
    /// Python: an authorization, or the answer to a request by HTTP.
    Python,
    /// Other brokers, which may have the session of a client.
    Brokers,
}

/// States of a connection's input. All transitions are in `InputState::after`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum InputState {
    /// The next command runs as soon as it is there.
    #[default]
    Running,
    Deferred(WaitFor),
    /// Answers wait for the disk; its next commands do, too.
    Storing,
    /// Both: the disk, and what its commands waited for before.
    StoringAnd(WaitFor),
    /// Nothing is read any more.
    Closing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputEvent {
    /// The next commands are to wait.
    Defer(WaitFor),
    /// An answer waits for the disk.
    Store,
    /// All answers that waited for the disk are given.
    Stored,
    /// The client has read its answers.
    Taken,
    /// What the commands waited for is there.
    Resume,
    Close,
}

impl InputState {
    pub fn after(self, event: InputEvent) -> Self {
        use InputEvent::*;
        use InputState::*;
        use WaitFor::{Client, Turn};
        match (self, event) {
            (Running, Defer(cause)) => Deferred(cause),
            (Running, Store) => Storing,
            (Deferred(cause), Store) => StoringAnd(cause),
            (Deferred(Client), Taken) => Deferred(Turn),
            (StoringAnd(Client), Taken) => StoringAnd(Turn),
            (Deferred(_), Resume) => Running,
            (StoringAnd(_), Resume) => Storing,
            (Storing, Stored) => Deferred(Turn),
            (StoringAnd(cause), Stored) => Deferred(cause),
            (_, Close) => Closing,
            (same, _) => same,
        }
    }

    /// Whether the next commands wait for something.
    pub fn waits(self) -> bool {
        matches!(self, Self::Deferred(_) | Self::Storing | Self::StoringAnd(_))
    }

    /// Whether they wait, and not just for answers that are given anyway.
    pub fn waits_for_more_than_the_disk(self) -> bool {
        matches!(self, Self::Deferred(_) | Self::StoringAnd(_))
    }

    /// Whether they wait until the client has read its answers.
    pub fn awaits_client(self) -> bool {
        matches!(self, Self::Deferred(WaitFor::Client) | Self::StoringAnd(WaitFor::Client))
    }
}

/// Reads kept in `Connection::input` while it waits: the end offset and the arrival of each. Ends ascend.
#[derive(Debug, Default)]
pub struct KeptReads(Vec<(usize, Nanos)>);

impl KeptReads {
    pub fn note(&mut self, end: usize, stamp: Nanos) {
        self.0.push((end, stamp));
    }

    pub fn is_full(&self) -> bool {
        self.0.len() >= MAX_KEPT_READS || self.0.last().is_some_and(|(end, _)| *end > LARGE_BYTES)
    }

    pub fn spans(&self) -> &[(usize, Nanos)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::InputEvent::*;
    use super::InputState::*;
    use super::*;

    fn through(events: &[InputEvent]) -> InputState {
        events.iter().fold(Running, |state, event| state.after(*event))
    }

    #[test]
    fn commands_wait_for_the_disk_and_for_what_they_waited_for_before() {
        for cause in [WaitFor::Turn, WaitFor::Client, WaitFor::Python, WaitFor::Brokers] {
            assert_eq!(through(&[Defer(cause), Store]), StoringAnd(cause));
            assert_eq!(through(&[Defer(cause), Store, Stored]), Deferred(cause));
            assert_eq!(through(&[Defer(cause), Store, Resume]), Storing);
            assert_eq!(through(&[Defer(cause), Store, Stored, Resume]), Running);
        }
        assert_eq!(through(&[Store, Stored]), Deferred(WaitFor::Turn), "what came meanwhile runs in a turn of its own");
    }

    #[test]
    fn the_first_cause_counts_and_a_client_that_has_read_goes_on_with_a_later_turn() {
        assert_eq!(through(&[Defer(WaitFor::Python), Defer(WaitFor::Turn)]), Deferred(WaitFor::Python));
        assert_eq!(through(&[Defer(WaitFor::Client), Taken]), Deferred(WaitFor::Turn));
        assert_eq!(through(&[Defer(WaitFor::Client), Store, Taken]), StoringAnd(WaitFor::Turn));
        assert_eq!(through(&[Defer(WaitFor::Python), Taken]), Deferred(WaitFor::Python));
    }

    #[test]
    fn nothing_follows_the_end() {
        for event in [Defer(WaitFor::Turn), Store, Stored, Taken, Resume, Close] {
            assert_eq!(Closing.after(event), Closing);
        }
    }
}
