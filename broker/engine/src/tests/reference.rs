//! The engine against a straightforward reference: random arrivals on several connections, stalls, changes of the
//! share.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::pair::*;
use crate::queueing::topic::Limit;
use crate::time::Nanos;

const TOKEN: i128 = 1_000_000_000_000_000;

#[derive(Debug, Clone)]
enum Step {
    /// One message on connection `conn`, arrived `ago` before it is read.
    Arrive {
        conn: usize,
        ago: Nanos,
        count: usize,
    },
    /// The reactor gets round to a turn after so long.
    Turn {
        after: Nanos,
    },
    Share {
        rate: u64,
        burst: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4usize, 0..3 * MS, 1..4usize).prop_map(|(conn, ago, count)| Step::Arrive { conn, ago, count }),
        4 => (0..2 * MS).prop_map(|after| Step::Turn { after }),
        1 => (50 * MS..200 * MS).prop_map(|after| Step::Turn { after }),
        2 => (prop_oneof![Just(0u64), 1..5_000u64], 1..6u64).prop_map(|(rate, burst)| {
            Step::Share { rate, burst: if rate == 0 { 0 } else { burst } }
        }),
    ]
}

/// A share and the instant from which it is in force.
#[derive(Debug, Clone, Copy)]
struct Share {
    from: Nanos,
    rate: i128,
    burst: i128,
}

/// Due instants by walking through time share by share: tokens there at `at`, messages strictly one after the other.
struct Reference {
    shares: Vec<Share>,
    current: usize,
    tokens: i128,
    at: Nanos,
}

impl Reference {
    fn new(shares: Vec<Share>) -> Self {
        let at = shares[0].from;
        Self { shares, current: 0, tokens: 0, at }
    }

    /// Let time pass to `to`. `waits`: somebody takes tokens as they come, so the cap does not apply until the next
    /// change.
    fn pass(&mut self, to: Nanos, waits: bool) {
        while let Some(next) = self.shares.get(self.current + 1).copied().filter(|next| next.from <= to) {
            self.accrue(next.from, waits);
            self.current += 1;
            self.tokens = self.tokens.min(next.burst);
        }
        self.accrue(to, waits);
    }

    fn accrue(&mut self, to: Nanos, waits: bool) {
        let Share { rate, burst, .. } = self.shares[self.current];
        self.tokens += rate * i128::from(to - self.at);
        if !waits {
            self.tokens = self.tokens.min(burst);
        }
        self.at = to;
    }

    /// The due instant of the next message, if it has one within the shares known.
    fn due(&mut self, arrival: Nanos) -> Option<Nanos> {
        if arrival > self.at {
            self.pass(arrival, false);
        }
        loop {
            let Share { rate, burst, .. } = self.shares[self.current];
            let next = self.shares.get(self.current + 1).map(|share| share.from);
            let wait = if self.tokens >= TOKEN {
                Some(0)
            } else if rate == 0 || burst < TOKEN {
                None
            } else {
                Nanos::try_from((TOKEN - self.tokens + rate - 1) / rate).ok()
            };
            match (wait.map(|wait| self.at + wait), next) {
                (Some(due), next) if next.is_none_or(|from| due <= from) => {
                    self.accrue(due, true);
                    self.tokens -= TOKEN;
                    return Some(due);
                }
                (_, Some(from)) => self.pass(from, true),
                (_, None) => return None,
            }
        }
    }
}

/// Run the steps on an engine; gives its shares and its trace (arrival, due, released).
fn run(steps: &[Step]) -> (Vec<Share>, Vec<(Nanos, Nanos, Nanos)>) {
    let mut pair = Pair::new();
    let (mut version, mut shares) = (1, Vec::new());
    let set = |pair: &mut Pair, shares: &mut Vec<Share>, rate: u64, burst: u64, version: u64| {
        let given = Limit { max_backlog: u64::MAX, max_backlog_bytes: u64::MAX, ..limit(rate, burst, version) };
        pair.stall(1); // no arrival counts as of the very instant of a change but those behind it
        assert!(pair.limit("t", given));
        shares.push(Share { from: pair.now, rate: i128::from(rate * MICRO), burst: i128::from(burst) * TOKEN });
    };
    set(&mut pair, &mut shares, 1_000, 3, version);
    let keys: Vec<_> = (0..4).map(|_| pair.connect()).collect();
    for step in steps {
        match *step {
            Step::Arrive { conn, ago, count } => {
                let at = pair.now - ago;
                pair.send_at(keys[conn], mpub("t", &vec!["x"; count]), at);
            }
            Step::Turn { after } => {
                pair.stall(after);
                pair.turn();
            }
            Step::Share { rate, burst } => {
                version += 1;
                set(&mut pair, &mut shares, rate, burst, version);
            }
        }
    }
    pair.turn();
    pair.advance(S);
    let trace = pair.trace("t");
    let column = |bytes: &[u8]| -> Vec<i64> {
        bytes.chunks(8).map(|w| i64::from_le_bytes(w.try_into().expect("8 bytes"))).collect()
    };
    let (arrival, due, released) = (column(&trace.arrival_ns), column(&trace.due_ns), column(&trace.released_ns));
    (
        shares,
        arrival.into_iter().zip(due).zip(released).map(|((arrival, due), released)| (arrival, due, released)).collect(),
    )
}

/// The most that the shares let go from `from` to `to`: the burst in force at first, and what accrued since. One
/// nanosecond more at the rate, for a due instant is the first whole nanosecond at which the token is there.
fn allowed(shares: &[Share], from: Nanos, to: Nanos) -> i128 {
    let first = shares.iter().rposition(|share| share.from < from).unwrap_or(0);
    let at_from = shares[first..].iter().take_while(|share| share.from <= from);
    let (burst, rate) = at_from.fold((0, 0), |(burst, rate), share| (share.burst.max(burst), share.rate.max(rate)));
    let mut sum = burst + rate;
    for (i, share) in shares.iter().enumerate().skip(first) {
        let end = shares.get(i + 1).map_or(to, |next| next.from.min(to));
        sum += share.rate * i128::from((end - share.from.max(from)).max(0));
    }
    sum
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn due_instants_are_those_of_the_reference_whatever_the_order_stalls_and_changes(steps in prop::collection::vec(step(), 1..60)) {
        let (shares, entries) = run(&steps);
        let mut reference = Reference::new(shares);
        for (i, &(arrival, due, released)) in entries.iter().enumerate() {
            let expected = reference.due(arrival);
            if released == 0 {
                let end = entries.last().map_or(0, |last| last.0);
                prop_assert!(expected.is_none_or(|at| at > end), "message {i} was due at {expected:?} and is not released");
            } else {
                prop_assert_eq!(Some(due), expected, "message {}", i);
                prop_assert!(released >= due, "message {} was released before it was due", i);
            }
        }
        prop_assert!(entries.windows(2).all(|pair| pair[0].0 <= pair[1].0), "arrivals count in order of decision");
    }

    /// The one law, over every interval between two due instants.
    #[test]
    fn over_every_interval_at_most_burst_and_rate_are_let_go(steps in prop::collection::vec(step(), 1..60)) {
        let (shares, entries) = run(&steps);
        let due: Vec<Nanos> = entries.iter().filter(|entry| entry.2 != 0).map(|entry| entry.1).collect();
        for (i, from) in due.iter().enumerate() {
            for (j, to) in due.iter().enumerate().skip(i) {
                let let_go = (j - i + 1) as i128 * TOKEN;
                prop_assert!(let_go <= allowed(&shares, *from, *to), "{} messages from {from} to {to}", j - i + 1);
            }
        }
    }
}
