//! What is retained, and which new subscription gets it.

use crate::config::Config;
use crate::harness::invariant;
use crate::harness::pair::{MS, Pair, S, limit};
use crate::queueing::topic::Limit;
use crate::tests::mqtt::client::{Client, packet, text};

fn retain(client: &mut Client, pair: &mut Pair, topic: &str, payload: &str) {
    client.send(pair, &packet(0x31, &[&text(topic)[..], &[0], payload.as_bytes()].concat()));
}

#[test]
fn a_new_subscription_gets_the_last_message_of_each_name_marked_as_retained() {
    let mut pair = Pair::new();
    let mut sensor = Client::new(&mut pair, "sensor");
    for (topic, payload) in [("a/1", "old"), ("a/1", "new"), ("a/2", "2"), ("b", "b"), ("a/3", "3"), ("a/3", "")] {
        retain(&mut sensor, &mut pair, topic, payload);
    }
    let mut client = Client::new(&mut pair, "client");
    client.subscribe(&mut pair, "a/+", 1);
    let packets = client.take(&mut pair);
    assert_eq!(packets.iter().map(|packet| packet[0]).collect::<Vec<_>>(), [0x31, 0x31], "they were of QoS 0");
    retain(&mut sensor, &mut pair, "a/1", "live");
    let packets = client.take(&mut pair);
    assert_eq!(packets[0][0], 0x30, "who is subscribed gets it as any other");
    assert_eq!(pair.engine.mqtt.retained.len(), 3);
    invariant::check(&pair.engine, pair.now);
}

#[test]
fn retain_handling_says_which_subscriptions_get_what_is_retained() {
    let mut pair = Pair::new();
    let mut sensor = Client::new(&mut pair, "sensor");
    retain(&mut sensor, &mut pair, "a", "x");
    let mut client = Client::new(&mut pair, "client");
    for (options, count) in [(0x20, 0), (0x10, 0), (0x00, 1), (0x10, 0)] {
        client.subscribe(&mut pair, "a", options);
        assert_eq!(client.messages(&mut pair).len(), count, "{options:02x}");
    }
    let mut other = Client::new(&mut pair, "other");
    other.subscribe(&mut pair, "a", 0x10);
    assert_eq!(other.messages(&mut pair).len(), 1, "if the subscription is new");
    other.subscribe(&mut pair, "$share/g/a", 0);
    assert!(other.messages(&mut pair).is_empty(), "a shared one gets none");
}

#[test]
fn all_that_is_retained_comes_however_much_it_is_and_others_do_not_wait() {
    let mut pair = Pair::new();
    let mut sensor = Client::new(&mut pair, "sensor");
    for number in 0..5_000 {
        retain(&mut sensor, &mut pair, &format!("plant/{number}"), "x");
    }
    let mut client = Client::new(&mut pair, "client");
    let mut other = Client::new(&mut pair, "other");
    pair.send(client.key, super::client::subscribe("#", 0));
    pair.turn();
    client.read(&mut pair);
    let first = client.packets.len();
    assert!(first < 1_000, "{first} in one turn");
    assert_eq!(other.ask(&mut pair, &[0xc0, 0]), [0xd0, 0]);
    pair.advance(MS);
    client.read(&mut pair);
    assert_eq!(client.packets.len(), 1 + 5_000);
}

#[test]
fn retained_messages_of_qos_1_keep_to_the_window() {
    let mut pair = Pair::new();
    let mut sensor = Client::new(&mut pair, "sensor");
    for number in 0..5 {
        let retained = packet(0x33, &[&text(&format!("a/{number}"))[..], &[0, 1, 0], b"x"].concat());
        sensor.ask(&mut pair, &retained);
    }
    let (mut client, _) = Client::with(&mut pair, "client", true, &[0x21, 0, 2]);
    client.subscribe(&mut pair, "#", 1);
    assert_eq!(client.messages(&mut pair).len(), 2);
    client.send(&mut pair, &[0x40, 2, 0, 1, 0x40, 2, 0, 2]);
    assert_eq!(client.messages(&mut pair).len(), 2);
    client.send(&mut pair, &[0x40, 2, 0, 3, 0x40, 2, 0, 4]);
    assert_eq!(client.messages(&mut pair).len(), 1);
}

