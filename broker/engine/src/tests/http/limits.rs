//! What a connection may take: time, memory, unread answers.

use super::*;
use crate::memory::LARGE_BYTES;
use crate::scheduling::work_budget::{QUANTUM, TURN_UNITS};

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
        assert_eq!(pair.engine.http.held.used(), 0);
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
    assert_eq!(pair.snapshot()["limits_met"]["silent_client"], 0, "it was idle, no more");
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
    assert_eq!(pair.engine.http.held.used(), 0);
    assert_eq!(pair.snapshot()["limits_met"]["slow_reader"], 1);
}

/// A client that has read so little of what it asked for that its requests wait; how many it sent.
fn stalled_client(pair: &mut Pair) -> (ConnKey, usize) {
    let key = pair.connect_http();
    pair.stick(key);
    let mut asked = 0;
    while !pair.engine.is_waiting(key) || pair.engine.unsent(key).len() <= LARGE_BYTES {
        pair.send(key, get("/ping").repeat(100));
        pair.advance(0);
        asked += 100;
    }
    (key, asked)
}

#[test]
fn who_reads_late_gets_the_last_answer_before_the_end() {
    for last in [get("/ping").replace("Host", "Connection: close\r\nHost"), "NONSENSE\r\n\r\n".into()] {
        let mut pair = Pair::new();
        let (key, asked) = stalled_client(&mut pair);
        pair.send(key, &last);
        pair.unstick(key);
        for _ in 0..20 {
            pair.advance(0);
        }
        assert!(pair.ended.contains(&key));
        assert_eq!(taken(&mut pair, key).len(), asked + 1, "{last}");
    }
}

#[test]
fn who_reads_slowly_what_was_answered_is_not_idle() {
    let mut pair = Pair::with(Config { http_idle_timeout_ms: 2_000, ..Config::default() });
    let (key, _) = stalled_client(&mut pair);
    pair.advance(10 * S);
    pair.take_text(key);
    pair.engine.handle_sent(key, pair.engine.unsent(key).len(), pair.now);
    assert!(!pair.engine.handle_flushed(key, pair.now));
    pair.advance(2 * S - 1);
    assert!(!pair.closed.contains(&key), "idle since it has read them");
    pair.unstick(key);
    pair.advance(2 * S);
    assert!(pair.closed.contains(&key));
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
        assert!(answers[0].1.contains("may leave 1048576 bytes unfinished (max_memory_bytes)"), "{answers:?}");
        assert_eq!(pair.engine.http.held.used(), 0);
    }
}

#[test]
fn a_request_for_python_has_a_body_of_64_kib_at_most_however_it_is_framed() {
    let mut pair = Pair::new();
    let chunked = |len: usize| {
        format!(
            "PUT /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{len:x}\r\n{}\r\n0\r\n\r\n",
            "x".repeat(len)
        )
    };
    for request in [post("/topic/create?topic=t", &"x".repeat(65_537)), chunked(65_537)] {
        assert_eq!(one(&mut pair, request), refused(413, "BODY_TOO_BIG"));
    }
    assert!(pair.engine.poll_handed().is_empty());
    for request in [post("/topic/create?topic=t", &"x".repeat(65_536)), chunked(65_536)] {
        let key = pair.connect_http();
        assert_eq!(ask(&mut pair, key, request), []);
        assert_eq!(handed(&mut pair).body.len(), 65_536);
    }
}

