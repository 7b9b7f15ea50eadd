//! Who may publish to and subscribe to what: rows of identity, action and pattern, alike for NSQ, HTTP and MQTT.
//!
//! An identity is the name of a token, or that of an MQTT user. What no row allows is denied; a row that denies comes
//! before all that allow.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::digest;
use serde::Deserialize;

use crate::config::{AccessAction as Action, TopicRow, TopicRules};

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    Subscribe,
    Publish,
}

/// What one identity may do. Whoever holds it sees changes of the rows at once.
#[derive(Debug)]
pub struct Rights {
    pub identity: Box<str>,
    rows: RefCell<Vec<(Action, Box<str>)>>,
}

impl Rights {
    /// `object`: a topic, or an MQTT name that belongs to none.
    pub fn may(&self, permission: Permission, object: &str) -> bool {
        let rows = self.rows.borrow();
        let is_denied = rows.iter().any(|(action, pattern)| *action == Action::Deny && is_like(pattern, object));
        !is_denied && rows.iter().any(|(action, pattern)| action.allows(permission) && is_like(pattern, object))
    }

    pub fn may_nothing(&self) -> bool {
        self.rows.borrow().iter().all(|(action, _)| *action == Action::Deny)
    }

    pub fn may_read_something(&self) -> bool {
        self.rows.borrow().iter().any(|(action, _)| action.allows(Permission::Subscribe))
    }

    pub fn may_read_everything(&self) -> bool {
        let rows = self.rows.borrow();
        let is_all = |(action, pattern): &(Action, Box<str>)| action.allows(Permission::Subscribe) && **pattern == *"*";
        rows.iter().any(is_all) && rows.iter().all(|(action, _)| *action != Action::Deny)
    }

    /// How many rows are of this identity.
    pub fn count(&self) -> usize {
        self.rows.borrow().len()
    }
}

impl Action {
    fn allows(self, permission: Permission) -> bool {
        match permission {
            Permission::Subscribe => matches!(self, Self::Read | Self::ReadWrite),
            Permission::Publish => matches!(self, Self::Write | Self::ReadWrite),
        }
    }
}

/// The rows in force, and whose rights were asked for.
#[derive(Debug, Default)]
pub struct TopicAccess {
    rows: Vec<TopicRow>,
    by_token: HashMap<String, Rc<Rights>>, // by its SHA-256, in base64
    by_user: HashMap<Box<str>, Rc<Rights>>,
}

impl TopicAccess {
    pub fn new(rules: TopicRules) -> Self {
        let mut access = Self::default();
        access.replace(rules);
        access
    }

    /// Other rows and tokens. Whoever is connected by a token that is gone may do nothing from now on.
    pub fn replace(&mut self, rules: TopicRules) {
        self.rows = rules.rows;
        let mut before = std::mem::take(&mut self.by_token);
        for token in rules.tokens {
            let same = |known: &Rc<Rights>| *known.identity == *token.name;
            let known = if before.get(&token.sha256).is_some_and(same) { before.remove(&token.sha256) } else { None };
            let rows = match token.operator {
                true => vec![(Action::ReadWrite, "*".into())],
                false => self.rows_of(&token.name),
            };
            let rights = known.unwrap_or_else(|| Self::none_of(&token.name));
            rights.rows.replace(rows);
            self.by_token.insert(token.sha256, rights);
        }
        before.values().for_each(|gone| gone.rows.borrow_mut().clear());
        self.by_user.retain(|_, rights| Rc::strong_count(rights) > 1);
        self.by_user.iter().for_each(|(name, rights)| _ = rights.rows.replace(self.rows_of(name)));
    }

    /// The rights of a token; `None`: it is not known.
    pub fn of_token(&self, token: &[u8]) -> Option<&Rc<Rights>> {
        self.by_token.get(&BASE64_STANDARD.encode(digest::digest(&digest::SHA256, token)))
    }

