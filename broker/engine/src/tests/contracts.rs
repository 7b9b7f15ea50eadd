//! Publishers and consumers under contracts, by NSQ, HTTP and MQTT.

use std::collections::HashMap;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use srtm_limits::contract::Contract;

use super::mqtt::client::{Client, packet, publish_5, text};
use super::pair::*;
use crate::harness::invariant;
use crate::keys::ConnKey;
use crate::limiter::topic_contracts::Terms;
use crate::protocol::mqtt::version::Version;
use crate::queueing::topic::Limit;
use crate::time::Nanos;

/// A topic with room for everybody, whose publishers may send two messages at once and one each 100 ms.
fn sensors() -> Pair {
    let mut pair = Pair::new();
    pair.limit("t", Limit { full: true, ..limit(1_000, 100, 1) });
    put(&mut pair, contract("sensors", 10, 2));
    pair.engine.set_terms("t", Terms { publishers: "sensors".into(), ..Terms::default() });
    pair
}

fn put(pair: &mut Pair, contract: Contract) {
    let now = pair.now;
    assert_eq!(pair.engine.set_contracts(vec![(contract, false)], false, now), [None]);
}

/// Messages in the history of a topic's arrivals.
fn arrivals(pair: &mut Pair, topic: &str) -> u64 {
    pair.advance(S);
    let now = pair.now;
    let bins = pair.engine.histories(&[topic.into()], 0, now / (100 * MS), now);
    bins[0].bins.arrivals.iter().sum()
}

fn http(pair: &mut Pair, key: ConnKey, target: &str) -> String {
    pair.send(key, format!("POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"));
    pair.turn();
    pair.take_text(key)
}

#[test]
fn a_publisher_is_refused_with_the_time_to_wait_and_goes_on() {
    let mut pair = sensors();
    let (one, two) = (pair.connect_as("1"), pair.connect_as("2"));
    assert_eq!(pair.ask(one, pub_("t", "a")), [ok()]);
    assert_eq!(pair.ask(one, dpub("t", 5, "b")), [ok()]);
    assert_eq!(pair.ask(one, pub_("t", "c")), [error("E_RATE_LIMITED PUB retry after 100 ms (contract sensors)")]);
    assert_eq!(pair.ask(two, pub_("t", "d")), [ok()], "another publisher");
    pair.advance(100 * MS);
    assert_eq!(pair.ask(one, pub_("t", "e")), [ok()]);
    let bucket = pair.topic()["bucket"].clone();
    assert_eq!((&bucket["received"], &bucket["rejected"]), (&5.into(), &1.into()));
    assert_eq!(arrivals(&mut pair, "t"), 4, "what is refused is no demand that shares should follow");
}

#[test]
fn all_connections_of_a_publisher_have_one_contract_on_all_its_topics() {
    let mut pair = sensors();
    pair.limit("u", Limit { full: true, ..limit(1_000, 100, 1) });
    pair.engine.set_terms("u", Terms { publishers: "sensors".into(), ..Terms::default() });
    let keys = [pair.connect_as("1"), pair.connect_as("1"), pair.connect_as("1")];
    assert_eq!(pair.ask(keys[0], pub_("t", "a")), [ok()]);
    assert_eq!(pair.ask(keys[1], pub_("u", "b")), [ok()]);
    assert!(matches!(&pair.ask(keys[2], pub_("t", "c"))[..], [Frame::Error(_)]));
}

#[test]
fn an_mpub_counts_its_messages_and_passes_whole_or_not_at_all() {
    let mut pair = sensors();
    let one = pair.connect_as("1");
    let never = "E_RATE_LIMITED MPUB of 3 messages can never pass a burst of 2: send fewer at once";
    assert_eq!(pair.ask(one, mpub("t", &["a", "b", "c"])), [error(never)]);
    assert_eq!(pair.ask(one, mpub("t", &["a", "b"])), [ok()], "nothing was taken");
    assert!(matches!(&pair.ask(one, pub_("t", "c"))[..], [Frame::Error(_)]));
}

#[test]
fn who_closes_in_the_same_turn_is_held_too() {
    let mut pair = sensors();
    let consumer = pair.subscribe("t", "c", 10);
    for _ in 0..4 {
        let key = pair.connect_as("1");
        pair.send(key, pub_("t", "x"));
        pair.engine.handle_broken(key);
        pair.turn();
    }
    pair.advance(1);
    assert_eq!(pair.bodies(consumer).len(), 2);
}

