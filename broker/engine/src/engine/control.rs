//! What Python asks of an engine: topics and channels, buckets and publishers.

use std::collections::VecDeque;

use serde::Serialize;

use crate::clients::mqtt_client::MqttAddresses;
use crate::engine::Engine;
use crate::event::Event;
use crate::keys::{ChannelKey, TopicKey};
use crate::limiter::trace::{NameRoom, Trace};
use crate::mqtt::elsewhere::moves::PATIENCE_NS;
use crate::mqtt::managed_names::V3Excess;
use crate::protocol::codec;
use crate::protocol::mqtt::topic_filter::Filter;
use crate::queueing::channel::Channel;
use crate::queueing::message::Message;
use crate::queueing::queue::Queue;
use crate::queueing::topic::{KeptLimits, Limit, Limiter, Topic};
use crate::scheduling::service_time::ServiceTime;
use crate::scheduling::work_budget::CREATION_UNITS;
use crate::telemetry::arrival_bins::Bins;
use crate::telemetry::latency::Latency;
use crate::telemetry::latency_buckets::TopicBuckets;
use crate::time::Nanos;

/// What came to one topic, as Python sees it. `version`: of the share in force.
#[derive(Debug, Serialize)]
pub struct TopicBins {
    pub(crate) topic: String,
    version: u64,
    #[serde(flatten)]
    pub(crate) bins: Bins,
}

/// Names of publishers in traces may take this part of `max_memory_bytes`, besides what messages take.
const NAMES_SHARE: u64 = 16;

impl Engine {
    pub fn create_topic(&mut self, name: &str) {
        self.topic_of(name);
    }

    /// Whether the messages of topics made from now on wait until `release_topic`.
    pub fn set_hold_new_topics(&mut self, hold: bool) {
        self.config.hold_new_topics = hold;
    }

    /// The topic of that name, made if missing, and held then if new topics are.
    pub(crate) fn topic_of(&mut self, name: &str) -> TopicKey {
        if let Some(key) = self.topic_names.get(name) {
            return *key;
        }
        self.topic_held(name, self.config.hold_new_topics)
    }

    /// The topic of that name, made if missing, and held then if `held`.
    pub(crate) fn topic_held(&mut self, name: &str, held: bool) -> TopicKey {
        if let Some(key) = self.topic_names.get(name) {
            return *key;
        }
        self.work.note(CREATION_UNITS);
        let key = self.topics.insert(Topic::new(name, held, Queue::in_memory()));
        self.topics[key].queue = self.topic_queue(key, name);
        if let Some(KeptLimits { limiter, contracts }) = self.kept_limits.remove(name) {
            (self.topics[key].limiter, self.topics[key].contracts) = (Some(limiter), contracts);
        }
        self.topic_names.insert(name.into(), key);
        self.events.push(Event::TopicCreated { topic: name.into() });
        key
    }

    /// The channel of that name, created if missing.
    ///
    /// A topic's first channel takes its backlog; messages not moved when a second one is created go to both.
    pub(crate) fn channel_of(&mut self, topic_key: TopicKey, name: &str, now: Nanos) -> ChannelKey {
        if let Some(key) = self.find_channel(topic_key, name) {
            return key;
        }
        self.work.note(CREATION_UNITS);
        let key = self.channels.insert(Channel::new(name, topic_key, Queue::in_memory(), self.new_stock()));
        self.channels[key].queue = self.channel_queue(key, topic_key, name);
        self.link_channel(key);
        if let Some(topic) = self.topics.get_mut(topic_key) {
            topic.channels.push(key);
            self.events.push(Event::ChannelCreated { topic: topic.name.to_string(), channel: name.into() });
        }
        self.fan_out_queue(topic_key, now);
        key
    }

    pub fn has_channel(&self, topic: &str, channel: &str) -> bool {
        self.channel_key(topic, channel).is_some()
    }

    pub(crate) fn find_channel(&self, topic_key: TopicKey, name: &str) -> Option<ChannelKey> {
        let topic = self.topics.get(topic_key)?;
        topic.channels.iter().copied().find(|key| self.channels.get(*key).is_some_and(|channel| &*channel.name == name))
    }

    pub(crate) fn topic_key(&self, name: &str) -> Option<TopicKey> {
        self.topic_names.get(name).copied()
    }

    fn channel_key(&self, topic: &str, channel: &str) -> Option<ChannelKey> {
        self.find_channel(self.topic_key(topic)?, channel)
    }

