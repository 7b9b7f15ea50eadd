//! AUTH and what an authorization allows, with Python's part played by the test: section 12.

use super::mqtt::access::rows;
use super::pair::*;
use crate::config::{AccessAction, AccessRules, Config};
use crate::event::Event;
use crate::keys::ConnKey;
use crate::time::NS_PER_S;

const ANSWER: &str = r#"{"ttl":30,"identity":"u","identity_url":"http://u","authorizations":
    [{"topic":"^t$","channels":["^c","^$"],"permissions":["subscribe","publish"]}]}"#;

fn pair() -> Pair {
    Pair::with(Config { auth_servers: true, ..Config::default() })
}

fn auth(secret: &str) -> Vec<u8> {
    [b"AUTH\n", &(secret.len() as u32).to_be_bytes()[..], secret.as_bytes()].concat()
}

/// Connections that ask for an authorization, with their secrets.
fn asked(pair: &mut Pair) -> Vec<(u64, String)> {
    let events = pair.engine.poll_events().into_iter();
    events
        .filter_map(|event| {
            if let Event::AuthAsked { connection, secret, .. } = event { Some((connection, secret)) } else { None }
        })
        .collect()
}

fn answer(pair: &mut Pair, key: ConnKey, json: Option<&str>) -> Vec<Frame> {
    let asked = asked(pair);
    assert_eq!(asked.len(), 1, "{asked:?}");
    let _reason = pair.engine.set_authorization(asked[0].0, json.map(str::as_bytes), pair.now);
    pair.turn();
    pair.take(key)
}

fn authorized(pair: &mut Pair, json: &str) -> ConnKey {
    let key = pair.connect();
    assert_eq!(pair.ask(key, auth("s")), []);
    let frames = answer(pair, key, Some(json));
    assert!(matches!(&frames[..], [Frame::Response(text)] if text.contains("permission_count")), "{frames:?}");
    key
}

