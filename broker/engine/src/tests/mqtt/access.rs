//! Who may connect, publish and subscribe; and the port inside TLS.

use crate::clients::mqtt_client::MqttAddresses;
use crate::config::{
    AccessAction, AccessRow, AccessRules, ClientAuth, Config, MqttIdentity, RowForm, TlsRequired, User,
};
use crate::event::Event;
use crate::harness::pair::{Pair, limit};
use crate::protocol::mqtt::version::Version;
use crate::tests::mqtt::client::{Client, connect, packet, publish_5, subscribe, text};
use crate::time::NS_PER_S as S;
use crate::transport::testing::{self, Client as TlsClient, TLS13, tls_config};

/// Rows as Mosquitto's file has them; user "": of who has no name.
pub(crate) fn rows(rows: &[(&str, AccessAction, &str)]) -> Option<Vec<AccessRow>> {
    let row = |(user, action, pattern): &(&str, AccessAction, &str)| AccessRow {
        identity: (*user).into(),
        action: *action,
        pattern: (*pattern).into(),
        form: RowForm::Filter,
    };
    Some(rows.iter().map(row).collect())
}

/// The user whose password is `secret`.
pub(crate) fn eva() -> User {
    let salt = "jE84i/ex3+60MdvR".into();
    let hash = "lCM1kkHZMU8mjB/CHINVdjNm5i1TO8rkzUp2eao+Oge8w2SBcj5fHDbLPB5A/NeZiv1zmBYOndUSpkjuCwfv6A==".into();
    User { name: "eva".into(), iterations: 101, salt, hash }
}

/// A CONNECT of 5.0 with user name and password.
fn connect_as(id: &str, user: &str, password: &str) -> Vec<u8> {
    let front = [&text("MQTT")[..], &[5, 0xc2, 0, 60, 0]].concat();
    packet(0x10, &[front, text(id), text(user), text(password)].concat())
}

#[test]
fn with_users_nobody_connects_without_the_password_of_one() {
    let config = Config {
        access: AccessRules { users: Some(vec![eva()]), ..AccessRules::default() },
        anonymous: false,
        ..Config::default()
    };
    let mut pair = Pair::with(config);
    for (user, password, code) in
        [("eva", "secret", 0), ("eva", "secret", 0), ("eva", "wrong", 0x86), ("x", "secret", 0x86)]
    {
        let mut client = Client::accept(&mut pair);
        assert_eq!(client.ask(&mut pair, &connect_as("client", user, password))[3], code, "{user} {password}");
        assert_eq!(client.has_ended(&pair), code > 0);
    }
    let mut nobody = Client::accept(&mut pair);
    assert_eq!(nobody.ask(&mut pair, &connect(Version::V3_1_1, "client", true, &[])), [0x20, 2, 0, 4]);
    assert_eq!(pair.engine.mqtt.counters.denied, 3);
}

#[test]
fn a_check_of_a_password_is_charged_by_the_iterations_of_its_user_and_one_that_hashes_nothing_is_free() {
    let users = [(0, "plain"), (101, "eva"), (10_000, "slow")];
    let users = users.map(|(iterations, name)| User { name: name.into(), iterations, ..eva() });
    let config = Config {
        access: AccessRules { users: Some(users.into()), ..AccessRules::default() },
        anonymous: false,
        ..Config::default()
    };
    let mut pair = Pair::with(config);
    let mut charged = |name: &str, password: &str| {
        let client = Client::accept(&mut pair);
        pair.send(client.key, connect_as("client", name, password));
        pair.turn();
        pair.engine.conns[client.key].deficit.used
    };
    let free = charged("nobody", "wrong");
    for (name, password, units) in
        [("plain", "wrong", 10), ("eva", "wrong", 1_010), ("slow", "wrong", 100_000), ("eva", "secret", 1_010)]
    {
        assert_eq!(charged(name, password) - free, units, "{name} {password}");
    }
    assert_eq!(charged("eva", "secret"), free, "it is known again");
}

