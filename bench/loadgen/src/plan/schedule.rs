//! Intended send instants: a heap of independent sources, drawn (each with a random stream of its own) or recorded.
//!
//! A drawn process belongs to one publisher, or to a group whose members fire together, or evenly spread. Its stream is
//! seeded from the plan's seed and the index of its first member, so that the instants of one publisher do not change
//! when others are added. Memory: one entry a source, however long the run.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap};

use crate::plan::Plan;
use crate::plan::fleet::Process;

/// xoshiro256++ 1.0 (Blackman and Vigna), seeded by SplitMix64: 32 bytes a stream where ChaCha takes 136.
struct Random([u64; 4]);

impl Random {
    fn new(mut seed: u64) -> Random {
        Random(std::array::from_fn(|_| split_mix(&mut seed)))
    }

    fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in [0, 1).
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponential with mean 1.
    fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }
}

pub fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// When a source fires next, again and again.
enum Firings<'a> {
    Drawn { process: Process, interval_ns: f64, random: Random, at_ns: f64 },
    Recorded(std::slice::Iter<'a, u64>),
}

impl Firings<'_> {
    /// `stream`: which of the seed's random streams; equal ones fire alike.
    fn drawn(process: Process, firing_rate: f64, seed: u64, stream: u32) -> Firings<'static> {
        let mut state = seed;
        let mut random = Random::new(split_mix(&mut state) ^ u64::from(stream));
        let interval_ns = 1e9 / firing_rate;
        let at_ns = interval_ns * if process == Process::Poisson { random.exponential() } else { random.uniform() };
        Firings::Drawn { process, interval_ns, random, at_ns }
    }

    fn next_ns(&mut self) -> Option<u64> {
        match self {
            Firings::Drawn { process, interval_ns, random, at_ns } => {
                let now_ns = *at_ns;
                *at_ns += *interval_ns * if *process == Process::Poisson { random.exponential() } else { 1.0 };
                Some(now_ns as u64)
            }
            Firings::Recorded(instants_ns) => instants_ns.next().copied(),
        }
    }
}

/// Publishers that send at the same instants: those of the firings, each `offset_ns` later.
struct Source<'a> {
    firings: Firings<'a>,
    /// The first publisher of the group, or this one: who has the same fires alike.
    stream: u32,
    offset_ns: u64,
    members: Vec<u32>,
}

impl Source<'_> {
    /// The next instant, if it lies before `end_ns`; all later ones are later.
    fn next_before(&mut self, end_ns: u64) -> Option<u64> {
        self.firings.next_ns().map(|at_ns| at_ns.saturating_add(self.offset_ns)).filter(|at_ns| *at_ns < end_ns)
    }
}

/// All instants before `end_ns`, in order of time.
pub struct Schedule<'a> {
    sources: Vec<Source<'a>>,
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    end_ns: u64,
}

impl Schedule<'_> {
    pub fn new(plan: &Plan) -> Schedule<'_> {
        let end_ns = plan.end_ns();
        let mut sources = sources(plan);
        stagger(&mut sources);
        let first = sources
            .iter_mut()
            .enumerate()
            .filter_map(|(i, source)| Some(Reverse((source.next_before(end_ns)?, i as u32))));
        let heap = first.collect();
        Schedule { sources, heap, end_ns }
    }

    /// The next instant, ns from the start of the run; None: all are past.
    pub fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Take the next instant: when, and the publishers that send then.
    pub fn pop(&mut self) -> Option<(u64, &[u32])> {
        let mut top = self.heap.peek_mut()?;
        let Reverse((at_ns, index)) = *top;
        match self.sources[index as usize].next_before(self.end_ns) {
            Some(next_ns) => top.0.0 = next_ns,
            None => drop(PeekMut::pop(top)),
        }
        Some((at_ns, &self.sources[index as usize].members))
    }
}

/// One for each publisher that is alone, and for those of a group that have one offset: members of a group whose
/// offsets differ have copies of its stream, so that its next firing may come before the last of them has sent.
fn sources(plan: &Plan) -> Vec<Source<'_>> {
    let publishers = &plan.publishers;
    let mut sources: Vec<Source> = Vec::new();
    let mut streams: HashMap<i64, u32> = HashMap::new();
    let mut known: HashMap<(i64, u64), usize> = HashMap::new();
    for i in 0..publishers.ids.len() {
        let (index, group, offset_ns) = (i as u32, publishers.group[i], publishers.offset_ns(i));
        if let Some(source) = known.get(&(group, offset_ns)).filter(|_| group >= 0) {
            sources[*source].members.push(index);
            continue;
        }
        let stream = if group < 0 { index } else { *streams.entry(group).or_insert(index) };
        known.insert((group, offset_ns), sources.len());
        sources.push(Source { firings: firings(plan, i, stream), stream, offset_ns, members: vec![index] });
    }
    sources
}

