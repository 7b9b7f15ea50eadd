//! Headers of an answer that a contract allowed or refused: `srtm/limiting/headers.py` in Rust, and held to it by
//! `tests/limiting/test_http_server.py`. That module has their sources.

use crate::Nanos;
use crate::contract::Contract;
use crate::limiter::Verdict;
use crate::policy::{Policy, Rule};
use crate::state::Look;

/// Which families of headers there are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Families {
    pub ratelimit: bool,
    pub x_ratelimit: bool,
    pub retry_after: bool,
}

pub(super) type Fields = Vec<(&'static str, String)>;

/// Whole seconds, rounded up.
pub(super) fn seconds(ns: Nanos) -> i128 {
    seconds_of(i128::from(ns))
}

fn seconds_of(ns: i128) -> i128 {
    -((-ns).div_euclid(1_000_000_000))
}

/// None: never.
pub(super) fn finite(ns: Nanos) -> Option<Nanos> {
    (ns < Nanos::MAX).then_some(ns)
}

/// The headers of a verdict, by family.
pub(super) fn by_family(contract: &Contract, verdict: &Verdict, families: Families) -> Vec<(&'static str, Fields)> {
    let mut found = Vec::with_capacity(3);
    if families.ratelimit {
        let policies = contract.policies.iter().map(policy_field).collect::<Vec<_>>().join(", ");
        let each = contract.policies.iter().zip(&verdict.policies);
        let limits = each.map(|(policy, look)| limit_field(policy, look)).collect::<Vec<_>>().join(", ");
        found.push(("ratelimit", vec![("RateLimit-Policy", policies), ("RateLimit", limits)]));
    }
    if families.x_ratelimit {
        found.push(("x-ratelimit", x_fields(contract, verdict)));
    }
    if families.retry_after {
        let wait = finite(verdict.wait).filter(|_| !verdict.allowed);
        let field = wait.map(|wait| ("Retry-After", seconds(wait).max(1).to_string()));
        found.push(("retry-after", field.into_iter().collect()));
    }
    found
}

/// An item of RateLimit-Policy: `"burst";q=40;w=2`.
pub(super) fn policy_field(policy: &Policy) -> String {
    let unit = if window_ns(&policy.rule).is_none() { ";qu=\"concurrent-requests\"" } else { "" };
    let window = window_ns(&policy.rule).map_or(String::new(), |ns| format!(";w={}", seconds_of(ns)));
    format!("\"{}\";q={}{unit}{window}", policy.name, policy.rule.most())
}

/// An item of RateLimit: `"burst";r=39;t=1`.
pub(super) fn limit_field(policy: &Policy, look: &Look) -> String {
    let time = finite(when(look)).map_or(String::new(), |ns| format!(";t={}", seconds(ns)));
    format!("\"{}\";r={}{time}", policy.name, look.remaining)
}

fn when(look: &Look) -> Nanos {
    if look.allowed { look.reset } else { look.wait }
}

/// How long a policy looks back, ns. None: until requests end.
fn window_ns(rule: &Rule) -> Option<i128> {
    match *rule {
        Rule::Bucket { rate_micro, burst_micro, .. } | Rule::Pace { rate_micro, burst_micro, .. } => {
            let (rate, burst) = (i128::from(rate_micro), i128::from(burst_micro));
            Some(-((-burst * 1_000_000_000).div_euclid(rate)))
        }
        Rule::Window { window_ns, .. } | Rule::Log { window_ns, .. } => Some(i128::from(window_ns)),
        Rule::Concurrency { .. } => None,
    }
}

/// Of the policy that refuses with the longest wait, else of the one with the least left.
fn x_fields(contract: &Contract, verdict: &Verdict) -> Fields {
    let tightness = |(_, look): &(&Policy, &Look)| {
        (look.allowed, if look.allowed { i128::from(look.remaining) } else { -i128::from(look.wait) })
    };
    let Some((policy, look)) = contract.policies.iter().zip(&verdict.policies).min_by_key(tightness) else {
        return Vec::new();
    };
    let mut found = vec![
        ("X-RateLimit-Limit", policy.rule.most().to_string()),
        ("X-RateLimit-Remaining", look.remaining.to_string()),
    ];
    found.extend(finite(when(look)).map(|ns| ("X-RateLimit-Reset", seconds(ns).to_string())));
    found
}
