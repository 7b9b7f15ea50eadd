//! AUTH: what an auth server grants to a connection, and whether a command is covered by it. Asking the server is Python's part.
//!
//! Topic and channel patterns are regular expressions in Go's syntax, searched unanchored; publishing is checked with the empty channel, as nsqd does.

use std::collections::HashMap;
use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;
use slotmap::{Key, KeyData};

use crate::clients::reply::Reply;
use crate::engine::Engine;
use crate::event::Event;
use crate::keys::ConnKey;
use crate::protocol::codec::Command;
use crate::protocol::errors::{self, WireError, quoted};
use crate::time::Nanos;

/// Memory that one compiled pattern may take, and again its caches: ordinary ones take a tenth.
const MAX_PATTERN_BYTES: usize = 128 << 10;

/// Compiled patterns that are kept for all connections; with more in use, all are forgotten and compiled again when they are met.
const MAX_PATTERNS: usize = 512;

/// Topics that a connection's authorization is known to cover.
const MAX_REMEMBERED: usize = 16;

const NS_PER_S: Nanos = 1_000_000_000;

/// An auth server's answer.
#[derive(Debug, Deserialize)]
struct Answer {
    ttl: i64, // s
    #[serde(default)]
    identity: String,
    #[serde(default)]
    identity_url: String,
    #[serde(default)]
    authorizations: Vec<Rule>,
}

/// One authorization: what may be done on which topics and channels.
#[derive(Debug, Deserialize)]
struct Rule {
    topic: String,
    #[serde(default)]
    channels: Vec<String>,
    #[serde(default)]
    permissions: Vec<Permission>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Permission {
    Subscribe,
    Publish,
}

/// What a connection may do until `expires`.
#[derive(Debug)]
struct Grant {
    identity: Box<str>,
    identity_url: Box<str>,
    rules: Vec<Rule>,
    expires: Nanos,
    publishes: Vec<Box<str>>, // topics that the rules were found to cover: no pattern is searched twice on the message path
}

/// A connection that said AUTH. The secret is kept to ask again with.
pub struct Auth {
    secret: Box<[u8]>,
    grant: Option<Grant>, // None: the server is being asked for the first time
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").field("secret", &"(not shown)").field("grant", &self.grant).finish()
    }
}

impl Auth {
    /// Who the server says it is, and the page about them; `None`: not known yet.
    pub fn identity(&self) -> Option<(&str, &str)> {
        self.grant.as_ref().map(|grant| (&*grant.identity, &*grant.identity_url))
    }
}

/// Compiled patterns by their text, shared by all connections.
#[derive(Debug, Default)]
pub(crate) struct Patterns(HashMap<Box<str>, Regex>);

impl Patterns {
    fn get(&mut self, text: &str) -> Result<&Regex, regex::Error> {
        if !self.0.contains_key(text) {
            // As Go's: classes such as \w are ASCII's (names are, too), and take no tables of all scripts.
            let mut builder = RegexBuilder::new(text);
            let compiled = builder.unicode(false).size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES).build()?;
            if self.0.len() == MAX_PATTERNS {
                self.0.clear();
            }
            self.0.insert(text.into(), compiled);
        }
        Ok(&self.0[text])
    }

    /// A pattern that does not compile matches nothing; it was refused when the answer came.
    fn matches(&mut self, pattern: &str, text: &str) -> bool {
        self.get(pattern).is_ok_and(|regex| regex.is_match(text.as_bytes()))
    }
}

impl Rule {
    fn allows(&self, permission: Permission, topic: &str, channel: &str, patterns: &mut Patterns) -> bool {
        self.permissions.contains(&permission)
            && patterns.matches(&self.topic, topic)
            && self.channels.iter().any(|pattern| patterns.matches(pattern, channel))
    }

    fn check(&self, patterns: &mut Patterns) -> Result<(), String> {
        for pattern in std::iter::once(&self.topic).chain(&self.channels) {
            patterns.get(pattern).map_err(|error| format!("pattern {pattern:?}: {error}"))?;
        }
        Ok(())
    }
}

impl Grant {
    fn parse(answer: &[u8], patterns: &mut Patterns, now: Nanos) -> Result<Self, String> {
        let answer: Answer = serde_json::from_slice(answer).map_err(|error| error.to_string())?;
        if answer.ttl <= 0 {
            return Err(format!("ttl {} s must be above 0", answer.ttl));
        }
        answer.authorizations.iter().try_for_each(|rule| rule.check(patterns))?;
        Ok(Self {
            identity: answer.identity.into(),
            identity_url: answer.identity_url.into(),
            rules: answer.authorizations,
            expires: now.saturating_add(answer.ttl.saturating_mul(NS_PER_S)),
            publishes: Vec::new(),
        })
    }

