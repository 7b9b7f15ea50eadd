//! A broker with a simulated service time: messages leave one by one, a service time apart.

use super::pair::*;
use crate::config::Config;

const SERVICE: i64 = 10 * MS;

fn slow() -> Pair {
    Pair::with(Config { lab_service_time_ns: SERVICE as u64, ..Config::default() })
}

#[test]
fn messages_that_come_together_leave_a_service_time_apart_and_that_is_processing() {
    let mut pair = slow();
    let consumer = pair.subscribe("t", "c", 10);
    let publisher = pair.connect();
    assert_eq!(pair.ask(publisher, mpub("t", &["a", "b", "c"])), [ok()], "the answer does not wait");
    assert_eq!((pair.bodies(consumer), pair.topic()["depth"].as_u64()), (vec![], Some(3)));
    pair.advance(SERVICE);
    assert_eq!(pair.bodies(consumer), ["a"]);
    pair.advance(2 * SERVICE - 1);
    assert_eq!(pair.bodies(consumer), ["b"]);
    pair.advance(1);
    assert_eq!((pair.bodies(consumer), pair.topic()["depth"].as_u64()), (vec!["c".to_owned()], Some(0)));
    let latency = pair.topic()["latency"]["since_start"].clone();
    assert!(
        latency["processing"]["max_ns"].as_i64().is_some_and(|ns| (ns - 3 * SERVICE).abs() < SERVICE / 500),
        "{latency}"
    );
    assert_eq!((latency["access"]["max_ns"].as_i64(), latency["consumer_wait"]["max_ns"].as_i64()), (Some(0), Some(0)));
}

#[test]
fn it_serves_what_the_bucket_lets_go_and_no_earlier() {
    let mut pair = slow();
    pair.limit("t", limit(50, 1, 1)); // a token every 20 ms, none at first
    let consumer = pair.subscribe("t", "c", 10);
    pair.publish("t", "a");
    pair.advance(20 * MS + SERVICE - 1);
    assert_eq!(pair.bodies(consumer), [""; 0]);
    pair.advance(1);
    assert_eq!(pair.bodies(consumer), ["a"]);
}

#[test]
fn what_it_holds_goes_with_its_topic() {
    let mut pair = slow();
    let publisher = pair.connect();
    pair.ask(publisher, mpub("t", &["a", "b"]));
    assert!(pair.engine.empty_topic("t"));
    assert_eq!(pair.topic()["depth"].as_u64(), Some(0));
    pair.ask(publisher, pub_("t", "c"));
    pair.engine.delete_topic("t");
    let consumer = pair.subscribe("t", "c", 10);
    pair.advance(S);
    assert_eq!((pair.bodies(consumer), pair.engine.memory.messages.used()), (vec![], 0));
}

#[test]
fn a_topic_counts_latencies_around_its_promise_and_those_that_are_late_from_then_on() {
    let mut pair = slow();
    let consumer = pair.subscribe("t", "c", 10);
    pair.engine.set_promise("t", 2 * SERVICE);
    pair.engine.set_promise("unknown", SERVICE);
    let publisher = pair.connect();
    pair.ask(publisher, mpub("t", &["a", "b", "c"]));
    for _ in 0..3 {
        pair.advance(SERVICE);
    }
    assert_eq!(pair.bodies(consumer).len(), 3);
    let names = ["t".to_owned(), "unknown".to_owned()];
    let [buckets] = &pair.engine.latency_buckets(&names)[..] else { panic!("one topic") };
    assert_eq!((buckets.bounds_ns[7], buckets.late), (2 * SERVICE as u64, 1));
    assert_eq!(buckets.processing.counts, [0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0]);
    assert_eq!((buckets.access.counts[0], buckets.total.counts), (3, buckets.processing.counts));
    pair.engine.set_promise("t", 0);
    pair.ask(publisher, mpub("t", &["d", "e", "f"]));
    pair.advance(9 * SERVICE);
    assert_eq!(pair.engine.latency_buckets(&names)[0].late, 1);
}