#[test]
fn what_the_topic_refuses_takes_nothing_of_the_contract() {
    let mut pair = sensors();
    pair.limit("t", Limit { reject: true, ..limit(1, 1, 2) });
    let one = pair.connect_as("1");
    assert_eq!(pair.ask(one, pub_("t", "a")), [ok()]);
    for _ in 0..3 {
        assert_eq!(pair.ask(one, pub_("t", "b")), [error("E_RATE_LIMITED PUB retry after 1000 ms")]);
    }
    pair.limit("t", limit(1_000, 100, 3));
    assert_eq!(pair.ask(one, pub_("t", "c")), [ok()], "the second token of the contract");
}

#[test]
fn a_tenant_is_held_over_all_its_topics_and_publishers() {
    let mut pair = sensors();
    put(&mut pair, contract("tenants", 10, 3));
    pair.limit("u", Limit { full: true, ..limit(1_000, 100, 1) });
    for topic in ["t", "u"] {
        let terms = Terms { publishers: "sensors".into(), tenant: "acme".into(), ..Terms::default() };
        pair.engine.set_terms(topic, terms);
    }
    let (one, two) = (pair.connect_as("1"), pair.connect_as("2"));
    assert_eq!(pair.ask(one, mpub("t", &["a", "b"])), [ok()]);
    assert_eq!(pair.ask(two, pub_("u", "c")), [ok()]);
    let refused = error("E_RATE_LIMITED PUB retry after 100 ms (contract tenants)");
    assert_eq!(pair.ask(two, pub_("t", "d")), [refused]);
    pair.engine.set_terms("u", Terms { publishers: "sensors".into(), ..Terms::default() });
    assert_eq!(pair.ask(two, pub_("u", "e")), [ok()], "it has its own token yet");
}

#[test]
fn a_publisher_without_a_name_is_known_by_its_address() {
    let mut pair = sensors();
    let keys = [pair.connect(), pair.connect(), pair.connect()];
    let answers: Vec<_> = keys.into_iter().map(|key| pair.ask(key, pub_("t", "x"))).collect();
    assert!(answers[..2].iter().all(|answer| *answer == [ok()]) && answers[2] != [ok()], "{answers:?}");
}

#[test]
fn http_says_429_to_the_publisher_that_a_request_names() {
    let mut pair = sensors();
    let key = pair.connect_http();
    for _ in 0..2 {
        assert!(http(&mut pair, key, "/pub?topic=t&publisher=1").starts_with("HTTP/1.1 200 "));
    }
    let refused = http(&mut pair, key, "/pub?topic=t&publisher=1");
    assert!(refused.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{refused}");
    for header in ["Retry-After: 1", "X-SRTM-Retry-After-Ms: 100", "X-SRTM-Contract: sensors"] {
        assert!(refused.contains(&format!("\r\n{header}\r\n")), "{refused}");
    }
    assert!(http(&mut pair, key, "/pub?topic=t&publisher=2").starts_with("HTTP/1.1 200 "), "another on one connection");
    assert!(http(&mut pair, key, "/mpub?topic=t&publisher=1").starts_with("HTTP/1.1 429 "));
    assert!(http(&mut pair, key, "/pub?topic=t").starts_with("HTTP/1.1 200 "), "by the address");
    let long = "x".repeat(257);
    for id in ["", &long] {
        let answer = http(&mut pair, key, &format!("/pub?topic=t&publisher={id}"));
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("INVALID_PUBLISHER"), "{answer}");
    }
}

#[test]
fn mqtt_5_is_told_the_time_to_wait_and_3_1_1_is_closed() {
    let mut pair = sensors();
    assert!(pair.engine.set_mqtt_names("t", vec!["plant/#".into()], crate::mqtt::managed_names::V3Excess::Delay));
    let mut client = Client::new(&mut pair, "1");
    for id in 1..3 {
        assert_ne!(client.ask(&mut pair, &publish_5("plant/1", 1, id, "x"))[4..5], [0x97]);
    }
    let refused = client.ask(&mut pair, &publish_5("plant/1", 1, 3, "x"));
    assert_eq!(refused[4], 0x97, "{refused:?}");
    let text = String::from_utf8_lossy(&refused).into_owned();
    assert!(text.contains("retry after 100 ms") && text.contains("srtm-contract"), "{text}");
    let mut old = Client::accept(&mut pair);
    old.connect(&mut pair, Version::V3_1_1, "2");
    for _ in 0..3 {
        old.publish(&mut pair, "plant/1", 1, b"x");
    }
    assert!(old.has_ended(&pair));
}

