//! HTTP inside TLS.

use super::*;

fn secure(pair: &mut Pair) -> (ConnKey, Client) {
    let key = pair.engine.handle_accept_https("192.0.2.1:5000", pair.now);
    let mut client = Client::new(TLS12, None);
    for _ in 0..3 {
        let hello = client.send(b"");
        pair.send(key, hello);
        pair.turn();
        assert_eq!(client.receive(&pair.take_bytes(key)).expect("a handshake"), b"");
    }
    assert!(!client.0.is_handshaking());
    (key, client)
}

fn with_tls(config: Config) -> Pair {
    let tls = server_config(&config).expect("a certificate");
    let mut pair = Pair::with(config);
    pair.engine.tls.config = tls;
    pair
}

#[test]
fn https_is_http_inside_tls() {
    let mut pair = with_tls(tls_config());
    let consumer = pair.subscribe("t", "c", 10);
    let (key, mut client) = secure(&mut pair);
    let mut ask = |pair: &mut Pair, bytes: String| {
        let sealed = client.send(bytes.as_bytes());
        pair.send(key, sealed);
        pair.turn();
        let plain = client.receive(&pair.take_bytes(key)).expect("TLS");
        String::from_utf8(plain).expect("text")
    };
    for i in 0..3 {
        assert_eq!(answers(&ask(&mut pair, post("/pub?topic=t", &format!("m{i}"))))[0].2, "OK");
    }
    assert_eq!(pair.bodies(consumer), ["m0", "m1", "m2"]);
    assert_eq!(ask(&mut pair, get("/stats")), "");
    let request = handed(&mut pair);
    assert!(request.over_tls);
    respond(&mut pair, request.id, "stats");
    let text = ask(&mut pair, get("/ping").replace("Host", "Connection: close\r\nHost"));
    assert_eq!(answers(&text).iter().map(|(_, _, body)| body.as_str()).collect::<Vec<_>>(), ["stats", "OK"]);
    assert!(pair.ended.contains(&key));
    pair.close(key);
    pair.close(consumer);
    assert_eq!(pair.engine.memory.layers.used(), 0);
}

#[test]
fn who_does_not_speak_tls_on_the_https_port_gets_no_answer_and_the_end() {
    let mut pair = with_tls(tls_config());
    let key = pair.engine.handle_accept_https("192.0.2.1:5000", pair.now);
    pair.send(key, get("/ping"));
    pair.turn();
    pair.turn();
    let alert = pair.take_bytes(key);
    assert!(alert.len() < 10 && !alert.starts_with(b"HTTP"), "{alert:?}");
    assert!(pair.ended.contains(&key));
    let silent = pair.engine.handle_accept_https("192.0.2.1:5000", pair.now);
    pair.advance(5 * S);
    assert!(pair.closed.contains(&silent), "a handshake has 5 s");
    assert_eq!(pair.engine.memory.layers.used(), 0);
}

#[test]
fn under_tls_required_plain_requests_are_told_where_to_go() {
    let mut pair = with_tls(Config { tls_required: TlsRequired::True, ..tls_config() });
    pair.engine.set_https_port(4152);
    let told = (403, r#"{"message": "TLS_REQUIRED", "https_port": 4152}"#.to_owned());
    for request in [get("/ping"), get("/stats"), post("/pub?topic=t", "x"), get("/nowhere")] {
        assert_eq!(one(&mut pair, request), told);
    }
    let (key, mut client) = secure(&mut pair);
    let sealed = client.send(get("/ping").as_bytes());
    pair.send(key, sealed);
    pair.turn();
    assert!(client.receive(&pair.take_bytes(key)).expect("TLS").ends_with(b"OK"));
    let mut pair = with_tls(Config { tls_required: TlsRequired::TcpHttps, ..tls_config() });
    assert_eq!(one(&mut pair, get("/ping")), published());
}
