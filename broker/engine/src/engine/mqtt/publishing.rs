//! PUBLISH: a publish of the turn, and the acknowledgement that its outcome becomes.

use std::rc::Rc;

use crate::clients::mqtt_client::FanOut;
use crate::clients::reply::Reply;
use crate::config::{FullSession, Unmanaged};
use crate::engine::Engine;
use crate::engine::mqtt::routing::met_limit;
use crate::keys::{ConnKey, SessionKey, TopicKey};
use crate::mqtt::filter_trie::{Subscriber, Who};
use crate::mqtt::managed_names::V3Excess;
use crate::mqtt::reporting::denials::Action;
use crate::mqtt::reporting::excess::Fate;
use crate::mqtt::session::Arrival;
use crate::protocol::access::Object;
use crate::protocol::codec;
use crate::protocol::mqtt::attributes::{Attributes, origin_of};
use crate::protocol::mqtt::encode::{self, Written};
use crate::protocol::mqtt::packet::{AckKind, Publish as PublishPacket, Qos};
use crate::protocol::mqtt::property;
use crate::protocol::mqtt::reason::{Fault, Reason};
use crate::protocol::mqtt::topic_filter::matches;
use crate::protocol::mqtt::version::Version;
use crate::protocol::verb::Verb;
use crate::queueing::message::cost_of;
use crate::queueing::publish::{Asked, Outcome, Publish};
use crate::scheduling::client_limits::Limit;
use crate::scheduling::work_budget::{COPIED_A_UNIT, NOTED_UNITS, message_units};
use crate::time::{NS_PER_S, Nanos};

impl Engine {
    pub(crate) fn take_publish(
        &mut self,
        key: ConnKey,
        session: SessionKey,
        publish: PublishPacket<'_>,
        stamp: Nanos,
        now: Nanos,
    ) -> Result<(), Fault> {
        let name = self.name_of(key, publish)?; // also where the rest is left: it may set an alias
        self.work.note((COPIES * (name.len() + publish.properties.size()) / COPIED_A_UNIT) as u32);
        if publish.qos != Qos::AtMostOnce && self.mqtt_client(key).is_some_and(|mqtt| mqtt.leaves) {
            return Ok(()); // it comes again at the broker that the client is sent to
        }
        self.mqtt.counters.published += 1;
        self.mqtt.counters.bytes_in += publish.payload.len() as u64;
        if let Some(action) = self.denial_of_publish(session, &name) {
            self.deny_publish(key, session, publish, &name, action);
            return Ok(());
        }
        if publish.qos == Qos::ExactlyOnce && !self.is_new(key, session, publish, &name)? {
            return Ok(());
        }
        let collected = match self.refusal.clone() {
            Some(reason) => Err(reason),
            None if self.is_full_for(session, publish, &name) => {
                self.refuse_for_full(key, publish, &name);
                return Ok(());
            }
            None => self.collect_mqtt(key, session, publish, &name, stamp, now),
        };
        match collected {
            Ok(index) => self.turn.replies.push((key, Reply::Mqtt(index, publish.id, publish.qos))),
            Err(why) => {
                let topic = self.topic_key(self.topic_of_name(&name)).unwrap_or_default();
                self.refuse_publish(key, topic, publish.qos, publish.id, &why);
            }
        }
        Ok(())
    }

    /// A client of a version without refusals would send it again for ever: there it is acknowledged like any other, as
    /// at Mosquitto. No Reason String tells why: clients that read none in a PUBACK, as Paho's suite, would break.
    #[cold]
    fn deny_publish(
        &mut self,
        key: ConnKey,
        session: SessionKey,
        publish: PublishPacket<'_>,
        name: &str,
        action: Action,
    ) {
        let client = self.mqtt.sessions.get(session).map(|session| session.client_id.clone()).unwrap_or_default();
        self.deny(action, &client, name);
        self.acknowledge_publish(key, publish.qos, publish.id, Reason::NOT_AUTHORIZED, Written::default());
    }

