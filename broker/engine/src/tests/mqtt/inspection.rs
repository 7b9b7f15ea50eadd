//! What operators see of sessions and retained messages, and end.

use serde_json::{Value, json};

use crate::config::{Config, Unmanaged};
use crate::engine::Engine;
use crate::event::Event;
use crate::harness::invariant;
use crate::harness::memory_store::MemoryStore;
use crate::harness::pair::{Pair, S, START};
use crate::mqtt::managed_names::V3Excess;
use crate::protocol::mqtt::version::Version;
use crate::tests::mqtt::client::{Client, packet, publish_5, text};

const ONE_MINUTE: [u8; 5] = [0x11, 0, 0, 0, 60]; // Session Expiry Interval

pub fn view(pair: &Pair, client_id: &str) -> Value {
    let key = pair.engine.mqtt_session_key(client_id).expect("a session");
    let views = pair.engine.mqtt_session_views(&[key], true, pair.now);
    serde_json::to_value(&views[0]).expect("JSON")
}

fn retained(pair: &mut Pair, filter: &str, clear: bool) -> Vec<String> {
    let (mut replay, mut names) = (Engine::retained_under(filter), Vec::new());
    loop {
        let (views, is_over) = pair.engine.mqtt_retained(&mut replay, 2, clear, pair.now);
        names.extend(
            views
                .iter()
                .map(|view| serde_json::to_value(view).expect("JSON")["name"].as_str().expect("a name").to_owned()),
        );
        if is_over {
            return names;
        }
    }
}

#[test]
fn a_session_is_shown_with_what_it_is_owed_while_its_client_is_away() {
    let mut pair = Pair::new();
    let (mut client, _) = Client::with(&mut pair, "away", true, &ONE_MINUTE);
    client.subscribe(&mut pair, "a/+", 1);
    client.subscribe(&mut pair, "$share/g/b", 1);
    let shown = view(&pair, "away");
    assert_eq!(shown["filters"], json!(["a/+", "$share/g/b"]));
    assert_eq!((&shown["connected"], &shown["version"], &shown["expiry_s"]), (&json!(true), &json!("5.0"), &json!(60)));
    client.send(&mut pair, &[0xe0, 0]);
    let mut publisher = Client::new(&mut pair, "publisher");
    publisher.publish_5(&mut pair, "a/b", 1, 1, "x");
    pair.advance(10 * S);
    let shown = view(&pair, "away");
    assert_eq!((&shown["connected"], &shown["queued"], &shown["ends_in_s"]), (&json!(false), &json!(1), &json!(50)));
}

#[test]
fn who_is_kicked_is_told_why_and_leaves_nothing_behind() {
    let mut pair = Pair::new();
    let (mut client, _) = Client::with(&mut pair, "client", true, &ONE_MINUTE);
    client.subscribe(&mut pair, "a/+", 1);
    assert!(pair.engine.kick_mqtt("client", pair.now));
    pair.turn();
    assert_eq!(client.take(&mut pair)[0][2], 0x98);
    assert!(client.has_ended(&pair));
    assert!(pair.engine.mqtt_session_key("client").is_none());
    assert!(!pair.engine.kick_mqtt("client", pair.now));
    let (_, answer) = Client::with(&mut pair, "client", false, &ONE_MINUTE);
    assert_eq!(answer[2], 0, "no session is present");
}

#[test]
fn retained_messages_are_listed_by_filter_and_cleared() {
    let mut pair = Pair::new();
    let mut client = Client::new(&mut pair, "client");
    for name in ["a/1", "a/2", "a/3", "b/1"] {
        client.send(&mut pair, &packet(0x31, &[&text(name)[..], &[0], b"kept"].concat()));
    }
    assert_eq!(retained(&mut pair, "a/+", false), ["a/1", "a/2", "a/3"]);
    assert_eq!(retained(&mut pair, "a/+", true), ["a/1", "a/2", "a/3"]);
    assert_eq!(retained(&mut pair, "#", false), ["b/1"]);
    client.subscribe(&mut pair, "#", 0);
    assert_eq!(client.messages(&mut pair), [("b/1".to_owned(), "kept".to_owned())]);
}

