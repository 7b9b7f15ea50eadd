//! The way of a released message to MQTT's subscribers: whom it goes to, and the bytes that all of them share.
//!
//! A message is encoded once for each form that its subscribers need: version, QoS, retain. A subscriber of QoS 0 gets
//! a copy into its output, or none while it leaves too much unread. The others get it through their session.

use std::rc::Rc;

use crate::clients::connection::Mark;
use crate::config::FullSession;
use crate::engine::Engine;
use crate::keys::{SessionKey, TallyKey, TopicKey};
use crate::mqtt::elsewhere::link_peers::way_of;
use crate::mqtt::filter_trie::Who;
use crate::mqtt::forms::{Fan, Forms, Heading, Once, Target};
use crate::mqtt::outgoing::Outgoing;
use crate::mqtt::session::Session;
use crate::protocol::access::Object;
use crate::protocol::mqtt::attributes::Attributes;
use crate::protocol::mqtt::packet::Qos;
use crate::queueing::message::{Alone, Message};
use crate::queueing::queue::Queue;
use crate::scheduling::client_limits::Limit;
use crate::scheduling::work_budget::message_units;
use crate::time::Nanos;

impl Engine {
    /// Gives a released message to the subscribers of its name, and retains it if it says so. False: nobody wants it.
    pub(crate) fn route(&mut self, topic: TopicKey, message: &Message, now: Nanos) -> bool {
        if self.mqtt.filters.is_empty() && self.mqtt.peers.groups.is_empty() && !message.has_attributes() {
            self.fan.unheard = true;
            return false;
        }
        let mut fan = std::mem::take(&mut self.fan);
        let of_topic = || self.topics.get(topic).map(|topic| topic.name.clone()).unwrap_or_default();
        let topic_name = fan.linked.clone().unwrap_or_else(of_topic);
        let is_nsqs = !message.has_attributes();
        let said: Box<str> = if is_nsqs { self.mqtt.names.name_of(&topic_name).into() } else { Box::default() };
        let heard = match Heading::of(message, &said, self.clock.wall(now)) {
            None => {
                self.mqtt.counters.expired += 1;
                false
            }
            Some(heading) => {
                if heading.retain && fan.linked.is_none() {
                    self.retain(heading.name, message, now);
                }
                let heard = self.find_targets(&mut fan, &heading, &topic_name);
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
        self.route(topic, message, now) || message.has_attributes()
    }

    /// Of messages in memory that waited in a topic without channels, those go that MQTT takes.
    pub(crate) fn route_waiting(&mut self, key: TopicKey, now: Nanos) {
        let waiting = self.topics.get(key).filter(|topic| !topic.paused && !topic.held && topic.channels.is_empty());
        let mut kept = Vec::new();
        for _ in 0..waiting.map_or(0, |topic| topic.queue.memory().len()) {
            let Some(message) = self.topics.get_mut(key).and_then(|topic| topic.queue.pop_front()) else { break };
            if !self.is_taken_by_mqtt(key, &message, now) {
                kept.push(message);
            }
        }
        let Some(topic) = self.topics.get_mut(key) else { return };
        kept.into_iter().rev().for_each(|message| topic.queue.push_front(message));
    }

    /// The sessions whose subscriptions match, each once: overlapping ones give one copy of the highest QoS, with all
    /// their identifiers (section 3.3.4). Each group is one of its own. False: no subscription matches.
    fn find_targets(&mut self, fan: &mut Fan, heading: &Heading<'_>, topic: &str) -> bool {
        let of_topic = if topic == self.config.mqtt_topic { heading.name } else { topic };
        let object = Object { name: heading.name, topic: of_topic };
        let Fan { found, targets, groups, number, tally, .. } = fan;
        found.clear();
        targets.clear();
        groups.clear();
        *number += 1;
        let heard = self.mqtt.filters.matching(heading.name, found) > 0;
        if heard {
            *tally = self.mqtt.tally.key_of(topic);
        }
        let subscriptions = found.len();
        for subscriber in found.drain(..) {
            let key = match subscriber.who {
                Who::Session(key) => key,
                Who::Group(key) => {
                    groups.push(key);
                    continue;
                }
            };
            let Some(session) = self.mqtt.sessions.get_mut(key) else { continue };
            let options = subscriber.options;
            if options.no_local && session.origin == heading.origin || !session.may_read(object) {
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
            targets.push(Target { session: key, qos, retain, ids, group: None, topic: *tally });
        }
        self.work.note((subscriptions - targets.len() - groups.len()) as u32); // each of those is charged for itself
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
        if fan.linked.is_some() {
            // Its own broker has chosen a member for each group, or this broker's group.
            fan.groups.clear();
            if !heading.group.is_empty() {
                fan.targets.clear();
                match self.mqtt.by_group.get(heading.group) {
                    Some(group) => fan.groups.push(*group),
                    None => self.share_on(heading.group, message, now),
                }
            }
        } else if !self.mqtt.peers.groups.is_empty() {
            self.share_with_others(&mut fan.groups, topic, message, heading, now);
        }
        let mark = (message.attempts == 0 && !message.foreign).then(|| Mark::of(topic, message, now));
        let governs = match &fan.linked {
            Some(name) => self.topic_key(name),
            None => Some(topic),
        };
        let is_free = !self.holds_subscribers(governs);
        let mut kept: Option<Message> = None; // with its name, for sessions and groups
        let targets = (fan.targets.len() + fan.groups.len()) as u32;
        fan.went_to = Some(targets);
        self.work.note(message_units(message.body_len()).saturating_mul(targets));
        // Of a message that came by a link, one delivery of each class counts: many sessions here would outweigh
        // others.
        let mut sampled = [way_of(message.times.trace).is_none(); 3];
        for target in fan.targets.drain(..) {
            let is_sampled = fan.linked.is_none() || !std::mem::replace(&mut sampled[self.class_of(&target)], true);
            let mark = mark.filter(|_| is_sampled);
            if target.qos == Qos::AtMostOnce && (is_free || !self.takes_deliveries(target.session)) {
                self.deliver_mqtt(&mut fan.forms, &target, heading, message.body(), None, mark);
                continue;
            }
            let mut kept = self.named(&mut kept, message, heading);
            kept.foreign |= !is_sampled;
            self.give_to_session(&mut fan.forms, &target, heading, kept, (governs, mark), now);
        }
        for group in fan.groups.drain(..) {
            let kept = self.named(&mut kept, message, heading);
            self.give_to_group(&mut fan.forms, group, kept, fan.tally, now);
        }
    }

    /// QoS 0; a session that ends with its connection; one that does not.
    fn class_of(&self, target: &Target) -> usize {
        let is_durable = || self.mqtt.sessions.get(target.session).is_some_and(Session::is_durable);
        if target.qos == Qos::AtMostOnce { 0 } else { 1 + usize::from(is_durable()) }
    }

    /// The message with its name, as a session keeps it: made once.
    fn named(&mut self, made: &mut Option<Message>, message: &Message, heading: &Heading<'_>) -> Message {
        if message.has_attributes() {
            return message.clone();
        }
        if let Some(made) = made {
            return made.clone();
        }
        let attributes = Attributes {
            origin: heading.origin,
            expires_wall_ns: 0,
            qos: heading.qos,
            retain: heading.retain,
            name: heading.name,
            group: "",
            properties: heading.properties,
        };
        let mut bytes = Vec::new();
        attributes.encode(&mut bytes);
        let alone = Alone { id: message.id, wall_ns: message.wall_ns(), attributes: &bytes, body: message.body() };
        let mut named = self.builder.alone(&self.memory.messages, alone, message.times.arrival, 0);
        (named.times, named.foreign) = (message.times, message.foreign);
        made.insert(named).clone()
    }

    fn give_to_session(
        &mut self,
        forms: &mut Forms,
        target: &Target,
        heading: &Heading<'_>,
        message: Message,
        (topic, mark): (Option<TopicKey>, Option<Mark>),
        now: Nanos,
    ) {
        let is_kept = target.qos != Qos::AtMostOnce;
        let has_no_place = |outgoing: &Outgoing| is_kept && (outgoing.is_on_disk || !outgoing.has_room());
        let waits = |outgoing: &Outgoing| !outgoing.queue.is_empty() || has_no_place(outgoing);
        let Some(message) = self.hold_for_arriving(target.session, message) else { return };
        let Some(session) = self.mqtt.sessions.get(target.session) else { return };
        let is_next = !session.outgoing.as_ref().is_some_and(|outgoing| waits(outgoing));
        if is_next && self.takes_deliveries(target.session) && self.may_have(target.session, topic, now) {
            if is_kept {
                self.tally_given(target.session, target.topic);
            }
            let body = message.clone();
            let kept = is_kept.then_some(message);
            return self.deliver_mqtt(forms, target, heading, body.body(), kept, mark);
        }
        self.owe(target.session, message, target.topic);
    }

    /// Puts a message behind all that a session is owed, if it has room for it.
    pub(crate) fn owe(&mut self, key: SessionKey, message: Message, topic: TallyKey) {
        let (most, cost) = (self.config.mqtt_max_queued, message.cost());
        let outgoing = self.outgoing_of(key);
        let full = outgoing.and_then(|outgoing| met_limit(&outgoing.queue, outgoing.waiting(), most, cost));
        let is_kept = || self.mqtt.sessions.get(key).is_some_and(Session::is_durable) && self.was_admitted(&message);
        let Some(limit) = full.filter(|_| !is_kept()) else {
            self.put_last(key, message, topic);
            return self.list_owing(key);
        };
        let Some(session) = self.mqtt.sessions.get_mut(key) else { return };
        session.seldom().dropped += 1;
        let client = Rc::clone(&session.client_id);
        self.limits.note(limit, &client);
        self.mqtt.drop_for_full(topic, &client);
    }

    /// Whether there was room for a message when it came, as its publisher knows: it is not dropped for want of it,
    /// even if others have come before it meanwhile.
    pub(crate) fn was_admitted(&self, message: &Message) -> bool {
        if self.config.mqtt_full_session == FullSession::Drop || way_of(message.times.trace).is_some() {
            return false;
        }
        let attributes = Attributes::decode(message.attributes());
        attributes.is_some_and(|known| known.origin != 0 && known.qos != Qos::AtMostOnce)
    }

    /// A session is given a message, which waits behind all that it is owed.
    pub(crate) fn put_last(&mut self, key: SessionKey, message: Message, topic: TallyKey) {
        self.tally_given(key, topic);
        let outgoing = self.mqtt.sessions.get_mut(key).and_then(|session| session.outgoing.as_mut());
        let Some(outgoing) = outgoing else { return };
        outgoing.queue.push_back(message);
        self.mqtt.tally.wait(&mut outgoing.owed, topic);
    }

    /// A message that had left the queue of a session is the next one again.
    pub(crate) fn put_first(&mut self, key: SessionKey, message: Message, topic: TallyKey) {
        let outgoing = self.mqtt.sessions.get_mut(key).and_then(|session| session.outgoing.as_mut());
        let Some(outgoing) = outgoing else { return };
        outgoing.queue.push_front(message);
        self.mqtt.tally.wait(&mut outgoing.owed, topic);
    }

    /// A session is given a message of QoS 1 or 2.
    pub(crate) fn tally_given(&mut self, key: SessionKey, topic: TallyKey) {
        let Some(session) = self.mqtt.sessions.get_mut(key) else { return };
        let outgoing = session.outgoing_in(|| self.memory.stock(self.config.max_memory_bytes));
        self.mqtt.tally.give(&mut outgoing.owed, topic);
    }

    /// What a session is owed, from the first time on.
    pub(crate) fn outgoing_of(&mut self, key: SessionKey) -> Option<&mut Outgoing> {
        let session = self.mqtt.sessions.get_mut(key)?;
        Some(session.outgoing_in(|| self.memory.stock(self.config.max_memory_bytes)))
    }

    /// Whether a session has a connection that has room for more.
    pub(crate) fn takes_deliveries(&self, key: SessionKey) -> bool {
        let conn = self.mqtt.sessions.get(key).and_then(|session| self.conns.get(session.conn?));
        conn.is_some_and(|conn| conn.mqtt.is_some() && conn.takes_deliveries())
    }

    /// Writes a message to its subscriber, or drops it: it is of QoS 0 and there is no room, or it is longer than the
    /// client takes [MQTT-3.1.2-25]. `kept`: for QoS 1 and 2, until it is acknowledged.
    pub(crate) fn deliver_mqtt(
        &mut self,
        forms: &mut Forms,
        target: &Target,
        heading: &Heading<'_>,
        payload: &[u8],
        kept: Option<Message>,
        mark: Option<Mark>,
    ) {
        let Some(session) = self.mqtt.sessions.get_mut(target.session) else { return };
        let Some((key, conn)) = session.conn.and_then(|key| Some((key, self.conns.get_mut(key)?))) else { return };
        let is_full = kept.is_none() && !conn.takes_deliveries();
        let Some(mqtt) = conn.mqtt.as_mut().filter(|_| !is_full) else {
            session.seldom().dropped += 1;
            self.mqtt.count_drop(target.topic);
            return;
        };
        let (version, most) = (mqtt.version, mqtt.longest_packet as usize);
        let (bytes, id_at) = match mqtt.alias_for(heading.name) {
            None => forms.get(version, heading, target, payload),
            alias => {
                let form = forms.make(version, heading, target, payload, Once { dup: false, alias });
                forms.bytes(form)
            }
        };
        if bytes.len() > most {
            session.seldom().dropped += 1;
            self.mqtt.count_drop(target.topic);
            return;
        }
        let id = kept.map(|message| {
            let outgoing = session.outgoing_in(|| self.memory.stock(self.config.max_memory_bytes));
            self.mqtt.tally.begin_flight(target.topic);
            (id_at, outgoing.begin(message, target))
        });
        conn.deliver_bytes(bytes, id, mark);
        let counters = &mut self.mqtt.counters;
        counters.delivered += 1;
        counters.packets_out += 1;
        counters.bytes_out += payload.len() as u64;
        self.mark_dirty(key);
    }

    /// The topic that a message counts for by its name.
    pub(crate) fn tally_of(&self, message: &Message) -> TallyKey {
        let name = Attributes::decode(message.attributes()).map_or("", |attributes| attributes.name);
        self.mqtt.tally.find(self.topic_of_name(name))
    }

    /// The same of a message that came from another broker: its topic gets a key if it has none.
    pub(crate) fn tally_key_of(&mut self, message: &Message) -> TallyKey {
        let name = Attributes::decode(message.attributes()).map_or("", |attributes| attributes.name);
        let topic = self.topic_of_name(name).to_owned();
        self.mqtt.tally.key_of(&topic)
    }

    /// A delivery of a message that waited, as its topic's latency counts it.
    pub(crate) fn mark_of_name(&self, name: &str, message: &Message, now: Nanos) -> Option<Mark> {
        if way_of(message.times.trace).is_some() {
            return (!message.foreign).then(|| Mark::of(TopicKey::default(), message, now));
        }
        let topic = self.topic_key(self.topic_of_name(name)).filter(|_| !message.foreign)?;
        Some(Mark::of(topic, message, now))
    }
}

/// Why a message of this cost has no room in the queue of a session or a group, of which so many wait and `most` may.
pub(crate) fn met_limit(queue: &Queue, waiting: usize, most: usize, cost: u64) -> Option<Limit> {
    if waiting >= most {
        return Some(Limit::QueuedMessages);
    }
    (!queue.has_room_for(cost)).then_some(Limit::QueuedBytes)
}
