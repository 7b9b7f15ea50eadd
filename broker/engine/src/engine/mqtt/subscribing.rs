//! SUBSCRIBE and UNSUBSCRIBE.

use crate::clients::reply::Reply;
use crate::engine::Engine;
use crate::keys::{ConnKey, SessionKey};
use crate::mqtt::filter_trie::{Place, Subscriber};
use crate::protocol::mqtt::encode;
use crate::protocol::mqtt::packet::{Options, Subscribe, Unsubscribe, Wanted};
use crate::protocol::mqtt::property;
use crate::protocol::mqtt::reason::{Fault, Reason};

/// What a subscription costs besides its packet: its nodes.
const SUBSCRIPTION_UNITS: u32 = 8;

impl Engine {
    pub(crate) fn subscribe_mqtt(
        &mut self,
        key: ConnKey,
        session: SessionKey,
        subscribe: &Subscribe<'_>,
    ) -> Result<(), Fault> {
        let id = subscribe.properties.number(property::SUBSCRIPTION_ID).unwrap_or(0);
        let codes: Vec<Reason> = subscribe.filters().map(|wanted| self.subscribe_one(session, wanted, id)).collect();
        let Some(version) = self.mqtt_client(key).map(|mqtt| mqtt.version) else { return Ok(()) };
        let mut out = Vec::new();
        encode::suback(&mut out, version, subscribe.id, &codes);
        self.turn.replies.push((key, Reply::Raw(out)));
        Ok(())
    }

    /// The QoS that is granted, or why none is.
    fn subscribe_one(&mut self, key: SessionKey, wanted: Wanted<'_>, id: u32) -> Reason {
        self.work.note(SUBSCRIPTION_UNITS);
        let Wanted { filter, options } = wanted;
        if filter.group.is_some() {
            return Reason::SHARED_NOT_SUPPORTED;
        }
        if let Some(place) = self.place_of(key, filter.pattern) {
            if let Some(subscriber) = self.mqtt.filters.get_mut(place) {
                (subscriber.options, subscriber.id) = (options, id); // it takes its place [MQTT-3.8.4-3]
            }
        } else if !self.add_subscription(key, filter.pattern, options, id) {
            return Reason::QUOTA_EXCEEDED;
        }
        Reason(options.qos as u8)
    }

    fn place_of(&self, key: SessionKey, pattern: &str) -> Option<Place> {
        let node = self.mqtt.filters.node_of(pattern)?;
        self.mqtt.sessions.get(key)?.subscriptions.iter().find(|place| place.node == node).copied()
    }

    /// False: the session has as many as it may have.
    fn add_subscription(&mut self, key: SessionKey, pattern: &str, options: Options, id: u32) -> bool {
        let Some(session) = self.mqtt.sessions.get_mut(key) else { return true };
        if session.subscriptions.len() >= self.config.mqtt_max_subscriptions {
            return false;
        }
        let slot = session.subscriptions.len() as u32;
        if slot == 0 {
            session.subscriptions.reserve_exact(1); // most clients have one
        }
        let place = self.mqtt.filters.insert(pattern, Subscriber { session: key, slot, id, options });
        session.subscriptions.push(place);
        true
    }

    pub(crate) fn unsubscribe_mqtt(&mut self, key: ConnKey, session: SessionKey, unsubscribe: &Unsubscribe<'_>) {
        let mut codes = Vec::new();
        for filter in unsubscribe.filters() {
            self.work.note(SUBSCRIPTION_UNITS);
            let place = if filter.group.is_none() { self.place_of(session, filter.pattern) } else { None };
            codes.push(if place.is_some() { Reason::SUCCESS } else { Reason::NO_SUBSCRIPTION_EXISTED });
            if let Some(place) = place {
                self.remove_subscription(session, place);
            }
        }
        let Some(version) = self.mqtt_client(key).map(|mqtt| mqtt.version) else { return };
        let mut out = Vec::new();
        encode::unsuback(&mut out, version, unsubscribe.id, &codes);
        self.turn.replies.push((key, Reply::Raw(out)));
    }

    /// The last ones take the place of what is removed, in the session's list and at the node.
    fn remove_subscription(&mut self, key: SessionKey, place: Place) {
        let Some(slot) = self.mqtt.filters.get(place).map(|subscriber| subscriber.slot) else { return };
        if let Some(moved) = self.mqtt.filters.remove(place)
            && let Some(other) = self.mqtt.sessions.get_mut(moved.session)
        {
            other.subscriptions[moved.slot as usize].position = place.position;
        }
        let Some(session) = self.mqtt.sessions.get_mut(key) else { return };
        session.subscriptions.swap_remove(slot as usize);
        if let Some(moved) = session.subscriptions.get(slot as usize)
            && let Some(subscriber) = self.mqtt.filters.get_mut(*moved)
        {
            subscriber.slot = slot;
        }
    }

    pub(crate) fn unsubscribe_all(&mut self, key: SessionKey) {
        while let Some(place) = self.mqtt.sessions.get(key).and_then(|session| session.subscriptions.last().copied()) {
            self.remove_subscription(key, place);
        }
    }
}
