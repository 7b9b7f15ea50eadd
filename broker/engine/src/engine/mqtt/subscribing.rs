//! SUBSCRIBE and UNSUBSCRIBE.

use std::rc::Rc;

use crate::clients::reply::Reply;
use crate::engine::Engine;
use crate::keys::{ConnKey, GroupKey, SessionKey};
use crate::mqtt::elsewhere::interest::Subscribed;
use crate::mqtt::filter_trie::{Place, Subscriber, Who};
use crate::mqtt::group::Member;
use crate::mqtt::reporting::denials::Action;
use crate::mqtt::retained::Replay;
use crate::protocol::mqtt::encode;
use crate::protocol::mqtt::packet::{Options, RetainHandling, Subscribe, Unsubscribe, Wanted};
use crate::protocol::mqtt::property;
use crate::protocol::mqtt::reason::{Fault, Reason};
use crate::queueing::disk_ticket::Owner;
use crate::time::Nanos;

/// What a subscription costs besides its packet: its nodes.
const SUBSCRIPTION_UNITS: u32 = 8;

impl Engine {
    pub(crate) fn subscribe_mqtt(
        &mut self,
        key: ConnKey,
        session: SessionKey,
        subscribe: &Subscribe<'_>,
        now: Nanos,
    ) -> Result<(), Fault> {
        let id = subscribe.properties.number(property::SUBSCRIPTION_ID).unwrap_or(0);
        let Some((version, is_bridge)) = self.mqtt_client(key).map(|mqtt| (mqtt.version, mqtt.is_bridge)) else {
            return Ok(());
        };
        let (mut codes, mut replays) = (Vec::new(), Vec::new());
        for mut wanted in subscribe.filters() {
            wanted.options.no_local |= is_bridge;
            wanted.options.retain_as_published |= is_bridge;
            codes.push(self.subscribe_one(session, wanted, id, &mut replays));
        }
        self.note_session(session);
        let mut out = Vec::new();
        encode::suback(&mut out, version, subscribe.id, &codes);
        self.answer_subscribe(Subscribed { conn: key, session, answer: out, replays }, now);
        Ok(())
    }

    /// The QoS that is granted, or why none is.
    fn subscribe_one(&mut self, key: SessionKey, wanted: Wanted<'_>, id: u32, replays: &mut Vec<Replay>) -> Reason {
        self.work.note(SUBSCRIPTION_UNITS);
        let Wanted { filter, options } = wanted;
        let object = self.object_of(filter.pattern);
        if self.mqtt.sessions.get(key).is_some_and(|session| !session.may_subscribe(filter, object)) {
            let client = self.mqtt.sessions.get(key).map(|session| session.client_id.clone()).unwrap_or_default();
            self.deny(Action::Subscribe, &client, filter.pattern);
            return Reason::UNSPECIFIED; // Eclipse Paho's clients of the suite take no other refusal
        }
        if !filter.pattern.contains(['+', '#']) && self.is_foreign_name(filter.pattern) {
            let client = self.mqtt.sessions.get(key).map(|session| session.client_id.clone()).unwrap_or_default();
            self.deny(Action::SubscribeUnmanaged, &client, filter.pattern);
            return Reason::NOT_AUTHORIZED;
        }
        if let Some(group) = filter.group {
            if self.is_group_too_many(&shared_name(group, filter.pattern)) {
                return Reason::QUOTA_EXCEEDED;
            }
            return self.join(key, group, filter.pattern, options, id);
        }
        let is_new = self.place_of(key, filter.pattern).is_none();
        if let Some(place) = self.place_of(key, filter.pattern) {
            if let Some(subscriber) = self.mqtt.filters.get_mut(place) {
                (subscriber.options, subscriber.id) = (options, id); // it takes its place [MQTT-3.8.4-3]
            }
        } else if !self.add_subscription(key, filter.pattern, options, id) {
            return Reason::QUOTA_EXCEEDED;
        }
        let wants_retained = match options.retain_handling {
            RetainHandling::Always => true,
            RetainHandling::IfNew => is_new,
            RetainHandling::Never => false,
        };
        replays.extend(wants_retained.then(|| Replay::new(filter.pattern, options, id)));
        Reason(options.qos as u8)
    }

