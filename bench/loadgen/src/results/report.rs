//! The result of a run, and whether it may be believed.

use std::collections::{BTreeMap, HashSet};

use base64::Engine as _;
use serde::Serialize;

use crate::plan::Plan;
use crate::publisher::{Counts, SenderReport};
use crate::results::histogram::{Latencies, Percentiles};
use crate::results::timeline::IntervalReport;
use crate::shared::Shared;
use crate::subscriber::ReceiverReport;
use crate::sys;

/// Share of the reported latency that the generator's own p99 lateness may be.
const LATENESS_SHARE: f64 = 0.2;
/// Share of the plan that must have been sent.
const SENT_SHARE: f64 = 0.999;

/// Messages of the measured part. `received`, `lost` and `duplicates` count copies: one a channel.
#[derive(Debug, Default, Serialize)]
pub struct Totals {
    /// What the plan called for (until the end, or the stop).
    pub offered: u64,
    pub sent: u64,
    pub acknowledged: u64,
    pub refused: u64,
    pub received: u64,
    /// Sent, not refused, not received.
    pub lost: u64,
    pub duplicates: u64,
}

#[derive(Debug, Serialize)]
pub struct TargetReport {
    pub target: String,
    pub topic: String,
    #[serde(flatten)]
    pub totals: Totals,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    pub histogram: String,
}

#[derive(Debug, Serialize)]
pub struct Histograms {
    pub latency: String,
    pub lateness: String,
    pub ack: String,
}

#[derive(Debug, Serialize)]
pub struct RunReport {
    pub valid: bool,
    pub reasons: Vec<String>,
    pub stopped: bool,
    /// msg/s that the plan asks for.
    pub rate: f64,
    pub brokers: usize,
    #[serde(flatten)]
    pub totals: Totals,
    /// Received, but not of this run, or not as it was sent, or refused before.
    pub foreign: u64,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    pub lateness_p99_ms: f64,
    pub lateness_max_ms: f64,
    pub ack_p50_ms: f64,
    pub ack_p99_ms: f64,
    pub errors: BTreeMap<String, u64>,
    pub error_texts: Vec<String>,
    pub publisher_reconnects: u64,
    pub subscriber_reconnects: u64,
    pub sender_cpu_s: f64,
    pub receiver_cpu_s: f64,
    pub targets: Vec<TargetReport>,
    pub histograms: Histograms,
    /// CLOCK_REALTIME at the first instant of the measured part; `timeline` counts from it.
    pub measured_from_unix_ns: i64,
    pub timeline: Vec<IntervalReport>,
    /// Base64 of little-endian i64 pairs: intended instant (CLOCK_MONOTONIC) and latency of each message received, ns.
    /// Empty unless asked for.
    pub each: String,
}

impl RunReport {
    pub fn new(plan: &Plan, sender: SenderReport, receiver: ReceiverReport, shared: &Shared) -> RunReport {
        let (totals, surplus) = totals_by_target(plan, &sender.counts, &receiver);
        let (sum, stopped) = (sum(&totals), shared.stopped());
        let reasons = reasons(plan, &sum, &receiver.latency, &sender.lateness, stopped);
        let (end_to_end, late, ack) =
            (receiver.latency.percentiles(), sender.lateness.percentiles(), sender.acknowledgements.percentiles());
        let mut errors = sender.errors;
        errors.merge(receiver.errors);
        let targets = totals.into_iter().zip(&receiver.latency_at).enumerate();
        RunReport {
            valid: reasons.is_empty(),
            reasons,
            stopped,
            rate: plan.publishers.rate.iter().sum(),
            brokers: plan.publishers.target.iter().map(|target| &plan.targets[*target]).collect::<HashSet<_>>().len(),
            totals: sum,
            foreign: receiver.foreign + surplus,
            p50_ms: end_to_end.p50_ms,
            p95_ms: end_to_end.p95_ms,
            p99_ms: end_to_end.p99_ms,
            p999_ms: end_to_end.p999_ms,
            max_ms: end_to_end.max_ms,
            lateness_p99_ms: late.p99_ms,
            lateness_max_ms: late.max_ms,
            ack_p50_ms: ack.p50_ms,
            ack_p99_ms: ack.p99_ms,
            errors: errors.counts(),
            error_texts: errors.texts(),
            publisher_reconnects: sender.reconnects,
            subscriber_reconnects: receiver.reconnects,
            sender_cpu_s: sender.cpu_ns as f64 / 1e9,
            receiver_cpu_s: receiver.cpu_ns as f64 / 1e9,
            targets: targets
                .map(|(target, (totals, latencies))| target_report(plan, target, totals, latencies))
                .collect(),
            histograms: Histograms {
                latency: receiver.latency.encode(),
                lateness: sender.lateness.encode(),
                ack: sender.acknowledgements.encode(),
            },
            measured_from_unix_ns: shared.measured_from_ns() + sys::wall_ns() - sys::now_ns(),
            timeline: receiver.timeline.report(),
            each: encoded(&receiver.each),
        }
    }
}

