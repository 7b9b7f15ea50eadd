//! What is retained at one of two brokers is at the other, whenever they meet.

use crate::event::Event;
use crate::harness::pair::{Pair, S, START};
use crate::protocol::link_frames::RETAINED_TOPIC;
use crate::tests::mqtt::client::{Client, packet, text};
use crate::tests::mqtt::two_brokers::{Brokers, CHANNEL, retain};

/// Opens the link of what is retained, from broker `a` to `b`.
fn open_retained(brokers: &mut Brokers) {
    brokers.open(RETAINED_TOPIC);
    for _ in 0..10 {
        brokers.carry();
    }
}

fn retained_at(pair: &mut Pair, id: &str) -> Vec<(String, String)> {
    let mut client = Client::new(pair, id);
    client.subscribe(pair, "#", 0);
    for _ in 0..10 {
        pair.turn();
    }
    client.messages(pair)
}

#[test]
fn what_is_retained_at_one_broker_is_at_all_whenever_they_meet_and_the_latest_counts() {
    let mut brokers = Brokers::new();
    let mut sensor = Client::new(&mut brokers.a, "sensor");
    for number in 0..100 {
        retain(&mut brokers.a, &mut sensor, &format!("n/{number:02}"), "before");
    }
    open_retained(&mut brokers);
    assert_eq!(retained_at(&mut brokers.b, "one").len(), 100, "all that was there before");
    brokers.a.now += 1_000;
    brokers.b.now += 2_000;
    let mut other = Client::new(&mut brokers.b, "other");
    retain(&mut brokers.b, &mut other, "n/00", "of b, later");
    retain(&mut brokers.a, &mut sensor, "n/00", "of a, earlier");
    retain(&mut brokers.a, &mut sensor, "n/01", "");
    retain(&mut brokers.a, &mut sensor, "n/02", "after");
    brokers.carry();
    let there = retained_at(&mut brokers.b, "two");
    assert_eq!(there.len(), 99);
    assert_eq!(there[0], ("n/00".into(), "of b, later".into()));
    assert_eq!(there[1], ("n/02".into(), "after".into()));
}

#[test]
fn what_was_removed_does_not_come_back_with_an_older_message_that_was_late() {
    let mut brokers = Brokers::new();
    let mut sensor = Client::new(&mut brokers.a, "sensor");
    retain(&mut brokers.a, &mut sensor, "n", "old");
    brokers.b.now += S;
    brokers.b.engine.create_topic(RETAINED_TOPIC);
    let mut other = Client::new(&mut brokers.b, "other");
    retain(&mut brokers.b, &mut other, "n", "");
    open_retained(&mut brokers);
    assert!(retained_at(&mut brokers.b, "subscriber").is_empty());
}

#[test]
fn a_mark_comes_behind_all_that_was_retained_before_it() {
    let mut brokers = Brokers::new();
    let mut sensor = Client::new(&mut brokers.a, "sensor");
    for number in 0..100 {
        retain(&mut brokers.a, &mut sensor, &format!("n/{number:02}"), "x");
    }
    assert!(!brokers.a.engine.mark_link(CHANNEL, "too early", START));
    brokers.a.engine.create_topic(RETAINED_TOPIC);
    brokers.a.engine.create_channel(RETAINED_TOPIC, CHANNEL, START);
    assert!(brokers.a.engine.mark_link(CHANNEL, "v1", START));
    open_retained(&mut brokers);
    let marks = |events: Vec<Event>| {
        let mark = |event| if let Event::LinkMarked { mark, .. } = event { Some(mark) } else { None };
        events.into_iter().filter_map(mark).collect::<Vec<String>>()
    };
    assert_eq!(marks(brokers.b.engine.poll_events()), ["v1"]);
    assert_eq!(retained_at(&mut brokers.b, "subscriber").len(), 100);
    let now = brokers.a.now;
    assert!(brokers.a.engine.mark_link(CHANNEL, "v2", now));
    brokers.carry();
    assert_eq!(marks(brokers.b.engine.poll_events()), ["v2"]);
}

#[test]
fn a_new_subscription_gets_what_is_retained_once_the_others_know_of_it() {
    let mut pair = Pair::new();
    let mut sensor = Client::new(&mut pair, "sensor");
    retain(&mut pair, &mut sensor, "n", "before");
    pair.engine.share_interest(true);
    let mut client = Client::new(&mut pair, "client");
    client.send(&mut pair, &packet(0x82, &[&[0, 1, 0][..], &text("n"), &[1]].concat()));
    retain(&mut pair, &mut sensor, "n", "after");
    let wanted = pair.engine.interest();
    let early: Vec<String> = client.messages(&mut pair).into_iter().map(|(_, payload)| payload).collect();
    assert_eq!(early, ["after"], "live; nothing is replayed yet");
    pair.engine.settle_interest(wanted.version);
    pair.turn();
    pair.turn();
    let late: Vec<String> = client.messages(&mut pair).into_iter().map(|(_, payload)| payload).collect();
    assert_eq!(late, ["after"], "the one that is retained now");
}

#[test]
fn what_another_broker_retains_beyond_the_bound_here_is_counted_and_told() {
    let mut brokers = Brokers::new();
    brokers.b.engine.config.mqtt_max_retained = 2;
    let mut sensor = Client::new(&mut brokers.a, "sensor");
    for number in 0..5 {
        retain(&mut brokers.a, &mut sensor, &format!("n/{number}"), "x");
    }
    open_retained(&mut brokers);
    assert_eq!(retained_at(&mut brokers.b, "one").len(), 2);
    let untold = |event: &Event| matches!(event, Event::MqttExcess { why, .. } if why.contains("mqtt_max_retained"));
    assert!(brokers.b.engine.poll_events().iter().any(untold));
    assert_eq!(brokers.b.engine.mqtt.counters.refused, 3);
}