    /// Whether a PUBLISH of QoS 2 has not come before; it is noted then. One that has come is acknowledged again.
    fn is_new(
        &mut self,
        key: ConnKey,
        session: SessionKey,
        publish: PublishPacket<'_>,
        name: &str,
    ) -> Result<bool, Fault> {
        let most = usize::from(self.config.mqtt_receive_maximum);
        self.work.note(NOTED_UNITS);
        self.note_session(session);
        let Some(session) = self.mqtt.sessions.get_mut(session) else { return Ok(false) };
        match session.receive(publish.id, digest(publish, name), most) {
            Arrival::New => Ok(true),
            Arrival::Known => {
                self.acknowledge_publish(key, publish.qos, publish.id, Reason::SUCCESS, Written::default());
                Ok(false)
            }
            Arrival::Excess => Err(Fault::protocol("a PUBLISH came again and again on one connection")),
            Arrival::TooMany => {
                let rule = "more is unreleased than the Receive Maximum allows [MQTT-3.3.4-7]";
                Err(Fault::new(Reason::RECEIVE_MAXIMUM_EXCEEDED, rule))
            }
        }
    }

    /// Whether a PUBLISH is to be refused because a session that outlives its connection, or the group of such a one,
    /// has no room for it. The first such one is noted, to be logged.
    fn is_full_for(&mut self, publisher: SessionKey, publish: PublishPacket<'_>, name: &str) -> bool {
        if self.config.mqtt_full_session == FullSession::Drop || publish.qos == Qos::AtMostOnce {
            return false;
        }
        let mut found = std::mem::take(&mut self.fan.found);
        found.clear();
        self.mqtt.filters.matching(name, &mut found);
        let cost = cost_of(1, (name.len() + publish.properties.size() + publish.payload.len()) as u64, 1);
        let full = found.iter().find_map(|subscriber| self.full_one(subscriber, publisher, name, cost));
        self.fan.found = found;
        let Some((who, limit)) = full else { return false };
        self.limits.note(limit, &who);
        let topic = self.topic_of_name(name).to_owned();
        self.mqtt.excess.note_full(&topic, &who, true);
        true
    }

    /// The subscriber, by name, if it is to get a PUBLISH of this name with QoS 1 or 2 and has no room for it, and why.
    fn full_one(
        &self,
        subscriber: &Subscriber,
        publisher: SessionKey,
        name: &str,
        cost: u64,
    ) -> Option<(Rc<str>, Limit)> {
        let most = self.config.mqtt_max_queued;
        match subscriber.who {
            Who::Session(key) => {
                let session = self.mqtt.sessions.get(key).filter(|session| session.is_durable())?;
                let outgoing = session.outgoing.as_ref()?;
                let limit = met_limit(&outgoing.queue, outgoing.waiting(), most, cost)?;
                let options = subscriber.options;
                let is_owed = options.qos != Qos::AtMostOnce && !(options.no_local && key == publisher);
                (is_owed && session.may_read(self.object_of(name))).then(|| (Rc::clone(&session.client_id), limit))
            }
            Who::Group(key) => {
                let group = self.mqtt.groups.get(key).filter(|group| group.is_on_disk)?;
                let limit = met_limit(&group.queue, group.queue.len(), most, cost)?;
                Some(((&*group.name).into(), limit))
            }
        }
    }

    fn refuse_for_full(&mut self, key: ConnKey, publish: PublishPacket<'_>, name: &str) {
        let name = self.topic_of_name(name).to_owned();
        let topic = self.topic_key(&name).unwrap_or_default();
        let text = "a session or a shared group has no room for it";
        if self.drops_excess(key, &name) {
            self.note_untaken(key, topic, publish.qos, text, Fate::Dropped);
            return self.forget_received(key, publish.qos, publish.id);
        }
        if self.mqtt_client(key).is_some_and(|mqtt| mqtt.version != Version::V5) {
            return self.refuse_publish(key, topic, publish.qos, publish.id, text);
        }
        self.note_untaken(key, topic, publish.qos, text, Fate::Refused);
        let mut properties = Written::default();
        if self.mqtt_client(key).is_some_and(|mqtt| mqtt.explains) {
            properties
                .text(property::REASON_STRING, &format!("retry after {FULL_RETRY_MS} ms: {text}"))
                .user("srtm-retry-ms", &FULL_RETRY_MS.to_string());
        }
        self.acknowledge_publish(key, publish.qos, publish.id, Reason::QUOTA_EXCEEDED, properties);
    }

