//! Who a client is and what it may do, alike for NSQ, HTTP and MQTT: users, tokens, and rows of identity, action and
//! pattern.
//!
//! `--topic-acl-file` and Mosquitto's files become the same rows. What no row allows is denied; a row that denies comes
//! before all that allow.

use std::collections::HashMap;
use std::num::NonZeroU32;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::{digest, pbkdf2};
use serde::Deserialize;

use crate::config::{AccessAction as Action, AccessRow, AccessRules, RowForm, TokenHolder, User};
use crate::protocol::mqtt::topic_filter::{Filter, covers, matches, overlap};

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    Subscribe,
    Publish,
}

impl Action {
    fn allows(self, permission: Permission) -> bool {
        match permission {
            Permission::Subscribe => matches!(self, Self::Read | Self::ReadWrite),
            Permission::Publish => matches!(self, Self::Write | Self::ReadWrite),
        }
    }
}

/// What is published or subscribed to. By NSQ and HTTP both are the topic.
#[derive(Debug, Clone, Copy)]
pub struct Object<'a> {
    pub name: &'a str,  // of MQTT
    pub topic: &'a str, // that it belongs to; the name itself if that is the topic of all other names
}

impl<'a> Object<'a> {
    pub fn topic(topic: &'a str) -> Self {
        Self { name: topic, topic }
    }
}

/// Who a client has shown itself to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Who {
    pub name: Box<str>,          // "": it has none
    pub client_id: Box<str>,     // by MQTT; "": it has none
    pub token: Option<Box<str>>, // by which it is known: its SHA-256, in base64
}

impl Who {
    pub fn named(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// Of which names or topics a row is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    /// Topics; `*` stands for any characters.
    Stars(Box<str>),
    /// Names that a filter of MQTT matches.
    Filter(Box<str>),
}

impl Pattern {
    fn is_of(&self, object: Object<'_>) -> bool {
        match self {
            Self::Stars(pattern) => is_like(pattern, object.topic),
            Self::Filter(pattern) => matches(pattern, object.name),
        }
    }

    /// Whether it is of every name that a filter matches.
    fn covers(&self, filter: &str) -> bool {
        match self {
            Self::Stars(pattern) => **pattern == *"*",
            Self::Filter(pattern) => covers(pattern, filter),
        }
    }

    /// Whether it may be of some name that a filter matches.
    fn may_meet(&self, filter: &str) -> bool {
        match self {
            Self::Stars(_) => true,
            Self::Filter(pattern) => overlap(pattern, filter),
        }
    }
}

/// What the rows in force say of one client.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rights(Box<[(Action, Pattern)]>);

impl Rights {
    fn of(rows: &[AccessRow], who: &Who) -> Self {
        Self(rows.iter().filter_map(|row| Some((row.action, pattern_for(row, who)?))).collect())
    }

    fn all() -> Self {
        Self([(Action::ReadWrite, Pattern::Stars("*".into()))].into())
    }

    pub fn may(&self, permission: Permission, object: Object<'_>) -> bool {
        let is_denied = self.0.iter().any(|(action, pattern)| *action == Action::Deny && pattern.is_of(object));
        !is_denied && self.0.iter().any(|(action, pattern)| action.allows(permission) && pattern.is_of(object))
    }

    /// Whether a filter of MQTT is not refused. `object`: what it is without wildcards.
    ///
    /// With wildcards, each delivery is checked again; those of groups are not, so a group needs all that it matches.
    pub fn may_subscribe(&self, filter: Filter<'_>, object: Object<'_>) -> bool {
        if !filter.has_wildcards() {
            return self.may(Permission::Subscribe, object);
        }
        let (all, some) = (|of: &Pattern| of.covers(filter.pattern), |of: &Pattern| of.may_meet(filter.pattern));
        let is_shared = filter.group.is_some();
        let denies = |of: &Pattern| if is_shared { some(of) } else { all(of) };
        let allows = |of: &Pattern| if is_shared { all(of) } else { some(of) };
        !self.0.iter().any(|(action, pattern)| *action == Action::Deny && denies(pattern))
            && self.0.iter().any(|(action, pattern)| action.allows(Permission::Subscribe) && allows(pattern))
    }

