//! Handshakes whose steps are taken elsewhere: what comes meanwhile, what ends meanwhile, and what a storm of them
//! costs the others.

use super::pair::*;
use crate::config::{ClientAuth, Config};
use crate::keys::ConnKey;
use crate::scheduling::handshake_queue::MAX_AWAY;
use crate::transport::testing::{AUTHORITY, Client, TLS12, TLS13, tls_config};

/// A pair whose steps wait until a test takes them.
fn holding(config: Config) -> Pair {
    let mut pair = Pair::with(config);
    pair.holds_handshakes = true;
    pair
}

fn ask_for_tls(more: &str) -> Vec<u8> {
    identify(&format!(r#"{{"feature_negotiation":true,"tls_v1":true{more}}}"#))
}

/// A client that was granted TLS.
fn granted(pair: &mut Pair) -> ConnKey {
    let key = pair.connect();
    let answer = pair.ask(key, ask_for_tls(""));
    assert!(matches!(&answer[..], [Frame::Response(json)] if json.contains(r#""tls_v1":true"#)), "{answer:?}");
    key
}

/// Of these bytes, in a turn.
fn step(pair: &mut Pair, key: ConnKey, bytes: &[u8]) -> Vec<u8> {
    pair.send(key, bytes);
    pair.turn();
    assert!(pair.shake_hands(), "a step is out");
    pair.turn();
    pair.take_bytes(key)
}

/// A TLS 1.3 client that has only its last flight to send.
fn nearly_done(pair: &mut Pair) -> (ConnKey, Client) {
    let (key, mut client) = (granted(pair), Client::new(TLS13, None));
    let flight = step(pair, key, &client.send(b""));
    client.receive(&flight).expect("a server's flight");
    assert!(!client.0.is_handshaking());
    (key, client)
}

/// The error in clear at the end of what a client got, behind TLS's own bytes.
fn error_in_clear(bytes: &[u8]) -> Vec<Frame> {
    let at = bytes.windows(17).position(|window| window == b"E_IDENTIFY_FAILED").expect("an error in clear") - 8;
    decode(&bytes[at..])
}

#[test]
fn what_comes_while_a_step_is_away_runs_in_order_and_as_of_its_own_arrival() {
    for compressed in [false, true] {
        let mut pair = holding(tls_config());
        let consumer = pair.subscribe("t", "c", 10);
        let (key, mut client) = nearly_done(&mut pair);
        let arrivals = [1, 2, 3].map(|ms| pair.now + ms * MS);
        pair.stall(5 * MS);
        pair.send_at(key, client.send(&pub_("t", "a")), arrivals[0]); // with the end of the handshake
        pair.turn();
        assert_eq!(pair.away(), 1);
        let (b, c) = (client.send(&pub_("t", "b")), client.send(&[pub_("t", "c"), pub_("t", "d")].concat()));
        pair.send_at(key, &b[..7], arrivals[0]);
        pair.send_at(key, &b[7..], arrivals[1]);
        pair.send_at(key, c, arrivals[2]);
        pair.turn();
        assert_eq!(pair.bodies(consumer), Vec::<String>::new());
        if compressed {
            pair.engine.handle_eof(key); // what was sent before still counts
        }
        assert!(pair.shake_hands());
        pair.turn();
        let [a, b, c] = arrivals.map(|at| at + pair.engine.clock.offset());
        let got: Vec<_> =
            pair.messages(consumer).into_iter().map(|delivery| (delivery.body, delivery.wall_ns)).collect();
        assert_eq!(got, [("a", a), ("b", b), ("c", c), ("d", c)].map(|(body, at)| (body.to_owned(), at)));
        let said = client.receive(&pair.take_bytes(key)).expect("TLS");
        assert_eq!(decode(&said), vec![ok(); 5], "of the handshake, and of each");
        assert_eq!(pair.closed.contains(&key), compressed);
    }
}

#[test]
fn others_are_served_while_steps_are_away() {
    let mut pair = holding(tls_config());
    let consumer = pair.subscribe("t", "c", 10);
    let key = granted(&mut pair);
    pair.send(key, Client::new(TLS13, None).send(b""));
    pair.turn();
    assert_eq!(pair.publish("t", "x"), ok());
    assert_eq!(pair.bodies(consumer), ["x"]);
    assert_eq!((pair.away(), pair.take_bytes(key)), (1, vec![]));
    assert_ne!(pair.engine.poll_timeout(), Some(0), "and nothing keeps the engine busy");
}

#[test]
fn a_storm_has_few_steps_out_at_once_and_who_leaves_before_his_turn_costs_none() {
    let mut pair = holding(tls_config());
    let keys: Vec<ConnKey> = (0..3 * MAX_AWAY).map(|_| granted(&mut pair)).collect();
    for &key in &keys {
        pair.send(key, Client::new(TLS13, None).send(b""));
    }
    pair.turn();
    assert_eq!(pair.away(), MAX_AWAY);
    assert_ne!(pair.engine.poll_timeout(), Some(0));
    for &key in &keys[MAX_AWAY..2 * MAX_AWAY] {
        pair.close(key);
    }
    let mut taken = 0;
    while pair.shake_hands() {
        taken += 1;
        assert!(pair.away() <= MAX_AWAY);
        pair.turn();
    }
    let answered = keys.iter().filter(|key| !pair.take_bytes(**key).is_empty()).count();
    assert_eq!((taken, answered), (2 * MAX_AWAY, 2 * MAX_AWAY));
}

#[test]
fn a_connection_closed_while_its_step_is_away_is_not_missed() {
    let mut pair = holding(tls_config());
    let key = granted(&mut pair);
    pair.send(key, Client::new(TLS13, None).send(b""));
    pair.turn();
    pair.close(key);
    assert_eq!(pair.engine.memory.layers.used(), 0);
    assert!(pair.shake_hands());
    pair.turn();
    assert_eq!((pair.take_bytes(key), pair.engine.memory.layers.used()), (vec![], 0));
    let (key, mut client) = nearly_done(&mut pair);
    let said = step(&mut pair, key, &client.send(b""));
    assert_eq!(decode(&client.receive(&said).expect("TLS")), [ok()], "the next one's goes on");
}

#[test]
fn a_handshake_has_its_five_seconds_also_while_its_step_is_away() {
    let mut pair = holding(tls_config());
    let (negotiated, https) = (granted(&mut pair), pair.engine.handle_accept_https("192.0.2.1:5000", pair.now));
    for key in [negotiated, https] {
        pair.send(key, Client::new(TLS13, None).send(b""));
    }
    pair.turn();
    assert_eq!(pair.away(), 2);
    pair.advance(5 * S - 1);
    assert_eq!((pair.take_bytes(negotiated), pair.closed.contains(&https)), (vec![], false));
    pair.advance(1);
    assert_eq!(pair.take(negotiated), [error("E_IDENTIFY_FAILED IDENTIFY failed TLS: no handshake within 5 s")]);
    assert!(pair.ended.contains(&negotiated) && pair.closed.contains(&https));
    while pair.shake_hands() {}
    pair.turn();
    assert_eq!((pair.take_bytes(negotiated), pair.take_bytes(https)), (vec![], vec![]), "the steps come too late");
    pair.advance(S);
    assert!(pair.closed.contains(&negotiated));
    assert_eq!(pair.engine.memory.layers.used(), 0);
}

#[test]
fn what_makes_no_sense_is_told_once_its_step_is_taken() {
    let mut pair = holding(tls_config());
    let key = granted(&mut pair);
    let bytes = step(&mut pair, key, b"PUB t\n\0\0\0\x01x");
    assert!(
        matches!(&error_in_clear(&bytes)[..], [Frame::Error(text)] if text.starts_with("E_IDENTIFY_FAILED IDENTIFY failed TLS: "))
    );
    assert!(pair.ended.contains(&key));
    let key = pair.engine.handle_accept_https("192.0.2.1:5000", pair.now);
    let alert = step(&mut pair, key, b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!((alert.first(), pair.ended.contains(&key)), (Some(&21), true), "a record of type alert: {alert:?}");
}

#[test]
fn a_client_without_the_certificate_that_is_asked_for_is_told_so() {
    let policy = ClientAuth::RequireVerify;
    let mut pair =
        holding(Config { tls_client_auth_policy: policy, tls_root_ca_pem: AUTHORITY.into(), ..tls_config() });
    let (key, mut client) = (granted(&mut pair), Client::new(TLS12, None));
    let flight = step(&mut pair, key, &client.send(b""));
    client.receive(&flight).expect("a server's flight");
    let bytes = step(&mut pair, key, &client.send(b""));
    assert!(matches!(&error_in_clear(&bytes)[..], [Frame::Error(text)] if text.contains("TLS: ")), "{bytes:?}");
    assert!(pair.ended.contains(&key));
}

#[test]
fn what_makes_no_sense_behind_the_handshake_ends_it_under_tls() {
    let mut pair = holding(tls_config());
    let (key, mut client) = nearly_done(&mut pair);
    let last = client.send(b"");
    let bytes = step(&mut pair, key, &[&last[..], b"PUB t\n\0\0\0\x01x"].concat());
    assert!(!bytes.windows(2).any(|window| window == b"E_"), "nothing in clear");
    assert!(pair.closed.contains(&key));
}

#[test]
fn a_stream_that_ends_in_the_middle_of_a_handshake_ends_with_its_step() {
    let mut pair = holding(tls_config());
    let key = granted(&mut pair);
    pair.send(key, Client::new(TLS13, None).send(b""));
    pair.turn();
    pair.engine.handle_eof(key);
    pair.turn();
    assert!(!pair.closed.contains(&key));
    assert!(pair.shake_hands());
    pair.turn();
    assert!(pair.closed.contains(&key));
}

#[test]
fn what_is_kept_for_a_handshake_is_bounded_and_it_is_read_on_afterwards() {
    let mut pair = holding(tls_config());
    let (many, much) = (nearly_done(&mut pair), nearly_done(&mut pair));
    for (mut client, key, size, reads) in [(many.1, many.0, 0, 256), (much.1, much.0, 8 << 10, 8)] {
        pair.send(key, client.send(b""));
        pair.turn();
        let sealed = client.send(&[&pub_("t", "x")[..], &b"NOP\n".repeat(size / 4)].concat());
        for _ in 1..reads {
            pair.send(key, &sealed[..1]);
            assert!(pair.engine.wants_input(key));
        }
        pair.send(key, vec![0; 8 * size + 1]);
        assert!(!pair.engine.wants_input(key));
        assert!(pair.engine.memory.layers.used() < 1 << 20, "{}", pair.engine.memory.layers.used());
        assert!(pair.shake_hands());
        pair.turn();
        assert!(pair.read_on.contains(&key));
    }
}

#[test]
fn what_is_said_while_the_session_is_away_waits_for_it_and_never_goes_in_clear() {
    let mut pair = holding(tls_config());
    let (key, mut client) = nearly_done(&mut pair);
    let (left, mut leaving) = nearly_done(&mut pair);
    for (key, client) in [(key, &mut client), (left, &mut leaving)] {
        pair.send(key, client.send(b""));
        pair.turn();
        pair.engine.conns[key].respond(b"a notice");
        pair.engine.handle_writable(key);
        pair.turn();
        assert_eq!(pair.take_bytes(key), b"");
    }
    pair.engine.conns[left].end_input();
    pair.engine.handle_writable(left);
    while pair.shake_hands() {}
    pair.turn();
    assert_eq!(decode(&client.receive(&pair.take_bytes(key)).expect("TLS")), [response("a notice"), ok()]);
    assert_eq!((pair.take_bytes(left), pair.ended.contains(&left)), (vec![], true));
}
