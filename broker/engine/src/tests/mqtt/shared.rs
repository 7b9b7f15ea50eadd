//! Shared subscriptions: each message goes to one member that has room.

use crate::harness::invariant;
use crate::harness::pair::Pair;
use crate::tests::mqtt::client::{Client, packet, text};

fn publish(pair: &mut Pair, count: u16) {
    let mut sensor = Client::new(pair, "sensor");
    for number in 1..=count {
        sensor.publish_5(pair, "a/b", 1, number, &number.to_string());
    }
}

fn said(client: &mut Client, pair: &mut Pair) -> Vec<String> {
    client.messages(pair).into_iter().map(|(_, payload)| payload).collect()
}

#[test]
fn members_take_turns_and_a_plain_subscription_beside_them_gets_everything() {
    let mut pair = Pair::new();
    let (mut first, mut second) = (Client::new(&mut pair, "first"), Client::new(&mut pair, "second"));
    let mut plain = Client::new(&mut pair, "plain");
    first.subscribe(&mut pair, "$share/g/a/#", 1);
    second.subscribe(&mut pair, "$share/g/a/#", 0);
    plain.subscribe(&mut pair, "a/b", 0);
    publish(&mut pair, 4);
    assert_eq!(said(&mut first, &mut pair), ["1", "3"]);
    assert_eq!(said(&mut second, &mut pair), ["2", "4"]);
    assert_eq!(said(&mut plain, &mut pair).len(), 4);
    invariant::check(&pair.engine, pair.now);
}

#[test]
fn what_was_in_flight_to_a_member_that_leaves_goes_to_another_in_front_of_the_rest() {
    let mut pair = Pair::new();
    let (mut first, _) = Client::with(&mut pair, "first", true, &[0x21, 0, 2]);
    first.subscribe(&mut pair, "$share/g/a/#", 1);
    publish(&mut pair, 4);
    assert_eq!(said(&mut first, &mut pair), ["1", "2"], "its window is full");
    let mut second = Client::new(&mut pair, "second");
    second.subscribe(&mut pair, "$share/g/a/#", 1);
    assert_eq!(said(&mut second, &mut pair), ["3", "4"]);
    pair.close(first.key);
    assert_eq!(said(&mut second, &mut pair), ["1", "2"]);
    invariant::check(&pair.engine, pair.now);
}

#[test]
fn a_group_keeps_messages_while_a_member_is_away_with_its_session_and_ends_with_the_last_one() {
    let mut pair = Pair::new();
    let (mut client, _) = Client::with(&mut pair, "client", true, &[0x11, 0, 0, 0, 60]);
    client.subscribe(&mut pair, "$share/g/a/#", 1);
    pair.close(client.key);
    publish(&mut pair, 2);
    let (mut client, _) = Client::with(&mut pair, "client", false, &[]);
    assert_eq!(said(&mut client, &mut pair), ["1", "2"]);
    let unsubscribe = packet(0xa2, &[&[0, 7, 0][..], &text("$share/g/a/#"), &text("$share/h/a/#")].concat());
    assert_eq!(client.ask(&mut pair, &unsubscribe), [0xb0, 5, 0, 7, 0, 0, 0x11]);
    assert!(pair.engine.mqtt.groups.is_empty() && pair.engine.mqtt.filters.is_empty());
    publish(&mut pair, 1);
    invariant::check(&pair.engine, pair.now);
}

#[test]
fn groups_and_plain_subscriptions_of_one_pattern_are_told_apart_when_some_of_them_end() {
    let mut pair = Pair::new();
    let (mut first, mut second) = (Client::new(&mut pair, "first"), Client::new(&mut pair, "second"));
    for client in [&mut first, &mut second] {
        client.subscribe(&mut pair, "a/b", 0);
        client.subscribe(&mut pair, &format!("$share/{:?}/a/b", client.key), 0);
    }
    pair.close(first.key);
    publish(&mut pair, 1);
    assert_eq!(said(&mut second, &mut pair), ["1", "1"]);
    pair.close(second.key);
    assert!(pair.engine.mqtt.groups.is_empty() && pair.engine.mqtt.filters.is_empty());
}
