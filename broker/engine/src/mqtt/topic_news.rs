//! What MQTT clients are told of topics with a limit under `$SYS`, besides what the topics themselves say.

use std::collections::HashMap;

use crate::keys::TopicKey;
use crate::time::Nanos;

#[derive(Debug, Default)]
pub struct TopicNews {
    pub due: Vec<TopicKey>,                    // to be told of in this and the next turns
    released: HashMap<TopicKey, (Nanos, u64)>, // {topic: when it was told of, and how many messages had been let go}
    pub verdicts: HashMap<String, Verdict>,
}

/// The distributor's word on a topic's promise.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    pub word: String,
    pub latency_ms: Option<f64>,
}

impl TopicNews {
    /// Begins anew with these topics; others are forgotten.
    pub fn begin(&mut self, topics: Vec<TopicKey>) {
        let known = std::mem::take(&mut self.released);
        self.released = topics.iter().filter_map(|key| Some((*key, *known.get(key)?))).collect();
        self.due = topics;
    }

    /// Messages per second that were let go since the last call. `released`: so far. `None`: it is the first one.
    pub fn rate(&mut self, topic: TopicKey, released: u64, now: Nanos) -> Option<f64> {
        let (at, before) = self.released.insert(topic, (now, released))?;
        Some(released.saturating_sub(before) as f64 / ((now - at).max(1) as f64 * 1e-9))
    }
}