    /// Whether what is above a limit of the topic, or has no room, is not answered: its client knows no refusal.
    fn drops_excess(&mut self, key: ConnKey, topic: &str) -> bool {
        let is_old = self.mqtt_client(key).is_some_and(|mqtt| mqtt.version != Version::V5);
        is_old && self.mqtt.names.v3_excess(topic) == V3Excess::Drop
    }

    /// What keeps a client from publishing the name, whatever room there is.
    fn denial_of_publish(&self, session: SessionKey, name: &str) -> Option<Action> {
        let may_write = self.mqtt.sessions.get(session).is_none_or(|session| session.may_write(self.object_of(name)));
        if !may_be_published(name) || !may_write {
            Some(Action::Publish)
        } else {
            self.is_foreign_name(name).then_some(Action::PublishUnmanaged)
        }
    }

    /// Counts something that a client was denied, and has it logged.
    pub(crate) fn deny(&mut self, action: Action, client: &str, name: &str) {
        self.mqtt.counters.denied += 1;
        self.mqtt.denials.note(action, client, name);
    }

    /// The name of a PUBLISH, by its alias if it has none itself.
    fn name_of(&mut self, key: ConnKey, publish: PublishPacket<'_>) -> Result<String, Fault> {
        let invalid = Fault::new(Reason::TOPIC_ALIAS_INVALID, "a Topic Alias is above the maximum [MQTT-3.3.2-9]");
        let Some(alias) = publish.properties.number(property::TOPIC_ALIAS) else {
            let unnamed = Fault::protocol("a PUBLISH needs a name or a Topic Alias (section 3.3.2.1)");
            return if publish.topic.is_empty() { Err(unnamed) } else { Ok(publish.topic.to_owned()) };
        };
        let Some(mqtt) = self.conns.get_mut(key).and_then(|conn| conn.mqtt.as_mut()) else { return Err(invalid) };
        let known = mqtt.alias(alias as u16, publish.topic).map(str::to_owned);
        known.ok_or(if publish.topic.is_empty() { UNKNOWN_ALIAS } else { invalid })
    }

    fn collect_mqtt(
        &mut self,
        key: ConnKey,
        session: SessionKey,
        publish: PublishPacket<'_>,
        name: &str,
        stamp: Nanos,
        now: Nanos,
    ) -> Result<usize, String> {
        if publish.payload.len() > self.config.max_msg_size as usize {
            return Err(format!("a payload of {} bytes is longer than max_msg_size", publish.payload.len()));
        }
        let (properties, expiry_s) = passed_on(publish);
        if publish.retain && !publish.payload.is_empty() {
            let (attributes, most) = (name.len() + properties.len(), self.config.mqtt_max_retained);
            let refusal = self.mqtt.retained.refusal(name, attributes, publish.payload.len(), most);
            refusal.map_or(Ok(()), Err)?;
        }
        let attributes = Attributes {
            origin: self.mqtt.sessions.get(session).map_or(0, |session| session.origin),
            expires_wall_ns: expiry_s.map_or(0, |seconds| self.clock.wall(now) + i64::from(seconds) * NS_PER_S),
            qos: publish.qos,
            retain: publish.retain,
            name,
            group: "",
            properties: &properties,
        };
        let mut bytes = std::mem::take(&mut self.fan.attributes);
        bytes.clear();
        attributes.encode(&mut bytes);
        let topic = self.topic_of_name(name).to_owned();
        let knows_refusal = self.mqtt_client(key).is_none_or(|mqtt| mqtt.version == Version::V5);
        let waits =
            publish.qos != Qos::AtMostOnce && !knows_refusal && self.mqtt.names.v3_excess(&topic) == V3Excess::Delay;
        let verb = if waits { Verb::PatientPublish } else { Verb::Publish };
        let asked = Asked { key, verb, topic: &topic, defer_ms: 0, stamp, attributes: &bytes };
        let index = self.collect(asked, std::iter::once(publish.payload));
        self.fan.attributes = bytes;
        let index = index?;
        self.charge_deliveries(key, index, name, publish.payload.len());
        Ok(index)
    }

