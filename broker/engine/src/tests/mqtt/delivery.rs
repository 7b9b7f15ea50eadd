//! What a subscriber gets: which messages, how often, under which QoS, and in which order.

use crate::config::Config;
use crate::event::Event;
use crate::harness::invariant;
use crate::harness::pair::{MS, Pair, ok, pub_};
use crate::protocol::mqtt::version::Version;
use crate::scheduling::work_budget::{NOTED_UNITS, QUANTUM, TURN_UNITS};
use crate::tests::mqtt::client::{Client, connect, message_5, packet, publish_5, subscribe, text};

fn said(messages: &[(String, String)]) -> Vec<&str> {
    messages.iter().map(|(_, payload)| payload.as_str()).collect()
}

#[test]
fn mqtt_and_nsq_meet_on_one_topic() {
    let mut pair = Pair::new();
    let consumer = pair.subscribe("plant", "archive", 10);
    let mut sensor = Client::new(&mut pair, "sensor");
    let mut screen = Client::new(&mut pair, "screen");
    assert_eq!(screen.subscribe(&mut pair, "plant", 1), 1);

    sensor.publish_5(&mut pair, "plant", 1, 5, "by MQTT");
    assert_eq!(sensor.take(&mut pair), [[0x40, 2, 0, 5]]);
    assert_eq!(pair.bodies(consumer), ["by MQTT"], "the payload is the body");
    assert_eq!(pair.publish("plant", "by NSQ"), ok());
    assert_eq!(pair.bodies(consumer), ["by NSQ"]);
    assert_eq!(said(&screen.messages(&mut pair)), ["by MQTT", "by NSQ"]);
    invariant::check(&pair.engine, pair.now);
}

#[test]
fn names_that_no_topic_has_go_through_the_topic_for_them() {
    let mut pair = Pair::new();
    let consumer = pair.subscribe("default", "all", 10);
    let mut client = Client::new(&mut pair, "client");
    client.publish_5(&mut pair, "plant/7/heat", 1, 5, "20");
    client.publish_5(&mut pair, "single", 1, 6, "21");
    assert_eq!(pair.bodies(consumer), ["20", "21"]);
    assert_eq!(pair.engine.topic_names.len(), 1, "a client makes no topics by names");
}

#[test]
fn what_mqtt_takes_does_not_wait_for_a_first_channel_and_all_else_of_nsq_does() {
    let mut pair = Pair::new();
    assert_eq!(pair.publish("plant", "early"), ok());
    let mut client = Client::new(&mut pair, "client");
    client.publish_5(&mut pair, "a/b", 1, 5, "to nobody");
    client.subscribe(&mut pair, "plant", 1);
    assert_eq!(pair.publish("plant", "taken"), ok());
    assert_eq!(said(&client.messages(&mut pair)), ["taken"]);
    let consumer = pair.subscribe("plant", "archive", 10);
    assert_eq!(pair.bodies(consumer), ["early"]);
    let of_default = pair.subscribe("default", "all", 10);
    assert!(pair.bodies(of_default).is_empty(), "what came by MQTT and had no subscriber is gone");
    invariant::check(&pair.engine, pair.now);
}

#[test]
fn a_topic_that_is_paused_keeps_its_messages_from_mqtt_too() {
    let mut pair = Pair::new();
    let mut client = Client::new(&mut pair, "client");
    client.subscribe(&mut pair, "#", 0);
    client.publish_5(&mut pair, "a", 0, 0, "1");
    let now = pair.now;
    assert!(pair.engine.pause_topic("default", true, now));
    client.publish_5(&mut pair, "a", 0, 0, "2");
    assert_eq!(said(&client.messages(&mut pair)), ["1"]);
    assert!(pair.engine.pause_topic("default", false, now));
    pair.turn();
    assert_eq!(said(&client.messages(&mut pair)), ["2"]);
}

