//! What a session is owed: acknowledgements open its window, and its queue goes on as far as that and its connection
//! allow; after a new connection, what was not acknowledged comes again first [MQTT-4.4.0-1].

use crate::clients::reply::Reply;
use crate::engine::Engine;
use crate::engine::mqtt::routing::mark_of;
use crate::keys::{ConnKey, SessionKey};
use crate::mqtt::forms::{Heading, Target};
use crate::mqtt::outgoing::Step;
use crate::protocol::mqtt::encode::{self, Written};
use crate::protocol::mqtt::packet::{Ack, AckKind, Qos};
use crate::protocol::mqtt::reason::{Fault, Reason};
use crate::protocol::mqtt::topic_filter::matches;
use crate::protocol::mqtt::version::Version;
use crate::queueing::message::Message;
use crate::scheduling::work_budget::{QUANTUM, TURN_UNITS, message_units};
use crate::time::Nanos;

impl Engine {
    pub(crate) fn acknowledge(&mut self, key: ConnKey, session: SessionKey, ack: &Ack<'_>) -> Result<(), Fault> {
        let refused = ack.reason.is_refusal();
        let step = self
            .mqtt
            .sessions
            .get_mut(session)
            .and_then(|session| session.outgoing.as_mut())
            .map_or(Step::Unknown, |outgoing| outgoing.acknowledge(ack.kind, ack.id, refused));
        let releases = step == Step::Release || step == Step::Unknown && ack.kind == AckKind::Pubrec && !refused;
        if step == Step::Wrong {
            return Err(Fault::protocol("an acknowledgement does not fit the QoS of its message (section 4.3)"));
        }
        if releases {
            let Some(version) = self.mqtt_client(key).map(|mqtt| mqtt.version) else { return Ok(()) };
            self.turn.replies.push((key, Reply::Raw(pubrel(version, ack.id))));
        }
        if step == Step::Ended {
            self.list_owing(session);
        }
        Ok(())
    }

    /// A session has, or may have, something to send.
    pub(crate) fn list_owing(&mut self, key: SessionKey) {
        let Some(session) = self.mqtt.sessions.get_mut(key).filter(|session| session.conn.is_some()) else { return };
        let Some(outgoing) = session.outgoing.as_mut().filter(|outgoing| !outgoing.listed) else { return };
        if outgoing.resends || !outgoing.queue.is_empty() {
            outgoing.listed = true;
            self.schedule.owing.push(key);
        }
    }

    /// The client has read something: there may be room for more.
    pub(crate) fn list_if_owed(&mut self, key: ConnKey) {
        if let Some(session) = self.conns.get(key).and_then(|conn| conn.mqtt.as_ref()?.session) {
            self.list_owing(session);
        }
    }

    /// A session has a new connection: what is in flight comes again there.
    pub(crate) fn resend(&mut self, key: SessionKey) {
        if let Some(outgoing) = self.mqtt.sessions.get_mut(key).and_then(|session| session.outgoing.as_mut()) {
            outgoing.resends = !outgoing.in_flight.is_empty();
        }
        self.list_owing(key);
    }

    /// Sends what sessions are owed, a quantum each, as much as a turn delivers.
    pub(crate) fn send_owed(&mut self, now: Nanos) {
        let mut left = TURN_UNITS.saturating_add(self.work.units);
        let mut owing = std::mem::take(&mut self.schedule.owing).into_iter();
        for key in owing.by_ref() {
            if let Some(outgoing) = self.mqtt.sessions.get_mut(key).and_then(|session| session.outgoing.as_mut()) {
                outgoing.listed = false;
            }
            left = left.saturating_sub(self.send_to(key, now));
            if left == 0 {
                break;
            }
        }
        let rest: Vec<SessionKey> = owing.chain(std::mem::take(&mut self.schedule.owing)).collect();
        self.schedule.owing = rest;
    }

    /// Gives the units.
    fn send_to(&mut self, key: SessionKey, now: Nanos) -> u32 {
        let mut units = 1;
        let Some(session) = self.mqtt.sessions.get_mut(key) else { return units };
        let Some(conn) = session.conn else { return units };
        let Some(outgoing) = &mut session.outgoing else { return units };
        if std::mem::take(&mut outgoing.resends) {
            units += self.send_again(key, conn, now);
        }
        while units < QUANTUM {
            let is_open = self.conns.get(conn).is_some_and(|conn| conn.takes_deliveries());
            let outgoing = self.mqtt.sessions.get_mut(key).and_then(|session| session.outgoing.as_mut());
            let Some(outgoing) = outgoing.filter(|outgoing| is_open && outgoing.has_room()) else { return units };
            if !outgoing.queue.ready(now) {
                return units;
            }
            let Some(message) = outgoing.queue.pop_front() else { return units };
            units += message_units(message.body_len());
            self.send_one(key, conn, message, now);
        }
        self.list_owing(key);
        units
    }

