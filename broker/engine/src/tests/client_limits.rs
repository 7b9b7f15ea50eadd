//! A topic with a bucket: order of arrival, instants, refusals, shares, publishers.

use super::pair::*;
use crate::clients::mqtt_client::MqttAddresses;
use crate::event::Event;
use crate::queueing::topic::Limit;

fn column(bytes: &[u8]) -> Vec<i64> {
    bytes.chunks(8).map(|word| i64::from_le_bytes(word.try_into().expect("8 bytes"))).collect()
}

fn refused(frame: &Frame, expected: &str) {
    assert!(matches!(frame, Frame::Error(text) if text == expected), "{frame:?}");
}

#[test]
fn publishes_of_one_turn_are_decided_in_order_of_arrival_across_connections() {
    let mut pair = Pair::new();
    pair.limit("t", limit(1_000, 1, 1));
    let consumer = pair.subscribe("t", "c", 100);
    let (a, b) = (pair.connect(), pair.connect());
    pair.stall(10 * MS);
    let now = pair.now;
    pair.send_at(a, pub_("t", "late"), now - 2 * MS);
    pair.send_at(b, pub_("t", "early"), now - 5 * MS);
    pair.turn();
    assert_eq!(pair.bodies(consumer), ["early", "late"]);
    let trace = pair.trace("t");
    assert_eq!(column(&trace.arrival_ns), [now - 5 * MS, now - 2 * MS]);
    assert_eq!(column(&trace.due_ns), column(&trace.arrival_ns));
}

#[test]
fn what_lacks_a_token_is_released_at_its_exact_instant_in_order() {
    let mut pair = Pair::new();
    pair.limit("t", Limit { full: true, ..limit(1_000, 2, 1) });
    let consumer = pair.subscribe("t", "c", 100);
    let publisher = pair.connect();
    assert_eq!(pair.ask(publisher, mpub("t", &["0", "1", "2", "3"])), [ok()]);
    assert_eq!(pair.bodies(consumer), ["0", "1"]);
    pair.advance(MS - 1);
    assert_eq!(pair.bodies(consumer), [""; 0]);
    pair.advance(1);
    assert_eq!(pair.bodies(consumer), ["2"]);
    pair.advance(MS);
    assert_eq!(pair.bodies(consumer), ["3"]);
}

#[test]
fn a_stalled_broker_delays_none_of_the_conformant_messages_that_came_meanwhile() {
    let mut pair = Pair::new();
    pair.limit("t", Limit { full: true, ..limit(1_000, 1, 1) });
    let keys: Vec<_> = (0..50).map(|_| pair.connect()).collect();
    let start = pair.now;
    pair.stall(S);
    for (i, key) in keys.iter().enumerate().rev() {
        pair.send_at(*key, pub_("t", "x"), start + (i as i64 + 1) * MS);
    }
    let now = pair.now;
    pair.engine.decide_publishes(now); // a new share comes in the same turn
    assert!(pair.engine.set_bucket("t", limit(1_000, 1, 2), now));
    pair.turn();
    let trace = pair.trace("t");
    assert_eq!(column(&trace.due_ns), column(&trace.arrival_ns));
    assert_eq!(pair.topic()["bucket"]["delayed"], 0);
}

#[test]
fn a_receipt_tells_the_wait_and_the_fill() {
    let mut pair = Pair::new();
    pair.limit("t", Limit { full: true, ..limit(1_000, 2, 1) });
    let key = pair.connect_aware("p");
    assert_eq!(pair.ask(key, pub_("t", "x")), [response("OK wait_ns=0 fill=0.500000")]);
    assert_eq!(pair.ask(key, mpub("t", &["y", "z"])), [response("OK wait_ns=1000000 fill=0.000000")]);
    assert_eq!(pair.ask(key, pub_("unlimited", "x")), [response("OK wait_ns=0 fill=1.000000")]);
}

#[test]
fn a_receipt_names_no_wait_where_nobody_can_tell() {
    let mut pair = Pair::new();
    pair.limit("t", limit(0, 0, 1));
    let key = pair.connect_aware("p");
    assert_eq!(pair.ask(key, pub_("t", "x")), [response("OK fill=0.000000")]);
}

