//! MQTT in WebSocket on the engine: packets go through frames, and a client that breaks the rules has died.

use crate::clients::mqtt_client::MqttAddresses;
use crate::harness::pair::{Pair, S, limit};
use crate::keys::ConnKey;
use crate::mqtt::managed_names::V3Excess;
use crate::protocol::mqtt::version::Version;
use crate::tests::mqtt::client::{Client, connect, publish_5, text};

const REQUEST: &str = "GET /mqtt HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";

fn opened(pair: &mut Pair) -> ConnKey {
    let key = pair.engine.handle_accept_mqtt_ws("192.0.2.1:5000", false, pair.now);
    assert!(said(pair, key, REQUEST.as_bytes()).starts_with(b"HTTP/1.1 101 "));
    key
}

fn said(pair: &mut Pair, key: ConnKey, bytes: &[u8]) -> Vec<u8> {
    pair.send(key, bytes);
    pair.turn();
    pair.turn();
    pair.take_bytes(key)
}

/// A frame of fewer than 126 bytes under a mask of zeros.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    [&[0x80 | opcode, 0x80 | payload.len() as u8, 0, 0, 0, 0], payload].concat()
}

#[test]
fn packets_go_through_frames_both_ways() {
    let mut pair = Pair::new();
    let key = opened(&mut pair);
    let packet = connect(Version::V3_1_1, "browser", true, &[]);
    let (head, tail) = packet.split_at(5);
    assert!(said(&mut pair, key, &frame(2, head)).is_empty(), "a packet may be cut into messages");
    assert_eq!(said(&mut pair, key, &frame(2, tail)), [0x82, 4, 0x20, 2, 0, 0]);
    assert_eq!(said(&mut pair, key, &frame(2, &[0xc0, 0])), [0x82, 2, 0xd0, 0]);
    assert_eq!(said(&mut pair, key, &frame(9, b"?")), [0x8a, 1, b'?']);
}

#[test]
fn a_client_whose_frames_are_none_is_told_and_leaves_its_will() {
    let mut pair = Pair::new();
    let mut watcher = Client::new(&mut pair, "watcher");
    watcher.subscribe(&mut pair, "will", 0);
    let key = opened(&mut pair);
    let with_will = [&b"\x10\x15\0\x04MQTT\x04\x06\0\x3c\0\x01c\0\x04will"[..], b"\0\0"].concat();
    let with_will = [&[with_will[0], with_will.len() as u8 - 2], &with_will[2..]].concat();
    assert_eq!(said(&mut pair, key, &frame(2, &with_will)), [0x82, 4, 0x20, 2, 0, 0]);
    assert_eq!(said(&mut pair, key, &frame(1, b"text")), [0x88, 2, 3, 0xeb]);
    pair.turn();
    assert_eq!(watcher.messages(&mut pair), [("will".to_owned(), String::new())]);
}

#[test]
fn a_request_for_something_else_gets_an_answer_and_the_end() {
    let mut pair = Pair::new();
    let key = pair.engine.handle_accept_mqtt_ws("192.0.2.1:5000", false, pair.now);
    let answer = said(&mut pair, key, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(answer.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&answer));
    assert!(pair.closed.contains(&key) || pair.ended.contains(&key));
}

#[test]
fn a_client_in_websocket_is_sent_to_a_port_for_websocket_alone() {
    let mut pair = Pair::new();
    pair.limit("heat", limit(10, 10, 1));
    assert!(pair.engine.set_mqtt_names("heat", vec!["plant/+/heat".into()], V3Excess::Delay));
    let follow = [&[0x26][..], &text("srtm-follow"), &text("1")].concat();
    let mut in_clear = Client::with(&mut pair, "p", true, &follow).0;
    in_clear.publish_5(&mut pair, "plant/7/heat", 1, 1, "x");
    let key = opened(&mut pair);
    said(&mut pair, key, &frame(2, &connect(Version::V5, "q", true, &follow)));
    let answer = said(&mut pair, key, &frame(2, &publish_5("plant/7/heat", 1, 1, "x")));
    assert_eq!(answer[2], 0x40, "{answer:02x?}");
    let now = pair.now;
    let mut mqtt = MqttAddresses { clear: "h:1883".into(), tls: "h:8883".into(), ..MqttAddresses::default() };
    let moved = ["p", "q"].map(|id| pair.engine.move_publisher("heat", id, "h:4150", &mqtt, 9, now));
    assert_eq!(moved, [1, 0]);
    mqtt.websocket = "h:8080".into();
    assert_eq!(pair.engine.move_publisher("heat", "q", "h:4150", &mqtt, 9, now), 1);
    pair.advance(S);
    let told = pair.take_bytes(key);
    assert!(told.windows(6).any(|bytes| bytes == b"h:8080"), "{told:02x?}");
}