    fn allows(&mut self, permission: Permission, topic: &str, channel: &str, patterns: &mut Patterns) -> bool {
        if permission == Permission::Publish && self.publishes.iter().any(|known| **known == *topic) {
            return true;
        }
        let allowed = self.rules.iter().any(|rule| rule.allows(permission, topic, channel, patterns));
        if allowed && permission == Permission::Publish {
            if self.publishes.len() == MAX_REMEMBERED {
                self.publishes.clear();
            }
            self.publishes.push(topic.into());
        }
        allowed
    }

    fn response(&self) -> Vec<u8> {
        let (identity, url) = (serde_json::Value::from(&*self.identity), serde_json::Value::from(&*self.identity_url));
        format!(r#"{{"identity":{identity},"identity_url":{url},"permission_count":{}}}"#, self.rules.len()).into_bytes()
    }
}

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
        if !self.config.auth_required {
            return Err(WireError::new(errors::E_AUTH_DISABLED, "AUTH disabled"));
        }
        conn.auth = Some(Box::new(Auth { secret: secret.into(), grant: None }));
        self.ask_for_authorization(key);
        Ok(())
    }

    fn ask_for_authorization(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get(key) else { return };
        let Some(auth) = &conn.auth else { return };
        self.events.push(Event::AuthAsked {
            connection: key.data().as_ffi(),
            secret: BASE64_STANDARD.encode(&auth.secret),
            remote_ip: conn.remote_host().trim_matches(['[', ']']).into(),
            tls: conn.has_tls(),
            common_name: conn.layers.as_ref().and_then(|layers| layers.peer_name()).unwrap_or_default().into(),
        });
        self.park(key);
    }

    /// Whether a command may run now. False: its authorization has expired, and the connection waits for a new one.
    pub(crate) fn may_run(&mut self, key: ConnKey, command: &Command<'_>, now: Nanos) -> Result<bool, WireError> {
        let Some((name, permission, topic, channel)) = needed(command) else { return Ok(true) };
        let Some(conn) = self.conns.get_mut(key) else { return Ok(true) };
        let Some(grant) = conn.auth.as_mut().and_then(|auth| auth.grant.as_mut()) else {
            return Err(WireError::new(errors::E_AUTH_FIRST, format!("AUTH required before {name}")));
        };
        if grant.expires < now {
            self.ask_for_authorization(key);
            return Ok(false);
        }
        if grant.allows(permission, topic, channel, &mut self.patterns) {
            return Ok(true);
        }
        let (topic, channel) = (quoted(topic.as_bytes()), quoted(channel.as_bytes()));
        Err(WireError::new(errors::E_UNAUTHORIZED, format!("AUTH failed for {name} on {topic} {channel}")))
    }

    /// Whether somebody still waits for this answer.
    pub fn awaits_authorization(&self, connection: u64) -> bool {
        self.is_waiting(ConnKey::from(KeyData::from_ffi(connection)))
    }

    /// The auth server's answer for a connection that waits for it; `None`: there is none. Gives why it is refused.
    pub fn set_authorization(&mut self, connection: u64, answer: Option<&[u8]>, now: Nanos) -> Result<(), String> {
        let key = ConnKey::from(KeyData::from_ffi(connection));
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.waiting.is_some()) else { return Ok(()) };
        let Some(auth) = &mut conn.auth else { return Ok(()) };
        let parsed = answer.map(|answer| Grant::parse(answer, &mut self.patterns, now)).transpose();
        let grant = match parsed {
            Ok(Some(grant)) => grant,
            Ok(None) => {
                self.refuse(key, WireError::new(errors::E_AUTH_FAILED, "AUTH failed"));
                return Ok(());
            }
            Err(reason) => {
                self.refuse(key, WireError::new(errors::E_AUTH_FAILED, "AUTH failed"));
                return Err(reason);
            }
        };
        let (first, response, empty) = (auth.grant.is_none(), grant.response(), grant.rules.is_empty());
        auth.grant = Some(grant);
        if first && empty {
            self.refuse(key, WireError::new(errors::E_UNAUTHORIZED, "AUTH no authorizations found"));
        } else if first {
            self.turn.replies.push((key, Reply::Json(response)));
        }
        self.resume(key, now);
        Ok(())
    }
}