#[test]
fn overlapping_subscriptions_give_one_copy_of_the_highest_qos_with_all_their_identifiers() {
    let mut pair = Pair::new();
    let mut client = Client::new(&mut pair, "client");
    for (filter, options, id) in [("a/#", 0, 3), ("a/+", 2, 4), ("a/b", 1, 5), ("b/#", 2, 6)] {
        let subscribe = packet(0x82, &[&[0, 9, 2, 0x0b, id][..], &text(filter), &[options]].concat());
        assert_eq!(client.ask(&mut pair, &subscribe)[5], options);
    }
    let mut other = Client::new(&mut pair, "other");
    other.publish_5(&mut pair, "a/b", 2, 5, "x");
    let packets = client.take(&mut pair);
    assert_eq!(packets.len(), 1);
    assert_eq!(packets[0][0], 0x34);
    let mut ids = packets[0][9 + 1..9 + 1 + 6].to_vec();
    ids.sort_unstable();
    assert_eq!((packets[0][9], ids), (6, vec![3, 4, 5, 0x0b, 0x0b, 0x0b]));
}

#[test]
fn a_message_that_has_waited_goes_by_the_same_subscriptions_as_one_that_has_not() {
    let mut pair = Pair::new();
    let (mut client, _) = Client::with(&mut pair, "client", true, &[0x21, 0, 1]); // one may be in flight
    let no_local = 4;
    for (filter, options, id) in [("a/#", 2 | no_local, 1), ("a/b", 1, 2), ("a/+", 2 | no_local, 3), ("b", 2, 4)] {
        let subscribe = packet(0x82, &[&[0, 9, 2, 0x0b, id][..], &text(filter), &[options]].concat());
        client.ask(&mut pair, &subscribe);
    }
    let mut sent = Vec::new();
    for number in 1..=3 {
        client.send(&mut pair, &publish_5("a/b", 2, number, "own"));
    }
    for id in 1..=3 {
        let of_others = |packet: &Vec<u8>| packet[0] >> 4 == 3;
        sent.extend(client.take(&mut pair).into_iter().filter(of_others));
        client.send(&mut pair, &[0x40, 2, 0, id]);
    }
    assert_eq!(sent.len(), 3);
    for publish in sent {
        assert_eq!((publish[0], &publish[9..12]), (0x32, &[2, 0x0b, 2][..]), "No Local holds for what has waited, too");
    }
}

#[test]
fn what_waits_is_charged_for_each_subscription_that_it_matches() {
    let mut pair = Pair::new();
    let (mut client, _) = Client::with(&mut pair, "client", true, &[0x11, 0, 0, 0, 60]);
    for number in 0..256 {
        let levels: Vec<&str> = (0..8).map(|level| if number >> level & 1 == 0 { "a" } else { "+" }).collect();
        client.subscribe(&mut pair, &levels.join("/"), 1);
    }
    pair.close(client.key);
    let mut other = Client::new(&mut pair, "other");
    (1..=20).for_each(|number| other.publish_5(&mut pair, "a/a/a/a/a/a/a/a", 1, number, "x"));
    let mut again = Client::accept(&mut pair);
    pair.send(again.key, connect(Version::V5, "client", false, &[0x11, 0, 0, 0, 60]));
    pair.turn();
    let first = again.messages(&mut pair).len();
    assert!((1..=QUANTUM as usize / 256 + 1).contains(&first), "{first} in a turn");
    (0..20).for_each(|_| pair.turn());
    assert_eq!(again.messages(&mut pair).len() + first, 20);
}

