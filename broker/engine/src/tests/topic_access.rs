//! Rows of who may do what: one model for NSQ, HTTP and MQTT, renewed while clients are connected.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::digest;

use super::mqtt::access::{eva, rows};
use super::mqtt::client::{Client, packet, publish_5, text};
use super::pair::*;
use crate::config::{AccessAction, AccessRow, AccessRules, Config, RowForm, TokenHolder};
use crate::event::Event;
use crate::keys::ConnKey;
use crate::mqtt::managed_names::V3Excess;
use crate::time::NS_PER_S;

fn rules(rows: &[(AccessAction, &str)], tokens: &[(&str, &str)]) -> AccessRules {
    let row = |(action, pattern): &(AccessAction, &str)| AccessRow {
        identity: "cars".into(),
        action: *action,
        pattern: (*pattern).into(),
        form: RowForm::Stars,
    };
    let token = |(name, secret): &(&str, &str)| TokenHolder {
        sha256: BASE64_STANDARD.encode(digest::digest(&digest::SHA256, secret.as_bytes())),
        name: (*name).into(),
        operator: *name == "ann",
    };
    AccessRules {
        rows: Some(rows.iter().map(row).collect()),
        users: None,
        tokens: Some(tokens.iter().map(token).collect()),
    }
}

/// `cars` may write what is called roads, but not the secret one, and read news.
pub(crate) fn config() -> Config {
    let rows = [(AccessAction::Write, "roads*"), (AccessAction::Deny, "*secret"), (AccessAction::Read, "news*")];
    Config {
        anonymous: false,
        access: rules(&rows, &[("cars", "c"), ("ann", "o"), ("idle", "i")]),
        ..Config::default()
    }
}

fn auth(pair: &mut Pair, secret: &str) -> (ConnKey, Vec<Frame>) {
    let key = pair.connect();
    let frames = pair.ask(key, [b"AUTH\n", &(secret.len() as u32).to_be_bytes()[..], secret.as_bytes()].concat());
    (key, frames)
}

fn http_publish(pair: &mut Pair, token: &str, topic: &str) -> String {
    http_publish_as(pair, &format!("Authorization: Bearer {token}\r\n"), topic)
}

/// `shown`: header lines. Gives the status.
fn http_publish_as(pair: &mut Pair, shown: &str, topic: &str) -> String {
    let key = pair.connect_http();
    pair.send(key, format!("POST /pub?topic={topic} HTTP/1.1\r\nHost: x\r\n{shown}Content-Length: 1\r\n\r\nx"));
    pair.turn();
    pair.take_text(key).split(' ').nth(1).unwrap_or_default().to_owned()
}

fn basic(secret: &str) -> String {
    format!("Authorization: Basic {}\r\n", BASE64_STANDARD.encode(secret))
}

