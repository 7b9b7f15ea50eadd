//! AUTH: what an auth server grants to a connection, and whether that covers a command. Python asks the server.
//!
//! Patterns of topics and channels are regular expressions in Go's syntax, searched unanchored. A publish is checked
//! with the empty channel, as in nsqd.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;

use crate::protocol::topic_access::{Permission, Rights};
use crate::time::{NS_PER_S, Nanos};

/// Bytes that one compiled pattern may take, and again its caches. Ordinary patterns take a tenth.
const MAX_PATTERN_BYTES: usize = 128 << 10;

/// Compiled patterns that are kept for all connections. Beyond that all are dropped, and compiled again when needed.
const MAX_PATTERNS: usize = 512;

/// Topics remembered per connection: those that it may publish to, and those that it publishes to.
pub(crate) const MAX_REMEMBERED: usize = 16;

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

/// What a connection may do until `expires`.
#[derive(Debug)]
pub(crate) struct Grant {
    identity: Box<str>,
    identity_url: Box<str>,
    rules: Vec<Rule>,
    pub(crate) expires: Nanos,
    publishes: Vec<Box<str>>,   // topics that the rules cover: no pattern is searched twice
    rights: Option<Rc<Rights>>, // those of a token, in the place of rules
}

/// A connection that said AUTH. The secret is kept, to ask the server again.
pub struct Auth {
    pub(crate) secret: Box<[u8]>,
    pub(crate) grant: Option<Grant>, // None: the server is being asked for the first time
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").field("secret", &"(not shown)").field("grant", &self.grant).finish()
    }
}

impl Auth {
    /// The client's name and page, as the server gave them; `None`: not known yet.
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
            // As in Go, classes such as \w are ASCII's, as names are. They need no tables of all scripts.
            let mut builder = RegexBuilder::new(text);
            let compiled =
                builder.unicode(false).size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES).build()?;
            if self.0.len() == MAX_PATTERNS {
                self.0.clear();
            }
            self.0.insert(text.into(), compiled);
        }
        Ok(&self.0[text])
    }

    /// Whether `pattern` matches. One that does not compile matches nothing; it was refused when the answer came.
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
    pub(crate) fn parse(answer: &[u8], patterns: &mut Patterns, now: Nanos) -> Result<Self, String> {
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
            rights: None,
        })
    }

    /// What the rows of a token grant, as long as they are in force.
    pub(crate) fn of(rights: Rc<Rights>) -> Self {
        Self {
            identity: rights.identity.clone(),
            identity_url: "".into(),
            rules: Vec::new(),
            expires: Nanos::MAX,
            publishes: Vec::new(),
            rights: Some(rights),
        }
    }

    pub(crate) fn allows(
        &mut self,
        permission: Permission,
        topic: &str,
        channel: &str,
        patterns: &mut Patterns,
    ) -> bool {
        if let Some(rights) = &self.rights {
            return rights.may(permission, topic);
        }
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

    /// Whether nothing is granted.
    pub(crate) fn is_empty(&self) -> bool {
        self.rights.as_ref().map_or(self.rules.is_empty(), |rights| rights.may_nothing())
    }

    pub(crate) fn response(&self) -> Vec<u8> {
        let (identity, url) = (serde_json::Value::from(&*self.identity), serde_json::Value::from(&*self.identity_url));
        let count = self.rights.as_ref().map_or(self.rules.len(), |rights| rights.count());
        format!(r#"{{"identity":{identity},"identity_url":{url},"permission_count":{count}}}"#).into_bytes()
    }
}
