//! What must hold of a limiter, whatever is asked of it in whatever order.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use srtm_limits::Nanos;
use srtm_limits::bucket::{Bucket, TOKEN};
use srtm_limits::contract::Contract;
use srtm_limits::limiter::{Limiter, Refused, Verdict};
use srtm_limits::policy::{Policy, Rule};
use srtm_limits::state::Now;

const S: Nanos = 1_000_000_000;
const MICRO: u64 = 1_000_000;

fn policy(name: &str, rule: Rule) -> Policy {
    Policy { name: name.into(), rule }
}

fn contract(pattern: &str, policies: Vec<Policy>) -> Contract {
    Contract { namespace: "api".into(), subject: pattern.into(), policies, shadow: false, starts_full: true }
}

fn bucket(rate: u64, burst: u64) -> Rule {
    Rule::Bucket { rate_micro: rate * MICRO, burst_micro: burst * MICRO, max_debt_micro: 10 * MICRO }
}

fn window(quota: u32, slices: u16, weighted: bool) -> Rule {
    Rule::Window { quota, window_ns: 12 * S, slices, weighted, aligned: false }
}

fn at(mono: Nanos) -> Now {
    Now { mono, wall: mono + 77 }
}

fn limiter(rules: Vec<Rule>) -> Limiter {
    let policies = rules.into_iter().enumerate().map(|(number, rule)| policy(&format!("p{number}"), rule)).collect();
    let mut made = Limiter::new((1, 2), 1_000);
    made.put_contract(contract("user:*", policies), at(0)).expect("a contract that works");
    made
}

fn ask(limiter: &mut Limiter, subject: &str, cost: u32, now: Nanos) -> Verdict {
    limiter.check("api", subject, cost, at(now)).expect("there is a contract")
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 300, rng_seed: RngSeed::Fixed(29), failure_persistence: None, ..ProptestConfig::default() }
}

fn a_rule() -> impl Strategy<Value = Rule> {
    prop_oneof![
        (1u64..5, 1u64..8).prop_map(|(rate, burst)| bucket(rate, burst)),
        (1u32..9, prop::sample::select(vec![1u16, 2, 3, 4, 6, 12]), any::<bool>())
            .prop_map(|(quota, slices, weighted)| window(quota, slices, weighted)),
        (1u32..9).prop_map(|quota| Rule::Log { quota, window_ns: 5 * S }),
        (1u32..6).prop_map(|quota| Rule::Concurrency { quota, expires_ns: 3 * S }),
    ]
}

