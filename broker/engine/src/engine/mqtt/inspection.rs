//! What operators see of MQTT's sessions and retained messages, and which of them they end.
//!
//! Each call visits a bounded number, so that no message waits long; `io::handle` goes on until all are seen.

use serde::Serialize;

use crate::engine::Engine;
use crate::keys::SessionKey;
use crate::mqtt::elsewhere::link_peers::LinkWay;
use crate::mqtt::retained::{Found, Replay};
use crate::mqtt::session::NEVER_EXPIRES;
use crate::mqtt::topic_tally::Held;
use crate::protocol::mqtt::attributes::Attributes;
use crate::protocol::mqtt::packet::Options;
use crate::protocol::mqtt::reason::Reason;
use crate::protocol::mqtt::version::Version;
use crate::queueing::disk_ticket::Owner;
use crate::telemetry::latency::Summaries;
use crate::time::{NS_PER_S, Nanos};

#[derive(Debug, Serialize)]
pub struct SessionView {
    pub client_id: String,
    connected: bool,
    address: String,       // of its connection; "": none
    version: &'static str, // likewise
    subscriptions: usize,
    filters: Vec<String>, // if they were asked for
    queued: usize,
    in_flight: usize,
    unreleased: usize, // publishes of QoS 2 whose PUBREL is awaited
    dropped: u64,
    expiry_s: Option<u32>,    // after its connection; None: never
    ends_in_s: Option<Nanos>, // without a connection
    has_will: bool,
}

#[derive(Debug, Serialize)]
pub struct RetainedView {
    name: String,
    qos: u8,
    bytes: usize,              // of the payload
    expires_in_s: Option<i64>, // None: never
}

/// Of one topic: what all sessions have of it, or one group.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct HeldView {
    topic: String,
    group: String, // `$share/GROUP/FILTER`; "": of sessions
    depth: usize,
    in_flight: usize,
    messages: u64,
    holders: usize, // sessions that were given some, or members of the group
    dropped: u64,
    full: u64, // of these, for want of room in a queue
}

/// How messages of another broker's topic came here (`mqtt::elsewhere::link_peers`).
#[derive(Debug, Serialize)]
pub struct LinkWayView {
    pub origin: String,
    pub topic: String,
    pub network_ns: Option<Nanos>,
    pub latency: Summaries,
}

impl Engine {
    /// By topic ("" = all).
    pub(crate) fn held_views(&self, topic: &str) -> Vec<HeldView> {
        let held = self.mqtt.tally.all().filter(|held| topic.is_empty() || *held.topic == *topic);
        let mut views: Vec<HeldView> = held.filter_map(|held| self.held_view(held)).collect();
        views.sort_unstable();
        views
    }

    fn held_view(&self, held: &Held) -> Option<HeldView> {
        let Held { topic, group, depth, in_flight, messages, holders, dropped, full } = held.clone();
        let (group, holders) = match group {
            Some(key) => self.mqtt.groups.get(key).map(|group| (group.name.to_string(), group.members.len()))?,
            None => (String::new(), holders),
        };
        Some(HeldView { topic: topic.into(), group, depth, in_flight, messages, holders, dropped, full })
    }

    /// `most` of the ways over links, from number `from` on; none: there are no more. A busy one takes about 0.1 ms.
    pub fn link_way_views(&mut self, from: usize, most: usize, now: Nanos) -> Vec<LinkWayView> {
        let view = |way: &mut LinkWay| LinkWayView {
            origin: way.origin.to_string(),
            topic: way.topic.to_string(),
            network_ns: way.network,
            latency: way.latency.summaries(now),
        };
        self.mqtt.ways.some_mut(from, most).map(view).collect()
    }

    /// What waits since before the start counts for the topic of its session's first subscription, or of its group's
    /// pattern: its names are on disk.
    pub(crate) fn count_restored(&mut self) {
        for owner in std::mem::take(&mut self.mqtt.uncounted) {
            let hub = &self.mqtt;
            let place = match owner {
                Owner::Session(key) => hub.sessions.get(key).and_then(|session| session.subscriptions.first().copied()),
                Owner::Group(key) => hub.groups.get(key).map(|group| group.place),
                Owner::Topic(_) | Owner::Channel(_) => None,
            };
            let pattern = place.map(|place| self.mqtt.filters.pattern(place.node)).unwrap_or_default();
            let topic = self.topic_of_name(&pattern).to_owned();
            let topic = self.mqtt.tally.key_of(&topic);
            match owner {
                Owner::Session(key) => {
                    let outgoing = self.mqtt.sessions.get_mut(key).and_then(|session| session.outgoing.as_mut());
                    let Some(outgoing) = outgoing.filter(|outgoing| !outgoing.queue.is_empty()) else { continue };
                    self.mqtt.tally.count_restored(&mut outgoing.owed, topic, outgoing.queue.len());
                }
                Owner::Group(key) => {
                    let group = self.mqtt.groups.get_mut(key).filter(|group| !group.queue.is_empty());
                    let Some(group) = group else { continue };
                    let topic = self.mqtt.tally.key_of_shared(key, &mut group.counts, topic);
                    self.mqtt.tally.count_restored(&mut group.owed, topic, group.queue.len());
                }
                Owner::Topic(_) | Owner::Channel(_) => {}
            }
        }
    }

