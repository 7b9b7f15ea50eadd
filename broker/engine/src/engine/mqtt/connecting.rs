//! CONNECT, and the life of sessions: made, taken over, kept for a while, ended.

use std::rc::Rc;

use crate::clients::mqtt_client::TOPIC_ALIASES;
use crate::clients::reply::Reply;
use crate::config::MqttIdentity;
use crate::engine::Engine;
use crate::engine::mqtt::publishing::may_be_published;
use crate::keys::{ConnKey, SessionKey};
use crate::mqtt::reporting::denials::Action;
use crate::mqtt::session::{Begun, ENDS_WITH_CONNECTION, NEVER_EXPIRES, Session, cost_of};
use crate::mqtt::will::Will;
use crate::protocol::access::{Permission, Who};
use crate::protocol::grants::Grant;
use crate::protocol::identify::Identity;
use crate::protocol::mqtt::encode::{self, Written};
use crate::protocol::mqtt::packet::Connect;
use crate::protocol::mqtt::property;
use crate::protocol::mqtt::reason::{Fault, Reason};
use crate::protocol::mqtt::version::Version;
use crate::scheduling::client_limits::Limit;
use crate::scheduling::work_budget::IDENTIFY_UNITS;
use crate::time::{NS_PER_S, Nanos};
use crate::timer::Timer;

impl Engine {
    /// False: it runs when other brokers have said whether they have the client's session.
    pub(crate) fn connect(&mut self, key: ConnKey, connect: &Connect<'_>, now: Nanos) -> Result<bool, Fault> {
        self.work.note(IDENTIFY_UNITS);
        let admitted = match self.admit_client(key, connect, now) {
            Ok(admitted) => admitted,
            Err((reason, text)) => {
                self.refuse_connect(key, connect.version, reason, &text);
                return Ok(true);
            }
        };
        let since_wall_ns = match &admitted.assigned {
            Some(_) => self.clock.wall(now),
            None => match self.find_home(key, connect.client_id, connect, now) {
                Some(wall_ns) => wall_ns,
                None => return Ok(false),
            },
        };
        let (session, is_present) = self.begin_session(key, connect, &admitted, now);
        let expiry_s = self.agree_on_session(session, key, connect);
        if let Some(session) = self.mqtt.sessions.get_mut(session) {
            session.grant = admitted.grant.clone();
            session.since_wall_ns = since_wall_ns;
            session.begun = if connect.clean_start { Begun::Clean } else { Begun::Resumed };
        }
        // A new will is not due, and the one before is gone: its client came back in time [MQTT-3.1.3-9].
        self.mqtt.amend(session, |session| session.will = connect.will.as_ref().map(|will| Box::new(Will::of(will))));
        self.keep_on_disk(session, now);
        self.note_session(session);
        let keep_alive_s = self.keep_alive_s(connect);
        self.attach(key, session, connect, &admitted, keep_alive_s, now);
        let accepted = Accepted { assigned: admitted.assigned, expiry_s, keep_alive_s, is_present };
        self.answer_connect(key, connect, &accepted);
        self.arm_connection(key);
        self.note_member(session);
        self.resend(session);
        Ok(true)
    }

    /// Who the client is and what it may do; or why it is refused.
    fn admit_client(&mut self, key: ConnKey, connect: &Connect<'_>, now: Nanos) -> Result<Admitted, (Reason, String)> {
        let identified = self.identify_mqtt(key, connect);
        if let Some(refusal) = self.refusal_of_connect(connect) {
            return Err(refusal);
        }
        let Some(Identified { who, publisher }) = identified else { return Err(self.refusal_of_nobody()) };
        let assigned =
            connect.client_id.is_empty().then(|| format!("srtm-{:016x}", self.ids.next(self.clock.wall(now)).0));
        let client_id = assigned.as_deref().unwrap_or(connect.client_id);
        let grant = self.session_grant(key, Who { client_id: client_id.into(), ..who });
        let may_write =
            |name| grant.as_ref().is_none_or(|grant| grant.allows(Permission::Publish, self.object_of(name), ""));
        if let Some(will) = connect.will.as_ref().filter(|will| !may_write(will.topic)) {
            self.deny(Action::Publish, client_id, will.topic);
            return Err((Reason::NOT_AUTHORIZED, "the client may not publish its will".into()));
        }
        let known = self.mqtt.session_of(client_id);
        let session = known.and_then(|session| self.mqtt.sessions.get(session));
        let is_there = session.is_some_and(|session| session.conn.is_some());
        if self.mqtt.takeovers.must_wait(client_id, is_there, now) {
            self.deny(Action::TakeOver, client_id, "");
            return Err((Reason::SERVER_BUSY, "two clients use this client id: try again in 1 s".into()));
        }
        if let Some(text) = self.refusal_to_keep(client_id, known, connect) {
            return Err((Reason::QUOTA_EXCEEDED, text));
        }
        Ok(Admitted { assigned, publisher, grant, known, is_there })
    }

