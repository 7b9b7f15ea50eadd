//! From the bucket to a consumer: released messages fan out to channels, and each channel gives its queue to ready
//! consumers in turn.
//!
//! Imports everything below the engine, and the engine. Begin with `release`, then `deliver_all`; `disk` and `overflow`
//! take what memory does not.

pub mod disk;
pub mod overflow;

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::ops::Range;

use slotmap::SlotMap;
use srtm_limits::state::Now;

use crate::clients::connection::{Connection, Mark};
use crate::engine::Engine;
use crate::engine::mqtt::links::is_wanted;
use crate::keys::{ChannelKey, ConnKey, TopicKey};
use crate::mqtt::managed_names::ManagedNames;
use crate::queueing::channel::{Channel, InFlight};
use crate::queueing::message::Message;
use crate::queueing::queue::Queue;
use crate::scheduling::service_time::ServiceTime;
use crate::scheduling::work_budget::{QUANTUM, TURN_UNITS, message_units};
use crate::time::Nanos;
use crate::timer::{Timer, Timers};

impl Engine {
    /// Releases a message from the bucket.
    pub(crate) fn release(&mut self, key: TopicKey, message: Message, now: Nanos) {
        let Some(topic) = self.topics.get_mut(key) else { return };
        topic.counters.released += 1;
        if let Some(message) = self.server.serve(key, message, &mut self.timers) {
            self.enqueue(key, message, now);
        }
    }

    /// Releases messages of this turn that came together. If all go to one channel's queue, their common state is
    /// looked up once.
    pub(crate) fn release_all(&mut self, key: TopicKey, messages: Range<usize>, now: Nanos) {
        let by_mqtt = |slot: &Option<Message>| slot.as_ref().is_some_and(Message::has_attributes);
        let to_mqtt = !self.mqtt.filters.is_empty() || self.turn.messages[messages.clone()].iter().any(by_mqtt);
        let straight = self.server.is_none() && !to_mqtt;
        let topic = self.topics.get_mut(key).filter(|topic| straight && topic.flows() && topic.queue.is_empty());
        let only = topic.and_then(|topic| if let [only] = topic.channels[..] { Some((topic, only)) } else { None });
        let is_link = |key: ChannelKey| self.channels.get(key).is_some_and(|channel| channel.link.is_some());
        let only = only.filter(|(_, only)| !is_link(*only));
        let Some((topic, only)) = only else {
            for index in messages {
                if let Some(message) = self.turn.messages[index].take() {
                    self.release(key, message, now);
                }
            }
            return;
        };
        topic.counters.released += messages.len() as u64;
        let Some(channel) = self.channels.get_mut(only) else { return };
        for slot in &mut self.turn.messages[messages] {
            let Some(mut message) = slot.take() else { continue };
            message.times.queued = now;
            if let Some(due) = channel.put(message, now) {
                self.timers.arm(&mut channel.armed, due, Timer::Deferred(only));
            }
        }
        self.mark_channel(only);
    }

    /// A released message goes to the topic's channels, or waits in the topic for the first one.
    pub(crate) fn enqueue(&mut self, key: TopicKey, mut message: Message, now: Nanos) {
        let Some(topic) = self.topics.get_mut(key) else { return };
        message.times.queued = now;
        if topic.flows() && topic.queue.is_empty() {
            return self.fan_out(key, message, now);
        }
        let waits = topic.paused || topic.held || !topic.channels.is_empty();
        if waits || !self.is_taken_by_mqtt(key, &message, now) {
            let Some(topic) = self.topics.get_mut(key) else { return };
            topic.queue.push_back(message);
        }
    }

    fn fan_out(&mut self, key: TopicKey, message: Message, now: Nanos) {
        self.route(key, &message, now);
        self.fan.unheard = false;
        let Some(topic) = self.topics.get(key) else { return };
        let Some((&last, others)) = topic.channels.split_last() else { return };
        let mut put = |channel, message| {
            put(
                &mut self.channels,
                &mut self.timers,
                &mut self.schedule.dirty_channels,
                (channel, &topic.name, &self.mqtt.names),
                message,
                now,
            );
        };
        others.iter().for_each(|channel| put(*channel, message.clone()));
        put(last, message);
    }

    /// Moves one portion of a topic's queue to its channels, if it may move; the next follows in the next turn.
    ///
    /// New messages go behind the rest, so a portion is twice as large as one turn's input.
    pub(crate) fn fan_out_queue(&mut self, key: TopicKey, now: Nanos) {
        let is_short = self.memory.messages.used() > self.half_of_memory();
        let Some(topic) = self.topics.get_mut(key).filter(|topic| topic.flows()) else { return };
        // A channel on disk takes no more than it has written: otherwise all messages of the topic would be in memory.
        let any_channel = |has: fn(&Queue) -> bool| {
            topic.channels.iter().any(|key| self.channels.get(*key).is_some_and(|channel| has(&channel.queue)))
        };
        if any_channel(Queue::is_to_be_written) {
            return self.fan_out_later(key);
        }
        // Beyond half of the memory, it takes no more than the disk takes at all; messages on disk here wait for its
        // retry.
        if is_short && topic.queue.backend_len() > 0 && any_channel(Queue::has_unwritten) {
            return;
        }
        if !topic.queue.ready(now) {
            return;
        }
        let most = (TURN_UNITS as usize).div_ceil(topic.channels.len()).max(2 * self.work.units as usize);
        for _ in 0..topic.queue.memory().len().min(most) {
            let Some(message) = self.topics.get_mut(key).and_then(|topic| topic.queue.pop_front()) else { break };
            self.fan_out(key, message, now);
        }
        if self.topics.get(key).is_some_and(|topic| !topic.queue.is_empty()) {
            self.fan_out_later(key);
        }
    }

