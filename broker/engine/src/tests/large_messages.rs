//! Large messages are built in portions: nobody waits for a megabyte, what comes out is what went in, and nothing is
//! kept of one that is refused.

use super::pair::*;
use crate::config::Config;
use crate::keys::ConnKey;
use crate::queueing::topic::Limit;
use crate::scheduling::work_budget::{COPIED_A_UNIT, TURN_UNITS};

const MEGABYTE: usize = 1_000_000;

/// Bytes of large messages that a turn's budget copies.
const PORTION: usize = TURN_UNITS as usize * COPIED_A_UNIT;

/// Bodies of a megabyte that are not alike anywhere.
fn large(number: usize) -> String {
    (0..MEGABYTE / 8).map(|at| format!("{number}{at:07}")).collect()
}

/// A pair, and a publisher of small messages.
fn busy(config: Config) -> (Pair, ConnKey) {
    let mut pair = Pair::with(config);
    let calm = pair.connect();
    assert_eq!(pair.ask(calm, pub_("calm", "x")), [ok()]);
    (pair, calm)
}

/// A binary `/mpub`.
fn http_mpub(topic: &str, bodies: &[&str]) -> Vec<u8> {
    let body = &mpub(topic, bodies)["MPUB ".len() + topic.len() + 1 + 4..];
    let head =
        format!("POST /mpub?topic={topic}&binary=true HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// How many turns it takes until `key` has so many answers; others are served in each.
fn turns_until_answered(pair: &mut Pair, key: ConnKey, calm: ConnKey, answers: usize) -> usize {
    let (mut turns, mut taken) = (0, 0);
    while taken < answers {
        assert_eq!(pair.ask(calm, pub_("calm", "x")), [ok()]);
        taken += if pair.engine.conns[key].http.is_some() {
            pair.take_text(key).matches("200 OK").count()
        } else {
            pair.take(key).iter().inspect(|answer| assert_eq!(**answer, ok())).count()
        };
        turns += 1;
        assert!(turns < 1_000, "{taken} of {answers} answers");
    }
    turns
}

#[test]
fn large_messages_are_built_in_portions_and_the_others_are_served_between_them() {
    let three: Vec<String> = (0..3).map(large).collect();
    let bodies: Vec<&str> = three.iter().map(String::as_str).collect();
    let commands = [
        ("PUB", bodies.iter().flat_map(|body| pub_("h", body)).collect::<Vec<u8>>(), 3),
        ("MPUB", mpub("h", &bodies), 1),
        ("DPUB", bodies.iter().flat_map(|body| dpub("h", 1, body)).collect(), 3),
        ("mixed", mpub("h", &[&["x"; 100][..], &bodies[..], &["y"; 1_000][..]].concat()), 1),
        ("binary", http_mpub("h", &bodies), 1),
        ("mixed binary", http_mpub("h", &[&["x"; 100][..], &bodies[..], &["y"; 1_000][..]].concat()), 1),
    ];
    for (name, command, answers) in commands {
        let (mut pair, calm) = busy(Config::default());
        let hostile = if name.ends_with("binary") { pair.connect_http() } else { pair.connect() };
        let consumer = pair.subscribe("h", "c", 2_500);
        pair.send(hostile, command);
        let turns = turns_until_answered(&mut pair, hostile, calm, answers);
        assert!(turns >= 3 * MEGABYTE / PORTION, "{name}: {turns} turns");
        pair.advance(10 * MS);
        let mut got = Vec::new();
        while got.len() < if name.starts_with("mixed") { 1_103 } else { 3 } {
            let messages = pair.messages(consumer);
            assert!(!messages.is_empty(), "{name}: {} came", got.len());
            for message in messages {
                pair.send(consumer, format!("FIN {}\n", message.id));
                got.push(message.body);
            }
            pair.advance(0);
        }
        got.retain(|body| body.len() > 1);
        assert!(got == three, "{name}: they came as they were sent, in order");
    }
}

#[test]
fn a_large_message_by_http_is_built_in_portions_too_and_one_that_is_refused_leaves_nothing_to_the_next() {
    let (mut pair, calm) = busy(Config { max_topics: 2, ..Config::default() });
    let (hostile, consumer) = (pair.connect_http(), pair.subscribe("h", "c", 10));
    let post = |topic: &str, body: &str| {
        format!("POST /pub?topic={topic} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    for (topic, status) in [("h", "200 OK"), ("one-too-many", "503 "), ("h", "200 OK")] {
        pair.send(hostile, post(topic, &large(7)));
        let mut turns = 0;
        let answer = loop {
            assert_eq!(pair.ask(calm, pub_("calm", "x")), [ok()]);
            turns += 1;
            let answer = pair.take_text(hostile);
            if !answer.is_empty() {
                break answer;
            }
        };
        assert!(answer.contains(status), "{answer}");
        assert!(turns >= MEGABYTE / PORTION, "{turns} turns");
        assert_eq!(pair.engine.memory.partial.used(), 0);
    }
    let mut got = Vec::new();
    while got.len() < 2 {
        got.extend(pair.bodies(consumer));
        pair.advance(0);
    }
    assert!(got.iter().all(|body| *body == large(7)));
}

#[test]
fn a_large_command_that_ends_in_a_read_with_the_next_one_is_not_copied_for_it() {
    let mut pair = Pair::new();
    let hostile = pair.connect();
    let (command, next) = (mpub("h", &[large(1).as_str(); 5]), pub_("h", &"x".repeat(200_000)));
    pair.send(hostile, &command[..200_000]);
    pair.send(hostile, [&command[200_000..], &next[..150_000]].concat());
    let input = &pair.engine.conns.get(hostile).expect("it is open").input;
    assert_eq!(input.len(), command.len() + 150_000);
    assert!(input.capacity() < command.len() + 300_000, "{} bytes", input.capacity());
    pair.send(hostile, &next[150_000..]);
    pair.advance(0);
    assert_eq!(pair.take(hostile), [ok(), ok()]);
}

#[test]
fn what_is_being_built_counts_against_the_memory_until_its_connection_has_gone() {
    let (mut pair, _) = busy(Config::default());
    let before = pair.engine.memory_used();
    let hostile = pair.connect();
    pair.send(hostile, pub_("h", &large(1)));
    pair.turn();
    assert!(pair.engine.memory_used() - before >= 2 * MEGABYTE as u64, "its input, and what it becomes");
    pair.close(hostile);
    assert_eq!(pair.engine.memory_used(), before);
}

#[test]
fn a_large_message_is_refused_before_it_is_built_where_memory_has_no_room() {
    let mut pair = Pair::with(Config { max_memory_bytes: 100_000, ..Config::default() });
    let key = pair.connect();
    let text = "E_PUB_FAILED PUB failed memory limit of 100000 bytes reached: nobody drains what is queued";
    assert_eq!(pair.ask(key, pub_("t", &"x".repeat(100_000))), [error(text)]);
    assert_eq!(pair.engine.memory.partial.used(), 0);
}

#[test]
fn a_large_message_that_is_refused_on_the_way_is_given_up() {
    for command in [pub_("h", &large(1)), mpub("h", &[&large(1), &large(2)])] {
        let (mut pair, _) = busy(Config::default());
        let hostile = pair.connect();
        pair.send(hostile, command);
        pair.turn();
        assert!(pair.engine.memory.partial.used() > 0);
        let now = pair.now;
        pair.engine.set_accepting(false, "it drains", now);
        pair.advance(0);
        assert!(matches!(&pair.take(hostile)[..], [Frame::Error(text)] if text.ends_with("failed it drains")));
        assert_eq!(pair.engine.memory.partial.used(), 0);
    }
}

#[test]
fn a_bucket_that_comes_while_a_large_message_is_built_gets_it_as_it_was_sent() {
    let (mut pair, _) = busy(Config::default());
    let (hostile, consumer) = (pair.connect(), pair.subscribe("h", "c", 10));
    pair.send(hostile, mpub("h", &[&large(1), &large(2)]));
    pair.turn();
    pair.limit("h", Limit { max_backlog_bytes: 1 << 30, ..limit(1_000_000, 1_000_000, 1) });
    pair.advance(0);
    assert_eq!(pair.take(hostile), [ok()]);
    pair.advance(MS);
    let mut got = pair.bodies(consumer);
    pair.advance(0);
    got.extend(pair.bodies(consumer));
    assert!(got == [large(1), large(2)], "{} came", got.len());
}

#[test]
fn many_large_messages_are_built_beside_one_another_and_floods_go_on_beside_them() {
    let (mut pair, calm) = busy(Config::default());
    let flood = pair.connect();
    let hostile: Vec<ConnKey> = (0..4).map(|_| pair.connect()).collect();
    let body = large(1);
    for key in &hostile {
        pair.send(*key, pub_("h", &body).repeat(2));
    }
    pair.send(flood, pub_("calm", "x").repeat(20_000));
    let mut ends = vec![Vec::new(); 4];
    let mut flooded = 0;
    for turn in 0..200 {
        assert_eq!(pair.ask(calm, pub_("calm", "x")), [ok()]);
        for (ends, key) in ends.iter_mut().zip(&hostile) {
            ends.extend(pair.take(*key).iter().map(|_| turn));
        }
        flooded += pair.take(flood).len();
        if turn == MEGABYTE / PORTION {
            assert!(flooded > 500, "{flooded}: it has its turns");
        }
    }
    for number in 0..2 {
        let turns: Vec<usize> = ends.iter().map(|ends| ends[number]).collect();
        assert!(turns.iter().all(|turn| turn.abs_diff(turns[0]) <= 3), "{ends:?}");
    }
    assert_eq!(flooded, 20_000);
}

#[test]
fn what_is_being_built_keeps_nobody_out_who_asks_for_compression() {
    let (mut pair, _) = busy(Config { max_memory_bytes: 4 << 20, snappy: true, ..Config::default() });
    for number in 0..2 {
        let hostile = pair.connect();
        pair.send(hostile, pub_("h", &large(number)));
        pair.turn();
    }
    pair.turn();
    assert!(pair.engine.memory.partial.used() > 1 << 20, "more than layers may take");
    let key = pair.connect();
    pair.send(key, identify(r#"{"snappy": true, "feature_negotiation": true}"#));
    pair.turn();
    assert!(pair.engine.conns.get(key).is_some_and(|conn| conn.layers.is_some() && conn.reads()));
}

#[test]
fn all_that_is_being_built_has_room_beside_what_is_queued_or_is_refused_and_counts() {
    let (mut pair, _) = busy(Config { max_memory_bytes: 2_500_000, ..Config::default() });
    let first = pair.connect();
    assert_eq!(pair.ask(first, pub_("h", "x")), [ok()]);
    let (second, third, http) = (pair.connect(), pair.connect(), pair.connect_http());
    for (key, number) in [(first, 1), (second, 2)] {
        pair.send(key, pub_("h", &large(number)));
        pair.turn();
    }
    assert_eq!(pair.engine.memory.partial.used(), 2 * MEGABYTE as u64);
    assert!(
        matches!(&pair.ask(third, pub_("h", &large(3)))[..], [Frame::Error(text)] if text.contains("memory limit of 2500000 bytes"))
    );
    let post = format!("POST /pub?topic=h HTTP/1.1\r\nHost: x\r\nContent-Length: {MEGABYTE}\r\n\r\n{}", large(4));
    pair.send(http, post);
    pair.turn();
    let answer = pair.take_text(http);
    assert!(answer.contains("503 ") && answer.contains("memory limit of 2500000 bytes"), "{answer}");
    let counters = &pair.engine.topics[pair.engine.topic_names["h"]].counters;
    assert_eq!((counters.received, counters.rejected), (3, 2), "those that are built are not there yet");
}

#[test]
fn a_batch_is_not_refused_for_what_is_built_of_itself() {
    let (mut pair, calm) = busy(Config { max_memory_bytes: 2_500_000, ..Config::default() });
    let key = pair.connect();
    pair.send(key, mpub("h", &[&large(1), &large(2)]));
    assert!(turns_until_answered(&mut pair, key, calm, 1) > 1);
}

#[test]
fn a_large_message_by_http_that_is_begun_is_built_in_portions_although_memory_fills_meanwhile() {
    let (mut pair, calm) = busy(Config { max_memory_bytes: 2_500_000, ..Config::default() });
    let key = pair.connect_http();
    pair.send(key, format!("POST /pub?topic=h HTTP/1.1\r\nHost: x\r\nContent-Length: {MEGABYTE}\r\n\r\n{}", large(4)));
    pair.turn();
    pair.engine.config.max_memory_bytes = 1_500_000;
    let mut turns = 0;
    while pair.take_text(key).is_empty() {
        assert_eq!(pair.ask(calm, pub_("calm", "x")), [ok()]);
        turns += 1;
    }
    assert!(turns >= MEGABYTE / PORTION / 2, "{turns} turns");
}

#[test]
fn a_connection_that_ends_by_a_refusal_keeps_nothing_of_the_message_behind() {
    let (mut pair, _) = busy(Config::default());
    let key = pair.connect();
    pair.send(key, [pub_("calm", "x"), pub_("h", &large(1))].concat());
    assert!(pair.engine.memory.partial.used() > 0);
    pair.engine.config.max_memory_bytes = 1; // the first one is decided at the end of the turn
    pair.turn();
    assert!(matches!(&pair.take(key)[..], [Frame::Error(text)] if text.contains("memory limit")));
    assert_eq!(pair.engine.memory.partial.used(), 0);
}

#[test]
fn a_large_message_for_a_bucket_is_built_as_it_comes_in() {
    for line in ["PUB h", "DPUB h 1"] {
        let (mut pair, _) = busy(Config::default());
        pair.limit("h", Limit { max_backlog_bytes: 1 << 30, ..limit(1_000_000, 1_000_000, 1) });
        let (key, consumer) = (pair.connect(), pair.subscribe("h", "c", 10));
        let command = [line.as_bytes(), b"\n", &(MEGABYTE as u32).to_be_bytes(), large(1).as_bytes()].concat();
        let parts: Vec<&[u8]> = command.chunks(command.len().div_ceil(10)).collect();
        for part in &parts[..9] {
            assert_eq!(pair.ask(key, part), []);
        }
        let building = pair.engine.conns[key].building.as_ref().expect("it is begun");
        assert!(building.done() >= 9 * MEGABYTE / 10 - 100, "{line}: {} bytes", building.done());
        assert_eq!(pair.engine.memory.partial.used(), MEGABYTE as u64);
        assert_eq!(pair.ask(key, parts[9]), [ok()], "{line}");
        assert_eq!(pair.engine.memory.partial.used(), 0);
        pair.advance(2 * MS);
        assert!(pair.bodies(consumer) == [large(1)], "{line}");
    }
}

#[test]
fn what_is_begun_for_a_bucket_of_messages_that_stay_unfinished_leaves_room_for_others() {
    let mut pair = Pair::with(Config { max_memory_bytes: 8 << 20, ..Config::default() });
    pair.limit("h", Limit { max_backlog_bytes: 1 << 30, ..limit(1_000_000, 1_000_000, 1) });
    let half = &pub_("h", &large(1))[..MEGABYTE / 5];
    let hostile: Vec<ConnKey> = (0..10).map(|_| pair.connect()).collect();
    for key in &hostile {
        assert_eq!(pair.ask(*key, half), []);
    }
    assert_eq!(pair.engine.memory.partial.used(), 2 * MEGABYTE as u64);
    assert_eq!(pair.publish("other", &large(2)), ok());
    hostile.iter().for_each(|key| pair.close(*key));
    assert_eq!(pair.engine.memory.partial.used(), 0);
}

#[test]
fn an_mpub_comes_out_as_it_went_in_however_large_and_small_stand_beside_one_another() {
    let (large, larger) = ("x".repeat(65_536), "z".repeat(70_000));
    for bodies in
        [&[&large[..], "a", "b"][..], &["a", &large, "b", &larger], &["a", &"y".repeat(9_000), &large, &larger, "b"]]
    {
        for by_http in [false, true] {
            let (mut pair, calm) = busy(Config::default());
            let (consumer, other) = (pair.subscribe("t", "c", 10), pair.subscribe("u", "c", 10));
            let key = if by_http { pair.connect_http() } else { pair.connect() };
            pair.send(key, if by_http { http_mpub("t", bodies) } else { mpub("t", bodies) });
            turns_until_answered(&mut pair, key, calm, 1);
            assert_eq!(pair.publish("u", "of another topic"), ok());
            assert!(pair.bodies(consumer) == bodies);
            assert_eq!(pair.bodies(other), ["of another topic"]);
        }
    }
}
