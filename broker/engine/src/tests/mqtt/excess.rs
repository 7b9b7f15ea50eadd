//! What is said of publishes that are not taken, and of messages for which sessions and groups have no room.

use crate::config::{Config, FullSession};
use crate::event::Event;
use crate::harness::invariant;
use crate::harness::pair::{MS, Pair, S, START, limit};
use crate::mqtt::managed_names::V3Excess;
use crate::protocol::mqtt::version::Version;
use crate::queueing::topic::Limit;
use crate::tests::mqtt::client::{Client, packet, publish_5, text};
use crate::tests::mqtt::durable::{Disk, KEPT};

/// A topic that lets one message go, and refuses the others for long.
fn spent(v3_excess: V3Excess) -> Pair {
    let mut pair = Pair::new();
    pair.limit("heat", Limit { reject: true, full: true, ..limit(1, 1, 1) });
    pair.engine.set_mqtt_names("heat", vec!["plant/#".into()], v3_excess);
    Client::new(&mut pair, "first").publish_5(&mut pair, "plant/1", 0, 0, "x");
    pair
}

fn told(pair: &mut Pair) -> Vec<Event> {
    pair.turn();
    let is_it = |event: &Event| matches!(event, Event::MqttExcess { .. } | Event::MqttUnkept { .. });
    pair.engine.poll_events().into_iter().filter(is_it).collect()
}

fn excess(publisher: &str, [refused, closed, dropped]: [u64; 3]) -> Event {
    let why = "the topic's limit is reached".into();
    Event::MqttExcess { publisher: publisher.into(), topic: "heat".into(), why, refused, closed, dropped }
}

fn full(topic: &str, first: &str, dropped: u64, refused: u64) -> Event {
    Event::MqttUnkept { topic: topic.into(), first: first.into(), dropped, refused, ended: 0 }
}

#[test]
fn a_publisher_above_the_limit_is_told_of_at_once_and_then_once_a_minute() {
    let mut pair = spent(V3Excess::Delay);
    let mut sensor = Client::new(&mut pair, "sensor");
    sensor.publish_5(&mut pair, "plant/1", 1, 1, "x");
    assert_eq!(told(&mut pair), [excess("sensor", [1, 0, 0])]);
    for id in 2..5 {
        sensor.publish_5(&mut pair, "plant/1", 2, id, "x");
    }
    let mut other = Client::new(&mut pair, "other");
    other.publish_5(&mut pair, "plant/1", 0, 0, "x");
    assert_eq!(told(&mut pair), [excess("other", [0, 0, 1])], "a minute is each publisher's own");
    pair.advance(60 * S);
    assert_eq!(told(&mut pair), [excess("sensor", [3, 0, 0])]);
    pair.advance(60 * S);
    assert_eq!(told(&mut pair), [], "there was nothing more");
}

#[test]
fn each_end_of_a_publish_is_counted_by_topic_and_qos() {
    for (v3_excess, fates) in [(V3Excess::Close, [0, 1, 0]), (V3Excess::Drop, [0, 0, 1])] {
        let mut pair = spent(v3_excess);
        let mut sensor = Client::new(&mut pair, "sensor");
        for (qos, times) in [(0, 1), (1, 2), (2, 3)] {
            (1..=times).for_each(|id| sensor.publish_5(&mut pair, "plant/1", qos, id, "x"));
        }
        let mut old = Client::accept(&mut pair);
        old.connect(&mut pair, Version::V3_1_1, "old");
        old.send(&mut pair, &packet(0x32, &[&text("plant/1")[..], &[0, 9], b"x"].concat()));
        let of_old = u64::from(v3_excess == V3Excess::Close);
        let topic = pair.topic();
        assert_eq!(topic["mqtt_refused"], serde_json::json!([0, 2 + of_old, 3]), "{v3_excess:?}");
        assert_eq!(topic["mqtt_dropped"], serde_json::json!([1, 1 - of_old, 0]), "{v3_excess:?}");
        assert_eq!(pair.engine.mqtt.counters.refused, 2 - of_old, "those that nobody was told of");
        let events = told(&mut pair);
        assert!(events.contains(&excess("old", fates)), "{events:?}");
    }
}

#[test]
fn a_session_or_group_that_is_full_counts_for_the_topic_and_is_told_once_a_minute() {
    for (filter, holder) in [("plant/#", "away"), ("$share/g/plant/#", "$share/g/plant/#")] {
        let mut pair = Pair::with(Config { mqtt_max_queued: 2, ..Config::default() });
        pair.engine.create_topic("heat");
        pair.engine.set_mqtt_names("heat", vec!["plant/#".into()], V3Excess::Delay);
        let (mut away, _) = Client::with(&mut pair, "away", true, &[0x11, 0, 0, 1, 0]); // for 256 s
        away.subscribe(&mut pair, filter, 1);
        away.send(&mut pair, &[0xe0, 0]);
        let mut sensor = Client::new(&mut pair, "sensor");
        for id in 1..6 {
            sensor.ask(&mut pair, &publish_5("plant/1", 1, id, "x"));
        }
        let held = pair.snapshot()["mqtt_topics"][0].clone();
        assert_eq!(["dropped", "full"].map(|what| held[what].as_u64()), [Some(3), Some(3)], "{held}");
        let first = told(&mut pair);
        assert_eq!(first, [full("heat", holder, 1, 0)], "the third");
        pair.advance(60 * S);
        assert_eq!(told(&mut pair), [full("heat", holder, 2, 0)]);
    }
}