#[test]
fn what_a_client_is_denied_is_told() {
    let mut pair = Pair::new();
    let mut client = Client::accept(&mut pair);
    client.connect(&mut pair, Version::V5, "client");
    client.send(&mut pair, &publish_5("$SYS/x", 1, 1, "x"));
    let denied = |event: &Event| match event {
        Event::Denied { action, client, name, times } => Some((*action, client.clone(), name.clone(), *times)),
        _ => None,
    };
    let told: Vec<_> = pair.engine.poll_events().iter().filter_map(denied).collect();
    assert_eq!(told, [("publish", "client".to_owned(), "$SYS/x".to_owned(), 1)]);
    pair.engine.config.mqtt_unmanaged = Unmanaged::Refuse;
    client.send(&mut pair, &publish_5("cold", 1, 2, "x"));
    client.subscribe(&mut pair, "cold", 1);
    let told: Vec<_> = pair.engine.poll_events().iter().filter_map(denied).map(|(action, ..)| action).collect();
    assert_eq!(told, ["publish to no topic", "subscribe to no topic"]);
}

/// Depth, in flight, messages and holders of a topic, of sessions or of a group.
fn held_by(pair: &mut Pair, topic: &str, group: &str) -> Option<[u64; 4]> {
    let (overview, _) = pair.engine.overview("", false, pair.now);
    let shown = serde_json::to_value(overview).expect("JSON");
    let is_it = |held: &&Value| held["topic"] == *topic && held["group"] == *group;
    let of_topic = shown["mqtt_topics"].as_array()?.iter().find(is_it)?.clone();
    Some(["depth", "in_flight", "messages", "holders"].map(|name| of_topic[name].as_u64().expect("a number")))
}

fn held(pair: &mut Pair, topic: &str) -> Option<[u64; 4]> {
    held_by(pair, topic, "")
}

#[test]
fn each_topic_tells_what_sessions_and_groups_hold_of_it_whatever_their_queues_mix() {
    let mut pair = Pair::new();
    pair.engine.create_topic("heat");
    pair.engine.set_mqtt_names("heat", vec!["plant/+/heat".into()], V3Excess::Delay);
    let (mut client, _) = Client::with(&mut pair, "client", true, &[0x11, 0, 0, 0, 60, 0x21, 0, 1]); // one in flight
    client.subscribe(&mut pair, "#", 1);
    let (mut member, _) = Client::with(&mut pair, "member", true, &ONE_MINUTE);
    member.subscribe(&mut pair, "$share/g/plant/+/heat", 1);
    member.send(&mut pair, &[0xe0, 0]);
    let mut deaf = Client::new(&mut pair, "deaf");
    deaf.subscribe(&mut pair, "#", 0);
    let mut publisher = Client::new(&mut pair, "publisher");
    for name in ["plant/1/heat", "other", "plant/2/heat"] {
        publisher.publish_5(&mut pair, name, 1, 1, "x");
    }
    let group = "$share/g/plant/+/heat";
    assert_eq!(held(&mut pair, "heat"), Some([1, 1, 2, 1]));
    assert_eq!(held_by(&mut pair, "heat", group), Some([2, 0, 2, 1]));
    assert_eq!(held(&mut pair, "default"), Some([1, 0, 1, 1]));
    client.send(&mut pair, &[0x40, 2, 0, 1]); // PUBACK of the first
    assert_eq!(held(&mut pair, "heat"), Some([1, 0, 2, 1]));
    assert_eq!(held(&mut pair, "default"), Some([0, 1, 1, 1]));
    pair.engine.kick_mqtt("client", pair.now);
    assert_eq!((held(&mut pair, "heat"), held(&mut pair, "default")), (None, None));
    let (mut member, _) = Client::with(&mut pair, "member", false, &ONE_MINUTE);
    assert_eq!(member.messages(&mut pair).len(), 2);
    assert_eq!(held_by(&mut pair, "heat", group), Some([0, 2, 2, 1]));
    member.send(&mut pair, &[0xe0, 0]);
    assert_eq!(held_by(&mut pair, "heat", group), Some([2, 0, 2, 1]), "they wait again");
    assert!(!pair.engine.delete_unused_topic("heat"), "a member is owed some");
    pair.engine.delete_topic("heat");
    assert_eq!(held_by(&mut pair, "heat", group), None);
    invariant::check(&pair.engine, pair.now);
    pair.engine.kick_mqtt("member", pair.now);
    assert_eq!(pair.engine.mqtt.tally.all().count(), 0);
}

