//! A large MPUB goes in by slices, by either port: it is answered once, and one that a bucket decides is decided as a
//! whole.

use super::pair::*;
use crate::config::Config;
use crate::engine::commands::large_mpub::LOOKS_A_UNIT;
use crate::keys::ConnKey;
use crate::queueing::topic::Limit;
use crate::scheduling::work_budget::{QUANTUM, TURN_UNITS};

fn by_http(body: &str) -> String {
    format!("POST /mpub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// An MPUB of so many messages "x", and a connection for it, by either port.
fn both_ports(pair: &mut Pair, count: usize) -> [(ConnKey, Vec<u8>); 2] {
    let lines = "\n\nx\n".repeat(count);
    [(pair.connect(), mpub("t", &vec!["x"; count])), (pair.connect_http(), by_http(&lines).into_bytes())]
}

fn large_limit() -> Limit {
    Limit { max_backlog: 1 << 20, max_backlog_bytes: 1 << 30, ..limit(1_000, 1, 1) }
}

fn received(pair: &Pair) -> u64 {
    pair.engine.topics[pair.engine.topic_names["t"]].counters.received
}

#[test]
fn a_large_mpub_to_a_bucket_is_decided_as_a_whole_of_one_arrival_and_the_others_go_on_meanwhile() {
    let mut pair = Pair::new();
    pair.limit("t", large_limit());
    let calm = pair.connect();
    for (key, command) in both_ports(&mut pair, 5_000) {
        let before = received(&pair);
        pair.stall(S);
        let arrival = pair.now - MS;
        pair.send_at(key, command, arrival);
        let mut turns = 0;
        while received(&pair) == before {
            assert_eq!(pair.take_text(key), "");
            assert_eq!(pair.ask(calm, pub_("calm", "x")), [ok()]);
            turns += 1;
            assert!(turns < 100);
        }
        assert!(turns >= 5_000 / TURN_UNITS as usize, "{turns} turns");
        assert_eq!(received(&pair), before + 5_000);
        assert!(pair.take_text(key).contains("OK"));
        let arrivals = pair.trace("t").arrival_ns;
        assert!(arrivals.ends_with(&arrival.to_le_bytes().repeat(5_000)));
        assert!(!pair.engine.is_waiting(key) && pair.engine.conns[key].sliced.is_none());
    }
}

#[test]
fn a_large_mpub_that_a_bucket_has_no_room_for_is_refused_whole_and_leaves_nothing() {
    let mut pair = Pair::new();
    pair.limit("t", Limit { max_backlog: 100, ..large_limit() });
    for (key, command) in both_ports(&mut pair, 5_000) {
        pair.send(key, command);
        pair.advance(0);
        let answer = pair.take_text(key);
        assert!(answer.contains("E_RATE_LIMITED") || answer.starts_with("HTTP/1.1 429 "), "{answer}");
        assert_eq!(pair.engine.memory.messages.used(), 0);
    }
    assert_eq!(pair.engine.topics[pair.engine.topic_names["t"]].counters.rejected, 10_000);
}

#[test]
fn a_client_that_goes_while_its_mpub_is_kept_for_a_bucket_leaves_nothing() {
    let mut pair = Pair::new();
    pair.limit("t", large_limit());
    for (key, command) in both_ports(&mut pair, 5_000) {
        pair.send(key, command);
        pair.turn();
        assert!(pair.engine.memory.messages.used() > 0);
        pair.close(key);
        assert_eq!((pair.engine.memory.messages.used(), received(&pair)), (0, 0));
    }
}

#[test]
fn a_large_mpub_by_http_that_is_refused_on_the_way_is_answered_once_and_nothing_behind_it_runs() {
    let mut pair = Pair::new();
    let key = pair.connect_http();
    pair.send(key, by_http(&"x\n".repeat(5_000)) + "GET /ping HTTP/1.1\r\nHost: x\r\n\r\n");
    pair.turn();
    let now = pair.now;
    pair.engine.set_accepting(false, "it drains", now);
    pair.advance(0);
    let answer = pair.take_text(key);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with(r#"{"message":"it drains"}"#), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    assert!((1..5_000).contains(&received(&pair)), "{}", received(&pair));
}

#[test]
fn a_large_mpub_that_memory_ends_on_the_way_is_answered_once_and_its_connection_ends() {
    for by_http in [false, true] {
        let mut pair = Pair::new();
        let [(nsq, large), (http, request)] = both_ports(&mut pair, 5_000);
        let (key, command) = if by_http { (http, request) } else { (nsq, large) };
        pair.send(key, command);
        pair.engine.config.max_memory_bytes = 1; // its first two slices are decided together
        pair.advance(0);
        let answer = pair.take_text(key);
        assert_eq!(answer.matches("memory limit of 1 bytes reached").count(), 1, "{answer}");
        assert_eq!(answer.starts_with("HTTP/1.1 503 "), by_http, "{answer}");
        assert!(!answer.contains("200 OK") && pair.ended.contains(&key));
        pair.advance(S);
        assert!(pair.closed.contains(&key));
    }
}

#[test]
fn a_text_of_empty_lines_however_long_is_no_message_and_is_answered() {
    let mut pair = Pair::with(Config::default());
    let key = pair.connect_http();
    for body in ["\n".repeat(1_000_000), "x\n".repeat(600) + &"\n".repeat(500_000)] {
        let request = by_http(&body);
        for part in request.as_bytes().chunks(60_000) {
            pair.send(key, part);
            pair.turn();
        }
        pair.advance(0);
        assert!(pair.take_text(key).starts_with("HTTP/1.1 200 OK"));
    }
    assert_eq!(received(&pair), 600);
}

#[test]
fn mpubs_that_are_kept_for_a_bucket_together_take_no_more_than_memory_has_and_who_comes_first_has_it() {
    let limit_bytes = 1_600_000;
    let mut pair = Pair::with(Config { max_memory_bytes: limit_bytes, ..Config::default() });
    pair.limit("t", Limit { burst_micro: 20_000_000_000, full: true, ..large_limit() });
    let calm = pair.connect();
    let asked: Vec<_> = (0..5).flat_map(|_| both_ports(&mut pair, 4_000)).collect();
    let clients: Vec<ConnKey> = asked.iter().map(|(key, _)| *key).collect();
    for (key, command) in asked {
        pair.send(key, command);
    }
    let mut answers = vec![String::new(); clients.len()];
    while answers.iter().any(String::is_empty) {
        assert_eq!(pair.ask(calm, pub_("calm", "x")), [ok()], "others have room");
        assert!(pair.engine.memory.messages.used() + pair.engine.memory.reserved.used() <= limit_bytes);
        for (answer, key) in answers.iter_mut().zip(&clients) {
            answer.push_str(&pair.take_text(*key));
        }
    }
    let taken = answers.iter().filter(|answer| answer.contains("OK")).count();
    assert_eq!(taken, 2, "{answers:?}");
    assert!(answers[..2].iter().all(|answer| answer.contains("OK")), "{answers:?}");
    assert!(answers[2..].iter().all(|answer| answer.contains("memory limit")), "{answers:?}");
    assert_eq!((pair.engine.memory.reserved.used(), received(&pair)), (0, 8_000));
}

#[test]
fn a_large_message_of_an_mpub_that_is_kept_has_the_room_that_was_promised_for_it() {
    let large = "x".repeat(300_000);
    let bodies: Vec<&str> = ["a", &large, "b", &large, &large, "c"].into();
    let mut pair = Pair::with(Config { max_memory_bytes: 1_000_000, ..Config::default() });
    pair.limit("t", Limit { rate_micro: 1_000_000_000, burst_micro: 10_000_000, ..large_limit() });
    let (key, consumer) = (pair.connect(), pair.subscribe("t", "c", 10));
    pair.stall(S);
    pair.send(key, mpub("t", &bodies));
    let mut turns = 0;
    while pair.take(key) != [ok()] {
        pair.advance(MS);
        turns += 1;
        assert!(turns < 100);
    }
    pair.advance(10 * MS);
    assert!(pair.bodies(consumer) == bodies);
    assert_eq!((pair.engine.memory.reserved.used(), pair.engine.memory.partial.used()), (0, 0));
}

/// An MPUB of so many messages "x" by sizes, by either port; that with the number `bad` has none of a message's sizes.
fn by_sizes(count: usize, bad: Option<usize>) -> [Vec<u8>; 2] {
    let mut command = mpub("t", &vec!["x"; count]);
    let body_at = command.len() - 4 - 5 * count;
    if let Some(bad) = bad {
        command[body_at + 4 + 5 * bad..][..4].fill(0);
    }
    let body = &command[body_at..];
    let head = format!("POST /mpub?topic=t&binary=true HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    [command.clone(), [head.as_bytes(), body].concat()]
}

#[test]
fn an_mpub_of_many_messages_is_looked_through_in_portions_before_the_first_is_published() {
    for (port, command) in by_sizes(60_000, None).into_iter().enumerate() {
        let mut pair = Pair::new();
        let (calm, key) = (pair.connect(), [Pair::connect, Pair::connect_http][port](&mut pair));
        pair.send(key, command);
        let mut seen = 0;
        while pair.engine.conns[key].sliced.is_none() {
            assert!(!pair.engine.topic_names.contains_key("t"), "nothing is published yet");
            assert_eq!((pair.ask(calm, pub_("calm", "x")), pair.take_text(key)), (vec![ok()], String::new()));
            let before = std::mem::replace(&mut seen, pair.engine.conns[key].seen.messages);
            assert!(seen - before.min(seen) <= (TURN_UNITS + QUANTUM) * LOOKS_A_UNIT, "{seen} after {before}");
        }
        assert!((1..60_000).contains(&received(&pair)));
        pair.advance(0);
        assert!(pair.take_text(key).contains("OK"));
        assert_eq!((received(&pair), pair.engine.conns[key].seen.messages), (60_000, 0));
    }
}

#[test]
fn a_message_of_no_size_is_found_wherever_it_stands_and_none_is_published() {
    for bad in [0, 4_095, 4_096, 20_000, 59_999] {
        let mut pair = Pair::new();
        let (nsq, http) = (pair.connect(), pair.connect_http());
        let [command, request] = by_sizes(60_000, Some(bad));
        pair.send(nsq, command);
        pair.send(http, request);
        pair.advance(0);
        assert_eq!(pair.take(nsq), [error(&format!("E_BAD_MESSAGE MPUB invalid message({bad}) body size 0"))]);
        assert!(pair.take_text(http).starts_with("HTTP/1.1 413 "), "{bad}");
        assert!(!pair.engine.topic_names.contains_key("t"));
    }
}

#[test]
fn what_was_seen_of_an_mpub_says_nothing_of_the_next_one() {
    let mut pair = Pair::new();
    let (nsq, http) = (pair.connect(), pair.connect_http());
    let [good, good_request] = by_sizes(20_000, None);
    let [bad, bad_request] = by_sizes(20_000, Some(0));
    let [_, late_request] = by_sizes(20_000, Some(19_999));
    pair.send(nsq, [good, bad].concat());
    pair.send(http, [good_request.clone(), late_request, bad_request, good_request].concat());
    pair.advance(0);
    assert_eq!(pair.take(nsq), [ok(), error("E_BAD_MESSAGE MPUB invalid message(0) body size 0")]);
    let statuses: Vec<String> =
        pair.take_text(http).split("HTTP/1.1 ").skip(1).map(|answer| answer[..3].to_owned()).collect();
    assert_eq!(statuses, ["200", "413", "413", "200"]);
    assert_eq!(received(&pair), 60_000);
}

#[test]
fn an_mpub_of_more_messages_than_are_allowed_is_refused_before_any_is_looked_at() {
    let config = || Config { max_mpub_messages: 10_000, ..Config::default() };
    for (port, command) in by_sizes(20_000, Some(0)).into_iter().enumerate() {
        let mut pair = Pair::with(config());
        let key = [Pair::connect, Pair::connect_http][port](&mut pair);
        pair.send(key, command);
        pair.turn();
        assert!(
            pair.take_text(key)
                .contains(["MPUB too many messages 20000 > 10000", "TOO_MANY_MESSAGES: 20000 > 10000"][port])
        );
    }
}