#[test]
fn under_reject_a_publish_without_tokens_is_refused_with_the_time_to_wait_and_the_connection_stays() {
    let mut pair = Pair::new();
    pair.limit("t", Limit { reject: true, full: true, ..limit(100, 3, 1) });
    let key = pair.connect();
    assert_eq!(pair.ask(key, mpub("t", &["a", "b"])), [ok()]);
    refused(&pair.ask(key, mpub("t", &["c", "d"]))[0], "E_RATE_LIMITED MPUB retry after 10 ms");
    assert_eq!(pair.ask(key, pub_("t", "c")), [ok()], "the refused one paid nothing");
    refused(&pair.ask(key, pub_("t", "d"))[0], "E_RATE_LIMITED PUB retry after 10 ms");
    refused(&pair.ask(key, dpub("t", 5, "d"))[0], "E_RATE_LIMITED DPUB retry after 10 ms");
    refused(
        &pair.ask(key, mpub("t", &["1", "2", "3", "4"]))[0],
        "E_RATE_LIMITED MPUB of 4 messages can never pass a burst of 3: send fewer at once",
    );
    pair.advance(10 * MS);
    assert_eq!(pair.ask(key, pub_("t", "d")), [ok()]);
    let bucket = pair.topic()["bucket"].clone();
    assert_eq!((bucket["rejected"].clone(), bucket["received"].clone()), (8.into(), 12.into()));
    assert_eq!((bucket["released"].clone(), pair.topic()["message_count"].clone()), (4.into(), 4.into()));
}

#[test]
fn a_full_backlog_refuses_in_messages_and_in_bytes() {
    for bounded in [Limit { max_backlog: 2, ..limit(1, 1, 1) }, Limit { max_backlog_bytes: 25, ..limit(1, 1, 1) }] {
        let mut pair = Pair::new();
        pair.limit("t", bounded);
        let key = pair.connect();
        assert_eq!(pair.ask(key, mpub("t", &["0123456789", "0123456789"])), [ok()]);
        refused(&pair.ask(key, pub_("t", "0123456789"))[0], "E_RATE_LIMITED PUB retry after 1000 ms");
        assert_eq!(pair.topic()["bucket"]["backlog"], 2);
        pair.advance(S);
        assert_eq!(pair.ask(key, pub_("t", "0123456789")), [ok()]);
    }
}

#[test]
fn heartbeats_and_answers_do_not_wait_behind_tokens() {
    let mut pair = Pair::new();
    pair.limit("t", limit(0, 0, 1)); // nothing will ever be released
    let consumer = pair.subscribe("t", "c", 10);
    let publisher = pair.connect();
    for second in 1..=60 {
        pair.advance(S);
        let expected = if second % 30 == 0 { vec![response("_heartbeat_"), ok()] } else { vec![ok()] };
        assert_eq!(pair.ask(publisher, pub_("t", "x")), expected, "second {second}");
        pair.send(consumer, "NOP\n");
    }
    assert_eq!(pair.take(consumer), vec![response("_heartbeat_"); 2]);
    assert_eq!(pair.topic()["bucket"]["backlog"], 60);
}

#[test]
fn a_new_rate_retimes_what_waits() {
    let mut pair = Pair::new();
    pair.limit("t", limit(1, 1, 1));
    let consumer = pair.subscribe("t", "c", 10);
    pair.publish("t", "x");
    pair.advance(S / 2);
    assert!(pair.limit("t", limit(1_000, 1, 2)));
    pair.advance(MS / 2 - 1);
    assert_eq!(pair.bodies(consumer), [""; 0]);
    pair.advance(1);
    assert_eq!(pair.bodies(consumer), ["x"]);
}

#[test]
fn under_a_share_of_nothing_messages_wait_and_are_told_once_a_share() {
    let mut pair = Pair::new();
    pair.limit("t", limit(0, 0, 1));
    let consumer = pair.subscribe("t", "c", 10);
    pair.engine.poll_events();
    assert_eq!((pair.publish("t", "a"), pair.publish("t", "b")), (ok(), ok()));
    assert_eq!(pair.engine.poll_events(), [Event::Starved { topic: "t".into(), waiting: 1 }]);
    pair.limit("t", limit(0, 0, 2));
    assert_eq!(pair.engine.poll_events(), [Event::Starved { topic: "t".into(), waiting: 2 }]);
    pair.advance(S);
    assert_eq!((pair.bodies(consumer), pair.engine.poll_events()), (vec![], vec![]));
    pair.limit("t", limit(1_000, 5, 3));
    pair.advance(2 * MS);
    assert_eq!(pair.bodies(consumer), ["a", "b"]);
}

#[test]
fn clearing_the_limit_releases_what_waits() {
    let mut pair = Pair::new();
    pair.limit("t", limit(0, 0, 1));
    let consumer = pair.subscribe("t", "c", 10);
    pair.publish("t", "a");
    let now = pair.now;
    assert!(pair.engine.clear_bucket("t", now));
    pair.turn();
    assert_eq!(pair.bodies(consumer), ["a"]);
    assert!(!pair.engine.clear_bucket("t", now));
}

