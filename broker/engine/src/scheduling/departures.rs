//! Questions of connections whether what they have published has left: the latest of each.

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
    pub reference: Option<Box<str>>, // to which server a client of MQTT is sent then; None: it gets an answer
}

impl Departures {
    pub fn is_due_at(&self, at: Nanos) -> bool {
        self.armed.is_for(at)
    }
}
