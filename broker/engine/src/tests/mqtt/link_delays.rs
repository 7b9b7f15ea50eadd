//! How long a message took from its own broker to a subscriber at the other.

use crate::harness::pair::{S, limit, pub_};
use crate::protocol::link_frames;
use crate::protocol::link_frames::Frame;
use crate::tests::mqtt::client::Client;
use crate::tests::mqtt::two_brokers::{Brokers, CHANNEL, KEY, say, say_once};

const KEPT: &[u8] = &[0x11, 0, 0, 0, 60];

/// {origin, topic: [messages, median of access, processing, consumer wait, total, in ms]} at `b`.
fn ways(brokers: &mut Brokers) -> Vec<(String, String, [u64; 5])> {
    let views = brokers.b.engine.link_way_views(0, 10, brokers.b.now);
    let shown = serde_json::to_value(views).expect("JSON");
    let median = |kinds: &serde_json::Value, kind: &str| kinds[kind]["p50_ns"].as_u64().expect("ns") / 1_000_000;
    let figures = |way: &serde_json::Value| {
        let all = &way["latency"]["since_start"];
        let [access, processing, wait, total] =
            ["access", "processing", "consumer_wait", "total"].map(|kind| median(all, kind));
        [all["total"]["count"].as_u64().expect("a number"), access, processing, wait, total]
    };
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    let all = shown.as_array().expect("a list").iter();
    all.map(|way| (text(&way["origin"]), text(&way["topic"]), figures(way))).collect()
}

#[test]
fn the_delay_of_a_message_is_that_at_both_brokers_whose_clocks_have_nothing_in_common() {
    let mut brokers = Brokers::new();
    brokers.b.advance(1_000 * S);
    let mut heard = Client::new(&mut brokers.b, "subscriber");
    heard.subscribe(&mut brokers.b, "#", 1);
    brokers.a.engine.create_topic("default");
    brokers.a.limit("default", limit(1, 1, 1));
    brokers.open("default");
    let mut sensor = Client::new(&mut brokers.a, "sensor");
    for number in ["1", "2"] {
        say(&mut brokers.a, &mut sensor, "n", number.as_bytes());
    }
    brokers.break_off();
    brokers.a.advance(3 * S); // they are due after 1 s and 2 s, and the link is away
    brokers.open("default");
    assert_eq!(brokers.said(&mut heard), ["1", "2"]);
    let [(origin, topic, [count, _, _, wait, total])] = &ways(&mut brokers)[..] else { panic!("one way") };
    assert_eq!((origin.as_str(), topic.as_str()), ("a", "default"));
    assert_eq!((*count, *wait, *total / 10), (2, 0, 300));
    let shown = serde_json::to_value(brokers.b.engine.link_way_views(0, 10, brokers.b.now)).expect("JSON");
    let longest = |kind: &str| shown[0]["latency"]["since_start"][kind]["max_ns"].as_u64().expect("ns") / 10_000_000;
    assert_eq!(["access", "processing", "total"].map(longest), [200, 200, 300], "in units of 10 ms");
}

#[test]
fn one_delivery_of_each_class_stands_for_a_message_however_many_subscribers_it_has() {
    let mut brokers = Brokers::new();
    let mut all = Vec::new();
    for (number, (qos, kept)) in [(0, false), (1, false), (1, true)].into_iter().cycle().take(9).enumerate() {
        let properties = if kept { KEPT } else { &[] };
        let (mut client, _) = Client::with(&mut brokers.b, &format!("client {number}"), true, properties);
        client.subscribe(&mut brokers.b, "#", qos);
        all.push(client);
    }
    brokers.open("default");
    say_once(&mut brokers.a, "n", b"x");
    let heard: Vec<usize> = all.iter_mut().map(|client| brokers.said(client).len()).collect();
    assert_eq!(heard, [1; 9]);
    assert_eq!(ways(&mut brokers)[0].2[0], 3);
}

#[test]
fn a_broker_of_an_earlier_version_is_told_no_delays() {
    let mut brokers = Brokers::new();
    for topic in ["asks", "does not"] {
        brokers.a.engine.create_topic(&topic.replace(' ', "_"));
    }
    for (topic, timed, expected) in [("asks", r#","timed":true"#, true), ("does_not", "", false)] {
        brokers.a.engine.create_channel(topic, CHANNEL, brokers.a.now);
        let key = brokers.a.accept();
        let body = format!(r#"{{"srtm":{{"link":{{"broker":"b","key":"{KEY}"{timed}}}}}}}"#);
        let mut bytes = b"  V2IDENTIFY\n".to_vec();
        bytes.extend((body.len() as u32).to_be_bytes());
        bytes.extend(format!("{body}SUB {topic} {CHANNEL}\nRDY 1\n").into_bytes());
        brokers.a.send(key, bytes);
        let nsq = brokers.a.connect();
        brokers.a.send(nsq, pub_(topic, "x"));
        brokers.a.turn();
        let (got, mut at, mut told) = (brokers.a.take_bytes(key), 0, Vec::new());
        while let Some((frame, len)) = link_frames::frame(&got[at..], 1 << 20).expect("frames") {
            at += len;
            if let Frame::Message(linked) = frame {
                told.push((linked.so_far.is_some(), linked.payload.to_vec()));
            }
        }
        assert_eq!(told, [(expected, b"x".to_vec())]);
    }
}