    /// The rights of an MQTT user who has shown otherwise who he is. "": one without a name.
    pub fn of_user(&mut self, name: &str) -> Rc<Rights> {
        if let Some(known) = self.by_user.get(name) {
            return Rc::clone(known);
        }
        let rights = Self::none_of(name);
        rights.rows.replace(self.rows_of(name));
        self.by_user.insert(name.into(), Rc::clone(&rights));
        rights
    }

    fn none_of(name: &str) -> Rc<Rights> {
        Rc::new(Rights { identity: name.into(), rows: RefCell::default() })
    }

    fn rows_of(&self, name: &str) -> Vec<(Action, Box<str>)> {
        let his = self.rows.iter().filter(|row| is_like(&row.identity, name));
        his.map(|row| (row.action, row.pattern.as_str().into())).collect()
    }
}

/// Whether a text is like a pattern, in which `*` stands for any characters.
fn is_like(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        let Some((_, behind)) = rest.split_once(piece) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TokenHolder;

    fn row(identity: &str, action: Action, pattern: &str) -> TopicRow {
        TopicRow { identity: identity.into(), action, pattern: pattern.into() }
    }

    fn token(name: &str, secret: &str, operator: bool) -> TokenHolder {
        let sha256 = BASE64_STANDARD.encode(digest::digest(&digest::SHA256, secret.as_bytes()));
        TokenHolder { sha256, name: name.into(), operator }
    }

    fn rules() -> TopicRules {
        let rows = vec![
            row("cars", Action::Write, "roads-*"),
            row("car-*", Action::ReadWrite, "telemetry.v1"),
            row("*", Action::Read, "news*"),
            row("cars", Action::Deny, "*-secret"),
        ];
        TopicRules {
            rows,
            tokens: vec![token("cars", "c", false), token("car-7", "7", false), token("ann", "o", true)],
        }
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text) in
            [("*", ""), ("*", "a/b"), ("a*", "a"), ("a*c", "abc"), ("a*b*c", "a1b2b3c"), ("aa", "aa")]
        {
            assert!(is_like(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a", "ab"), ("a*a", "a"), ("*b", "ba"), ("a*b*c", "acb"), ("", "a"), ("a*bc*c", "abc")]
        {
            assert!(!is_like(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn what_a_row_allows_and_none_denies_is_allowed() {
        let access = TopicAccess::new(rules());
        let may = |token: &str, permission, topic| {
            access.of_token(token.as_bytes()).is_some_and(|rights| rights.may(permission, topic))
        };
        assert!(may("c", Permission::Publish, "roads-7") && !may("c", Permission::Subscribe, "roads-7"));
        assert!(!may("c", Permission::Publish, "roads-secret") && !may("c", Permission::Subscribe, "news-secret"));
        assert!(may("7", Permission::Subscribe, "telemetry.v1") && may("7", Permission::Subscribe, "news-secret"));
        assert!(may("o", Permission::Publish, "roads-secret") && !may("x", Permission::Subscribe, "news"));
    }

    #[test]
    fn who_is_connected_has_the_rights_of_renewed_rows_and_none_by_a_token_that_is_gone() {
        let mut access = TopicAccess::new(rules());
        let (cars, seven) = (access.of_token(b"c").cloned().expect("known"), access.of_token(b"7").cloned());
        let eva = access.of_user("eva");
        assert!(eva.may(Permission::Subscribe, "news") && !eva.may(Permission::Publish, "news"));
        access.replace(TopicRules {
            rows: vec![row("*", Action::Write, "news")],
            tokens: vec![token("cars", "c", false), token("bikes", "7", false)],
        });
        assert!(cars.may(Permission::Publish, "news") && !cars.may(Permission::Publish, "roads-7"));
        assert!(eva.may(Permission::Publish, "news") && !eva.may(Permission::Subscribe, "news"));
        assert!(seven.expect("known").may_nothing(), "its token is another's now");
        assert!(access.of_token(b"7").is_some_and(|bikes| *bikes.identity == *"bikes" && bikes.count() == 1));
        assert!(access.of_token(b"o").is_none());
    }
}