#[test]
fn what_sessions_and_groups_have_no_room_for_is_told_by_topic() {
    let mut pair = Pair::with(Config { mqtt_max_queued: 2, ..Config::default() });
    pair.engine.create_topic("heat");
    let (mut client, _) = Client::with(&mut pair, "client", true, &ONE_MINUTE);
    client.subscribe(&mut pair, "heat", 1);
    client.subscribe(&mut pair, "$share/g/#", 1);
    client.send(&mut pair, &[0xe0, 0]);
    let mut publisher = Client::new(&mut pair, "publisher");
    for name in ["heat", "other", "heat", "heat", "heat", "other"] {
        publisher.publish_5(&mut pair, name, 1, 1, "x");
    }
    let (overview, _) = pair.engine.overview("", false, pair.now);
    let shown = serde_json::to_value(overview).expect("JSON");
    let word = |held: &Value, name: &str| held[name].as_str().expect("a name").to_owned();
    let dropped: Vec<(String, String, u64)> = shown["mqtt_topics"]
        .as_array()
        .expect("topics")
        .iter()
        .map(|held| (word(held, "topic"), word(held, "group"), held["dropped"].as_u64().expect("a number")))
        .collect();
    let expected = [("default", "$share/g/#", 1), ("heat", "", 2), ("heat", "$share/g/#", 3)];
    let expected = expected.map(|(topic, group, count)| (topic.to_owned(), group.to_owned(), count));
    assert_eq!(dropped, expected, "the session keeps two of heat, the group one of each");
    invariant::check(&pair.engine, pair.now);
}

#[test]
fn what_waits_since_before_a_start_is_told_too() {
    let disk = MemoryStore::default();
    let mut pair = Pair::on_disk(Config::default(), &disk, 1, START);
    let (mut client, _) = Client::with(&mut pair, "away", true, &ONE_MINUTE);
    client.subscribe(&mut pair, "plant/+/heat", 1);
    client.subscribe(&mut pair, "$share/g/plant/+/heat", 1);
    client.send(&mut pair, &[0xe0, 0]);
    let mut publisher = Client::new(&mut pair, "publisher");
    publisher.ask(&mut pair, &publish_5("plant/1/heat", 1, 1, "x"));
    let mut pair = Pair::on_disk(Config::default(), &disk, 2, START + S); // killed
    pair.engine.set_mqtt_names("heat", vec!["plant/+/heat".into()], V3Excess::Delay);
    for group in ["", "$share/g/plant/+/heat"] {
        assert_eq!(held_by(&mut pair, "heat", group), Some([1, 0, 0, 1]), "{group}");
    }
    let (mut client, _) = Client::with(&mut pair, "away", false, &ONE_MINUTE);
    assert_eq!(client.messages(&mut pair).len(), 2);
    for group in ["", "$share/g/plant/+/heat"] {
        assert_eq!(held_by(&mut pair, "heat", group).map(|held| held[..2].to_vec()), Some(vec![0, 1]), "{group}");
    }
}
