//! What is asked for: the fields of `bench.harness.load.workload.Plan`. A `Plan` that `Plan::parse` returned is valid.

pub mod bad_plan;
pub mod fleet;
pub mod schedule;

use serde::Deserialize;

use crate::plan::bad_plan::{BadPlan, bad};
use crate::plan::fleet::Publishers;
use crate::protocol::body;
use crate::protocol::{self, Protocol};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subscriber {
    pub target: usize,
    #[serde(default = "default_channel")]
    pub channel: String,
    #[serde(default = "default_rdy")]
    pub rdy: u32,
}

fn default_channel() -> String {
    "bench".to_owned()
}

fn default_rdy() -> u32 {
    2500
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub topic: String,
    pub targets: Vec<String>,
    /// By target; empty: `topic` at all of them.
    #[serde(default)]
    pub topics: Vec<String>,
    /// Where subscribers connect, by target; empty: where the publishers do.
    #[serde(default)]
    pub subscribe_at: Vec<String>,
    pub publishers: Publishers,
    pub subscribers: Vec<Subscriber>,
    pub duration_s: f64,
    #[serde(default = "default_warmup_s")]
    pub warmup_s: f64,
    #[serde(default = "default_drain_s")]
    pub drain_s: f64,
    #[serde(default = "default_message_size")]
    pub message_size: usize,
    #[serde(default = "default_seed")]
    pub seed: u64,
    #[serde(default = "default_slo_ms")]
    pub slo_ms: f64,
    #[serde(default = "default_percentile")]
    pub percentile: f64,
    #[serde(default = "default_mpub")]
    pub mpub: bool,
    #[serde(default)]
    pub keep_each: bool,
    #[serde(default)]
    pub protocol: Protocol,
    #[serde(default)]
    pub qos: u8,
    /// Of MQTT: each publisher's client identifier is its id, and it publishes to TOPIC/ID.
    #[serde(default)]
    pub own_names: bool,
    /// Of MQTT: the subscribers' sessions are kept when their connections end.
    #[serde(default)]
    pub durable: bool,
}

fn default_warmup_s() -> f64 {
    1.0
}
fn default_drain_s() -> f64 {
    5.0
}
fn default_message_size() -> usize {
    100
}
fn default_seed() -> u64 {
    1
}
fn default_slo_ms() -> f64 {
    1.0
}
fn default_percentile() -> f64 {
    99.0
}
fn default_mpub() -> bool {
    true
}

/// A day: what the histograms and the 64-bit instants hold many times over.
const LONGEST_S: f64 = 86_400.0;
/// nsqd's default limit of one message.
const LARGEST_MESSAGE: usize = 1 << 20;

impl Plan {
    /// The plan in `json`, checked; unknown fields are refused.
    pub fn parse(json: &[u8]) -> Result<Plan, BadPlan> {
        let plan: Plan = serde_json::from_slice(json)
            .map_err(|e| bad("plan", e, "must be JSON of bench.harness.load.workload.Plan"))?;
        plan.check()?;
        Ok(plan)
    }

    pub fn warmup_ns(&self) -> u64 {
        nanos(self.warmup_s)
    }

    /// Where the last intended instant may lie, from the start of the run.
    pub fn end_ns(&self) -> u64 {
        nanos(self.warmup_s) + nanos(self.duration_s)
    }

    pub fn drain_ns(&self) -> u64 {
        nanos(self.drain_s)
    }

    pub fn topic_at(&self, target: usize) -> &str {
        self.topics.get(target).unwrap_or(&self.topic)
    }

    /// The channels of the plan, each once, in order of first appearance.
    pub fn channels(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for subscriber in &self.subscribers {
            if !names.contains(&subscriber.channel.as_str()) {
                names.push(&subscriber.channel);
            }
        }
        names
    }

    /// Per target, the indices (into `channels`) of those that get a copy of each message there.
    pub fn channels_at(&self) -> Vec<Vec<usize>> {
        let names = self.channels();
        let heard = |target, name: &str| self.subscribers.iter().any(|s| s.target == target && s.channel == name);
        let at = |target| (0..names.len()).filter(|i| heard(target, names[*i])).collect();
        (0..self.targets.len()).map(at).collect()
    }

    fn check(&self) -> Result<(), BadPlan> {
        name("topic", &self.topic)?;
        within("duration_s", self.duration_s, 1e-3, LONGEST_S)?;
        within("warmup_s", self.warmup_s, 0.0, LONGEST_S)?;
        within("drain_s", self.drain_s, 0.0, LONGEST_S)?;
        within("slo_ms", self.slo_ms, 0.0, LONGEST_S * 1e3)?;
        within("percentile", self.percentile, 0.0, 100.0)?;
        if !(body::HEADER..=LARGEST_MESSAGE).contains(&self.message_size) {
            return Err(bad("message_size", self.message_size, "must lie within 32 bytes and 1 MiB"));
        }
        self.check_topics()?;
        self.check_subscribers()?;
        self.publishers.check(self.targets.len(), self.message_size)?;
        match self.publishers.target.iter().position(|target| !self.subscribers.iter().any(|s| s.target == *target)) {
            Some(i) => Err(bad(
                format!("publishers.target[{i}]"),
                self.publishers.target[i],
                "must have a subscriber, or its messages count as lost",
            )),
            None => protocol::check(self),
        }
    }