    /// A shared subscription: the session becomes a member of the group, which its first member makes.
    pub(crate) fn join(&mut self, key: SessionKey, name: &str, pattern: &str, options: Options, id: u32) -> Reason {
        let most = self.config.mqtt_max_subscriptions;
        let name = shared_name(name, pattern);
        let Some(session) = self.mqtt.sessions.get_mut(key) else { return Reason::UNSPECIFIED };
        let member = Member { session: key, id, options };
        let known = self.mqtt.by_group.get(&*name).copied();
        if let Some(group) = known.and_then(|group| self.mqtt.groups.get_mut(group))
            && let Some(at) = group.position(key)
        {
            group.members[at] = member;
            return Reason(options.qos as u8);
        }
        if session.subscriptions.len() + session.groups().len() >= most {
            return Reason::QUOTA_EXCEEDED;
        }
        let stock = self.new_stock();
        let group = known.unwrap_or_else(|| self.mqtt.add_group(&name, pattern, stock));
        let (session, of_group) = (self.mqtt.sessions.get_mut(key), self.mqtt.groups.get_mut(group));
        session.into_iter().for_each(|session| session.seldom().groups.push(group));
        of_group.into_iter().for_each(|of_group| of_group.members.push_back(member));
        self.keep_group_on_disk(group);
        self.note_member(key);
        self.list_owing(key);
        Reason(options.qos as u8)
    }

    /// A session leaves a group; the last one ends it, with what it has, unless a topic file declares it.
    fn leave_group(&mut self, key: SessionKey, group_key: GroupKey) {
        self.note_member(key);
        if let Some(session) = self.mqtt.sessions.get_mut(key)
            && let Some(seldom) = &mut session.seldom
        {
            seldom.groups.retain(|other| *other != group_key);
            session.tidy();
        }
        let Some(group) = self.mqtt.groups.get_mut(group_key) else { return };
        group.members.retain(|member| member.session != key);
        self.end_unused_group(group_key);
        self.list_lending();
    }

    /// Ends a group if it has no members and no topic file declares it. What waits for it is dropped, and counted.
    pub(crate) fn end_unused_group(&mut self, key: GroupKey) {
        let group = self.mqtt.groups.get(key).filter(|group| group.members.is_empty() && !group.is_declared);
        let Some(place) = group.map(|group| group.place) else { return };
        if self.mqtt.uncounted.contains(&Owner::Group(key)) {
            self.count_restored();
        }
        if let Some(mut group) = self.mqtt.groups.remove(key) {
            self.mqtt.by_group.remove(&group.name);
            for (topic, count) in self.mqtt.tally.end_shared(&group.owed, &group.counts) {
                self.mqtt.drop_with_group(topic, &group.name, count);
            }
            group.queue.clear();
        }
        self.remove_from_filters(place);
    }

    /// What was in flight to a member that has left goes to others at once, in front of the rest.
    pub(crate) fn give_back_shared(&mut self, key: SessionKey, now: Nanos) {
        let Some(session) = self.mqtt.sessions.get_mut(key) else { return };
        let taken = session.outgoing.as_mut().map(|outgoing| outgoing.take_shared()).unwrap_or_default();
        let client = Rc::clone(&session.client_id);
        let mut groups = Vec::new();
        for (group_key, message, topic) in taken.into_iter().rev() {
            self.mqtt.tally.end_flight(topic);
            let Some(group) = self.mqtt.groups.get_mut(group_key) else {
                let topic = self.tally_key_of(&message);
                self.mqtt.drop_with_group(topic, &client, 1); // its group ended when this client unsubscribed
                continue;
            };
            group.queue.push_front(message);
            self.mqtt.tally.wait(&mut group.owed, topic);
            groups.push(group_key);
        }
        groups.dedup();
        if groups.is_empty() {
            return;
        }
        let mut forms = std::mem::take(&mut self.fan.forms);
        groups.into_iter().for_each(|group| _ = self.send_shared(&mut forms, group, now));
        self.fan.forms = forms;
        self.list_lending();
    }

    pub(crate) fn place_of(&self, key: SessionKey, pattern: &str) -> Option<Place> {
        let node = self.mqtt.filters.node_of(pattern)?;
        self.mqtt.sessions.get(key)?.subscriptions.iter().find(|place| place.node == node).copied()
    }

