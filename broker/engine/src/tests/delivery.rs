//! Queues, credit, answers, timeouts, pausing: sections 3, 8 and 10 of the protocol's facts.

use super::pair::*;
use crate::config::Config;
use crate::queueing::topic::Limit;

fn fill(pair: &mut Pair, topic: &str, count: usize) {
    for i in 0..count {
        assert_eq!(pair.publish(topic, &format!("m{i}")), ok());
    }
}

#[test]
fn the_first_channel_takes_the_backlog_and_a_later_one_only_what_comes_later() {
    let mut pair = Pair::new();
    fill(&mut pair, "t", 3);
    let first = pair.subscribe("t", "a", 10);
    let second = pair.subscribe("t", "b", 10);
    assert_eq!(pair.bodies(first), ["m0", "m1", "m2"]);
    pair.publish("t", "later");
    assert_eq!(pair.bodies(first), ["later"]);
    assert_eq!(pair.bodies(second), ["later"]);
}

#[test]
fn every_channel_gets_each_message_with_the_same_id_and_timestamp() {
    let mut pair = Pair::new();
    let consumers = [pair.subscribe("t", "a", 1), pair.subscribe("t", "b", 1), pair.subscribe("t", "c", 1)];
    pair.publish("t", "x");
    let copies: Vec<_> = consumers.map(|key| pair.messages(key)).concat();
    assert_eq!(copies.len(), 3);
    assert!(copies.iter().all(|copy| *copy == copies[0] && copy.attempts == 1 && copy.body == "x"), "{copies:?}");
    assert_eq!(copies[0].wall_ns, pair.now + pair.engine.clock.offset());
}

#[test]
fn each_message_of_a_channel_goes_to_one_consumer_and_they_share_evenly() {
    let mut pair = Pair::new();
    let consumers = [pair.subscribe("t", "c", 100), pair.subscribe("t", "c", 100), pair.subscribe("t", "c", 100)];
    let bodies: Vec<String> = (0..30).map(|i| i.to_string()).collect();
    let key = pair.connect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    pair.ask(key, mpub("t", &bodies));
    assert_eq!(consumers.map(|key| pair.bodies(key).len()), [10, 10, 10]);
}

#[test]
fn a_lone_message_is_written_before_its_answer_and_a_large_batch_after_it() {
    let mut pair = Pair::new();
    let (consumer, publisher) = (pair.subscribe("t", "c", 100), pair.connect());
    pair.turn();
    let mut dirty = Vec::new();
    let mut written = |pair: &mut Pair| {
        pair.engine.poll_dirty(&mut dirty);
        dirty.clone()
    };
    pair.send(publisher, pub_("t", "lone"));
    assert!(!pair.engine.answer_turn(pair.now));
    pair.engine.deliver_turn(pair.now);
    assert_eq!(written(&mut pair), [consumer, publisher]);
    pair.send(publisher, mpub("t", &["one of many"; 33]));
    assert!(pair.engine.answer_turn(pair.now));
    assert_eq!(written(&mut pair), [publisher]);
    pair.engine.deliver_turn(pair.now);
    assert_eq!(written(&mut pair), [consumer]);
}

#[test]
fn rdy_is_a_level_and_not_a_credit() {
    let mut pair = Pair::new();
    let key = pair.subscribe("t", "c", 2);
    fill(&mut pair, "t", 5);
    let first = pair.messages(key);
    assert_eq!(first.len(), 2);
    assert_eq!(pair.ask(key, "RDY 2\n"), [], "the same level again gives nothing new");
    pair.send(key, format!("FIN {}\n", first[0].id));
    pair.turn();
    assert_eq!(pair.bodies(key), ["m2"]);
    pair.send(key, format!("RDY 1\nFIN {}\n", first[1].id));
    pair.turn();
    assert_eq!(pair.bodies(key), [""; 0], "one is in flight and one is the level");
    assert_eq!(pair.ask(key, "RDY 0\nRDY\n"), [], "RDY without a number is one");
}

