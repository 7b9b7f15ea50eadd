//! The way of a released message to MQTT's subscribers: whom it goes to, and the bytes that all of them share.
//!
//! A message is encoded once for each form that its subscribers need: version, QoS, retain. A subscriber of QoS 0 gets
//! a copy into its output, or none while it leaves too much unread. The others get it through their session.

use crate::clients::connection::Mark;
use crate::engine::Engine;
use crate::keys::TopicKey;
use crate::mqtt::forms::{Fan, Forms, Heading, Target};
use crate::mqtt::outgoing::Outgoing;
use crate::protocol::mqtt::attributes::Attributes;
use crate::protocol::mqtt::packet::Qos;
use crate::queueing::message::{Alone, Message};
use crate::queueing::queue::Queue;
use crate::scheduling::work_budget::message_units;
use crate::time::Nanos;

impl Engine {
    /// Gives a released message to the subscribers of its name. False: there is none.
    pub(crate) fn route(&mut self, topic: TopicKey, message: &Message, now: Nanos) -> bool {
        if self.mqtt.filters.is_empty() {
            self.fan.unheard = true;
            return false;
        }
        let mut fan = std::mem::take(&mut self.fan);
        let topic_name = self.topics.get(topic).map(|topic| topic.name.clone()).unwrap_or_default();
        let heard = match Heading::of(message, &topic_name, self.clock.wall(now)) {
            None => {
                self.mqtt.counters.expired += 1;
                true
            }
            Some(heading) => {
                let heard = self.find_targets(&mut fan, &heading);
                self.give_to_targets(&mut fan, topic, message, &heading, now);
                heard
            }
        };
        fan.unheard = !heard;
        self.fan = fan;
        heard
    }

    /// Whether a message of a topic without channels needs none: MQTT's subscribers have it, or it came by MQTT, where
    /// nothing waits for a first subscriber.
    pub(crate) fn is_taken_by_mqtt(&mut self, topic: TopicKey, message: &Message, now: Nanos) -> bool {
        self.route(topic, message, now) || !message.attributes().is_empty()
    }

    /// Of messages in memory that waited in a topic without channels, those go that MQTT takes.
    pub(crate) fn route_waiting(&mut self, key: TopicKey, now: Nanos) {
        let waits = |engine: &Self| {
            engine.topics.get(key).filter(|topic| !topic.paused && !topic.held && topic.channels.is_empty()).is_some()
        };
        if !waits(self) {
            return;
        }
        let count = self.topics.get(key).map_or(0, |topic| topic.queue.memory().len());
        let mut kept = Vec::new();
        for _ in 0..count {
            let Some(message) = self.topics.get_mut(key).and_then(|topic| topic.queue.pop_front()) else { break };
            if !self.is_taken_by_mqtt(key, &message, now) {
                kept.push(message);
            }
        }
        let Some(topic) = self.topics.get_mut(key) else { return };
        kept.into_iter().rev().for_each(|message| topic.queue.push_front(message));
    }

    /// The sessions whose subscriptions match, each once: overlapping ones give one copy of the highest QoS, with all
    /// their identifiers (section 3.3.4). False: no subscription matches.
    fn find_targets(&mut self, fan: &mut Fan, heading: &Heading<'_>) -> bool {
        let Fan { found, targets, number, .. } = fan;
        found.clear();
        targets.clear();
        *number += 1;
        let heard = self.mqtt.filters.matching(heading.name, found) > 0;
        for subscriber in found.drain(..) {
            let Some(session) = self.mqtt.sessions.get_mut(subscriber.session) else { continue };
            let options = subscriber.options;
            if options.no_local && session.origin == heading.origin {
                continue;
            }
            let qos = options.qos.min(heading.qos);
            let retain = options.retain_as_published && heading.retain;
            if session.found_in == *number {
                let target = &mut targets[session.target as usize];
                (target.qos, target.retain) = (target.qos.max(qos), target.retain || retain);
                target.ids.extend(Some(subscriber.id).filter(|id| *id > 0));
                continue;
            }
            (session.found_in, session.target) = (*number, targets.len() as u32);
            let ids = if subscriber.id > 0 { vec![subscriber.id] } else { Vec::new() };
            targets.push(Target { session: subscriber.session, qos, retain, ids });
        }
        heard
    }

