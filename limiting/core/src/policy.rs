//! The kinds of policies, and what makes one that works.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Nanos;

/// Subjects of a log keep a time for each request: more than this many would take 160 KB a subject.
pub const MAX_LOG: u32 = 10_000;

/// Slices of a window that a subject keeps, each with a count of 4 bytes.
pub const MAX_SLICES: u16 = 1_000;

/// Policies of a contract: a bit each in a verdict.
pub const MAX_POLICIES: usize = 8;

const LONGEST_NS: Nanos = 366 * 86_400 * 1_000_000_000;

/// One rule. Rates in millionths of a token a second, bursts and debts in millionths of a token, times in ns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    pub name: Box<str>,
    #[serde(flatten)]
    pub rule: Rule,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Rule {
    /// The exact token bucket. A correction may leave it below zero, by at most `max_debt_micro`.
    Bucket { rate_micro: u64, burst_micro: u64, max_debt_micro: u64 },
    /// The leaky bucket: who comes too early is let in and told to wait, for at most `max_wait_ns`.
    Pace { rate_micro: u64, burst_micro: u64, max_wait_ns: Nanos },
    /// At most `quota` in `window_ns`, counted in `slices`. `weighted`: the oldest slice counts by the part of it that
    /// is still inside. One slice, not weighted: the fixed window; one, weighted: the approximation by two counters.
    /// `aligned`: slices begin where wall clocks show a multiple of their length.
    Window { quota: u32, window_ns: Nanos, slices: u16, weighted: bool, aligned: bool },
    /// At most `quota` in any `window_ns`, exactly: a time for each request.
    Log { quota: u32, window_ns: Nanos },
    /// At most `quota` at once. One that is not released ends `expires_ns` after it began.
    Concurrency { quota: u32, expires_ns: Nanos },
}

/// Why a policy cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {rule}")]
pub struct BadPolicy {
    pub field: &'static str,
    pub rule: &'static str,
}

impl Rule {
    /// Refuses what cannot work, naming field and rule.
    pub fn check(&self) -> Result<(), BadPolicy> {
        let bad = |field, rule| Err(BadPolicy { field, rule });
        match *self {
            Self::Bucket { rate_micro, burst_micro, .. } | Self::Pace { rate_micro, burst_micro, .. }
                if rate_micro == 0 || burst_micro < 1_000_000 =>
            {
                bad("rate and burst", "must be a rate above 0 and a burst of at least 1")
            }
            Self::Pace { max_wait_ns, .. } if !(0..=LONGEST_NS).contains(&max_wait_ns) => {
                bad("max_wait", "must be from 0 to 366 days")
            }
            Self::Window { quota, window_ns, slices, .. } => check_window(quota, window_ns, slices),
            Self::Log { quota, .. } if !(1..=MAX_LOG).contains(&quota) => {
                bad("quota", "must be from 1 to 10000: a log keeps a time for each request; use a window of 60 slices")
            }
            Self::Log { window_ns, .. } if !(1_000_000..=LONGEST_NS).contains(&window_ns) => {
                bad("window", "must be from 1 ms to 366 days")
            }
            Self::Concurrency { quota, expires_ns }
                if quota == 0 || !(1_000_000..=LONGEST_NS).contains(&expires_ns) =>
            {
                bad("quota and expires", "must be a quota of at least 1 that expires after 1 ms to 366 days")
            }
            _ => Ok(()),
        }
    }

    /// The largest cost that it ever lets through at once, whole.
    pub fn most(&self) -> u64 {
        match *self {
            Self::Bucket { burst_micro, .. } | Self::Pace { burst_micro, .. } => burst_micro / 1_000_000,
            Self::Window { quota, .. } | Self::Log { quota, .. } | Self::Concurrency { quota, .. } => u64::from(quota),
        }
    }

    /// Words of 4 bytes that a subject keeps of it in its slot.
    pub(crate) fn words(&self) -> usize {
        match *self {
            Self::Bucket { .. } | Self::Pace { .. } => 6,
            Self::Window { slices, weighted, .. } => 1 + usize::from(slices) + usize::from(weighted),
            Self::Log { .. } | Self::Concurrency { .. } => 1, // where the rest is
        }
    }
}

fn check_window(quota: u32, window_ns: Nanos, slices: u16) -> Result<(), BadPolicy> {
    let bad = |field, rule| Err(BadPolicy { field, rule });
    if quota == 0 {
        return bad("quota", "must be at least 1");
    }
    if !(1_000_000..=LONGEST_NS).contains(&window_ns) {
        return bad("window", "must be from 1 ms to 366 days");
    }
    if !(1..=MAX_SLICES).contains(&slices) || window_ns % Nanos::from(slices) != 0 {
        return bad("slices", "must be from 1 to 1000, and divide the window into whole nanoseconds");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused_by_field() {
        let second = 1_000_000_000;
        let window = |window_ns, slices| Rule::Window { quota: 1, window_ns, slices, weighted: true, aligned: false };
        for (rule, field) in [
            (Rule::Bucket { rate_micro: 0, burst_micro: 1_000_000, max_debt_micro: 0 }, "rate and burst"),
            (Rule::Bucket { rate_micro: 1, burst_micro: 999_999, max_debt_micro: 0 }, "rate and burst"),
            (Rule::Pace { rate_micro: 1, burst_micro: 1_000_000, max_wait_ns: -1 }, "max_wait"),
            (window(second, 0), "slices"),
            (window(second, 7), "slices"),
            (window(0, 1), "window"),
            (Rule::Log { quota: MAX_LOG + 1, window_ns: second }, "quota"),
            (Rule::Log { quota: 1, window_ns: 0 }, "window"),
            (Rule::Concurrency { quota: 0, expires_ns: second }, "quota and expires"),
        ] {
            assert_eq!(rule.check().map_err(|bad| bad.field), Err(field), "{rule:?}");
        }
        assert_eq!(window(second, 8).check(), Ok(()));
    }

    #[test]
    fn a_policy_is_read_from_json_and_unknown_fields_are_refused() {
        let text = r#"{"name": "a", "kind": "bucket", "rate_micro": 5, "burst_micro": 6, "max_debt_micro": 0}"#;
        let policy: Policy = serde_json::from_str(text).expect("valid");
        assert_eq!(policy.rule, Rule::Bucket { rate_micro: 5, burst_micro: 6, max_debt_micro: 0 });
        assert!(serde_json::from_str::<Policy>(r#"{"name": "a", "kind": "bucket", "rate_micro": 5}"#).is_err());
        assert!(serde_json::from_str::<Policy>(r#"{"name": "a", "kind": "leak"}"#).is_err());
    }
}