    /// Remove a topic with all that it holds; its consumers are disconnected. Its limit and contracts stay for when it
    /// is made again: a message may come before Python could limit it anew.
    pub fn delete_topic(&mut self, name: &str) -> bool {
        let Some(key) = self.topic_names.remove(name) else { return false };
        self.mqtt.tally.forget(name);
        let channels = self.topics.get(key).map(|topic| topic.channels.clone()).unwrap_or_default();
        if let Some(mut topic) = self.topics.remove(key) {
            topic.queue.clear();
            if let Some(mut limiter) = topic.limiter {
                limiter.outlive_topic();
                self.kept_limits.insert(name.into(), KeptLimits { limiter, contracts: topic.contracts });
            }
        }
        self.server.forget(key);
        for channel in channels {
            self.drop_channel(channel, name);
        }
        self.events.push(Event::TopicDeleted { topic: name.into() });
        true
    }

    /// Remove a topic that nothing limits, if it holds neither a message nor a channel, and is not paused.
    pub fn delete_unused_topic(&mut self, name: &str) -> bool {
        let Some(key) = self.topic_key(name) else { return false };
        let topic = &self.topics[key];
        let holds_messages = topic.queue.len() + topic.waiting() + self.server.waiting(key) > 0;
        let owes_mqtt = self.mqtt.tally.all().any(|held| *held.topic == *name && held.depth + held.in_flight > 0);
        let is_used = holds_messages || owes_mqtt || !topic.channels.is_empty() || topic.paused;
        !is_used && topic.limiter.is_none() && self.delete_topic(name)
    }

    /// Drop what waits in a topic: for its first channel, and for tokens.
    pub fn empty_topic(&mut self, name: &str) -> bool {
        let Some(key) = self.topic_key(name) else { return false };
        let topic = &mut self.topics[key];
        topic.queue.clear();
        topic.restored = VecDeque::new();
        if let Some(limiter) = &mut topic.limiter {
            limiter.drop_waiting();
        }
        self.server.forget(key);
        true
    }

    pub fn pause_topic(&mut self, name: &str, paused: bool, now: Nanos) -> bool {
        let Some(key) = self.topic_key(name) else { return false };
        self.topics[key].paused = paused;
        self.route_waiting(key, now);
        self.fan_out_queue(key, now);
        true
    }

    pub fn release_topic(&mut self, name: &str, now: Nanos) -> bool {
        let Some(key) = self.topic_key(name) else { return false };
        self.topics[key].held = false;
        self.route_waiting(key, now);
        self.fan_out_queue(key, now);
        for channel in self.topics[key].channels.clone() {
            self.mark_channel(channel);
        }
        true
    }

    pub fn create_channel(&mut self, topic: &str, channel: &str, now: Nanos) -> bool {
        let Some(key) = self.topic_key(topic) else { return false };
        self.channel_of(key, channel, now);
        true
    }

    pub fn delete_channel(&mut self, topic: &str, channel: &str) -> bool {
        let Some(key) = self.channel_key(topic, channel) else { return false };
        self.remove_channel(key);
        true
    }

    /// Remove a channel; an ephemeral topic goes with its last one.
    pub(crate) fn remove_channel(&mut self, key: ChannelKey) {
        let Some(topic_key) = self.channels.get(key).map(|channel| channel.topic) else { return };
        let Some(topic) = self.topics.get_mut(topic_key) else { return };
        topic.channels.retain(|other| *other != key);
        let name = topic.name.clone();
        let last = topic.channels.is_empty() && codec::is_ephemeral(&name);
        self.drop_channel(key, &name);
        if last {
            self.delete_topic(&name);
        }
    }

    fn drop_channel(&mut self, key: ChannelKey, topic: &str) {
        let Some(mut channel) = self.channels.remove(key) else { return };
        channel.queue.clear();
        self.events.push(Event::ChannelDeleted { topic: topic.into(), channel: channel.name.into() });
        for consumer in channel.consumers {
            self.close(consumer);
        }
    }

    /// Drop a channel's messages, also those in flight; its consumers go on.
    pub fn empty_channel(&mut self, topic: &str, channel: &str) -> bool {
        let Some(key) = self.channel_key(topic, channel) else { return false };
        let channel = &mut self.channels[key];
        channel.empty();
        for consumer in channel.consumers.clone() {
            if let Some(sub) = self.conns.get_mut(consumer).and_then(|conn| conn.subscription.as_mut()) {
                sub.in_flight = 0;
                sub.deadlines.clear();
            }
            self.list_if_ready(consumer);
        }
        true
    }

