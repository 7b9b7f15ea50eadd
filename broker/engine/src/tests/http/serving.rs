//! Everything else about a request: methods, tokens, Python's answers, bodies, the end.

use super::*;

#[test]
fn ping_says_what_the_service_says() {
    let mut pair = Pair::new();
    let key = pair.connect_http();
    pair.send(key, get("/ping"));
    pair.turn();
    let text = pair.take_text(key);
    assert!(
        text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nOK") && !text.contains("X-NSQ"),
        "{text}"
    );
    pair.engine.set_health("NOK - disk full");
    assert_eq!(ask(&mut pair, key, get("/ping")), [(500, "NOK - disk full".into())]);
}

#[test]
fn other_methods_are_refused_and_options_named() {
    let mut pair = Pair::new();
    let key = pair.connect_http();
    assert_eq!(ask(&mut pair, key, get("/pub")), [refused(405, "METHOD_NOT_ALLOWED")]);
    pair.send(key, "OPTIONS /ping HTTP/1.1\r\nHost: x\r\n\r\nHEAD /ping HTTP/1.1\r\nHost: x\r\n\r\n");
    pair.turn();
    let text = pair.take_text(key);
    assert!(
        text.contains("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n") && text.contains("\r\nAllow: GET, OPTIONS\r\n"),
        "{text}"
    );
    assert!(text.contains("HTTP/1.1 405 ") && text.ends_with("\r\n\r\n"), "an answer to HEAD has no body: {text}");
}

#[test]
fn a_token_is_asked_for_but_by_ping() {
    let mut pair = Pair::with(Config { http_token: "s3cret".into(), ..Config::default() });
    assert_eq!(one(&mut pair, get("/ping")), published());
    let with = |token: &str| post("/pub?topic=t", "x").replace("Host", &format!("authorization: {token}\r\nHost"));
    for token in ["Bearer wrong!", "Bearer ", "s3cret", "Bearer s3cret2"] {
        assert_eq!(one(&mut pair, with(token)), refused(401, "UNAUTHORIZED"), "{token}");
    }
    assert_eq!(one(&mut pair, post("/mpub?topic=t", "x")), refused(401, "UNAUTHORIZED"));
    assert_eq!(one(&mut pair, with("Bearer s3cret")), published());
    pair.engine.set_http_token("renewed".into());
    assert_eq!(one(&mut pair, with("Bearer s3cret")), refused(401, "UNAUTHORIZED"));
    assert_eq!(one(&mut pair, with("Bearer renewed")), published());
}

#[test]
fn what_python_answers_is_handed_over_whole_and_answered_in_order() {
    let mut pair = Pair::new();
    let key = pair.connect_http();
    let put = "PUT /v1/x?a=b HTTP/1.1\r\nHost: x\r\nX-Odd: \u{e9}\r\nContent-Length: 3\r\n\r\n{1}";
    let all = [&post("/pub?topic=t", "a"), put, &post("/pub?topic=t", "b"), &get("/stats"), &get("/ping")].concat();
    assert_eq!(ask(&mut pair, key, all), [published()]);
    let request = handed(&mut pair);
    assert_eq!(
        (request.method.as_str(), request.target.as_str(), request.body.as_slice()),
        ("PUT", "/v1/x?a=b", &b"{1}"[..])
    );
    assert_eq!(
        request.headers,
        [("host", "x"), ("x-odd", "\u{c3}\u{a9}"), ("content-length", "3")].map(|(a, b)| (a.into(), b.into()))
    );
    assert!(!request.over_tls);
    assert_eq!(request.remote, pair.engine.conns.get(key).expect("it is connected").remote.as_ref());
    assert!(respond(&mut pair, request.id, "one"));
    assert_eq!(taken(&mut pair, key), [(200, "one".into()), published()]);
    let request = handed(&mut pair);
    assert_eq!(request.target, "/stats");
    assert!(respond(&mut pair, request.id, "two"));
    assert_eq!(taken(&mut pair, key), [(200, "two".into()), published()]);
    assert!(!respond(&mut pair, request.id, "twice"), "nobody waits for it any more");
    assert_eq!(pair.engine.memory_used(), pair.engine.memory.messages.used(), "nothing is kept");
}

