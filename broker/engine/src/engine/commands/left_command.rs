//! `LEFT`: tells a publisher when its messages to a topic have left, so that it can continue at another broker in
//! order.
//!
//! A topic's messages keep the order of their arrivals from the bucket to the sockets of consumers. So messages that
//! came before a request have left once the first message in each place came later. The engine checks these places at
//! intervals while a request waits; a message costs nothing more. Paused topics and channels do not count. Messages
//! without a consumer count only while consumers may be on their way.

use std::collections::HashMap;

use crate::clients::connection::Phase;
use crate::clients::reply::Reply;
use crate::engine::Engine;
use crate::keys::{ConnKey, TopicKey, VISITS_A_TURN};
use crate::protocol::mqtt::encode::Written;
use crate::protocol::mqtt::property;
use crate::protocol::mqtt::reason::Reason;
use crate::queueing::queue::Queue;
use crate::scheduling::departures::Question;
use crate::scheduling::service_time::ServiceTime;
use crate::time::{Nanos, SHORT_PATIENCE_NS};
use crate::timer::Timer;

/// Interval of the checks.
const LOOK_NS: Nanos = 5_000_000;

impl Engine {
    /// Records a connection's request to learn when all its messages to `topic` have left.
    pub(crate) fn ask_left(&mut self, key: ConnKey, topic: &str, number: u64, now: Nanos) {
        let Some(conn) = self.conns.get(key) else { return };
        let Some(published) = conn.published.iter().find(|published| *published.name == *topic) else {
            return self.reply(key, Reply::Json(left_notice(topic, number)));
        };
        let question = Question { topic: published.topic, name: topic.into(), number, at: now, reference: None };
        self.departures.asked.insert(key, question);
        self.timers.arm(&mut self.departures.armed, now + LOOK_NS, Timer::Departures);
    }

    /// Ends a connection of MQTT with a Server Reference once its messages to `topic` have left, or after 5 s.
    pub(crate) fn send_elsewhere(&mut self, key: ConnKey, topic: &str, reference: &str, now: Nanos) {
        if let Some(question) = self.departures.asked.get_mut(&key) {
            question.reference = Some(reference.into());
            return;
        }
        let published = self.conns.get(key).and_then(|conn| conn.published.iter().find(|one| *one.name == *topic));
        let Some(topic_key) = published.map(|published| published.topic) else { return };
        let (name, reference) = (topic.into(), Some(reference.into()));
        self.departures.asked.insert(key, Question { topic: topic_key, name, number: 0, at: now, reference });
        self.timers.arm(&mut self.departures.armed, now + LOOK_NS, Timer::Departures);
    }

    pub(crate) fn handle_departures(&mut self, at: Nanos, now: Nanos) {
        if !self.departures.armed.fire(at) {
            return;
        }
        let mut first = HashMap::new();
        for (key, question) in std::mem::take(&mut self.departures.asked) {
            let topic = question.topic;
            let oldest = *first.entry(topic).or_insert_with(|| self.oldest_of(topic, now));
            let may_wait = question.reference.is_none() || now < question.at + SHORT_PATIENCE_NS;
            if may_wait && oldest.is_some_and(|arrival| arrival <= question.at) && self.conns.contains_key(key) {
                self.departures.asked.insert(key, question);
            } else if let Some(reference) = question.reference {
                let mut properties = Written::default();
                properties.text(property::SERVER_REFERENCE, &reference);
                self.end_mqtt_with(key, Reason::USE_ANOTHER_SERVER, &properties);
            } else if let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.phase != Phase::Lingering) {
                conn.respond(&left_notice(&question.name, question.number));
                self.mark_dirty(key);
            }
        }
        if !self.departures.asked.is_empty() {
            self.timers.arm(&mut self.departures.armed, now + LOOK_NS, Timer::Departures);
        }
    }

    /// Arrival of the topic's oldest message that some consumer still has to receive, or an earlier instant if unknown.
    ///
    /// `None`: all have left.
    fn oldest_of(&self, key: TopicKey, now: Nanos) -> Option<Nanos> {
        let topic = self.topics.get(key)?;
        let channels = || {
            topic.channels.iter().filter_map(|&channel| self.channels.get(channel)).filter(|channel| !channel.paused)
        };
        // What nobody takes for 5 s is not waited for: the place is abandoned, or the one who asks waits no longer
        // either.
        let wanted = |first: Option<Nanos>, taken: bool| {
            first.filter(|first| taken || now.saturating_sub(*first) < SHORT_PATIENCE_NS)
        };
        let queued = channels().filter_map(|channel| wanted(first_of(&channel.queue), !channel.consumers.is_empty()));
        let conns = channels().flat_map(|channel| &channel.consumers).filter_map(|&consumer| self.conns.get(consumer));
        let unsent = conns.filter_map(|conn| conn.marks.front().map(|mark| mark.arrival));
        let in_channels = queued.chain(unsent).min();
        if topic.paused {
            return in_channels;
        }
        let waiting =
            topic.limiter.as_ref().and_then(|limiter| limiter.backlog.head()).map(|message| message.times.arrival);
        let served = self.server.first_of(key).map(|message| message.times.arrival);
        let before = [waiting, served, first_of(&topic.queue)].into_iter().flatten().min();
        in_channels.into_iter().chain(wanted(before, channels().any(|channel| !channel.consumers.is_empty()))).min()
    }
}

fn left_notice(topic: &str, number: u64) -> Vec<u8> {
    format!("_left_ {topic} {number}").into_bytes()
}

/// Arrival of the first message of the queue that was never delivered. Requeued messages and those of an earlier
/// incarnation before it are in no order.
fn first_of(queue: &Queue) -> Option<Nanos> {
    let memory = queue.memory();
    let found = memory.iter().take(VISITS_A_TURN).find(|message| message.attempts == 0 && !message.foreign);
    let unseen = memory.len() > VISITS_A_TURN || queue.backend_len() > 0;
    found.map(|message| message.times.arrival).or_else(|| unseen.then_some(Nanos::MIN))
}
