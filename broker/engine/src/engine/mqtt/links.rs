//! Links between brokers. At a message's own broker, a link is a consumer of a channel of its own; at the other broker,
//! a connection on which messages come for MQTT's subscribers alone: no channel and no link gets them there.
//!
//! FIN says that a message is where its subscribers are owed it, on disk if one of them is away. A link that breaks
//! begins anew with what was not answered, in order, and what came already is known again.

use std::rc::Rc;

use crate::arrival::stamps::Stamps;
use crate::clients::connection::{Connection, Mark, Phase};
use crate::clients::link_client::LinkClient;
use crate::clients::pending_input::WaitFor;
use crate::clients::reply::Reply;
use crate::engine::Engine;
use crate::id::MessageId;
use crate::keys::{ChannelKey, ConnKey, TopicKey};
use crate::mqtt::elsewhere::link_peers::{Latest, Peer, Seeding, times_of};
use crate::mqtt::managed_names::ManagedNames;
use crate::protocol::errors::{self, WireError};
use crate::protocol::identify::{Identity, LinkClaim};
use crate::protocol::link_frames::{self, Frame, LINK_CHANNEL, Linked, NEWS, Opening, RETAINED_TOPIC};
use crate::protocol::mqtt::attributes::Attributes;
use crate::protocol::mqtt::packet::Qos;
use crate::protocol::verb::Verb;
use crate::queueing::channel::Channel;
use crate::queueing::link_interest::LinkInterest;
use crate::queueing::message::{Alone, Message};
use crate::queueing::publish::{Outcome, Publish, Source};
use crate::scheduling::work_budget::message_units;
use crate::time::Nanos;

/// A link keeps its messages in order: they come again when it breaks, not when it is slow.
const ANSWER_MS: u64 = 24 * 3_600 * 1_000;

/// Bytes of a message on a link besides its payload.
const BESIDES_PAYLOAD: usize = 256 << 10;

impl Engine {
    // ---- at a message's own broker --------------------------------------------------------------------------------

    /// Lets a broker open links to this one, and says what it wants: its channels take nothing else.
    pub fn allow_links(&mut self, broker: &str, channel: &str, key: &str, interest: LinkInterest) {
        let interest = Rc::new(interest);
        let room = self.room_of_link(&interest);
        for one in self.channels.values_mut().filter(|one| &*one.name == channel) {
            one.queue.set_room(room);
            one.link = Some(Rc::clone(&interest));
        }
        let peer = Peer { channel: channel.into(), key: key.into(), interest };
        self.mqtt.peers.by_broker.insert(broker.into(), peer);
        self.mqtt.peers.regroup();
        self.list_lending();
    }

    /// A broker may open no more links; those that it has end.
    pub fn forbid_links(&mut self, broker: &str) {
        self.mqtt.peers.by_broker.remove(broker);
        self.mqtt.peers.regroup();
        let is_theirs = |conn: &Connection| conn.identity().link.as_ref().is_some_and(|link| link.broker == broker);
        let ended: Vec<ConnKey> = self.conns.iter().filter(|(_, conn)| is_theirs(conn)).map(|(key, _)| key).collect();
        ended.into_iter().for_each(|key| self.close(key));
    }

    /// A new channel that is a link's takes what its broker wants.
    pub(crate) fn link_channel(&mut self, key: ChannelKey) {
        let Some(channel) = self.channels.get(key).filter(|channel| channel.name.starts_with(LINK_CHANNEL)) else {
            return;
        };
        let interest = self.mqtt.peers.interest_of(&channel.name);
        let room = self.room_of_link(&interest);
        if let Some(channel) = self.channels.get_mut(key) {
            channel.queue.set_room(room);
            channel.link = Some(interest);
            if self.topics.get(channel.topic).is_some_and(|topic| &*topic.name == RETAINED_TOPIC) {
                self.mqtt.peers.seeding.push(Seeding { channel: key, after: None, mark: None });
            }
        }
        self.list_lending();
    }

    /// Messages of a link in memory: none where all that is acknowledged has to be on disk.
    fn room_of_link(&self, interest: &LinkInterest) -> usize {
        if interest.durable { 0 } else { self.config.mem_queue_size }
    }

    /// The terms of a client that says that it is a broker.
    pub(crate) fn identify_link(&self, identity: &mut Identity) -> Result<(), WireError> {
        let Some(link) = &identity.link else { return Ok(()) };
        let LinkClaim { broker, key, .. } = &**link;
        if !self.mqtt.peers.is_known(broker, key) {
            let text = "IDENTIFY the key of a link is not known: ask for one at /v1/links/BROKER";
            return Err(WireError::new(errors::E_IDENTIFY_FAILED, text));
        }
        identity.msg_timeout_ms = ANSWER_MS;
        Ok(())
    }