fn encoded(each: &[(i64, i64)]) -> String {
    let bytes: Vec<u8> = each
        .iter()
        .flat_map(|(intended_ns, latency_ns)| [intended_ns.to_le_bytes(), latency_ns.to_le_bytes()].concat())
        .collect();
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn target_report(plan: &Plan, target: usize, totals: Totals, latencies: &Latencies) -> TargetReport {
    let Percentiles { p50_ms, p95_ms, p99_ms, p999_ms, max_ms } = latencies.percentiles();
    let (address, topic) = (plan.targets[target].clone(), plan.topic_at(target).to_owned());
    TargetReport {
        target: address,
        topic,
        totals,
        p50_ms,
        p95_ms,
        p99_ms,
        p999_ms,
        max_ms,
        histogram: latencies.encode(),
    }
}

/// Also: copies that arrived although their message was refused.
fn totals_by_target(plan: &Plan, counts: &[Counts], receiver: &ReceiverReport) -> (Vec<Totals>, u64) {
    let channels_at = plan.channels_at();
    let mut totals: Vec<Totals> = plan.targets.iter().map(|_| Totals::default()).collect();
    let mut surplus = 0;
    for (publisher, count) in counts.iter().enumerate() {
        let target = plan.publishers.target[publisher];
        let sum = &mut totals[target];
        sum.offered += count.offered;
        sum.sent += count.sent;
        sum.acknowledged += count.acknowledged;
        sum.refused += count.refused;
        for channel in &channels_at[target] {
            let (expected, received) = (count.sent - count.refused, receiver.ledgers[*channel].received(publisher));
            sum.received += received;
            sum.lost += expected.saturating_sub(received);
            sum.duplicates += receiver.ledgers[*channel].duplicates(publisher);
            surplus += received.saturating_sub(expected);
        }
    }
    (totals, surplus)
}

fn sum(totals: &[Totals]) -> Totals {
    totals.iter().fold(Totals::default(), |a, b| Totals {
        offered: a.offered + b.offered,
        sent: a.sent + b.sent,
        acknowledged: a.acknowledged + b.acknowledged,
        refused: a.refused + b.refused,
        received: a.received + b.received,
        lost: a.lost + b.lost,
        duplicates: a.duplicates + b.duplicates,
    })
}

/// Why the run says nothing about the brokers; empty: it does. Losses and refusals are findings, not reasons.
fn reasons(plan: &Plan, totals: &Totals, latency: &Latencies, lateness: &Latencies, stopped: bool) -> Vec<String> {
    let mut reasons = Vec::new();
    if stopped {
        reasons.push("stopped before the end of its plan".to_owned());
    }
    if latency.count() == 0 {
        reasons.push("no measured message was received".to_owned());
    }
    if (totals.sent as f64) < SENT_SHARE * totals.offered as f64 {
        reasons.push(format!("sent {} of {} messages: less than 99.9 % of the plan", totals.sent, totals.offered));
    }
    let (late_ms, reported_ms) = (lateness.at_percentile_ms(99.0), latency.at_percentile_ms(plan.percentile));
    let most_ms = LATENESS_SHARE * reported_ms.max(plan.slo_ms);
    if late_ms > most_ms {
        reasons.push(format!(
            "the generator's p99 lateness of {late_ms:.3} ms is over 20 % of {:.3} ms, the larger of the p{} that it reports and the promise",
            reported_ms.max(plan.slo_ms),
            plan.percentile
        ));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::PLAN;

    fn of(value_ms: f64) -> Latencies {
        let mut latencies = Latencies::new();
        latencies.record((value_ms * 1e6) as i64);
        latencies
    }

    fn judged(sent: u64, latency_ms: f64, lateness_ms: f64) -> Vec<String> {
        let plan = Plan::parse(PLAN.as_bytes()).expect("valid");
        let totals = Totals { offered: 10_000, sent, ..Totals::default() };
        reasons(&plan, &totals, &of(latency_ms), &of(lateness_ms), false)
    }

    #[test]
    fn lateness_is_judged_by_the_larger_of_promise_and_report() {
        assert!(judged(10_000, 0.3, 0.19).is_empty());
        assert!(judged(10_000, 0.3, 0.21)[0].contains("p99 lateness of 0.210 ms is over 20 % of 1.000 ms"));
        assert!(judged(10_000, 2.0, 0.39).is_empty());
        assert_eq!(judged(10_000, 2.0, 0.41).len(), 1);
    }

    #[test]
    fn a_run_that_sent_too_little_of_its_plan_is_invalid() {
        assert!(judged(9_990, 1.0, 0.1).is_empty());
        assert_eq!(judged(9_989, 1.0, 0.1), ["sent 9989 of 10000 messages: less than 99.9 % of the plan"]);
    }

    #[test]
    fn a_stopped_or_silent_run_is_invalid() {
        let plan = Plan::parse(PLAN.as_bytes()).expect("valid");
        let reasons = reasons(&plan, &Totals::default(), &Latencies::new(), &of(0.1), true);
        assert_eq!(reasons, ["stopped before the end of its plan", "no measured message was received"]);
    }
}