    /// The client's session from now on, and whether it is the one that it had. Whoever has that one now is ended.
    fn begin_session(
        &mut self,
        key: ConnKey,
        connect: &Connect<'_>,
        admitted: &Admitted,
        now: Nanos,
    ) -> (SessionKey, bool) {
        let client_id = admitted.assigned.as_deref().unwrap_or(connect.client_id);
        if let Some(session) = admitted.known.filter(|_| admitted.is_there) {
            self.mqtt.takeovers.note(client_id, false, now);
            self.take_over(session, now);
        }
        let known = admitted.known.filter(|session| self.mqtt.sessions.contains_key(*session));
        if let Some(session) = known.filter(|_| connect.clean_start) {
            self.end_session(session, now);
        }
        let known = known.filter(|_| !connect.clean_start);
        (known.unwrap_or_else(|| self.mqtt.add_session(Session::new(client_id, key))), known.is_some())
    }

    /// The connection is the session's from now on.
    fn attach(
        &mut self,
        key: ConnKey,
        session: SessionKey,
        connect: &Connect<'_>,
        admitted: &Admitted,
        keep_alive_s: u16,
        now: Nanos,
    ) {
        let by_id = self.mqtt.sessions.get(session).filter(|_| admitted.assigned.is_none());
        let by_id = by_id.map(|session| Rc::clone(&session.client_id));
        let publisher = admitted.publisher.clone().or(by_id).filter(|id| id.len() <= LONGEST_PUBLISHER);
        let Some(conn) = self.conns.get_mut(key) else { return };
        let mut identity = Identity::unknown(&self.config);
        (identity.client_id, identity.heartbeat_ms) = (publisher, None);
        identity.aware = connect.version == Version::V5 && connect.properties.user("srtm-follow") == Some("1");
        if let (true, Some(id)) = (identity.aware, &identity.client_id) {
            self.aware.entry(id.clone()).or_default().push(key);
        }
        conn.identify(identity);
        conn.last_command = now;
        if let Some(mqtt) = &mut conn.mqtt {
            (mqtt.version, mqtt.session, mqtt.is_connected) = (connect.version, Some(session), true);
            mqtt.is_bridge = connect.is_bridge;
            mqtt.keep_alive_ns = Nanos::from(keep_alive_s) * NS_PER_S * 3 / 2;
            mqtt.agree(connect.properties);
        }
    }

    /// Who a client is. `None`: it does not say so, or not as it must.
    fn identify_mqtt(&mut self, key: ConnKey, connect: &Connect<'_>) -> Option<Identified> {
        let by_certificate = self.config.mqtt_identity == MqttIdentity::CertCn;
        let layers = self.conns.get(key).and_then(|conn| conn.layers.as_ref());
        let common_name = layers.and_then(|layers| layers.peer_name()).map(str::to_owned).filter(|_| by_certificate);
        let granted = self.granted(key);
        let who = match (&common_name, connect.username) {
            _ if granted.as_ref().is_some_and(|grant| grant.is_empty()) => {
                self.deny(Action::Connect, connect.client_id, connect.username.unwrap_or_default());
                return None;
            }
            (Some(name), _) => Some(Who::named(name)),
            _ if granted.is_some() => granted.map(|grant| grant.who.clone()),
            (None, Some(name)) if self.access.asks() => self.who_shows(name, connect.password.unwrap_or_default()),
            (None, Some(name)) => Some(Who::named(name)),
            (None, None) => self.is_open().then(Who::default),
        };
        let Some(who) = who else {
            self.deny(Action::Connect, connect.client_id, connect.username.unwrap_or_default());
            return None;
        };
        let publisher = match self.config.mqtt_identity {
            MqttIdentity::ClientId => None,
            MqttIdentity::Username | MqttIdentity::CertCn => Some(&*who.name).filter(|name| !name.is_empty()),
        };
        let publisher = publisher.map(Into::into);
        Some(Identified { who, publisher })
    }