    /// A link's channel has one consumer, its broker. A second one takes the place of the first, which may be broken:
    /// what is in flight to that comes first, in order.
    pub(crate) fn take_link_channel(&mut self, key: ConnKey, topic: &str, channel: &str) -> Result<(), WireError> {
        if !channel.starts_with(LINK_CHANNEL) {
            return Ok(());
        }
        let broker = self.conns.get(key).and_then(|conn| conn.identity().link.as_ref());
        let peer = broker.and_then(|link| self.mqtt.peers.by_broker.get(&*link.broker));
        let known = self.topic_key(topic).and_then(|topic| self.find_channel(topic, channel));
        let Some(target) = known.filter(|_| peer.is_some_and(|peer| &*peer.channel == channel)) else {
            // Python makes the channels: one that is gone must not come back by itself, with its topic.
            let text = format!("SUB failed channel {channel} is the link of a broker");
            return Err(WireError::new(errors::E_SUB_FAILED, text));
        };
        let before = self.channels.get(target).map(|channel| channel.consumers.clone());
        before.into_iter().flatten().for_each(|older| self.close(older));
        if topic == RETAINED_TOPIC {
            self.mqtt.moves.returned.push(channel.into());
        }
        Ok(())
    }

    /// Writes a message to a link, with its attributes, or such as a message has that came by NSQ.
    pub(crate) fn deliver_linked(
        conn: &mut Connection,
        topic_name: &str,
        message: &Message,
        mark: Option<Mark>,
        now: Nanos,
    ) {
        if message.has_attributes() {
            return conn.deliver_linked(message, message.attributes(), mark, now);
        }
        let mut attributes = Vec::new();
        let of_nsq = Attributes {
            origin: 0,
            expires_wall_ns: 0,
            qos: Qos::ExactlyOnce,
            retain: false,
            name: topic_name,
            group: "",
            properties: b"",
        };
        of_nsq.encode(&mut attributes);
        conn.deliver_linked(message, &attributes, mark, now);
    }

    // ---- at the broker of its subscribers -------------------------------------------------------------------------

    /// A connection to another broker, which is made already. `number`: of the event of its end.
    pub fn open_link(&mut self, number: u64, opening: &Opening, remote: &str, now: Nanos) -> ConnKey {
        let mut identity = Identity::unknown(&self.config);
        identity.heartbeat_ms = None;
        let mut connection = Connection::new(identity, remote, self.clock.wall(now), now);
        connection.phase = Phase::Open;
        let source: Rc<str> = format!("{remote} {}", opening.topic).into();
        let most = opening.ready as usize;
        self.name_own_channel(&opening.channel);
        self.mqtt.peers.latest.entry(Rc::clone(&source)).or_insert_with(|| Latest::new(most));
        let way = self.mqtt.ways.number_of(&opening.origin, &opening.topic);
        connection.link =
            Some(Box::new(LinkClient { number, source, topic: opening.topic.as_str().into(), way, reason: None }));
        connection.append(opening.encode());
        self.limits.count_in(connection.remote_host());
        let key = self.conns.insert(connection);
        self.arm_connection(key);
        self.mark_dirty(key);
        key
    }

    /// Ends a connection to another broker. False: it is gone.
    pub fn close_link(&mut self, number: u64) -> bool {
        let is_it = |conn: &Connection| conn.link.as_ref().is_some_and(|link| link.number == number);
        let found = self.conns.iter().find(|(_, conn)| is_it(conn)).map(|(key, _)| key);
        if let Some(key) = found {
            if let Some(source) = self.source_of(key) {
                self.mqtt.peers.latest.remove(&source);
                self.mqtt.moves.marked.remove(&source);
            }
            self.end_link(key, "it is not needed any more");
        }
        found.is_some()
    }

    pub(crate) fn end_link(&mut self, key: ConnKey, reason: &str) {
        if let Some(link) = self.conns.get_mut(key).and_then(|conn| conn.link.as_mut()) {
            link.reason.get_or_insert_with(|| reason.into());
        }
        self.close(key);
    }

    /// Runs the whole frames in `bytes`, as many as the connection's quantum allows; gives how many bytes they took.
    pub(crate) fn run_frames(&mut self, key: ConnKey, bytes: &[u8], stamps: Stamps<'_>, now: Nanos) -> usize {
        let Some(conn) = self.conns.get_mut(key) else { return 0 };
        let (before, bound) = (self.work.units, self.work.begin(&mut conn.deficit));
        conn.last_command = now; // any byte shows that the other broker is there
        let most = self.config.max_msg_size as usize + BESIDES_PAYLOAD;
        let mut at = 0;
        while at < bytes.len() {
            let Some(conn) = self.conns.get(key).filter(|conn| conn.takes_commands()) else { break };
            if self.work.units >= bound {
                self.defer_to_next_turn(key);
                break;
            }
            if conn.leaves_answers(self.config.max_msg_size as usize) {
                self.defer(key, WaitFor::Client);
                break;
            }
            self.work.note(1);
            match link_frames::frame(&bytes[at..], most) {
                Ok(None) => break,
                Ok(Some((frame, len))) => {
                    at += len;
                    let stamp = stamps.at(at);
                    self.run_frame(key, frame, stamp, now);
                }
                Err(rule) => {
                    self.end_link(key, rule);
                    break;
                }
            }
        }
        if let Some(conn) = self.conns.get_mut(key) {
            self.work.end(&mut conn.deficit, before);
        }
        at
    }

