//! Checks of one or several subjects at once, read from requests and decided: all subjects or none.
//!
//! A request that is not right in every part is not read here: the rules and their refusals are in `limiting/api`.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::request::{CHECK, CHECK_MANY, Request};
use crate::limiter::{Limiter, MAX_SUBJECT, Refused, Verdict};
use crate::state::Now;

const MAX_CHECKS: usize = 1_000; // of one request
const MAX_SUBJECTS: usize = 16; // of one check
const PLACE_OF_PLAN: &str = "{plan}/"; // the plan is in a table that is not here

type Ask = fn(&mut Limiter, &str, &str, u32, Now) -> Result<Verdict, Refused>;

/// What a request asks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    One(Check, Form),
    Many(Vec<Check>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    JsonWithHeaders,
    /// Of a refusal.
    Status(u16),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Check {
    pub namespace: String,
    pub subjects: Vec<String>,
    pub cost: u32,
    pub peek: bool,
}

/// What a check of several subjects says: of each, in the order of the check.
#[derive(Debug)]
pub(super) struct Checked<'a> {
    pub allowed: bool,
    pub verdicts: Vec<(&'a str, Verdict)>,
}

impl Checked<'_> {
    /// The verdict that counts: of those that refuse the first with the longest wait, else of all.
    pub fn decisive(&self) -> Option<&Verdict> {
        let asked = self.verdicts.iter().map(|(_, verdict)| verdict).filter(|each| self.allowed || !each.allowed);
        asked.reduce(|most, each| if each.wait > most.wait { each } else { most })
    }
}

impl Asked {
    /// None: not for here.
    pub fn read(request: &Request<'_>) -> Option<Self> {
        match (request.method, request.path) {
            ("POST", CHECK) => {
                let (mut status, mut headers) = (None, None);
                for (name, value) in arguments(request.query) {
                    match &*name? {
                        "status" => once(&mut status, status_of(&value?)?)?,
                        "headers" => once(&mut headers, truth(&value?)?)?,
                        _ => return None,
                    }
                }
                let Object(body) = serde_json::from_slice::<Object<Body>>(request.body).ok()?;
                let form = if headers == Some(true) { Form::JsonWithHeaders } else { form(status) };
                Some(Self::One(body.check()?, form))
            }
            ("GET", CHECK) => of_query(request),
            ("POST", CHECK_MANY) if request.query.is_empty() => {
                let Object(body) = serde_json::from_slice::<Object<Bodies>>(request.body).ok()?;
                if body.checks.len() > MAX_CHECKS {
                    return None;
                }
                body.checks.into_iter().map(|Object(body)| body.check()).collect::<Option<_>>().map(Self::Many)
            }
            _ => None,
        }
    }
}

impl Check {
    /// Whether contracts are for all subjects: then nothing is left to be refused.
    pub fn is_decided_by(&self, limiter: &Limiter) -> bool {
        self.subjects.iter().all(|subject| limiter.is_limited(&self.namespace, subject))
    }