    fn send_one(&mut self, key: SessionKey, conn: ConnKey, message: Message, now: Nanos) {
        let body = message.clone();
        let Some(heading) = Heading::of(&body, "", self.clock.wall(now)) else {
            self.mqtt.counters.expired += 1;
            return;
        };
        let Some(target) = self.target_of(key, &heading) else { return };
        let topic = self.topic_key(self.topic_of_name(heading.name));
        let mark = topic.filter(|_| !message.foreign).map(|topic| mark_of(topic, &message, now));
        let Some(connection) = self.conns.get_mut(conn) else { return };
        let Some(mqtt) = &connection.mqtt else { return };
        let mut forms = std::mem::take(&mut self.fan.forms);
        forms.clear();
        let (bytes, id_at) = forms.get(mqtt.version, &heading, &target, body.body());
        if bytes.len() > mqtt.longest_packet as usize {
            self.mqtt.counters.dropped += 1;
        } else {
            let session = self.mqtt.sessions.get_mut(key).and_then(|session| session.outgoing.as_mut());
            let id = session.filter(|_| target.qos != Qos::AtMostOnce).map(|out| out.begin(message, target.qos));
            connection.deliver_bytes(bytes, id.map(|id| (id_at, id)), mark);
            self.mqtt.counters.delivered += 1;
        }
        self.fan.forms = forms;
        self.mark_dirty(conn);
    }

    /// What the subscriptions of a session say of a message that waited for it. `None`: it has none any more.
    fn target_of(&self, key: SessionKey, heading: &Heading<'_>) -> Option<Target> {
        let session = self.mqtt.sessions.get(key)?;
        let mut target: Option<Target> = None;
        for subscriber in session.subscriptions.iter().filter_map(|place| self.mqtt.filters.get(*place)) {
            let place = session.subscriptions[subscriber.slot as usize];
            if !matches(&self.mqtt.filters.pattern(place.node), heading.name) {
                continue;
            }
            let options = subscriber.options;
            let qos = options.qos.min(heading.qos);
            let retain = options.retain_as_published && heading.retain;
            let target = target.get_or_insert_with(|| Target { session: key, qos, retain, ids: Vec::new() });
            (target.qos, target.retain) = (target.qos.max(qos), target.retain || retain);
            target.ids.extend(Some(subscriber.id).filter(|id| *id > 0));
        }
        target
    }

    /// Sends again what is in flight, in its order: a PUBLISH with DUP, or its PUBREL. Gives the units.
    fn send_again(&mut self, key: SessionKey, conn: ConnKey, now: Nanos) -> u32 {
        let Some(version) = self.mqtt_client(conn).map(|mqtt| mqtt.version) else { return 0 };
        let (wall_ns, mut out, mut units) = (self.clock.wall(now), Vec::new(), 0);
        let in_flight = self.mqtt.sessions.get_mut(key).and_then(|session| session.outgoing.as_mut());
        let in_flight: Vec<(u16, Qos, Option<Message>)> = in_flight.map_or(Vec::new(), |outgoing| {
            outgoing.in_flight.iter().map(|entry| (entry.id, entry.qos, entry.message.clone())).collect()
        });
        let mut forms = std::mem::take(&mut self.fan.forms);
        for (id, qos, message) in in_flight {
            units += 1;
            let Some(message) = message else {
                out.extend(pubrel(version, id));
                continue;
            };
            units += message_units(message.body_len());
            // What was sent once is sent again, though it has expired since (section 3.3.2.3.3 speaks of the first).
            let Some(heading) = Heading::of(&message, "", wall_ns.min(message.wall_ns())) else { continue };
            let target = self.target_of(key, &heading);
            let target = target.unwrap_or_else(|| Target { session: key, qos, retain: false, ids: Vec::new() });
            forms.clear();
            let form = forms.make(version, &heading, &Target { qos, ..target }, message.body(), true);
            let (bytes, id_at) = forms.bytes(form);
            let at = out.len();
            out.extend_from_slice(bytes);
            out[at + id_at..at + id_at + 2].copy_from_slice(&id.to_be_bytes());
        }
        self.fan.forms = forms;
        if let Some(conn) = self.conns.get_mut(conn) {
            conn.output().extend_from_slice(&out);
        }
        self.mark_dirty(conn);
        units
    }
}

fn pubrel(version: Version, id: u16) -> Vec<u8> {
    let mut out = Vec::new();
    encode::ack(&mut out, version, AckKind::Pubrel, id, Reason::SUCCESS, &Written::default());
    out
}
