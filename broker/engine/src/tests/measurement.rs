//! What a measurement is made of: the trace's word on who waited for a subscriber, and the ways of clients.

use super::pair::*;
use crate::keys::ConnKey;
use crate::telemetry::measurement::Measurement;
use crate::time::Nanos;

/// Everything in the trace of "t" up to now.
fn measured(pair: &Pair, target: i64) -> Measurement {
    let mut measurement = Measurement::new(0, target, 0);
    measurement.network = pair.engine.network("t");
    let trace = pair.engine.trace("t").expect("a limited topic");
    measurement.take(0, &trace.entries(trace.range()), trace.last_sent(), pair.now);
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
    let mut asked = ask(&mut pair, |key| if key == consumer { 60 * MS } else { 20 * MS });
    asked.sort_unstable();
    let mut clients = [publishers, vec![consumer]].concat();
    clients.sort_unstable();
    assert_eq!(asked, clients);
    let network = pair.engine.network("t");
    assert_eq!((network.typical(), network.subscribers, network.publishers.len()), (40 * MS, 30 * MS, 40));
    assert!(network.publishers.values().all(|way| *way == 10 * MS));
}

/// Ask for the ways of the clients of "t", as the reactor does, to the end; gives who was asked.
fn ask(pair: &mut Pair, round_trip: impl Fn(ConnKey) -> Nanos) -> Vec<ConnKey> {
    let mut asked = Vec::new();
    for _ in 0..10 {
        let now = pair.now;
        pair.engine.ask_network_delay(now); // nobody is asked twice meanwhile
        let some = pair.engine.poll_network_delay();
        assert!(some.len() <= 32);
        some.iter().for_each(|&key| pair.engine.handle_round_trip(key, round_trip(key)));
        pair.engine.end_network_delay();
        asked.extend(some);
    }
    asked
}

#[test]
fn ways_are_asked_for_again_after_some_seconds_not_at_each_report() {
    let mut pair = Pair::new();
    pair.limit("t", limit(1_000_000, 1_000, 1));
    let publisher = pair.connect_as("p");
    pair.ask(publisher, pub_("t", "x"));
    assert_eq!(ask(&mut pair, |_| 20 * MS), [publisher]);
    pair.advance(4 * S);
    assert_eq!(ask(&mut pair, |_| 40 * MS), []);
    assert_eq!(pair.engine.network("t").publishers[&0], 10 * MS);
    pair.advance(S);
    assert_eq!(ask(&mut pair, |_| 40 * MS), [publisher]);
    assert_eq!(pair.engine.network("t").publishers[&0], 20 * MS);
}

#[test]
fn a_trace_is_another_one_when_its_limit_or_its_topic_was_made_anew_and_not_otherwise() {
    let mut pair = Pair::new();
    let publisher = pair.connect();
    let mut seen = Vec::new();
    for change in 0..3 {
        pair.limit("t", limit(1_000, 10, 1));
        let identity = pair.engine.trace_identity("t").expect("it has a limit");
        assert_eq!(pair.ask(publisher, pub_("t", "x")), [ok()]);
        pair.limit("t", limit(500, 10, 2));
        assert_eq!(pair.engine.trace_identity("t"), Some(identity));
        assert!(!seen.contains(&identity), "{identity:?}");
        seen.push(identity);
        let now = pair.now;
        assert!(if change == 0 { pair.engine.clear_bucket("t", now) } else { pair.engine.delete_topic("t") });
        assert_eq!(pair.engine.trace_identity("t"), None);
    }
}