#[test]
fn what_the_bucket_still_holds_back_is_not_retained_yet_and_what_has_expired_is_not_any_more() {
    let mut pair = Pair::new();
    pair.limit("plant", Limit { full: true, ..limit(1, 1, 1) });
    let mut sensor = Client::new(&mut pair, "sensor");
    retain(&mut sensor, &mut pair, "plant", "first");
    retain(&mut sensor, &mut pair, "plant", "second");
    let mut client = Client::new(&mut pair, "client");
    client.subscribe(&mut pair, "plant", 0);
    assert_eq!(client.messages(&mut pair)[0].1, "first");
    pair.advance(1_001 * MS);
    client.subscribe(&mut pair, "plant", 0);
    assert_eq!(client.messages(&mut pair).last().expect("one").1, "second");

    sensor.send(&mut pair, &packet(0x31, &[&text("a")[..], &[5, 2, 0, 0, 0, 3], b"x"].concat()));
    pair.advance(4 * S);
    client.subscribe(&mut pair, "a", 0);
    assert!(client.messages(&mut pair).is_empty());
    assert_eq!(pair.engine.mqtt.retained.len(), 1);
}

#[test]
fn a_new_name_beyond_the_bound_is_refused_and_a_known_one_is_not() {
    let mut pair = Pair::with(Config { mqtt_max_retained: 1, ..Config::default() });
    let mut sensor = Client::new(&mut pair, "sensor");
    let retained = |topic: &str| packet(0x33, &[&text(topic)[..], &[0, 1, 0], b"x"].concat());
    assert_eq!(sensor.ask(&mut pair, &retained("a"))[0], 0x40);
    assert_eq!(sensor.ask(&mut pair, &retained("b"))[4], 0x97);
    assert_ne!(sensor.ask(&mut pair, &retained("a")).get(4), Some(&0x97));
}

#[test]
fn one_client_cannot_fill_the_memory_of_all_with_what_it_retains() {
    let mut pair = Pair::with(Config { max_memory_bytes: 1 << 20, ..Config::default() });
    let (mut hog, mut other) = (Client::new(&mut pair, "hog"), Client::new(&mut pair, "other"));
    let retained = |name: &str, len: usize| packet(0x33, &[&text(name)[..], &[0, 1, 0], &vec![b'x'; len]].concat());
    let code = |answer: Vec<u8>| answer.get(4).copied().unwrap_or(0);
    let codes: Vec<u8> =
        (0..8).map(|number| code(hog.ask(&mut pair, &retained(&format!("hog/{number}"), 20_000)))).collect();
    assert_eq!(codes, [0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x97, 0x97], "an eighth of the memory");
    let answer = hog.ask(&mut pair, &retained("hog/6", 20_000));
    let told = String::from_utf8_lossy(&answer).into_owned();
    assert!(told.contains("what is retained may take 131072 bytes, an eighth of max_memory_bytes"), "{told}");
    assert_eq!(pair.engine.mqtt.retained.len(), 6);
    assert_eq!(code(hog.ask(&mut pair, &retained("hog/0", 60_000))), 0x97, "what takes its place is larger");
    assert_eq!(code(hog.ask(&mut pair, &retained("hog/0", 19_000))), 0x10);
    other.subscribe(&mut pair, "other/#", 0);
    for _ in 0..50 {
        let publish = packet(0x32, &[&text("other/1")[..], &[0, 1, 0], &[b'y'; 20_000]].concat());
        assert_eq!(code(other.ask(&mut pair, &publish)), 0, "others do as before");
        other.take(&mut pair);
    }
    hog.ask(&mut pair, &retained("hog/1", 0));
    assert_eq!(code(hog.ask(&mut pair, &retained("hog/6", 20_000))), 0x10, "there is room again");
    (0..8).for_each(|number| _ = hog.ask(&mut pair, &retained(&format!("hog/{number}"), 0)));
    assert_eq!((pair.engine.mqtt.retained.len(), pair.engine.mqtt.retained.used()), (0, 0));
    invariant::check(&pair.engine, pair.now);
}
