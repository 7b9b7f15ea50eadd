//! `$SYS`: what the broker tells of itself to MQTT clients, under the names that tools read at Mosquitto.
//!
//! Each value is retained, and goes to who has subscribed to it, every 10 s. No topic and no bucket has part in it.

use crate::engine::Engine;
use crate::keys::TopicKey;
use crate::protocol::mqtt::attributes::Attributes;
use crate::protocol::mqtt::packet::Qos;
use crate::queueing::message::Alone;
use crate::time::{NS_PER_S, Nanos};
use crate::timer::Timer;

const INTERVAL_NS: Nanos = 10 * NS_PER_S;

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
            self.tell(&format!("$SYS/broker/{name}"), &value, now);
        }
        self.timers.arm(&mut self.mqtt.armed, now + INTERVAL_NS, Timer::SystemTopics);
    }

    fn system_values(&mut self, now: Nanos) -> [(&'static str, String); 16] {
        let hub = &mut self.mqtt;
        let connected = hub.sessions.values().filter(|session| session.conn.is_some()).count();
        let total = hub.sessions.len();
        hub.most_clients = hub.most_clients.max(total);
        let waiting = hub.sessions.values().filter_map(|session| session.outgoing.as_ref()).map(|out| out.queue.len());
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

    fn tell(&mut self, name: &str, value: &str, now: Nanos) {
        let (qos, properties) = (Qos::ExactlyOnce, &[][..]);
        let attributes = Attributes { origin: 0, expires_wall_ns: 0, qos, retain: true, name, group: "", properties };
        let mut bytes = Vec::new();
        attributes.encode(&mut bytes);
        let wall_ns = self.clock.wall(now);
        let alone = Alone { id: self.ids.next(wall_ns), wall_ns, attributes: &bytes, body: value.as_bytes() };
        let mut message = self.builder.alone(&self.memory.messages, alone, now, 0);
        message.foreign = true; // no topic's latency has part in it
        self.route(TopicKey::default(), &message, now);
    }
}
