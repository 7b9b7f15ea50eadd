//! Who may publish and subscribe to what: passwords and access rules in the forms of Mosquitto's files.
//!
//! A rule is for one user, for clients without a user name, or for all (a pattern, in which `%c` and `%u` stand for
//! client id and user). What no rule allows is denied; a rule that denies comes before all that allow.

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::{digest, pbkdf2};

use crate::config::{AccessAction as Action, MqttRule as Rule, MqttUser as User};
use crate::protocol::mqtt::topic_filter::{matches, overlap};

/// Whether this is the user's password. It takes about 1 us an iteration.
pub fn is_password(user: &User, password: &[u8]) -> bool {
    let (Ok(salt), Ok(hash)) = (BASE64_STANDARD.decode(&user.salt), BASE64_STANDARD.decode(&user.hash)) else {
        return false;
    };
    let Some(iterations) = NonZeroU32::new(user.iterations) else {
        let given = digest::digest(&digest::SHA512, &[password, &salt].concat());
        let differs = given.as_ref().iter().zip(&hash).fold(0, |differs, (a, b)| differs | (a ^ b));
        return given.as_ref().len() == hash.len() && differs == 0;
    };
    pbkdf2::verify(pbkdf2::PBKDF2_HMAC_SHA512, iterations, &salt, password, &hash).is_ok()
}

/// What stands for a password that was right, in memory alone.
pub fn digest_of(name: &str, password: &[u8]) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, &[name.as_bytes(), &[0], password].concat());
    digest.as_ref().try_into().unwrap_or_default()
}

/// What one client may do.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Access {
    pub user: Option<Box<str>>, // of whom the rules were asked
    reads: Vec<String>,
    writes: Vec<String>,
    denied: Vec<String>,
}

impl Access {
    /// What the rules say of a client.
    pub fn of(rules: &[Rule], client_id: &str, user: Option<&str>) -> Self {
        let mut access = Self { user: user.map(Into::into), ..Self::default() };
        for rule in rules {
            let needs_user = rule.all && rule.pattern.contains("%u");
            let is_his = if rule.all { !needs_user || user.is_some() } else { rule.user.as_deref() == user };
            if !is_his {
                continue;
            }
            let pattern = match rule.all {
                true => rule.pattern.replace("%c", client_id).replace("%u", user.unwrap_or_default()),
                false => rule.pattern.clone(),
            };
            // A name that would itself be a wildcard must not widen what the rule allows.
            let substituted = [Some(client_id), user];
            let widens = rule.all && pattern != rule.pattern && substituted.iter().flatten().any(|id| is_wide(id));
            match rule.action {
                Action::Deny => access.denied.push(pattern),
                _ if widens => {}
                Action::Read => access.reads.push(pattern),
                Action::Write => access.writes.push(pattern),
                Action::ReadWrite => {
                    access.reads.push(pattern.clone());
                    access.writes.push(pattern);
                }
            }
        }
        access
    }

    pub fn may_read(&self, name: &str) -> bool {
        Self::allows(&self.reads, &self.denied, name)
    }

    pub fn may_write(&self, name: &str) -> bool {
        Self::allows(&self.writes, &self.denied, name)
    }

    /// Whether some of what a subscription matches may be read. Each delivery is checked again.
    pub fn may_subscribe(&self, pattern: &str) -> bool {
        let is_denied = self.denied.iter().any(|denied| matches(denied, pattern));
        !is_denied && self.reads.iter().any(|allowed| overlap(allowed, pattern))
    }

    fn allows(allowed: &[String], denied: &[String], name: &str) -> bool {
        let is_in = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        !is_in(denied) && is_in(allowed)
    }
}

fn is_wide(id: &str) -> bool {
    id.contains(['+', '#', '/'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(user: Option<&str>, all: bool, action: Action, pattern: &str) -> Rule {
        Rule { user: user.map(Into::into), all, action, pattern: pattern.into() }
    }

    fn rules() -> Vec<Rule> {
        vec![
            rule(None, false, Action::Read, "public/#"),
            rule(Some("eva"), false, Action::ReadWrite, "plant/#"),
            rule(Some("eva"), false, Action::Deny, "plant/secret"),
            rule(None, true, Action::Write, "own/%u/%c"),
        ]
    }

    #[test]
    fn a_client_may_what_some_rule_allows_and_none_denies() {
        let access = Access::of(&rules(), "c1", Some("eva"));
        assert!(access.may_read("plant/1") && access.may_write("plant/1") && access.may_write("own/eva/c1"));
        assert!(!access.may_read("plant/secret") && !access.may_read("public/1") && !access.may_read("own/eva/c1"));
        assert!(access.may_subscribe("#") && access.may_subscribe("plant/+"));
        assert!(!access.may_subscribe("plant/secret") && !access.may_subscribe("public/#"));
        let anonymous = Access::of(&rules(), "c1", None);
        assert!(anonymous.may_read("public/1") && !anonymous.may_write("own//c1") && !anonymous.may_read("plant/1"));
    }

    #[test]
    fn a_client_id_with_a_wildcard_gives_no_more_than_none() {
        for id in ["+", "#", "a/b"] {
            assert_eq!(
                Access::of(&rules()[3..], id, Some("eva")),
                Access { user: Some("eva".into()), ..Access::default() },
                "{id}"
            );
        }
    }

    #[test]
    fn passwords_are_those_of_mosquittos_files() {
        // `mosquitto_passwd -b FILE eva secret` of version 2.0.11 wrote this.
        let user = User {
            name: "eva".into(),
            iterations: 101,
            salt: "jE84i/ex3+60MdvR".into(),
            hash: "lCM1kkHZMU8mjB/CHINVdjNm5i1TO8rkzUp2eao+Oge8w2SBcj5fHDbLPB5A/NeZiv1zmBYOndUSpkjuCwfv6A==".into(),
        };
        assert!(is_password(&user, b"secret") && !is_password(&user, b"Secret") && !is_password(&user, b""));
    }
}