#[test]
fn a_publish_that_waits_behind_python_counts_as_of_its_own_arrival() {
    let mut pair = Pair::new();
    pair.limit("t", limit(1_000, 5, 1));
    let key = pair.connect_http();
    let arrival = pair.now;
    pair.send(key, get("/stats") + &post("/pub?topic=t", "x"));
    pair.turn();
    pair.stall(S);
    let id = handed(&mut pair).id;
    respond(&mut pair, id, "");
    assert_eq!(taken(&mut pair, key).len(), 2);
    assert_eq!(pair.trace("t").arrival_ns, arrival.to_le_bytes());
}

#[test]
fn an_answer_for_a_connection_that_is_gone_goes_nowhere() {
    let mut pair = Pair::new();
    let key = pair.connect_http();
    ask(&mut pair, key, get("/stats"));
    let id = handed(&mut pair).id;
    pair.close(key);
    assert!(!respond(&mut pair, id, "late"));
    assert!(pair.engine.http.asked.is_empty());
    assert_eq!(pair.snapshot()["http_connections"], 0);
}

#[test]
fn a_stream_that_ends_gets_what_it_asked_for_before() {
    let mut pair = Pair::new();
    let key = pair.connect_http();
    pair.send(key, get("/stats") + &get("/ping") + "GET /half");
    pair.engine.handle_eof(key);
    pair.turn();
    assert!(!pair.closed.contains(&key));
    let id = handed(&mut pair).id;
    respond(&mut pair, id, "stats");
    assert_eq!(taken(&mut pair, key), [(200, "stats".into()), published()]);
    assert!(pair.closed.contains(&key));
}

