//! Rows of who may do what: one model for NSQ, HTTP and MQTT, renewed while clients are connected.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::digest;

use super::mqtt::client::{Client, packet, publish_5, text};
use super::pair::*;
use crate::config::{AccessAction, Config, TokenHolder, TopicRow, TopicRules};
use crate::event::Event;
use crate::keys::ConnKey;
use crate::mqtt::managed_names::V3Excess;

fn rules(rows: &[(AccessAction, &str)], tokens: &[(&str, &str)]) -> TopicRules {
    let row = |(action, pattern): &(AccessAction, &str)| TopicRow {
        identity: "cars".into(),
        action: *action,
        pattern: (*pattern).into(),
    };
    let token = |(name, secret): &(&str, &str)| TokenHolder {
        sha256: BASE64_STANDARD.encode(digest::digest(&digest::SHA256, secret.as_bytes())),
        name: (*name).into(),
        operator: *name == "ann",
    };
    TopicRules { rows: rows.iter().map(row).collect(), tokens: tokens.iter().map(token).collect() }
}

/// `cars` may write what is called roads, but not the secret one, and read news.
pub(crate) fn config() -> Config {
    let rows = [(AccessAction::Write, "roads*"), (AccessAction::Deny, "*secret"), (AccessAction::Read, "news*")];
    Config {
        auth_required: true,
        mqtt_anonymous: false,
        topic_rules: Some(rules(&rows, &[("cars", "c"), ("ann", "o"), ("idle", "i")])),
        ..Config::default()
    }
}

fn auth(pair: &mut Pair, secret: &str) -> (ConnKey, Vec<Frame>) {
    let key = pair.connect();
    let frames = pair.ask(key, [b"AUTH\n", &(secret.len() as u32).to_be_bytes()[..], secret.as_bytes()].concat());
    (key, frames)
}

fn http_publish(pair: &mut Pair, token: &str, topic: &str) -> String {
    let key = pair.connect_http();
    pair.send(
        key,
        format!(
            "POST /pub?topic={topic} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 1\r\n\r\nx"
        ),
    );
    pair.turn();
    pair.take_text(key).split(' ').nth(1).unwrap_or_default().to_owned()
}

/// The reason of the CONNACK.
pub(crate) fn mqtt_connect(pair: &mut Pair, user: &str, password: &str) -> (Client, u8) {
    let mut client = Client::accept(pair);
    let front = [&text("MQTT")[..], &[5, 0xc2, 0, 60, 0]].concat();
    let reason = client.ask(pair, &packet(0x10, &[front, text(user), text(user), text(password)].concat()))[3];
    (client, reason)
}