#[test]
fn a_share_older_than_the_one_in_force_is_refused_and_changes_nothing() {
    let mut pair = Pair::new();
    assert!(pair.limit("t", limit(10, 1, 5)));
    assert!(!pair.limit("t", limit(1_000, 1, 4)));
    let bucket = pair.topic()["bucket"].clone();
    assert_eq!((bucket["rate_micro"].clone(), bucket["version"].clone()), (10_000_000.into(), 5.into()));
    assert!(pair.limit("t", limit(20, 1, 5)), "the same version may come again");
}

#[test]
fn a_bucket_is_full_only_where_it_is_new_and_said_to_be_so() {
    let mut pair = Pair::new();
    pair.limit("empty", limit(1, 5, 1));
    pair.limit("full", Limit { full: true, ..limit(1, 5, 1) });
    let fills = |pair: &mut Pair| {
        let topics = pair.snapshot()["topics"].clone();
        [topics[0]["bucket"]["fill"].clone(), topics[1]["bucket"]["fill"].clone()]
    };
    assert_eq!(fills(&mut pair), [0.0, 5.0]);
    pair.limit("empty", Limit { full: true, ..limit(1, 5, 2) });
    assert_eq!(fills(&mut pair), [0.0, 5.0], "a change never mints");
    let now = pair.now;
    pair.engine.clear_bucket("full", now);
    pair.limit("full", limit(1, 5, 1));
    assert_eq!(fills(&mut pair), [0.0, 0.0]);
}

#[test]
fn requeued_and_timed_out_messages_pay_nothing_again() {
    let mut pair = Pair::new();
    pair.limit("t", Limit { full: true, ..limit(1, 2, 1) });
    let consumer = pair.subscribe("t", "c", 1);
    pair.publish("t", "x");
    for _ in 0..5 {
        let id = pair.messages(consumer).remove(0).id;
        pair.send(consumer, format!("REQ {id} 0\n"));
        pair.turn();
    }
    assert_eq!(pair.topic()["bucket"]["fill"], 1.0);
}

#[test]
fn a_publisher_of_another_broker_is_a_stranger_once_an_assignment() {
    let mut pair = Pair::new();
    let (mine, other, anonymous) = (pair.connect_as("mine"), pair.connect_as("other"), pair.connect());
    pair.ask(other, pub_("t", "before"));
    pair.engine.set_publishers("t", vec!["mine".into()], 0);
    pair.engine.poll_events();
    for key in [mine, other, anonymous, other] {
        assert_eq!(pair.ask(key, pub_("t", "x")), [ok()]);
    }
    let stranger = Event::UnassignedPublisher { topic: "t".into(), publisher_id: "other".into() };
    assert_eq!(pair.engine.poll_events(), std::slice::from_ref(&stranger));
    pair.limit("t", limit(1_000, 10, 1));
    assert_eq!(pair.topic()["bucket"]["undeclared"], 3);
    pair.engine.set_publishers("t", vec!["mine".into()], 0);
    pair.ask(other, pub_("t", "x"));
    assert_eq!(pair.engine.poll_events(), [], "the same assignment again is no news");
    pair.engine.set_publishers("t", vec!["mine".into()], 1);
    pair.ask(other, pub_("t", "x"));
    assert_eq!(pair.engine.poll_events(), [stranger]);
    pair.engine.set_publishers("t", vec!["mine".into(), "other".into()], 2);
    pair.ask(other, pub_("t", "x"));
    assert_eq!((pair.engine.poll_events(), pair.topic()["bucket"]["undeclared"].clone()), (vec![], 5.into()));
}

#[test]
fn a_cleared_and_renewed_assignment_is_not_mistaken_for_the_old_one() {
    let mut pair = Pair::new();
    let key = pair.connect_as("p");
    pair.limit("t", limit(1_000, 10, 1));
    pair.engine.set_publishers("t", vec!["p".into()], 7);
    pair.ask(key, pub_("t", "x"));
    let now = pair.now;
    pair.engine.clear_bucket("t", now);
    pair.engine.set_publishers("t", vec!["q".into()], 7);
    pair.engine.poll_events();
    pair.ask(key, pub_("t", "x"));
    assert_eq!(pair.engine.poll_events().len(), 1);
}

#[test]
fn only_aware_connections_of_that_publisher_on_that_topic_are_told_to_move() {
    let mut pair = Pair::new();
    let (told, elsewhere, other) = (pair.connect_aware("p"), pair.connect_aware("p"), pair.connect_aware("q"));
    let plain = pair.connect_as("p");
    for (key, topic) in [(told, "t"), (elsewhere, "u"), (other, "t"), (plain, "t")] {
        pair.ask(key, pub_(topic, "x"));
    }
    let now = pair.now;
    let mqtt = MqttAddresses { clear: "127.0.0.1:1883".into(), ..MqttAddresses::default() };
    assert_eq!(pair.engine.move_publisher("t", "p", "127.0.0.1:4250", &mqtt, 9, now), 1);
    pair.turn();
    assert_eq!(pair.take(told), [response("_move_ 127.0.0.1:4250 9")]);
    assert_eq!([elsewhere, other, plain].map(|key| pair.take(key)), [vec![], vec![], vec![]]);
    pair.close(told);
    let now = pair.now;
    assert_eq!(pair.engine.move_publisher("t", "p", "127.0.0.1:4250", &mqtt, 9, now), 0);
}