    /// The disk refused messages of a session or a group.
    pub(crate) fn tally_left(&mut self, owner: Owner) {
        match owner {
            Owner::Session(key) => {
                let outgoing = self.mqtt.sessions.get_mut(key).and_then(|session| session.outgoing.as_mut());
                let Some(outgoing) = outgoing else { return };
                let waiting = outgoing.waiting();
                self.mqtt.tally.trim(&mut outgoing.owed, waiting);
            }
            Owner::Group(key) => {
                let Some(group) = self.mqtt.groups.get_mut(key) else { return };
                self.mqtt.tally.trim(&mut group.owed, group.queue.len());
            }
            Owner::Topic(_) | Owner::Channel(_) => {}
        }
    }

    pub fn mqtt_session_keys(&self) -> Vec<SessionKey> {
        self.mqtt.sessions.keys().collect()
    }

    pub fn mqtt_session_key(&self, client_id: &str) -> Option<SessionKey> {
        self.mqtt.session_of(client_id)
    }

    /// Views of the sessions that still exist.
    pub fn mqtt_session_views(&self, keys: &[SessionKey], filters: bool, now: Nanos) -> Vec<SessionView> {
        keys.iter().filter_map(|key| self.mqtt_session_view(*key, filters, now)).collect()
    }

    fn mqtt_session_view(&self, key: SessionKey, filters: bool, now: Nanos) -> Option<SessionView> {
        let session = self.mqtt.sessions.get(key)?;
        let conn = session.conn.and_then(|key| self.conns.get(key));
        let version = conn.and_then(|conn| conn.mqtt.as_ref()).map_or("", |mqtt| match mqtt.version {
            Version::V3_1 => "3.1",
            Version::V3_1_1 => "3.1.1",
            Version::V5 => "5.0",
        });
        let groups = || session.groups().iter().filter_map(|key| self.mqtt.groups.get(*key));
        let own = session.subscriptions.iter().map(|place| self.mqtt.filters.pattern(place.node));
        let shown =
            if filters { own.chain(groups().map(|group| group.name.to_string())).collect() } else { Vec::new() };
        Some(SessionView {
            client_id: session.client_id.to_string(),
            connected: conn.is_some(),
            address: conn.map(|conn| conn.remote.to_string()).unwrap_or_default(),
            version,
            subscriptions: session.subscriptions.len() + groups().count(),
            filters: shown,
            queued: session.outgoing.as_ref().map_or(0, |outgoing| outgoing.waiting()),
            in_flight: session.outgoing.as_ref().map_or(0, |outgoing| outgoing.in_flight().len()),
            unreleased: session.received().count(),
            dropped: session.dropped(),
            expiry_s: (session.expiry_s != NEVER_EXPIRES).then_some(session.expiry_s),
            ends_in_s: (conn.is_none() && session.ends_at < Nanos::MAX)
                .then(|| (session.ends_at - now).max(0) / NS_PER_S),
            has_will: session.will.is_some(),
        })
    }

    /// Ends a client's session and its connection, if it has one (0x98). Its will is published, what it is owed is
    /// dropped. False: there is no such session.
    pub fn kick_mqtt(&mut self, client_id: &str, now: Nanos) -> bool {
        let Some(key) = self.mqtt_session_key(client_id) else { return false };
        if let Some(conn) = self.mqtt.sessions.get(key).and_then(|session| session.conn) {
            self.end_mqtt(conn, Reason::ADMINISTRATIVE, "an operator has ended the session");
            self.schedule.left.retain(|left| *left != key);
        }
        self.end_session(key, now);
        true
    }

    /// What is retained under names that the pattern of `replay` matches, from where it stands: at most `most` names
    /// are looked at. The flag: there are no more. `clear`: it is removed.
    pub fn mqtt_retained(
        &mut self,
        replay: &mut Replay,
        most: usize,
        clear: bool,
        now: Nanos,
    ) -> (Vec<RetainedView>, bool) {
        let mut views = Vec::new();
        for _ in 0..most {
            let message = match self.mqtt.retained.next(replay, most) {
                Found::Message(message) => message,
                Found::Nothing => return (views, false),
                Found::End => return (views, true),
            };
            let Some(attributes) = Attributes::decode(message.attributes()) else { continue };
            let left_ns = attributes.expires_wall_ns - self.clock.wall(now);
            views.push(RetainedView {
                name: attributes.name.to_owned(),
                qos: attributes.qos as u8,
                bytes: message.body_len(),
                expires_in_s: (attributes.expires_wall_ns != 0).then_some(left_ns.max(0) / NS_PER_S),
            });
            if clear {
                self.forget_retained(&message, now);
            }
        }
        (views, false)
    }

    /// A way through what is retained under a filter, for `mqtt_retained`.
    pub fn retained_under(pattern: &str) -> Replay {
        Replay::new(pattern, Options::default(), 0)
    }
}
