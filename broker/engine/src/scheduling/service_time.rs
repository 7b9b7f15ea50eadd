//! What a message passes between its topic's bucket and its channels: nothing, or a server that takes a service time.

use crate::keys::TopicKey;
use crate::queueing::message::Message;
use crate::time::Nanos;
use crate::timer::Timers;

/// Messages on their way from the bucket to the channels. What an implementation leaves out fits one that takes no
/// time.
pub trait ServiceTime: Sized {
    /// `service_ns`: the time that a message takes, in ns.
    fn new(service_ns: u64) -> Self;

    /// Whether messages go straight on.
    fn is_none(&self) -> bool {
        true
    }

    /// Serve a message of `topic`, or give it back: it goes straight on.
    fn serve(&mut self, _topic: TopicKey, message: Message, _timers: &mut Timers) -> Option<Message> {
        Some(message)
    }

    /// What has been served by `now`, in order; `at` is what the timer was set to.
    fn served(&mut self, _at: Nanos, _now: Nanos, _timers: &mut Timers) -> Vec<(TopicKey, Message)> {
        Vec::new()
    }

    /// Whether the timer that was set to `at` is the one that counts.
    fn is_due_at(&self, _at: Nanos) -> bool {
        false
    }

    /// The message of `topic` that is served next.
    fn first_of(&self, _topic: TopicKey) -> Option<&Message> {
        None
    }

    /// Messages of `topic` here.
    fn waiting(&self, _topic: TopicKey) -> usize {
        0
    }

    /// Drop the messages of `topic`.
    fn forget(&mut self, _topic: TopicKey) {}

    /// Take all messages, in order.
    fn drain(&mut self) -> Vec<(TopicKey, Message)> {
        Vec::new()
    }
}

/// Messages go straight on.
#[derive(Debug)]
pub struct NoServiceTime;

impl ServiceTime for NoServiceTime {
    fn new(_service_ns: u64) -> Self {
        Self
    }
}