    fn check_topics(&self) -> Result<(), BadPlan> {
        if !self.subscribe_at.is_empty() && self.subscribe_at.len() != self.targets.len() {
            return Err(bad(
                "subscribe_at",
                format!("{} entries", self.subscribe_at.len()),
                "must be as long as targets, or empty",
            ));
        }
        if !self.topics.is_empty() && self.topics.len() != self.targets.len() {
            return Err(bad(
                "topics",
                format!("{} entries", self.topics.len()),
                "must be as long as targets, or empty",
            ));
        }
        self.topics.iter().enumerate().try_for_each(|(i, topic)| name(&format!("topics[{i}]"), topic))
    }

    fn check_subscribers(&self) -> Result<(), BadPlan> {
        for (i, subscriber) in self.subscribers.iter().enumerate() {
            let field = |column: &str| format!("subscribers[{i}].{column}");
            name(&field("channel"), &subscriber.channel)?;
            if subscriber.target >= self.targets.len() {
                return Err(bad(field("target"), subscriber.target, "must be an index into targets"));
            }
            if subscriber.rdy == 0 {
                return Err(bad(field("rdy"), 0, "must be at least 1"));
            }
        }
        Ok(())
    }
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

pub fn within(field: &str, value: f64, low: f64, high: f64) -> Result<(), BadPlan> {
    // written so that NaN is refused
    if value >= low && value <= high {
        Ok(())
    } else {
        Err(bad(field, value, &format!("must lie within {low} and {high}")))
    }
}

/// Topic and channel names as nsqd takes them.
pub fn name(field: &str, value: &str) -> Result<(), BadPlan> {
    let stem = value.strip_suffix("#ephemeral").unwrap_or(value);
    let legal = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    if stem.is_empty() || value.len() > 64 || !stem.chars().all(legal) {
        return Err(bad(field, format!("{value:?}"), "must be 1 to 64 of [.a-zA-Z0-9_-], then perhaps #ephemeral"));
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const PLAN: &str = r#"{"topic": "t", "targets": ["127.0.0.1:1"], "publishers": {"ids": ["a", "b"], "target": [0, 0],
        "rate": [10, 10], "batch": [1, 1], "group": [-1, -1], "process": ["poisson", "periodic"]},
        "subscribers": [{"target": 0}], "duration_s": 1}"#;

    pub(crate) fn refused(from: &str, to: &str) -> String {
        assert!(PLAN.contains(from), "{from} is not in the plan");
        Plan::parse(PLAN.replacen(from, to, 1).as_bytes()).expect_err(to).to_string()
    }

    #[test]
    fn defaults_are_those_of_the_python_plan() {
        let plan = Plan::parse(PLAN.as_bytes()).expect("the plan is valid");
        assert_eq!((plan.warmup_s, plan.drain_s, plan.message_size, plan.seed), (1.0, 5.0, 100, 1));
        assert_eq!((plan.slo_ms, plan.percentile, plan.mpub), (1.0, 99.0, true));
        assert_eq!((plan.subscribers[0].channel.as_str(), plan.subscribers[0].rdy), ("bench", 2500));
    }

    #[test]
    fn refusals_name_field_value_and_rule() {
        let cases = [
            (r#""duration_s": 1"#, r#""duration_s": 0"#, "duration_s: 0: must"),
            (r#""duration_s": 1"#, r#""duration_s": 1, "colour": 2"#, "unknown field `colour`"),
            (r#""duration_s": 1"#, r#""duration_s": 1, "message_size": 31"#, "message_size: 31: must"),
            (r#""duration_s": 1"#, r#""duration_s": 1, "percentile": 101"#, "percentile: 101: must"),
            (r#""topic": "t""#, r#""topic": "a b""#, r#"topic: "a b": must"#),
            (r#""topic": "t""#, r#""topic": "t", "topics": ["a", "b"]"#, "topics: 2 entries: must"),
            (r#""topic": "t""#, r#""topic": "t", "topics": [""]"#, r#"topics[0]: "": must"#),
            (r#"[{"target": 0}]"#, r#"[]"#, "must have a subscriber"),
            (r#"[{"target": 0}]"#, r#"[{"target": 0, "rdy": 0}]"#, "subscribers[0].rdy: 0: must"),
        ];
        for (from, to, expected) in cases {
            let error = refused(from, to);
            assert!(error.contains(expected), "{error}");
        }
    }
}