    fn give_to_targets(
        &mut self,
        fan: &mut Fan,
        topic: TopicKey,
        message: &Message,
        heading: &Heading<'_>,
        now: Nanos,
    ) {
        fan.forms.clear();
        let mark = (message.attempts == 0 && !message.foreign).then(|| mark_of(topic, message, now));
        let mut kept: Option<Message> = None; // with its name, for sessions
        self.work.note((message_units(message.body_len())).saturating_mul(fan.targets.len() as u32));
        for target in fan.targets.drain(..) {
            if target.qos == Qos::AtMostOnce {
                self.give_at_most_once(&mut fan.forms, &target, heading, message.body(), mark);
                continue;
            }
            let kept = match &mut kept {
                Some(kept) => kept.clone(),
                none => none.insert(self.named(message, heading)).clone(),
            };
            self.give_to_session(&mut fan.forms, &target, heading, kept, mark);
        }
    }

    /// The message with its name, as a session keeps it.
    fn named(&mut self, message: &Message, heading: &Heading<'_>) -> Message {
        if !message.attributes().is_empty() {
            return message.clone();
        }
        let attributes = Attributes {
            origin: heading.origin,
            expires_wall_ns: 0,
            qos: heading.qos,
            retain: heading.retain,
            name: heading.name,
            properties: heading.properties,
        };
        let mut bytes = Vec::new();
        attributes.encode(&mut bytes);
        let alone = Alone { id: message.id, wall_ns: message.wall_ns(), attributes: &bytes, body: message.body() };
        let mut named = self.builder.alone(&self.memory.messages, alone, message.times.arrival, 0);
        (named.times, named.foreign) = (message.times, message.foreign);
        named
    }

    fn give_at_most_once(
        &mut self,
        forms: &mut Forms,
        target: &Target,
        heading: &Heading<'_>,
        payload: &[u8],
        mark: Option<Mark>,
    ) {
        let Some(session) = self.mqtt.sessions.get_mut(target.session) else { return };
        let Some((key, conn)) = session.conn.and_then(|key| Some((key, self.conns.get_mut(key)?))) else { return };
        let Some(mqtt) = &conn.mqtt else { return };
        let (bytes, _) = forms.get(mqtt.version, heading, target, payload);
        if !conn.takes_deliveries() || bytes.len() > mqtt.longest_packet as usize {
            session.dropped += 1;
            self.mqtt.counters.dropped += 1;
            return;
        }
        conn.deliver_bytes(bytes, None, mark);
        self.mqtt.counters.delivered += 1;
        self.mark_dirty(key);
    }

    fn give_to_session(
        &mut self,
        forms: &mut Forms,
        target: &Target,
        heading: &Heading<'_>,
        message: Message,
        mark: Option<Mark>,
    ) {
        let queue_size = self.config.mqtt_max_queued;
        let Some(session) = self.mqtt.sessions.get_mut(target.session) else { return };
        let window = session.window;
        let outgoing = session.outgoing.get_or_insert_with(|| Box::new(Outgoing::new(Queue::in_memory(), window)));
        let conn = session.conn.and_then(|key| Some((key, self.conns.get_mut(key)?)));
        if let Some((key, conn)) = conn
            && outgoing.queue.is_empty()
            && outgoing.has_room()
            && conn.takes_deliveries()
            && let Some(mqtt) = &conn.mqtt
        {
            let body = message.clone();
            let (bytes, id_at) = forms.get(mqtt.version, heading, target, body.body());
            if bytes.len() > mqtt.longest_packet as usize {
                session.dropped += 1; // as if it were delivered [MQTT-3.1.2-25]
                self.mqtt.counters.dropped += 1;
                return;
            }
            let id = outgoing.begin(message, target.qos);
            conn.deliver_bytes(bytes, Some((id_at, id)), mark);
            self.mqtt.counters.delivered += 1;
            return self.mark_dirty(key);
        }
        if outgoing.queue.len() >= queue_size {
            session.dropped += 1;
            self.mqtt.counters.dropped += 1;
            return;
        }
        outgoing.queue.push_back(message);
        self.list_owing(target.session);
    }
}

pub(crate) fn mark_of(topic: TopicKey, message: &Message, now: Nanos) -> Mark {
    let times = message.times;
    Mark {
        end: 0,
        topic,
        arrival: times.arrival,
        due: times.due,
        consumer_wait: now - times.queued,
        trace: times.trace,
    }
}
