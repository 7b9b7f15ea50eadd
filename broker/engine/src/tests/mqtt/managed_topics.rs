//! Names that a topic's file gives to the topic, and what its limit is to their publishers.

use crate::clients::mqtt_client::MqttAddresses;
use crate::config::{Config, Unmanaged};
use crate::harness::pair::{MS, Pair, S, limit};
use crate::mqtt::managed_names::V3Excess;
use crate::protocol::mqtt::version::Version;
use crate::queueing::topic::Limit;
use crate::tests::mqtt::client::{Client, connect, packet, publish_5, text};

/// One message a second, and one at once.
fn slow(reject: bool, max_backlog: u64) -> Limit {
    Limit { reject, full: true, max_backlog, ..limit(1, 1, 1) }
}

fn managed(limit: Limit, v3_excess: V3Excess) -> Pair {
    let mut pair = Pair::new();
    pair.limit("heat", limit);
    assert!(pair.engine.set_mqtt_names("heat", vec!["plant/+/heat".into()], v3_excess));
    pair
}

fn publish_3(qos: u8, id: u8) -> Vec<u8> {
    packet(0x30 | qos << 1, &[&text("plant/7/heat")[..], &[0, id], b"x"].concat())
}

/// A client of 3.1.1 whose session outlives its connection.
fn old_client(pair: &mut Pair) -> Client {
    let mut client = Client::accept(pair);
    client.ask(pair, &connect(Version::V3_1_1, "old", false, &[]));
    client
}

fn count(pair: &mut Pair, what: &str) -> u64 {
    pair.topic()["bucket"][what].as_u64().expect("a number")
}

#[test]
fn names_that_a_filter_matches_share_one_bucket_and_keep_their_names() {
    let mut pair = managed(Limit { full: true, ..limit(10, 1, 1) }, V3Excess::Delay);
    let mut client = Client::new(&mut pair, "client");
    client.subscribe(&mut pair, "plant/#", 0);
    for (id, name) in [(1, "plant/1/heat"), (2, "plant/2/heat")] {
        let answer = client.ask(&mut pair, &publish_5(name, 1, id, "x"));
        assert_eq!(answer[0], 0x40, "it is acknowledged when it is accepted");
    }
    assert_eq!(client.messages(&mut pair), [("plant/1/heat".to_owned(), "x".to_owned())]);
    pair.advance(101 * MS);
    assert_eq!(client.messages(&mut pair), [("plant/2/heat".to_owned(), "x".to_owned())]);
    assert_eq!((count(&mut pair, "received"), count(&mut pair, "delayed")), (2, 1));
}

#[test]
fn a_filter_is_taken_back_with_the_next_list() {
    let mut pair = managed(slow(true, 10), V3Excess::Delay);
    assert!(!pair.engine.set_mqtt_names("heat", vec!["a/#/b".into()], V3Excess::Delay), "no filter");
    assert!(!pair.engine.set_mqtt_names("heat", vec!["$share/g/a".into()], V3Excess::Delay), "nobody's name");
    assert!(pair.engine.set_mqtt_names("heat", Vec::new(), V3Excess::Delay));
    let mut client = Client::new(&mut pair, "client");
    for id in 1..4 {
        assert_ne!(client.ask(&mut pair, &publish_5("plant/7/heat", 1, id, "x"))[4..5], [0x97]);
    }
    assert_eq!(pair.engine.topic_of_name("plant/7/heat"), "default");
    assert_eq!(pair.engine.topic_of_name("heat"), "heat");
}

#[test]
fn qos_2_takes_one_token_also_if_it_comes_again() {
    let mut pair = managed(Limit { reject: true, full: true, ..limit(1, 2, 1) }, V3Excess::Delay);
    let mut client = Client::new(&mut pair, "client");
    let publish = publish_5("plant/7/heat", 2, 1, "x");
    for _ in 0..2 {
        assert_eq!(client.ask(&mut pair, &publish), [0x50, 2, 0, 1]);
    }
    assert_eq!(count(&mut pair, "received"), 1);
    assert_eq!(client.ask(&mut pair, &publish_5("plant/7/heat", 2, 2, "x")), [0x50, 2, 0, 2], "the second token");
    assert_eq!(client.ask(&mut pair, &publish_5("plant/7/heat", 2, 3, "x"))[4], 0x97);
}

#[test]
fn where_others_are_refused_3_1_1_waits_up_to_the_bound_and_is_then_closed() {
    let mut pair = managed(slow(true, 1), V3Excess::Delay);
    let mut old = old_client(&mut pair);
    assert_eq!(old.ask(&mut pair, &publish_3(1, 1)), [0x40, 2, 0, 1]);
    assert_eq!(old.ask(&mut pair, &publish_3(1, 2)), [0x40, 2, 0, 2], "it waits");
    let mut new = Client::new(&mut pair, "new");
    assert_eq!(new.ask(&mut pair, &publish_5("plant/7/heat", 1, 3, "x"))[4], 0x97, "the others are refused");
    old.send(&mut pair, &publish_3(1, 3));
    assert!(old.take(&mut pair).is_empty() && old.has_ended(&pair), "it is never acknowledged and dropped");
    assert_eq!((count(&mut pair, "delayed"), count(&mut pair, "rejected")), (1, 2));
}

