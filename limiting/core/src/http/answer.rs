//! Answers to checks: `limiting/api/bodies.py` and `srtm/limiting/problem.py` in Rust, and held to them by
//! `tests/limiting/test_http_server.py`.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use serde::{Serialize, Serializer};

use super::check::{Asked, Checked, Form};
use super::headers::{Families, by_family, finite, limit_field, policy_field, seconds};
use crate::Nanos;
use crate::contract::Contract;
use crate::limiter::{Limiter, Verdict};
use crate::policy::{Policy, Rule};
use crate::state::{Look, Now};

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// An answer without what belongs to its connection. `headers`: names and values.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    pub body: Vec<u8>,
}

/// Decides what was asked. None: not for here, and nothing was taken.
pub(super) fn decided(asked: &Asked, limiter: &mut Limiter, families: Families, now: Now) -> Option<Answer> {
    match asked {
        Asked::One(check, form) if check.is_decided_by(limiter) => {
            let checked = check.decide(limiter, now).ok()?;
            match form {
                Form::Json => Some(json(&view(&checked, limiter, None)?)),
                Form::JsonWithHeaders => Some(json(&view(&checked, limiter, Some(families))?)),
                Form::Status(status) => to_gateway(&checked, limiter, families, *status),
            }
        }
        Asked::Many(checks) if checks.iter().all(|check| check.is_decided_by(limiter)) => {
            let mut body = b"{\"results\":[".to_vec();
            for (number, check) in checks.iter().enumerate() {
                body.extend_from_slice(if number == 0 { b"" } else { b"," });
                let checked = check.decide(limiter, now).ok()?;
                body.extend(json(&view(&checked, limiter, None)?).body);
            }
            body.extend_from_slice(b"]}");
            Some(Answer { status: 200, headers: vec![typed(b"application/json")], body })
        }
        _ => None,
    }
}

fn json(value: &impl Serialize) -> Answer {
    // Structs of numbers and text with text as keys: nothing of this cannot be JSON.
    let body = serde_json::to_vec(value).unwrap_or_default();
    Answer { status: 200, headers: vec![typed(b"application/json")], body }
}

fn typed(kind: &[u8]) -> (Vec<u8>, Vec<u8>) {
    (b"content-type".to_vec(), kind.to_vec())
}

fn to_gateway(checked: &Checked<'_>, limiter: &Limiter, families: Families, status: u16) -> Option<Answer> {
    let verdict = checked.decisive()?;
    let contract = limiter.contract(verdict.contract)?;
    let fields = by_family(contract, verdict, families).into_iter().flat_map(|(_, fields)| fields);
    let mut headers: Vec<_> = fields.map(|(name, value)| (name.into(), value.into_bytes())).collect();
    if checked.allowed {
        return Some(Answer { status: 200, headers, body: Vec::new() });
    }
    headers.push(typed(b"application/problem+json"));
    let violated = violated(contract, verdict);
    let later = finite(verdict.wait).map_or(String::new(), |ns| format!("; come again in {} s", seconds(ns).max(1)));
    let detail = format!("the limit {} of {} is reached{later}", violated.join(", "), contract.namespace);
    let body = json(&Problem { kind: QUOTA_EXCEEDED, title: "quota exceeded", status, detail, violated }).body;
    Some(Answer { status, headers, body })
}

#[derive(Serialize)]
struct Problem<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    title: &'a str,
    status: u16,
    detail: String,
    #[serde(rename = "violated-policies")]
    violated: Vec<&'a str>,
}

#[derive(Serialize)]
struct CheckView<'a> {
    allowed: bool,
    mode: &'a str,
    degraded: bool,
    wait_s: Option<f64>,
    violated: BTreeSet<&'a str>,
    grant: Option<String>,
    subjects: Vec<SubjectView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Table<Table<String>>>,
}

#[derive(Serialize)]
struct SubjectView<'a> {
    subject: &'a str,
    contract: &'a str,
    allowed: bool,
    shadowed: bool,
    shared: bool,
    wait_s: Option<f64>,
    violated: Vec<&'a str>,
    policies: Vec<PolicyView<'a>>,
}

#[derive(Serialize)]
struct PolicyView<'a> {
    name: &'a str,
    allowed: bool,
    remaining: u64,
    wait_s: Option<f64>,
    reset_s: Option<f64>,
    kind: &'a str,
    quota: u64,
    policy_header: String,
    ratelimit_header: String,
}

/// An object with these names and values, in this order.
struct Table<V>(Vec<(&'static str, V)>);

impl<V: Serialize> Serialize for Table<V> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// The answer to a check of a program. `families`: with the headers for its own client.
fn view<'a>(checked: &Checked<'a>, limiter: &'a Limiter, families: Option<Families>) -> Option<CheckView<'a>> {
    let contract = |verdict: &Verdict| limiter.contract(verdict.contract);
    let decisive = checked.decisive()?;
    let mut subjects = Vec::with_capacity(checked.verdicts.len());
    for (subject, verdict) in &checked.verdicts {
        subjects.push(subject_view(subject, contract(verdict)?, verdict));
    }
    let grants: Vec<u8> = checked.verdicts.iter().filter_map(|(_, verdict)| verdict.grant).flatten().collect();
    let headers = match families {
        None => None,
        Some(families) => {
            let found = by_family(contract(decisive)?, decisive, families);
            Some(Table(found.into_iter().map(|(family, fields)| (family, Table(fields))).collect()))
        }
    };
    Some(CheckView {
        allowed: checked.allowed,
        mode: "local",
        degraded: false,
        wait_s: seconds_of(decisive.wait),
        violated: subjects.iter().flat_map(|subject| subject.violated.iter().copied()).collect(),
        grant: (!grants.is_empty()).then(|| URL_SAFE.encode(grants)),
        subjects,
        headers,
    })
}

fn subject_view<'a>(subject: &'a str, contract: &'a Contract, verdict: &Verdict) -> SubjectView<'a> {
    let each = contract.policies.iter().zip(&verdict.policies);
    SubjectView {
        subject,
        contract: &contract.subject,
        allowed: verdict.allowed,
        shadowed: verdict.shadowed,
        shared: verdict.shared,
        wait_s: seconds_of(verdict.wait),
        violated: violated(contract, verdict),
        policies: each.map(|(policy, look)| policy_view(policy, look)).collect(),
    }
}

fn policy_view<'a>(policy: &'a Policy, look: &Look) -> PolicyView<'a> {
    PolicyView {
        name: &policy.name,
        allowed: look.allowed,
        remaining: look.remaining,
        wait_s: seconds_of(look.wait),
        reset_s: seconds_of(look.reset),
        kind: kind(&policy.rule),
        quota: policy.rule.most(),
        policy_header: policy_field(policy),
        ratelimit_header: limit_field(policy, look),
    }
}

/// The names of the policies that refuse.
fn violated<'a>(contract: &'a Contract, verdict: &Verdict) -> Vec<&'a str> {
    let each = contract.policies.iter().zip(&verdict.policies);
    each.filter(|(_, look)| !look.allowed).map(|(policy, _)| &*policy.name).collect()
}

fn kind(rule: &Rule) -> &'static str {
    match rule {
        Rule::Bucket { .. } => "bucket",
        Rule::Pace { .. } => "pace",
        Rule::Window { .. } => "window",
        Rule::Log { .. } => "log",
        Rule::Concurrency { .. } => "concurrency",
    }
}

/// None: never.
fn seconds_of(ns: Nanos) -> Option<f64> {
    finite(ns).map(|ns| ns as f64 / 1e9)
}
