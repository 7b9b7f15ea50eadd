//! Packets of a connection of the MQTT port: read, run, and refused.

use crate::arrival::stamps::Stamps;
use crate::clients::connection::{Connection, Phase};
use crate::clients::mqtt_client::MqttClient;
use crate::clients::pending_input::WaitFor;
use crate::clients::reply::Reply;
use crate::engine::Engine;
use crate::keys::{ConnKey, SessionKey};
use crate::memory::LARGE_BYTES;
use crate::protocol::identify::Identity;
use crate::protocol::mqtt::decode::{decode, header};
use crate::protocol::mqtt::encode::{self, Written};
use crate::protocol::mqtt::packet::{AckKind, Disconnect, Packet};
use crate::protocol::mqtt::property;
use crate::protocol::mqtt::reason::{Fault, Reason};
use crate::protocol::mqtt::version::Version;
use crate::scheduling::client_limits::Limit;
use crate::scheduling::work_budget::REFUSAL_UNITS;
use crate::time::{NS_PER_S, Nanos, SHORT_PATIENCE_NS};
use crate::transport::Layers;

/// The broker was not running when a client should have been heard: it gets so long to be heard now.
const GRACE_NS: Nanos = NS_PER_S;

/// Bytes of a packet besides its payload: a name, properties, and what else may stand there.
const BESIDES_PAYLOAD: usize = 2 * LARGE_BYTES;

impl Engine {
    /// A connection of the MQTT port.
    pub fn handle_accept_mqtt(&mut self, remote: &str, now: Nanos) -> ConnKey {
        self.accept_mqtt(remote, None, now)
    }

    /// The same inside TLS, from its first byte on.
    pub fn handle_accept_mqtts(&mut self, remote: &str, now: Nanos) -> ConnKey {
        let layers = self.tls.config.clone().and_then(|tls| Layers::tls_server(tls, now + SHORT_PATIENCE_NS).ok());
        let has_tls = layers.is_some();
        let key = self.accept_mqtt(remote, layers, now);
        if has_tls {
            self.charge_layers(key);
        } else {
            self.close(key);
        }
        key
    }

    /// The same inside WebSocket, and that inside TLS if `encrypted`.
    pub fn handle_accept_mqtt_ws(&mut self, remote: &str, encrypted: bool, now: Nanos) -> ConnKey {
        let tls = self.tls.config.clone().filter(|_| encrypted);
        let origins = self.config.mqtt_ws_origins.clone();
        let layers = if tls.is_some() == encrypted {
            Layers::websocket(tls, origins, now + SHORT_PATIENCE_NS).ok()
        } else {
            None
        };
        let has_layers = layers.is_some();
        let key = self.accept_mqtt(remote, layers, now);
        if has_layers {
            self.charge_layers(key);
        } else {
            self.close(key);
        }
        key
    }

    fn accept_mqtt(&mut self, remote: &str, layers: Option<Layers>, now: Nanos) -> ConnKey {
        self.counters.accepted += 1;
        let mut identity = Identity::unknown(&self.config);
        identity.heartbeat_ms = None;
        let mut connection = Connection::new(identity, remote, self.clock.wall(now), now);
        connection.phase = Phase::Open;
        connection.mqtt = Some(Box::default());
        connection.layers = layers.map(Box::new);
        self.limits.count_in(connection.remote_host());
        let key = self.conns.insert(connection);
        self.arm_connection(key);
        key
    }

    /// Runs the whole packets in `bytes`, as many as the connection's quantum allows; gives how many bytes they took.
    pub(crate) fn run_packets(&mut self, key: ConnKey, bytes: &[u8], stamps: Stamps<'_>, now: Nanos) -> usize {
        let Some(conn) = self.conns.get_mut(key) else { return 0 };
        let (before, bound) = (self.work.units, self.work.begin(&mut conn.deficit));
        if conn.mqtt.as_ref().is_some_and(|mqtt| mqtt.is_connected) {
            conn.last_command = now; // any byte shows that the client is there
        }
        let mut at = 0;
        while let Some(len) = self.next_packet(key, &bytes[at..], bound) {
            self.work.note(1);
            let publishes = self.turn.publishes.len();
            let stamp = stamps.at(at + len);
            let ran = self.run_packet(key, &bytes[at..], stamp, now);
            self.mqtt.counters.packets_in += u64::from(ran != Ok(false));
            match ran {
                Ok(true) => at += len,
                Ok(false) => break,
                Err(fault) => {
                    self.refuse_packet(key, fault);
                    break;
                }
            }
            self.turn.shares_stamp |= at < bytes.len() && self.turn.publishes.len() > publishes;
        }
        if let Some(conn) = self.conns.get_mut(key) {
            self.work.end(&mut conn.deficit, before);
        }
        at
    }