#[test]
fn trace_entries_are_complete() {
    let mut pair = Pair::new();
    pair.limit("t", Limit { full: true, ..limit(1_000, 1, 3) });
    let consumer = pair.subscribe("t", "c", 1);
    let (a, b) = (pair.connect_as("a"), pair.connect_as("b"));
    let start = pair.now;
    pair.ask(a, pub_("t", "x"));
    pair.ask(b, pub_("t", "y"));
    pair.advance(MS);
    let id = pair.messages(consumer).remove(0).id;
    pair.advance(MS);
    pair.send(consumer, format!("FIN {id}\n"));
    pair.turn();
    let trace = pair.trace("t");
    assert_eq!(
        (trace.publishers.clone(), trace.publisher.clone()),
        (vec!["a".into(), "b".into()], vec![0, 0, 0, 0, 1, 0, 0, 0])
    );
    assert_eq!(column(&trace.arrival_ns), [start, start]);
    assert_eq!(column(&trace.due_ns), [start, start + MS]);
    assert_eq!(column(&trace.released_ns), [start, start + MS]);
    assert_eq!(column(&trace.sent_ns), [start, start + 2 * MS]);
    assert_eq!(column(&trace.share_version), [3, 3]);
}

#[test]
fn news_of_messages_of_an_earlier_limit_do_not_mark_entries_of_the_new_one() {
    let mut pair = Pair::new();
    pair.limit("t", Limit { full: true, ..limit(1_000, 5, 1) });
    pair.publish("t", "old");
    let now = pair.now;
    pair.engine.clear_bucket("t", now);
    pair.limit("t", limit(0, 0, 1));
    pair.publish("t", "new");
    let consumer = pair.subscribe("t", "c", 1);
    assert_eq!(pair.bodies(consumer), ["old"]);
    assert_eq!(column(&pair.trace("t").sent_ns), [0]);
}

#[test]
fn the_wait_for_a_consumer_or_a_deferral_is_not_the_brokers_processing() {
    let mut pair = Pair::new();
    let publisher = pair.connect();
    pair.ask(publisher, pub_("t", "x"));
    pair.ask(publisher, dpub("t", 20_000, "y"));
    pair.advance(10 * S);
    let consumer = pair.subscribe("t", "c", 10);
    pair.advance(20 * S);
    assert_eq!(pair.bodies(consumer), ["x", "y"]);
    let latency = pair.topic()["latency"]["since_start"].clone();
    assert_eq!((latency["total"]["count"].clone(), latency["processing"]["max_ns"].clone()), (2.into(), 0.into()));
}

#[test]
fn statistics_name_the_topic_that_a_connection_published_to_also_beyond_its_cache() {
    let mut pair = Pair::new();
    let key = pair.connect();
    for i in 0..20 {
        pair.send(key, pub_(&format!("t{i}"), "x"));
    }
    pair.turn();
    let counts = pair.snapshot()["producers"][0]["pub_counts"].clone();
    let counts = counts.as_array().expect("a list");
    assert!(counts.iter().all(|entry| entry["count"] == 1), "{counts:?}");
}

#[test]
fn absurd_parameters_neither_panic_nor_mint() {
    let huge = 1_000_000_000_000_000;
    for (rate_micro, burst_micro) in [(huge, huge), (0, huge), (huge, 0), (1, 1), (u64::MAX >> 1, u64::MAX >> 1)] {
        let mut pair = Pair::new();
        pair.limit("t", Limit { rate_micro, burst_micro, full: true, ..limit(0, 0, 1) });
        let key = pair.connect_aware("p");
        for _ in 0..3 {
            pair.ask(key, mpub("t", &["a", "b"]));
            pair.advance(1);
        }
        pair.now = i64::MAX / 4;
        pair.limit("t", Limit { rate_micro: burst_micro, burst_micro: rate_micro, ..limit(0, 0, 2) });
        pair.ask(key, pub_("t", "x"));
        let trace = pair.trace("t");
        assert!(
            column(&trace.due_ns)
                .iter()
                .zip(column(&trace.arrival_ns))
                .all(|(due, arrival)| *due == 0 || *due >= arrival)
        );
    }
}