    /// A publish is charged for its deliveries when it is read, as many as the client's last ones had: they are made at
    /// the end of the turn, when the work of all that was read is done already.
    fn charge_deliveries(&mut self, key: ConnKey, index: usize, name: &str, len: usize) {
        let known = self.mqtt_client(key).and_then(|mqtt| mqtt.fan_out);
        let subscribers = known.map_or_else(|| self.count_subscribers(name), FanOut::subscribers);
        let units = message_units(len).saturating_mul(subscribers);
        let topic = self.turn.publishes.get(index).and_then(|publish| self.topics.get(publish.topic));
        match topic.is_some_and(|topic| topic.limiter.is_some()) {
            true => self.work.note_ordered(units),
            false => self.work.note(units),
        }
    }

    pub(super) fn count_subscribers(&mut self, name: &str) -> u32 {
        let found = &mut self.fan.found;
        found.clear();
        self.mqtt.filters.matching(name, found);
        found.len() as u32
    }

    /// Publishes the will of a session, if it has one, as its client would have done at this instant.
    pub(crate) fn publish_will(&mut self, key: SessionKey, now: Nanos) {
        let mut will = None;
        self.mqtt.amend(key, |session| will = session.will.take());
        let Some((will, session)) = will.zip(self.mqtt.sessions.get(key)) else { return };
        let attributes = Attributes {
            origin: session.origin,
            expires_wall_ns: will.expiry_s.map_or(0, |seconds| self.clock.wall(now) + i64::from(seconds) * NS_PER_S),
            qos: will.qos,
            retain: will.retain,
            name: &will.topic,
            group: "",
            properties: &will.properties,
        };
        let client_id: Rc<str> = if session.client_id.len() <= 256 { session.client_id.clone() } else { "".into() };
        let mut bytes = Vec::new();
        attributes.encode(&mut bytes);
        let topic = self.topic_of_name(&will.topic).to_owned();
        self.collect_alone(&topic, &client_id, &bytes, &will.payload, now);
    }