#[test]
fn a_client_gets_no_message_and_publishes_none_that_no_rule_allows() {
    let rows = rows(&[("", AccessAction::ReadWrite, "open/#"), ("", AccessAction::Deny, "open/secret")]);
    let mut pair = Pair::with(Config { access: AccessRules { rows, ..AccessRules::default() }, ..Config::default() });
    let (mut client, mut other) = (Client::new(&mut pair, "client"), Client::new(&mut pair, "other"));
    assert_eq!(client.subscribe(&mut pair, "open/secret", 0), 0x80);
    assert_eq!(client.subscribe(&mut pair, "closed", 0), 0x80);
    assert_eq!(client.subscribe(&mut pair, "$share/g/#", 0), 0x80);
    assert_eq!(client.subscribe(&mut pair, "#", 0), 0);
    assert_eq!(other.ask(&mut pair, &publish_5("closed", 1, 5, "x"))[4], 0x87);
    other.publish_5(&mut pair, "open/secret", 0, 0, "x");
    other.publish_5(&mut pair, "open/1", 0, 0, "y");
    pair.publish("closed", "by NSQ");
    assert_eq!(client.messages(&mut pair), [("open/1".to_owned(), "y".to_owned())]);
}

#[test]
fn rules_that_are_read_again_count_at_once_and_users_from_the_next_connect_on() {
    let rules = |users, pattern| AccessRules {
        rows: rows(&[("eva", AccessAction::ReadWrite, pattern)]),
        users: Some(users),
        tokens: None,
    };
    let mut pair = Pair::with(Config { access: rules(vec![eva()], "old"), anonymous: false, ..Config::default() });
    let mut client = Client::accept(&mut pair);
    assert_eq!(client.ask(&mut pair, &connect_as("client", "eva", "secret"))[3], 0);
    assert_eq!(client.ask(&mut pair, &publish_5("new", 1, 5, "x"))[4], 0x87);
    pair.engine.set_access(rules(Vec::new(), "new"));
    assert_eq!(client.ask(&mut pair, &publish_5("old", 1, 6, "x"))[4], 0x87);
    assert_ne!(client.ask(&mut pair, &publish_5("new", 1, 7, "x"))[4], 0x87);
    let mut again = Client::accept(&mut pair);
    assert_eq!(again.ask(&mut pair, &connect_as("other", "eva", "secret"))[3], 0x86, "she is no user any more");
}

#[test]
fn a_client_inside_tls_is_known_by_its_certificate() {
    let config = Config {
        mqtt_identity: MqttIdentity::CertCn,
        anonymous: false,
        access: AccessRules { rows: rows(&[("client", AccessAction::Write, "own")]), ..AccessRules::default() },
        tls_root_ca_pem: testing::AUTHORITY.into(),
        tls_client_auth_policy: ClientAuth::RequireVerify,
        tls_required: TlsRequired::True,
        ..tls_config()
    };
    let mut pair = Pair::with(config);
    let key = pair.engine.handle_accept_mqtts("192.0.2.1:5000", pair.now);
    let mut client = TlsClient::new(TLS13, Some((testing::CLIENT_CERT, testing::CLIENT_KEY)));
    let mut ask = |plain: &[u8]| {
        let sealed = client.send(plain);
        pair.send(key, sealed);
        pair.turn();
        client.receive(&pair.take_bytes(key)).expect("TLS")
    };
    for _ in 0..3 {
        assert_eq!(ask(b""), b"");
    }
    let connack = ask(&connect(Version::V5, "any id", true, &[]));
    assert_eq!((connack[0], connack[3]), (0x20, 0));
    assert_eq!(ask(&publish_5("own", 1, 5, "x")), [0x40, 3, 0, 5, 0x10]);
    assert_eq!(ask(&publish_5("other", 1, 6, "x")), [0x40, 3, 0, 6, 0x87], "and no reason, which some cannot read");
}

#[test]
fn a_client_inside_tls_is_sent_to_a_port_inside_tls_alone() {
    let mut pair = Pair::with(tls_config());
    pair.limit("heat", limit(10, 10, 1));
    let key = pair.engine.handle_accept_mqtts("192.0.2.1:5000", pair.now);
    let mut client = TlsClient::new(TLS13, None);
    let mut ask = |pair: &mut Pair, plain: &[u8]| {
        pair.send(key, client.send(plain));
        pair.turn();
        client.receive(&pair.take_bytes(key)).expect("TLS")
    };
    for _ in 0..3 {
        assert_eq!(ask(&mut pair, b""), b"");
    }
    let follow = [&[0x26][..], &text("srtm-follow"), &text("1")].concat();
    assert_eq!(ask(&mut pair, &connect(Version::V5, "p", true, &follow))[3], 0);
    assert_eq!(ask(&mut pair, &publish_5("heat", 1, 5, "x"))[0], 0x40);
    let mut mqtt = MqttAddresses { clear: "h:1883".into(), websocket_tls: "h:8084".into(), ..MqttAddresses::default() };
    let now = pair.now;
    assert_eq!(pair.engine.move_publisher("heat", "p", "h:4150", &mqtt, 9, now), 0);
    mqtt.tls = "h:8883".into();
    assert_eq!(pair.engine.move_publisher("heat", "p", "h:4150", &mqtt, 9, now), 1);
    pair.advance(S);
    let told = client.receive(&pair.take_bytes(key)).expect("TLS");
    assert_eq!((told[0], told[2]), (0xe0, 0x9c));
    assert!(told.ends_with(b"h:8883"), "{told:02x?}");
}

