//! Who may connect, publish and subscribe; and the port inside TLS.

use crate::config::{AccessAction, ClientAuth, Config, MqttIdentity, MqttRule, MqttUser, TlsRequired};
use crate::harness::pair::Pair;
use crate::protocol::mqtt::version::Version;
use crate::tests::mqtt::client::{Client, connect, packet, publish_5, text};
use crate::transport::testing::{self, Client as TlsClient, TLS13, tls_config};

fn rule(user: Option<&str>, action: AccessAction, pattern: &str) -> MqttRule {
    MqttRule { user: user.map(Into::into), all: false, action, pattern: pattern.into() }
}

fn eva() -> MqttUser {
    let salt = "jE84i/ex3+60MdvR".into();
    let hash = "lCM1kkHZMU8mjB/CHINVdjNm5i1TO8rkzUp2eao+Oge8w2SBcj5fHDbLPB5A/NeZiv1zmBYOndUSpkjuCwfv6A==".into();
    MqttUser { name: "eva".into(), iterations: 101, salt, hash }
}

/// A CONNECT of 5.0 with user name and password.
fn connect_as(id: &str, user: &str, password: &str) -> Vec<u8> {
    let front = [&text("MQTT")[..], &[5, 0xc2, 0, 60, 0]].concat();
    packet(0x10, &[front, text(id), text(user), text(password)].concat())
}

#[test]
fn with_users_nobody_connects_without_the_password_of_one() {
    let config = Config { mqtt_users: Some(vec![eva()]), mqtt_anonymous: false, ..Config::default() };
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
fn a_client_gets_no_message_and_publishes_none_that_no_rule_allows() {
    let rules = vec![rule(None, AccessAction::ReadWrite, "open/#"), rule(None, AccessAction::Deny, "open/secret")];
    let mut pair = Pair::with(Config { mqtt_access: Some(rules), ..Config::default() });
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
fn a_client_inside_tls_is_known_by_its_certificate() {
    let config = Config {
        mqtt_identity: MqttIdentity::CertCn,
        mqtt_anonymous: false,
        mqtt_access: Some(vec![rule(Some("client"), AccessAction::Write, "own")]),
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
    assert_eq!(ask(&publish_5("other", 1, 6, "x")), [0x40, 3, 0, 6, 0x87]);
}