/// What a window counts, from the times and costs that it let through.
fn naive_count(taken: &[(Nanos, u32)], slices: u16, weighted: bool, now: Nanos) -> f64 {
    let length = 12 * S / Nanos::from(slices);
    let current = now.div_euclid(length);
    taken.iter().fold(0.0, |sum, (time, cost)| {
        let back = current - time.div_euclid(length);
        let part = match back {
            _ if back < Nanos::from(slices) => 1.0,
            _ if back == Nanos::from(slices) && weighted => 1.0 - now.rem_euclid(length) as f64 / length as f64,
            _ => 0.0,
        };
        sum + part * f64::from(*cost)
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_bucket_is_the_engines(steps in prop::collection::vec((0..2 * S, 0u32..4), 1..60)) {
        let (mut limiter, mut now) = (limiter(vec![bucket(3, 5)]), 0);
        let mut reference = Bucket::new(3 * MICRO, 5 * MICRO, 0, true);
        for (pause, cost) in steps {
            now += pause;
            let verdict = ask(&mut limiter, "user:1", cost, now);
            prop_assert_eq!(verdict.allowed, reference.take_now(i128::from(cost) * TOKEN, now));
            prop_assert_eq!(verdict.policies[0].remaining, (reference.fill(now) / TOKEN) as u64);
        }
    }

    #[test]
    fn a_window_counts_what_its_slices_say(
        (quota, slices, weighted) in (1u32..9, prop::sample::select(vec![1u16, 2, 3, 4, 6, 12]), any::<bool>()),
        steps in prop::collection::vec((0..4 * S, 0u32..4), 1..80),
    ) {
        let (mut limiter, mut now, mut taken) = (limiter(vec![window(quota, slices, weighted)]), 0, Vec::new());
        for (pause, cost) in steps {
            now += pause;
            let counted = naive_count(&taken, slices, weighted, now);
            let room = f64::from(quota) - counted - f64::from(cost);
            let verdict = ask(&mut limiter, "user:1", cost, now);
            prop_assert!(verdict.allowed == (room >= 0.0) || room.abs() < 1e-6, "{room} left at {now}");
            if verdict.allowed {
                taken.push((now, cost));
            }
        }
    }

    #[test]
    fn no_window_of_a_log_has_more_than_its_quota(steps in prop::collection::vec((0..2 * S, 1u32..4), 1..80)) {
        let (mut limiter, mut now, mut taken) = (limiter(vec![Rule::Log { quota: 7, window_ns: 5 * S }]), 0, Vec::new());
        for (pause, cost) in steps {
            now += pause;
            let inside: u32 = taken.iter().filter(|(time, _)| *time > now - 5 * S).map(|(_, cost)| cost).sum();
            let verdict = ask(&mut limiter, "user:1", cost, now);
            prop_assert_eq!(verdict.allowed, inside + cost <= 7);
            if verdict.allowed {
                taken.push((now, cost));
            }
        }
    }

    #[test]
    fn a_refusal_takes_nothing_and_says_when_to_come_again(
        rules in prop::collection::vec(a_rule(), 1..4),
        steps in prop::collection::vec((0..S, 1u32..4), 1..60),
    ) {
        let (mut limiter, mut now) = (limiter(rules), 0);
        for (pause, cost) in steps {
            now += pause;
            let before = limiter.peek("api", "user:1", cost, at(now)).expect("a contract");
            let verdict = ask(&mut limiter, "user:1", cost, now);
            prop_assert_eq!(verdict.allowed, before.allowed);
            prop_assert_eq!(verdict.grant.is_some(), verdict.allowed);
            if verdict.allowed {
                continue;
            }
            prop_assert_eq!(&limiter.peek("api", "user:1", cost, at(now)).expect("a contract"), &before);
            if verdict.wait < Nanos::MAX {
                let mut then = |wait| limiter.peek("api", "user:1", cost, at(now + wait)).expect("a contract").allowed;
                prop_assert!(verdict.wait > 0 && then(verdict.wait), "not there after {} ns", verdict.wait);
                prop_assert!(!then(verdict.wait - 1), "there before {} ns", verdict.wait);
            }
        }
    }

    #[test]
    fn forgetting_subjects_at_rest_changes_no_answer(
        rules in prop::collection::vec(a_rule(), 1..4),
        steps in prop::collection::vec((0..3 * S, 0u32..6, 1u32..4), 1..80),
    ) {
        let (mut kept, mut swept, mut now) = (limiter(rules.clone()), limiter(rules), 0);
        for (pause, subject, cost) in steps {
            now += pause;
            swept.sweep(100_000, at(now));
            let subject = format!("user:{subject}");
            let (one, other) = (ask(&mut kept, &subject, cost, now), ask(&mut swept, &subject, cost, now));
            prop_assert_eq!(one.allowed, other.allowed);
            prop_assert_eq!(one.wait, other.wait);
            let left = |verdict: &Verdict| verdict.policies.iter().map(|look| look.remaining).collect::<Vec<_>>();
            prop_assert_eq!(left(&one), left(&other));
        }
        swept.sweep(1_000_000, at(now + 1_000 * S));
        prop_assert_eq!(swept.subjects().map(|(_, count)| count).sum::<u64>(), 0);
    }

    #[test]
    fn a_correction_counts_once_and_a_debt_is_bounded(steps in prop::collection::vec((0..S, 0u32..40, any::<bool>()), 1..40)) {
        let (mut limiter, mut now) = (limiter(vec![bucket(3, 5)]), 0);
        let mut reference = Bucket::new(3 * MICRO, 5 * MICRO, 0, true);
        for (pause, actual, twice) in steps {
            now += pause;
            let Some(grant) = ask(&mut limiter, "user:1", 1, now).grant else { continue };
            reference.debit(TOKEN, now);
            limiter.correct(&grant, actual, at(now)).expect("the first time");
            let fill = reference.fill(now);
            let wanted = (fill - (i128::from(actual) - 1) * TOKEN).max((-10 * TOKEN).min(fill)).min(5 * TOKEN);
            reference.debit(fill - wanted, now);
            if twice {
                prop_assert_eq!(limiter.correct(&grant, actual, at(now)), Err(Refused::UsedGrant));
            }
            prop_assert!(reference.fill(now) >= -10 * TOKEN);
            let left = limiter.peek("api", "user:1", 1, at(now)).expect("a contract").policies[0];
            prop_assert_eq!(left.remaining, (reference.fill(now).max(0) / TOKEN) as u64);
            prop_assert_eq!(left.allowed, reference.fill(now) >= TOKEN);
        }
    }

    /// Several contracts that change at once are as one after the other: of other kinds, of the same, new ones.
    #[test]
    fn contracts_that_change_together_are_as_one_after_the_other(
        before in prop::collection::vec(a_rule(), 3),
        after in prop::collection::btree_map(0usize..4, a_rule(), 1..5),
        costs in prop::collection::vec((0usize..3, 1u32..3, 0..S), 1..20),
    ) {
        let of = |which: usize, rule: &Rule| contract(&format!("user:{which}"), vec![policy("p", rule.clone())]);
        let (mut together, mut apart) = (Limiter::new((1, 2), 1_000), Limiter::new((1, 2), 1_000));
        for (which, rule) in before.iter().enumerate() {
            for limiter in [&mut together, &mut apart] {
                limiter.put_contract(of(which, rule), at(0)).expect("a contract that works");
            }
        }
        let ask_all = |together: &mut Limiter, apart: &mut Limiter, mut now: Nanos| {
            for (which, cost, pause) in &costs {
                now += pause;
                let subject = format!("user:{which}");
                let found = [&mut *together, &mut *apart].map(|limiter| ask(limiter, &subject, *cost, now));
                prop_assert_eq!((found[0].allowed, found[0].wait), (found[1].allowed, found[1].wait));
            }
            Ok(now)
        };
        let now = ask_all(&mut together, &mut apart, 0)?;
        let changes: Vec<Contract> = after.iter().map(|(which, rule)| of(*which, rule)).collect();
        together.put_contracts(changes.clone(), at(now));
        for change in changes {
            apart.put_contract(change, at(now)).expect("a contract that works");
        }
        ask_all(&mut together, &mut apart, now)?;
        prop_assert_eq!(together.subjects().collect::<Vec<_>>(), apart.subjects().collect::<Vec<_>>());
    }
}

#[test]
fn a_changed_contract_mints_nothing_and_holds_at_once() {
    let mut limiter = limiter(vec![bucket(1, 10)]);
    for _ in 0..8 {
        assert!(ask(&mut limiter, "user:1", 1, 0).allowed);
    }
    let put =
        |limiter: &mut Limiter, rule, now| limiter.put_contract(contract("user:*", vec![policy("p", rule)]), at(now));
    put(&mut limiter, bucket(1, 1_000), S).expect("a contract that works");
    assert_eq!(limiter.peek("api", "user:1", 1, at(S)).expect("a contract").policies[0].remaining, 3);
    put(&mut limiter, bucket(1, 2), S).expect("a contract that works");
    assert_eq!(limiter.peek("api", "user:1", 1, at(S)).expect("a contract").policies[0].remaining, 2);
    put(&mut limiter, window(3, 1, false), S).expect("another kind: subjects begin anew");
    assert_eq!(limiter.peek("api", "user:1", 1, at(S)).expect("a contract").policies[0].remaining, 3);
}

#[test]
fn the_longest_pattern_that_fits_is_the_contract_and_an_exact_one_comes_first() {
    let mut limiter = Limiter::new((1, 2), 10);
    for (pattern, quota) in [("*", 1), ("user:*", 2), ("user:vip:*", 3), ("user:vip:1", 4)] {
        let rule = Rule::Log { quota, window_ns: S };
        limiter.put_contract(contract(pattern, vec![policy("p", rule)]), at(0)).expect("a contract that works");
    }
    for (subject, quota) in [("x", 1), ("user:1", 2), ("user:vip:2", 3), ("user:vip:1", 4)] {
        assert_eq!(
            limiter.peek("api", subject, 1, at(0)).expect("a contract").policies[0].remaining,
            quota,
            "{subject}"
        );
    }
    assert_eq!(limiter.peek("other", "user:1", 1, at(0)), Err(Refused::NoContract));
    assert!(limiter.remove_contract("api", "user:*") && !limiter.remove_contract("api", "user:*"));
    assert_eq!(limiter.peek("api", "user:1", 1, at(0)).expect("a contract").policies[0].remaining, 1);
}

#[test]
fn a_flood_of_new_subjects_shares_what_is_left_and_harms_none_that_was_there() {
    let mut limiter = Limiter::new((1, 2), 100);
    limiter.put_contract(contract("*", vec![policy("p", bucket(1, 2))]), at(0)).expect("a contract that works");
    for number in 0..100 {
        assert!(!ask(&mut limiter, &format!("old{number}"), 1, 0).shared);
    }
    let let_in = (0..100_000).filter(|number| ask(&mut limiter, &format!("new{number}"), 1, 0).allowed).count();
    assert_eq!(let_in, 2 * 1_024, "those that came when it was full have 1,024 buckets");
    assert!(ask(&mut limiter, "old7", 1, 0).allowed);
    assert!(limiter.bytes() < 200_000, "{} bytes", limiter.bytes());
}

#[test]
fn open_requests_end_by_release_or_by_time() {
    let mut limiter = limiter(vec![Rule::Concurrency { quota: 2, expires_ns: 3 * S }]);
    let first = ask(&mut limiter, "user:1", 1, 0).grant.expect("room for two");
    assert!(ask(&mut limiter, "user:1", 1, S).allowed);
    let refused = ask(&mut limiter, "user:1", 1, 2 * S);
    assert_eq!((refused.allowed, refused.wait), (false, S));
    limiter.release(&first, at(2 * S)).expect("it is open");
    assert_eq!(limiter.release(&first, at(2 * S)), Err(Refused::UsedGrant));
    assert!(ask(&mut limiter, "user:1", 1, 2 * S).allowed);
    assert!(ask(&mut limiter, "user:1", 1, 4 * S).allowed, "the second has expired");
}

#[test]
fn requests_without_cost_take_no_room() {
    let rules = vec![Rule::Log { quota: 1, window_ns: 5 * S }, Rule::Concurrency { quota: 1, expires_ns: 5 * S }];
    let mut limiter = limiter(rules);
    assert!((0..100).all(|_| ask(&mut limiter, "user:1", 0, 0).allowed));
    let looks = limiter.peek("api", "user:1", 1, at(0)).expect("a contract").policies;
    assert_eq!(looks.iter().map(|look| look.reset).collect::<Vec<_>>(), [0, 0]);
}

#[test]
fn a_pace_lets_in_and_tells_to_wait() {
    let rule = Rule::Pace { rate_micro: 2 * MICRO, burst_micro: MICRO, max_wait_ns: S };
    let mut limiter = limiter(vec![rule]);
    let waits: Vec<_> = (0..4).map(|_| ask(&mut limiter, "user:1", 1, 0)).map(|one| (one.allowed, one.wait)).collect();
    assert_eq!(waits, [(true, 0), (true, S / 2), (true, S), (false, 3 * S / 2)]);
    let rested = ask(&mut limiter, "user:1", 3, 3_600 * S);
    assert_eq!((rested.allowed, rested.wait), (true, S), "an hour of rest earns one, not three");
}

#[test]
fn a_shadow_contract_counts_and_refuses_nobody() {
    let mut limiter = Limiter::new((1, 2), 10);
    let shadow = Contract { shadow: true, ..contract("*", vec![policy("p", bucket(1, 1))]) };
    limiter.put_contract(shadow, at(0)).expect("a contract that works");
    let verdicts: Vec<_> =
        (0..3).map(|_| ask(&mut limiter, "x", 1, 0)).map(|one| (one.allowed, one.shadowed)).collect();
    assert_eq!(verdicts, [(true, false), (true, true), (true, true)]);
    let (_, _, counts) = limiter.contracts().next().expect("a contract");
    assert_eq!((counts[0].allowed, counts[0].refused), (3, 2));
}

#[test]
fn a_wall_clock_that_steps_back_mints_nothing() {
    let mut limiter = limiter(vec![
        bucket(1, 2),
        Rule::Window { quota: 3, window_ns: 10 * S, slices: 1, weighted: false, aligned: true },
    ]);
    let ask = |limiter: &mut Limiter, wall| {
        limiter.check("api", "user:1", 1, Now { mono: 0, wall }).expect("a contract").allowed
    };
    assert!(ask(&mut limiter, 95 * S));
    assert!(ask(&mut limiter, 85 * S), "the wall clock was set back: it counts in the newest slice");
    assert!(!ask(&mut limiter, 95 * S), "the bucket is empty");
    let left =
        limiter.peek("api", "user:1", 1, Now { mono: 0, wall: 95 * S }).expect("a contract").policies[1].remaining;
    assert_eq!(left, 1);
}

#[test]
fn a_wall_clock_that_was_far_ahead_stops_nobody_when_it_is_set_back() {
    for (slices, weighted) in [(1, false), (5, true)] {
        let rule = Rule::Window { quota: 2, window_ns: 10 * S, slices, weighted, aligned: true };
        let mut limiter = limiter(vec![rule]);
        let year = 366 * 86_400 * S;
        for wall in [100 * S, year, 100 * S, 105 * S, 99 * S] {
            let is_new = wall == year || wall == 100 * S;
            let allowed = (0..3)
                .filter(|_| limiter.check("api", "user:1", 1, Now { mono: 0, wall }).expect("a contract").allowed);
            assert_eq!(allowed.count(), if is_new { 2 } else { 0 }, "{wall} in {slices} slices");
        }
    }
}

#[test]
fn bad_input_is_refused_and_changes_nothing() {
    let mut limiter = limiter(vec![bucket(1, 2)]);
    assert_eq!(limiter.check("api", &"x".repeat(64 << 10), 1, at(0)), Err(Refused::Subject));
    assert_eq!(limiter.check("api", "nobody", 1, at(0)), Err(Refused::NoContract));
    assert_eq!(limiter.correct(b"forged", 1, at(0)), Err(Refused::NotAGrant));
    let grant = ask(&mut limiter, "user:1", 1, 0).grant.expect("allowed");
    assert_eq!(limiter.correct(&grant, 0, at(61 * S)), Err(Refused::OldGrant));
    let two = vec![policy("a", bucket(1, 2)), policy("a", bucket(1, 2))];
    assert_eq!(limiter.put_contract(contract("x", two), at(0)), Err(Refused::TwoPolicies("a".into())));
    assert_eq!(limiter.put_contract(contract("x", vec![]), at(0)), Err(Refused::Policies));
    assert_eq!(
        limiter.put_contract(contract("", vec![policy("a", bucket(1, 2))]), at(0)),
        Err(Refused::Name("subject"))
    );
    assert_eq!(limiter.contracts().count(), 1);
}

#[test]
fn a_ban_and_a_pardon() {
    let mut limiter = limiter(vec![bucket(1, 2)]);
    limiter.charge("api", "user:1", 1_000, at(0)).expect("a contract");
    let verdict = ask(&mut limiter, "user:1", 1, 0);
    assert_eq!((verdict.allowed, verdict.wait), (false, 11 * S), "the debt is bounded by 10");
    assert!(limiter.reset("api", "user:1") && !limiter.reset("api", "user:1"));
    assert!(ask(&mut limiter, "user:1", 1, 0).allowed);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_is_kept_goes_on_in_another_process(
        rules in prop::collection::vec(a_rule(), 1..4),
        steps in prop::collection::vec((0..S, 1u32..3), 1..20),
        away in 0..20 * S,
        started in 0..1_000 * S,
    ) {
        let now = |mono| Now { mono, wall: mono + 1_000_000 * S };
        let mut before = limiter(rules.clone());
        before.keep(1, 0xff);
        let mut time = 0;
        for (gap, cost) in steps {
            time += gap;
            before.check("api", "user:1", cost, now(time)).expect("a contract");
        }
        let told = before.changed(10);
        prop_assert_eq!(before.changed(10), vec![], "it is told once");
        let mut after = limiter(rules.clone());
        after.keep(1, 0xff);
        let (saved, then) = (now(time), Now { mono: started, wall: now(time + away).wall });
        for used in &told {
            prop_assert!(after.restore(used, saved, then));
            prop_assert!(!after.restore(used, saved, then), "it is there");
        }
        let wanted = before.peek("api", "user:1", 1, now(time + away)).expect("a contract");
        let found = after.peek("api", "user:1", 1, then).expect("a contract");
        for ((rule, wanted), found) in rules.iter().zip(wanted.policies).zip(found.policies) {
            match rule {
                Rule::Bucket { .. } | Rule::Pace { .. } => prop_assert_eq!(wanted, found),
                // Slices end at other instants in a process whose clock began at another one.
                Rule::Window { .. } => prop_assert!(found.remaining <= wanted.remaining),
                Rule::Log { .. } | Rule::Concurrency { .. } => prop_assert!(found.remaining >= wanted.remaining),
            }
        }
    }
}

#[test]
fn a_window_that_is_aligned_goes_on_as_it_was() {
    let rule = Rule::Window { quota: 9, window_ns: 12 * S, slices: 4, weighted: true, aligned: true };
    let (saved, then) = (Now { mono: 7 * S, wall: 100 * S }, Now { mono: 0, wall: 101 * S });
    let mut before = limiter(vec![rule.clone()]);
    before.keep(1, 1);
    before.check("api", "user:1", 4, saved).expect("a contract");
    let mut after = limiter(vec![rule]);
    after.keep(1, 1);
    assert!(after.restore(&before.changed(1)[0], saved, then));
    assert_eq!(after.peek("api", "user:1", 1, then), before.peek("api", "user:1", 1, Now { mono: 8 * S, ..then }));
}

#[test]
fn a_wall_clock_that_was_set_back_lets_no_time_pass() {
    let mut before = limiter(vec![bucket(1, 2)]);
    before.keep(1, 1);
    ask(&mut before, "user:1", 2, 0);
    let mut after = limiter(vec![bucket(1, 2)]);
    after.keep(1, 1);
    assert!(after.restore(&before.changed(1)[0], Now { mono: 0, wall: 900 * S }, Now { mono: 50 * S, wall: 3 * S }));
    let now = |mono| Now { mono, wall: 0 };
    assert_eq!(after.peek("api", "user:1", 1, now(50 * S)).expect("a contract").policies[0].remaining, 0);
    assert_eq!(after.peek("api", "user:1", 1, now(51 * S)).expect("a contract").policies[0].remaining, 1);
}

#[test]
fn what_is_forgotten_reset_or_of_another_kind_is_told_as_nothing() {
    let mut limiter = limiter(vec![bucket(1, 2)]);
    limiter.keep(1, 1);
    for subject in ["user:1", "user:2", "user:3"] {
        ask(&mut limiter, subject, 1, 0);
    }
    assert_eq!(limiter.changed(9).iter().filter(|used| used.words.is_some()).count(), 3);
    limiter.reset("api", "user:1");
    assert_eq!(limiter.changed(9).iter().map(|used| used.words.is_none()).collect::<Vec<_>>(), [true]);
    limiter.sweep(10_000, at(60 * S));
    assert_eq!(limiter.changed(9).iter().map(|used| used.words.is_none()).collect::<Vec<_>>(), [true, true]);
    ask(&mut limiter, "user:1", 1, 60 * S);
    let _ = limiter.changed(9);
    limiter.put_contract(contract("user:*", vec![policy("p0", window(3, 1, false))]), at(60 * S)).expect("it works");
    assert_eq!(limiter.changed(9).iter().map(|used| used.words.is_none()).collect::<Vec<_>>(), [true]);
    limiter.keep(1, 0);
    ask(&mut limiter, "user:1", 1, 60 * S);
    assert_eq!(limiter.changed(9), vec![]);
}