    /// There may be more to move in the next turn.
    pub(crate) fn fan_out_later(&mut self, key: TopicKey) {
        if let Some(topic) = self.topics.get_mut(key).filter(|topic| !topic.fans_out) {
            topic.fans_out = true;
            self.schedule.fan_out.push(key);
        }
    }

    /// Go on with the topics that have more to move.
    pub(crate) fn fan_out_rest(&mut self, now: Nanos) {
        for key in std::mem::take(&mut self.schedule.fan_out) {
            if let Some(topic) = self.topics.get_mut(key) {
                topic.fans_out = false;
            }
            self.restore_waiting(key, now);
            self.fan_out_queue(key, now);
        }
    }

    /// Releases all of these messages, since their topic's bucket is gone.
    ///
    /// If they could all move at once, they enter the topic's queue in memory and move on in portions.
    pub(crate) fn release_waiting(&mut self, key: TopicKey, messages: impl Iterator<Item = Message>, now: Nanos) {
        let straight = self.server.is_none();
        let Some(topic) = self.topics.get_mut(key).filter(|topic| straight && topic.flows() && topic.queue.can_keep())
        else {
            return messages.for_each(|message| self.release(key, message, now));
        };
        for mut message in messages {
            message.times.queued = now;
            topic.counters.released += 1;
            topic.queue.keep_back(message);
        }
        self.fan_out_queue(key, now);
    }

    /// Releases messages due by `now`, and arms the timer of the next.
    pub(crate) fn release_due(&mut self, key: TopicKey, now: Nanos) {
        self.release_until(key, now, now);
        self.arm_release(key);
    }

    /// Releases messages due by `until`. This must precede the decision of an arrival, or the bucket's cap would apply
    /// too late.
    pub(crate) fn release_until(&mut self, key: TopicKey, until: Nanos, now: Nanos) {
        let boot_now = self.clock.boot(now);
        while let Some(limiter) = self.topics.get_mut(key).and_then(|topic| topic.limiter.as_mut()) {
            if limiter.is_over(boot_now) {
                return self.lapse(key, now);
            }
            let Some(message) = limiter.release_due(until, now) else { break };
            self.release(key, message, now);
        }
    }

    pub(crate) fn arm_release(&mut self, key: TopicKey) {
        let Some(topic) = self.topics.get_mut(key) else { return };
        if let Some(due) = topic.limiter.as_ref().and_then(|limiter| limiter.backlog.next_due()) {
            self.timers.arm(&mut topic.armed, due, Timer::Release(key));
        }
    }

    /// Deliver from the channels that have something new, round after round, a quantum each, as much as the commands of
    /// the turn have cost and a turn's budget more: consumers keep up with publishers. Who did not come is first in the
    /// next turn.
    pub(crate) fn deliver_all(&mut self, now: Nanos) {
        let mut left = TURN_UNITS.saturating_add(self.work.units);
        while left > 0
            && let Some(key) = self.schedule.dirty_channels.pop_front()
        {
            left = left.saturating_sub(self.deliver(key, now));
        }
    }

