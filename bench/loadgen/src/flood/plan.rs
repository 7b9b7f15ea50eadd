//! What a flood is asked to do: the fields of `bench.harness.load.flood.FloodPlan`.

use serde::Deserialize;

use crate::plan::bad_plan::{BadPlan, bad};
use crate::plan::{name, within};

/// Sequence number of a message: the first bytes of its body.
pub const SEQUENCE: usize = 8;
const LONGEST_S: f64 = 3_600.0;
const LARGEST_MESSAGE: usize = 1 << 20;
const LARGEST_BATCH_BYTES: usize = 5 << 20;
const MOST_CONNECTIONS: usize = 60_000;
const MOST_MESSAGES: u64 = 100_000_000;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FloodPlan {
    /// HOST:PORT of the broker: NSQ's, or HTTP's for `http`.
    pub target: String,
    /// A flood that takes longer than this has failed.
    pub limit_s: f64,
    pub task: Task,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Task {
    /// `messages` in MPUBs of `batch`, one outstanding a connection.
    Publish { topic: String, connections: usize, messages: u64, batch: u32, message_size: usize },
    /// One consumer takes the `messages` that `Publish` left. `buffered`: the broker may collect output as it does by
    /// default.
    Read { topic: String, channel: String, messages: u64, rdy: u32, buffered: bool },
    /// One publisher, one consumer on each of `channels`: MPUBs of `batch`, the next when all but `window` of them have
    /// reached every channel.
    FanOut {
        topic: String,
        channels: usize,
        batch: u32,
        window: u32,
        message_size: usize,
        rdy: u32,
        warmup_s: f64,
        duration_s: f64,
    },
    /// Requests on keep-alive connections, one outstanding each.
    Http { asks: Asks, topic: String, connections: usize, message_size: usize, warmup_s: f64, duration_s: f64 },
    /// `connections` that IDENTIFY and then stay, silent, until the flood is stopped; `at_once` handshakes under way.
    Connect { connections: usize, at_once: usize, yielding: bool },
}

/// What is asked for by HTTP.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case", deny_unknown_fields)]
pub enum Asks {
    Ping,
    Pub,
    /// Of `batch` messages, a line each.
    Mpub {
        batch: u32,
    },
}

impl FloodPlan {
    /// The plan in `json`, checked; unknown fields are refused.
    pub fn parse(json: &[u8]) -> Result<FloodPlan, BadPlan> {
        let plan: FloodPlan = serde_json::from_slice(json)
            .map_err(|e| bad("plan", e, "must be JSON of bench.harness.load.flood.FloodPlan"))?;
        within("limit_s", plan.limit_s, 1e-3, LONGEST_S)?;
        plan.task.check()?;
        Ok(plan)
    }
}

impl Task {
    /// Files that it opens.
    pub fn connections(&self) -> usize {
        match self {
            Task::Publish { connections, .. } | Task::Http { connections, .. } | Task::Connect { connections, .. } => {
                *connections
            }
            Task::Read { .. } => 1,
            Task::FanOut { channels, .. } => channels + 1,
        }
    }

    fn check(&self) -> Result<(), BadPlan> {
        count("connections", self.connections() as u64, MOST_CONNECTIONS as u64)?;
        match self {
            Task::Publish { topic, messages, batch, message_size, .. } => {
                name("topic", topic)?;
                count("messages", *messages, MOST_MESSAGES)?;
                batch_of(*batch, *message_size)?;
                if messages % u64::from(*batch) != 0 {
                    return Err(bad("messages", messages, "must be a multiple of the batch"));
                }
                Ok(())
            }
            Task::Read { topic, channel, messages, rdy, .. } => {
                name("topic", topic)?;
                name("channel", channel)?;
                count("messages", *messages, MOST_MESSAGES)?;
                count("rdy", u64::from(*rdy), u64::from(u32::MAX))
            }
            Task::FanOut { topic, batch, window, message_size, rdy, warmup_s, duration_s, .. } => {
                name("topic", topic)?;
                batch_of(*batch, *message_size)?;
                count("window", u64::from(*window), 1 << 20)?;
                count("rdy", u64::from(*rdy), u64::from(u32::MAX))?;
                times(*warmup_s, *duration_s)
            }
            Task::Http { asks, topic, message_size, warmup_s, duration_s, .. } => {
                name("topic", topic)?;
                count("message_size", *message_size as u64, LARGEST_MESSAGE as u64)?;
                if let Asks::Mpub { batch } = asks {
                    batch_of(*batch, *message_size)?;
                }
                times(*warmup_s, *duration_s)
            }
            Task::Connect { at_once, .. } => count("at_once", *at_once as u64, MOST_CONNECTIONS as u64),
        }
    }
}

fn times(warmup_s: f64, duration_s: f64) -> Result<(), BadPlan> {
    within("warmup_s", warmup_s, 0.0, LONGEST_S)?;
    within("duration_s", duration_s, 1e-3, LONGEST_S)
}

fn count(field: &str, value: u64, most: u64) -> Result<(), BadPlan> {
    if (1..=most).contains(&value) { Ok(()) } else { Err(bad(field, value, &format!("must lie within 1 and {most}"))) }
}

fn batch_of(batch: u32, message_size: usize) -> Result<(), BadPlan> {
    if !(SEQUENCE..=LARGEST_MESSAGE).contains(&message_size) {
        return Err(bad("message_size", message_size, "must lie within 8 bytes and 1 MiB"));
    }
    count("batch", u64::from(batch), (LARGEST_BATCH_BYTES / (4 + message_size)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(task: &str) -> String {
        let json = format!(r#"{{"target": "127.0.0.1:4150", "limit_s": 1, "task": {task}}}"#);
        FloodPlan::parse(json.as_bytes()).map_or_else(|error| error.to_string(), |plan| format!("taken: {plan:?}"))
    }

    #[test]
    fn a_task_that_breaks_a_rule_is_refused_naming_field_value_and_rule() {
        let publish = |messages: u64, batch: u32, size: usize| {
            refused(&format!(
                r#"{{"kind": "publish", "topic": "t", "connections": 1, "messages": {messages}, "batch": {batch}, "message_size": {size}}}"#
            ))
        };
        assert!(publish(400, 200, 200).starts_with("taken"));
        assert_eq!(publish(401, 200, 200), "messages: 401: must be a multiple of the batch");
        assert_eq!(publish(400, 0, 200), "batch: 0: must lie within 1 and 25700");
        assert_eq!(publish(400, 200, 7), "message_size: 7: must lie within 8 bytes and 1 MiB");
        let connect = |connections: usize| {
            refused(&format!(r#"{{"kind": "connect", "connections": {connections}, "at_once": 1, "yielding": false}}"#))
        };
        assert_eq!(connect(0), "connections: 0: must lie within 1 and 60000");
        assert!(
            refused(r#"{"kind": "connect", "connections": 1, "at_once": 1, "yielding": false, "x": 1}"#)
                .contains("unknown field")
        );
        assert!(
            refused(r#"{"kind": "read", "topic": "t!", "channel": "c", "messages": 1, "rdy": 1, "buffered": false}"#)
                .starts_with("topic: \"t!\": ")
        );
    }
}