    /// What a client may do; `None`: everything.
    fn session_grant(&self, key: ConnKey, who: Who) -> Option<Rc<Grant>> {
        let rights = self.access.rights_of(&who);
        match self.granted(key) {
            Some(granted) => Some(Rc::new(granted.with(who, rights))),
            None => rights.map(|rights| Rc::new(Grant::of(who, Some(rights)))),
        }
    }

    /// What an auth server has answered for the client.
    fn granted(&self, key: ConnKey) -> Option<Rc<Grant>> {
        self.conns.get(key)?.auth.as_ref()?.grant.clone()
    }

    fn refusal_of_nobody(&self) -> (Reason, String) {
        match self.config.auth_servers {
            true => (Reason::NOT_AUTHORIZED, "no auth server grants anything to the client".into()),
            false => (Reason::BAD_USER_OR_PASSWORD, NOBODY.into()),
        }
    }

    /// Why a CONNECT that is sound is refused, if it is.
    fn refusal_of_connect(&self, connect: &Connect<'_>) -> Option<(Reason, String)> {
        if let Some(reason) = &self.refusal {
            return Some((Reason::SERVER_UNAVAILABLE, reason.clone()));
        }
        if connect.properties.text(property::AUTHENTICATION_METHOD).is_some() {
            return Some((Reason::BAD_AUTHENTICATION_METHOD, "no authentication method is offered".into()));
        }
        if connect.will.as_ref().is_some_and(|will| !may_be_published(will.topic)) {
            return Some((Reason::NOT_AUTHORIZED, "the topic of the will is not a client's".into()));
        }
        if connect.will.as_ref().is_some_and(|will| self.is_foreign_name(will.topic)) {
            return Some((Reason::NOT_AUTHORIZED, "the name of the will is no topic's (mqtt_unmanaged)".into()));
        }
        let needs_id = match connect.version {
            Version::V3_1 => true,
            Version::V3_1_1 => !connect.clean_start,
            Version::V5 => false,
        };
        let text = "a session that is kept needs a client id [MQTT-3.1.3-8 of 3.1.1]";
        (needs_id && connect.client_id.is_empty()).then(|| (Reason::CLIENT_ID_INVALID, text.into()))
    }

    /// Why what a CONNECT leaves here without its client, a session and a will, has no room, if so.
    fn refusal_to_keep(&mut self, client: &str, known: Option<SessionKey>, connect: &Connect<'_>) -> Option<String> {
        let lasts = asked_expiry_s(connect).min(self.config.mqtt_max_session_expiry_s) != ENDS_WITH_CONNECTION;
        let before = known.and_then(|key| self.mqtt.sessions.get(key));
        let most = self.config.mqtt_max_sessions;
        if lasts && self.mqtt.durable >= most && !before.is_some_and(Session::is_durable) {
            self.limits.note(Limit::Sessions, client);
            return Some(format!("{most} sessions are kept (mqtt_max_sessions)"));
        }
        let cost = cost_of(lasts.then_some(client), connect.will.as_ref().map_or(0, Will::cost_of));
        let more = cost.saturating_sub(before.map_or(0, Session::cost));
        // Messages that wait, of whatever topic, must not keep clients away.
        if more == 0 || self.mqtt.kept.has_own_room_for(more) {
            return None;
        }
        self.limits.note(Limit::SessionBytes, client);
        let most = self.mqtt.kept.most();
        Some(format!("sessions that are kept, and wills, may take {most} bytes, an eighth of max_memory_bytes"))
    }