#[test]
fn a_subscription_takes_the_place_of_its_older_self_and_is_gone_after_unsubscribe() {
    let mut pair = Pair::new();
    let (mut first, mut second) = (Client::new(&mut pair, "first"), Client::new(&mut pair, "second"));
    for client in [&mut first, &mut second] {
        client.subscribe(&mut pair, "a", 1);
        client.subscribe(&mut pair, "b", 1);
        client.subscribe(&mut pair, "a", 0);
    }
    let unsubscribe = packet(0xa2, &[&[0, 7, 0][..], &text("a"), &text("c")].concat());
    assert_eq!(first.ask(&mut pair, &unsubscribe), [0xb0, 5, 0, 7, 0, 0, 0x11]);
    let mut other = Client::new(&mut pair, "other");
    other.publish_5(&mut pair, "a", 1, 5, "a");
    other.publish_5(&mut pair, "b", 0, 0, "b");
    assert_eq!(said(&first.messages(&mut pair)), ["b"]);
    let packets = second.take(&mut pair);
    assert_eq!(packets.iter().map(|packet| packet[0]).collect::<Vec<_>>(), [0x30, 0x30], "QoS 0 by now");
    pair.close(first.key);
    pair.close(second.key);
    assert!(pair.engine.mqtt.filters.is_empty() && pair.engine.mqtt.sessions.len() == 1);
}

#[test]
fn a_window_opens_with_acknowledgements_and_keeps_the_order() {
    let mut pair = Pair::new();
    let (mut client, _) = Client::with(&mut pair, "client", true, &[0x21, 0, 2]);
    client.subscribe(&mut pair, "#", 1);
    let mut other = Client::new(&mut pair, "other");
    for number in 1..=5 {
        other.publish_5(&mut pair, "a", 1, number, &number.to_string());
    }
    assert_eq!(said(&client.messages(&mut pair)), ["1", "2"], "Receive Maximum is 2");
    client.send(&mut pair, &[0x40, 2, 0, 2]);
    assert_eq!(said(&client.messages(&mut pair)), ["3"]);
    client.send(&mut pair, &[0x40, 2, 0, 1, 0x40, 2, 0, 3]);
    assert_eq!(said(&client.messages(&mut pair)), ["4", "5"]);
    invariant::check(&pair.engine, pair.now);
}

#[test]
fn who_reads_nothing_loses_deliveries_of_qos_0_and_no_answer() {
    let mut pair = Pair::new();
    let mut client = Client::new(&mut pair, "client");
    client.subscribe(&mut pair, "#", 0);
    let mut other = Client::new(&mut pair, "other");
    pair.stick(client.key);
    let large = "x".repeat(60_000);
    for _ in 0..40 {
        other.publish_5(&mut pair, "a", 0, 0, &large);
    }
    let dropped = pair.engine.mqtt.counters.dropped;
    assert!(dropped > 0 && dropped < 40, "{dropped}");
    client.send(&mut pair, &[0xc0, 0]);
    pair.unstick(client.key);
    let packets = client.take(&mut pair);
    assert_eq!(packets.last().expect("an answer"), &[0xd0, 0]);
    assert_eq!(packets.len() as u64, 40 - dropped + 1);
}

#[test]
fn who_is_away_for_long_loses_the_newest_messages_and_that_is_counted() {
    let mut pair = Pair::with(Config { mqtt_max_queued: 3, ..Config::default() });
    let (mut client, _) = Client::with(&mut pair, "client", true, &[0x11, 0, 0, 0, 60]);
    client.subscribe(&mut pair, "#", 1);
    pair.close(client.key);
    let mut other = Client::new(&mut pair, "other");
    for number in 1..=5 {
        other.publish_5(&mut pair, "a", 1, number, &number.to_string());
    }
    assert_eq!(pair.engine.mqtt.counters.dropped, 2);
    let full = Event::LimitReached { limit: "mqtt_max_queued", client: "client".into(), times: 1 };
    assert!(pair.engine.poll_events().contains(&full), "with the first of them, and the others after 10 s");
    invariant::check(&pair.engine, pair.now);
    let (mut again, answer) = Client::with(&mut pair, "client", false, &[]);
    assert_eq!((answer[2], answer[3]), (1, 0), "the session is present");
    assert_eq!(said(&again.messages(&mut pair)), ["1", "2", "3"]);
}

