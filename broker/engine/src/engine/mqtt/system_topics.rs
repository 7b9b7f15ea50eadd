//! `$SYS`: what the broker tells of itself to MQTT clients, under the names that tools read at Mosquitto.
//!
//! Each value is retained, and goes to who has subscribed to it, every 10 s. No topic and no bucket has part in it.

use std::collections::HashMap;

use crate::engine::Engine;
use crate::keys::{TopicKey, VISITS_A_TURN};
use crate::mqtt::topic_news::{TopicNews, Verdict};
use crate::protocol::mqtt::attributes::Attributes;
use crate::protocol::mqtt::packet::Qos;
use crate::queueing::message::Alone;
use crate::time::{NS_PER_S, Nanos};
use crate::timer::Timer;

const INTERVAL_NS: Nanos = 10 * NS_PER_S;

/// Below it are the names of topics with a limit. They are not retained, for there may be many topics, and are told
/// only where somebody has subscribed to them.
const TOPICS: &str = "$SYS/srtm/topics";

/// Patterns that lead to such names begin with one of these.
const WAYS: [&str; 3] = ["$SYS/srtm", "$SYS/+", "$SYS/#"];

const FIGURES: [&str; 9] = [
    "share",         // of the limit, at this broker, msg/s
    "rate",          // that was let go here since it was told last, msg/s
    "fill",          // tokens in the bucket
    "delayed",       // messages that had to wait for a token, since the start
    "rejected",      // messages that were refused, since the start
    "access_p99_ms", // wait for a token in the last 60 s
    "promise_ms",    // latency that the topic promises
    "promise",       // kept, broken or unknown, in the whole cluster
    "latency_ms",    // at the percentile of the promise, likewise
];

/// Topics whose figures are worked out in a turn: each takes up to 0.1 ms.
const TOLD_A_TURN: usize = 4;

impl Engine {
    /// The MQTT port is there: `$SYS` begins.
    pub(crate) fn start_system_topics(&mut self, now: Nanos) {
        if !self.config.speaks_mqtt() || self.mqtt.began.is_some() {
            return;
        }
        self.mqtt.began = Some(now);
        self.tell_system_topics(now);
    }

    pub(crate) fn handle_system_timer(&mut self, at: Nanos, now: Nanos) {
        if self.mqtt.armed.fire(at) {
            self.tell_system_topics(now);
        }
    }

    fn tell_system_topics(&mut self, now: Nanos) {
        for (name, value) in self.system_values(now) {
            self.tell(&format!("$SYS/broker/{name}"), &value, true, now);
        }
        self.begin_topic_news();
        self.timers.arm(&mut self.mqtt.armed, now + INTERVAL_NS, Timer::SystemTopics);
    }

    /// Whether somebody may want to hear of topics.
    pub(crate) fn tells_topics(&self) -> bool {
        WAYS.iter().any(|way| self.mqtt.filters.node_of(way).is_some())
    }

    /// The distributor's words on promises: (topic, word, latency in ms).
    pub fn set_verdicts(&mut self, verdicts: Vec<(String, String, Option<f64>)>) {
        let each = verdicts.into_iter().map(|(topic, word, latency_ms)| (topic, Verdict { word, latency_ms }));
        self.mqtt.news.verdicts = each.collect();
    }

    fn begin_topic_news(&mut self) {
        if !self.tells_topics() {
            self.mqtt.news = TopicNews::default();
            return;
        }
        let limited = self.topics.iter().filter(|(_, topic)| topic.limiter.is_some());
        self.mqtt.news.begin(limited.map(|(key, _)| key).collect());
    }

    /// Goes on to tell of topics, a few in each turn.
    pub(crate) fn tell_topic_news(&mut self, now: Nanos) {
        let mut told = 0;
        for _ in 0..VISITS_A_TURN {
            if told == TOLD_A_TURN {
                break;
            }
            let Some(key) = self.mqtt.news.due.pop() else { break };
            told += usize::from(self.tell_of_topic(key, now));
        }
    }