#[test]
fn requests_for_python_are_refused_beyond_an_eighth_of_the_memory_and_keep_nobody_from_compression() {
    let mut pair = Pair::with(Config { max_memory_bytes: 16 << 20, ..Config::default() });
    let keys: Vec<ConnKey> = (0..100).map(|_| pair.connect_http()).collect();
    let answers: Vec<_> = keys.iter().flat_map(|&key| ask(&mut pair, key, post("/x", &"x".repeat(60_000)))).collect();
    let rule = "requests and their answers take the 2097152 bytes that they may (1/8 of max_memory_bytes)";
    assert_eq!(answers, vec![refused(503, rule); 65], "one more than fills it comes in");
    let key = pair.connect();
    pair.send(key, identify(r#"{"feature_negotiation":true,"snappy":true}"#));
    pair.turn();
    assert!(!pair.take_text(key).contains("E_IDENTIFY_FAILED") && !pair.ended.contains(&key));
    for request in pair.engine.poll_handed() {
        assert!(respond(&mut pair, request.id, "done"));
    }
    assert_eq!(ask(&mut pair, keys[99], post("/x", "small")), [], "there is room again");
    assert_eq!(pair.engine.poll_handed().len(), 1);
}

#[test]
fn closing_ends_idle_connections_at_once_and_others_with_their_answer() {
    let mut pair = Pair::new();
    let [idle, waiting, unfinished, chunked] = std::array::from_fn(|_| pair.connect_http());
    ask(&mut pair, waiting, get("/stats"));
    ask(&mut pair, unfinished, "GET /pi");
    ask(&mut pair, chunked, "POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
    pair.engine.close_http();
    pair.turn();
    assert_eq!(pair.ended.iter().collect::<Vec<_>>(), [&idle]);
    let id = handed(&mut pair).id;
    respond(&mut pair, id, "done");
    let answer = answers(&pair.take_text(waiting)).remove(0);
    assert!(answer.1.ends_with("\r\nConnection: close") && answer.2 == "done", "{answer:?}");
    assert_eq!(ask(&mut pair, unfinished, "ng HTTP/1.1\r\nHost: x\r\n\r\n"), [published()]);
    assert_eq!(ask(&mut pair, chunked, "0\r\n\r\n"), [published()]);
    assert!([waiting, unfinished, chunked].iter().all(|key| pair.ended.contains(key)));
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
        proptest::prop_assert_eq!(pair.engine.http.held.used(), 0);
        proptest::prop_assert_eq!(pair.snapshot()["http_connections"].clone(), 0);
    }
}

/// A text or binary `/mpub` of so many messages of one byte, or the same in chunks.
fn large_mpub(form: &str, topic: &str, count: u32) -> Vec<u8> {
    let binary: Vec<u8> = count.to_be_bytes().into_iter().chain((0..count).flat_map(|_| [0, 0, 0, 1, b'x'])).collect();
    let body = if form == "binary" { binary } else { b"x\n".repeat(count as usize) };
    let query = if form == "binary" { "&binary=true" } else { "" };
    let head = format!("POST /mpub?topic={topic}{query} HTTP/1.1\r\nHost: x\r\n");
    if form == "chunked" {
        let chunk = format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n", body.len());
        return [chunk.as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    }
    [format!("{head}Content-Length: {}\r\n\r\n", body.len()).as_bytes(), &body].concat()
}

#[test]
fn large_mpubs_of_many_connections_go_in_by_slices_and_the_others_go_on_between_them() {
    for (form, count) in [("text", 1), ("binary", 1), ("chunked", 1), ("text", 8)] {
        let mut pair = Pair::new();
        let request = large_mpub(form, "h", 2_000);
        let most = u64::from(TURN_UNITS) + (count + 1) * u64::from(QUANTUM);
        let publishers: Vec<_> = (0..count).map(|_| pair.connect_http()).collect();
        publishers.iter().for_each(|&key| pair.send(key, [&request[..], get("/ping").as_bytes()].concat()));
        let (mut seen, mut answers, calm) = (0, 0, pair.connect());
        while answers < 2 * publishers.len() {
            assert_eq!(pair.ask(calm, pub_("calm", "x")), [ok()], "{form}");
            let topics = pair.snapshot()["topics"].as_array().cloned().expect("a list");
            let now = topics
                .iter()
                .find(|view| view["topic_name"] == "h")
                .map_or(0, |view| view["message_count"].as_u64().expect("a count"));
            assert!(now - seen <= most + 1, "{form}: {now} after {seen}");
            seen = now;
            answers += publishers.iter().map(|&key| taken(&mut pair, key).len()).sum::<usize>();
        }
        assert_eq!(seen, 2_000 * count, "{form}");
        assert_eq!(pair.engine.limits.unfinished.used(), 0);
    }
}

#[test]
fn a_large_mpub_that_waited_for_its_turn_counts_as_of_its_arrival() {
    for form in ["text", "chunked"] {
        let mut pair = Pair::new();
        pair.limit("t", Limit { max_backlog: 10_000, ..limit(1_000, 5, 1) });
        let keys = [pair.connect_http(), pair.connect_http()];
        pair.stall(S);
        let arrival = pair.now - MS;
        for key in keys {
            pair.send_at(key, large_mpub(form, "t", 2_000), arrival);
        }
        assert!(pair.engine.is_waiting(keys[1]));
        pair.advance(0);
        assert_eq!(keys.map(|key| taken(&mut pair, key)), [vec![published()], vec![published()]]);
        assert_eq!(pair.trace("t").arrival_ns, arrival.to_le_bytes().repeat(4_000), "{form}");
    }
}

#[test]
fn what_is_behind_a_request_for_python_waits_for_its_answer_though_the_share_is_used_up() {
    let mut pair = Pair::new();
    let key = pair.connect_http();
    pair.send(key, [get("/ping").repeat(63), get("/stats"), get("/ping")].concat());
    pair.advance(0);
    assert_eq!(taken(&mut pair, key).len(), 63);
    let id = pair.engine.poll_handed()[0].id;
    let answer = Answer { status: 200, content_type: "text/plain", headers: &[], body: b"stats" };
    let now = pair.now;
    assert!(pair.engine.respond(id, &answer, now));
    pair.advance(0);
    assert_eq!(taken(&mut pair, key), [(200, "stats".to_owned()), published()]);
}

#[test]
fn large_requests_have_room_for_all_of_them_and_the_room_of_all_is_bounded() {
    const MOST: u64 = 16 << 20;
    let mut pair = Pair::with(Config { max_unfinished_bytes: MOST, ..Config::default() });
    let request = post("/mpub?topic=t", &"x".repeat(4_999).repeat(1_000));
    let request = request.as_bytes();
    let hostile: Vec<ConnKey> = (0..40).map(|_| pair.connect_http()).collect();
    for key in &hostile {
        for part in request[..200_000].chunks(50_000) {
            pair.send(*key, part);
        }
        pair.turn();
    }
    let room: usize = hostile.iter().map(|key| pair.engine.conns[*key].input.capacity()).sum();
    assert!(room as u64 <= MOST + 40 * 400_000, "{room} bytes");
    assert!(pair.engine.conns[hostile[0]].input.capacity() >= request.len(), "the first has room for all of it");
    hostile.iter().for_each(|key| pair.close(*key));
    assert_eq!((pair.engine.limits.unfinished.used(), pair.engine.limits.promised.used()), (0, 0));
}