/// Eva, whose password is `secret`, and rows in Mosquitto's form, of her and of who shows no name.
fn with_users(anonymous: bool) -> Config {
    let rows = rows(&[
        ("", AccessAction::Write, "open"),
        ("eva", AccessAction::ReadWrite, "own"),
        ("eva", AccessAction::ReadWrite, "plant/+/heat"),
        ("eva", AccessAction::Deny, "secret"),
        ("eva", AccessAction::Read, "+"),
    ]);
    Config { access: AccessRules { rows, users: Some(vec![eva()]), tokens: None }, anonymous, ..Config::default() }
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
    pair.engine.set_access(rules(&[(AccessAction::Write, "lanes")], &[("cars", "c")]));
    assert_eq!(pair.ask(nsq, pub_("lanes", "x")), [ok()]);
    assert_eq!(mqtt.ask(&mut pair, &publish_5("lanes", 1, 5, "x"))[4], 0x10);
    assert_eq!(mqtt.ask(&mut pair, &publish_5("roads", 1, 6, "x"))[4], 0x87);
    assert_eq!(http_publish(&mut pair, "c", "roads-7"), "403");
    pair.engine.set_access(rules(&[(AccessAction::Write, "lanes")], &[("cars", "new")]));
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
    pair.engine.set_access(rules(&rows, &[("cars", "c"), ("ann", "o")]));
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
    pair.engine.set_access(rules(&[(AccessAction::Write, "lanes")], &[("cars", "c"), ("ann", "o")]));
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
    pair.engine.set_access(rules(&[(AccessAction::Write, "lanes")], &[("cars", "c"), ("ann", "o")]));
    let (ann, _) = auth(&mut pair, "o");
    for _ in 0..2 {
        assert_eq!(pair.ask(ann, pub_("news", "x")), [ok()]);
    }
    assert_eq!(pair.take(consumers[0]), [error(r#"E_UNAUTHORIZED AUTH failed for SUB on "news" "c""#)]);
    assert_eq!((pair.ended.contains(&consumers[0]), pair.bodies(consumers[1]).len()), (true, 2));
}

#[test]
fn users_of_the_password_file_say_auth_with_name_and_password() {
    let mut pair = Pair::with(with_users(false));
    let key = pair.connect();
    let frames = pair.ask(key, identify(r#"{"feature_negotiation":true}"#));
    assert!(matches!(&frames[..], [Frame::Response(json)] if json.contains(r#""auth_required":true"#)), "{frames:?}");
    assert_eq!(pair.ask(key, pub_("open", "x")), [error("E_AUTH_FIRST AUTH required before PUB")]);
    for wrong in ["eva:wrong", "eva", "eva:", ":secret", "ann:secret", "\u{fc}:x"] {
        let (key, frames) = auth(&mut pair, wrong);
        assert_eq!((frames, pair.ended.contains(&key)), (vec![error("E_AUTH_FAILED AUTH failed")], true), "{wrong}");
    }
    let (key, frames) = auth(&mut pair, "eva:secret");
    assert_eq!(frames, [response(r#"{"identity":"eva","identity_url":"","permission_count":4}"#)]);
    assert_eq!(pair.ask(key, pub_("own", "x")), [ok()]);
    assert_eq!(pair.ask(key, pub_("open", "x")), [error(r#"E_UNAUTHORIZED AUTH failed for PUB on "open" """#)]);
}

#[test]
fn lines_of_mosquittos_file_meet_an_nsq_topic_by_its_own_name() {
    let mut pair = Pair::with(with_users(false));
    assert!(pair.engine.set_mqtt_names("heat", vec!["plant/+/heat".into()], V3Excess::Delay));
    for (topic, is_allowed) in [("heat", true), ("anything", true), ("secret", false)] {
        let (key, _) = auth(&mut pair, "eva:secret");
        let frames = pair.ask(key, format!("SUB {topic} c\n"));
        assert_eq!(frames == [ok()], is_allowed, "{topic} {frames:?}");
    }
    let (key, _) = auth(&mut pair, "eva:secret");
    let denied = [error(r#"E_UNAUTHORIZED AUTH failed for PUB on "heat" """#)];
    assert_eq!(pair.ask(key, pub_("heat", "x")), denied, "plant/+/heat is not its own name");
    let (mut mqtt, _) = mqtt_connect(&mut pair, "eva", "secret");
    assert_eq!(mqtt.ask(&mut pair, &publish_5("plant/1/heat", 1, 5, "x")), [0x40, 2, 0, 5]);
}

#[test]
fn http_asks_for_a_user_or_a_token_and_wrong_ones_publish_nothing() {
    let mut pair = Pair::with(with_users(false));
    for (shown, topic, status) in [
        (basic("eva:secret"), "own", "200"),
        (basic("eva:secret"), "open", "403"),
        (basic("eva:wrong"), "own", "401"),
        (basic("eva"), "own", "401"),
        ("Authorization: Basic ?\r\n".into(), "own", "401"),
        ("Authorization: Digest eva:secret\r\n".into(), "own", "401"),
        (String::new(), "open", "401"),
    ] {
        assert_eq!(http_publish_as(&mut pair, &shown, topic), status, "{shown} {topic}");
    }
    assert_eq!(pair.engine.topics.len(), 1);
    let key = pair.connect_http();
    for (secret, status) in [("eva:secret", "200"), ("eva:wrong", "401"), ("eva:secret", "200")] {
        pair.send(
            key,
            format!("POST /pub?topic=own HTTP/1.1\r\nHost: x\r\n{}Content-Length: 1\r\n\r\nx", basic(secret)),
        );
        pair.turn();
        let answer = pair.take_text(key);
        assert_eq!(answer.split(' ').nth(1), Some(status), "{answer}");
        assert_eq!(answer.contains("WWW-Authenticate: Basic"), status == "401", "{answer}");
    }
}

#[test]
fn the_brokers_own_token_publishes_by_http_beside_users() {
    let mut pair = Pair::with(Config { http_token: "own".into(), ..with_users(true) });
    assert_eq!(http_publish(&mut pair, "own", "anything"), "200");
    assert_eq!(http_publish_as(&mut pair, &basic("eva:secret"), "own"), "200");
    assert_eq!(http_publish_as(&mut pair, "", "open"), "401", "the token is asked for as without users");
}

#[test]
fn where_nobody_needs_a_name_who_shows_none_has_the_rows_of_nobody() {
    let nobody_asked = Config { access: AccessRules { users: None, ..with_users(true).access }, ..Config::default() };
    for (config, may_be_eva) in [(with_users(true), true), (nobody_asked, false)] {
        let mut pair = Pair::with(config);
        let key = pair.connect();
        let frames = pair.ask(key, identify(r#"{"feature_negotiation":true}"#));
        assert!(matches!(&frames[..], [Frame::Response(json)] if json.contains(r#""auth_required":false"#)));
        assert_eq!(pair.ask(key, pub_("open", "x")), [ok()]);
        assert_eq!(pair.ask(key, pub_("own", "x")), [error(r#"E_UNAUTHORIZED AUTH failed for PUB on "own" """#)]);
        assert_eq!(http_publish_as(&mut pair, "", "open"), "200");
        assert_eq!(http_publish_as(&mut pair, "", "own"), "403");
        let (key, frames) = auth(&mut pair, "eva:secret");
        match may_be_eva {
            true => assert_eq!(pair.ask(key, pub_("own", "x")), [ok()]),
            false => assert_eq!(frames, [error("E_AUTH_DISABLED AUTH disabled")]),
        }
        let by_basic = http_publish_as(&mut pair, &basic("eva:secret"), "own");
        assert_eq!(by_basic, if may_be_eva { "200" } else { "403" }, "no name is taken at its word");
    }
}

#[test]
fn a_broker_that_asks_nothing_takes_who_shows_something_all_the_same() {
    let mut pair = Pair::new();
    for shown in [String::new(), "Authorization: Bearer x\r\n".into(), basic("eva:secret")] {
        assert_eq!(http_publish_as(&mut pair, &shown, "any"), "200", "{shown}");
    }
}

#[test]
fn without_rows_a_user_may_do_everything() {
    let rules = AccessRules { users: Some(vec![eva()]), ..AccessRules::default() };
    let mut pair = Pair::with(Config { access: rules, anonymous: false, ..Config::default() });
    let (key, frames) = auth(&mut pair, "eva:secret");
    assert_eq!(frames, [response(r#"{"identity":"eva","identity_url":"","permission_count":1}"#)]);
    assert_eq!(pair.ask(key, pub_("any", "x")), [ok()]);
    assert_eq!(http_publish_as(&mut pair, &basic("eva:secret"), "any"), "200");
}

#[test]
fn renewed_rows_of_nobody_end_consumers_that_said_no_auth() {
    let of = |pattern| AccessRules { rows: rows(&[("", AccessAction::Read, pattern)]), ..AccessRules::default() };
    let mut pair = Pair::with(Config { access: of("news"), ..Config::default() });
    let key = pair.connect();
    assert_eq!(pair.ask(key, b"SUB news c\n"), [ok()]);
    pair.engine.set_access(of("+"));
    pair.turn();
    assert!(!pair.ended.contains(&key));
    pair.engine.set_access(of("other"));
    pair.turn();
    assert_eq!(pair.take(key), [error(r#"E_UNAUTHORIZED AUTH failed for SUB on "news" "c""#)]);
}

#[test]
fn who_is_denied_something_by_nsq_or_http_is_told_to_the_operator_by_name_or_address() {
    let mut pair = Pair::with(with_users(false));
    let denied = |pair: &mut Pair| {
        let told = pair.engine.poll_events().into_iter().filter_map(|event| match event {
            Event::Denied { action, client, name, .. } => Some(format!("{action} {client} {name}")),
            _ => None,
        });
        let told: Vec<String> = told.collect();
        pair.advance(61 * NS_PER_S);
        told
    };
    let key = pair.connect();
    pair.ask(key, pub_("own", "x"));
    assert_eq!(denied(&mut pair), ["connect 192.0.2.1 "]);
    for command in [pub_("open", "x"), b"SUB secret c\n".to_vec()] {
        let (key, _) = auth(&mut pair, "eva:secret");
        pair.ask(key, command);
    }
    assert_eq!(denied(&mut pair), ["publish eva open", "subscribe eva secret"]);
    http_publish_as(&mut pair, &basic("eva:wrong"), "own");
    http_publish_as(&mut pair, &basic("eva:secret"), "open");
    assert_eq!(denied(&mut pair), ["connect 192.0.2.1 ", "publish eva open"]);
}
