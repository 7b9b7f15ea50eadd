//! HTTP connections of an engine: what is answered here, what goes to Python, and what ends a connection.

use super::pair::*;
use crate::bucket::Nanos;
use crate::config::{Config, TlsRequired};
use crate::engine::ConnKey;
use crate::http::Handed;
use crate::http::answer::Answer;
use crate::stream::testing::{Client, TLS12, tls_config};
use crate::stream::tls::server_config;
use crate::topic::Limit;

fn post(target: &str, body: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n")
}

/// Status, head and body of every answer in `text`.
fn answers(mut text: &str) -> Vec<(u16, String, String)> {
    let mut all = Vec::new();
    while !text.is_empty() {
        let (head, rest) = text.split_once("\r\n\r\n").expect("a whole head");
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
        let len =
            head.split_once("Content-Length: ").map_or(0, |(_, rest)| rest.split("\r\n").next().unwrap_or("").parse().expect("a length"));
        let (body, rest) = rest.split_at(len);
        all.push((status, head.into(), body.into()));
        text = rest;
    }
    all
}

/// Send, finish the turn, and give status and body of what came.
fn ask(pair: &mut Pair, key: ConnKey, bytes: impl AsRef<[u8]>) -> Vec<(u16, String)> {
    pair.send(key, bytes);
    pair.turn();
    taken(pair, key)
}

fn taken(pair: &mut Pair, key: ConnKey) -> Vec<(u16, String)> {
    answers(&pair.take_text(key)).into_iter().map(|(status, _, body)| (status, body)).collect()
}

fn one(pair: &mut Pair, bytes: impl AsRef<[u8]>) -> (u16, String) {
    let key = pair.connect_http();
    let answers = ask(pair, key, bytes);
    assert_eq!(answers.len(), 1, "{answers:?}");
    answers[0].clone()
}