    /// The topic that a name belongs to: the one with a filter that matches it, else the one of that name, else that of
    /// all other names.
    pub(crate) fn topic_of_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.owner_of_name(name).unwrap_or(&self.config.mqtt_topic)
    }

    fn owner_of_name<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        let is_own = || codec::name(name.as_bytes()).is_some() && self.topic_names.contains_key(name);
        self.mqtt.names.owner_of(name).or_else(|| is_own().then_some(name))
    }

    /// Whether no topic has the name, and such names are refused. Those of `$SYS` are the broker's.
    pub(crate) fn is_foreign_name(&self, name: &str) -> bool {
        let refuses = self.config.mqtt_unmanaged == Unmanaged::Refuse;
        refuses && !name.starts_with("$SYS/") && self.owner_of_name(name).is_none()
    }

    /// As what rows and auth servers know a name.
    pub(crate) fn object_of<'a>(&'a self, name: &'a str) -> Object<'a> {
        if !self.access.has_rows() && !self.config.auth_servers {
            return Object::topic(name); // nobody looks
        }
        let topic = self.topic_of_name(name);
        Object { name, topic: if topic == self.config.mqtt_topic { name } else { topic } }
    }

    /// Writes the answer to a PUBLISH that was decided.
    pub(crate) fn answer_mqtt_publish(&mut self, key: ConnKey, publish: &Publish, id: u16, qos: Qos, now: Nanos) {
        let Some(mqtt) = self.mqtt_client(key) else { return };
        let (version, receipts, explains) = (mqtt.version, mqtt.receipts, mqtt.explains);
        let mut properties = Written::default();
        let reason = match &publish.outcome {
            Outcome::Done { wait_ns, fill } => {
                if receipts {
                    wait_ns.iter().for_each(|wait_ns| _ = properties.user("srtm-wait-ns", &wait_ns.to_string()));
                    properties.user("srtm-fill", &format!("{fill:.6}"));
                }
                let is_told = publish.unheard && qos == Qos::AtLeastOnce;
                if is_told { Reason::NO_MATCHING_SUBSCRIBERS } else { Reason::SUCCESS }
            }
            Outcome::Limited { retry_at, contract } => {
                let retry_ms = Outcome::retry_ms(*retry_at, now);
                if explains {
                    properties
                        .text(property::REASON_STRING, &format!("retry after {retry_ms} ms"))
                        .user("srtm-retry-ms", &retry_ms.to_string());
                    contract.iter().for_each(|of| _ = properties.user("srtm-contract", &of.namespace));
                }
                Reason::QUOTA_EXCEEDED
            }
            refused => {
                let why = refused.error(publish, now).text;
                let answer = self.refusal_of_publish(key, publish.topic, qos, id, &why);
                return self.write_answer(key, answer);
            }
        };
        if reason.is_refusal() {
            let is_contract = matches!(publish.outcome, Outcome::Limited { contract: Some(_), .. });
            let why = if is_contract { "the publisher's contract is reached" } else { "the topic's limit is reached" };
            let topic = self.topics.get(publish.topic).map(|topic| topic.name.clone()).unwrap_or_default();
            if self.drops_excess(key, &topic) {
                self.note_untaken(key, publish.topic, qos, why, Fate::Dropped);
                return self.forget_received(key, qos, id);
            }
            if version != Version::V5 {
                let answer = self.refusal_of_publish(key, publish.topic, qos, id, why);
                return self.write_answer(key, answer);
            }
            let fate = if qos == Qos::AtMostOnce { Fate::Dropped } else { Fate::Refused };
            self.note_untaken(key, publish.topic, qos, why, fate);
        }
        let answer = self.publish_answer(key, qos, id, reason, &properties);
        self.write_answer(key, answer);
    }

    /// Refuses a PUBLISH that was not collected, behind the answers that are due before it.
    fn refuse_publish(&mut self, key: ConnKey, topic: TopicKey, qos: Qos, id: u16, why: &str) {
        if let Some(out) = self.refusal_of_publish(key, topic, qos, id, why) {
            self.turn.replies.push((key, Reply::Raw(out)));
        }
    }

    /// The refusal of a PUBLISH. Versions before 5.0 have no word for that: the connection ends, and the client sends
    /// again what was not acknowledged [MQTT-4.4.0-1 of 3.1.1].
    fn refusal_of_publish(&mut self, key: ConnKey, topic: TopicKey, qos: Qos, id: u16, why: &str) -> Option<Vec<u8>> {
        let (version, explains) = self.mqtt_client(key).map(|mqtt| (mqtt.version, mqtt.explains))?;
        if qos == Qos::AtMostOnce {
            self.note_untaken(key, topic, qos, why, Fate::Dropped);
            return None;
        }
        if version != Version::V5 {
            self.note_untaken(key, topic, qos, why, Fate::Closed);
            self.forget_received(key, qos, id);
            self.end_mqtt(key, Reason::QUOTA_EXCEEDED, why);
            return None;
        }
        self.note_untaken(key, topic, qos, why, Fate::Refused);
        let mut properties = Written::default();
        if explains && why.len() < 1_024 {
            properties.text(property::REASON_STRING, why);
        }
        self.publish_answer(key, qos, id, Reason::QUOTA_EXCEEDED, &properties)
    }

    /// Counts a PUBLISH that is not taken, and has its publisher logged.
    fn note_untaken(&mut self, key: ConnKey, topic: TopicKey, qos: Qos, why: &str, fate: Fate) {
        let mut topic = self.topics.get_mut(topic);
        if let Some(counters) = topic.as_mut().map(|topic| &mut topic.counters) {
            let of = if fate == Fate::Dropped { &mut counters.mqtt_dropped } else { &mut counters.mqtt_refused };
            of[qos as usize] += 1;
        }
        self.mqtt.counters.refused += u64::from(fate == Fate::Dropped);
        let publisher = self.conns.get(key).map_or("", |conn| conn.client_id());
        self.mqtt.excess.note(publisher, topic.map_or("", |topic| &*topic.name), why, fate);
    }

    /// Answers a PUBLISH behind the answers that are due before it.
    fn acknowledge_publish(&mut self, key: ConnKey, qos: Qos, id: u16, reason: Reason, properties: Written) {
        if let Some(out) = self.publish_answer(key, qos, id, reason, &properties) {
            self.turn.replies.push((key, Reply::Raw(out)));
        }
    }

    /// Writes an answer whose turn it is.
    fn write_answer(&mut self, key: ConnKey, answer: Option<Vec<u8>>) {
        let Some(out) = answer else { return };
        if let Some(conn) = self.conns.get_mut(key) {
            conn.output().extend_from_slice(&out);
        }
        self.mark_dirty(key);
    }

    fn publish_answer(
        &mut self,
        key: ConnKey,
        qos: Qos,
        id: u16,
        reason: Reason,
        properties: &Written,
    ) -> Option<Vec<u8>> {
        let kind = match qos {
            Qos::AtMostOnce => return None,
            Qos::AtLeastOnce => AckKind::Puback,
            Qos::ExactlyOnce => AckKind::Pubrec,
        };
        let mqtt = self.mqtt_client(key)?;
        let (version, most) = (mqtt.version, mqtt.longest_packet as usize);
        if reason.is_refusal() {
            self.forget_received(key, qos, id); // the exchange is over (section 4.3.3)
        }
        let mut out = Vec::new();
        encode::ack(&mut out, version, kind, id, reason, properties);
        if out.len() > most {
            out.clear();
            encode::ack(&mut out, version, kind, id, reason, &Written::default());
        }
        Some(out)
    }

    /// Forgets the identifier of a PUBLISH of QoS 2 that was not taken: when it comes again, it is a new one.
    fn forget_received(&mut self, key: ConnKey, qos: Qos, id: u16) {
        let session = self.mqtt_client(key).and_then(|mqtt| mqtt.session);
        let Some(session) = session.filter(|_| qos == Qos::ExactlyOnce) else { return };
        self.note_session(session);
        if let Some(session) = self.mqtt.sessions.get_mut(session) {
            session.release(id);
        }
    }

    /// PUBREL: the identifier is free again, whether it was known or not.
    pub(crate) fn release_received(&mut self, key: ConnKey, session: SessionKey, id: u16) {
        self.note_session(session);
        if let Some(session) = self.mqtt.sessions.get_mut(session) {
            session.release(id);
        }
        let Some(version) = self.mqtt_client(key).map(|mqtt| mqtt.version) else { return };
        let mut out = Vec::new();
        encode::ack(&mut out, version, AckKind::Pubcomp, id, Reason::SUCCESS, &Written::default());
        self.turn.replies.push((key, Reply::Raw(out)));
    }
}

