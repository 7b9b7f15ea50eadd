//! `/pub` and `/mpub`: answered in the engine.

use super::*;

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
    assert_eq!(
        pair.snapshot()["producers"],
        serde_json::json!([]),
        "those are connections that published by the protocol"
    );
    assert_eq!((&pair.snapshot()["connections"], &pair.snapshot()["http_connections"]), (&2.into(), &1.into()));
}

#[test]
fn every_cut_of_a_request_gives_the_same_answer() {
    let chunked =
        "POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
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
        assert_eq!(pair.engine.http.held.used(), 0);
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
    let arrivals: Vec<Nanos> =
        trace.arrival_ns.chunks(8).map(|at| i64::from_le_bytes(at.try_into().expect("8 bytes"))).collect();
    assert_eq!(arrivals, [now - 2 * MS, now - MS, now]);
    assert_eq!(trace.publishers, ["http", "192.0.2.1"]);
    assert_eq!(pair.engine.counters.timestamp_fallbacks, 0);
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
        ("/pub?topic=.", "x", refused(400, "INVALID_TOPIC")),
        ("/mpub?topic=..", "x", refused(400, "INVALID_TOPIC")),
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
        ("/v1/topics/t/bucket", &"x".repeat(65_537), refused(413, "BODY_TOO_BIG")),
        ("/config/nsqlookupd_tcp_addresses", &"x".repeat(65_537), refused(413, "INVALID_VALUE")),
    ];
    for (target, body, expected) in cases {
        let mut pair = Pair::with(Config { max_msg_size: 100, max_body_size: 1_000, ..Config::default() });
        assert_eq!(one(&mut pair, post(target, body)), expected, "{target}");
        assert!(pair.engine.topics.is_empty() && pair.engine.poll_handed().is_empty(), "{target}");
    }
}

#[test]
fn lines_that_come_in_pieces_are_the_same_messages_and_bounds_and_none_of_them_is_of_the_next_request() {
    let most = 20;
    let (lines, long) = ("ab\n\nc\nde\nf", format!("ok\n{}\nok", "x".repeat(most + 1)));
    let both = [post("/mpub?topic=t", lines), post("/mpub?topic=t", "g"), post("/mpub?topic=t", &long)].concat();
    for cut in 1..both.len() {
        let mut pair = Pair::with(Config { max_msg_size: most as u32, ..Config::default() });
        let consumer = pair.subscribe("t", "c", 10);
        let key = pair.connect_http();
        let mut answers = Vec::new();
        for piece in both.as_bytes().chunks(cut) {
            answers.extend(ask(&mut pair, key, piece));
        }
        assert_eq!(answers, [published(), published(), refused(413, "MSG_TOO_BIG")], "{cut}");
        assert_eq!(pair.bodies(consumer), ["ab", "c", "de", "f", "g"], "{cut}");
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
    assert!(
        head.contains("\r\nRetry-After: 1\r\nX-SRTM-Retry-After-Ms: 1000\r\nX-NSQ-Content-Type: nsq; version=1.0"),
        "{head}"
    );
    assert_eq!(body, r#"{"message":"RATE_LIMITED"}"#);
    let (status, body) = one(&mut pair, post("/mpub?topic=t", "a\nb\nc"));
    assert_eq!(status, 413, "503 would invite a retry, which never helps");
    assert!(body.contains("can never pass a burst of 2"), "{body}");
}

#[test]
fn a_publish_that_fails_says_why() {
    let mut pair = Pair::with(Config { max_memory_bytes: 1_000, ..Config::default() });
    assert_eq!(one(&mut pair, post("/pub?topic=t", &"x".repeat(900))).0, 503);
    assert_eq!(pair.engine.memory_used(), 0);
    pair.engine.set_accepting(false, "broker b1 is \"starting\"", pair.now);
    assert_eq!(one(&mut pair, post("/pub?topic=t", "x")), refused(503, r#"broker b1 is \"starting\""#));
}
