//! The wall clock is set by an hour, forth and back, while messages flow: as clock pairs into the mapping of stamps; no
//! real clock is touched.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::pair::*;
use crate::arrival::stamps::Stamps;
use crate::io::clock::ClockMap;
use crate::time::Nanos;

const HOUR: Nanos = 3_600 * S;
const WALL: Nanos = 1_700_000_000 * S;

/// One turn: how long it is after the one before, where in that time the clock is set and by how much, and when a
/// message comes.
#[derive(Debug, Clone)]
struct Turn {
    length: Nanos,
    step: Nanos,
    stepped: f64,
    arrival: f64,
}

#[derive(Debug, PartialEq)]
struct Seen {
    arrivals: Vec<u8>,
    due: Vec<u8>,
    fill: f64,
}

/// What the bucket makes of it, and the timestamps and ids of what was delivered.
fn run(turns: &[Turn]) -> (Seen, Vec<(i64, String)>) {
    let mut pair = Pair::new();
    pair.limit("t", limit(100, 3, 1));
    let (publisher, consumer) = (pair.connect(), pair.subscribe("t", "c", 2_500));
    let mut offset = WALL;
    let mut map = ClockMap::starting(offset, pair.now);
    for turn in turns {
        let (start, stepped) = (pair.now, pair.now + (turn.length as f64 * turn.stepped) as Nanos);
        let arrival = start + (turn.length as f64 * turn.arrival) as Nanos;
        let stamp = arrival + if arrival < stepped { offset } else { offset + turn.step };
        offset += turn.step;
        pair.advance(turn.length);
        map.update(offset, pair.now);
        pair.engine.clock.set_offset(map.offset());
        let stamp = map.monotonic_of(stamp, start, pair.now);
        pair.engine.handle_bytes(publisher, &pub_("t", "x"), Stamps::shared(stamp, start), pair.now);
        pair.turn();
    }
    pair.advance(2 * S);
    let delivered = pair.messages(consumer).into_iter().map(|delivery| (delivery.wall_ns, delivery.id)).collect();
    let fill = pair.topic()["bucket"]["fill"].as_f64().expect("a number");
    let trace = pair.trace("t");
    (Seen { arrivals: trace.arrival_ns, due: trace.due_ns, fill }, delivered)
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let step = prop_oneof![2 => Just(0), 1 => Just(HOUR), 1 => Just(-HOUR)];
    let turn = (10_000..20 * MS, step, 0.0..1.0, 0.0..1.0);
    prop::collection::vec(
        turn.prop_map(|(length, step, stepped, arrival)| Turn { length, step, stepped, arrival }),
        1..60,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, rng_seed: RngSeed::Fixed(29), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_step_mints_or_burns_tokens(turns in turns()) {
        let steady: Vec<Turn> = turns.iter().map(|turn| Turn { step: 0, ..turn.clone() }).collect();
        prop_assert_eq!(run(&turns).0, run(&steady).0);
    }

    #[test]
    fn timestamps_and_ids_of_messages_keep_growing(turns in turns()) {
        let (_, delivered) = run(&turns);
        prop_assert_eq!(delivered.len(), turns.len());
        for pair in delivered.windows(2) {
            prop_assert!(pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1, "{pair:?}");
        }
    }
}

#[test]
fn what_a_step_does_shows_in_the_snapshot() {
    let mut pair = Pair::new();
    (pair.engine.counters.clock_steps, pair.engine.counters.stamps_corrected) = (2, 7);
    let snapshot = pair.snapshot();
    assert_eq!((snapshot["clock_steps"].as_u64(), snapshot["stamps_corrected"].as_u64()), (Some(2), Some(7)));
}

#[test]
fn a_message_after_a_step_back_is_not_dated_before_one_from_ahead_of_it() {
    let mut pair = Pair::new();
    let consumer = pair.subscribe("t", "c", 10);
    assert_eq!(pair.publish("t", "a"), ok());
    let offset = pair.engine.clock.offset();
    pair.engine.clock.set_offset(offset - 10 * S);
    for body in ["b", "c"] {
        pair.advance(MS);
        assert_eq!(pair.publish("t", body), ok());
    }
    pair.advance(20 * S);
    assert_eq!(pair.publish("t", "d"), ok());
    let times: Vec<i64> = pair.messages(consumer).iter().map(|delivery| delivery.wall_ns - offset - START).collect();
    assert_eq!(times[..3], [0, 1, 2]);
    assert_eq!(times[3], 2 * MS + 10 * S, "the true time again, once it is later");
}