#[test]
fn what_was_not_acknowledged_comes_again_first_on_a_new_connection() {
    let mut pair = Pair::new();
    let (mut client, _) = Client::with(&mut pair, "client", true, &[0x11, 0, 0, 0, 60]);
    client.subscribe(&mut pair, "#", 2);
    let mut other = Client::new(&mut pair, "other");
    other.publish_5(&mut pair, "a", 1, 5, "once");
    other.publish_5(&mut pair, "a", 2, 6, "twice");
    other.publish_5(&mut pair, "a", 2, 7, "released");
    assert_eq!(client.messages(&mut pair).len(), 3);
    client.send(&mut pair, &[0x50, 2, 0, 3]);
    assert_eq!(client.take(&mut pair), [[0x62, 2, 0, 3]]);
    let mut again = Client::accept(&mut pair);
    again.send(&mut pair, &connect(Version::V5, "client", false, &[0x11, 0, 0, 0, 60]));
    let packets = again.take(&mut pair);
    assert_eq!(packets.iter().map(|packet| packet[0]).collect::<Vec<_>>(), [0x20, 0x3a, 0x3c, 0x62], "DUP is set");
    assert_eq!(message_5(&packets[1]).1, "once");
    assert!(client.take(&mut pair).iter().any(|packet| packet[0] == 0xe0 && packet[2] == 0x8e), "it was taken over");
    assert!(client.has_ended(&pair));
}

#[test]
fn a_publish_of_qos_2_goes_on_once_however_often_it_comes() {
    let mut pair = Pair::new();
    let mut screen = Client::new(&mut pair, "screen");
    screen.subscribe(&mut pair, "#", 0);
    let (mut client, _) = Client::with(&mut pair, "client", true, &[0x11, 0, 0, 0, 60]);
    assert_eq!(client.ask(&mut pair, &publish_5("a", 2, 5, "x")), [0x50, 2, 0, 5]);
    pair.close(client.key);
    let (mut client, _) = Client::with(&mut pair, "client", false, &[0x11, 0, 0, 0, 60]);
    let mut again = publish_5("a", 2, 5, "x");
    again[0] |= 8;
    assert_eq!(client.ask(&mut pair, &again), [0x50, 2, 0, 5]);
    assert_eq!(client.ask(&mut pair, &[0x62, 2, 0, 5]), [0x70, 2, 0, 5]);
    assert_eq!(client.ask(&mut pair, &publish_5("a", 2, 5, "x")), [0x50, 2, 0, 5]);
    assert_eq!(screen.messages(&mut pair).len(), 2, "one for each PUBREL");
}

#[test]
fn a_message_that_has_expired_goes_to_nobody_and_a_younger_one_says_what_is_left() {
    let mut pair = Pair::new();
    let (mut client, _) = Client::with(&mut pair, "client", true, &[0x11, 0, 0, 0, 60]);
    client.subscribe(&mut pair, "#", 1);
    pair.close(client.key);
    let mut other = Client::new(&mut pair, "other");
    for (id, seconds) in [(1, 2), (2, 9)] {
        let properties = [5, 2, 0, 0, 0, seconds];
        other.ask(&mut pair, &packet(0x32, &[&text("a")[..], &[0, id], &properties, b"x"].concat()));
    }
    pair.advance(3_500 * MS);
    let (mut again, _) = Client::with(&mut pair, "client", false, &[]);
    let packets = again.take(&mut pair);
    let publishes: Vec<&Vec<u8>> = packets.iter().filter(|packet| packet[0] >> 4 == 3).collect();
    assert_eq!(publishes.len(), 1);
    assert_eq!(publishes[0][7..13], [5, 2, 0, 0, 0, 6], "5.5 s, rounded up");
}