#[test]
fn a_will_is_never_refused() {
    let mut pair = sensors();
    let consumer = pair.subscribe("t", "c", 10);
    let now = pair.now;
    for _ in 0..4 {
        pair.engine.collect_alone("t", "1", b"", b"gone", now);
    }
    pair.turn();
    assert_eq!(pair.bodies(consumer).len(), 4);
}

#[test]
fn a_change_holds_at_once_and_mints_nothing() {
    let mut pair = sensors();
    let one = pair.connect_as("1");
    assert_eq!(pair.ask(one, mpub("t", &["a", "b"])), [ok()]);
    put(&mut pair, contract("sensors", 20, 10));
    let refused = error("E_RATE_LIMITED PUB retry after 50 ms (contract sensors)");
    assert_eq!(pair.ask(one, pub_("t", "c")), [refused]);
    let named = HashMap::from([("gateways".into(), vec!["1".into()])]);
    pair.engine.set_terms("t", Terms { publishers: "sensors".into(), named, ..Terms::default() });
    assert_eq!(pair.ask(one, pub_("t", "d")), [ok()], "that namespace has no contract");
    pair.engine.set_terms("t", Terms::default());
    assert!(pair.engine.remove_contract("sensors", "*") && !pair.engine.remove_contract("sensors", "*"));
    assert_eq!(pair.ask(one, pub_("t", "e")), [ok()]);
}

#[test]
fn a_topic_that_is_deleted_and_made_again_has_its_contracts() {
    let mut pair = sensors();
    let one = pair.connect_as("1");
    assert_eq!(pair.ask(one, mpub("t", &["a", "b"])), [ok()]);
    assert!(pair.engine.delete_topic("t"));
    assert_eq!(pair.ask(one, pub_("t", "c")), [error("E_RATE_LIMITED PUB retry after 100 ms (contract sensors)")]);
    assert!(pair.engine.delete_topic("t"));
    let now = pair.now;
    assert!(pair.engine.clear_bucket("t", now), "it is no longer managed");
    assert_eq!(pair.ask(one, pub_("t", "c")), [ok()]);
}

#[test]
fn a_topic_that_is_no_longer_managed_has_no_contracts() {
    let mut pair = sensors();
    let one = pair.connect_as("1");
    let now = pair.now;
    pair.engine.clear_bucket("t", now);
    for _ in 0..5 {
        assert_eq!(pair.ask(one, pub_("t", "x")), [ok()]);
    }
}

fn consumer(pair: &mut Pair, id: &str) -> ConnKey {
    let key = pair.connect_as(id);
    assert_eq!(pair.ask(key, "SUB t c\n"), [ok()]);
    pair.send(key, "RDY 100\n");
    pair.turn();
    key
}

/// A topic whose consumers get two messages at once, and one each 100 ms.
fn paced(messages: usize) -> Pair {
    let mut pair = Pair::new();
    pair.limit("t", Limit { full: true, ..limit(1_000, 100, 1) });
    put(&mut pair, contract("readers", 10, 2));
    pair.engine.set_terms("t", Terms { consumers: "readers".into(), ..Terms::default() });
    let now = pair.now;
    pair.engine.create_channel("t", "c", now);
    let key = pair.connect();
    for number in 0..messages {
        assert_eq!(pair.ask(key, pub_("t", &number.to_string())), [ok()]);
    }
    pair
}

#[test]
fn a_consumer_gets_what_its_contract_allows_and_the_rest_waits() {
    let mut pair = paced(6);
    let key = consumer(&mut pair, "1");
    assert_eq!(pair.bodies(key), ["0", "1"]);
    pair.advance(100 * MS - 1);
    assert_eq!(pair.bodies(key), [""; 0]);
    pair.advance(1);
    assert_eq!(pair.bodies(key), ["2"]);
    pair.advance(200 * MS);
    assert_eq!(pair.bodies(key), ["3", "4"]);
    assert_eq!((&pair.channel()["depth"], &pair.channel()["in_flight_count"]), (&1.into(), &5.into()));
}

