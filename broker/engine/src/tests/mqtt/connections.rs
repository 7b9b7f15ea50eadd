//! When a connection of the MQTT port begins and ends, and what is said then.

use crate::config::Config;
use crate::harness::pair::{MS, Pair, S, limit};
use crate::protocol::mqtt::version::Version;
use crate::queueing::topic::Limit;
use crate::tests::mqtt::client::{Client, connect, publish_5, text};

#[test]
fn who_sends_no_connect_within_10_s_is_closed() {
    let mut pair = Pair::new();
    let client = Client::accept(&mut pair);
    pair.advance(9_900 * MS);
    assert!(!client.has_ended(&pair));
    pair.advance(200 * MS);
    assert!(client.has_ended(&pair));
}

#[test]
fn a_client_is_heard_by_any_bytes_and_ends_one_and_a_half_keep_alives_after_the_last() {
    let mut pair = Pair::new();
    let mut client = Client::new(&mut pair, "client"); // keep alive 60 s
    pair.advance(80 * S);
    client.send(&mut pair, &[0xc0]);
    pair.advance(80 * S);
    assert_eq!(client.ask(&mut pair, &[0]), [0xd0, 0]);
    pair.advance(89_900 * MS);
    assert!(!client.has_ended(&pair));
    pair.advance(200 * MS);
    assert_eq!(client.take(&mut pair)[0][2], 0x8d);
    assert!(client.has_ended(&pair));
}

#[test]
fn a_client_is_not_cut_off_for_time_in_which_the_broker_did_not_run() {
    let mut pair = Pair::new();
    let mut client = Client::new(&mut pair, "client");
    pair.stall(200 * S);
    pair.turn();
    assert!(!client.has_ended(&pair));
    assert_eq!(client.ask(&mut pair, &[0xc0, 0]), [0xd0, 0]);
    pair.advance(80 * S);
    assert!(!client.has_ended(&pair));
}

#[test]
fn a_keep_alive_may_be_bounded_and_only_5_0_can_be_told() {
    let mut pair = Pair::with(Config { mqtt_max_keep_alive_s: 20, ..Config::default() });
    let (client, answer) = Client::with(&mut pair, "client", true, &[]);
    assert!(answer.windows(3).any(|bytes| bytes == [0x13, 0, 20]), "{answer:02x?}");
    let mut old = Client::accept(&mut pair);
    old.connect(&mut pair, Version::V3_1_1, "old");
    pair.advance(31 * S);
    assert!(client.has_ended(&pair) && !old.has_ended(&pair));
}

#[test]
fn a_session_lives_as_long_as_its_client_asked_for_after_the_connection() {
    let mut pair = Pair::new();
    for (seconds, is_there) in [(4, true), (6, false)] {
        let (client, _) = Client::with(&mut pair, "client", true, &[0x11, 0, 0, 0, 5]);
        pair.close(client.key);
        pair.advance(seconds * S);
        let (client, answer) = Client::with(&mut pair, "client", false, &[]);
        assert_eq!(answer[2], u8::from(is_there), "after {seconds} s");
        pair.close(client.key);
        assert_eq!(pair.engine.mqtt.sessions.len(), 0);
    }
    let (mut client, _) = Client::with(&mut pair, "client", true, &[0x11, 0, 0, 0, 5]);
    client.send(&mut pair, &[0xe0, 7, 0, 5, 0x11, 0, 0, 0, 0]);
    assert!(client.has_ended(&pair) && pair.engine.mqtt.sessions.is_empty(), "DISCONNECT has the last word");
}

#[test]
fn a_session_is_kept_no_longer_than_the_broker_allows_and_says() {
    let mut pair = Pair::with(Config { mqtt_max_session_expiry_s: 9, ..Config::default() });
    let (_, answer) = Client::with(&mut pair, "client", true, &[0x11, 255, 255, 255, 255]);
    assert!(answer.windows(5).any(|bytes| bytes == [0x11, 0, 0, 0, 9]), "{answer:02x?}");
}

#[test]
fn a_client_without_an_id_is_given_one() {
    let mut pair = Pair::new();
    let (_, answer) = Client::with(&mut pair, "", true, &[]);
    let text = String::from_utf8_lossy(&answer).into_owned();
    assert!(text.contains("srtm-"), "{text}");
    let mut old = Client::accept(&mut pair);
    assert_eq!(old.ask(&mut pair, &connect(Version::V3_1_1, "", false, &[])), [0x20, 2, 0, 2]);
    assert!(old.has_ended(&pair));
}

#[test]
fn while_the_broker_does_not_accept_publishes_nobody_connects() {
    let mut pair =
        Pair::with(Config { accepting: false, not_accepting_reason: "starting".into(), ..Config::default() });
    let (client, answer) = Client::with(&mut pair, "client", true, &[]);
    assert_eq!(answer[3], 0x88);
    assert!(client.has_ended(&pair));
    let mut old = Client::accept(&mut pair);
    assert_eq!(old.ask(&mut pair, &connect(Version::V3_1_1, "old", true, &[])), [0x20, 2, 0, 3]);
}