    pub fn pause_channel(&mut self, topic: &str, channel: &str, paused: bool) -> bool {
        let Some(key) = self.channel_key(topic, channel) else { return false };
        self.channels[key].paused = paused;
        self.mark_channel(key);
        true
    }

    /// Creates or changes a topic's bucket. False: `limit.version` is older than the one in force.
    pub fn set_bucket(&mut self, name: &str, limit: Limit, now: Nanos) -> bool {
        let key = self.topic_of(name);
        let stock = self.new_stock();
        self.release_due(key, now);
        let names = self.name_room();
        let Some(topic) = self.topics.get_mut(key) else { return false };
        match &mut topic.limiter {
            Some(limiter) if limit.version < limiter.limit.version => return false,
            Some(limiter) => limiter.set(limit, now),
            none => {
                let trace = Trace::new(self.config.trace_entries, topic.next_trace, names);
                *none = Some(Box::new(Limiter::new(limit, trace, stock, now)));
                topic.generation += 1;
            }
        }
        self.has_leases |= limit.expires < Nanos::MAX;
        self.watch_if_wanted(name, key, now);
        self.lapse(key, now); // its word may have come late
        self.restore_waiting(key, now);
        let Some(topic) = self.topics.get_mut(key) else { return false };
        let waiting = topic.waiting();
        if let Some(limiter) =
            topic.limiter.as_mut().filter(|limiter| waiting > 0 && limiter.backlog.next_due().is_none())
        {
            limiter.starved_sent = true;
            self.events.push(Event::Starved { topic: name.into(), waiting });
        }
        self.release_due(key, now);
        true
    }

    fn name_room(&self) -> NameRoom {
        NameRoom { used: self.memory.names.clone(), limit: self.config.max_memory_bytes / NAMES_SHARE }
    }

    /// Limits a topic that may not exist yet: then it has this bucket once it is made.
    pub fn keep_bucket(&mut self, name: &str, limit: Limit, now: Nanos) -> bool {
        if self.topic_key(name).is_some() {
            return self.set_bucket(name, limit, now);
        }
        let trace = Trace::new(self.config.trace_entries, 0, self.name_room());
        let stock = self.new_stock();
        let new = || KeptLimits { limiter: Box::new(Limiter::new(limit, trace, stock, now)), contracts: None };
        self.kept_limits.entry(name.into()).or_insert_with(new).limiter.set(limit, now);
        true
    }

    /// Remove a topic's limit and its list of publishers: what waits is released at once.
    pub fn clear_bucket(&mut self, name: &str, now: Nanos) -> bool {
        let Some(key) = self.topic_key(name) else { return self.kept_limits.remove(name).is_some() };
        let Some(topic) = self.topics.get_mut(key) else { return false };
        (topic.publishers, topic.contracts) = (None, None);
        topic.generation += 1;
        let Some(limiter) = topic.limiter.take() else { return false };
        topic.next_trace = limiter.trace.next();
        let at_once = |mut message: Message| {
            message.times.due = now;
            message
        };
        let restored = std::mem::take(&mut topic.restored);
        self.release_waiting(key, limiter.backlog.into_waiting().map(at_once).chain(restored), now);
        true
    }

    /// Gives a topic the MQTT names that these filters match, instead of those that it had; `false`: one is no filter.
    pub fn set_mqtt_names(&mut self, topic: &str, filters: Vec<String>, v3_excess: V3Excess) -> bool {
        let are_sound = filters.iter().all(|filter| Filter::parse(filter).is_some_and(|parsed| parsed.group.is_none()));
        if are_sound {
            self.mqtt.names.set(topic, filters, v3_excess);
        }
        are_sound
    }

    /// Names the messages of a topic that come by NSQ, until `set_mqtt_names`; `false`: it is no name of the topic.
    pub fn set_mqtt_name(&mut self, topic: &str, name: &str) -> bool {
        self.mqtt.names.say(topic, name)
    }

    /// Sets the publishers assigned to this broker; others count as unassigned at their next message.
    pub fn set_publishers(&mut self, name: &str, publishers: Vec<String>, version: u64) {
        let key = self.topic_of(name);
        let Some(topic) = self.topics.get_mut(key) else { return };
        let unchanged = topic.publishers.is_some() && topic.assignment_version == version;
        if unchanged {
            return;
        }
        topic.publishers = Some(publishers.into_iter().map(String::into_boxed_str).collect());
        topic.assignment_version = version;
        topic.generation += 1;
        topic.unassigned.clear();
    }

