//! What a client is granted: by the rows that are of it, by an auth server, or by both, which must allow then.
//!
//! Python asks the servers for an NSQ client's AUTH, an MQTT client's password or an HTTP client's Authorization.
//! Patterns of topics and channels are regular expressions in Go's syntax, searched unanchored. A publish is checked
//! with the empty channel, as in nsqd; a subscription of MQTT with `MQTT_CHANNEL`, a shared one with its group.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;

use crate::protocol::access::{Object, Permission, Rights, Who};
use crate::protocol::codec;
use crate::protocol::mqtt::topic_filter::Filter;
use crate::time::{NS_PER_S, Nanos};

/// Bytes that one compiled pattern may take, and again its caches. Ordinary patterns take a tenth.
const MAX_PATTERN_BYTES: usize = 128 << 10;

/// Compiled patterns that are kept for all connections. Beyond that all are dropped, and compiled again when needed.
const MAX_PATTERNS: usize = 512;

/// Topics remembered per connection: those that its rules were asked about, and those that it publishes to.
pub(crate) const MAX_REMEMBERED: usize = 16;

/// The channel that MQTT's subscriptions are to auth servers.
pub(crate) const MQTT_CHANNEL: &str = "mqtt";

/// A pattern that matches every topic.
const EVERY: &str = ".*";

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

/// One authorization: what is allowed on which topics and channels.
#[derive(Debug, Deserialize)]
struct Rule {
    topic: String,
    #[serde(default)]
    channels: Vec<String>,
    #[serde(default)]
    permissions: Vec<Permission>,
}

/// What a client may do until `expires`.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) who: Who,
    pub(crate) expires: Nanos,
    rights: Option<Rights>,         // by rows; None: everything
    answered: Option<Rc<Answered>>, // by an auth server; None: none is asked
}

/// What an auth server has answered.
#[derive(Debug, Default)]
struct Answered {
    identity_url: Box<str>,
    rules: Vec<Rule>,
    patterns: Patterns,
    known: RefCell<Vec<Known>>,
}

/// What the rules say of a topic: no pattern is searched twice.
#[derive(Debug)]
struct Known {
    permission: Permission,
    topic: Box<str>,
    channel: Box<str>,
    allowed: bool,
}

/// A connection that said AUTH or CONNECT, or published by HTTP. What the server was asked is kept, to ask it again.
#[derive(Default)]
pub struct Auth {
    pub(crate) shown: Box<[u8]>, // Authorization of an HTTP request
    pub(crate) secret: Box<[u8]>,
    pub(crate) username: Box<str>,       // by MQTT and HTTP, as it says
    pub(crate) client_id: Box<str>,      // by MQTT, likewise
    pub(crate) grant: Option<Rc<Grant>>, // None: the server is being asked for the first time
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").field("secret", &"(not shown)").field("grant", &self.grant).finish()
    }
}

impl Auth {
    /// The client's name and page, as the server gave them; `None`: not known yet.
    pub fn identity(&self) -> Option<(&str, &str)> {
        self.grant.as_ref().map(|grant| (&*grant.who.name, grant.identity_url()))
    }
}

/// Compiled patterns by their text, shared by all connections.
#[derive(Debug, Default, Clone)]
pub(crate) struct Patterns(Rc<RefCell<HashMap<Box<str>, Regex>>>);

impl Patterns {
    fn get(&self, text: &str) -> Result<Regex, regex::Error> {
        let mut known = self.0.borrow_mut();
        if !known.contains_key(text) {
            // As in Go, classes such as \w are ASCII's, as names are. They need no tables of all scripts.
            let mut builder = RegexBuilder::new(text);
            let compiled =
                builder.unicode(false).size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES).build()?;
            if known.len() == MAX_PATTERNS {
                known.clear();
            }
            known.insert(text.into(), compiled);
        }
        Ok(known[text].clone())
    }

    /// Whether `pattern` matches. One that does not compile matches nothing; it was refused when the answer came.
    fn matches(&self, pattern: &str, text: &str) -> bool {
        self.get(pattern).is_ok_and(|regex| regex.is_match(text.as_bytes()))
    }
}

impl Rule {
    fn allows(&self, permission: Permission, topic: &str, channel: &str, patterns: &Patterns) -> bool {
        patterns.matches(&self.topic, topic) && self.allows_somewhere(permission, channel, patterns)
    }

    fn allows_somewhere(&self, permission: Permission, channel: &str, patterns: &Patterns) -> bool {
        self.permissions.contains(&permission) && self.channels.iter().any(|pattern| patterns.matches(pattern, channel))
    }

    fn check(&self, patterns: &Patterns) -> Result<(), String> {
        for pattern in std::iter::once(&self.topic).chain(&self.channels) {
            patterns.get(pattern).map_err(|error| format!("pattern {pattern:?}: {error}"))?;
        }
        Ok(())
    }
}