    /// False: nobody wants to hear of it.
    fn tell_of_topic(&mut self, key: TopicKey, now: Nanos) -> bool {
        let Some(topic) = self.topics.get(key).map(|topic| topic.name.clone()) else { return false };
        let mut wanted = FIGURES.map(|figure| (figure, format!("{TOPICS}/{topic}/{figure}"))).to_vec();
        wanted.retain(|(_, name)| self.count_subscribers(name) > 0);
        if wanted.is_empty() {
            return false;
        }
        let mut values = self.figures_of(key, &topic, now);
        for (figure, name) in wanted {
            if let Some(value) = values.remove(figure) {
                self.tell(&name, &value, false, now);
            }
        }
        true
    }

    /// Those that are known.
    fn figures_of(&mut self, key: TopicKey, name: &str, now: Nanos) -> HashMap<&'static str, String> {
        let mut values = HashMap::new();
        let suspended = self.clock.suspended();
        let Some(topic) = self.topics.get_mut(key) else { return values };
        let Some(limiter) = &topic.limiter else { return values };
        let is_void = limiter.is_over(now + suspended);
        let rate_micro = if is_void { 0 } else { limiter.limit.rate_micro };
        values.insert("share", format!("{:.3}", rate_micro as f64 * 1e-6));
        values.insert("fill", format!("{:.3}", if is_void { 0.0 } else { limiter.fill_tokens(now) }));
        values.insert("delayed", topic.counters.delayed.to_string());
        values.insert("rejected", topic.counters.rejected.to_string());
        if let Some(rate) = self.mqtt.news.rate(key, topic.counters.released, now) {
            values.insert("rate", format!("{rate:.3}"));
        }
        let access = topic.latency.as_mut().map(|latency| latency.summaries(now).last_60s.access);
        if let Some(access) = access.filter(|access| access.count > 0) {
            values.insert("access_p99_ms", format!("{:.3}", access.p99_ns as f64 * 1e-6));
        }
        if topic.promise > 0 {
            values.insert("promise_ms", format!("{:.3}", topic.promise as f64 * 1e-6));
        }
        if let Some(verdict) = self.mqtt.news.verdicts.get(name) {
            values.insert("promise", verdict.word.clone());
            verdict.latency_ms.iter().for_each(|ms| _ = values.insert("latency_ms", format!("{ms:.3}")));
        }
        values
    }

    fn system_values(&mut self, now: Nanos) -> [(&'static str, String); 16] {
        let hub = &mut self.mqtt;
        let connected = hub.sessions.values().filter(|session| session.conn.is_some()).count();
        let total = hub.sessions.len();
        hub.most_clients = hub.most_clients.max(total);
        let waiting = hub.sessions.values().filter_map(|session| session.outgoing.as_ref()).map(|out| out.waiting());
        let stored = waiting.sum::<usize>() + hub.retained.len();
        let uptime_s = (now - hub.began.unwrap_or(now)) / NS_PER_S;
        let counters = hub.counters;
        [
            ("version", format!("srtm {}", env!("CARGO_PKG_VERSION"))),
            ("uptime", format!("{uptime_s} seconds")),
            ("clients/connected", connected.to_string()),
            ("clients/disconnected", (total - connected).to_string()),
            ("clients/total", total.to_string()),
            ("clients/maximum", hub.most_clients.to_string()),
            ("messages/received", counters.packets_in.to_string()),
            ("messages/sent", counters.packets_out.to_string()),
            ("messages/stored", stored.to_string()),
            ("publish/messages/received", counters.published.to_string()),
            ("publish/messages/sent", counters.delivered.to_string()),
            ("publish/messages/dropped", counters.dropped.to_string()),
            ("publish/bytes/received", counters.bytes_in.to_string()),
            ("publish/bytes/sent", counters.bytes_out.to_string()),
            ("subscriptions/count", hub.filters.len().to_string()),
            ("retained messages/count", hub.retained.len().to_string()),
        ]
    }

    fn tell(&mut self, name: &str, value: &str, retain: bool, now: Nanos) {
        let (qos, properties) = (Qos::ExactlyOnce, &[][..]);
        let attributes = Attributes { origin: 0, expires_wall_ns: 0, qos, retain, name, group: "", properties };
        let mut bytes = Vec::new();
        attributes.encode(&mut bytes);
        let wall_ns = self.clock.wall(now);
        let alone = Alone { id: self.ids.next(wall_ns), wall_ns, attributes: &bytes, body: value.as_bytes() };
        let mut message = self.builder.alone(&self.memory.messages, alone, now, 0);
        message.foreign = true; // no topic's latency has part in it
        self.route(TopicKey::default(), &message, now);
    }
}