    /// Bytes of the packet that is next. `None`: it is not whole, or not to run now.
    fn next_packet(&mut self, key: ConnKey, bytes: &[u8], bound: u32) -> Option<usize> {
        let conn = self.conns.get(key).filter(|conn| conn.takes_commands())?;
        let mqtt = conn.mqtt.as_ref()?;
        let (version, is_connected) = (mqtt.is_connected.then_some(mqtt.version), mqtt.is_connected);
        if bytes.is_empty() {
            return None;
        }
        if self.work.units >= bound {
            self.defer_to_next_turn(key);
            return None;
        }
        if conn.leaves_answers(self.config.max_msg_size as usize) {
            self.defer(key, WaitFor::Client);
            return None;
        }
        let most = if is_connected { self.longest_packet() } else { LARGE_BYTES };
        match header(bytes, version, most) {
            Ok(header) => header.map(|header| header.len).filter(|len| *len <= bytes.len()),
            Err(fault) => {
                self.refuse_packet(key, fault);
                None
            }
        }
    }

    /// Bytes of a packet that the broker takes, which clients of 5.0 are told.
    pub(crate) fn longest_packet(&self) -> usize {
        self.config.max_msg_size as usize + BESIDES_PAYLOAD
    }

    /// False: it runs when an auth server, or other brokers, have answered.
    fn run_packet(&mut self, key: ConnKey, bytes: &[u8], stamp: Nanos, now: Nanos) -> Result<bool, Fault> {
        let Some(mqtt) = self.mqtt_client(key) else { return Ok(true) };
        let (version, session, is_connected) = (mqtt.version, mqtt.session, mqtt.is_connected);
        let header = header(bytes, is_connected.then_some(version), usize::MAX)?.ok_or(FIRST)?;
        if header.is_connect() == is_connected {
            return Err(FIRST);
        }
        let packet = decode(bytes, header, version)?;
        if !self.is_answered_for(key, &packet, now) {
            return Ok(false);
        }
        match (packet, session) {
            (Packet::Connect(connect), _) => return self.connect(key, &connect, now),
            (Packet::Publish(publish), Some(session)) => self.take_publish(key, session, publish, stamp, now),
            (Packet::Ack(ack), Some(session)) if ack.kind == AckKind::Pubrel => {
                self.release_received(key, session, ack.id);
                Ok(())
            }
            (Packet::Ack(ack), Some(session)) => self.acknowledge(key, session, &ack),
            (Packet::Subscribe(subscribe), Some(session)) => self.subscribe_mqtt(key, session, &subscribe, now),
            (Packet::Unsubscribe(unsubscribe), Some(session)) => {
                self.unsubscribe_mqtt(key, session, &unsubscribe);
                Ok(())
            }
            (Packet::PingRequest, _) => {
                self.turn.replies.push((key, Reply::Raw(encode::PING_RESPONSE.to_vec())));
                Ok(())
            }
            (Packet::Disconnect(disconnect), Some(session)) => self.disconnect(key, session, &disconnect, now),
            (_, None) => Ok(()), // it has ended meanwhile
        }?;
        Ok(true)
    }

    pub(crate) fn mqtt_client(&self, key: ConnKey) -> Option<&MqttClient> {
        self.conns.get(key)?.mqtt.as_deref()
    }