    /// The session's new terms; gives for how long it is kept, in seconds, if that is not what was asked for.
    fn agree_on_session(&mut self, key: SessionKey, conn: ConnKey, connect: &Connect<'_>) -> Option<u32> {
        let asked = asked_expiry_s(connect);
        let window = connect.properties.number(property::RECEIVE_MAXIMUM).unwrap_or(u32::from(u16::MAX));
        let window = window.min(u32::from(self.config.mqtt_max_in_flight)).max(1) as u16;
        let expiry_s = asked.min(self.config.mqtt_max_session_expiry_s);
        self.mqtt.amend(key, |session| session.expiry_s = expiry_s);
        let session = self.mqtt.sessions.get_mut(key)?;
        session.conn = Some(conn);
        session.window = window;
        if let Some(outgoing) = &mut session.outgoing {
            outgoing.window = window;
        }
        session.forget_repeats();
        (expiry_s != asked).then_some(expiry_s)
    }

    /// Keep alive in seconds. A client of 3.1.1 cannot be told another one: it gets its own.
    fn keep_alive_s(&self, connect: &Connect<'_>) -> u16 {
        let (asked, most) = (connect.keep_alive_s, self.config.mqtt_max_keep_alive_s);
        if connect.version == Version::V5 && most > 0 && (asked == 0 || asked > most) { most } else { asked }
    }

    /// Writes the CONNACK at once: no delivery may come before it.
    fn answer_connect(&mut self, key: ConnKey, connect: &Connect<'_>, accepted: &Accepted) {
        let mut properties = Written::default();
        properties
            .two(property::RECEIVE_MAXIMUM, self.config.mqtt_receive_maximum)
            .two(property::TOPIC_ALIAS_MAXIMUM, TOPIC_ALIASES)
            .four(property::MAXIMUM_PACKET_SIZE, self.longest_packet() as u32);
        if let Some(id) = &accepted.assigned {
            properties.text(property::ASSIGNED_CLIENT_ID, id);
        }
        if let Some(expiry_s) = accepted.expiry_s {
            properties.four(property::SESSION_EXPIRY, expiry_s);
        }
        if accepted.keep_alive_s != connect.keep_alive_s {
            properties.two(property::SERVER_KEEP_ALIVE, accepted.keep_alive_s);
        }
        let Some(conn) = self.conns.get_mut(key) else { return };
        let Some(mqtt) = &conn.mqtt else { return };
        if mqtt.receipts {
            properties.user("srtm", "1");
        }
        let (mut out, most) = (Vec::new(), mqtt.longest_packet as usize);
        encode::connack(&mut out, connect.version, accepted.is_present, Reason::SUCCESS, &properties);
        if out.len() > most {
            self.schedule.left.extend(conn.mqtt.as_mut().and_then(|mqtt| mqtt.session.take()));
            self.end_input_of(key); // it takes no packet that could say more
        } else {
            conn.output().extend_from_slice(&out);
        }
        self.mark_dirty(key);
    }

    pub(crate) fn refuse_connect(&mut self, key: ConnKey, version: Version, reason: Reason, text: &str) {
        let mut properties = Written::default();
        if version == Version::V5 && text.len() < 1_024 {
            properties.text(property::REASON_STRING, text);
        }
        let mut out = Vec::new();
        encode::connack(&mut out, version, false, reason, &properties);
        self.turn.replies.push((key, Reply::Raw(out)));
        self.end_input_of(key);
        self.mark_dirty(key);
    }

    /// Another connection brings the same client id: the older one ends [MQTT-3.1.4-3].
    pub(crate) fn take_over(&mut self, session: SessionKey, now: Nanos) {
        let Some(conn) = self.mqtt.sessions.get(session).and_then(|session| session.conn) else { return };
        self.end_mqtt(conn, Reason::SESSION_TAKEN_OVER, "another connection has the same client id");
        self.schedule.left.retain(|left| *left != session);
        self.detach(session, now);
    }

    /// A client has ended its connection as it should: without its will, unless it says so.
    pub(crate) fn leave(&mut self, key: ConnKey, with_will: bool, now: Nanos) {
        let session = self.conns.get_mut(key).and_then(|conn| conn.mqtt.as_mut()?.session.take());
        if let Some(session) = session {
            if !with_will {
                self.mqtt.amend(session, |session| session.will = None);
            }
            self.detach(session, now);
        }
    }