fn refused(status: u16, code: &str) -> (u16, String) {
    (status, format!(r#"{{"message":"{code}"}}"#))
}

fn published() -> (u16, String) {
    (200, "OK".into())
}

fn handed(pair: &mut Pair) -> Handed {
    let mut all = pair.engine.poll_handed();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn respond(pair: &mut Pair, id: u64, body: &str) -> bool {
    let answer = Answer { status: 200, content_type: "", headers: &[("X-Test", "1")], body: body.as_bytes() };
    let waited = pair.engine.respond(id, &answer, pair.now);
    pair.turn();
    waited
}

#[test]
fn a_publish_reaches_subscribers_and_is_answered_ok() {
    let mut pair = Pair::new();
    let consumer = pair.subscribe("t", "c", 10);
    let key = pair.connect_http();
    for i in 0..300 {
        assert_eq!(ask(&mut pair, key, post("/pub?topic=t", &format!("m{i}"))), [published()]);
    }
    assert_eq!(pair.bodies(consumer).len(), 10);
    let binary = b"\0\0\0\x02\0\0\0\x01a\0\0\0\x02b\nrest";
    let head = format!("POST /mpub?topic=u&binary=1 HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", binary.len());
    assert_eq!(ask(&mut pair, key, [head.as_bytes(), binary].concat()), [published()]);
    assert_eq!(ask(&mut pair, key, post("/mpub?topic=u", "c\n\nd\r\ne")), [published()]);
    let other = pair.subscribe("u", "c", 10);
    pair.turn();
    assert_eq!(pair.bodies(other), ["a", "b\n", "c", "d\r", "e"]);
    assert_eq!(pair.snapshot()["producers"], serde_json::json!([]), "those are connections that published by the protocol");
    assert_eq!((&pair.snapshot()["connections"], &pair.snapshot()["http_connections"]), (&2.into(), &1.into()));
}

#[test]
fn every_cut_of_a_request_gives_the_same_answer() {
    let chunked = "POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    for whole in [post("/pub?topic=t", "abcde"), chunked.into()] {
        for cut in 1..whole.len() {
            let mut pair = Pair::new();
            let consumer = pair.subscribe("t", "c", 10);
            let key = pair.connect_http();
            assert_eq!(ask(&mut pair, key, &whole[..cut]), [], "{cut}");
            assert_eq!(ask(&mut pair, key, &whole[cut..]), [published()], "{cut}");
            assert_eq!(pair.bodies(consumer), ["abcde"]);
        }
        let mut pair = Pair::new();
        let key = pair.connect_http();
        let answered: Vec<_> = whole.bytes().flat_map(|byte| ask(&mut pair, key, [byte])).collect();
        assert_eq!(answered, [published()], "byte by byte");
        assert_eq!(pair.engine.inputs.used(), 0);
    }
}

#[test]
fn publishes_of_a_turn_are_decided_in_order_of_arrival_whatever_they_came_by() {
    let mut pair = Pair::new();
    pair.limit("t", Limit { full: true, ..limit(1_000, 2, 1) });
    let (http, key) = (pair.connect_http(), pair.connect());
    pair.turn();
    pair.stall(10 * MS);
    let now = pair.now;
    pair.send_at(http, post("/pub?topic=t", "second"), now - MS);
    pair.send_at(http, post("/pub?topic=t", "third"), now);
    pair.send_at(key, pub_("t", "first"), now - 2 * MS);
    pair.turn();
    assert_eq!(taken(&mut pair, http), [published(), published()]);
    assert_eq!(pair.take(key), [ok()]);
    let trace = pair.trace("t");
    let arrivals: Vec<Nanos> = trace.arrival_ns.chunks(8).map(|at| i64::from_le_bytes(at.try_into().expect("8 bytes"))).collect();
    assert_eq!(arrivals, [now - 2 * MS, now - MS, now]);
    assert_eq!(trace.publishers, ["http", "192.0.2.1"]);
    assert_eq!(pair.engine.timestamp_fallbacks, 0);
}

#[test]
fn bad_publishes_are_refused_in_nsqds_words_and_change_nothing() {
    let long = "x".repeat(101);
    let cases = [
        ("/pub?topic=t", long.as_str(), refused(413, "MSG_TOO_BIG")),
        ("/pub", "", refused(400, "MSG_EMPTY")),
        ("/pub?topic=%zz", "x", refused(400, "INVALID_REQUEST")),
        ("/pub?a;b", "x", refused(400, "INVALID_REQUEST")),
        ("/pub", "x", refused(400, "MISSING_ARG_TOPIC")),
        ("/pub?topic=t$", "x", refused(400, "INVALID_TOPIC")),
        ("/pub?topic=%23ephemeral", "x", refused(400, "INVALID_TOPIC")),
        ("/pub?topic=t&defer=soon", "x", refused(400, "INVALID_DEFER")),
        ("/pub?topic=t&defer=-1", "x", refused(400, "INVALID_DEFER")),
        ("/pub?topic=t&defer=", "x", refused(400, "INVALID_DEFER")),
        ("/pub?topic=t&defer=3600001", "x", refused(400, "INVALID_DEFER")),
        ("/pub?topic=t&defer=%D9%A1", "x", refused(400, "INVALID_DEFER")),
        ("/mpub?topic=t", &"x\n".repeat(501), refused(413, "BODY_TOO_BIG")),
        ("/mpub?topic=t", &format!("ok\n{long}"), refused(413, "MSG_TOO_BIG")),
        ("/mpub", "a", refused(400, "MISSING_ARG_TOPIC")),
        ("/mpub?topic=t&binary=true", "\0\0\0", refused(413, "BAD_BODY")),
        ("/mpub?topic=t&binary=true", "\0\0\0\0", refused(413, "BAD_BODY")),
        ("/mpub?topic=t&binary=", "a\nbcd", refused(413, "BAD_BODY")),
        ("/mpub?topic=t&binary=true", "\0\0\0\x02\0\0\0\x01a", refused(413, "BAD_MESSAGE")),
        ("/mpub?topic=t&binary=true", "\0\0\0\x01\0\0\0\0", refused(413, "BAD_MESSAGE")),
        ("/mpub?topic=t&binary=true", "\0\0\0\x01\0\0\0\x09a", refused(413, "BAD_MESSAGE")),
        ("/v1/topics/t/bucket", &"x".repeat(1_001), refused(413, "BODY_TOO_BIG")),
    ];
    for (target, body, expected) in cases {
        let mut pair = Pair::with(Config { max_msg_size: 100, max_body_size: 1_000, ..Config::default() });
        assert_eq!(one(&mut pair, post(target, body)), expected, "{target}");
        assert!(pair.engine.topics.is_empty() && pair.engine.poll_handed().is_empty(), "{target}");
    }
}

#[test]
fn an_empty_text_mpub_is_ok_and_makes_the_topic() {
    let mut pair = Pair::new();
    assert_eq!(one(&mut pair, post("/mpub?topic=t&binary=false", "\n\n")), published());
    assert_eq!((pair.topic()["topic_name"].clone(), pair.topic()["message_count"].clone()), ("t".into(), 0.into()));
}

#[test]
fn a_deferred_publish_waits_in_its_channel() {
    let mut pair = Pair::new();
    let consumer = pair.subscribe("t", "c", 1);
    assert_eq!(one(&mut pair, post("/pub?topic=t&defer=250", "late")), published());
    pair.advance(250 * MS - 1);
    assert_eq!(pair.bodies(consumer), [""; 0]);
    pair.advance(1);
    assert_eq!(pair.bodies(consumer), ["late"]);
}

#[test]
fn a_rate_limited_publish_says_when_to_try_again() {
    let mut pair = Pair::new();
    pair.limit("t", Limit { reject: true, full: true, ..limit(1, 2, 1) });
    let key = pair.connect_http();
    pair.send(key, [post("/pub?topic=t", "a"), post("/pub?topic=t", "b"), post("/pub?topic=t", "c")].concat());
    pair.turn();
    let answers = answers(&pair.take_text(key));
    assert_eq!(answers.iter().map(|(status, ..)| *status).collect::<Vec<_>>(), [200, 200, 429]);
    let (_, head, body) = &answers[2];
    assert!(head.contains("\r\nRetry-After: 1\r\nX-SRTM-Retry-After-Ms: 1000\r\nX-NSQ-Content-Type: nsq; version=1.0"), "{head}");
    assert_eq!(body, r#"{"message":"RATE_LIMITED"}"#);
    assert!(one(&mut pair, post("/mpub?topic=t", "a\nb\nc")).1.contains("can never pass a burst of 2"));
}

#[test]
fn a_publish_that_fails_says_why() {
    let mut pair = Pair::with(Config { max_memory_bytes: 1_000, ..Config::default() });
    assert_eq!(one(&mut pair, post("/pub?topic=t", &"x".repeat(900))).0, 503);
    assert_eq!(pair.engine.memory_used(), 0);
    pair.engine.set_accepting(false, "broker b1 is \"starting\"", pair.now);
    assert_eq!(one(&mut pair, post("/pub?topic=t", "x")), refused(503, r#"broker b1 is \"starting\""#));
}

#[test]
fn ping_says_what_the_service_says() {
    let mut pair = Pair::new();
    let key = pair.connect_http();
    pair.send(key, get("/ping"));
    pair.turn();
    let text = pair.take_text(key);
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nOK") && !text.contains("X-NSQ"), "{text}");
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
    assert!(text.contains("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n") && text.contains("\r\nAllow: GET, OPTIONS\r\n"), "{text}");
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
}

#[test]
fn what_python_answers_is_handed_over_whole_and_answered_in_order() {
    let mut pair = Pair::new();
    let key = pair.connect_http();
    let put = "PUT /v1/x?a=b HTTP/1.1\r\nHost: x\r\nX-Odd: \u{e9}\r\nContent-Length: 3\r\n\r\n{1}";
    let all = [&post("/pub?topic=t", "a"), put, &post("/pub?topic=t", "b"), &get("/stats"), &get("/ping")].concat();
    assert_eq!(ask(&mut pair, key, all), [published()]);
    let request = handed(&mut pair);
    assert_eq!((request.method.as_str(), request.target.as_str(), request.body.as_slice()), ("PUT", "/v1/x?a=b", &b"{1}"[..]));
    assert_eq!(request.headers, [("host", "x"), ("x-odd", "\u{c3}\u{a9}"), ("content-length", "3")].map(|(a, b)| (a.into(), b.into())));
    assert!(!request.over_tls);
    assert!(respond(&mut pair, request.id, "one"));
    assert_eq!(taken(&mut pair, key), [(200, "one".into()), published()]);
    let request = handed(&mut pair);
    assert_eq!(request.target, "/stats");
    assert!(respond(&mut pair, request.id, "two"));
    assert_eq!(taken(&mut pair, key), [(200, "two".into()), published()]);
    assert!(!respond(&mut pair, request.id, "twice"), "nobody waits for it any more");
    assert_eq!(pair.engine.memory_used(), pair.engine.meter.used(), "nothing is kept");
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
    let head = |len: usize| format!("POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {len}\r\n\r\n");
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
fn a_chunked_body_has_the_limits_of_others() {
    let mut pair = Pair::with(Config { max_msg_size: 3, max_body_size: 10, ..Config::default() });
    let head = "POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let key = pair.connect_http();
    assert_eq!(ask(&mut pair, key, format!("{head}4\r\nabcd\r\n0\r\n\r\n")), [refused(413, "MSG_TOO_BIG")]);
    assert_eq!(ask(&mut pair, key, format!("{head}3\r\nabc\r\n0\r\n\r\n")), [published()]);
    assert_eq!(ask(&mut pair, key, format!("{}b\r\n", head.replace("/pub", "/mpub"))), [refused(413, "BODY_TOO_BIG")]);
    assert!(pair.ended.contains(&key));
    assert_eq!(one(&mut pair, format!("{head}zz\r\n")).0, 400);
    assert_eq!(pair.engine.inputs.used(), 0);
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
        assert!(answers[0].1.starts_with("HTTP/1.1 400 Bad Request\r\n") && answers[0].1.ends_with("\r\nConnection: close"));
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

#[test]
fn a_request_must_come_within_30_s_of_its_first_byte_however_slowly() {
    for request in [
        "GET /ping HTTP/1.1\r\nHost: x\r\nX: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc",
    ] {
        let mut pair = Pair::new();
        let key = pair.connect_http();
        pair.advance(1_000 * S); // an idle connection is nobody's harm
        for byte in request.bytes().take(29) {
            pair.send(key, [byte]);
            pair.advance(S);
        }
        pair.send(key, &request[29..]);
        pair.advance(S - 1);
        assert_eq!(pair.take_text(key), "");
        pair.advance(1);
        assert_eq!(taken(&mut pair, key)[0].0, 408);
        pair.advance(S);
        assert!(pair.closed.contains(&key));
        assert_eq!(pair.engine.inputs.used(), 0);
    }
}

#[test]
fn a_slow_request_behind_others_has_30_s_of_its_own() {
    let mut pair = Pair::new();
    let key = pair.connect_http();
    let ping = get("/ping");
    let half = ping.len() / 2;
    for _ in 0..10 {
        pair.send(key, &ping[..half]);
        pair.advance(20 * S);
        assert_eq!(ask(&mut pair, key, &ping[half..]), [published()]);
    }
    pair.advance(1_000 * S);
    assert!(!pair.closed.contains(&key));
}

#[test]
fn python_may_take_its_time() {
    let mut pair = Pair::with(Config { http_idle_timeout_ms: 1_000, ..Config::default() });
    let key = pair.connect_http();
    ask(&mut pair, key, get("/stats"));
    pair.advance(100 * S);
    let id = handed(&mut pair).id;
    assert!(respond(&mut pair, id, "late"));
    assert_eq!(taken(&mut pair, key), [(200, "late".into())]);
    pair.advance(S - 1);
    assert!(!pair.closed.contains(&key));
    pair.advance(1);
    assert!(pair.closed.contains(&key), "the idle time begins with the answer");
}

#[test]
fn an_idle_connection_is_closed_after_the_time_that_is_set() {
    let mut pair = Pair::with(Config { http_idle_timeout_ms: 2_000, ..Config::default() });
    let (silent, used) = (pair.connect_http(), pair.connect_http());
    pair.advance(S);
    assert_eq!(ask(&mut pair, used, get("/ping")), [published()]);
    pair.advance(S);
    assert_eq!((pair.closed.contains(&silent), pair.closed.contains(&used)), (true, false));
    pair.advance(S);
    assert!(pair.closed.contains(&used));
}

#[test]
fn who_takes_no_answers_is_not_read_on_and_cut_off_in_the_end() {
    let mut pair = Pair::new();
    let key = pair.connect_http();
    pair.stick(key);
    let pings = get("/ping").repeat(1_000);
    for _ in 0..5 {
        pair.send(key, &pings);
        pair.turn();
    }
    assert!(!pair.engine.wants_input(key), "the kernel keeps the rest");
    assert!(pair.engine.conns[key].unsent().len() < 1 << 20);
    pair.unstick(key);
    while pair.engine.poll_timeout() == Some(0) {
        pair.turn();
    }
    assert_eq!(taken(&mut pair, key).len(), 5_000, "each is answered once it reads again");
    assert!(pair.engine.wants_input(key));
    pair.stick(key);
    pair.send(key, &pings);
    pair.turn();
    pair.advance(30 * S);
    assert!(pair.closed.contains(&key));
    assert_eq!(pair.engine.inputs.used(), 0);
}

#[test]
fn unfinished_requests_are_bounded_by_the_memory_limit() {
    let mut pair = Pair::with(Config { max_memory_bytes: 1 << 20, ..Config::default() });
    let length = "POST /mpub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n";
    let chunked = "POST /mpub?topic=t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4c4b40\r\n";
    for head in [length, chunked] {
        let key = pair.connect_http();
        pair.send(key, head);
        for _ in 0..20 {
            pair.send(key, [b'x'; 60_000]);
        }
        pair.turn();
        let answers = taken(&mut pair, key);
        assert_eq!((answers.len(), answers[0].0), (1, 503), "{answers:?}");
        assert!(answers[0].1.contains("memory limit of 1048576 bytes"), "{answers:?}");
        assert_eq!(pair.engine.inputs.used(), 0);
    }
}

#[test]
fn closing_ends_idle_connections_at_once_and_others_with_their_answer() {
    let mut pair = Pair::new();
    let (idle, waiting, unfinished) = (pair.connect_http(), pair.connect_http(), pair.connect_http());
    ask(&mut pair, waiting, get("/stats"));
    ask(&mut pair, unfinished, "GET /pi");
    pair.engine.close_http();
    pair.turn();
    assert_eq!(pair.ended.iter().collect::<Vec<_>>(), [&idle]);
    let id = handed(&mut pair).id;
    respond(&mut pair, id, "done");
    let answer = answers(&pair.take_text(waiting)).remove(0);
    assert!(answer.1.ends_with("\r\nConnection: close") && answer.2 == "done", "{answer:?}");
    assert_eq!(ask(&mut pair, unfinished, "ng HTTP/1.1\r\nHost: x\r\n\r\n"), [published()]);
    assert!(pair.ended.contains(&waiting) && pair.ended.contains(&unfinished));
}

proptest::proptest! {
    #[test]
    fn no_bytes_bring_the_engine_down(parts in proptest::collection::vec(proptest::sample::select(vec![
        "POST /pub?topic=t HTTP/1.1\r\n", "GET /ping HTTP/1.1\r\n", "GET /stats HTTP/1.0\r\n", "Host: x\r\n", "Content-Length: 3\r\n", "Content-Length: 99999999999\r\n",
        "Transfer-Encoding: chunked\r\n", "Expect: 100-continue\r\n", "Connection: close\r\n", "\r\n", "\n", "3\r\nabc\r\n", "0\r\n\r\n", "abc", "%", "  V2", "\u{0}\u{ff}",
    ]), 0..12), cut in 1usize..40) {
        let mut pair = Pair::new();
        let key = pair.connect_http();
        for piece in parts.concat().as_bytes().chunks(cut) {
            pair.send(key, piece);
            pair.turn();
            for request in pair.engine.poll_handed() {
                respond(&mut pair, request.id, "x");
            }
        }
        let answers = answers(&pair.take_text(key));
        proptest::prop_assert!(answers.iter().all(|(_, head, _)| head.starts_with("HTTP/1.1 ")));
        pair.close(key);
        pair.turn();
        proptest::prop_assert_eq!(pair.engine.inputs.used(), 0);
        proptest::prop_assert_eq!(pair.snapshot()["http_connections"].clone(), 0);
    }
}

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
    pair.engine.tls = tls;
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
    assert_eq!(pair.engine.inputs.used(), 0);
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
    assert_eq!(pair.engine.inputs.used(), 0);
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