/// What an auth server grants to eva for 30 s.
const GRANT: &str = r#"{"ttl":30,"identity":"eva","authorizations":[
    {"topic":"^open","channels":["^mqtt$","^g$"],"permissions":["subscribe"]},
    {"topic":"^open","channels":["^$"],"permissions":["publish"]}]}"#;

fn asking() -> Pair {
    Pair::with(Config { auth_servers: true, ..Config::default() })
}

/// Who asks for an authorization: its connection, secret in base64, user name, client id.
fn asked(pair: &mut Pair) -> Vec<(u64, [String; 3])> {
    let who = |event| match event {
        Event::AuthAsked { connection, secret, username, client_id, .. } => {
            Some((connection, [secret, username, client_id]))
        }
        _ => None,
    };
    pair.engine.poll_events().into_iter().filter_map(who).collect()
}

/// Sends what has to wait for an auth server, and then its answer; gives all packets that come.
fn ask_with(pair: &mut Pair, client: &mut Client, bytes: &[u8], answer: Option<&str>) -> Vec<Vec<u8>> {
    pair.send(client.key, bytes);
    pair.turn();
    let asked = asked(pair);
    assert_eq!((asked.len(), client.take(pair).len()), (1, 0), "{asked:?}");
    let _reason = pair.engine.set_authorization(asked[0].0, answer.map(str::as_bytes), pair.now);
    pair.turn();
    client.take(pair)
}

/// A client that may publish to and read names that begin with `open`.
pub fn granted(pair: &mut Pair, id: &str) -> Client {
    let mut client = Client::accept(pair);
    let answers = ask_with(pair, &mut client, &connect_as(id, "any", "secret"), Some(GRANT));
    assert!(matches!(&answers[..], [connack] if connack[0] == 0x20 && connack[3] == 0), "{answers:02x?}");
    client
}

#[test]
fn an_auth_server_is_asked_who_a_client_is_and_what_comes_behind_connect_waits() {
    let mut pair = asking();
    let mut client = Client::accept(&mut pair);
    pair.send(client.key, [connect_as("c", "any", "secret"), publish_5("open.1", 1, 5, "x")].concat());
    pair.turn();
    let asked = asked(&mut pair);
    let [(connection, who)] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(who, &["c2VjcmV0", "any", "c"]);
    pair.advance(20 * S); // longer than a client may take to its CONNECT
    assert!(client.take(&mut pair).is_empty() && !client.has_ended(&pair));
    assert_eq!(pair.engine.set_authorization(*connection, Some(GRANT.as_bytes()), pair.now), Ok(()));
    pair.turn();
    let answers = client.take(&mut pair);
    assert_eq!((answers[0][3], &answers[1][..]), (0, &[0x40, 3, 0, 5, 0x10][..]));
    assert_eq!(pair.engine.mqtt.counters.packets_in, 2, "each is counted once");
}

