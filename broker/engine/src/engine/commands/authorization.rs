//! AUTH, and the check of commands and packets against grants. Python asks auth servers, and the connection waits.

use std::rc::Rc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use slotmap::{Key, KeyData};

use crate::clients::pending_input::WaitFor;
use crate::clients::reply::Reply;
use crate::config::AccessRules;
use crate::engine::Engine;
use crate::event::Event;
use crate::keys::ConnKey;
use crate::mqtt::reporting::denials::Action;
use crate::protocol::access::{Access, Object, Permission, Who};
use crate::protocol::codec::Command;
use crate::protocol::errors::{self, WireError, quoted};
use crate::protocol::grants::{Auth, Grant};
use crate::protocol::mqtt::packet::Packet;
use crate::protocol::mqtt::reason::Reason;
use crate::scheduling::work_budget::password_units;
use crate::time::Nanos;

/// What a command needs: its name, the permission, topic and channel. `None`: it is free.
fn needed<'a>(command: &Command<'a>) -> Option<(&'static str, Permission, &'a str, &'a str)> {
    match *command {
        Command::Pub { topic, .. } => Some(("PUB", Permission::Publish, topic, "")),
        Command::Mpub { topic, .. } => Some(("MPUB", Permission::Publish, topic, "")),
        Command::Dpub { topic, .. } => Some(("DPUB", Permission::Publish, topic, "")),
        Command::Sub { topic, channel } => Some(("SUB", Permission::Subscribe, topic, channel)),
        _ => None,
    }
}

impl Engine {
    /// AUTH: Python is asked to ask, and the connection waits for the answer.
    pub(crate) fn auth(&mut self, key: ConnKey, secret: &[u8]) -> Result<(), WireError> {
        let Some(conn) = self.conns.get_mut(key) else { return Ok(()) };
        if conn.auth.is_some() {
            return Err(WireError::invalid("AUTH already set"));
        }
        if self.config.auth_servers {
            conn.auth = Some(Box::new(Auth { secret: secret.into(), ..Auth::default() }));
            self.ask_for_authorization(key);
            return Ok(());
        }
        if !self.access.asks() {
            return Err(WireError::new(errors::E_AUTH_DISABLED, "AUTH disabled"));
        }
        let Some(grant) = self.grant_of_secret(secret) else {
            self.note_denial(key, Action::Connect, "");
            return Err(WireError::new(errors::E_AUTH_FAILED, "AUTH failed"));
        };
        let (response, empty) = (grant.response(), grant.is_empty());
        if let Some(conn) = self.conns.get_mut(key) {
            conn.auth = Some(Box::new(Auth { grant: Some(Rc::new(grant)), ..Auth::default() }));
        }
        if empty {
            return Err(WireError::new(errors::E_UNAUTHORIZED, "AUTH no authorizations found"));
        }
        self.turn.replies.push((key, Reply::Json(response)));
        Ok(())
    }

    /// What is granted to who shows this: a token, or `NAME:PASSWORD`.
    pub(crate) fn grant_of_secret(&mut self, secret: &[u8]) -> Option<Grant> {
        let who = self.access.of_token(secret).or_else(|| {
            let (name, password) = split_secret(secret)?;
            self.who_shows(name, password)
        })?;
        Some(self.grant_of(who))
    }

    /// Who shows this password, or token, of that name.
    pub(crate) fn who_shows(&mut self, name: &str, password: &[u8]) -> Option<Who> {
        self.access.of_password(name, password, |iterations| self.work.note(password_units(iterations)))
    }

    /// What rows grant.
    pub(crate) fn grant_of(&self, who: Who) -> Grant {
        let rights = self.access.rights_of(&who);
        Grant::of(who, rights)
    }

    /// Whether clients need not say who they are.
    pub(crate) fn is_open(&self) -> bool {
        self.config.anonymous && !self.config.auth_servers
    }

    /// Whether clients of NSQ and HTTP are asked anything before they publish or subscribe.
    pub(crate) fn judges_clients(&self) -> bool {
        !self.is_open() || self.access.has_rows()
    }