#[test]
fn the_connection_ends_where_either_side_says_so() {
    let cases = [
        ("GET /ping HTTP/1.0\r\n\r\n", "close", true),
        ("GET /ping HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "keep-alive", false),
        ("GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "close", true),
        ("POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", "close", true),
        ("GET /stats HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "close", true),
    ];
    for (request, said, ends) in cases {
        let mut pair = Pair::new();
        let key = pair.connect_http();
        pair.send(key, request.to_owned() + &get("/ping"));
        pair.turn();
        for request in pair.engine.poll_handed() {
            respond(&mut pair, request.id, "");
        }
        let answers = answers(&pair.take_text(key));
        assert!(answers[0].1.ends_with(&format!("\r\nConnection: {said}")), "{answers:?}");
        assert_eq!((answers.len() == 1, pair.ended.contains(&key)), (ends, ends), "{request}");
    }
}

#[test]
fn who_expects_100_continue_gets_it_if_the_body_is_wanted() {
    let mut pair = Pair::with(Config { max_msg_size: 100, ..Config::default() });
    let head = |len: usize| {
        format!("POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {len}\r\n\r\n")
    };
    let key = pair.connect_http();
    assert_eq!(ask(&mut pair, key, head(5)), [(100, String::new())]);
    assert_eq!(ask(&mut pair, key, "he"), []);
    assert_eq!(ask(&mut pair, key, "llo"), [published()]);
    assert_eq!(ask(&mut pair, key, head(1) + "x"), [published()], "who does not wait needs no leave");
    let chunked = head(1).replace("Content-Length: 1", "Transfer-Encoding: chunked");
    assert_eq!(ask(&mut pair, key, chunked), [(100, String::new())]);
    assert_eq!(ask(&mut pair, key, "1\r\nx\r\n0\r\n\r\n"), [published()]);
    assert_eq!(ask(&mut pair, key, head(101)), [refused(413, "MSG_TOO_BIG")]);
    assert!(pair.ended.contains(&key));
}

#[test]
fn who_expects_100_continue_is_answered_at_once_if_no_body_is_wanted() {
    let framings = ["Content-Length: 5", "Content-Length: 99999999", "Transfer-Encoding: chunked"];
    for (target, framing) in ["POST /nope", "PUT /v1/nope", "POST /v1/topics/t/bucket"].iter().zip(framings) {
        let mut pair = Pair::new();
        let key = pair.connect_http();
        let head = format!("{target} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n{framing}\r\n\r\n");
        assert_eq!(ask(&mut pair, key, head), []);
        let asked = handed(&mut pair);
        assert_eq!((asked.body.len(), pair.ended.contains(&key)), (0, false), "{target}");
        pair.send(key, "hello");
        assert!(respond(&mut pair, asked.id, "no"));
        assert_eq!(taken(&mut pair, key), [(200, "no".into())]);
        assert!(
            pair.ended.contains(&key) && pair.engine.poll_handed().is_empty(),
            "a body that came all the same is no request"
        );
    }
    let mut pair = Pair::new();
    let key = pair.connect_http();
    let head = "PUT /pub?topic=t HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(ask(&mut pair, key, head), [refused(405, "METHOD_NOT_ALLOWED")]);
    for target in ["PUT /config/log_level", "PUT /v1/topics/t/bucket", "POST /v1/gdrl/exchange", "POST /mpub?topic=t"] {
        let key = pair.connect_http();
        let head = format!("{target} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
        assert_eq!(ask(&mut pair, key, head), [(100, String::new())], "{target}");
    }
}

#[test]
fn a_chunked_body_has_the_limits_of_others() {
    let mut pair = Pair::with(Config { max_msg_size: 3, max_body_size: 10, ..Config::default() });
    let head = "POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let key = pair.connect_http();
    assert_eq!(ask(&mut pair, key, format!("{head}4\r\nabcd\r\n0\r\n\r\n")), [refused(413, "MSG_TOO_BIG")]);
    assert_eq!(ask(&mut pair, key, format!("{head}3\r\nabc\r\n0\r\n\r\n")), [published()]);
    assert_eq!(ask(&mut pair, key, format!("{}b\r\n", head.replace("/pub", "/mpub"))), [refused(413, "BODY_TOO_BIG")]);
    assert!(pair.ended.contains(&key));
    assert_eq!(one(&mut pair, format!("{head}zz\r\n")).0, 400);
    assert_eq!(pair.engine.http.held.used(), 0);
}

#[test]
fn garbage_gets_a_real_400_and_then_the_end() {
    for garbage in [
        &b"  V2IDENTIFY\n\0\0\0\x02{}"[..],
        b"PUB topic\n\0\0\0\x01x",
        b"\x16\x03\x01\x02\0\x01\0",
        b"hello\n",
        b"GET /ping HTTP/1.1\r\n\r\n",
    ] {
        let mut pair = Pair::new();
        let key = pair.connect_http();
        pair.send(key, garbage);
        pair.send(key, get("/ping"));
        pair.turn();
        let answers = answers(&pair.take_text(key));
        assert_eq!((answers.len(), answers[0].0), (1, 400), "{answers:?}");
        assert!(
            answers[0].1.starts_with("HTTP/1.1 400 Bad Request\r\n") && answers[0].1.ends_with("\r\nConnection: close")
        );
        assert!(pair.ended.contains(&key));
        pair.advance(2 * S);
        assert!(pair.closed.contains(&key), "it does not linger for ever");
    }
}

#[test]
fn empty_lines_between_requests_mean_nothing() {
    let mut pair = Pair::new();
    let key = pair.connect_http();
    assert_eq!(ask(&mut pair, key, format!("\r\n\n{}\r\n{}", get("/ping"), get("/ping"))), [published(), published()]);
}