#[test]
fn what_3_1_1_gets_above_the_limit_is_the_topics_choice() {
    for (v3_excess, ends) in [(V3Excess::Close, true), (V3Excess::Drop, false)] {
        let mut pair = managed(slow(true, 10), v3_excess);
        let mut old = old_client(&mut pair);
        old.ask(&mut pair, &publish_3(1, 1));
        old.send(&mut pair, &publish_3(1, 2));
        assert!(old.take(&mut pair).is_empty(), "{v3_excess:?}");
        assert_eq!(old.has_ended(&pair), ends, "{v3_excess:?}");
        assert_eq!(count(&mut pair, "rejected"), 1);
    }
}

#[test]
fn a_publish_of_qos_2_that_was_not_taken_is_a_new_one_when_it_comes_again() {
    for v3_excess in [V3Excess::Close, V3Excess::Drop] {
        let mut pair = managed(slow(true, 10), v3_excess);
        let mut old = old_client(&mut pair);
        old.ask(&mut pair, &publish_3(1, 1));
        old.send(&mut pair, &publish_3(2, 2));
        assert!(old.take(&mut pair).is_empty());
        pair.advance(1_001 * MS);
        let mut again = old_client(&mut pair);
        assert_eq!(again.ask(&mut pair, &publish_3(2, 2)), [0x50, 2, 0, 2]);
        let taken = count(&mut pair, "received") - count(&mut pair, "rejected");
        assert_eq!(taken, 2, "what is acknowledged is there: {v3_excess:?}");
    }
}

/// One that goes where a Server Reference says.
fn follower(pair: &mut Pair, id: &str) -> Client {
    let follow = [&[0x26][..], &text("srtm-follow"), &text("1")].concat();
    Client::with(pair, id, true, &follow).0
}

fn moved(pair: &mut Pair, id: &str, mqtt_address: &str) -> usize {
    let now = pair.now;
    let mqtt = MqttAddresses { clear: mqtt_address.into(), ..MqttAddresses::default() };
    pair.engine.move_publisher("heat", id, "127.0.0.1:4250", &mqtt, 9, now)
}

fn reference() -> Vec<u8> {
    [&[0xe0, 0x13, 0x9c, 0x11, 0x1c][..], &text("127.0.0.1:1884")].concat()
}

#[test]
fn only_a_client_that_follows_is_told_where_its_topic_is() {
    let mut pair = managed(Limit { full: true, ..limit(10, 10, 1) }, V3Excess::Delay);
    let mut clients = [follower(&mut pair, "p"), follower(&mut pair, "q"), Client::new(&mut pair, "r")];
    for client in &mut clients {
        client.publish_5(&mut pair, "plant/7/heat", 1, 1, "x");
        client.take(&mut pair);
    }
    assert_eq!([moved(&mut pair, "p", ""), moved(&mut pair, "r", "")], [0, 0], "no MQTT there");
    assert_eq!([moved(&mut pair, "p", "127.0.0.1:1884"), moved(&mut pair, "r", "127.0.0.1:1884")], [1, 0]);
    pair.advance(10 * MS);
    assert_eq!(clients.each_mut().map(|client| client.take(&mut pair).len()), [1, 0, 0]);
    assert_eq!(clients.each_ref().map(|client| client.has_ended(&pair)), [true, false, false]);
    assert_eq!(moved(&mut pair, "p", "127.0.0.1:1884"), 0);
}

#[test]
fn a_client_is_sent_elsewhere_once_what_it_had_acknowledged_has_left_and_nothing_more_is_taken() {
    let mut pair = managed(slow(false, 10), V3Excess::Delay);
    let (nsq, mut client) = (pair.subscribe("heat", "c", 100), follower(&mut pair, "p"));
    for id in 1..4 {
        client.publish_5(&mut pair, "plant/7/heat", 1, id, "x");
    }
    assert_eq!(client.take(&mut pair).len(), 3);
    assert_eq!(moved(&mut pair, "p", "127.0.0.1:1884"), 1);
    pair.advance(MS);
    client.publish_5(&mut pair, "plant/7/heat", 1, 4, "sent again elsewhere");
    client.publish_5(&mut pair, "plant/7/heat", 0, 0, "nobody would send it again");
    pair.advance(1_800 * MS);
    assert!(client.take(&mut pair).is_empty(), "the third message waits for its token until 2 s");
    pair.advance(200 * MS);
    assert_eq!(pair.take(nsq).len(), 3);
    assert!(client.take(&mut pair).is_empty(), "until now the consumer had not read it");
    pair.advance(10 * MS);
    assert_eq!(client.take(&mut pair), [reference()]);
    pair.advance(S);
    assert_eq!(pair.take(nsq).len(), 1, "that of QoS 0");
}