#[test]
fn an_answer_to_a_message_that_is_not_in_flight_is_an_error_that_keeps_the_connection() {
    let mut pair = Pair::new();
    let key = pair.subscribe("t", "c", 1);
    let id = "0123456789abcdef";
    assert_eq!(
        pair.ask(key, format!("FIN {id}\n")),
        [error(&format!("E_FIN_FAILED FIN {id} failed ID not in flight"))]
    );
    assert_eq!(
        pair.ask(key, format!("REQ {id} 0\n")),
        [error(&format!("E_REQ_FAILED REQ {id} failed ID not in flight"))]
    );
    assert_eq!(
        pair.ask(key, format!("TOUCH {id}\n")),
        [error(&format!("E_TOUCH_FAILED TOUCH {id} failed ID not in flight"))]
    );
    let odd = "ZZZZZZZZZZZZZZZZ";
    assert_eq!(
        pair.ask(key, format!("FIN {odd}\n")),
        [error(&format!("E_FIN_FAILED FIN {odd} failed ID not in flight"))]
    );
    assert_eq!(pair.ask(key, pub_("t", "still here"))[0], ok());
}

#[test]
fn only_the_owner_of_a_message_may_answer_it() {
    let mut pair = Pair::new();
    let (owner, other) = (pair.subscribe("t", "c", 1), pair.subscribe("t", "c", 0));
    pair.publish("t", "x");
    let id = pair.messages(owner)[0].id.clone();
    for (command, code) in [("FIN", "E_FIN_FAILED"), ("REQ", "E_REQ_FAILED"), ("TOUCH", "E_TOUCH_FAILED")] {
        let line = if command == "REQ" { format!("REQ {id} 0\n") } else { format!("{command} {id}\n") };
        assert_eq!(
            pair.ask(other, line),
            [error(&format!("{code} {command} {id} failed client does not own message"))]
        );
    }
    assert_eq!(pair.ask(owner, format!("FIN {id}\n")), []);
    assert_eq!(pair.channel()["in_flight_count"], 0);
}

#[test]
fn req_puts_a_message_back_at_the_tail_or_defers_it_and_attempts_grow() {
    let mut pair = Pair::new();
    let key = pair.subscribe("t", "c", 1);
    fill(&mut pair, "t", 2);
    let first = pair.messages(key).remove(0);
    pair.send(key, format!("REQ {} 0\n", first.id));
    pair.turn();
    let second = pair.messages(key).remove(0);
    assert_eq!(second.body, "m1");
    pair.send(key, format!("REQ {} 250\n", second.id));
    pair.turn();
    let again = pair.messages(key).remove(0);
    assert_eq!((again.body.as_str(), again.attempts, &again.id, again.wall_ns), ("m0", 2, &first.id, first.wall_ns));
    assert_eq!(pair.ask(key, format!("FIN {}\n", again.id)), []);
    assert_eq!(pair.channel()["deferred_count"], 1);
    pair.advance(250 * MS - 1);
    assert_eq!(pair.bodies(key), [""; 0]);
    pair.advance(1);
    let late = pair.messages(key).remove(0);
    assert_eq!((late.body.as_str(), late.attempts), ("m1", 2));
    assert_eq!(
        (pair.channel()["requeue_count"].clone(), pair.channel()["timeout_count"].clone()),
        (2.into(), 0.into())
    );
}

#[test]
fn a_req_beyond_the_longest_delay_is_clamped() {
    let mut pair = Pair::with(Config { max_req_timeout_ms: 1_000, ..Config::default() });
    let key = pair.subscribe("t", "c", 1);
    pair.publish("t", "x");
    let id = pair.messages(key).remove(0).id;
    assert_eq!(pair.ask(key, format!("REQ {id} 999999999\n")), []);
    pair.advance(S);
    assert_eq!(pair.messages(key).remove(0).attempts, 2);
}

#[test]
fn dpub_defers_in_each_channel_and_counts_in_depth_only_when_due() {
    let mut pair = Pair::new();
    let publisher = pair.connect();
    assert_eq!(pair.ask(publisher, dpub("t", 100, "x")), [ok()]);
    pair.advance(50 * MS); // without a channel the delay does not run
    let consumer = pair.subscribe("t", "c", 1);
    assert_eq!((pair.channel()["depth"].clone(), pair.channel()["deferred_count"].clone()), (0.into(), 1.into()));
    assert_eq!(pair.channel()["message_count"], 1);
    pair.advance(100 * MS - 1);
    assert_eq!(pair.bodies(consumer), [""; 0]);
    pair.advance(1);
    assert_eq!(pair.bodies(consumer), ["x"]);
}

