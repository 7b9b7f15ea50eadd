//! Time and memory of a decision with a million subjects, asked in random order: `cargo run --release --example speed`.
//!
//! Prints ns a decision for one and three policies, and for a bare look-up in a table of that size, in turns.

use std::hint::black_box;
use std::time::Instant;

use srtm_limits::contract::Contract;
use srtm_limits::limiter::Limiter;
use srtm_limits::policy::{Policy, Rule};
use srtm_limits::state::Now;
use srtm_limits::table::Table;

const SUBJECTS: usize = 1_000_000;
const CHECKS: usize = 2_000_000;
const ROUNDS: usize = 3;

fn rule(number: u64) -> Rule {
    Rule::Bucket { rate_micro: (number + 1) * 1_000_000, burst_micro: 50_000_000, max_debt_micro: 0 }
}

fn limiter(policies: u64) -> Limiter {
    let policies =
        (0..policies).map(|number| Policy { name: format!("p{number}").into(), rule: rule(number) }).collect();
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

fn main() {
    let names: Vec<String> = (0..SUBJECTS).map(|number| format!("user:{number:024}")).collect();
    let mut limiters = [limiter(1), limiter(3)];
    let mut table = Table::new(6);
    let mut hashes = Vec::new();
    let mut state = 1;
    for name in &names {
        let hash = [random(&mut state) as u32 * 2, random(&mut state) as u32 * 2, random(&mut state) as u32, 0];
        table.add(hash, 1);
        hashes.push(hash);
        for limiter in &mut limiters {
            let _ = limiter.check("api", name, 1, Now { mono: 1, wall: 1 });
        }
    }
    for (limiter, policies) in limiters.iter().zip([1, 3]) {
        println!("{policies} policies: {:.1} bytes a subject", limiter.bytes() as f64 / SUBJECTS as f64);
    }
    for round in 0..ROUNDS {
        let begun = Instant::now();
        for _ in 0..CHECKS {
            black_box(table.find(hashes[random(&mut state) as usize % SUBJECTS], 1));
        }
        print!("round {round}: look-up {:.0} ns", begun.elapsed().as_nanos() as f64 / CHECKS as f64);
        for (limiter, policies) in limiters.iter_mut().zip([1, 3]) {
            let begun = Instant::now();
            for step in 0..CHECKS {
                let now = (round * CHECKS + step) as i64 * 500;
                let name = &names[random(&mut state) as usize % SUBJECTS];
                let _ = black_box(limiter.check("api", name, 1, Now { mono: now, wall: now }));
            }
            print!(", {policies} policies {:.0} ns", begun.elapsed().as_nanos() as f64 / CHECKS as f64);
        }
        println!();
    }
}