#[test]
fn nsq_clients_may_do_what_rows_of_their_token_say() {
    let mut pair = Pair::with(config());
    let (key, frames) = auth(&mut pair, "c");
    assert_eq!(frames, [response(r#"{"identity":"cars","identity_url":"","permission_count":3}"#)]);
    assert_eq!(pair.ask(key, pub_("roads-7", "x")), [ok()]);
    assert_eq!(
        pair.ask(key, pub_("roads-secret", "x")),
        [error(r#"E_UNAUTHORIZED AUTH failed for PUB on "roads-secret" """#)]
    );
    let (key, _) = auth(&mut pair, "c");
    assert_eq!(pair.ask(key, b"SUB news c\n"), [ok()]);
    let (key, _) = auth(&mut pair, "o");
    assert_eq!(pair.ask(key, pub_("roads-secret", "x")), [ok()], "an operator may do everything");
}

#[test]
fn an_unknown_token_is_refused_and_logged_and_one_without_rows_gets_nothing() {
    let mut pair = Pair::with(config());
    let (key, frames) = auth(&mut pair, "wrong");
    assert_eq!((frames, pair.ended.contains(&key)), (vec![error("E_AUTH_FAILED AUTH failed")], true));
    let denied =
        |event: &Event| matches!(event, Event::Denied { action: "connect", client, .. } if client == "192.0.2.1");
    assert!(pair.engine.poll_events().iter().any(denied));
    let (key, frames) = auth(&mut pair, "i");
    assert_eq!((frames, pair.ended.contains(&key)), (vec![error("E_UNAUTHORIZED AUTH no authorizations found")], true));
}

#[test]
fn http_publishes_are_judged_by_the_same_rows() {
    let mut pair = Pair::with(Config { http_token: "own".into(), ..config() });
    for (token, topic, status) in [
        ("c", "roads-7", "200"),
        ("c", "roads%2D7", "200"),
        ("c", "roads-secret", "403"),
        ("c", "news", "403"),
        ("c", "", "403"),
        ("o", "news", "200"),
        ("own", "news", "200"),
        ("wrong", "roads-7", "401"),
        ("", "roads-7", "401"),
    ] {
        assert_eq!(http_publish(&mut pair, token, topic), status, "{token} {topic}");
    }
}

#[test]
fn without_a_token_of_its_own_the_http_port_asks_for_one_of_the_rows() {
    let mut pair = Pair::with(config());
    assert_eq!(http_publish(&mut pair, "", "roads-7"), "401");
    assert_eq!(http_publish(&mut pair, "c", "roads-7"), "200");
}

#[test]
fn mqtt_clients_show_their_token_as_password_and_are_judged_by_the_same_rows() {
    let mut pair = Pair::with(config());
    for (user, password) in [("cars", "wrong"), ("ann", "c"), ("eva", "")] {
        assert_eq!(mqtt_connect(&mut pair, user, password).1, 0x86, "{user}");
    }
    let (mut cars, reason) = mqtt_connect(&mut pair, "cars", "c");
    let (mut ann, _) = mqtt_connect(&mut pair, "ann", "o");
    assert_eq!(reason, 0);
    for (name, reason) in [("roads/7", 0x10), ("roads/secret", 0x87), ("news", 0x87)] {
        assert_eq!(cars.ask(&mut pair, &publish_5(name, 1, 5, "x"))[4], reason, "{name}");
    }
    for (filter, reason) in [("news", 0), ("other", 0x80), ("#", 0), ("$share/g/news/1", 0), ("$share/g/#", 0x80)] {
        assert_eq!(cars.subscribe(&mut pair, filter, 0), reason, "{filter}");
    }
    for name in ["news", "news/secret", "roads/7"] {
        ann.publish_5(&mut pair, name, 0, 0, "y");
    }
    assert_eq!(cars.messages(&mut pair), [("news".to_owned(), "y".to_owned())]);
}

#[test]
fn a_name_that_belongs_to_a_topic_is_judged_as_the_topic() {
    let mut pair = Pair::with(config());
    assert!(pair.engine.set_mqtt_names("roads-7", vec!["plant/+/heat".into()], V3Excess::Delay));
    assert!(pair.engine.set_mqtt_names("closed", vec!["roads/#".into()], V3Excess::Delay));
    let (mut cars, _) = mqtt_connect(&mut pair, "cars", "c");
    for (name, reason) in [("plant/1/heat", 0x10), ("plant/1/cold", 0x87), ("roads/7", 0x87)] {
        assert_eq!(cars.ask(&mut pair, &publish_5(name, 1, 5, "x"))[4], reason, "{name}");
    }
}

#[test]
fn renewed_rows_count_at_once_for_all_who_are_connected() {
    let mut pair = Pair::with(config());
    let (nsq, _) = auth(&mut pair, "c");
    let (mut mqtt, _) = mqtt_connect(&mut pair, "cars", "c");
    pair.engine.set_topic_rules(rules(&[(AccessAction::Write, "lanes")], &[("cars", "c")]));
    assert_eq!(pair.ask(nsq, pub_("lanes", "x")), [ok()]);
    assert_eq!(mqtt.ask(&mut pair, &publish_5("lanes", 1, 5, "x"))[4], 0x10);
    assert_eq!(mqtt.ask(&mut pair, &publish_5("roads", 1, 6, "x"))[4], 0x87);
    assert_eq!(http_publish(&mut pair, "c", "roads-7"), "403");
    pair.engine.set_topic_rules(rules(&[(AccessAction::Write, "lanes")], &[("cars", "new")]));
    assert_eq!(pair.ask(nsq, pub_("lanes", "x")), [error(r#"E_UNAUTHORIZED AUTH failed for PUB on "lanes" """#)]);
    assert_eq!(mqtt.ask(&mut pair, &publish_5("lanes", 1, 7, "x"))[4], 0x87);
    assert_eq!(http_publish(&mut pair, "c", "lanes"), "401");
    assert_eq!(http_publish(&mut pair, "new", "lanes"), "200");
}

#[test]
fn what_waited_for_a_client_that_may_not_read_it_any_more_is_not_delivered() {
    let mut pair = Pair::with(config());
    let (mut ann, _) = mqtt_connect(&mut pair, "ann", "o");
    let connect = |pair: &mut Pair| {
        let mut client = Client::accept(pair);
        let keeps = [5, 0xc0, 0, 60, 5, 0x11, 0, 0, 0, 60]; // not a clean start; kept for 60 s
        let body = [&text("MQTT")[..], &keeps, &text("cars"), &text("cars"), &text("c")].concat();
        assert_eq!(client.ask(pair, &packet(0x10, &body))[3], 0);
        client
    };
    let mut cars = connect(&mut pair);
    assert_eq!(cars.subscribe(&mut pair, "#", 1), 1);
    cars.send(&mut pair, &[0xe0, 0]);
    pair.turn();
    for name in ["news/1", "news/2"] {
        ann.publish_5(&mut pair, name, 1, 5, "y");
    }
    let rows = [(AccessAction::Read, "news*"), (AccessAction::Deny, "news/1")];
    pair.engine.set_topic_rules(rules(&rows, &[("cars", "c"), ("ann", "o")]));
    let mut back = connect(&mut pair);
    assert_eq!(back.messages(&mut pair), [("news/2".to_owned(), "y".to_owned())]);
}

#[test]
fn a_member_of_a_group_that_may_not_read_any_more_gets_nothing_of_it() {
    let mut pair = Pair::with(config());
    let (mut cars, _) = mqtt_connect(&mut pair, "cars", "c");
    let (mut ann, _) = mqtt_connect(&mut pair, "ann", "o");
    for client in [&mut cars, &mut ann] {
        assert_eq!(client.subscribe(&mut pair, "$share/g/news/1", 0), 0);
    }
    pair.engine.set_topic_rules(rules(&[(AccessAction::Write, "lanes")], &[("cars", "c"), ("ann", "o")]));
    for payload in ["x", "y"] {
        ann.publish_5(&mut pair, "news/1", 0, 0, payload);
    }
    assert_eq!((cars.messages(&mut pair).len(), ann.messages(&mut pair).len()), (0, 2));
}

#[test]
fn a_consumer_that_may_not_read_any_more_is_ended() {
    let mut pair = Pair::with(config());
    let consumers = ["c", "o"].map(|secret| auth(&mut pair, secret).0);
    for key in consumers {
        assert_eq!(pair.ask(key, b"SUB news c\n"), [ok()]);
        pair.send(key, b"RDY 9\n");
    }
    pair.engine.set_topic_rules(rules(&[(AccessAction::Write, "lanes")], &[("cars", "c"), ("ann", "o")]));
    let (ann, _) = auth(&mut pair, "o");
    for _ in 0..2 {
        assert_eq!(pair.ask(ann, pub_("news", "x")), [ok()]);
    }
    assert_eq!(pair.take(consumers[0]), [error(r#"E_UNAUTHORIZED AUTH failed for SUB on "news" "c""#)]);
    assert_eq!((pair.ended.contains(&consumers[0]), pair.bodies(consumers[1]).len()), (true, 2));
}
