//! Connections that are TLS from their first byte, as on an HTTPS port: nothing goes in clear, not even why one ends.

use super::layers::Coat;
use super::pair::*;
use crate::keys::ConnKey;
use crate::time::SHORT_PATIENCE_NS;
use crate::transport::Layers;
use crate::transport::testing::{Client, TLS12, tls_config};

/// A connection that is TLS from its first byte, as on an HTTPS port.
fn secured(pair: &mut Pair) -> ConnKey {
    let key = pair.accept();
    let config = pair.engine.tls.config.clone().expect("a certificate");
    let layers = Layers::tls_server(config, pair.now + SHORT_PATIENCE_NS).expect("layers");
    pair.engine.conns[key].layers = Some(Box::new(layers));
    pair.engine.arm_connection(key);
    key
}

#[test]
fn tls_from_the_first_byte_says_nothing_of_its_own() {
    let mut pair = Pair::with(tls_config());
    let key = secured(&mut pair);
    let mut coat = Coat::of_tls(Client::new(TLS12, None));
    for _ in 0..3 {
        let hello = coat.seal(b"");
        pair.send(key, hello);
        pair.turn();
        assert_eq!(coat.open(&pair.take_bytes(key)), b"");
    }
    let request = coat.seal(&[&b"  V2"[..], &pub_("t", "x")].concat());
    pair.send(key, request);
    pair.turn();
    assert_eq!(decode(&coat.open(&pair.take_bytes(key))), [ok()]);
}

#[test]
fn where_tls_comes_first_a_failed_handshake_gets_an_alert_and_a_slow_one_nothing() {
    let mut pair = Pair::with(tls_config());
    let (bad, slow) = (secured(&mut pair), secured(&mut pair));
    pair.send(bad, b"GET / HTTP/1.1\r\n\r\n");
    pair.turn();
    let alert = pair.take_bytes(bad);
    assert_eq!(
        (alert.first(), pair.ended.contains(&bad)),
        (Some(&21), true),
        "a record of type alert, and nothing else: {alert:?}"
    );
    assert!(!alert.windows(2).any(|window| window == b"E_"));
    pair.advance(5 * S - 1);
    assert!(!pair.closed.contains(&slow));
    pair.advance(1);
    assert_eq!((pair.take_bytes(slow), pair.closed.contains(&slow)), (vec![], true));
}
