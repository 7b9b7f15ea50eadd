//! How connections end, and what memory is left afterwards.

use super::pair::*;
use crate::config::Config;
use crate::keys::ConnKey;
use crate::time::NS_PER_S;

#[test]
fn a_client_that_half_closes_gets_the_answers_to_what_it_completely_sent() {
    let mut pair = Pair::new();
    let key = pair.connect();
    let mut bytes = pub_("t", "whole");
    bytes.extend_from_slice(b"PUB t\n\0\0\0\x09half");
    pair.send(key, bytes);
    pair.engine.handle_eof(key);
    pair.turn();
    assert_eq!((pair.take(key), pair.closed.contains(&key)), (vec![ok()], true));
    assert_eq!(pair.topic()["depth"], 1);
}

#[test]
fn a_fatal_error_answers_then_ends_the_stream_and_waits_for_the_client_to_read_it() {
    let mut pair = Pair::new();
    let key = pair.connect();
    pair.send(key, pub_("t", "before"));
    pair.send(key, "NONSENSE\n");
    pair.send(key, pub_("t", "after"));
    pair.turn();
    assert_eq!(pair.take(key), [ok(), error("E_INVALID invalid command NONSENSE")]);
    assert_eq!(pair.topic()["depth"], 1, "what came after the error is not read");
    assert!(pair.ended.contains(&key) && !pair.closed.contains(&key));
    pair.advance(NS_PER_S - 1);
    assert!(!pair.closed.contains(&key));
    pair.advance(1);
    assert!(pair.closed.contains(&key));
}

#[test]
fn a_lingering_connection_is_gone_when_the_client_closes() {
    let mut pair = Pair::new();
    let key = pair.connect();
    pair.ask(key, "NONSENSE\n");
    pair.engine.handle_eof(key);
    pair.turn();
    assert!(pair.closed.contains(&key));
}