#[test]
fn publishes_that_a_full_session_refuses_are_told_with_publisher_and_topic() {
    let mut pair =
        Pair::with(Config { mqtt_max_queued: 1, mqtt_full_session: FullSession::Refuse, ..Config::default() });
    let (mut away, _) = Client::with(&mut pair, "away", true, KEPT);
    away.subscribe(&mut pair, "#", 1);
    away.send(&mut pair, &[0xe0, 0]);
    let mut sensor = Client::new(&mut pair, "sensor");
    let codes = [1, 2].map(|id| sensor.ask(&mut pair, &publish_5("a", 1, id, "x")).get(4).copied());
    assert_eq!(codes, [None, Some(0x97)]);
    let events = told(&mut pair);
    let (publisher, topic) = ("sensor".into(), "default".into());
    let why = "a session or a shared group has no room for it".into();
    let untaken = Event::MqttExcess { publisher, topic, why, refused: 1, closed: 0, dropped: 0 };
    assert_eq!(events, [untaken, full("default", "away", 0, 1)]);
}

#[test]
fn a_flood_of_client_ids_makes_a_bounded_number_of_events() {
    let mut pair = spent(V3Excess::Delay);
    for number in 0..300 {
        let mut sensor = Client::new(&mut pair, &format!("sensor-{number}"));
        sensor.publish_5(&mut pair, "plant/1", 0, 0, "x");
        sensor.send(&mut pair, &[0xe0, 0]);
    }
    let events = told(&mut pair);
    let total: u64 =
        events.iter().map(|event| if let Event::MqttExcess { dropped, .. } = event { *dropped } else { 0 }).sum();
    assert_eq!(events.len(), 65, "64 by name, and the first of the others");
    assert_eq!(total, 65);
    pair.advance(60 * S + MS);
    let Some(Event::MqttExcess { publisher, dropped, .. }) = told(&mut pair).pop() else { panic!("the others") };
    assert_eq!((publisher, dropped), (String::new(), 300 - 65));
}

/// A group whose only member has one message in flight, while three wait.
fn group_of_one(pair: &mut Pair) -> Client {
    pair.engine.create_topic("heat");
    pair.engine.set_mqtt_names("heat", vec!["plant/#".into()], V3Excess::Delay);
    let (mut member, _) = Client::with(pair, "member", true, &[0x21, 0, 1]);
    member.subscribe(pair, "$share/g/plant/1", 1);
    let mut sensor = Client::new(pair, "sensor");
    (1..=4).for_each(|id| sensor.publish_5(pair, "plant/1", 1, id, "x"));
    member
}

fn ended(first: &str, ended: u64) -> Event {
    Event::MqttUnkept { topic: "heat".into(), first: first.into(), dropped: 0, refused: 0, ended }
}

fn dropped(pair: &Pair) -> (u64, Vec<(&str, u64)>) {
    let mqtt = &pair.engine.mqtt;
    let by_topic = mqtt.tally.all().filter(|held| held.dropped > 0);
    (mqtt.counters.dropped, by_topic.map(|held| (&*held.topic, held.dropped)).collect())
}

#[test]
fn what_waits_for_a_group_that_ends_with_its_last_members_session_is_counted_and_told() {
    let mut pair = Pair::new();
    let member = group_of_one(&mut pair);
    pair.close(member.key);
    pair.turn();
    assert_eq!(dropped(&pair), (4, vec![("heat", 4)]));
    assert_eq!(told(&mut pair), [ended("$share/g/plant/1", 4)]);
    invariant::check(&pair.engine, pair.now);
}

#[test]
fn of_a_group_whose_last_member_unsubscribes_what_is_in_flight_to_it_is_lost_only_if_it_leaves() {
    for acknowledges in [true, false] {
        let mut pair = Pair::new();
        let mut member = group_of_one(&mut pair);
        member.ask(&mut pair, &packet(0xa2, &[&[0, 7, 0][..], &text("$share/g/plant/1")].concat()));
        assert_eq!(told(&mut pair), [ended("$share/g/plant/1", 3)]);
        if acknowledges {
            member.send(&mut pair, &[0x40, 2, 0, 1]);
        }
        pair.close(member.key);
        pair.turn();
        let count = 4 - u64::from(acknowledges);
        assert_eq!(dropped(&pair), (count, vec![("heat", count)]));
        pair.advance(60 * S);
        assert_eq!(told(&mut pair), if acknowledges { vec![] } else { vec![ended("member", 1)] });
        invariant::check(&pair.engine, pair.now);
    }
}

#[test]
fn what_a_group_no_longer_declared_leaves_is_counted_also_after_a_start() {
    let mut disk = Disk::new();
    let mut pair = disk.start(START);
    assert!(pair.engine.set_mqtt_groups("heat", &["$share/g/heat".into()], pair.now));
    Client::new(&mut pair, "sensor").ask(&mut pair, &publish_5("heat", 1, 1, "x"));
    let mut pair = disk.kill(pair);
    assert!(pair.engine.set_mqtt_groups("heat", &["$share/g/heat".into()], pair.now));
    assert!(pair.engine.set_mqtt_groups("heat", &[], pair.now));
    assert_eq!(pair.engine.mqtt.counters.dropped, 1);
    invariant::check(&pair.engine, pair.now);
}