#[test]
fn a_client_that_no_auth_server_grants_anything_is_refused() {
    let nothing = r#"{"ttl":1,"authorizations":[]}"#;
    for answer in [None, Some("nonsense"), Some(r#"{"ttl":0,"authorizations":[]}"#), Some(nothing)] {
        let mut pair = asking();
        let mut client = Client::accept(&mut pair);
        let behind = [connect_as("c", "eva", "secret"), publish_5("open.1", 1, 5, "x")].concat();
        let answers = ask_with(&mut pair, &mut client, &behind, answer);
        assert!(matches!(&answers[..], [connack] if connack[3] == 0x87), "{answer:?} {answers:02x?}");
        assert!(client.has_ended(&pair));
        let mut older = Client::accept(&mut pair);
        let answers = ask_with(&mut pair, &mut older, &connect(Version::V3_1_1, "d", true, &[]), answer);
        assert_eq!(answers, [[0x20, 2, 0, 5]]);
        assert_eq!((pair.engine.mqtt.counters.denied, pair.engine.mqtt.sessions.len()), (2, 0));
    }
}

#[test]
fn a_client_may_what_the_auth_server_grants_and_deliveries_are_checked() {
    let mut pair = asking();
    let (mut client, mut other) = (granted(&mut pair, "client"), granted(&mut pair, "other"));
    assert_eq!(other.ask(&mut pair, &publish_5("closed", 1, 5, "x"))[4], 0x87);
    for (filter, code) in [("closed", 0x80), ("$share/h/open.1", 0x80), ("$share/g/#", 0x80), ("#", 0), ("open.2", 0)] {
        assert_eq!(client.subscribe(&mut pair, filter, 0), code, "{filter}");
    }
    assert_eq!(other.subscribe(&mut pair, "$share/g/open.2", 0), 0);
    other.publish_5(&mut pair, "open.2", 0, 0, "x");
    pair.publish("closed", "by NSQ");
    assert_eq!(client.messages(&mut pair), [("open.2".to_owned(), "x".to_owned())]);
    assert_eq!(other.messages(&mut pair), [("open.2".to_owned(), "x".to_owned())]);
}

#[test]
fn a_will_that_the_auth_server_does_not_grant_is_refused() {
    let mut pair = asking();
    for (topic, code) in [("open.1", 0), ("closed", 0x87)] {
        let front = [&text("MQTT")[..], &[5, 0xc6, 0, 60, 0]].concat();
        let will = [&[0][..], &text(topic), &text("bye")].concat();
        let bytes = packet(0x10, &[front, text(topic), will, text("any"), text("secret")].concat());
        let mut client = Client::accept(&mut pair);
        assert_eq!(ask_with(&mut pair, &mut client, &bytes, Some(GRANT))[0][3], code, "{topic}");
    }
}

#[test]
fn after_its_time_an_authorization_is_asked_for_again_before_the_next_publish_or_subscribe() {
    // With the place of the code in the answer.
    for (bytes, at) in [(publish_5("open.1", 1, 5, "x"), 4), (subscribe("open.1", 0), 5)] {
        let mut pair = asking();
        let mut client = granted(&mut pair, "client");
        pair.advance(29 * S);
        client.ask(&mut pair, &bytes);
        pair.advance(2 * S);
        assert_eq!(client.ask(&mut pair, &[0xc0, 0]), [0xd0, 0], "a PINGREQ needs no permission");
        assert!(asked(&mut pair).is_empty());
        let answers = ask_with(&mut pair, &mut client, &[&bytes[..], &bytes].concat(), Some(GRANT));
        assert!(answers.len() == 2 && answers.iter().all(|answer| answer[at] < 0x80));
        pair.advance(31 * S);
        let revoked = GRANT.replace("^open", "^other");
        let answers = ask_with(&mut pair, &mut client, &bytes, Some(&revoked));
        assert!(answers[0][at] >= 0x80 && !client.has_ended(&pair), "{answers:02x?}");
        pair.advance(31 * S);
        let answers = ask_with(&mut pair, &mut client, &bytes, None);
        assert_eq!((answers[0][0], answers[0][2]), (0xe0, 0x87), "nothing is acknowledged and dropped");
        assert!(client.has_ended(&pair));
    }
}

#[test]
fn a_client_is_known_as_who_the_auth_server_says() {
    let config = Config {
        auth_servers: true,
        mqtt_identity: MqttIdentity::Username,
        access: AccessRules { rows: rows(&[("eva", AccessAction::Write, "open.1")]), ..AccessRules::default() },
        ..Config::default()
    };
    let mut pair = Pair::with(config);
    let mut client = granted(&mut pair, "client");
    assert_eq!(client.ask(&mut pair, &publish_5("open.1", 1, 5, "x"))[4], 0x10, "both allow it");
    assert_eq!(client.ask(&mut pair, &publish_5("open.2", 1, 5, "x"))[4], 0x87, "the access file does not");
    let publisher = pair.engine.conns.get(client.key).and_then(|conn| conn.identity().client_id.clone());
    assert_eq!(publisher.as_deref(), Some("eva"));
}