#[test]
fn a_packet_that_is_too_long_is_refused_before_it_is_kept() {
    let mut pair = Pair::new();
    let mut client = Client::new(&mut pair, "client");
    client.send(&mut pair, &[0x30, 0xff, 0xff, 0xff, 0x7f, 1, 2, 3]);
    assert_eq!(client.take(&mut pair)[0][2], 0x95);
    assert!(client.has_ended(&pair));
    let mut stranger = Client::accept(&mut pair);
    stranger.send(&mut pair, &[0x10, 0xff, 0xff, 0x7f, 0]);
    assert!(stranger.has_ended(&pair), "before its CONNECT a client gets 64 KiB");
}

fn rejecting() -> Limit {
    Limit { reject: true, full: true, ..limit(1, 1, 1) }
}

#[test]
fn above_its_limit_a_topic_refuses_in_5_0_and_drops_qos_0() {
    let mut pair = Pair::new();
    pair.limit("plant", rejecting());
    let mut client = Client::new(&mut pair, "client");
    assert_eq!(client.ask(&mut pair, &publish_5("plant", 1, 5, "x"))[..4], [0x40, 3, 0, 5]);
    let refused = client.ask(&mut pair, &publish_5("plant", 1, 6, "x"));
    assert_eq!((refused[0], refused[4]), (0x40, 0x97));
    let told = String::from_utf8_lossy(&refused).into_owned();
    assert!(told.contains("retry after 1000 ms") && told.contains("srtm-retry-ms"), "{told}");
    let refused = client.ask(&mut pair, &publish_5("plant", 2, 7, "x"));
    assert_eq!((refused[0], refused[4]), (0x50, 0x97));
    client.send(&mut pair, &publish_5("plant", 0, 0, "x"));
    assert!(client.take(&mut pair).is_empty());
    assert_eq!(pair.topic()["rejected"].as_u64(), Some(3));
}

#[test]
fn a_topic_that_delays_acknowledges_at_once_and_says_how_long_to_who_asks() {
    let mut pair = Pair::new();
    pair.limit("plant", Limit { full: true, ..limit(10, 1, 1) });
    let properties = [&[0x26][..], &text("srtm-receipts"), &text("1")].concat();
    let (mut client, answer) = Client::with(&mut pair, "client", true, &properties);
    assert!(answer.ends_with(&[&[0x26][..], &text("srtm"), &text("1")].concat()));
    client.subscribe(&mut pair, "plant", 0);
    client.ask(&mut pair, &publish_5("plant", 1, 5, "first"));
    client.take(&mut pair);
    let receipt = client.ask(&mut pair, &publish_5("plant", 1, 6, "second"));
    let told = String::from_utf8_lossy(&receipt).into_owned();
    assert!(told.contains("srtm-wait-ns") && told.contains("100000000"), "{told}");
    pair.advance(99 * MS);
    assert!(client.messages(&mut pair).is_empty());
    pair.advance(2 * MS);
    assert_eq!(client.messages(&mut pair).len(), 1);
}

#[test]
fn two_clients_with_one_id_do_not_end_each_other_without_end() {
    let mut pair = Pair::new();
    let mut first = Client::new(&mut pair, "twice");
    for _ in 0..3 {
        let next = Client::new(&mut pair, "twice");
        assert_eq!(first.take(&mut pair)[0][2], 0x8e);
        first = next;
    }
    let (_, answer) = Client::with(&mut pair, "twice", true, &[]);
    assert_eq!(answer[3], 0x89, "the one that is there keeps its connection for 1 s");
    let mut old = Client::accept(&mut pair);
    assert_eq!(old.ask(&mut pair, &connect(Version::V3_1_1, "twice", true, &[])), [0x20, 2, 0, 3]);
    assert!(!first.has_ended(&pair));
    pair.advance(S);
    Client::new(&mut pair, "twice");
    assert!(first.has_ended(&pair));
}

#[test]
fn who_has_left_may_come_back_at_once() {
    let mut pair = Pair::new();
    for _ in 0..10 {
        Client::new(&mut pair, "client").send(&mut pair, &[0xe0, 0]);
    }
    assert_eq!(pair.engine.mqtt.counters.denied, 0);
}

#[test]
fn a_bridge_of_mosquitto_does_not_get_its_own_messages_back_and_sees_what_is_retained() {
    let mut pair = Pair::new();
    let mut bridge = Client::accept(&mut pair);
    let mut packet = connect(Version::V3_1_1, "bridge", true, &[]);
    packet[8] |= 0x80;
    assert_eq!(bridge.ask(&mut pair, &packet), [0x20, 2, 0, 0]);
    bridge.ask(&mut pair, &[&[0x82, 6, 0, 1, 0, 1][..], b"#", &[1]].concat());
    bridge.send(&mut pair, b"\x30\x04\0\x01a1");
    assert!(bridge.take(&mut pair).is_empty());
    let mut other = Client::new(&mut pair, "other");
    other.send(&mut pair, b"\x31\x05\0\x01a\x002");
    assert_eq!(bridge.take(&mut pair), [b"\x31\x04\0\x01a2"]);
    packet[8] = 0x86;
    assert_eq!(Client::accept(&mut pair).ask(&mut pair, &packet)[3], 0x84, "no such version");
}
