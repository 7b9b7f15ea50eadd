//! Answers to SUBSCRIBE that wait until other brokers know what is wanted here: what is published there after the
//! answer must come.

use serde::Serialize;

use crate::clients::reply::Reply;
use crate::engine::Engine;
use crate::event::Event;
use crate::keys::{ConnKey, SessionKey, VISITS_A_TURN};
use crate::mqtt::interest::{MOST_FILTERS, Waiting};
use crate::mqtt::session::Session;
use crate::protocol::mqtt::topic_filter::is_reserved;
use crate::time::Nanos;
use crate::timer::Timer;

/// Bytes of filters that other brokers are told; with more they are asked for all messages.
const MOST_FILTER_BYTES: usize = 64 << 10;

/// What the subscribers here want of other brokers. `filters`: `None` for all messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InterestView {
    pub version: u64,
    pub filters: Option<Vec<String>>,
    pub durable: bool,
}

impl Engine {
    /// There are other brokers from now on, or none any more.
    pub fn share_interest(&mut self, is_shared: bool) {
        self.mqtt.interest.share(is_shared);
    }

    /// What is wanted of other brokers now.
    pub fn interest(&mut self) -> InterestView {
        let patterns = self.mqtt.filters.patterns(MOST_FILTERS + 1);
        let is_short = patterns.iter().map(String::len).sum::<usize>() <= MOST_FILTER_BYTES;
        let filters = (patterns.len() <= MOST_FILTERS && is_short).then_some(patterns);
        let is_durable = |session: &Session| session.is_durable() && !session.subscriptions.is_empty();
        let sessions = &self.mqtt.sessions;
        let durable = sessions.len() > VISITS_A_TURN || sessions.values().any(is_durable);
        let version = self.mqtt.interest.look(filters.is_none(), durable);
        InterestView { version, filters, durable }
    }

    /// All other brokers know this version of what is wanted.
    pub fn settle_interest(&mut self, version: u64) {
        let settled = self.mqtt.interest.settle(version);
        self.answer_subscribed(settled);
    }

    /// A subscription is new. `is_first`: nobody had its pattern before.
    pub(crate) fn note_interest(&mut self, key: SessionKey, pattern: &str, is_first: bool) {
        if is_first {
            self.mqtt.interest.note_pattern(is_reserved(pattern));
        }
        if self.mqtt.sessions.get(key).is_some_and(Session::is_durable) {
            self.mqtt.interest.note_durable();
        }
        self.tell_interest();
    }

    /// A pattern has lost its last subscriber: the other brokers may send less.
    pub(crate) fn lose_interest(&mut self, pattern: &str) {
        self.mqtt.interest.note_pattern(is_reserved(pattern));
        self.tell_interest();
    }

    fn tell_interest(&mut self) {
        if self.mqtt.interest.take_news() {
            self.events.push(Event::MqttInterestChanged);
        }
    }

    /// Gives the answer to a SUBSCRIBE, now or once all other brokers know of it.
    pub(crate) fn answer_subscribe(&mut self, key: ConnKey, answer: Vec<u8>, now: Nanos) {
        if self.mqtt.interest.is_settled() {
            return self.turn.replies.push((key, Reply::Raw(answer)));
        }
        let at = self.mqtt.interest.wait(key, answer, now);
        self.timers.arm(&mut self.mqtt.interest.armed, at, Timer::Subscriptions);
    }

    pub(crate) fn handle_late_subscriptions(&mut self, at: Nanos, now: Nanos) {
        if !self.mqtt.interest.armed.fire(at) {
            return;
        }
        let overdue = self.mqtt.interest.overdue(now);
        if !overdue.is_empty() {
            self.events.push(Event::SubscribedEarly { times: overdue.len() as u64 });
        }
        self.answer_subscribed(overdue);
        if let Some(at) = self.mqtt.interest.next_due() {
            self.timers.arm(&mut self.mqtt.interest.armed, at, Timer::Subscriptions);
        }
    }

    fn answer_subscribed(&mut self, waiting: Vec<Waiting>) {
        self.turn.replies.extend(waiting.into_iter().map(|one| (one.conn, Reply::Raw(one.answer))));
    }
}