impl Answered {
    fn allows(&self, permission: Permission, topic: &str, channel: &str) -> bool {
        let mut known = self.known.borrow_mut();
        let is_it = |of: &&Known| of.permission == permission && *of.topic == *topic && *of.channel == *channel;
        if let Some(known) = known.iter().find(is_it) {
            return known.allowed;
        }
        let allowed = self.rules.iter().any(|rule| rule.allows(permission, topic, channel, &self.patterns));
        let is_short = |name: &str| name.is_empty() || codec::name(name.as_bytes()).is_some(); // MQTT's may be long
        if is_short(topic) && is_short(channel) {
            if known.len() == MAX_REMEMBERED {
                known.clear();
            }
            known.push(Known { permission, topic: topic.into(), channel: channel.into(), allowed });
        }
        allowed
    }

    /// Of a filter with wildcards, as `Rights::may_subscribe`.
    fn may_subscribe(&self, filter: Filter<'_>, channel: &str) -> bool {
        self.rules.iter().any(|rule| {
            (filter.group.is_none() || rule.topic == EVERY)
                && rule.allows_somewhere(Permission::Subscribe, channel, &self.patterns)
        })
    }
}

impl Grant {
    /// An auth server's answer. `Err`: why it is none.
    pub(crate) fn parse(answer: &[u8], patterns: &Patterns, now: Nanos) -> Result<Self, String> {
        let answer: Answer = serde_json::from_slice(answer).map_err(|error| error.to_string())?;
        if answer.ttl <= 0 {
            return Err(format!("ttl {} s must be above 0", answer.ttl));
        }
        answer.authorizations.iter().try_for_each(|rule| rule.check(patterns))?;
        let answered = Answered {
            identity_url: answer.identity_url.into(),
            rules: answer.authorizations,
            patterns: patterns.clone(),
            known: RefCell::default(),
        };
        Ok(Self {
            who: Who::named(&answer.identity),
            expires: now.saturating_add(answer.ttl.saturating_mul(NS_PER_S)),
            rights: None,
            answered: Some(Rc::new(answered)),
        })
    }

    /// No auth server grants anything.
    pub(crate) fn nothing() -> Self {
        Self { answered: Some(Rc::default()), ..Self::of(Who::default(), None) }
    }

    /// What rows grant, as long as they are in force.
    pub(crate) fn of(who: Who, rights: Option<Rights>) -> Self {
        Self { who, expires: Nanos::MAX, rights, answered: None }
    }

    /// The same with other rows.
    pub(crate) fn with(&self, who: Who, rights: Option<Rights>) -> Self {
        Self { who, expires: self.expires, rights, answered: self.answered.clone() }
    }

    fn identity_url(&self) -> &str {
        self.answered.as_ref().map_or("", |answered| &answered.identity_url)
    }

    pub(crate) fn allows(&self, permission: Permission, object: Object<'_>, channel: &str) -> bool {
        self.rights.as_ref().is_none_or(|rights| rights.may(permission, object))
            && self.answered.as_ref().is_none_or(|answered| answered.allows(permission, object.topic, channel))
    }

    /// Whether a filter of MQTT is not refused; `object`: the topic and name that it is without wildcards.
    ///
    /// Each delivery is checked again, except those of groups.
    pub(crate) fn may_subscribe(&self, filter: Filter<'_>, object: Object<'_>) -> bool {
        let channel = filter.group.unwrap_or(MQTT_CHANNEL);
        self.rights.as_ref().is_none_or(|rights| rights.may_subscribe(filter, object))
            && self.answered.as_ref().is_none_or(|answered| match filter.has_wildcards() {
                true => answered.may_subscribe(filter, channel),
                false => answered.allows(Permission::Subscribe, object.topic, channel),
            })
    }

    /// Whether an auth server was asked and granted nothing.
    pub(crate) fn is_refused(&self) -> bool {
        self.answered.as_ref().is_some_and(|answered| answered.rules.is_empty())
    }

    /// Whether nothing is granted.
    pub(crate) fn is_empty(&self) -> bool {
        self.rights.as_ref().is_some_and(Rights::may_nothing)
            || self.answered.as_ref().is_some_and(|answered| answered.rules.is_empty())
    }

    pub(crate) fn response(&self) -> Vec<u8> {
        let (identity, url) = (serde_json::Value::from(&*self.who.name), serde_json::Value::from(self.identity_url()));
        let of_rows = self.rights.as_ref().map_or(1, Rights::count); // all is one permission
        let count = self.answered.as_ref().map_or(of_rows, |answered| answered.rules.len());
        format!(r#"{{"identity":{identity},"identity_url":{url},"permission_count":{count}}}"#).into_bytes()
    }
}
