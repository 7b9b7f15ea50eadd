//! What brokers tell each other of sessions, over the links of what is retained.

use std::rc::Rc;

use crate::engine::Engine;
use crate::keys::{ChannelKey, ConnKey};
use crate::mqtt::elsewhere::moves::{Arrival, Epoch, Flushing, News, Word};
use crate::mqtt::saved_session::Saved;
use crate::mqtt::session::Begun;
use crate::protocol::link_frames::{NEWS, RETAINED_TOPIC};
use crate::protocol::mqtt::attributes::Attributes;
use crate::protocol::mqtt::packet::Qos;
use crate::queueing::message::{Alone, Message};
use crate::scheduling::work_budget::message_units;
use crate::time::Nanos;

impl Engine {
    /// Puts a word for another broker behind all that goes to it.
    pub(crate) fn tell_broker(&mut self, broker: &str, word: Word<'_>, now: Nanos) {
        let topic = self.topic_key(RETAINED_TOPIC);
        if let Some(channel) = topic.and_then(|topic| self.find_channel(topic, broker)) {
            self.tell_by(channel, word, now);
        }
    }

    pub(super) fn tell_by(&mut self, channel: ChannelKey, word: Word<'_>, now: Nanos) {
        let Some(own) = self.mqtt.moves.own_channel.clone() else { return };
        let body = News { sender: &own, word }.encode();
        let (qos, properties) = (Qos::AtLeastOnce, &[][..]);
        let attributes =
            Attributes { origin: 0, expires_wall_ns: 0, qos, retain: false, name: NEWS, group: "", properties };
        let mut bytes = Vec::new();
        attributes.encode(&mut bytes);
        let wall_ns = self.clock.wall(now);
        let alone = Alone { id: self.ids.next(wall_ns), wall_ns, attributes: &bytes, body: &body };
        let message = self.builder.alone(&self.memory.messages, alone, now, 0);
        self.work.note(message_units(body.len()));
        self.put_retained(channel, message, now);
    }

    /// The channels of all brokers that speak MQTT.
    pub(crate) fn linked_brokers(&self) -> Vec<Box<str>> {
        let topic = self.topic_key(RETAINED_TOPIC).and_then(|topic| self.topics.get(topic));
        let channels = topic.into_iter().flat_map(|topic| topic.channels.iter());
        let linked = channels.filter_map(|key| self.channels.get(*key)).filter(|channel| channel.link.is_some());
        linked.map(|channel| channel.name.clone()).collect()
    }

    /// Whether a broker hears what it is told.
    pub(crate) fn is_hearing(&self, broker: &str) -> bool {
        let topic = self.topic_key(RETAINED_TOPIC);
        let channel = topic.and_then(|topic| self.find_channel(topic, broker)).and_then(|key| self.channels.get(key));
        channel.is_some_and(|channel| !channel.consumers.is_empty())
    }

    /// Follows what other brokers have said in this turn, and what has come of it.
    pub(crate) fn tend_moves(&mut self, now: Nanos) {
        let mut heard = std::mem::take(&mut self.mqtt.moves.heard);
        while let Some((link, message)) = heard.pop_front() {
            let Some(News { sender, word }) = News::decode(message.body()) else { continue };
            if word.client().is_some_and(|client| self.mqtt.moves.to_resume.contains_key(client)) {
                heard.push_front((link, message)); // behind its CONNECT, which makes the session that this is for
                break;
            }
            match word {
                Word::Flushed { number, count } => self.mqtt.moves.note_mark(link, sender, number, count),
                word => self.hear(sender, word, now),
            }
        }
        self.mqtt.moves.heard = heard;
        for broker in std::mem::take(&mut self.mqtt.moves.returned) {
            self.tell_again(&broker, now);
        }
        self.start_flush(now);
        self.end_flushes(now);
        self.give_thanks(now);
    }

    /// This broker opens its first link: from now on others can answer, and hear who came before.
    pub(crate) fn name_own_channel(&mut self, channel: &str) {
        if self.mqtt.moves.own_channel.is_none() {
            let hearing = self.linked_brokers().into_iter().filter(|broker| self.is_hearing(broker));
            let hearing: Vec<Box<str>> = hearing.collect();
            self.mqtt.moves.returned.extend(hearing);
        }
        self.mqtt.moves.own_channel = Some(channel.into());
    }