#[test]
fn auth_is_answered_with_who_one_is() {
    let mut pair = pair();
    let key = pair.connect();
    assert_eq!(pair.ask(key, auth("secret")), []);
    let asked = pair.engine.poll_events();
    let [Event::AuthAsked { connection, secret, remote_ip, tls, common_name, .. }] = &asked[..] else {
        panic!("{asked:?}")
    };
    assert_eq!((&secret[..], &remote_ip[..], *tls, &common_name[..]), ("c2VjcmV0", "192.0.2.1", false, ""));
    assert_eq!(pair.engine.set_authorization(*connection, Some(ANSWER.as_bytes()), pair.now), Ok(()));
    pair.turn();
    assert_eq!(pair.take(key), [response(r#"{"identity":"u","identity_url":"http://u","permission_count":1}"#)]);
    pair.ask(key, pub_("t", "x"));
    let client = pair.snapshot()["producers"][0].clone();
    assert_eq!(
        (&client["authed"], &client["auth_identity"], &client["auth_identity_url"]),
        (&true.into(), &"u".into(), &"http://u".into())
    );
}

#[test]
fn identify_says_that_auth_is_required() {
    let mut pair = pair();
    let key = pair.connect();
    let frames = pair.ask(key, identify(r#"{"feature_negotiation":true}"#));
    assert!(matches!(&frames[..], [Frame::Response(json)] if json.contains(r#""auth_required":true"#)), "{frames:?}");
}

#[test]
fn what_needs_a_permission_needs_auth_first() {
    for (command, name) in [
        (pub_("t", "x"), "PUB"),
        (mpub("t", &["x"]), "MPUB"),
        (dpub("t", 1, "x"), "DPUB"),
        (b"SUB t c\n".to_vec(), "SUB"),
    ] {
        let mut pair = pair();
        let key = pair.connect();
        assert_eq!(pair.ask(key, command), [Frame::Error(format!("E_AUTH_FIRST AUTH required before {name}"))]);
        assert!(pair.ended.contains(&key));
        assert_eq!(pair.snapshot()["topics"], serde_json::json!([]), "nothing was made");
    }
}

#[test]
fn what_is_authorized_works_and_the_rest_is_refused_by_name() {
    let allowed: [(Vec<u8>, &str); 4] = [
        (pub_("t", "x"), "PUB"),
        (mpub("t", &["x"]), "MPUB"),
        (dpub("t", 1, "x"), "DPUB"),
        (b"SUB t cc\n".to_vec(), "SUB"),
    ];
    for (command, name) in allowed {
        let mut pair = pair();
        let key = authorized(&mut pair, ANSWER);
        assert_eq!(pair.ask(key, command), [ok()], "{name}");
    }
    let refused: [(Vec<u8>, &str); 4] = [
        (pub_("tt", "x"), r#"PUB on "tt" """#),
        (mpub("u", &["x"]), r#"MPUB on "u" """#),
        (dpub("u", 1, "x"), r#"DPUB on "u" """#),
        (b"SUB t d\n".to_vec(), r#"SUB on "t" "d""#),
    ];
    for (command, what) in refused {
        let mut pair = pair();
        let key = authorized(&mut pair, ANSWER);
        assert_eq!(pair.ask(key, command), [Frame::Error(format!("E_UNAUTHORIZED AUTH failed for {what}"))]);
        assert!(pair.ended.contains(&key));
        assert_eq!(pair.snapshot()["topics"], serde_json::json!([]), "nothing was made");
    }
}

#[test]
fn a_permission_holds_for_its_kind_and_publishing_needs_a_pattern_that_takes_no_channel() {
    let rule = |channels: &str, permission: &str| {
        format!(
            r#"{{"ttl":1,"authorizations":[{{"topic":"t","channels":["{channels}"],"permissions":["{permission}"]}}]}}"#
        )
    };
    let cases = [
        (rule(".*", "publish"), true, false),
        (rule(".*", "subscribe"), false, true),
        (rule("^c$", "publish"), false, false),
        (rule("c", "subscribe"), false, true),
    ];
    for (json, publishes, subscribes) in cases {
        let mut pair = pair();
        let (publisher, consumer) = (authorized(&mut pair, &json), authorized(&mut pair, &json));
        assert_eq!(pair.ask(publisher, pub_("t", "x")) == [ok()], publishes, "{json}");
        assert_eq!(pair.ask(consumer, "SUB t c\n") == [ok()], subscribes, "{json}");
    }
}

#[test]
fn patterns_are_searched_unanchored() {
    let json = r#"{"ttl":1,"authorizations":[{"topic":"ors","channels":[""],"permissions":["publish"]}]}"#;
    let mut pair = pair();
    let key = authorized(&mut pair, json);
    assert_eq!(pair.ask(key, pub_("sensors.1", "x")), [ok()]);
}

#[test]
fn an_answer_that_is_none_or_breaks_a_rule_fails() {
    let huge = format!(
        r#"{{"ttl":1,"authorizations":[{{"topic":"{}","channels":[""],"permissions":["publish"]}}]}}"#,
        "(a{1000}){1000}"
    );
    let cases = [
        (None, "E_AUTH_FAILED AUTH failed"),
        (Some("nonsense"), "E_AUTH_FAILED AUTH failed"),
        (Some(r#"{"ttl":0,"authorizations":[]}"#), "E_AUTH_FAILED AUTH failed"),
        (
            Some(r#"{"ttl":1,"authorizations":[{"topic":"t","channels":["("],"permissions":["publish"]}]}"#),
            "E_AUTH_FAILED AUTH failed",
        ),
        (
            Some(r#"{"ttl":1,"authorizations":[{"topic":"t","channels":[""],"permissions":["rule"]}]}"#),
            "E_AUTH_FAILED AUTH failed",
        ),
        (Some(&huge[..]), "E_AUTH_FAILED AUTH failed"),
        (Some(r#"{"ttl":1,"authorizations":[]}"#), "E_UNAUTHORIZED AUTH no authorizations found"),
    ];
    for (json, text) in cases {
        let mut pair = pair();
        let key = pair.connect();
        pair.send(key, auth("s"));
        pair.send(key, pub_("t", "x"));
        pair.turn();
        assert_eq!(answer(&mut pair, key, json), [error(text)], "{json:?}");
        assert!(pair.ended.contains(&key));
        assert_eq!(pair.snapshot()["topics"], serde_json::json!([]), "what came behind it did not run");
    }
}

#[test]
fn what_is_sent_behind_auth_waits_for_the_answer() {
    let mut pair = pair();
    let key = pair.connect();
    assert_eq!(pair.ask(key, [auth("s"), pub_("t", "a"), pub_("t", "b")].concat()), []);
    let frames = answer(&mut pair, key, Some(ANSWER));
    assert_eq!(frames[1..], [ok(), ok()]);
}

#[test]
fn auth_comes_once() {
    let mut pair = pair();
    let key = authorized(&mut pair, ANSWER);
    assert_eq!(pair.ask(key, auth("s")), [error("E_INVALID AUTH already set")]);
}

#[test]
fn a_secret_is_bounded() {
    let mut pair = pair();
    let key = pair.connect();
    assert_eq!(pair.ask(key, b"AUTH\n\0\x01\0\x01"), [error("E_BAD_BODY AUTH body too big 65537 > 65536")]);
}

#[test]
fn after_its_time_an_authorization_is_asked_for_again_before_the_next_checked_command() {
    let mut pair = pair();
    let key = authorized(&mut pair, ANSWER);
    pair.advance(29 * S);
    assert_eq!(pair.ask(key, pub_("t", "x")), [ok()]);
    pair.advance(2 * S);
    pair.take(key);
    assert_eq!(pair.ask(key, "NOP\n"), []);
    assert_eq!(asked(&mut pair), [], "a NOP needs no permission");
    assert_eq!(pair.ask(key, [pub_("t", "x"), pub_("t", "y")].concat()), []);
    assert_eq!(
        answer(&mut pair, key, Some(ANSWER)),
        [ok(), ok()],
        "one question, and no answer to an AUTH that nobody sent"
    );
    let counts = pair.snapshot()["producers"][0]["pub_counts"].clone();
    assert_eq!(counts, serde_json::json!([{"topic": "t", "count": 3}]));
}

#[test]
fn an_authorization_that_was_taken_back_ends_the_next_publish() {
    let revoked = ANSWER.replace("^t$", "^other$");
    for (json, text) in
        [(Some(&revoked[..]), r#"E_UNAUTHORIZED AUTH failed for PUB on "t" """#), (None, "E_AUTH_FAILED AUTH failed")]
    {
        let mut pair = pair();
        let key = authorized(&mut pair, ANSWER);
        assert_eq!(pair.ask(key, pub_("t", "x")), [ok()]);
        pair.advance(31 * S);
        pair.take(key);
        assert_eq!(pair.ask(key, pub_("t", "y")), []);
        assert_eq!(answer(&mut pair, key, json), [error(text)]);
        assert_eq!(pair.topic()["message_count"], 1);
    }
}

#[test]
fn an_answer_for_a_connection_that_is_gone_is_dropped() {
    let mut pair = pair();
    let key = pair.connect();
    pair.ask(key, auth("s"));
    let asked = asked(&mut pair);
    assert!(pair.engine.awaits_authorization(asked[0].0));
    pair.close(key);
    assert!(!pair.engine.awaits_authorization(asked[0].0));
    assert_eq!(pair.engine.set_authorization(asked[0].0, Some(ANSWER.as_bytes()), pair.now), Ok(()));
}

#[test]
fn others_go_on_while_an_auth_server_is_slow() {
    let mut pair = pair();
    let quick = authorized(&mut pair, ANSWER);
    let slow = pair.connect();
    assert_eq!(pair.ask(slow, [auth("s"), pub_("t", "late")].concat()), []);
    assert_eq!(pair.ask(quick, pub_("t", "x")), [ok()]);
    assert_eq!(pair.topic()["message_count"], 1);
}

fn http_pair(http_token: &str) -> Pair {
    let http_token = http_token.into();
    Pair::with(Config { auth_servers: true, auth_by_http: true, http_token, ..Config::default() })
}

fn publish(topic: &str, shown: &str) -> String {
    format!("POST /pub?topic={topic} HTTP/1.1\r\nHost: x\r\n{shown}Content-Length: 1\r\n\r\nx")
}

/// The statuses of what was answered.
fn statuses(pair: &mut Pair, key: ConnKey) -> Vec<String> {
    let text = pair.take_text(key);
    text.split("HTTP/1.1 ").skip(1).map(|answer| answer.split(' ').next().unwrap_or_default().to_owned()).collect()
}

/// Sends requests of which one has to wait for an auth server; gives who is asked for, and the statuses.
fn ask_by_http(pair: &mut Pair, key: ConnKey, requests: &str, json: Option<&str>) -> ([String; 2], Vec<String>) {
    pair.send(key, requests);
    pair.turn();
    assert_eq!(statuses(pair, key), [""; 0], "it waits");
    let mut events = pair.engine.poll_events();
    events.retain(|event| matches!(event, Event::AuthAsked { .. }));
    let [Event::AuthAsked { connection, secret, username, .. }] = &events[..] else { panic!("{events:?}") };
    let _reason = pair.engine.set_authorization(*connection, json.map(str::as_bytes), pair.now);
    pair.turn();
    ([secret.clone(), username.clone()], statuses(pair, key))
}

const BEARER: &str = "Authorization: Bearer secret\r\n"; // c2VjcmV0 in base64
const BASIC: &str = "Authorization: Basic ZXZhOnNlY3JldA==\r\n"; // eva:secret

#[test]
fn publishes_by_http_wait_for_the_auth_server_once_a_connection_and_secret() {
    let mut pair = http_pair("");
    let key = pair.connect_http();
    let requests = [publish("t", BEARER), publish("t", BEARER), publish("other", BEARER)].concat();
    let (asked_for, answered) = ask_by_http(&mut pair, key, &requests, Some(ANSWER));
    assert_eq!((asked_for, answered), (["c2VjcmV0".into(), "".into()], ["200", "200", "403"].map(Into::into).into()));
    let (asked_for, answered) = ask_by_http(&mut pair, key, &publish("t", BASIC), Some(ANSWER));
    assert_eq!((asked_for, answered), (["c2VjcmV0".into(), "eva".into()], vec!["200".into()]));
    pair.advance(31 * NS_PER_S);
    let (_, answered) = ask_by_http(&mut pair, key, &publish("t", BASIC), None);
    assert_eq!(answered, ["401"], "it is asked about again after its time");
    let (_, answered) = ask_by_http(&mut pair, key, &publish("t", BASIC), Some(ANSWER));
    assert_eq!(answered, ["200"], "and after each refusal");
}

#[test]
fn a_body_that_comes_in_chunks_or_lines_waits_for_the_auth_server_too() {
    let chunked = |rest: &str| {
        format!(
            "POST /mpub?topic=t HTTP/1.1\r\nHost: x\r\n{BEARER}Transfer-Encoding: chunked\r\n\r\n3\r\na\nb\r\n{rest}"
        )
    };
    for (json, status) in [(Some(ANSWER), "200"), (None, "401")] {
        let mut pair = http_pair("");
        let key = pair.connect_http();
        let requests = chunked("0\r\n\r\n") + &publish("t", BEARER);
        let refused_again = json.is_none();
        let (_, answered) = ask_by_http(&mut pair, key, &requests, json);
        assert_eq!(answered[0], status);
        assert_eq!(answered.len(), if refused_again { 1 } else { 2 }, "what is refused is asked about again");
        let key = pair.connect_http();
        let head = format!("POST /mpub?topic=t HTTP/1.1\r\nHost: x\r\n{BASIC}Content-Length: 3\r\n\r\na");
        pair.send(key, head);
        pair.turn();
        let _others = asked(&mut pair);
        let (_, answered) = ask_by_http(&mut pair, key, "\nb", json);
        assert_eq!(answered, [status]);
    }
}

#[test]
fn who_shows_nothing_by_http_or_no_secret_is_refused_and_no_server_asked() {
    let mut pair = http_pair("own");
    for (shown, status) in [
        ("", "401"),
        ("Authorization: Bearer own\r\n", "200"),
        ("Authorization: Digest x\r\n", "401"),
        ("Authorization: Basic ?\r\n", "401"),
    ] {
        let key = pair.connect_http();
        pair.send(key, publish("any", shown));
        pair.turn();
        assert_eq!((statuses(&mut pair, key), asked(&mut pair).len()), (vec![status.to_owned()], 0), "{shown}");
    }
}

#[test]
fn as_at_nsqd_the_server_is_not_asked_about_http_unless_that_is_set() {
    let mut pair = pair();
    let key = pair.connect_http();
    pair.send(key, [publish("t", ""), publish("t", BEARER)].concat());
    pair.turn();
    assert_eq!((statuses(&mut pair, key), asked(&mut pair).len()), (vec!["200".to_owned(); 2], 0));
}

#[test]
fn renewed_rows_leave_a_request_that_waits_for_its_server_waiting() {
    let mut pair = http_pair("");
    let key = pair.connect_http();
    pair.send(key, publish("t", BEARER));
    pair.turn();
    pair.engine.set_access(AccessRules { rows: Some(Vec::new()), ..AccessRules::default() });
    let [(connection, _)] = &asked(&mut pair)[..] else { panic!("it is not asked about") };
    assert_eq!(pair.engine.set_authorization(*connection, Some(ANSWER.as_bytes()), pair.now), Ok(()));
    pair.turn();
    assert_eq!(statuses(&mut pair, key), ["403"], "no row allows it");
}

#[test]
fn beside_an_auth_server_rows_must_allow_too_and_are_those_of_whom_it_names() {
    let access = AccessRules { rows: rows(&[("u", AccessAction::Read, "+")]), ..AccessRules::default() };
    let mut pair = Pair::with(Config { auth_servers: true, access, ..Config::default() });
    let key = authorized(&mut pair, ANSWER);
    assert_eq!(pair.ask(key, b"SUB t c\n"), [ok()]);
    let key = authorized(&mut pair, ANSWER);
    assert_eq!(pair.ask(key, pub_("t", "x")), [error(r#"E_UNAUTHORIZED AUTH failed for PUB on "t" """#)]);
    let key = pair.connect();
    pair.ask(key, auth("s"));
    let frames = answer(&mut pair, key, Some(&ANSWER.replace(r#""u""#, r#""other""#)));
    assert_eq!(frames, [error("E_UNAUTHORIZED AUTH no authorizations found")]);
}