    /// Tell the aware connections on which a publisher serves a topic where it belongs; gives how many were told.
    /// `mqtt`: where that broker speaks MQTT. Clients of MQTT stay if it has no port of the kind that they use.
    pub fn move_publisher(
        &mut self,
        topic: &str,
        publisher_id: &str,
        address: &str,
        mqtt: &MqttAddresses,
        version: u64,
        now: Nanos,
    ) -> usize {
        let mut told = 0;
        for key in self.aware.get(publisher_id).cloned().unwrap_or_default() {
            let Some(conn) =
                self.conns.get_mut(key).filter(|conn| conn.reads() && conn.published.position(topic).is_some())
            else {
                continue;
            };
            match (&mut conn.mqtt, mqtt.like(conn.layers.as_deref())) {
                (None, _) => {
                    conn.respond(format!("_move_ {address} {version}").as_bytes());
                    self.mark_dirty(key);
                }
                (Some(_), "") => continue,
                (Some(client), reference) => {
                    client.leaves = true;
                    self.send_elsewhere(key, topic, reference, now);
                }
            }
            told += 1;
        }
        told
    }

    /// Accepts publishes, or refuses them for `reason`.
    ///
    /// Accepting means that all limits are in place. Messages of an earlier incarnation that waited for tokens are
    /// released if their topic has no limit.
    pub fn set_accepting(&mut self, accepting: bool, reason: &str, now: Nanos) {
        self.takes_limited = false;
        if accepting && self.refusal.is_some() {
            self.mqtt.moves.starts_until = now + PATIENCE_NS;
        }
        self.refusal = (!accepting).then(|| reason.into());
        if accepting {
            self.release_restored(now);
        }
    }

    /// Accepts publishes to topics that have a limit, and refuses others for `reason`: a limit may be missing.
    pub fn accept_limited(&mut self, reason: &str) {
        self.refusal = Some(reason.into());
        self.takes_limited = true;
    }

    /// The recorded decisions of a limited topic.
    pub fn trace(&self, topic: &str) -> Option<&Trace> {
        Some(&self.topics.get(self.topic_key(topic)?)?.limiter.as_ref()?.trace)
    }

    /// Identity of a topic's trace: it changes when the topic or its limit is created anew.
    pub fn trace_identity(&self, topic: &str) -> Option<(TopicKey, u64)> {
        Some((self.topic_key(topic)?, self.trace(topic)?.began()))
    }

    /// Arrivals of these topics in the bins from number `since` to before `until`, if there were any. `until` ends at
    /// `now` at the latest.
    pub fn histories(&mut self, topics: &[String], since: i64, until: i64, now: Nanos) -> Vec<TopicBins> {
        let keys: Vec<TopicKey> = topics.iter().filter_map(|name| self.topic_key(name)).collect();
        let bins_of = |key| {
            self.look_at_history(key, until, now);
            let topic = self.topics.get(key)?;
            let limiter = topic.limiter.as_ref()?;
            let bins = limiter.history.between(since, until)?;
            Some(TopicBins { topic: topic.name.to_string(), version: limiter.limit.version, bins })
        };
        keys.into_iter().filter_map(bins_of).collect()
    }

    /// Set the latency that messages of a topic are to have at most; 0: none is promised. Nothing without the topic.
    pub fn set_promise(&mut self, topic: &str, promise: Nanos) {
        if let Some(topic) = self.topic_key(topic).and_then(|key| self.topics.get_mut(key)) {
            topic.promise = promise;
        }
    }

    /// Latencies by buckets, of those of `topics` that exist.
    pub fn latency_buckets(&self, topics: &[String]) -> Vec<TopicBuckets> {
        let there = topics.iter().filter_map(|name| self.topics.get(self.topic_key(name)?));
        let empty = Latency::default();
        there.map(|topic| topic.latency.as_deref().unwrap_or(&empty).buckets(&topic.name, topic.promise)).collect()
    }

    /// A topic's latency as HDR V2 in base64; `None`: no such topic, kind or window, or nothing delivered yet.
    pub fn histogram(&self, topic: &str, kind: &str, window: &str, now: Nanos) -> Option<String> {
        self.topics.get(self.topic_key(topic)?)?.latency.as_ref()?.raw(kind, window, now)
    }
}