    /// A broker has opened its link: it may have been killed with what it had heard, and hears now who came meanwhile.
    fn tell_again(&mut self, broker: &str, now: Nanos) {
        if self.mqtt.moves.own_channel.is_none() {
            return; // it could not answer: it hears all of it once it can
        }
        let pending = self.mqtt.moves.flushes.iter().filter(|flush| flush.left.contains_key(broker));
        let numbers: Vec<u64> = pending.map(|flush| flush.number).collect();
        for number in numbers {
            self.tell_broker(broker, Word::Flush { number }, now);
        }
        let told = self.mqtt.moves.told.insert(broker.into(), self.mqtt.moves.latest_ns).unwrap_or(0);
        let waits_for_it = |one: &Arrival| one.givers.contains_key(broker) || one.asked.contains(broker);
        let arrivals = self.mqtt.moves.arrivals.iter();
        let arrivals = arrivals.filter(|(_, arrival)| waits_for_it(arrival) || arrival.wall_ns > told);
        let clients: Vec<(Rc<str>, i64)> = arrivals.map(|(client, one)| (Rc::clone(client), one.wall_ns)).collect();
        for (client, wall_ns) in clients {
            self.tell_broker(broker, Word::Came { client: &client, wall_ns, is_clean: false }, now);
        }
        let since = self.mqtt.sessions.values().filter(|session| session.since_wall_ns > told && !session.departs);
        let since: Vec<(Rc<str>, i64, Begun)> =
            since.map(|one| (Rc::clone(&one.client_id), one.since_wall_ns, one.begun)).collect();
        for (client, wall_ns, begun) in since {
            let client = &*client;
            let word = match begun {
                Begun::Restored => Word::Restored { client, wall_ns },
                Begun::Clean | Begun::Resumed => Word::Came { client, wall_ns, is_clean: begun == Begun::Clean },
            };
            self.tell_broker(broker, word, now);
        }
    }

    /// Keeps a word until the publishes of this turn are decided.
    pub(crate) fn hear_later(&mut self, conn: ConnKey, message: Message) {
        if let Some(link) = self.source_of(conn) {
            self.mqtt.moves.heard.push_back((link, message));
        }
    }

    fn hear(&mut self, sender: &str, word: Word<'_>, now: Nanos) {
        match word {
            Word::Came { client, wall_ns, is_clean } => {
                self.give_up(client, Epoch { wall_ns, channel: sender.into() }, is_clean, false, now);
            }
            Word::Restored { client, wall_ns } => {
                self.give_up(client, Epoch { wall_ns, channel: sender.into() }, false, true, now);
            }
            Word::Nothing { client, wall_ns, had_connection } => {
                self.note_taken_over(client, had_connection, now);
                self.note_answer(client, wall_ns, sender, now);
            }
            Word::State { client, wall_ns, had_connection, saved } => {
                self.note_taken_over(client, had_connection, now);
                if let Some(Saved::Lives(saved)) = Saved::decode(saved) {
                    self.take_state(client, wall_ns, sender, &saved, now);
                }
            }
            Word::Owed { client, owed, .. } => self.take_owed(client, sender, owed, now),
            Word::Known { client, wall_ns, is_final } => {
                if let Some(key) = self.departing(client, wall_ns, sender) {
                    let epoch = Epoch { wall_ns, channel: sender.into() };
                    self.mqtt.moves.to_flush.push(Flushing::Departure(key, epoch, is_final));
                }
            }
            Word::Over { client, wall_ns, is_final, number } => {
                self.end_arrival(client, (wall_ns, number), sender, is_final, now);
            }
            Word::Taken { client, wall_ns, number } => {
                if let Some(key) = self.departing(client, wall_ns, sender) {
                    self.forget_departed(key, number, now);
                }
            }
            Word::Flush { number } => self.mark_links(sender, number, now),
            Word::Flushed { .. } => {}
            Word::Offer { client } => self.take_offer(client, sender, now),
        }
    }

    fn note_taken_over(&mut self, client: &str, had_connection: bool, now: Nanos) {
        if had_connection {
            self.mqtt.takeovers.note(client, false, now);
        }
    }
}
