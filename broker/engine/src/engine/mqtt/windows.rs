//! What a session is owed: acknowledgements open its window, and its queue goes on as far as that and its connection
//! allow; after a new connection, what was not acknowledged comes again first [MQTT-4.4.0-1].

use crate::clients::reply::Reply;
use crate::engine::Engine;
use crate::keys::{ConnKey, SessionKey, TallyKey};
use crate::mqtt::filter_trie::{Subscriber, Who};
use crate::mqtt::forms::{Forms, Heading, Once, Target};
use crate::mqtt::outgoing::{InFlight, Step};
use crate::mqtt::retained::Found;
use crate::protocol::mqtt::encode::{self, Written};
use crate::protocol::mqtt::packet::{Ack, AckKind, Qos};
use crate::protocol::mqtt::reason::{Fault, Reason};
use crate::protocol::mqtt::version::Version;
use crate::queueing::message::Message;
use crate::scheduling::work_budget::{QUANTUM, TURN_UNITS, message_units};
use crate::time::Nanos;

/// Names of retained messages that are looked at in a unit of work.
const NAMES_A_UNIT: usize = 4;

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
        if let Step::Ended(topic) = step {
            self.mqtt.tally.end_flight(topic);
        }
        if matches!(step, Step::Ended(_) | Step::Release) {
            self.list_owing(session);
        }
        Ok(())
    }

    /// A session has, or may have, something to send.
    pub(crate) fn list_owing(&mut self, key: SessionKey) {
        let Some(session) = self.mqtt.sessions.get_mut(key).filter(|session| session.conn.is_some() || session.departs)
        else {
            return;
        };
        let mut shared = session.groups().iter().filter_map(|group| self.mqtt.groups.get(*group));
        let shares = shared.any(|group| !group.queue.is_empty());
        if !session.listed && (shares || session.is_owed() || session.departs) {
            session.listed = true;
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
        if let Some(session) = self.mqtt.sessions.get_mut(key) {
            session.resends = session.outgoing.as_ref().is_some_and(|outgoing| outgoing.in_flight().len() > 0);
        }
        self.list_owing(key);
    }

    /// Sends what sessions are owed, a quantum each, as much as a turn delivers.
    pub(crate) fn send_owed(&mut self, now: Nanos) {
        let mut left = TURN_UNITS.saturating_add(self.work.units);
        let mut owing = std::mem::take(&mut self.schedule.owing).into_iter();
        for key in owing.by_ref() {
            if let Some(session) = self.mqtt.sessions.get_mut(key) {
                session.listed = false;
            }
            left = left.saturating_sub(self.send_to(key, now));
            if left == 0 {
                break;
            }
        }
        let rest: Vec<SessionKey> = owing.chain(std::mem::take(&mut self.schedule.owing)).collect();
        self.schedule.owing = rest;
    }

    /// First what was in flight, then what waits, then what is retained, then what is shared. Gives the units.
    fn send_to(&mut self, key: SessionKey, now: Nanos) -> u32 {
        let mut units = 1;
        let Some(session) = self.mqtt.sessions.get_mut(key) else { return units };
        if session.departs {
            return self.send_off(key, now);
        }
        let Some(conn) = session.conn else { return units };
        if std::mem::take(&mut session.resends) {
            units += self.send_again(key, conn, now);
        }
        let mut forms = std::mem::take(&mut self.fan.forms);
        while units < QUANTUM && self.has_room(key) {
            let Some(outgoing) = self.mqtt.sessions.get_mut(key).and_then(|session| session.outgoing.as_mut()) else {
                break;
            };
            if !outgoing.queue.ready(now) {
                break;
            }
            let Some(message) = outgoing.pop_front() else { continue };
            units += message_units(message.body_len());
            let topic = self.tally_taken(key, &message);
            units += self.send_one(&mut forms, key, message, topic, now);
        }
        units += self.send_retained(&mut forms, key, now);
        let groups = self.mqtt.sessions.get(key).map_or(Vec::new(), |session| session.groups().to_vec());
        for group in groups {
            units += self.send_shared(&mut forms, group, now);
        }
        self.fan.forms = forms;
        if units >= QUANTUM {
            self.list_owing(key);
        }
        units
    }

    /// Whether one more of what it is owed may go to a session's client.
    pub(crate) fn has_room(&self, key: SessionKey) -> bool {
        let Some(session) = self.mqtt.sessions.get(key) else { return false };
        let is_open = session.outgoing.as_ref().is_none_or(|outgoing| outgoing.has_room());
        let conn = session.conn.and_then(|key| self.conns.get(key));
        is_open && conn.is_some_and(|conn| conn.mqtt.is_some() && conn.takes_deliveries() && !conn.allowance.is_over)
    }

    /// A message has left the queue of a session; gives the topic that it counted for.
    pub(crate) fn tally_taken(&mut self, key: SessionKey, message: &Message) -> TallyKey {
        let topic = self.tally_of(message);
        let outgoing = self.mqtt.sessions.get_mut(key).and_then(|session| session.outgoing.as_mut());
        let Some(outgoing) = outgoing else { return topic };
        let waiting = outgoing.waiting();
        self.mqtt.tally.take(&mut outgoing.owed, topic, waiting)
    }

    /// Gives the units that it takes besides those of its bytes.
    fn send_one(&mut self, forms: &mut Forms, key: SessionKey, message: Message, topic: TallyKey, now: Nanos) -> u32 {
        let body = message.clone();
        let Some(heading) = Heading::of(&body, "", self.clock.wall(now)) else {
            self.mqtt.counters.expired += 1;
            return 0;
        };
        // It may have waited since a restart, when nobody knew what its client may read, or since before a change.
        let object = self.object_of(heading.name);
        if !self.mqtt.sessions.get(key).is_some_and(|session| session.may_read(object)) {
            return 0;
        }
        // What other brokers send of a session may come before its subscriptions, and what is owed may be sent though
        // its client has unsubscribed since (section 3.10.4).
        let own = || Target { session: key, qos: heading.qos, retain: false, ids: Vec::new(), group: None, topic };
        let (found, units) = self.target_of(key, &heading, topic);
        let target = found.unwrap_or_else(own);
        if !self.may_have(key, self.topic_key(self.topic_of_name(heading.name)), now) {
            self.put_first(key, message.clone(), topic);
            return units;
        }
        let mark = self.mark_of_name(heading.name, &body, now);
        let kept = (target.qos != Qos::AtMostOnce).then_some(message);
        forms.clear();
        self.deliver_mqtt(forms, &target, &heading, body.body(), kept, mark);
        units
    }

    /// Goes on with what is retained for new subscriptions, all of it, in portions. Gives the units.
    fn send_retained(&mut self, forms: &mut Forms, key: SessionKey, now: Nanos) -> u32 {
        let mut units = 0;
        while units < QUANTUM && self.has_room(key) {
            let Some(session) = self.mqtt.sessions.get_mut(key) else { break };
            let Some(replays) = session.replays() else { break };
            let Some(replay) = replays.front_mut() else {
                session.tidy();
                break;
            };
            units += 1;
            let before = replay.after.clone();
            let message = match self.mqtt.retained.next(replay, NAMES_A_UNIT) {
                Found::Message(message) => message,
                Found::Nothing => continue,
                Found::End => {
                    replays.pop_front();
                    continue;
                }
            };
            let (options, ids) = (replay.options, Some(replay.id).into_iter().filter(|id| *id > 0).collect());
            units += message_units(message.body_len());
            let body = message.clone();
            let Some(heading) = Heading::of(&body, "", self.clock.wall(now)) else {
                self.mqtt.counters.expired += 1;
                self.forget_retained(&body, now);
                continue;
            };
            let object = self.object_of(heading.name);
            if !self.mqtt.sessions.get(key).is_some_and(|session| session.may_read(object)) {
                continue;
            }
            if !self.may_have(key, self.topic_key(self.topic_of_name(heading.name)), now) {
                let replays = self.mqtt.sessions.get_mut(key).and_then(|session| session.replays());
                if let Some(replay) = replays.and_then(|replays| replays.front_mut()) {
                    replay.after = before;
                }
                break;
            }
            let qos = options.qos.min(heading.qos);
            let topic = TallyKey::default(); // what is retained counts for none
            let target = Target { session: key, qos, retain: true, ids, group: None, topic };
            let kept = (qos != Qos::AtMostOnce).then_some(message);
            forms.clear();
            self.deliver_mqtt(forms, &target, &heading, body.body(), kept, None);
        }
        units
    }

    /// What the subscriptions of a session say of a message that waited for it, and the units that those beyond the
    /// first take. `None`: it has none any more.
    fn target_of(&self, key: SessionKey, heading: &Heading<'_>, topic: TallyKey) -> (Option<Target>, u32) {
        let (mut target, mut count): (Option<Target>, u32) = (None, 0);
        let Some(session) = self.mqtt.sessions.get(key) else { return (target, count) };
        let is_own = |subscriber: &Subscriber| subscriber.who == Who::Session(key);
        self.mqtt.filters.matching_of(heading.name, &session.subscriptions, is_own, |subscriber| {
            count += 1;
            let options = subscriber.options;
            if options.no_local && session.origin == heading.origin {
                return;
            }
            let qos = options.qos.min(heading.qos);
            let retain = options.retain_as_published && heading.retain;
            let new = || Target { session: key, qos, retain, ids: Vec::new(), group: None, topic };
            let target = target.get_or_insert_with(new);
            (target.qos, target.retain) = (target.qos.max(qos), target.retain || retain);
            target.ids.extend(Some(subscriber.id).filter(|id| *id > 0));
        });
        (target, count.saturating_sub(1))
    }

    /// Sends again what is in flight, in its order: a PUBLISH with DUP, or its PUBREL. Gives the units.
    fn send_again(&mut self, key: SessionKey, conn: ConnKey, now: Nanos) -> u32 {
        let Some(version) = self.mqtt_client(conn).map(|mqtt| mqtt.version) else { return 0 };
        let (wall_ns, mut out, mut units) = (self.clock.wall(now), Vec::new(), 0);
        let in_flight = self.mqtt.sessions.get_mut(key).and_then(|session| session.outgoing.as_mut());
        let in_flight: Vec<InFlight> = in_flight.map_or(Vec::new(), |outgoing| outgoing.in_flight().cloned().collect());
        let mut forms = std::mem::take(&mut self.fan.forms);
        for InFlight { id, qos, retain, message, topic, .. } in in_flight {
            units += 1;
            let Some(message) = message else {
                out.extend(pubrel(version, id));
                continue;
            };
            units += message_units(message.body_len());
            // What was sent once is sent again, though it has expired since (section 3.3.2.3.3 speaks of the first).
            let Some(heading) = Heading::of(&message, "", wall_ns.min(message.wall_ns())) else { continue };
            let (target, more) = self.target_of(key, &heading, topic);
            units += more;
            let ids = target.map(|target| target.ids).unwrap_or_default();
            let target = Target { session: key, qos, retain, ids, group: None, topic };
            forms.clear();
            let form = forms.make(version, &heading, &target, message.body(), Once { dup: true, alias: None });
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