/// How often the bytes of a name and of properties are looked at or copied on their way: they are checked, noted under
/// an alias, taken out of the packet, and written into the message.
const COPIES: usize = 4;

/// After so long a client may ask again whether there is room: how soon subscribers make some is not known.
const FULL_RETRY_MS: u64 = 1_000;

const UNKNOWN_ALIAS: Fault = Fault::protocol("a Topic Alias was not set on this connection (section 3.3.2.3.4)");

/// Names that begin with `$SYS` are the broker's, but for those under which bridges tell their state; those that begin
/// with `$share` are filters.
pub(crate) fn may_be_published(name: &str) -> bool {
    let is_ours = name == "$SYS" || name.starts_with("$SYS/") || name.starts_with("$share/");
    !is_ours || matches("$SYS/broker/connection/+/state", name)
}

/// What stands for the content of a PUBLISH that may come again.
fn digest(publish: PublishPacket<'_>, name: &str) -> u64 {
    let payload = u64::from(crc32c::crc32c(publish.payload));
    origin_of(name) ^ payload << 16 ^ publish.payload.len() as u64 ^ u64::from(publish.retain) << 63
}

/// Properties that subscribers get as they came, and for how many seconds the message may live.
fn passed_on(publish: PublishPacket<'_>) -> (Vec<u8>, Option<u32>) {
    let mut passed = Vec::new();
    for (id, _, span) in publish.properties.spans() {
        if !matches!(id, property::TOPIC_ALIAS | property::MESSAGE_EXPIRY) {
            passed.extend_from_slice(span);
        }
    }
    (passed, publish.properties.number(property::MESSAGE_EXPIRY))
}