    fn run_frame(&mut self, key: ConnKey, frame: Frame<'_>, stamp: Nanos, now: Nanos) {
        match frame {
            Frame::Heartbeat => self.turn.replies.push((key, Reply::Raw(b"NOP\n".to_vec()))),
            Frame::Accepted => {}
            // It had the message back already, and has sent it again.
            Frame::Refused(text) if text.starts_with(errors::E_FIN_FAILED.as_bytes()) => {}
            Frame::Refused(text) => self.end_link(key, &String::from_utf8_lossy(text)),
            Frame::Message(linked) => self.take_linked(key, linked, stamp, now),
        }
    }

    fn take_linked(&mut self, key: ConnKey, linked: Linked<'_>, stamp: Nanos, now: Nanos) {
        let Linked { id, wall_ns, attributes, so_far, payload } = linked;
        if Attributes::decode(attributes).is_none() {
            return self.end_link(key, "a message has attributes that cannot be read");
        }
        let link = self.conns.get(key).and_then(|conn| conn.link.as_ref());
        let Some((source, way)) = link.map(|link| (Rc::clone(&link.source), link.way)) else { return };
        // One that is not written yet is taken twice rather than lost.
        let is_writing = self.disk.as_ref().is_some_and(|storage| storage.disk.is_listed());
        let latest = self.mqtt.peers.latest.get_mut(&source);
        if latest.is_some_and(|latest| !latest.note(id) && !is_writing) {
            self.turn.replies.push((key, Reply::Raw(link_frames::fin(id))));
            return;
        }
        let alone = Alone { id, wall_ns, attributes, body: payload };
        let mut message = self.builder.alone(&self.memory.messages, alone, stamp.min(now), 0);
        match so_far {
            Some(so_far) => message.times = times_of(way, so_far, stamp.min(now)),
            None => message.foreign = true, // its times do not compare with ours
        }
        self.work.note(message_units(payload.len()));
        let first = self.turn.messages.len();
        self.turn.messages.push(Some(message));
        let source = Source { declared: true, trace_index: None, held_to: None, conn: key };
        let index = self.push_publish(Verb::Linked, TopicKey::default(), source, stamp, first, payload.len() as u64);
        self.turn.replies.push((key, Reply::Linked(index, id)));
    }

    /// Gives a message of another broker to the subscribers here.
    pub(crate) fn route_linked(&mut self, publish: &Publish, now: Nanos) -> Outcome {
        let Publish { topic, first, source: Source { conn, .. }, .. } = *publish;
        if self.memory.messages.used() > self.config.max_memory_bytes {
            return Outcome::Failed(self.memory_is_reached());
        }
        self.begin_release(topic, conn);
        let link = self.conns.get(conn).and_then(|conn| conn.link.as_ref());
        let link = link.map(|link| (link.number, link.topic.clone()));
        let message = self.turn.messages.get_mut(first).and_then(Option::take);
        match (message, link) {
            (Some(message), Some(_)) if is_news(&message) => self.hear_later(conn, message),
            (Some(message), Some((number, of_link))) if *of_link == *RETAINED_TOPIC => {
                self.take_retained(number, &message);
            }
            (Some(message), Some((_, of_link))) => {
                self.fan.linked = Some(of_link);
                self.mqtt.moves.link = self.source_of(conn).filter(|_| !self.mqtt.moves.arrivals.is_empty());
                self.route(topic, &message, now);
                self.mqtt.moves.link = None;
                self.fan.linked = None;
            }
            _ => {}
        }
        Outcome::Done { wait_ns: Some(0), fill: 1.0 }
    }

    pub(crate) fn source_of(&self, key: ConnKey) -> Option<Rc<str>> {
        self.conns.get(key)?.link.as_ref().map(|link| Rc::clone(&link.source))
    }

    /// Answers a message of another broker. One that could not be kept comes again, with all behind it, on a new link.
    pub(crate) fn answer_linked(&mut self, key: ConnKey, publish: &Publish, id: MessageId) {
        if let Outcome::Failed(reason) = &publish.outcome {
            self.source_of(key).map(|source| self.mqtt.peers.latest.remove(&source));
            let reason = reason.clone();
            return self.end_link(key, &reason);
        }
        if let Some(conn) = self.conns.get_mut(key) {
            conn.output().extend_from_slice(&link_frames::fin(id));
        }
        self.mark_dirty(key);
    }
}

/// Whether a message is a word about sessions that move.
fn is_news(message: &Message) -> bool {
    Attributes::decode(message.attributes()).is_some_and(|attributes| attributes.name == NEWS)
}

/// Whether a message goes to a channel: a link's takes only what its broker wants.
pub(crate) fn is_wanted(channel: &Channel, topic_name: &str, names: &ManagedNames, message: &Message) -> bool {
    let Some(interest) = &channel.link else { return true };
    let attributes = Attributes::decode(message.attributes());
    interest.wants(attributes.map_or_else(|| names.name_of(topic_name), |attributes| attributes.name))
}
