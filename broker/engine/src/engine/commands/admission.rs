//! Admission of the publishes of one turn: the topic's bucket decides all together, in order of arrival.

use crate::clients::mqtt_client::FanOut;
use crate::engine::Engine;
use crate::event::Event;
use crate::keys::TopicKey;
use crate::memory::Stock;
use crate::protocol::errors::WireError;
use crate::protocol::verb::Verb;
use crate::queueing::message::{ENTRY_OVERHEAD, cost_of};
use crate::queueing::publish::{Outcome, Source};
use crate::queueing::topic::Topic;
use crate::time::Nanos;

impl Engine {
    pub(crate) fn check_accepting(&self, verb: Verb, topic: &str) -> Result<(), WireError> {
        self.refusal_of(topic).map_or(Ok(()), |reason| Err(verb.refused(reason)))
    }

    /// Why publishes to a topic are refused just now, if they are.
    pub(crate) fn refusal_of(&self, topic: &str) -> Option<&String> {
        self.refusal.as_ref().filter(|_| !(self.takes_limited && self.has_limit(topic)))
    }

    pub(crate) fn memory_is_reached(&self) -> String {
        format!("memory limit of {} bytes reached: nobody drains what is queued", self.config.max_memory_bytes)
    }

    /// Whether memory has room for messages of this cost, besides messages present, under construction or reserved.
    ///
    /// Layers, requests and unfinished commands of clients have bounds of their own: they must not stop all publishers.
    pub(crate) fn has_room_for(&self, cost: u64) -> bool {
        self.lasting_bytes() + self.memory.partial.used() + self.memory.reserved.used() + cost
            <= self.config.max_memory_bytes
    }

    /// Bytes of messages present, and of what MQTT's clients leave here.
    fn lasting_bytes(&self) -> u64 {
        self.memory.messages.used() + self.mqtt.kept.used()
    }

    pub(crate) fn new_stock(&self) -> Stock {
        self.memory.stock(self.config.max_memory_bytes)
    }

    /// Why a topic takes no `count` messages to be deferred, of `bytes` together, if so: these stay in memory.
    fn refusal_to_defer(&self, topic: &Topic, count: u32, bytes: u64) -> Option<String> {
        let (cost, most) = (cost_of(u64::from(count), bytes, 1), self.config.max_memory_bytes / 8);
        let stocks = || topic.channels.iter().filter_map(|key| self.channels.get(*key)).map(|channel| &channel.stock);
        let used: u64 = stocks().map(Stock::used).sum();
        if stocks().all(|stock| stock.has_room_for(cost)) && (used == 0 || used + cost <= most) {
            return None;
        }
        Some(format!("what a topic defers may take {most} bytes, an eighth of max_memory_bytes, and all together half"))
    }

    /// How often what is published to a topic is copied: once a channel.
    pub(crate) fn copies(&self, topic: Option<TopicKey>) -> u32 {
        topic.and_then(|key| self.topics.get(key)).map_or(1, |topic| topic.channels.len().max(1) as u32)
    }

    /// Decides all publishes so far in order of arrival; equal arrivals stay in order of reading.
    pub(crate) fn decide_publishes(&mut self, now: Nanos) {
        let mut order = std::mem::take(&mut self.turn.order);
        order.clear();
        order.extend(self.turn.decided..self.turn.publishes.len());
        self.turn.decided = self.turn.publishes.len();
        order.sort_by_key(|&index| self.turn.publishes[index].stamp);
        for &index in &order {
            (self.fan.unheard, self.fan.went_to) = (false, None);
            let outcome = self.decide(index, now);
            let fate = self.take_fate();
            let publish = &mut self.turn.publishes[index];
            (publish.outcome, publish.fate, publish.unheard) = (outcome, fate, self.fan.unheard);
            let publisher = self.conns.get_mut(publish.source.conn).and_then(|conn| conn.mqtt.as_mut());
            if let Some((mqtt, went_to)) = publisher.zip(self.fan.went_to) {
                mqtt.fan_out.get_or_insert(FanOut::new(went_to)).note(went_to);
            }
            // What was refused gives its memory back before the next is decided.
            self.turn.messages[publish.first..publish.first + publish.count as usize].fill_with(|| None);
        }
        self.turn.order = order;
    }