    /// Takes the cost from all subjects, or from none.
    pub fn decide(&self, limiter: &mut Limiter, now: Now) -> Result<Checked<'_>, Refused> {
        let is_one = self.subjects.len() == 1 && !self.peek;
        if !is_one {
            let looked = self.each(limiter, Limiter::peek, now)?;
            let allowed = looked.iter().all(|(_, verdict)| verdict.allowed);
            if self.peek || !allowed {
                return Ok(Checked { allowed, verdicts: looked });
            }
        }
        let verdicts = self.each(limiter, Limiter::check, now)?;
        let allowed = !is_one || verdicts.iter().all(|(_, verdict)| verdict.allowed);
        Ok(Checked { allowed, verdicts })
    }

    fn each(&self, limiter: &mut Limiter, ask: Ask, now: Now) -> Result<Vec<(&str, Verdict)>, Refused> {
        let named = |subject| Ok((subject, ask(limiter, &self.namespace, subject, self.cost, now)?));
        self.subjects.iter().map(String::as_str).map(named).collect()
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    namespace: String,
    subject: Option<String>,
    #[serde(default)]
    subjects: Vec<String>,
    #[serde(default = "one")]
    cost: u32,
    #[serde(default)]
    peek: bool,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Bodies {
    checks: Vec<Object<Body>>,
}

fn one() -> u32 {
    1
}

impl Body {
    fn check(self) -> Option<Check> {
        let Self { namespace, subject, subjects, cost, peek } = self;
        let subjects: Vec<_> = subject.into_iter().chain(subjects).collect();
        let is_usable =
            |subject: &String| (1..=MAX_SUBJECT).contains(&subject.len()) && !subject.starts_with(PLACE_OF_PLAN);
        let is_right = (1..=MAX_SUBJECTS).contains(&subjects.len())
            && subjects.iter().all(is_usable)
            && subjects.iter().collect::<HashSet<_>>().len() == subjects.len();
        is_right.then_some(Check { namespace, subjects, cost, peek })
    }
}

/// A `T` of a JSON object: serde by itself takes an array for a struct, too.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(AnObject(PhantomData))
    }
}

struct AnObject<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for AnObject<T> {
    type Value = Object<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// The form for gateways, which name headers in the subject.
fn of_query(request: &Request<'_>) -> Option<Asked> {
    let (mut namespace, mut subject, mut cost, mut peek, mut status) = (None, None, None, None, None);
    for (name, value) in arguments(request.query) {
        let value = value?;
        match &*name? {
            "namespace" => once(&mut namespace, value.into_owned())?,
            "subject" => once(&mut subject, filled(&value, request)?)?,
            "cost" => once(&mut cost, number(&value)?)?,
            "peek" => once(&mut peek, truth(&value)?)?,
            "status" => once(&mut status, status_of(&value)?)?,
            _ => return None,
        }
    }
    let (subjects, cost, peek) = (Vec::new(), cost.unwrap_or(1), peek.unwrap_or(false));
    let body = Body { namespace: namespace?, subject: Some(subject?), subjects, cost, peek };
    Some(Asked::One(body.check()?, form(status)))
}

fn form(status: Option<u16>) -> Form {
    status.map_or(Form::Json, Form::Status)
}

/// None: it was given before.
fn once<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

fn number(text: &str) -> Option<u32> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain)
}

fn truth(text: &str) -> Option<bool> {
    text.parse().ok()
}

fn status_of(text: &str) -> Option<u16> {
    match text {
        "403" => Some(403),
        "429" => Some(429),
        _ => None,
    }
}

/// A subject in which `{header-name}` stands for that header. None: it is not there, or no ASCII.
fn filled(template: &str, request: &Request<'_>) -> Option<String> {
    let (mut found, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once('{') {
        found += before;
        let size = after.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'-').count();
        if size > 0 && after.as_bytes().get(size) == Some(&b'}') {
            let value = request.header(&after[..size]).filter(|value| value.is_ascii())?;
            found += std::str::from_utf8(value).ok()?;
            rest = &after[size + 1..];
        } else {
            found.push('{');
            rest = after;
        }
    }
    Some(found + rest)
}

type Argument<'a> = (Option<Cow<'a, str>>, Option<Cow<'a, str>>);

/// Names and values of a query string. None: a broken escape, or no UTF-8.
fn arguments(query: &str) -> impl Iterator<Item = Argument<'_>> {
    query.split('&').filter(|part| !part.is_empty()).map(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (decoded(name), decoded(value))
    })
}

/// Undoes `%XX` and `+`.
fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Some(Cow::Borrowed(text));
    }
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16).map(|digit| digit as u8);
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => digit(rest.next())? << 4 | digit(rest.next())?,
            other => other,
        });
    }
    String::from_utf8(bytes).map(Cow::Owned).ok()
}