    /// The client ends its connection (5.0, section 3.14).
    fn disconnect(
        &mut self,
        key: ConnKey,
        session: SessionKey,
        disconnect: &Disconnect<'_>,
        now: Nanos,
    ) -> Result<(), Fault> {
        if let Some(expiry_s) = disconnect.properties.number(property::SESSION_EXPIRY) {
            let most = self.config.mqtt_max_session_expiry_s;
            if expiry_s > 0 && self.mqtt.sessions.get(session).is_some_and(|session| !session.is_durable()) {
                return Err(Fault::protocol("a session that ends with its connection stays so [MQTT-3.14.2-2]"));
            }
            self.mqtt.amend(session, |session| session.expiry_s = expiry_s.min(most));
        }
        self.leave(key, disconnect.reason != Reason::SUCCESS, now);
        self.end_input_of(key);
        self.mark_dirty(key);
        Ok(())
    }

    /// A packet breaks a rule: the client is told, as far as its version can be, and the connection ends.
    fn refuse_packet(&mut self, key: ConnKey, fault: Fault) {
        self.work.note(REFUSAL_UNITS);
        let Some(mqtt) = self.mqtt_client(key) else { return };
        if mqtt.is_connected {
            return self.end_mqtt(key, fault.reason, fault.rule);
        }
        if let Some(version) = fault.version {
            return self.refuse_connect(key, version, fault.reason, fault.rule);
        }
        self.end_input_of(key);
        self.mark_dirty(key);
    }

    /// Ends a connection for a reason that its client is told, if its version can be.
    pub(crate) fn end_mqtt(&mut self, key: ConnKey, reason: Reason, text: &str) {
        let mut properties = Written::default();
        if text.len() < usize::from(u16::MAX) {
            properties.text(property::REASON_STRING, text);
        }
        self.end_mqtt_with(key, reason, &properties);
    }

    /// Ends a connection; a client of 5.0 is told these properties, if its packets may be so long.
    pub(crate) fn end_mqtt_with(&mut self, key: ConnKey, reason: Reason, properties: &Written) {
        let Some(mqtt) = self.mqtt_client(key) else { return };
        if mqtt.is_connected {
            let (version, most) = (mqtt.version, mqtt.longest_packet);
            let mut out = Vec::new();
            encode::disconnect(&mut out, version, reason, properties);
            if out.len() > most as usize {
                out.clear();
                encode::disconnect(&mut out, version, reason, &Written::default());
            }
            self.turn.replies.push((key, Reply::Raw(out)));
        }
        if let Some(session) = self.conns.get_mut(key).and_then(|conn| conn.mqtt.as_mut()?.session.take()) {
            self.schedule.left.push(session);
        }
        self.end_input_of(key);
        self.mark_dirty(key);
    }

    /// Whether a client has let its keep alive pass, or sends no CONNECT.
    pub(crate) fn is_silent(&self, key: ConnKey, now: Nanos) -> bool {
        let Some(conn) = self.conns.get(key).filter(|conn| conn.phase == Phase::Open && !conn.is_handshaking()) else {
            return false;
        };
        let Some(mqtt) = &conn.mqtt else { return false };
        mqtt.deadline(conn.last_command, conn.blocked_since, conn.input_state.waits()).is_some_and(|at| at <= now)
    }

    /// Ends a connection that was silent, unless it was the broker that did not run: then it is given a moment.
    pub(crate) fn end_silent(&mut self, key: ConnKey, now: Nanos) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let Some(mqtt) = &conn.mqtt else { return };
        let deadline = mqtt.deadline(conn.last_command, None, false).unwrap_or(now);
        if mqtt.is_connected && now - deadline > GRACE_NS / 2 && conn.blocked_since.is_none() {
            conn.last_command = now + GRACE_NS - mqtt.keep_alive_ns;
            return self.arm_connection(key);
        }
        let is_slow = conn.blocked_since.is_some();
        if is_slow || !mqtt.is_connected {
            self.note_limit(if is_slow { Limit::SlowReader } else { Limit::SilentClient }, key);
            return self.close(key);
        }
        let version = mqtt.version;
        self.end_mqtt(key, Reason::KEEP_ALIVE_TIMEOUT, "nothing came within 1.5 times the keep alive");
        if version != Version::V5 {
            self.close(key); // which has nothing to be told
        }
    }
}

const FIRST: Fault = Fault::protocol("the first packet of a connection is its only CONNECT [MQTT-3.1.0-1]");
