//! Whether what a connection has published has left: who goes on at another broker asks (`LEFT`), so that nothing there overtakes it.
//!
//! Messages of a topic stay in the order of their arrivals from the bucket to the consumers' sockets. So what came by the instant of a question has left as
//! soon as whatever is first in each of these places came later. They are looked at now and then, and only while somebody waits for the answer: a message
//! costs nothing more. What is paused is not waited for, and what nobody takes only as long as its consumers may be on their way.

use std::collections::HashMap;

use crate::keys::{ConnKey, TopicKey};
use crate::time::Nanos;
use crate::timer::Armed;

#[derive(Debug, Default)]
pub(crate) struct Departures {
    pub(crate) asked: HashMap<ConnKey, Question>, // the latest of each
    pub(crate) armed: Armed,
}

#[derive(Debug)]
pub(crate) struct Question {
    pub topic: TopicKey,
    pub name: Box<str>,
    pub number: u64,
    pub at: Nanos,
}

impl Departures {
    pub fn is_due_at(&self, at: Nanos) -> bool {
        self.armed.is_for(at)
    }
}
