//! What is retained is retained at all brokers that speak MQTT: each tells the others of what its own clients retain,
//! over the links of one topic. Of two messages of a name, the later one by the wall clock counts.

use crate::engine::Engine;
use crate::event::Event;
use crate::keys::ChannelKey;
use crate::mqtt::elsewhere::link_peers::Seeding;
use crate::mqtt::reporting::excess::Fate;
use crate::protocol::link_frames::{MARK, RETAINED_TOPIC};
use crate::protocol::mqtt::attributes::Attributes;
use crate::protocol::mqtt::packet::Qos;
use crate::queueing::message::{Alone, Message};
use crate::time::Nanos;

/// Retained messages that a new link gets in a turn.
const SEEDED_A_TURN: usize = 64;

impl Engine {
    /// Tells the other brokers of a message that a client here retained.
    pub(crate) fn share_retained(&mut self, name: &str, message: &Message, now: Nanos) {
        if name.starts_with("$SYS/") {
            return; // each broker tells of itself
        }
        let Some(topic) = self.topic_key(RETAINED_TOPIC).and_then(|key| self.topics.get(key)) else { return };
        for channel in topic.channels.clone() {
            self.put_retained(channel, message.clone(), now);
        }
    }

    pub(crate) fn put_retained(&mut self, key: ChannelKey, mut message: Message, now: Nanos) {
        let Some(channel) = self.channels.get_mut(key).filter(|channel| channel.link.is_some()) else { return };
        message.times.queued = now;
        message.foreign = true; // no topic's latency has part in it
        message.attempts = 0;
        channel.put(message, now);
        self.mark_channel(key);
    }

    /// Puts a mark into the channel of a broker, behind all that was retained here so far. False: it has none.
    pub fn mark_link(&mut self, channel: &str, mark: &str, now: Nanos) -> bool {
        let topic = self.topic_key(RETAINED_TOPIC);
        let Some(key) = topic.and_then(|topic| self.find_channel(topic, channel)) else { return false };
        if let Some(seeding) = self.mqtt.peers.seeding.iter_mut().find(|seeding| seeding.channel == key) {
            seeding.mark = Some(mark.into());
        } else {
            self.put_mark(key, mark, now);
        }
        true
    }

    fn put_mark(&mut self, key: ChannelKey, mark: &str, now: Nanos) {
        let (qos, properties) = (Qos::AtLeastOnce, &[][..]);
        let attributes =
            Attributes { origin: 0, expires_wall_ns: 0, qos, retain: false, name: MARK, group: "", properties };
        let mut bytes = Vec::new();
        attributes.encode(&mut bytes);
        let wall_ns = self.clock.wall(now);
        let alone = Alone { id: self.ids.next(wall_ns), wall_ns, attributes: &bytes, body: mark.as_bytes() };
        let message = self.builder.alone(&self.memory.messages, alone, now, 0);
        self.put_retained(key, message, now);
    }

    /// Goes on with channels that are new: each gets all that is retained.
    pub(crate) fn seed_links(&mut self, now: Nanos) {
        for Seeding { channel, after, mark } in std::mem::take(&mut self.mqtt.peers.seeding) {
            let part = self.mqtt.retained.behind(after.as_deref(), SEEDED_A_TURN);
            let part: Vec<(Box<str>, Message)> = part.map(|(name, message)| (name.into(), message.clone())).collect();
            let (is_last, after) = (part.len() < SEEDED_A_TURN, part.last().map(|(name, _)| name.clone()));
            for (name, message) in part {
                if !name.starts_with("$SYS/") {
                    self.put_retained(channel, message, now);
                }
            }
            if !is_last && self.channels.contains_key(channel) {
                self.mqtt.peers.seeding.push(Seeding { channel, after, mark });
            } else if let Some(mark) = mark {
                self.put_mark(channel, &mark, now);
            }
        }
    }

    /// A message of the topic of what is retained has come from another broker.
    pub(crate) fn take_retained(&mut self, number: u64, message: &Message) {
        let Some(attributes) = Attributes::decode(message.attributes()) else { return };
        let name = attributes.name;
        if !attributes.retain {
            if name == MARK {
                let mark = String::from_utf8_lossy(message.body()).into_owned();
                self.events.push(Event::LinkMarked { number, mark });
            }
            return;
        }
        if message.wall_ns() <= self.mqtt.retained.version(name) {
            return;
        }
        let (attributes, body, most) = (message.attributes().len(), message.body_len(), self.config.mqtt_max_retained);
        let refusal = self.mqtt.retained.refusal(name, attributes, body, most).filter(|_| body > 0);
        if let Some(why) = refusal {
            return self.drop_retained("another broker", &why, 1);
        }
        let mut kept = message.clone().detached();
        kept.stored = None;
        self.keep_retained(name, kept);
    }

    /// Messages cannot be retained for want of room, and no client hears of it: they are counted, and logged.
    pub(crate) fn drop_retained(&mut self, from: &str, why: &str, times: u64) {
        self.mqtt.counters.refused += times;
        self.mqtt.excess.note_many(from, RETAINED_TOPIC, why, Fate::Dropped, times);
    }
}