#[test]
fn a_fatal_error_that_nobody_reads_is_given_up() {
    for interval in ["-1", "60000"] {
        let mut pair = Pair::new();
        let key = pair.connect();
        pair.ask(key, identify(&format!(r#"{{"heartbeat_interval":{interval}}}"#)));
        pair.stick(key);
        pair.ask(key, "NONSENSE\n");
        pair.advance(60 * S);
        assert!(pair.closed.contains(&key), "heartbeat interval {interval}");
    }
}

#[test]
fn wrong_magic_is_told() {
    let mut pair = Pair::new();
    let key = pair.accept();
    assert_eq!(pair.ask(key, "  V1"), [error("E_BAD_PROTOCOL")]);
    assert!(pair.ended.contains(&key));
}

#[test]
fn a_line_without_an_end_closes_without_a_word() {
    let mut pair = Pair::new();
    let key = pair.connect();
    assert_eq!(pair.ask(key, [b'x'; 16_383]), []);
    assert!(!pair.closed.contains(&key));
    pair.ask(key, b"x");
    assert!(pair.closed.contains(&key));
}

#[test]
fn a_full_memory_refuses_the_publish_and_loses_nothing_that_was_accepted() {
    let mut pair = Pair::with(Config { max_memory_bytes: 10_000, ..Config::default() });
    let body = "x".repeat(1_000);
    let accepted = (0..20).map(|_| pair.publish("t", &body)).filter(|answer| *answer == ok()).count();
    assert_eq!(accepted, 8);
    let refused = pair.publish("t", &body);
    assert!(
        matches!(&refused, Frame::Error(text) if text.starts_with("E_PUB_FAILED PUB failed memory limit")),
        "{refused:?}"
    );
    let consumer = pair.subscribe("t", "c", 100);
    let messages = pair.messages(consumer);
    assert_eq!(messages.len(), accepted);
    for message in messages {
        pair.send(consumer, format!("FIN {}\n", message.id));
    }
    pair.turn();
    assert_eq!(pair.engine.memory.messages.used(), 0);
    assert_eq!(pair.publish("t", &body), ok());
}

#[test]
fn who_comes_to_drain_a_full_memory_gets_in_with_layers_and_commands_in_pieces() {
    let mut pair = Pair::with(Config { max_memory_bytes: 3_000_000, ..Config::default() });
    let body = "x".repeat(100_000);
    while pair.publish("t", &body) == ok() {}
    let consumer = pair.connect();
    pair.send(consumer, identify(r#"{"feature_negotiation":true,"snappy":true}"#));
    pair.turn();
    assert!(String::from_utf8_lossy(&pair.take_bytes(consumer)).contains(r#""snappy":true"#));
    let plain = pair.subscribe("t", "c", 1);
    let (begun, rest) = (format!("FIN {}", pair.messages(plain)[0].id), "\n");
    assert_eq!((pair.ask(plain, &begun[..7]), pair.ask(plain, &begun[7..])), (vec![], vec![]));
    pair.send(plain, rest);
    pair.turn();
    assert_eq!(pair.messages(plain).len(), 1, "the next one");
}

#[test]
fn layers_of_idle_clients_keep_no_publisher_out() {
    let mut pair = Pair::with(Config { max_memory_bytes: 2_000_000, ..Config::default() });
    for _ in 0..10 {
        let key = pair.connect();
        pair.send(key, identify(r#"{"feature_negotiation":true,"deflate":true}"#));
        pair.turn();
    }
    assert_eq!(pair.publish("t", &"x".repeat(1_000_000)), ok());
}

#[test]
fn copies_for_further_channels_count_against_the_memory_limit() {
    let mut pair = Pair::with(Config { max_memory_bytes: 1_300, ..Config::default() });
    for channel in ["a", "b", "c"] {
        pair.subscribe("t", channel, 0);
    }
    let body = "x".repeat(1_000);
    assert!(matches!(pair.publish("t", &body), Frame::Error(_)));
    assert_eq!((pair.topic()["message_count"].clone(), pair.engine.memory.messages.used()), (0.into(), 0));
    assert_eq!(pair.publish("u", &body), ok(), "a single one has room");
}

#[test]
fn publishes_are_refused_with_the_reason_while_the_broker_does_not_accept() {
    let mut pair = Pair::new();
    pair.engine.set_accepting(false, "not synced yet", pair.now);
    assert_eq!(pair.publish("t", "x"), error("E_PUB_FAILED PUB failed not synced yet"));
    pair.engine.set_accepting(true, "", pair.now);
    assert_eq!(pair.publish("t", "x"), ok());
}

#[test]
fn only_topics_with_a_limit_take_publishes_while_other_limits_may_be_missing() {
    let mut pair = Pair::new();
    pair.limit("limited", limit(0, 0, 0));
    pair.engine.create_topic("known");
    pair.engine.accept_limited("not synced yet");
    let large = "x".repeat(100_000);
    for body in ["x", &large] {
        assert_eq!(pair.publish("limited", body), ok());
        for topic in ["known", "new"] {
            assert_eq!(pair.publish(topic, body), error("E_PUB_FAILED PUB failed not synced yet"));
        }
    }
    let key = pair.connect();
    pair.send(key, mpub("known", &["x"; 5_000]));
    pair.advance(0);
    assert_eq!(pair.take(key), [error("E_MPUB_FAILED MPUB failed not synced yet")]);
    pair.engine.set_accepting(true, "", pair.now);
    assert_eq!(pair.publish("known", "x"), ok());
    pair.engine.set_accepting(false, "it drains", pair.now);
    assert_eq!(pair.publish("limited", "x"), error("E_PUB_FAILED PUB failed it drains"));
}

#[test]
fn ten_thousand_connections_that_came_published_and_went_leave_nothing_in_memory() {
    let mut pair = Pair::with(Config { max_memory_bytes: 1 << 20, ..Config::default() });
    let consumer = pair.subscribe("t", "c", 2_500);
    for i in 0..10_000 {
        let key = pair.connect();
        match i % 5 {
            0 => pair.send(key, pub_("t", "x")),
            1 => pair.send(key, mpub("t", &["a", "b"])),
            2 => pair.send(key, &pub_("t", "cut off")[..10]),
            3 => pair.send(key, b"MPUB t\n\0\0\0\x04\0\0\0\0"),
            _ => pair.send(key, pub_("none", &"x".repeat(10_000))), // fills the memory in the end, and is refused
        }
        pair.turn();
        pair.close(key);
        for message in pair.messages(consumer) {
            pair.send(consumer, format!("FIN {}\n", message.id));
        }
    }
    pair.turn();
    assert!(pair.engine.delete_topic("none"));
    assert_eq!(pair.engine.memory.messages.used(), 0);
    assert_eq!((pair.engine.conns.len(), pair.engine.counters.accepted), (1, 10_001));
}

#[test]
fn a_client_that_reads_late_gets_the_answers_to_all_before_the_end_or_what_was_refused() {
    for (ends, last) in [(true, ""), (false, "NONSENSE\n")] {
        let mut pair = Pair::new();
        let key = pair.connect();
        pair.stick(key);
        while !pair.engine.is_waiting(key) || pair.engine.unsent(key).len() < 256 << 10 {
            pair.send(key, pub_("t", "x").repeat(100));
            pair.turn();
        }
        for _ in 0..10 {
            pair.advance(0);
        }
        let before = pair.engine.topics[pair.engine.topic_names["t"]].counters.received as usize;
        pair.send(key, [pub_("t", "x").repeat(20), last.into()].concat());
        if ends {
            pair.engine.handle_eof(key);
        }
        pair.unstick(key);
        let mut frames = Vec::new();
        for _ in 0..20 {
            frames.extend(pair.take(key));
            pair.advance(0);
        }
        let after = pair.engine.topics[pair.engine.topic_names["t"]].counters.received as usize;
        assert!(after >= before + 20);
        assert_eq!(frames.iter().filter(|frame| **frame == ok()).count(), after, "each that was accepted, {ends}");
        assert_eq!(matches!(frames.last(), Some(Frame::Error(_))), !ends);
    }
}

#[test]
fn a_client_without_heartbeats_that_ends_its_stream_and_reads_nothing_is_cut_off() {
    let mut pair = Pair::new();
    let key = pair.connect();
    pair.send(key, identify(r#"{"heartbeat_interval":-1}"#));
    pair.turn();
    pair.stick(key);
    while !pair.engine.is_waiting(key) || pair.engine.unsent(key).len() < 256 << 10 {
        pair.send(key, pub_("t", "x").repeat(100));
        pair.advance(0);
    }
    pair.advance(100 * S);
    assert!(!pair.closed.contains(&key), "it may read on some day");
    pair.engine.handle_eof(key);
    pair.turn();
    pair.advance(30 * S - 1);
    assert!(!pair.closed.contains(&key), "its time begins with its end");
    pair.advance(1);
    assert!(pair.closed.contains(&key));
}

/// A consumer of `t` that has left so many answers unread that its commands wait.
fn stalled_consumer(pair: &mut Pair) -> ConnKey {
    let key = pair.subscribe("t", "c", 2_500);
    pair.stick(key);
    while !pair.engine.conns[key].input_state.awaits_client() {
        pair.send(key, pub_("u", "x").repeat(100));
        pair.advance(0);
    }
    key
}

#[test]
fn a_consumer_that_has_stopped_gets_no_messages_when_it_has_read_its_answers() {
    let mut pair = Pair::new();
    let key = stalled_consumer(&mut pair);
    pair.send(key, "RDY 0\n");
    assert_eq!(pair.publish("t", "x"), ok());
    pair.unstick(key);
    for _ in 0..20 {
        pair.advance(0);
    }
    assert_eq!(pair.channel()["depth"], 1);
}

#[test]
fn a_consumer_gets_no_messages_before_it_has_read_its_answers() {
    let mut pair = Pair::new();
    let key = stalled_consumer(&mut pair);
    let left = 1_000;
    let read = pair.engine.unsent(key).len() - left;
    pair.engine.handle_sent(key, read, pair.now);
    assert_eq!(pair.publish("t", "x"), ok());
    assert_eq!((pair.engine.unsent(key).len(), pair.channel()["depth"].clone()), (left, 1.into()));
    pair.unstick(key);
    for _ in 0..20 {
        pair.advance(0);
    }
    assert_eq!(pair.channel()["depth"], 0);
}

/// Publishes 10 KB messages until one is refused; gives how many were taken, and the refusal.
fn flood(pair: &mut Pair, topic: &str) -> (usize, Option<Frame>) {
    let body = "x".repeat(10_000);
    for count in 0..1_000 {
        let answer = pair.publish(topic, &body);
        if answer != ok() {
            return (count, Some(answer));
        }
    }
    (1_000, None)
}

#[test]
fn backlogs_have_an_eighth_of_the_memory_each_and_half_together_so_that_others_publish_on() {
    let mut pair = Pair::with(Config { max_memory_bytes: 800_000, ..Config::default() });
    let topics = ["a", "b", "c", "d", "e"];
    let mut taken = Vec::new();
    for topic in topics {
        pair.limit(topic, limit(0, 0, 1));
        let (count, refusal) = flood(&mut pair, topic);
        assert!(matches!(&refusal, Some(Frame::Error(text)) if text.starts_with("E_RATE_LIMITED")), "{refusal:?}");
        taken.push(count);
    }
    assert_eq!(taken, [9, 9, 9, 9, 3], "10,162 bytes each");
    assert_eq!(pair.publish("other", &"x".repeat(10_000)), ok());
    pair.engine.delete_topic("a");
    assert_eq!(flood(&mut pair, "e").0, 6);
    pair.engine.clear_bucket("b", pair.now);
    assert_eq!(pair.publish("other", &"x".repeat(10_000)), ok());
}

#[test]
fn a_message_larger_than_an_eighth_of_the_memory_waits_alone() {
    let mut pair = Pair::with(Config { max_memory_bytes: 40_000, ..Config::default() });
    pair.limit("t", limit(1, 1, 1));
    assert_eq!(flood(&mut pair, "t").0, 1);
}

#[test]
fn an_unread_ephemeral_topic_drops_what_exceeds_an_eighth_of_the_memory() {
    let mut pair = Pair::with(Config { max_memory_bytes: 800_000, ..Config::default() });
    assert_eq!(flood(&mut pair, "t#ephemeral"), (1_000, None));
    let consumer = pair.subscribe("t", "c#ephemeral", 0);
    assert_eq!(flood(&mut pair, "t"), (1_000, None));
    let snapshot = pair.snapshot();
    assert_eq!(snapshot["topics"].as_array().map(Vec::len), Some(2), "{snapshot}");
    assert!(pair.engine.memory_used() < 200_000);
    assert_eq!(pair.publish("other", &"x".repeat(10_000)), ok());
    pair.send(consumer, "RDY 100\n");
    pair.advance(0);
    assert_eq!(pair.bodies(consumer).len(), 9);
}

#[test]
fn deferred_messages_have_an_eighth_of_the_memory() {
    let mut pair = Pair::with(Config { max_memory_bytes: 800_000, ..Config::default() });
    let consumer = pair.subscribe("t", "c", 100);
    let mut answers = Vec::new();
    for _ in 0..12 {
        let key = pair.connect();
        pair.send(key, dpub("t", 1_000, &"x".repeat(10_000)));
        pair.advance(0);
        answers.extend(pair.take(key));
    }
    let why = "what a topic defers may take 100000 bytes, an eighth of max_memory_bytes, and all together half";
    assert_eq!(answers.iter().filter(|answer| **answer == ok()).count(), 9);
    assert_eq!(answers.last(), Some(&error(&format!("E_DPUB_FAILED DPUB failed {why}"))));
    assert_eq!(pair.publish("t", "at once"), ok());
    pair.advance(NS_PER_S);
    assert_eq!(pair.bodies(consumer).len(), 10);
    let key = pair.connect();
    pair.send(key, dpub("t", 1_000, "x"));
    pair.advance(0);
    assert_eq!(pair.take(key), [ok()]);
}