#[test]
fn no_local_keeps_a_clients_own_messages_from_it() {
    let mut pair = Pair::new();
    let mut client = Client::new(&mut pair, "client");
    assert_eq!(client.ask(&mut pair, &subscribe("#", 4))[5], 0);
    client.publish_5(&mut pair, "a", 0, 0, "own");
    let mut other = Client::new(&mut pair, "other");
    other.publish_5(&mut pair, "a", 0, 0, "foreign");
    assert_eq!(said(&client.messages(&mut pair)), ["foreign"]);
}

#[test]
fn a_client_of_nsq_sends_what_a_session_that_is_away_gets_under_its_topics_name() {
    let mut pair = Pair::new();
    let (mut client, _) = Client::with(&mut pair, "client", true, &[0x11, 0, 0, 0, 60]);
    client.subscribe(&mut pair, "plant", 1);
    pair.close(client.key);
    let publisher = pair.connect();
    pair.send(publisher, pub_("plant", "x"));
    pair.turn();
    invariant::check(&pair.engine, pair.now);
    let (mut again, _) = Client::with(&mut pair, "client", false, &[]);
    assert_eq!(again.messages(&mut pair), [("plant".to_owned(), "x".to_owned())]);
}

/// What one connection may use of a turn: its quantum, that of all deferred ones, and a last quantum begun.
const MOST_UNITS: usize = (QUANTUM + TURN_UNITS + QUANTUM) as usize;

/// Messages that the first of `listeners` has after a turn in which `bytes` were read, and that all have in the end.
fn in_a_turn(pair: &mut Pair, listeners: &mut [Client], bytes: &[u8]) -> (usize, usize) {
    let sensor = Client::new(pair, "sensor");
    pair.send(sensor.key, bytes);
    pair.turn();
    let first = listeners[0].messages(pair).len();
    while pair.engine.is_waiting(sensor.key) {
        pair.turn();
    }
    let later: Vec<usize> = listeners.iter_mut().map(|listener| listener.messages(pair).len()).collect();
    assert!(later[1..].iter().all(|count| *count == first + later[0]), "{later:?}");
    (first, first + later[0])
}

#[test]
fn of_what_goes_to_many_few_messages_are_in_a_turn_and_all_come_in_the_end() {
    let mut pair = Pair::new();
    let listener = |number: usize| {
        let mut client = Client::new(&mut pair, &format!("listener-{number}"));
        client.subscribe(&mut pair, "a/#", 0);
        client
    };
    let mut listeners: Vec<Client> = (0..60).map(listener).collect();
    let (first, all) = in_a_turn(&mut pair, &mut listeners, &publish_5("a/b", 0, 0, "x").repeat(1_000));
    assert!((1..=MOST_UNITS / 60).contains(&first), "{first} messages in a turn");
    assert_eq!(all, 1_000);
}

#[test]
fn of_messages_with_long_names_few_are_in_a_turn() {
    let mut pair = Pair::new();
    let mut listener = [Client::new(&mut pair, "listener")];
    listener[0].subscribe(&mut pair, "#", 0);
    let name = format!("a/{}", "x".repeat(5_000));
    let (first, all) = in_a_turn(&mut pair, &mut listener, &publish_5(&name, 0, 0, "x").repeat(100));
    assert!((1..=MOST_UNITS / 78).contains(&first), "{first} messages in a turn");
    assert_eq!(all, 100);
}

#[test]
fn of_publishes_of_qos_2_that_are_noted_few_are_in_a_turn() {
    let mut pair = Pair::with(Config { mqtt_receive_maximum: 500, ..Config::default() });
    let mut listener = [Client::new(&mut pair, "listener")];
    listener[0].subscribe(&mut pair, "#", 0);
    let publishes: Vec<u8> = (1..=500).flat_map(|id| publish_5("a/b", 2, id, "x")).collect();
    let (first, all) = in_a_turn(&mut pair, &mut listener, &publishes);
    assert!((1..=MOST_UNITS / NOTED_UNITS as usize).contains(&first), "{first} messages in a turn");
    assert_eq!(all, 500);
}