#[test]
fn what_one_consumer_may_not_have_goes_to_another() {
    let mut pair = paced(4);
    let (one, same, two) = (consumer(&mut pair, "1"), consumer(&mut pair, "1"), consumer(&mut pair, "2"));
    let counts = [one, same, two].map(|key| pair.bodies(key).len());
    assert_eq!((counts[0] + counts[1], counts[2]), (2, 2), "connections of one consumer share its contract");
}

#[test]
fn a_consumer_goes_on_within_a_second_once_its_contract_is_wider_or_gone() {
    let mut pair = paced(9);
    put(&mut pair, Contract { starts_full: false, ..contract("readers", 1, 2) });
    let key = consumer(&mut pair, "slow");
    assert_eq!(pair.bodies(key), [""; 0]);
    put(&mut pair, contract("readers", 1_000, 100));
    pair.advance(S);
    assert_eq!(pair.bodies(key).len(), 9);
    let mut pair = paced(9);
    let key = consumer(&mut pair, "1");
    assert_eq!(pair.bodies(key).len(), 2);
    pair.engine.set_terms("t", Terms::default());
    pair.advance(S);
    assert_eq!(pair.bodies(key).len(), 7);
}

fn say(pair: &mut Pair, topic: &str, bodies: std::ops::Range<usize>) {
    let key = pair.connect();
    for number in bodies {
        assert_eq!(pair.ask(key, pub_(topic, &number.to_string())), [ok()]);
    }
}

fn said(client: &mut Client, pair: &mut Pair) -> Vec<String> {
    client.messages(pair).into_iter().map(|(_, payload)| payload).collect()
}

#[test]
fn a_subscriber_by_mqtt_gets_what_its_contract_allows_and_the_rest_waits_whatever_its_qos() {
    for qos in 0..3 {
        let mut pair = paced(0);
        let (mut held, mut other) = (Client::new(&mut pair, "1"), Client::new(&mut pair, "2"));
        held.subscribe(&mut pair, "t", qos);
        say(&mut pair, "t", 0..4);
        other.subscribe(&mut pair, "t", qos);
        say(&mut pair, "t", 4..6);
        assert_eq!(said(&mut held, &mut pair), ["0", "1"]);
        assert_eq!(said(&mut other, &mut pair), ["4", "5"], "each has a contract of its own");
        pair.advance(100 * MS - 1);
        assert_eq!(said(&mut held, &mut pair), [""; 0]);
        pair.advance(1);
        assert_eq!(said(&mut held, &mut pair), ["2"]);
        say(&mut pair, "t", 6..7);
        pair.advance(400 * MS);
        assert_eq!(said(&mut held, &mut pair), ["3", "4", "5", "6"], "QoS {qos}: in order, nothing lost");
    }
}

#[test]
fn a_subscriber_to_a_topic_without_a_contract_is_not_held() {
    let mut pair = paced(0);
    pair.limit("u", Limit { full: true, ..limit(1_000, 100, 1) });
    let mut client = Client::new(&mut pair, "1");
    client.subscribe(&mut pair, "#", 0);
    say(&mut pair, "t", 0..3);
    say(&mut pair, "u", 3..9);
    assert_eq!(said(&mut client, &mut pair), ["0", "1", "3", "4", "5", "6", "7", "8"]);
    pair.advance(100 * MS);
    assert_eq!(said(&mut client, &mut pair), ["2"]);
}

#[test]
fn a_client_is_one_consumer_by_nsq_and_mqtt() {
    let mut pair = paced(1);
    let mut client = Client::new(&mut pair, "1");
    client.subscribe(&mut pair, "t", 1);
    let key = consumer(&mut pair, "1");
    say(&mut pair, "t", 1..2);
    assert_eq!((pair.bodies(key).len(), said(&mut client, &mut pair).len()), (1, 1), "two in all");
    pair.advance(100 * MS);
    assert_eq!(pair.bodies(key).len() + said(&mut client, &mut pair).len(), 1);
}

