//! Time and memory of a decision with a million subjects, asked in random order: `cargo run --release --example speed`.
//!
//! Prints a table: ns of a bare look-up by name, and of a decision under one and three policies, in turns. The names of
//! a batch are copied before it is timed: a request's name has just been read, so it is in the cache. Each call waits
//! for the one before, as the next request of a connection does: what memory takes is not hidden.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use srtm_limits::contract::Contract;
use srtm_limits::limiter::Limiter;
use srtm_limits::policy::{Policy, Rule};
use srtm_limits::state::Now;

const SUBJECTS: usize = 1_000_000;
const BATCH: usize = 1_000;
const BATCHES: usize = 2_000;
const ROUNDS: usize = 5;

fn bucket(number: u64) -> Rule {
    Rule::Bucket { rate_micro: (number + 1) * 1_000_000, burst_micro: 50_000_000, max_debt_micro: 0 }
}

fn limiter(rules: &[Rule]) -> Limiter {
    let named = |(number, rule): (usize, &Rule)| Policy { name: format!("p{number}").into(), rule: rule.clone() };
    let policies = rules.iter().enumerate().map(named).collect();
    let mut made = Limiter::new((1, 2), u64::MAX);
    let contract =
        Contract { namespace: "api".into(), subject: "*".into(), policies, shadow: false, starts_full: true };
    made.put_contract(contract, Now { mono: 0, wall: 0 }).expect("a contract that works");
    made
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Mean ns of `ask` over names at random; its second argument counts the calls. It returns 0, which the next call
/// needs.
fn mean_ns(names: &[String], seed: u64, mut ask: impl FnMut(&str, i64) -> usize) -> f64 {
    let (mut state, mut batch, mut taken, mut asked) = (seed, Vec::new(), 0, 0);
    for _ in 0..BATCHES {
        batch.clear();
        batch.extend((0..BATCH).map(|_| names[random(&mut state) as usize % names.len()].clone()));
        let begun = Instant::now();
        let mut zero = 0;
        for number in 0..BATCH {
            asked += 1;
            zero = ask(&batch[number + zero], asked);
        }
        taken += begun.elapsed().as_nanos();
    }
    taken as f64 / (BATCHES * BATCH) as f64
}

fn main() {
    let names: Vec<String> = (0..SUBJECTS).map(|number| format!("user:{number:024}")).collect();
    let contracts = [vec![bucket(0)], vec![bucket(0), bucket(1), bucket(2)]];
    let mut limiters: Vec<_> = contracts.iter().map(|rules| limiter(rules)).collect();
    let mut table = HashMap::new();
    let mut most = 0.0f64;
    for (number, name) in names.iter().enumerate() {
        table.insert(name.as_str(), [0usize, number, number]);
        for limiter in &mut limiters {
            let _ = limiter.check("api", name, 1, Now { mono: 1, wall: 1 });
        }
        if number >= SUBJECTS / 10 {
            most = most.max(limiters[0].bytes() as f64 / (number + 1) as f64);
        }
    }
    let now = limiters[0].bytes() as f64 / SUBJECTS as f64;
    println!("one bucket: {now:.1} bytes a subject, at most {most:.1} while the table grew");
    println!("round, ns: look-up, 1 policy, 3 policies");
    for round in 1..=ROUNDS {
        let look_up = mean_ns(&names, round as u64, |name, _| table[name][0]);
        let decisions = limiters.iter_mut().map(|limiter| {
            let begun = (round * BATCHES * BATCH) as i64 * 500;
            mean_ns(&names, round as u64, |name, asked| {
                let now = begun + asked * 500;
                let found = black_box(limiter.check("api", name, 1, Now { mono: now, wall: now }));
                usize::from(found.is_err())
            })
        });
        let row: Vec<_> = std::iter::once(look_up).chain(decisions).map(|ns| format!("{ns:.0}")).collect();
        println!("{round}: {}", row.join(", "));
    }
}