fn firings(plan: &Plan, publisher: usize, stream: u32) -> Firings<'_> {
    let process = plan.publishers.process[publisher];
    match process {
        Process::Trace => Firings::Recorded(plan.publishers.instants_ns(publisher).iter()),
        _ => Firings::drawn(process, plan.publishers.firing_rate(publisher), plan.seed, stream),
    }
}

/// The k-th of n staggered processes begins k / n of its interval after the start.
fn stagger(sources: &mut [Source<'_>]) {
    let mut turns: HashMap<u32, usize> = HashMap::new();
    let mut in_turn: Vec<(usize, f64, &mut f64)> = Vec::new();
    for source in sources {
        if let Firings::Drawn { process: Process::Staggered, interval_ns, at_ns, .. } = &mut source.firings {
            let next = turns.len();
            in_turn.push((*turns.entry(source.stream).or_insert(next), *interval_ns, at_ns));
        }
    }
    let count = turns.len() as f64;
    for (turn, interval_ns, at_ns) in in_turn {
        *at_ns = interval_ns * turn as f64 / count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::PLAN;

    fn plan(publishers: &str, duration_s: f64, seed: u64) -> Plan {
        let start = PLAN.find(r#"{"ids""#).expect("in the plan");
        let end = PLAN.find(r#""subscribers""#).expect("in the plan");
        let json = format!("{}{publishers},\n{}", &PLAN[..start], &PLAN[end..]);
        let mut plan = Plan::parse(json.as_bytes()).expect("valid");
        (plan.duration_s, plan.warmup_s, plan.seed) = (duration_s, 0.0, seed);
        plan
    }

    fn columns(n: usize, rate: f64, group: impl Fn(usize) -> i64, process: &str) -> String {
        let ids: Vec<String> = (0..n).map(|i| format!("p{i}")).collect();
        let groups: Vec<i64> = (0..n).map(group).collect();
        format!(
            r#"{{"ids": {ids:?}, "target": {:?}, "rate": {:?}, "batch": {:?}, "group": {groups:?}, "process": {:?}}}"#,
            vec![0; n],
            vec![rate; n],
            vec![1; n],
            vec![process; n]
        )
    }

    fn drawn(plan: &Plan) -> Vec<(u64, Vec<u32>)> {
        let mut schedule = Schedule::new(plan);
        let mut instants = Vec::new();
        while let Some((at, members)) = schedule.pop() {
            instants.push((at, members.to_vec()));
        }
        instants
    }

    #[test]
    fn the_generator_is_xoshiro256_plus_plus() {
        // first outputs of the reference implementation from the state 1, 2, 3, 4
        let mut random = Random([1, 2, 3, 4]);
        let first: [u64; 4] = std::array::from_fn(|_| random.next());
        assert_eq!(first, [41943041, 58720359, 3588806011781223, 3591011842654386]);
    }

    #[test]
    fn poisson_has_the_rate_and_the_dispersion_of_poisson() {
        let instants = drawn(&plan(&columns(10, 100.0, |_| -1, "poisson"), 100.0, 7));
        let n = instants.len() as f64;
        assert!((n - 100_000.0).abs() < 4.0 * 100_000f64.sqrt(), "{n} instants");
        let mut counts = vec![0f64; 1000];
        for (at, _) in &instants {
            counts[(*at / 100_000_000) as usize] += 1.0;
        }
        let mean = n / 1000.0;
        let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 999.0;
        // index of dispersion of 1,000 bins: 1 with a standard error of sqrt(2 / 1000)
        assert!((variance / mean - 1.0).abs() < 0.2, "index of dispersion {}", variance / mean);
        assert!(instants.is_sorted_by_key(|(at, _)| *at));
    }

    #[test]
    fn periodic_keeps_its_interval_from_a_random_phase() {
        let instants = drawn(&plan(&columns(2, 10.0, |_| -1, "periodic"), 10.0, 3));
        for publisher in 0..2u32 {
            let own: Vec<u64> = instants.iter().filter(|(_, m)| *m == [publisher]).map(|(at, _)| *at).collect();
            assert_eq!(own.len(), 100);
            assert!(own.windows(2).all(|w| (w[1] - w[0]).abs_diff(100_000_000) <= 1));
        }
        assert_ne!(instants[0].0 % 100_000_000, instants[1].0 % 100_000_000);
    }

    #[test]
    fn staggered_groups_fire_in_turn_at_even_phases() {
        let instants = drawn(&plan(&columns(12, 1.0, |i| (i / 3) as i64, "staggered"), 2.0, 3));
        let times: Vec<u64> = instants.iter().map(|(at, _)| *at / 1_000_000).collect();
        assert_eq!(times, [0, 250, 500, 750, 1000, 1250, 1500, 1750]);
        assert_eq!(instants[1].1, [3, 4, 5]);
    }

    #[test]
    fn members_of_a_group_fire_at_one_instant() {
        let instants = drawn(&plan(&columns(6, 10.0, |i| (i / 3) as i64, "poisson"), 10.0, 3));
        assert!(instants.iter().all(|(_, m)| *m == [0, 1, 2] || *m == [3, 4, 5]));
        assert!((instants.len() as f64 - 200.0).abs() < 4.0 * 200f64.sqrt());
    }

    #[test]
    fn instants_depend_on_the_seed_alone_and_not_on_other_publishers() {
        let few = drawn(&plan(&columns(2, 10.0, |_| -1, "poisson"), 10.0, 5));
        let many = drawn(&plan(&columns(9, 10.0, |_| -1, "poisson"), 10.0, 5));
        let of_first_two = many.into_iter().filter(|(_, m)| m[0] < 2).collect::<Vec<_>>();
        assert_eq!(few, of_first_two);
        assert_ne!(few, drawn(&plan(&columns(2, 10.0, |_| -1, "poisson"), 10.0, 6)));
    }

    #[test]
    fn nothing_is_intended_at_or_after_the_end() {
        let instants = drawn(&plan(&columns(3, 1000.0, |_| -1, "poisson"), 0.5, 1));
        assert!(instants.iter().all(|(at, _)| *at < 500_000_000));
        assert!(instants.len() > 1000);
    }

    fn with_columns(publishers: &str, more: &str) -> String {
        format!("{}, {more}}}", publishers.strip_suffix('}').expect("an object"))
    }

    #[test]
    fn members_of_a_spread_group_send_each_firing_so_much_later() {
        let offsets = r#""offset_ns": [0, 40000000, 80000000, 0, 40000000, 80000000]"#;
        for process in ["poisson", "periodic", "staggered"] {
            let columns = columns(6, 20.0, |i| (i / 3) as i64, process);
            let instants = drawn(&plan(&with_columns(&columns, offsets), 10.0, 3));
            let of = |publisher: u32| {
                instants.iter().filter(move |(_, m)| *m == [publisher]).map(|(at, _)| *at).collect::<Vec<u64>>()
            };
            let firings: Vec<u64> =
                drawn(&plan(&columns, 10.0, 3)).into_iter().filter(|(_, m)| m[0] == 3).map(|(at, _)| at).collect();
            for (member, offset_ns) in [(3, 0), (4, 40_000_000), (5, 80_000_000)] {
                let expected: Vec<u64> =
                    firings.iter().map(|at| at + offset_ns).filter(|at| *at < 10_000_000_000).collect();
                assert_eq!(of(member), expected, "{process}");
            }
            assert!(instants.is_sorted_by_key(|(at, _)| *at));
        }
    }

    #[test]
    fn members_of_a_group_with_one_offset_send_together() {
        let columns = columns(4, 20.0, |_| 7, "poisson");
        let instants = drawn(&plan(&with_columns(&columns, r#""offset_ns": [0, 5, 0, 5]"#), 5.0, 3));
        assert!(instants.iter().all(|(_, m)| *m == [0, 2] || *m == [1, 3]));
        assert!(instants.len() > 100);
    }

    #[test]
    fn a_trace_is_replayed_to_the_nanosecond_until_the_end_whatever_the_seed() {
        let traced = with_columns(
            &columns(2, 1.0, |_| -1, "trace"),
            r#""instants_ns": [[5, 5, 700, 500000000], [6, 499999999]]"#,
        );
        let expected = [(5, vec![0]), (5, vec![0]), (6, vec![1]), (700, vec![0]), (499_999_999, vec![1])];
        assert_eq!(drawn(&plan(&traced, 0.5, 1)), expected);
        assert_eq!(drawn(&plan(&traced, 0.5, 2)), expected);
    }
}
