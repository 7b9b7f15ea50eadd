//! What a measurement is made of: the trace's word on who waited for a subscriber, and the ways of clients.

use super::pair::*;
use crate::measure::Measurement;

/// Everything in the trace of "t" up to now.
fn measured(pair: &Pair, target: i64) -> Measurement {
    let mut measurement = Measurement::new(0, target, 0);
    measurement.network = pair.engine.network("t");
    let trace = pair.engine.trace("t").expect("a limited topic");
    measurement.take(0, &trace.entries(trace.range()), pair.now);
    measurement
}

#[test]
fn the_wait_for_a_subscriber_is_no_latency_and_the_wait_for_a_token_is() {
    let mut pair = Pair::new();
    pair.limit("t", limit(100, 1, 1)); // a token every 10 ms, none at first
    pair.publish("t", "a");
    pair.advance(500 * MS);
    let consumer = pair.subscribe("t", "c", 10);
    assert_eq!(pair.bodies(consumer), ["a"]);
    let (count, [access, processing, total]) = measured(&pair, S).percentiles(100.0);
    assert_eq!(count, 1);
    assert!(
        access.abs_diff(10 * MS as u64) < MS as u64 && processing < MS as u64 && total < 12 * MS as u64,
        "{access} {processing} {total}"
    );
}

#[test]
fn what_is_not_taken_is_not_measured_yet() {
    let mut pair = Pair::new();
    pair.limit("t", limit(100, 1, 1));
    pair.publish("t", "a");
    pair.advance(500 * MS);
    assert_eq!(measured(&pair, S).percentiles(99.0).0, 0);
}

#[test]
fn the_ways_of_a_topics_clients_are_asked_for_some_at_a_time_and_added() {
    let mut pair = Pair::new();
    pair.limit("t", limit(1_000_000, 1_000, 1));
    let consumer = pair.subscribe("t", "c", 100);
    let publishers: Vec<_> = (0..40).map(|n| pair.connect_as(&format!("p{n}"))).collect();
    let stranger = pair.connect_as("of another topic");
    pair.ask(stranger, pub_("u", "x"));
    for publisher in &publishers {
        pair.ask(*publisher, pub_("t", "x"));
    }
    pair.engine.ask_ways("t");
    let mut asked = Vec::new();
    while let Some(some) = Some(pair.engine.poll_ways().collect::<Vec<_>>()).filter(|some| !some.is_empty()) {
        assert!(some.len() <= 32);
        pair.engine.ask_ways("t"); // nobody is asked twice meanwhile
        asked.extend(some);
        if asked.len() == 41 {
            break;
        }
    }
    assert!(asked.contains(&consumer) && !asked.contains(&stranger) && publishers.iter().all(|one| asked.contains(one)));
    for key in asked {
        pair.engine.handle_round_trip(key, if key == consumer { 60 * MS } else { 20 * MS });
    }
    pair.close(publishers[0]);
    let network = pair.engine.network("t");
    assert_eq!((network.subscribers, network.publishers.len()), (30 * MS, 39));
    assert!(network.publishers.values().all(|way| *way == 10 * MS));
}
