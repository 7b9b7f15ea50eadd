//! `LEFT`: whether what a connection has published has left: who goes on at another broker asks (`LEFT`), so that nothing there overtakes it.
//!
//! Messages of a topic stay in the order of their arrivals from the bucket to the consumers' sockets. So what came by the instant of a question has left as
//! soon as whatever is first in each of these places came later. They are looked at now and then, and only while somebody waits for the answer: a message
//! costs nothing more. What is paused is not waited for, and what nobody takes only as long as its consumers may be on their way.

use std::collections::HashMap;

use crate::clients::connection::Phase;
use crate::clients::reply::Reply;
use crate::engine::Engine;
use crate::keys::{ConnKey, TopicKey, VISITS_A_TURN};
use crate::queueing::queue::Queue;
use crate::scheduling::departures::Question;
use crate::scheduling::service_time::ServiceTime;
use crate::time::{Nanos, SHORT_PATIENCE_NS};
use crate::timer::Timer;

/// Between two looks.
const LOOK_NS: Nanos = 5_000_000;

impl Engine {
    /// The connection wants to know when all has left that it has published to `topic`.
    pub(crate) fn ask_left(&mut self, key: ConnKey, topic: &str, number: u64, now: Nanos) {
        let Some(conn) = self.conns.get(key) else { return };
        let Some(published) = conn.published.iter().find(|published| *published.name == *topic) else {
            return self.reply(key, Reply::Json(left_notice(topic, number)));
        };
        self.departures.asked.insert(key, Question { topic: published.topic, name: topic.into(), number, at: now });
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
            if oldest.is_some_and(|arrival| arrival <= question.at) && self.conns.contains_key(key) {
                self.departures.asked.insert(key, question);
            } else if let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.phase != Phase::Lingering) {
                conn.respond(&left_notice(&question.name, question.number));
                self.mark_dirty(key);
            }
        }
        if !self.departures.asked.is_empty() {
            self.timers.arm(&mut self.departures.armed, now + LOOK_NS, Timer::Departures);
        }
    }

    /// When the oldest message of a topic came that has not left to every consumer who is to have it, or an earlier instant where that cannot be seen;
    /// `None`: there is none.
    fn oldest_of(&self, key: TopicKey, now: Nanos) -> Option<Nanos> {
        let topic = self.topics.get(key)?;
        let channels = || topic.channels.iter().filter_map(|&channel| self.channels.get(channel)).filter(|channel| !channel.paused);
        // What nobody takes for 5 s is not waited for: the place is abandoned, or the one who asks waits no longer either.
        let wanted = |first: Option<Nanos>, taken: bool| first.filter(|first| taken || now.saturating_sub(*first) < SHORT_PATIENCE_NS);
        let queued = channels().filter_map(|channel| wanted(first_of(&channel.queue), !channel.consumers.is_empty()));
        let conns = channels().flat_map(|channel| &channel.consumers).filter_map(|&consumer| self.conns.get(consumer));
        let unsent = conns.filter_map(|conn| conn.marks.front().map(|mark| mark.arrival));
        let in_channels = queued.chain(unsent).min();
        if topic.paused {
            return in_channels;
        }
        let waiting = topic.limiter.as_ref().and_then(|limiter| limiter.backlog.head()).map(|message| message.times.arrival);
        let served = self.server.first_of(key).map(|message| message.times.arrival);
        let before = [waiting, served, first_of(&topic.queue)].into_iter().flatten().min();
        in_channels.into_iter().chain(wanted(before, channels().any(|channel| !channel.consumers.is_empty()))).min()
    }
}

fn left_notice(topic: &str, number: u64) -> Vec<u8> {
    format!("_left_ {topic} {number}").into_bytes()
}

/// When the first message of the queue came that was never delivered. Those before it, which came back or are of an earlier incarnation, are in no order.
fn first_of(queue: &Queue) -> Option<Nanos> {
    let memory = queue.memory();
    let found = memory.iter().take(VISITS_A_TURN).find(|message| message.attempts == 0 && !message.foreign);
    let unseen = memory.len() > VISITS_A_TURN || queue.backend_len() > 0;
    found.map(|message| message.times.arrival).or_else(|| unseen.then_some(Nanos::MIN))
}