    /// Other users, tokens and rows, where there were some before. Tokens and rows count at once for all who are
    /// connected: consumers that may not be one any more are ended. Passwords count from the next client on.
    pub fn set_access(&mut self, rules: AccessRules) {
        self.access = Access::new(rules);
        self.nobody = Rc::new(self.grant_of(Who::default()));
        let renewed = |grant: &Grant| Rc::new(grant.with(grant.who.clone(), self.access.rights_of(&grant.who)));
        for conn in self.conns.values_mut() {
            if conn.http.is_some() {
                conn.auth.take_if(|auth| auth.grant.is_some()); // its next request shows it again
            } else if let Some(grant) = conn.auth.as_mut().and_then(|auth| auth.grant.as_mut()) {
                *grant = renewed(grant);
            }
        }
        for grant in self.mqtt.sessions.values_mut().filter_map(|session| session.grant.as_mut()) {
            *grant = renewed(grant);
        }
        let mut denied = Vec::new();
        for (key, conn) in &self.conns {
            let channel = conn.subscription.as_ref().and_then(|sub| self.channels.get(sub.channel));
            let topic = channel.and_then(|channel| self.topics.get(channel.topic));
            let (Some(channel), Some(topic), false) = (channel, topic, conn.terms.linked) else { continue };
            let grant = conn.auth.as_ref().and_then(|auth| auth.grant.as_ref()).unwrap_or(&self.nobody);
            if !grant.allows(Permission::Subscribe, Object::topic(&topic.name), &channel.name) {
                denied.push((key, unauthorized("SUB", &topic.name, &channel.name)));
            }
        }
        denied.into_iter().for_each(|(key, error)| self.refuse(key, error));
    }

    pub(crate) fn ask_for_authorization(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get(key) else { return };
        let Some(auth) = &conn.auth else { return };
        self.events.push(Event::AuthAsked {
            connection: key.data().as_ffi(),
            secret: BASE64_STANDARD.encode(&auth.secret),
            remote_ip: conn.remote_ip().into(),
            tls: conn.has_tls(),
            common_name: conn.layers.as_ref().and_then(|layers| layers.peer_name()).unwrap_or_default().into(),
            username: auth.username.clone().into(),
            client_id: auth.client_id.clone().into(),
        });
        self.defer(key, WaitFor::Python);
    }

    /// Notes for the log that a client of NSQ or HTTP was denied something, by its name or its address.
    pub(crate) fn note_denial(&mut self, key: ConnKey, action: Action, topic: &str) {
        let Some(conn) = self.conns.get(key) else { return };
        let name = conn.auth.as_ref().and_then(|auth| Some(&*auth.grant.as_ref()?.who.name));
        let client = name.filter(|name| !name.is_empty()).unwrap_or_else(|| conn.remote_ip());
        self.mqtt.denials.note(action, client, topic);
    }

    /// Whether a command may run now. False: its authorization has expired, and the connection waits for a new one.
    pub(crate) fn may_run(&mut self, key: ConnKey, command: &Command<'_>, now: Nanos) -> Result<bool, WireError> {
        let Some((name, permission, topic, channel)) = needed(command) else { return Ok(true) };
        let Some(conn) = self.conns.get(key) else { return Ok(true) };
        let nobody = Some(&self.nobody).filter(|_| self.is_open());
        let Some(grant) = conn.auth.as_ref().and_then(|auth| auth.grant.as_ref()).or(nobody) else {
            self.note_denial(key, Action::Connect, "");
            return Err(WireError::new(errors::E_AUTH_FIRST, format!("AUTH required before {name}")));
        };
        if grant.expires < now {
            self.ask_for_authorization(key);
            return Ok(false);
        }
        if grant.allows(permission, Object::topic(topic), channel) {
            return Ok(true);
        }
        let action = if permission == Permission::Publish { Action::Publish } else { Action::Subscribe };
        self.note_denial(key, action, topic);
        Err(unauthorized(name, topic, channel))
    }

    /// Whether a packet of MQTT may run now: an auth server has answered for its client. False: the connection waits.
    pub(crate) fn is_answered_for(&mut self, key: ConnKey, packet: &Packet<'_>, now: Nanos) -> bool {
        if !self.config.auth_servers {
            return true;
        }
        let Some(conn) = self.conns.get_mut(key) else { return true };
        let expires = conn.auth.as_ref().and_then(|auth| auth.grant.as_ref()).map(|grant| grant.expires);
        match (packet, expires) {
            (Packet::Connect(connect), None) => {
                conn.auth = Some(Box::new(Auth {
                    secret: connect.password.unwrap_or_default().into(),
                    username: connect.username.unwrap_or_default().into(),
                    client_id: connect.client_id.into(),
                    ..Auth::default()
                }));
            }
            (Packet::Publish(_) | Packet::Subscribe(_), Some(expires)) if expires < now => {}
            _ => return true,
        }
        self.ask_for_authorization(key);
        false
    }