    /// Sessions whose connections broke, or were ended.
    pub(crate) fn handle_left(&mut self, now: Nanos) {
        for session in std::mem::take(&mut self.schedule.left) {
            self.detach(session, now);
        }
    }

    /// A session is without a connection: it ends now, or later.
    fn detach(&mut self, key: SessionKey, now: Nanos) {
        let Some(session) = self.mqtt.sessions.get_mut(key) else { return };
        session.conn = None;
        if session.expiry_s == ENDS_WITH_CONNECTION {
            return self.end_session(key, now);
        }
        let after = |seconds: u32| now + Nanos::from(seconds) * NS_PER_S;
        session.ends_at = if session.expiry_s == NEVER_EXPIRES { Nanos::MAX } else { after(session.expiry_s) };
        session.will.iter_mut().for_each(|will| will.due_at = after(will.delay_s));
        if session.will_at() <= now {
            self.publish_will(key, now);
        }
        self.note_member(key);
        self.give_back_shared(key, now);
        self.note_session(key);
        self.arm_session(key);
    }

    /// Arms the session's end or its will, whichever comes first.
    pub(crate) fn arm_session(&mut self, key: SessionKey) {
        let Some(session) = self.mqtt.sessions.get_mut(key) else { return };
        let at = session.ends_at.min(session.will_at());
        if at < Nanos::MAX {
            self.timers.arm(&mut session.armed, at, Timer::Session(key));
        }
    }

    pub(crate) fn handle_session_timer(&mut self, key: SessionKey, at: Nanos, now: Nanos) {
        let Some(session) = self.mqtt.sessions.get_mut(key) else { return };
        if !session.armed.fire(at) || session.conn.is_some() {
            return;
        }
        let (ends_at, will_at) = (session.ends_at, session.will_at());
        if ends_at <= now {
            return self.end_session(key, now);
        }
        if will_at <= now {
            self.publish_will(key, now);
        }
        self.arm_session(key);
    }

    /// Forgets a session and all that it has; its will is due at once [MQTT-3.1.3-9].
    pub(crate) fn end_session(&mut self, key: SessionKey, now: Nanos) {
        self.publish_will(key, now);
        self.give_back_shared(key, now);
        self.unsubscribe_all(key);
        self.save_end(key, now);
        self.mqtt.moves.departures.remove(&key);
        let arrives = self.mqtt.sessions.get(key).filter(|session| session.arrives);
        if let Some(client) = arrives.map(|session| Rc::clone(&session.client_id)) {
            self.mqtt.moves.arrivals.remove(&client);
        }
        self.mqtt.remove_session(key);
    }
}

/// For how long a client wants its session to be kept, in seconds.
fn asked_expiry_s(connect: &Connect<'_>) -> u32 {
    match connect.version {
        Version::V5 => connect.properties.number(property::SESSION_EXPIRY).unwrap_or(ENDS_WITH_CONNECTION),
        _ if connect.clean_start => ENDS_WITH_CONNECTION,
        _ => NEVER_EXPIRES,
    }
}

/// Bytes of the name under which a publisher is known, as in IDENTIFY. One with a longer name is undeclared.
const LONGEST_PUBLISHER: usize = 256;

const NOBODY: &str = "user name and password are not those of a user";

/// Who a client has shown itself to be.
#[derive(Debug)]
struct Identified {
    who: Who,
    publisher: Option<Rc<str>>, // None: its client id
}

/// A client that is let in.
#[derive(Debug)]
struct Admitted {
    assigned: Option<String>,   // its client id, if it has none of its own
    publisher: Option<Rc<str>>, // None: its client id
    grant: Option<Rc<Grant>>,   // None: everything
    known: Option<SessionKey>,  // that it had when it came
    is_there: bool,             // a connection has that one
}

/// What a CONNECT got that it did not say itself.
#[derive(Debug)]
struct Accepted {
    assigned: Option<String>,
    expiry_s: Option<u32>, // if it is not what was asked for
    keep_alive_s: u16,
    is_present: bool,
}