#[test]
fn what_one_member_of_a_group_may_not_have_goes_to_another() {
    let mut pair = paced(0);
    let (mut one, mut two) = (Client::new(&mut pair, "1"), Client::new(&mut pair, "2"));
    for client in [&mut one, &mut two] {
        client.subscribe(&mut pair, "$share/g/t", 1);
    }
    let now = pair.now;
    let taken = ("readers".into(), "1".into(), 1);
    pair.engine.charge_contracts(&[taken], false, now);
    say(&mut pair, "t", 0..5);
    invariant::check(&pair.engine, pair.now);
    assert_eq!(
        (said(&mut one, &mut pair), said(&mut two, &mut pair)),
        (vec!["0".into()], vec!["1".into(), "2".into()])
    );
    pair.advance(100 * MS);
    let mut rest = [said(&mut one, &mut pair), said(&mut two, &mut pair)].concat();
    rest.sort();
    assert_eq!(rest, ["3", "4"]);
}

#[test]
fn what_is_retained_counts_and_comes_as_the_contract_allows() {
    let mut pair = paced(0);
    assert!(pair.engine.set_mqtt_names("t", vec!["plant/#".into()], crate::mqtt::managed_names::V3Excess::Delay));
    let mut sensor = Client::new(&mut pair, "sensor");
    for number in 0..5 {
        let name = format!("plant/{number}");
        sensor.send(&mut pair, &packet(0x31, &[&text(&name)[..], &[0], number.to_string().as_bytes()].concat()));
    }
    let mut client = Client::new(&mut pair, "1");
    client.subscribe(&mut pair, "plant/#", 1);
    assert_eq!(said(&mut client, &mut pair), ["0", "1"]);
    pair.advance(200 * MS);
    assert_eq!(said(&mut client, &mut pair), ["2", "3"]);
    pair.advance(100 * MS);
    assert_eq!(said(&mut client, &mut pair), ["4"]);
}

#[test]
fn what_waits_for_a_contract_comes_on_the_next_connection_and_no_faster() {
    let mut pair = paced(0);
    let (mut client, _) = Client::with(&mut pair, "1", true, &[0x11, 0, 0, 0, 60]);
    client.subscribe(&mut pair, "t", 1);
    say(&mut pair, "t", 0..4);
    for id in 1..3 {
        client.send(&mut pair, &[0x40, 2, 0, id]);
    }
    assert_eq!(said(&mut client, &mut pair), ["0", "1"]);
    pair.close(client.key);
    let (mut client, _) = Client::with(&mut pair, "1", false, &[]);
    assert_eq!(said(&mut client, &mut pair), [""; 0], "a new connection is the same consumer");
    pair.advance(200 * MS);
    assert_eq!(said(&mut client, &mut pair), ["2", "3"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, rng_seed: RngSeed::Fixed(29), failure_persistence: None, ..ProptestConfig::default() })]

    /// What passes is what one exact bucket lets through, on whatever connection and topic it comes: never more than
    /// burst + rate * t, and never less than all that fits.
    #[test]
    fn what_a_publisher_gets_through_is_its_bucket(
        steps in prop::collection::vec((0..300 * MS, 0..3usize, any::<bool>(), 1..3u64), 1..60),
    ) {
        let mut pair = sensors();
        pair.limit("u", Limit { full: true, ..limit(1_000, 100, 1) });
        pair.engine.set_terms("u", Terms { publishers: "sensors".into(), ..Terms::default() });
        let keys = [pair.connect_as("1"), pair.connect_as("1"), pair.connect_as("1")];
        let (mut used, mut last) = (0, pair.now); // in ns of the rate: 100 ms a message
        for (pause, key, on_u, count) in steps {
            pair.advance(pause);
            used = (used - (pair.now - last)).max(0);
            last = pair.now;
            let cost = count as Nanos * 100 * MS;
            let fits = used + cost <= 200 * MS;
            let bodies = vec!["x"; count as usize];
            let answer = pair.ask(keys[key], mpub(if on_u { "u" } else { "t" }, &bodies));
            prop_assert_eq!(answer == [ok()], fits, "{:?} with {} used", answer, used);
            used += if fits { cost } else { 0 };
        }
    }
}