    /// The answer for an MQTT client: its CONNECT runs now, or what waited for a new authorization.
    fn set_mqtt_grant(&mut self, key: ConnKey, grant: Option<Grant>, now: Nanos) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let session = conn.mqtt.as_ref().and_then(|mqtt| mqtt.session);
        if grant.is_none() && session.is_some() {
            return self.end_mqtt(key, Reason::NOT_AUTHORIZED, "no auth server renews what the client may do");
        }
        let grant = Rc::new(grant.unwrap_or_else(Grant::nothing));
        if let Some(auth) = &mut conn.auth {
            auth.grant = Some(Rc::clone(&grant));
        }
        if let Some(session) = session.and_then(|session| self.mqtt.sessions.get_mut(session)) {
            let who = session.grant.as_ref().map(|grant| grant.who.clone()).unwrap_or_default();
            let rights = self.access.rights_of(&who);
            session.grant = Some(Rc::new(grant.with(who, rights)));
        }
        self.resume(key, now);
    }

    /// Whether somebody still waits for this answer.
    pub fn awaits_authorization(&self, connection: u64) -> bool {
        self.is_waiting(ConnKey::from(KeyData::from_ffi(connection)))
    }

    /// The auth server's answer for a connection that waits for it; `None`: there is none. Gives why it is refused.
    pub fn set_authorization(&mut self, connection: u64, answer: Option<&[u8]>, now: Nanos) -> Result<(), String> {
        let key = ConnKey::from(KeyData::from_ffi(connection));
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.input_state.waits()) else { return Ok(()) };
        let Some(auth) = &mut conn.auth else { return Ok(()) };
        let parsed = answer.map(|answer| Grant::parse(answer, &self.patterns, now)).transpose();
        if conn.mqtt.is_some() || conn.http.is_some() {
            let (grant, refused) = parsed.map_or_else(|reason| (None, Err(reason)), |grant| (grant, Ok(())));
            if conn.mqtt.is_some() {
                self.set_mqtt_grant(key, grant, now);
            } else {
                let held = |grant: Grant| grant.with(grant.who.clone(), self.access.rights_of(&grant.who));
                auth.grant = Some(Rc::new(grant.map_or_else(Grant::nothing, held)));
                self.resume(key, now);
            }
            return refused;
        }
        let grant = match parsed {
            Ok(Some(grant)) => grant.with(grant.who.clone(), self.access.rights_of(&grant.who)),
            Ok(None) => {
                self.refuse(key, WireError::new(errors::E_AUTH_FAILED, "AUTH failed"));
                return Ok(());
            }
            Err(reason) => {
                self.refuse(key, WireError::new(errors::E_AUTH_FAILED, "AUTH failed"));
                return Err(reason);
            }
        };
        let (first, response, empty) = (auth.grant.is_none(), grant.response(), grant.is_empty());
        auth.grant = Some(Rc::new(grant));
        if first && empty {
            self.refuse(key, WireError::new(errors::E_UNAUTHORIZED, "AUTH no authorizations found"));
        } else if first {
            self.turn.replies.push((key, Reply::Json(response)));
        }
        self.resume(key, now);
        Ok(())
    }
}

/// Name and password of `NAME:PASSWORD`.
pub(crate) fn split_secret(secret: &[u8]) -> Option<(&str, &[u8])> {
    let at = secret.iter().position(|byte| *byte == b':')?;
    Some((std::str::from_utf8(&secret[..at]).ok()?, &secret[at + 1..]))
}

fn unauthorized(command: &str, topic: &str, channel: &str) -> WireError {
    let (topic, channel) = (quoted(topic.as_bytes()), quoted(channel.as_bytes()));
    WireError::new(errors::E_UNAUTHORIZED, format!("AUTH failed for {command} on {topic} {channel}"))
}