#[test]
fn a_client_is_sent_elsewhere_after_5_s_whatever_waits() {
    let mut pair = managed(slow(false, 100), V3Excess::Delay);
    let mut client = follower(&mut pair, "p");
    pair.subscribe("heat", "c", 100);
    for id in 1..20 {
        client.publish_5(&mut pair, "plant/7/heat", 1, id, "x");
    }
    client.take(&mut pair);
    moved(&mut pair, "p", "127.0.0.1:1884");
    pair.advance(4_900 * MS);
    moved(&mut pair, "p", "127.0.0.1:1884");
    assert!(client.take(&mut pair).is_empty());
    pair.advance(200 * MS);
    assert_eq!(client.take(&mut pair), [reference()]);
}

#[test]
fn an_alias_that_a_client_sets_while_it_is_sent_elsewhere_is_known_as_long_as_it_is_there() {
    let mut pair = managed(slow(false, 10), V3Excess::Delay);
    let (nsq, mut client) = (pair.subscribe("heat", "c", 100), follower(&mut pair, "p"));
    for id in 1..3 {
        client.publish_5(&mut pair, "plant/7/heat", 1, id, "the second waits for its token until 1 s");
    }
    client.take(&mut pair);
    assert_eq!(moved(&mut pair, "p", "127.0.0.1:1884"), 1);
    pair.advance(MS);
    let alias = [3, 0x23, 0, 1];
    client.send(&mut pair, &packet(0x32, &[&text("plant/7/heat")[..], &[0, 3], &alias, b"x"].concat()));
    client.send(&mut pair, &packet(0x30, &[&text("")[..], &alias, b"x"].concat()));
    assert!(client.take(&mut pair).is_empty() && !client.has_ended(&pair));
    pair.advance(S);
    assert_eq!(pair.take(nsq).len(), 2);
    pair.advance(10 * MS);
    assert_eq!(client.take(&mut pair), [reference()]);
    pair.advance(S);
    assert_eq!(pair.take(nsq).len(), 1, "that of QoS 0");
}

#[test]
fn names_that_are_no_topics_are_refused_where_that_is_asked_for() {
    let mut pair = Pair::with(Config { mqtt_unmanaged: Unmanaged::Refuse, ..Config::default() });
    pair.engine.create_topic("heat");
    pair.engine.set_mqtt_names("heat", vec!["plant/+/heat".into()], V3Excess::Delay);
    let mut client = Client::new(&mut pair, "client");
    let codes = ["heat", "plant/1/heat", "plant/1/cold", "cold", "$share/g/cold", "#", "$SYS/broker/uptime"]
        .map(|filter| client.subscribe(&mut pair, filter, 1));
    assert_eq!(codes, [1, 1, 0x87, 0x87, 0x87, 1, 1]);
    let mut sensor = Client::new(&mut pair, "sensor");
    for (name, code) in [("plant/1/heat", None), ("heat", None), ("plant/1/cold", Some(0x87)), ("cold", Some(0x87))] {
        assert_eq!(sensor.ask(&mut pair, &publish_5(name, 1, 1, "x")).get(4).copied(), code, "{name}");
    }
    assert_eq!(client.messages(&mut pair).len(), 2);
    let mut old = Client::accept(&mut pair);
    old.connect(&mut pair, Version::V3_1_1, "old");
    let answer = old.ask(&mut pair, &packet(0x32, &[&text("cold")[..], &[0, 1], b"x"].concat()));
    assert_eq!(answer, [0x40, 2, 0, 1], "it would send it again for ever");
    assert!(!pair.engine.topic_names.contains_key("default"));
    let mut dying = Client::accept(&mut pair);
    let mut with_will = connect(Version::V5, "dying", true, &[]);
    with_will[9] |= 4;
    with_will.extend([&[0][..], &text("cold"), &text("gone")].concat());
    with_will[1] = (with_will.len() - 2) as u8;
    assert_eq!(dying.ask(&mut pair, &with_will)[3], 0x87);
}

#[test]
fn what_nsq_clients_publish_has_the_name_that_the_topic_file_says_while_it_says_so() {
    let mut pair = Pair::new();
    pair.engine.create_topic("heat");
    pair.engine.set_mqtt_names("heat", vec!["plant/+/heat".into()], V3Excess::Delay);
    assert!(!pair.engine.set_mqtt_name("heat", "plant/heat"), "no filter matches it");
    assert!(pair.engine.set_mqtt_name("heat", "plant/nsq/heat"));
    let mut client = Client::new(&mut pair, "client");
    client.subscribe(&mut pair, "#", 1);
    pair.publish("heat", "1");
    pair.engine.set_mqtt_names("heat", vec!["plant/+/heat".into()], V3Excess::Delay);
    pair.publish("heat", "2");
    let came = [("plant/nsq/heat", "1"), ("heat", "2")].map(|(name, body)| (name.to_owned(), body.to_owned()));
    assert_eq!(client.messages(&mut pair), came);
}
