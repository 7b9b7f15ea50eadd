//! Progress of a large MPUB, which runs one chunk in each turn.

use crate::http::answer::Exchange;
use crate::keys::ConnKey;
use crate::memory::Charge;
use crate::protocol::codec::Bodies;
use crate::queueing::message::Message;
use crate::time::Nanos;

/// Progress of the MPUB at the head of a connection's input. Its bodies have been checked.
#[derive(Debug, Default)]
pub struct Progress {
    pub(crate) messages: u32, // of its slices so far
    pub(crate) bytes: usize,  // of its bodies that these took
    pub(crate) left: u32,     // messages
    pub(crate) kept: Vec<Option<Message>>,
    pub(crate) kept_bytes: u64,      // of their bodies
    pub(crate) room: Option<Charge>, // reserved for the messages still to be kept
}

impl Progress {
    /// Messages in all.
    pub(crate) fn count(&self) -> u32 {
        self.messages + self.left
    }

    /// What was `rest` is `behind` now.
    pub(crate) fn note(&mut self, rest: Bodies<'_>, behind: Bodies<'_>) {
        self.messages += rest.count - behind.count;
        self.bytes += rest.bytes() - behind.bytes();
        self.left = behind.count;
    }

    /// Messages that wait for the last slice.
    #[cfg(any(test, feature = "harness"))]
    pub fn kept(&self) -> impl Iterator<Item = &Message> {
        self.kept.iter().flatten()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sliced {
    /// It is small: run it now as any other command.
    Whole,
    /// It is to go on in the next turn.
    Later,
    /// That was all of it.
    Done,
}

/// A command that publishes: on which connection, to which topic, when it came, and at which work of the turn its
/// connection's quantum ends. `exchange`: by HTTP.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch<'a> {
    pub key: ConnKey,
    pub topic: &'a str,
    pub stamp: Nanos,
    pub bound: u32,
    pub exchange: Option<Exchange>,
}