#[test]
fn a_message_timeout_is_punctual_and_counts_as_a_timeout() {
    let mut pair = Pair::new();
    let key = pair.connect();
    pair.send(key, identify(r#"{"msg_timeout":1000,"heartbeat_interval":60000}"#));
    assert_eq!(pair.ask(key, "SUB t c\nRDY 1\n"), [ok(), ok()]);
    pair.publish("t", "x");
    let first = pair.messages(key).remove(0);
    pair.advance(S - 1);
    assert_eq!(pair.messages(key), []);
    pair.advance(1);
    let second = pair.messages(key).remove(0);
    assert_eq!((&second.id, second.attempts), (&first.id, 2));
    assert_eq!(
        (pair.channel()["requeue_count"].clone(), pair.channel()["timeout_count"].clone()),
        (0.into(), 1.into())
    );
}

#[test]
fn a_fin_after_the_timeout_fails() {
    let mut pair = Pair::new();
    let key = pair.connect();
    pair.send(key, identify(r#"{"msg_timeout":1000}"#));
    pair.ask(key, "SUB t c\nRDY 1\n");
    pair.publish("t", "x");
    let id = pair.messages(key).remove(0).id;
    pair.ask(key, "RDY 0\n");
    pair.advance(S);
    assert_eq!(
        pair.ask(key, format!("FIN {id}\n")),
        [error(&format!("E_FIN_FAILED FIN {id} failed ID not in flight"))]
    );
    assert_eq!(pair.channel()["depth"], 1);
}

#[test]
fn touch_extends_the_timeout_but_never_beyond_the_longest_one() {
    let mut pair = Pair::with(Config { max_msg_timeout_ms: 2_500, ..Config::default() });
    let key = pair.connect();
    pair.send(key, identify(r#"{"msg_timeout":1000}"#));
    pair.ask(key, "SUB t c\nRDY 1\n");
    pair.publish("t", "x");
    let id = pair.messages(key).remove(0).id;
    for _ in 0..3 {
        pair.advance(800 * MS);
        assert_eq!(pair.ask(key, format!("TOUCH {id}\n")), []);
    }
    pair.advance(100 * MS - 1);
    assert_eq!(pair.messages(key), []);
    pair.advance(1); // 2.5 s after the delivery
    assert_eq!(pair.messages(key).remove(0).attempts, 2);
}

#[test]
fn a_flood_of_touches_costs_no_memory() {
    let mut pair = Pair::new();
    let key = pair.subscribe("t", "c", 1);
    pair.publish("t", "x");
    let id = pair.messages(key).remove(0).id;
    for _ in 0..10_000 {
        pair.send(key, format!("TOUCH {id}\n"));
        pair.stall(1_000);
    }
    let deadlines = pair.engine.conns[key].subscription.as_ref().expect("subscribed").deadlines.len();
    assert!(deadlines < 100, "{deadlines}");
}

#[test]
fn what_was_in_flight_to_a_closed_connection_is_at_the_head_of_the_queue_at_once_and_in_order() {
    let mut pair = Pair::new();
    let leaving = pair.subscribe("t", "c", 3);
    fill(&mut pair, "t", 5);
    pair.close(leaving);
    let other = pair.subscribe("t", "c", 10);
    let messages = pair.messages(other);
    let seen: Vec<_> = messages.iter().map(|m| (m.body.as_str(), m.attempts)).collect();
    assert_eq!(seen, [("m0", 2), ("m1", 2), ("m2", 2), ("m3", 1), ("m4", 1)]);
    assert_eq!(
        (pair.channel()["requeue_count"].clone(), pair.channel()["timeout_count"].clone()),
        (3.into(), 0.into())
    );
}

#[test]
fn messages_requeued_by_a_close_reach_a_waiting_consumer_without_further_news() {
    let mut pair = Pair::new();
    let leaving = pair.subscribe("t", "c", 1);
    pair.publish("t", "x");
    let waiting = pair.subscribe("t", "c", 1);
    pair.engine.handle_broken(leaving); // as a failed write does, after the turn's deliveries
    pair.advance(0);
    assert_eq!(pair.bodies(waiting), ["x"]);
}

#[test]
fn a_paused_channel_keeps_its_messages_and_goes_on_at_unpause() {
    let mut pair = Pair::new();
    let key = pair.subscribe("t", "c", 5);
    assert!(pair.engine.pause_channel("t", "c", true));
    fill(&mut pair, "t", 2);
    assert_eq!((pair.bodies(key).len(), pair.channel()["depth"].clone()), (0, 2.into()));
    assert!(pair.engine.pause_channel("t", "c", false));
    pair.turn();
    assert_eq!(pair.bodies(key), ["m0", "m1"]);
}

#[test]
fn a_paused_topic_takes_publishes_and_hands_nothing_to_its_channels() {
    let mut pair = Pair::new();
    let key = pair.subscribe("t", "c", 5);
    let now = pair.now;
    assert!(pair.engine.pause_topic("t", true, now));
    fill(&mut pair, "t", 2);
    assert_eq!((pair.topic()["depth"].clone(), pair.bodies(key).len()), (2.into(), 0));
    assert!(pair.engine.pause_topic("t", false, now));
    pair.turn();
    assert_eq!(pair.bodies(key), ["m0", "m1"]);
}

#[test]
fn a_held_topic_queues_until_it_is_released() {
    let mut pair = Pair::with(Config { hold_new_topics: true, ..Config::default() });
    let key = pair.subscribe("t", "c", 5);
    fill(&mut pair, "t", 1);
    assert_eq!(pair.bodies(key).len(), 0);
    let now = pair.now;
    assert!(pair.engine.release_topic("t", now));
    pair.turn();
    assert_eq!(pair.bodies(key), ["m0"]);
}

#[test]
fn a_topic_is_held_however_it_is_made_and_only_while_new_ones_are() {
    let mut pair = Pair::new();
    pair.engine.set_hold_new_topics(true);
    pair.engine.create_topic("t");
    assert_eq!(pair.topic()["held"], true);
    pair.engine.set_hold_new_topics(false);
    assert!(pair.engine.delete_topic("t"));
    pair.engine.create_topic("t");
    assert_eq!(pair.topic()["held"], false);
}

#[test]
fn emptying_a_channel_drops_what_is_queued_in_flight_and_deferred_and_frees_the_credit() {
    let mut pair = Pair::new();
    let key = pair.subscribe("t", "c", 2);
    fill(&mut pair, "t", 4);
    let publisher = pair.connect();
    pair.ask(publisher, dpub("t", 1_000, "later"));
    let id = pair.messages(key).remove(0).id;
    assert!(pair.engine.empty_channel("t", "c"));
    assert_eq!(pair.engine.memory.messages.used(), 0);
    assert_eq!(
        pair.ask(key, format!("FIN {id}\n")),
        [error(&format!("E_FIN_FAILED FIN {id} failed ID not in flight"))]
    );
    fill(&mut pair, "t", 2);
    assert_eq!(pair.bodies(key), ["m0", "m1"]);
}

#[test]
fn emptying_a_topic_drops_what_waits_for_a_channel_and_what_waits_for_tokens() {
    let mut pair = Pair::new();
    fill(&mut pair, "t", 2);
    pair.limit("t", limit(0, 0, 1));
    fill(&mut pair, "t", 2);
    assert_eq!(pair.topic()["depth"], 4);
    assert!(pair.engine.empty_topic("t"));
    assert_eq!((pair.topic()["depth"].clone(), pair.engine.memory.messages.used()), (0.into(), 0));
    assert_eq!(pair.topic()["bucket"]["backlog_bytes"], 0);
}

#[test]
fn deleting_a_channel_or_topic_disconnects_its_consumers() {
    let mut pair = Pair::new();
    let (a, b) = (pair.subscribe("t", "a", 1), pair.subscribe("t", "b", 1));
    fill(&mut pair, "t", 3);
    assert!(pair.engine.delete_channel("t", "a"));
    pair.turn();
    assert!(pair.closed.contains(&a) && !pair.closed.contains(&b));
    assert!(pair.engine.delete_topic("t"));
    pair.turn();
    assert!(pair.closed.contains(&b));
    assert_eq!((pair.engine.memory.messages.used(), pair.snapshot()["topics"].clone()), (0, serde_json::json!([])));
    assert!(!pair.engine.delete_topic("t") && !pair.engine.delete_channel("t", "a"));
}

#[test]
fn an_unused_topic_holds_no_message_and_no_channel_and_is_neither_limited_nor_paused() {
    let mut pair = Pair::new();
    let now = pair.now;
    pair.limit("t", limit(0, 0, 1));
    assert!(!pair.engine.delete_unused_topic("t"), "it is limited");
    pair.publish("t", "waits for a token");
    pair.engine.clear_bucket("t", now);
    assert!(!pair.engine.delete_unused_topic("t"), "a message waits for a channel");
    pair.engine.empty_topic("t");
    pair.engine.pause_topic("t", true, now);
    assert!(!pair.engine.delete_unused_topic("t"), "it is paused");
    pair.engine.pause_topic("t", false, now);
    pair.engine.create_channel("t", "c", now);
    assert!(!pair.engine.delete_unused_topic("t"), "it has a channel");
    pair.engine.delete_channel("t", "c");
    assert!(pair.engine.delete_unused_topic("t"));
    assert_eq!(pair.snapshot()["topics"], serde_json::json!([]));
    assert!(!pair.engine.delete_unused_topic("t"), "there is none");
}

#[test]
fn an_ephemeral_channel_goes_with_its_last_consumer_and_an_ephemeral_topic_with_its_last_channel() {
    let mut pair = Pair::new();
    let (one, two) = (pair.subscribe("t#ephemeral", "c#ephemeral", 1), pair.subscribe("t#ephemeral", "c#ephemeral", 1));
    pair.close(one);
    assert_eq!(pair.channel()["channel_name"], "c#ephemeral");
    pair.publish("t#ephemeral", "x");
    pair.close(two);
    assert_eq!((pair.snapshot()["topics"].clone(), pair.engine.memory.messages.used()), (serde_json::json!([]), 0));
    let kinds: Vec<_> = pair.engine.poll_events().iter().map(|event| format!("{event:?}")).collect();
    assert!(kinds[2].starts_with("ChannelDeleted") && kinds[3].starts_with("TopicDeleted"), "{kinds:?}");
}

#[test]
fn a_limit_outlives_its_topic_however_often_that_is_made_again() {
    let mut pair = Pair::new();
    pair.limit("t#ephemeral", Limit { full: true, ..limit(10, 20, 7) });
    let mut delivered = 0;
    for cycle in 0..61 {
        let consumer = pair.subscribe("t#ephemeral", "c#ephemeral", 100);
        for _ in 0..40 {
            pair.publish("t#ephemeral", "x");
        }
        delivered += pair.bodies(consumer).len();
        pair.close(consumer);
        assert_eq!(pair.snapshot()["topics"], serde_json::json!([]), "{cycle}");
        pair.advance(S / 10);
    }
    assert_eq!(delivered, 20 + 60, "the burst once, then what 6 s bring");
    pair.engine.create_topic("t#ephemeral");
    let bucket = &pair.topic()["bucket"];
    assert_eq!(
        (bucket["version"].as_u64(), bucket["backlog"].as_u64(), bucket["fill"].as_f64()),
        (Some(7), Some(0), Some(1.0))
    );
    pair.engine.delete_topic("t#ephemeral");
    assert!(pair.engine.clear_bucket("t#ephemeral", pair.now), "also of a topic that does not exist now");
    assert!(!pair.engine.clear_bucket("t#ephemeral", pair.now));
    pair.engine.create_topic("t#ephemeral");
    assert!(pair.topic()["bucket"].is_null());
}

#[test]
fn a_bucket_may_be_kept_for_a_topic_that_is_made_later() {
    let mut pair = Pair::new();
    let kept = Limit { full: false, ..limit(10, 20, 0) };
    assert!(pair.engine.keep_bucket("t", kept, pair.now));
    assert_eq!(pair.snapshot()["topics"], serde_json::json!([]));
    let consumer = pair.subscribe("t", "c", 100);
    pair.publish("t", "x");
    assert_eq!(pair.bodies(consumer), [""; 0], "it begins empty");
    pair.advance(S / 10);
    assert_eq!(pair.bodies(consumer), ["x"]);
    assert!(pair.engine.keep_bucket("t", limit(30, 20, 0), pair.now), "a topic that exists has it at once");
    assert_eq!(pair.topic()["bucket"]["rate_micro"], 30_000_000);
}

#[test]
fn a_lease_that_ends_while_its_topic_is_gone_lets_nothing_go() {
    let mut pair = Pair::new();
    let lease = Limit { expires: pair.now + S, ..limit(10, 20, 7) };
    pair.limit("t", lease);
    pair.engine.delete_topic("t");
    pair.advance(S);
    let consumer = pair.subscribe("t", "c", 100);
    pair.publish("t", "x");
    assert_eq!((pair.bodies(consumer).len(), pair.topic()["bucket"]["lapses"].as_u64()), (0, Some(1)));
}

#[test]
fn a_plain_channel_outlives_its_consumers() {
    let mut pair = Pair::new();
    let key = pair.subscribe("t", "c", 1);
    pair.close(key);
    pair.publish("t", "x");
    assert_eq!(pair.channel()["depth"], 1);
}

#[test]
fn a_sampled_consumer_gets_its_share_and_the_rest_is_gone() {
    let mut pair = Pair::new();
    let key = pair.connect();
    pair.send(key, identify(r#"{"sample_rate":50}"#));
    pair.ask(key, "SUB t c\nRDY 2500\n");
    fill(&mut pair, "t", 1_000);
    let count = pair.bodies(key).len();
    assert!((440..=580).contains(&count), "{count}");
    assert_eq!((pair.channel()["depth"].clone(), pair.channel()["in_flight_count"].clone()), (0.into(), count.into()));
}

#[test]
fn an_mpub_is_all_or_nothing() {
    let mut pair = Pair::new();
    let key = pair.subscribe("t", "c", 10);
    let publisher = pair.connect();
    let mut bad = mpub("t", &["a", "b", "c"]);
    let last = bad.len() - 5;
    bad[last..last + 4].copy_from_slice(&0u32.to_be_bytes()); // the third message claims no bytes
    let answer = pair.ask(publisher, bad);
    assert_eq!(answer, [error("E_BAD_MESSAGE MPUB invalid message(2) body size 0")]);
    assert_eq!(pair.bodies(key), [""; 0]);
    let publisher = pair.connect();
    assert_eq!(pair.ask(publisher, mpub("t", &["a", "b", "c"])), [ok()]);
    assert_eq!(pair.bodies(key), ["a", "b", "c"]);
}

#[test]
fn a_subscribed_or_closing_connection_may_publish() {
    let mut pair = Pair::new();
    let key = pair.subscribe("t", "c", 0);
    assert_eq!(pair.ask(key, pub_("t", "x")), [ok()]);
    assert_eq!(pair.ask(key, "CLS\n"), [response("CLOSE_WAIT")]);
    assert_eq!(pair.ask(key, pub_("t", "x")), [ok()]);
}

#[test]
fn after_cls_nothing_is_delivered_but_what_is_in_flight_can_be_answered() {
    let mut pair = Pair::new();
    let key = pair.subscribe("t", "c", 2);
    fill(&mut pair, "t", 3);
    let messages = pair.messages(key);
    assert_eq!(pair.ask(key, "CLS\n"), [response("CLOSE_WAIT")]);
    assert_eq!(pair.ask(key, format!("FIN {}\nRDY 5\nTOUCH {}\n", messages[0].id, messages[1].id)), []);
    assert_eq!(pair.ask(key, format!("REQ {} 0\n", messages[1].id)), []);
    assert_eq!((pair.channel()["depth"].clone(), pair.channel()["in_flight_count"].clone()), (2.into(), 0.into()));
}

#[test]
fn the_time_from_publish_to_fin_is_kept_by_channel_and_topic_if_asked_for() {
    let mut pair = Pair::with(Config { e2e_percentiles: vec![0.99, 0.5], ..Config::default() });
    let key = pair.subscribe("t", "c", 1);
    pair.subscribe("t", "other", 1);
    fill(&mut pair, "t", 1);
    assert_eq!(pair.topic()["e2e"]["count"], 0);
    let id = pair.messages(key).remove(0).id;
    pair.now += 5_000_000;
    pair.ask(key, format!("FIN {id}\n"));
    let topic = pair.topic();
    for seen in [&topic["e2e"], &topic["channels"][0]["e2e"]] {
        assert_eq!(seen["count"], 1);
        assert!(seen["values_ns"][1].as_i64().expect("a number").abs_diff(5_000_000) < 50_000, "{seen}");
    }
    assert_eq!(topic["channels"][1]["e2e"]["count"], 0);
}