    pub fn may_nothing(&self) -> bool {
        self.0.iter().all(|(action, _)| *action == Action::Deny)
    }

    /// How many rows are of this client.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// The pattern of a row as it is for one client; `None`: the row is not for this one.
fn pattern_for(row: &AccessRow, who: &Who) -> Option<Pattern> {
    match row.form {
        RowForm::Stars => is_like(&row.identity, &who.name).then(|| Pattern::Stars(row.pattern.as_str().into())),
        RowForm::Filter => (*row.identity == *who.name).then(|| Pattern::Filter(row.pattern.as_str().into())),
        RowForm::Template => {
            let substitutes = [("%c", &*who.client_id), ("%u", &*who.name)];
            let needed = || substitutes.iter().filter(|(place, _)| row.pattern.contains(place));
            // A name that would itself be a wildcard must not widen what the row allows.
            let widens = substitutes.iter().any(|(_, text)| text.contains(['+', '#', '/']));
            if needed().any(|(_, text)| text.is_empty()) || row.action != Action::Deny && widens && needed().count() > 0
            {
                return None;
            }
            let pattern = row.pattern.replace("%c", &who.client_id).replace("%u", &who.name);
            Some(Pattern::Filter(pattern.into()))
        }
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

/// The users, tokens and rows in force.
#[derive(Debug, Default)]
pub struct Access {
    rows: Option<Vec<AccessRow>>,
    users: Option<HashMap<String, User>>,
    tokens: Option<HashMap<String, TokenHolder>>, // by SHA-256, in base64
    verified: HashMap<Box<str>, [u8; 32]>,        // {user: digest of the password that was right}
}

impl Access {
    pub fn new(rules: AccessRules) -> Self {
        let by_name = |users: Vec<User>| users.into_iter().map(|user| (user.name.clone(), user)).collect();
        let by_digest = |tokens: Vec<TokenHolder>| tokens.into_iter().map(|of| (of.sha256.clone(), of)).collect();
        Self {
            rows: rules.rows,
            users: rules.users.map(by_name),
            tokens: rules.tokens.map(by_digest),
            verified: HashMap::new(),
        }
    }

    /// Whether there are rows: without any, whoever is let in may do everything.
    pub fn has_rows(&self) -> bool {
        self.rows.is_some()
    }

    /// Whether a client can show who it is. Otherwise MQTT's user names are taken at their word, as at Mosquitto.
    pub fn asks(&self) -> bool {
        self.users.is_some() || self.tokens.is_some()
    }

    /// Whose token this is.
    pub fn of_token(&self, token: &[u8]) -> Option<Who> {
        let sha256 = BASE64_STANDARD.encode(digest::digest(&digest::SHA256, token));
        let holder = self.tokens.as_ref()?.get(&sha256)?;
        Some(Who { token: Some(sha256.into()), ..Who::named(&holder.name) })
    }

    /// Who shows this password, or token, of that name. `on_hash`: called with the iterations of a hash that has to be
    /// computed. For a name that is no user's none is.
    pub fn of_password(&mut self, name: &str, password: &[u8], on_hash: impl FnOnce(u32)) -> Option<Who> {
        if let Some(who) = self.of_token(password).filter(|who| *who.name == *name) {
            return Some(who);
        }
        let user = self.users.as_ref()?.get(name)?;
        let digest = digest_of(name, password); // a password that was right is known again by it
        if self.verified.get(name) != Some(&digest) {
            on_hash(user.iterations);
            if !is_password(user, password) {
                return None;
            }
            self.verified.insert(name.into(), digest);
        }
        Some(Who::named(name))
    }

    /// What a client may do; `None`: everything. By a token that is gone, or another's now, it may do nothing.
    pub fn rights_of(&self, who: &Who) -> Option<Rights> {
        let rows = self.rows.as_ref()?;
        let Some(sha256) = &who.token else { return Some(Rights::of(rows, who)) };
        let holder = self.tokens.as_ref().and_then(|tokens| tokens.get(&**sha256));
        Some(match holder.filter(|holder| *holder.name == *who.name) {
            Some(holder) if holder.operator => Rights::all(),
            Some(_) => Rights::of(rows, who),
            None => Rights::default(),
        })
    }
}

/// Whether this is the user's password. It takes about 1 us an iteration.
fn is_password(user: &User, password: &[u8]) -> bool {
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
fn digest_of(name: &str, password: &[u8]) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, &[name.as_bytes(), &[0], password].concat());
    digest.as_ref().try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(form: RowForm, identity: &str, action: Action, pattern: &str) -> AccessRow {
        AccessRow { form, identity: identity.into(), action, pattern: pattern.into() }
    }

    fn token(name: &str, secret: &str, operator: bool) -> TokenHolder {
        let sha256 = BASE64_STANDARD.encode(digest::digest(&digest::SHA256, secret.as_bytes()));
        TokenHolder { sha256, name: name.into(), operator }
    }

    fn rows_of_topics() -> Access {
        let rows = vec![
            row(RowForm::Stars, "cars", Action::Write, "roads-*"),
            row(RowForm::Stars, "car-*", Action::ReadWrite, "telemetry.v1"),
            row(RowForm::Stars, "*", Action::Read, "news*"),
            row(RowForm::Stars, "cars", Action::Deny, "*-secret"),
        ];
        let tokens = vec![token("cars", "c", false), token("car-7", "7", false), token("ann", "o", true)];
        Access::new(AccessRules { rows: Some(rows), users: None, tokens: Some(tokens) })
    }

    /// As Mosquitto's file has them.
    fn rows_of_names() -> Access {
        let rows = vec![
            row(RowForm::Filter, "", Action::Read, "public/#"),
            row(RowForm::Filter, "eva", Action::ReadWrite, "plant/#"),
            row(RowForm::Filter, "eva", Action::Deny, "plant/secret"),
            row(RowForm::Template, "", Action::Write, "own/%u/%c"),
        ];
        Access::new(AccessRules { rows: Some(rows), users: None, tokens: None })
    }

    fn rights(access: &Access, name: &str, client_id: &str) -> Rights {
        access.rights_of(&Who { client_id: client_id.into(), ..Who::named(name) }).expect("there are rows")
    }

    fn may_read(rights: &Rights, name: &str) -> bool {
        rights.may(Permission::Subscribe, Object::topic(name))
    }

    fn may_write(rights: &Rights, name: &str) -> bool {
        rights.may(Permission::Publish, Object::topic(name))
    }

    fn may_subscribe(rights: &Rights, filter: &str) -> bool {
        let filter = Filter::parse(filter).expect("a filter");
        rights.may_subscribe(filter, Object::topic(filter.pattern))
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
        let access = rows_of_topics();
        let of = |token: &str| access.rights_of(&access.of_token(token.as_bytes()).expect("known")).expect("rows");
        let (cars, seven, ann) = (of("c"), of("7"), of("o"));
        assert!(may_write(&cars, "roads-7") && !may_read(&cars, "roads-7"));
        assert!(!may_write(&cars, "roads-secret") && !may_read(&cars, "news-secret"));
        assert!(may_read(&seven, "telemetry.v1") && may_read(&seven, "news-secret"));
        assert!(may_write(&ann, "roads-secret") && access.of_token(b"x").is_none());
    }

    #[test]
    fn by_a_token_that_is_gone_or_anothers_a_client_may_nothing() {
        let (before, mut after) = (rows_of_topics(), rows_of_topics());
        after.tokens = Some(HashMap::from(
            [token("cars", "c", false), token("bikes", "7", false)].map(|of| (of.sha256.clone(), of)),
        ));
        let [cars, seven, ann] = ["c", "7", "o"].map(|secret| before.of_token(secret.as_bytes()).expect("known"));
        assert!(after.rights_of(&cars).is_some_and(|rights| may_write(&rights, "roads-7")));
        for gone in [seven, ann] {
            assert!(after.rights_of(&gone).is_some_and(|rights| rights.may_nothing()), "{}", gone.name);
        }
    }

    #[test]
    fn filters_are_matched_by_names_of_mqtt_and_stars_by_the_topics_that_they_belong_to() {
        let rows = vec![
            row(RowForm::Filter, "eva", Action::Read, "plant/+/heat"),
            row(RowForm::Stars, "eva", Action::Write, "heat"),
        ];
        let access = Access::new(AccessRules { rows: Some(rows), users: None, tokens: None });
        let (eva, object) = (rights(&access, "eva", ""), Object { name: "plant/1/heat", topic: "heat" });
        assert!(eva.may(Permission::Subscribe, object) && eva.may(Permission::Publish, object));
        assert!(!may_read(&eva, "heat") && !may_write(&eva, "plant/1/heat"));
    }

    #[test]
    fn lines_of_mosquittos_file_are_of_one_user_or_of_who_has_no_name_or_of_all() {
        let access = rows_of_names();
        let eva = rights(&access, "eva", "c1");
        assert!(may_read(&eva, "plant/1") && may_write(&eva, "plant/1") && may_write(&eva, "own/eva/c1"));
        assert!(!may_read(&eva, "plant/secret") && !may_read(&eva, "public/1") && !may_read(&eva, "own/eva/c1"));
        let nobody = rights(&access, "", "c1");
        assert!(may_read(&nobody, "public/1") && !may_write(&nobody, "own//c1") && !may_read(&nobody, "plant/1"));
        assert!(!may_write(&rights(&access, "eva", ""), "own/eva/"), "by NSQ and HTTP there is no client id");
        assert!(rights(&access, "*", "c1").may(Permission::Publish, Object::topic("own/*/c1")));
    }

    #[test]
    fn a_filter_needs_something_to_read_and_that_of_a_group_needs_all() {
        let access = rows_of_names();
        let eva = rights(&access, "eva", "c1");
        for filter in ["#", "plant/+", "plant/1", "$share/g/plant/1", "$share/g/plant/a/+", "$share/g/plant/a/#"] {
            assert!(may_subscribe(&eva, filter), "{filter}");
        }
        for filter in ["plant/secret", "public/#", "$share/g/#", "$share/g/plant/#", "$share/g/plant/+"] {
            assert!(!may_subscribe(&eva, filter), "{filter}");
        }
        let stars = rights(&rows_of_topics(), "cars", "");
        assert!(may_subscribe(&stars, "#") && !may_subscribe(&stars, "$share/g/#"));
    }

    #[test]
    fn a_client_id_with_a_wildcard_gives_no_more_than_none() {
        let all = [row(RowForm::Template, "", Action::Write, "own/%u/%c")];
        for id in ["+", "#", "a/b"] {
            let who = Who { client_id: id.into(), ..Who::named("eva") };
            assert_eq!(Rights::of(&all, &who), Rights::default(), "{id}");
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
        let mut access = Access::new(AccessRules { rows: None, users: Some(vec![user]), tokens: None });
        let mut hashed = 0;
        for (name, password, is_right) in [
            ("eva", "secret", true),
            ("eva", "secret", true),
            ("eva", "Secret", false),
            ("eva", "", false),
            ("x", "", false),
        ] {
            let who = access.of_password(name, password.as_bytes(), |iterations| hashed += iterations);
            assert_eq!(who.is_some(), is_right, "{name} {password}");
        }
        assert_eq!(hashed, 3 * 101, "one that was right is known again");
        assert!(access.asks() && access.rights_of(&Who::named("eva")).is_none(), "without rows all is allowed");
    }
}