    fn decide(&mut self, index: usize, now: Nanos) -> Outcome {
        let publish = &self.turn.publishes[index];
        let (key, count, bytes, source) = (publish.topic, publish.count, publish.bytes, publish.source.clone());
        let verb = publish.verb;
        if verb == Verb::Linked {
            let publish = publish.clone();
            return self.route_linked(&publish, now);
        }
        let (first, stamp) = (publish.first, publish.stamp.min(now));
        if self.topics.get(key).is_some_and(|topic| !topic.restored.is_empty()) {
            self.restore_rest(key, now);
        }
        let effective = self
            .topics
            .get(key)
            .and_then(|topic| topic.limiter.as_ref())
            .map_or(stamp, |limiter| limiter.backlog.effective(stamp));
        self.release_until(key, effective, now);
        self.begin_release(key, source.conn);
        if verb != Verb::Will
            && let Some(refused) = self.refused_by_contract(index, effective)
        {
            return refused; // no demand of the topic: its shares do not follow it
        }
        let used = self.lasting_bytes(); // without what others build, as `has_room_for` has it
        let Some(topic) = self.topics.get_mut(key) else { return Outcome::Failed("exiting".into()) };
        topic.counters.received += u64::from(count);
        if let Some(limiter) = &mut topic.limiter {
            limiter.note_arrivals(count, effective);
            self.events.extend(limiter.take_event(&topic.name, now));
        }
        let undeclared = u64::from(count) * u64::from(!source.declared);
        topic.counters.undeclared += undeclared;
        // It is charged already; copies for further channels are not, which share the frames.
        let copies = topic.channels.len().saturating_sub(1) as u64;
        let more = copies * u64::from(count) * ENTRY_OVERHEAD;
        if used + more > self.config.max_memory_bytes {
            topic.counters.rejected += u64::from(count);
            return Outcome::Failed(self.memory_is_reached());
        }
        let defers =
            self.turn.messages.get(first).is_some_and(|message| message.as_ref().is_some_and(|one| one.defer_ms > 0));
        if defers
            && let Some(topic) = self.topics.get(key)
            && let Some(why) = self.refusal_to_defer(topic, count, bytes)
        {
            self.topics[key].counters.rejected += u64::from(count);
            return Outcome::Failed(why);
        }
        let Some(topic) = self.topics.get_mut(key) else { return Outcome::Failed("exiting".into()) };
        if let Some(limiter) = &topic.limiter
            && verb != Verb::Will // a refused one would be a lost alarm
            && let Err(excess) = limiter.admit(count, bytes, effective, verb == Verb::PatientPublish)
        {
            topic.counters.rejected += u64::from(count);
            let burst = limiter.limit.burst_micro as f64 / 1e6;
            return if limiter.limit.reject && burst > 0.0 && f64::from(count) > burst {
                Outcome::TooLarge { burst }
            } else {
                Outcome::Limited { retry_at: excess.retry_at, contract: None }
            };
        }
        topic.counters.messages += u64::from(count);
        topic.counters.bytes += bytes;
        if let Some(conn) = self.conns.get_mut(source.conn) {
            conn.published.count(key, count);
        }
        if topic.limiter.is_some() {
            return self.charge(key, first..first + count as usize, source, stamp, now);
        }
        self.release_all(key, first..first + count as usize, now);
        Outcome::Done { wait_ns: Some(0), fill: 1.0 }
    }

    /// Pass admitted messages through the topic's bucket, one token each.
    fn charge(
        &mut self,
        key: TopicKey,
        messages: std::ops::Range<usize>,
        source: Source,
        stamp: Nanos,
        now: Nanos,
    ) -> Outcome {
        let (mut last_due, mut waits) = (Some(stamp), false);
        for index in messages {
            let Some(message) = self.turn.messages[index].take() else { continue };
            let Some(topic) = self.topics.get_mut(key) else { continue };
            let Some(limiter) = topic.limiter.as_mut() else { continue };
            let (released, due) = limiter.decide(message, source.trace_index.unwrap_or(0), stamp, now);
            if let Some(due) = due {
                limiter.note_delay(stamp, due);
            }
            last_due = due;
            match released {
                Some(message) => self.release(key, message, now),
                None => {
                    topic.counters.delayed += 1;
                    waits = true;
                }
            }
        }
        self.arm_release(key);
        let Some(topic) = self.topics.get_mut(key) else { return Outcome::Failed("exiting".into()) };
        let Some(limiter) = topic.limiter.as_mut() else { return Outcome::Failed("exiting".into()) };
        limiter.note_unfinished(stamp, now);
        if waits {
            limiter.history.waits();
            self.events.extend(limiter.take_event(&topic.name, now));
        }
        if last_due.is_none() && !limiter.starved_sent {
            limiter.starved_sent = true;
            self.events.push(Event::Starved { topic: topic.name.to_string(), waiting: limiter.backlog.len() });
        }
        let wait_ns = last_due.map(|due| (due - stamp).max(0));
        Outcome::Done { wait_ns, fill: limiter.fill_ratio(now).max(0.0) }
    }
}