    /// Give a channel's queue to its ready consumers in turn, until one or the other is empty, or that has come to a
    /// quantum: then the channel is marked again. Gives the units.
    fn deliver(&mut self, key: ChannelKey, now: Nanos) -> u32 {
        let Some(channel) = self.channels.get_mut(key) else { return 0 };
        channel.dirty = false;
        // A topic that is held may have to be told yet that this channel is paused.
        let Some(topic) = self.topics.get(channel.topic).filter(|topic| !channel.paused && !topic.held) else {
            return 0;
        };
        let terms = topic.contracts.as_deref();
        let clocks = Now { mono: now, wall: self.clock.wall(now) };
        self.work.note_topic(channel.topic);
        let mut units = 0;
        let ample = self.config.max_memory_bytes / 4 * 3; // the rest is for what is published
        while !channel.ready.is_empty() && channel.has_next(self.memory.messages.used() > ample, now) {
            if units >= QUANTUM {
                channel.dirty = true;
                self.schedule.dirty_channels.push_back(key);
                break;
            }
            let aware = self.config.topology_aware;
            let next = if aware { pop_nearest(&mut channel.ready, &self.conns) } else { channel.ready.pop_front() };
            let Some(consumer) = next else { break };
            let Some(conn) = self.conns.get_mut(consumer) else { continue };
            let ready = conn.is_ready();
            let timeout_ns = conn.identity().msg_timeout_ms as Nanos * 1_000_000;
            let sample_rate = conn.identity().sample_rate;
            let Some(sub) = conn.subscription.as_mut() else { continue };
            sub.listed = false;
            if !ready {
                continue;
            }
            // What a link carries is for MQTT's subscribers: the broker that they are at holds them.
            if let Some(terms) = terms.filter(|_| !conn.terms.linked)
                && !Self::has_allowance(&mut self.contracts, &mut self.timers, terms, (consumer, conn), clocks)
            {
                continue;
            }
            let Some(sub) = conn.subscription.as_mut() else { continue };
            let Some(mut message) = channel.queue.pop_front() else { break };
            // A kill may leave a message both in its topic and in its channel: the copy in flight counts for both.
            if let Entry::Vacant(in_flight) = channel.in_flight.entry(message.id)
                && (sample_rate == 0 || draw_percent(&mut self.sampler) <= sample_rate)
            {
                units += message_units(message.body_len());
                message.attempts = message.attempts.saturating_add(1);
                let deadline = now + timeout_ns;
                sub.in_flight += 1;
                sub.messages += 1;
                if aware {
                    channel.counters.deliveries.record(sub.nearness);
                }
                sub.push_deadline(deadline, message.id);
                self.timers.arm(&mut sub.armed, deadline, Timer::MessageTimeout(consumer));
                let mark = (message.attempts == 1 && !message.foreign).then(|| Mark::of(channel.topic, &message, now));
                if conn.terms.linked {
                    let topic_name = self.topics.get(channel.topic).map_or("", |topic| &topic.name);
                    Self::deliver_linked(conn, self.mqtt.names.name_of(topic_name), &message, mark, now);
                } else {
                    conn.deliver(&message, mark);
                }
                in_flight.insert(InFlight { message, owner: consumer, delivered: now, deadline });
                if !conn.dirty {
                    conn.dirty = true;
                    self.schedule.dirty_conns.push(consumer);
                }
            } else {
                units += 1; // no credit of the consumer's ends these
            }
            let ready = conn.is_ready();
            if let Some(sub) = conn.subscription.as_mut().filter(|_| ready) {
                sub.listed = true;
                channel.ready.push_back(consumer);
            }
        }
        units
    }

    /// A consumer that may have got credit or room joins its channel's ring.
    pub(crate) fn list_if_ready(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.is_ready()) else { return };
        let Some(sub) = conn.subscription.as_mut().filter(|sub| !sub.listed) else { return };
        sub.listed = true;
        let channel_key = sub.channel;
        if let Some(channel) = self.channels.get_mut(channel_key) {
            channel.ready.push_back(key);
            if !channel.queue.is_empty() {
                self.mark_channel(channel_key);
            }
        }
    }

    pub(crate) fn mark_channel(&mut self, key: ChannelKey) {
        if let Some(channel) = self.channels.get_mut(key).filter(|channel| !channel.dirty) {
            channel.dirty = true;
            self.schedule.dirty_channels.push_back(key);
        }
    }

    pub(crate) fn mark_dirty(&mut self, key: ConnKey) {
        if let Some(conn) = self.conns.get_mut(key).filter(|conn| !conn.dirty) {
            conn.dirty = true;
            self.schedule.dirty_conns.push(key);
        }
    }
}

fn put(
    channels: &mut SlotMap<ChannelKey, Channel>,
    timers: &mut Timers,
    dirty: &mut VecDeque<ChannelKey>,
    (key, topic_name, names): (ChannelKey, &str, &ManagedNames),
    message: Message,
    now: Nanos,
) {
    let Some(channel) = channels.get_mut(key).filter(|channel| is_wanted(channel, topic_name, names, &message)) else {
        return;
    };
    if let Some(due) = channel.put(message, now) {
        timers.arm(&mut channel.armed, due, Timer::Deferred(key));
    }
    if !channel.dirty {
        channel.dirty = true;
        dirty.push_back(key);
    }
}

/// A number from 0 to 99 (xorshift64*) for `sample_rate`; it need not be unpredictable.
fn draw_percent(state: &mut u64) -> u8 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    ((state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % 100) as u8
}

/// Takes the nearest ready consumer of a channel's ring, the longest waiting first; without one, the head of the ring.
pub fn pop_nearest(ring: &mut VecDeque<ConnKey>, conns: &SlotMap<ConnKey, Connection>) -> Option<ConnKey> {
    let nearness = |key: &ConnKey| {
        let conn = conns.get(*key).filter(|conn| conn.is_ready())?;
        conn.subscription.as_ref().map(|sub| sub.nearness)
    };
    let ready = ring.iter().enumerate().filter_map(|(at, key)| Some((nearness(key)?, at)));
    let nearest = ready.min().map_or(0, |(_, at)| at);
    ring.remove(nearest)
}
