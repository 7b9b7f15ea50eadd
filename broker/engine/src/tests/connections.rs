//! Heartbeats, IDENTIFY, slow readers, floods: sections 4, 6 and 7.

use super::pair::*;
use crate::config::Config;

/// How many clients were cut off for taking nothing, and for saying nothing.
fn offenders(pair: &mut Pair) -> (u64, u64) {
    let met = pair.snapshot()["limits_met"].clone();
    let count = |name: &str| met[name].as_u64().expect("a count");
    (count("slow_reader"), count("silent_client"))
}

fn heartbeat() -> Frame {
    response("_heartbeat_")
}

#[test]
fn heartbeats_come_on_time_also_to_producers_and_under_load() {
    let mut pair = Pair::new();
    let key = pair.connect();
    for second in 1..=60 {
        pair.advance(S);
        let answer = pair.ask(key, pub_("t", "x"));
        let expected = if second % 30 == 0 { vec![heartbeat(), ok()] } else { vec![ok()] };
        assert_eq!(answer, expected, "second {second}");
    }
}

#[test]
fn a_client_silent_for_two_intervals_is_closed_without_a_word_and_counted() {
    let mut pair = Pair::new();
    let key = pair.connect();
    pair.ask(key, identify(r#"{"heartbeat_interval":1000}"#));
    pair.advance(2 * S - 1);
    assert_eq!((pair.take(key), pair.closed.contains(&key)), (vec![heartbeat()], false));
    assert_eq!(offenders(&mut pair), (0, 0));
    pair.advance(1);
    assert_eq!((pair.take(key), pair.closed.contains(&key)), (vec![], true));
    assert_eq!(offenders(&mut pair), (0, 1));
}

#[test]
fn nop_answers_heartbeats() {
    let mut pair = Pair::new();
    let key = pair.connect();
    pair.ask(key, identify(r#"{"heartbeat_interval":1000}"#));
    for _ in 0..10 {
        pair.advance(S);
        assert_eq!(pair.ask(key, "NOP\n"), [heartbeat()]);
    }
}

#[test]
fn identify_arms_the_heartbeat_anew() {
    let mut pair = Pair::new();
    let key = pair.connect();
    pair.advance(10 * S);
    pair.ask(key, identify(r#"{"heartbeat_interval":2000}"#));
    pair.advance(2 * S - 1);
    assert_eq!(pair.take(key), []);
    pair.advance(1);
    assert_eq!(pair.take(key), [heartbeat()]);
    pair.ask(key, identify(r#"{"heartbeat_interval":-1}"#));
    pair.advance(1_000 * S);
    assert_eq!((pair.take(key), pair.closed.len()), (vec![], 0), "without heartbeats there is no deadline");
}

#[test]
fn a_connection_that_says_nothing_at_all_gets_nothing_and_is_closed_in_the_end() {
    let mut pair = Pair::new();
    let key = pair.accept();
    pair.advance(60 * S - 1);
    assert_eq!((pair.take(key), pair.closed.contains(&key)), (vec![], false));
    pair.advance(1);
    assert!(pair.closed.contains(&key));
}

#[test]
fn sub_with_heartbeats_off_is_refused() {
    let mut pair = Pair::new();
    let key = pair.connect();
    pair.ask(key, identify(r#"{"heartbeat_interval":-1}"#));
    assert_eq!(pair.ask(key, "SUB t c\n"), [error("E_INVALID cannot SUB with heartbeats disabled")]);
}

#[test]
fn identify_may_come_again_before_sub_and_not_after_it() {
    let mut pair = Pair::new();
    let key = pair.connect();
    assert_eq!(pair.ask(key, identify("{}")), [ok()]);
    assert_eq!(pair.ask(key, identify("{}")), [ok()]);
    pair.ask(key, "SUB t c\n");
    assert_eq!(pair.ask(key, identify("{}")), [error("E_INVALID cannot IDENTIFY in current state")]);
}

#[test]
fn texts_of_identify_that_would_be_kept_for_ever_are_bounded() {
    let mut pair = Pair::new();
    let key = pair.connect();
    let body = format!(r#"{{"client_id":"{}"}}"#, "x".repeat(257));
    assert_eq!(pair.ask(key, identify(&body)), [error("E_BAD_BODY IDENTIFY text of 257 bytes is longer than 256")]);
}

#[test]
fn one_consumer_too_many_is_refused() {
    let mut pair = Pair::with(Config { max_channel_consumers: 1, ..Config::default() });
    pair.subscribe("t", "c", 0);
    let key = pair.connect();
    assert_eq!(pair.ask(key, "SUB t c\n"), [error("E_SUB_FAILED SUB failed consumers for t:c exceeds limit of 1")]);
}

#[test]
fn a_slow_reader_gets_no_more_above_the_high_water_mark_and_goes_on_when_it_reads() {
    let mut pair = Pair::new();
    let slow = pair.subscribe("t", "c", 2_500);
    pair.stick(slow);
    let body = "x".repeat(100_000);
    let bodies = vec![body.as_str(); 40];
    let publisher = pair.connect();
    pair.send(publisher, mpub("t", &bodies));
    pair.advance(0);
    assert_eq!(pair.take(publisher), [ok()]);
    let queued = pair.channel()["depth"].as_u64().expect("a number");
    assert_eq!(queued, 29, "eleven messages pass a megabyte");
    pair.unstick(slow);
    pair.advance(0);
    assert_eq!((pair.messages(slow).len(), pair.channel()["depth"].clone()), (40, 0.into()));
}

#[test]
fn a_slow_reader_does_not_keep_others_from_their_messages() {
    let mut pair = Pair::new();
    let (slow, quick) = (pair.subscribe("t", "slow", 2_500), pair.subscribe("t", "quick", 2_500));
    pair.stick(slow);
    let body = "x".repeat(100_000);
    for _ in 0..40 {
        pair.publish("t", &body);
    }
    assert_eq!(pair.messages(quick).len(), 40);
}

#[test]
fn a_write_that_blocks_for_an_interval_ends_the_connection_and_is_counted() {
    let mut pair = Pair::new();
    let key = pair.subscribe("t", "c", 1);
    pair.stick(key);
    pair.publish("t", "x");
    for _ in 0..29 {
        pair.advance(S);
        pair.send(key, "NOP\n");
    }
    assert!(!pair.closed.contains(&key));
    pair.advance(S);
    assert!(pair.closed.contains(&key));
    assert_eq!(pair.channel()["depth"], 1, "what it did not read is queued again");
    assert_eq!(offenders(&mut pair), (1, 0));
}

#[test]
fn unfinished_commands_count_against_the_memory_limit_and_cost_only_who_sends_them() {
    let mut pair = Pair::with(Config { max_memory_bytes: 100_000, ..Config::default() });
    let (first, second) = (pair.connect(), pair.connect());
    let whole = [&b"PUB t\n\0\0\xea\x60"[..], &[b'x'; 60_000]].concat();
    assert_eq!(pair.ask(first, &whole[..59_000]), []);
    let refused =
        "E_INVALID unfinished command: all clients together may leave 100000 bytes unfinished (max_memory_bytes)";
    assert_eq!(pair.ask(second, &whole[..59_000]), [Frame::Error(refused.into())]);
    assert_eq!(pair.ask(first, &whole[59_000..]), [ok()]);
    assert_eq!(pair.engine.memory.layers.used(), 0);
}

#[test]
fn what_a_client_sends_waits_until_it_reads_its_answers_and_it_is_cut_off_if_it_does_not() {
    for (subscribes, most) in [(false, 300 << 10), (true, (1 << 20) + (1 << 20) + (300 << 10))] {
        let mut pair = Pair::new();
        let key = pair.connect();
        if subscribes {
            pair.ask(key, "SUB t c\n");
        }
        pair.stick(key);
        let flood =
            if subscribes { "FIN 0123456789abcdef\n".repeat(2_000).into_bytes() } else { pub_("t", "x").repeat(2_000) };
        for _ in 0..40 {
            pair.send(key, &flood);
            for _ in 0..8 {
                pair.advance(0);
            }
        }
        let unread = pair.engine.unsent(key).len();
        assert!((most / 2..most).contains(&unread), "{unread} of {most}");
        assert!(!pair.engine.wants_input(key), "the rest stays in the kernel");
        assert_eq!(pair.engine.poll_timeout().map(|at| at > pair.now), Some(true), "nothing is tried in vain");
        pair.advance(31 * S);
        assert!(pair.closed.contains(&key));
        assert_eq!(offenders(&mut pair), (1, 0));
    }
}

#[test]
fn a_client_that_sends_all_before_it_reads_gets_an_answer_to_each() {
    let mut pair = Pair::new();
    let key = pair.connect();
    pair.stick(key);
    pair.send(key, pub_("t", "x").repeat(40_000));
    pair.engine.handle_eof(key);
    for _ in 0..200 {
        pair.advance(0);
    }
    assert!(pair.engine.unsent(key).len() < 300 << 10);
    pair.unstick(key);
    let mut answers = 0;
    for _ in 0..200 {
        answers += pair.take(key).iter().filter(|frame| **frame == ok()).count();
        pair.advance(0);
    }
    assert_eq!((answers, pair.closed.contains(&key)), (40_000, true));
}

#[test]
fn who_ends_its_stream_or_has_read_its_refusal_is_no_offender() {
    let mut pair = Pair::new();
    let (ends, refused) = (pair.connect(), pair.connect());
    pair.close(ends);
    assert_eq!(pair.ask(refused, "NONSENSE\n").len(), 1);
    pair.advance(100 * S);
    assert!(pair.closed.contains(&refused));
    assert_eq!(offenders(&mut pair), (0, 0));
}

#[test]
fn a_storm_of_short_connections_leaves_no_timers_behind() {
    let mut pair = Pair::new();
    for _ in 0..10_000 {
        let key = pair.connect();
        pair.close(key);
    }
    assert!(pair.engine.timers.entries() < 2_000, "{}", pair.engine.timers.entries());
}

#[test]
fn auth_is_disabled() {
    let mut pair = Pair::new();
    let key = pair.connect();
    assert_eq!(pair.ask(key, b"AUTH\n\0\0\0\x01x"), [error("E_AUTH_DISABLED AUTH disabled")]);
}