    /// False: the session has as many as it may have.
    pub(crate) fn add_subscription(&mut self, key: SessionKey, pattern: &str, options: Options, id: u32) -> bool {
        let Some(session) = self.mqtt.sessions.get_mut(key) else { return true };
        if session.subscriptions.len() >= self.config.mqtt_max_subscriptions {
            return false;
        }
        let known = self.mqtt.filters.node_of(pattern);
        let is_first = !known.is_some_and(|node| self.mqtt.filters.has(node, Subscriber::is_session));
        let slot = session.subscriptions.len() as u32;
        if slot == 0 {
            session.subscriptions.reserve_exact(1); // most clients have one
        }
        let place = self.mqtt.filters.insert(pattern, Subscriber { who: Who::Session(key), slot, id, options });
        session.subscriptions.push(place);
        self.note_interest(key, pattern, is_first);
        true
    }

    pub(crate) fn unsubscribe_mqtt(&mut self, key: ConnKey, session: SessionKey, unsubscribe: &Unsubscribe<'_>) {
        let mut codes = Vec::new();
        for filter in unsubscribe.filters() {
            self.work.note(SUBSCRIPTION_UNITS);
            self.mqtt.interest.forget_replays(session, filter.pattern);
            let replays = self.mqtt.sessions.get_mut(session).and_then(|session| session.replays());
            replays.into_iter().for_each(|replays| replays.retain(|replay| *replay.pattern != *filter.pattern));
            let is_gone = match filter.group {
                None => self.place_of(session, filter.pattern).map(|place| self.remove_subscription(session, place)),
                Some(name) => self.group_of(session, name, filter.pattern).map(|key| self.leave_group(session, key)),
            };
            codes.push(if is_gone.is_some() { Reason::SUCCESS } else { Reason::NO_SUBSCRIPTION_EXISTED });
        }
        self.note_session(session);
        let Some(version) = self.mqtt_client(key).map(|mqtt| mqtt.version) else { return };
        let mut out = Vec::new();
        encode::unsuback(&mut out, version, unsubscribe.id, &codes);
        self.turn.replies.push((key, Reply::Raw(out)));
    }

    /// The last ones take the place of what is removed, in the session's list and at the node.
    fn remove_subscription(&mut self, key: SessionKey, place: Place) {
        let Some(slot) = self.mqtt.filters.get(place).map(|subscriber| subscriber.slot) else { return };
        self.remove_from_filters(place);
        let Some(session) = self.mqtt.sessions.get_mut(key) else { return };
        session.subscriptions.swap_remove(slot as usize);
        if let Some(moved) = session.subscriptions.get(slot as usize)
            && let Some(subscriber) = self.mqtt.filters.get_mut(*moved)
        {
            subscriber.slot = slot;
        }
    }

    fn remove_from_filters(&mut self, place: Place) {
        let is_session = self.mqtt.filters.get(place).is_some_and(Subscriber::is_session);
        let pattern = (is_session && self.mqtt.interest.is_shared).then(|| self.mqtt.filters.pattern(place.node));
        let moved = self.mqtt.filters.remove(place);
        pattern.into_iter().for_each(|pattern| self.lose_interest(&pattern));
        let Some(moved) = moved else { return };
        let moved_place = match moved.who {
            Who::Session(key) => {
                self.mqtt.sessions.get_mut(key).map(|session| &mut session.subscriptions[moved.slot as usize])
            }
            Who::Group(key) => self.mqtt.groups.get_mut(key).map(|group| &mut group.place),
        };
        moved_place.into_iter().for_each(|moved| moved.position = place.position);
    }

    /// The group of that name, if the session is a member.
    fn group_of(&self, session: SessionKey, name: &str, pattern: &str) -> Option<GroupKey> {
        let key = self.mqtt.by_group.get(&*shared_name(name, pattern)).copied()?;
        self.mqtt.groups.get(key)?.position(session).map(|_| key)
    }

    pub(crate) fn unsubscribe_all(&mut self, key: SessionKey) {
        while let Some(place) = self.mqtt.sessions.get(key).and_then(|session| session.subscriptions.last().copied()) {
            self.remove_subscription(key, place);
        }
        let groups = self.mqtt.sessions.get(key).map_or(Vec::new(), |session| session.groups().to_vec());
        groups.into_iter().for_each(|group| self.leave_group(key, group));
    }
}

fn shared_name(name: &str, pattern: &str) -> String {
    format!("$share/{name}/{pattern}")
}
