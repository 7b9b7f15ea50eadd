//! What one hostile client may do to the others: each bound refuses by its name, is told once, and leaves everybody
//! else as they were.

use slotmap::Key;

use super::pair::*;
use crate::config::Config;
use crate::event::Event;
use crate::http::answer::Answer;
use crate::keys::ConnKey;
use crate::scheduling::work_budget::{QUANTUM, TURN_UNITS};

fn with(change: impl FnOnce(&mut Config)) -> Pair {
    let mut config = Config::default();
    change(&mut config);
    Pair::with(config)
}

/// The limits that were told since the last time: (setting, how often it was met).
fn told(pair: &mut Pair) -> Vec<(&'static str, u64)> {
    let events = pair.engine.poll_events().into_iter();
    events
        .filter_map(
            |event| if let Event::LimitReached { limit, times, .. } = event { Some((limit, times)) } else { None },
        )
        .collect()
}

fn met(pair: &mut Pair, setting: &str) -> u64 {
    pair.snapshot()["limits_met"][setting].as_u64().expect("a count")
}

/// How many turns it takes until nothing is left to do.
fn turns_to_rest(pair: &mut Pair) -> usize {
    let mut turns = 0;
    while pair.engine.poll_timeout() == Some(0) {
        pair.turn();
        turns += 1;
    }
    turns
}

fn heartless(pair: &mut Pair) -> ConnKey {
    let key = pair.connect();
    assert_eq!(pair.ask(key, identify(r#"{"heartbeat_interval":-1}"#)), [ok()]);
    key
}

#[test]
fn a_flood_of_commands_gets_the_budget_of_each_turn_and_the_others_go_on_in_it() {
    for flood in ["NOP\n", "RDY 1\n", "FIN 0123456789abcdef\n"] {
        let mut pair = Pair::new();
        let (hostile, calm) = (pair.subscribe("h", "c", 1), pair.connect());
        pair.send(hostile, flood.repeat(20_000));
        let postponed = pair.snapshot()["postponements"].as_u64();
        assert_eq!(postponed, Some(1), "{flood}");
        assert_eq!(pair.ask(calm, pub_("t", "x")), [ok()], "in the same turn, {flood}");
        assert!(turns_to_rest(&mut pair) >= 20_000 / (TURN_UNITS + QUANTUM) as usize, "{flood}");
        pair.send(hostile, "CLS\n");
        pair.turn();
        assert_eq!(pair.take(hostile).last(), Some(&response("CLOSE_WAIT")), "nothing was lost, {flood}");
    }
}

#[test]
fn many_floods_together_get_no_longer_turns_and_nobody_starves() {
    let mut pair = Pair::new();
    let floods: Vec<_> = (0..300).map(|_| pair.connect()).collect();
    for &key in &floods {
        pair.send(key, ["NOP\n".repeat(5_000).into_bytes(), pub_("t", "x")].concat());
    }
    let calm = pair.connect();
    assert_eq!(pair.ask(calm, pub_("t", "calm")), [ok()]);
    let turns = turns_to_rest(&mut pair);
    assert!(turns >= 100, "1.5 million commands in {turns} turns");
    for key in floods {
        assert_eq!(pair.take(key), [ok()]);
    }
}

#[test]
fn of_many_publishers_that_saturate_the_broker_none_waits_for_the_others_for_ever() {
    let mut pair = Pair::new();
    let batch = mpub("t", &["x"; 200]);
    let publishers: Vec<_> = (0..50).map(|_| pair.connect()).collect();
    let mut answered = vec![0; publishers.len()];
    for &key in &publishers {
        pair.send(key, &batch);
    }
    for _ in 0..200 {
        pair.turn();
        for (count, &key) in answered.iter_mut().zip(&publishers) {
            if pair.take(key) == [ok()] {
                *count += 1;
                pair.send(key, &batch); // at once, as fast publishers do
            }
        }
    }
    let (least, most) = (answered.iter().min(), answered.iter().max());
    assert!(least.zip(most).is_some_and(|(least, most)| *least >= 10 && *most <= 4 * least), "{answered:?}");
}

#[test]
fn a_large_mpub_is_published_in_slices_and_the_others_go_on_between_them() {
    for bodies in [vec!["x".to_owned(); 5_000], vec!["x".repeat(100_000); 20]] {
        let mut pair = Pair::new();
        let (hostile, calm) = (pair.connect(), pair.connect());
        let (consumer, count) = (pair.subscribe("h", "c", 2_500), bodies.len());
        let numbered: Vec<String> = bodies.iter().enumerate().map(|(i, body)| format!("{i:06}{body}")).collect();
        let large = mpub("h", &numbered.iter().map(String::as_str).collect::<Vec<_>>());
        pair.send(hostile, [&large[..], &pub_("h", "behind")].concat());
        let mut seen = 0;
        let mut answers = Vec::new();
        while answers.len() < 2 {
            answers.extend(pair.take(hostile));
            assert_eq!(pair.ask(calm, pub_("t", "calm")), [ok()]);
            let now =
                pair.snapshot()["topics"].as_array().expect("a list")[0]["message_count"].as_u64().expect("a count");
            assert!(now - seen <= u64::from(TURN_UNITS + 2 * QUANTUM), "{now} after {seen}");
            seen = now;
        }
        assert_eq!(answers, [ok(), ok()]);
        let mut got = Vec::new();
        while got.len() <= count {
            let messages = pair.messages(consumer);
            assert!(!messages.is_empty(), "{} of {count}", got.len());
            for message in messages {
                pair.send(consumer, format!("FIN {}\n", message.id));
                got.push(message.body);
            }
            pair.advance(0);
        }
        assert_eq!((&got[..count], got[count].as_str()), (&numbered[..], "behind"));
    }
}

#[test]
fn a_large_mpub_that_memory_has_no_room_for_is_refused_before_its_first_slice() {
    let mut pair = with(|config| config.max_memory_bytes = 1_000_000);
    let key = pair.connect();
    let large = mpub("t", &["x"; 10_000]);
    let text = "E_MPUB_FAILED MPUB failed memory limit of 1000000 bytes reached: nobody drains what is queued";
    pair.send(key, large);
    pair.advance(0);
    assert_eq!(pair.take(key), [error(text)]);
    assert_eq!(pair.snapshot()["topics"].as_array().expect("a list").len(), 0);
}

#[test]
fn a_large_mpub_that_is_refused_on_the_way_is_answered_once_and_no_more_of_it_comes() {
    let mut pair = Pair::new();
    let key = pair.connect();
    pair.send(key, [mpub("t", &["x"; 5_000]), pub_("t", "behind")].concat());
    pair.turn();
    let now = pair.now;
    pair.engine.set_accepting(false, "it drains", now);
    pair.advance(0);
    assert_eq!(pair.take(key), [error("E_MPUB_FAILED MPUB failed it drains")]);
    let count = pair.topic()["message_count"].as_u64().expect("a count");
    assert!((1..5_000).contains(&count), "{count}");
}

#[test]
fn a_bucket_that_comes_between_two_slices_decides_the_rest_as_a_whole() {
    let mut pair = Pair::new();
    let key = pair.connect();
    pair.send(key, mpub("t", &["x"; 5_000]));
    pair.turn();
    pair.limit("t", crate::queueing::topic::Limit { max_backlog: 10_000, ..limit(1_000, 1, 1) });
    let before = pair.topic()["received"].as_u64().expect("a count");
    while pair.engine.is_waiting(key) {
        assert_eq!(pair.topic()["received"], before);
        pair.turn();
    }
    assert_eq!(pair.take(key), [ok()]);
    assert_eq!(pair.topic()["received"], 5_000);
}

#[test]
fn what_waits_for_the_next_turn_keeps_its_order_and_its_arrival() {
    let mut pair = Pair::new();
    pair.limit("t", limit(1_000_000, 1_000_000, 1));
    let (key, consumer) = (pair.connect(), pair.subscribe("t", "c", 2_500));
    pair.stall(S);
    let (first, second) = (pair.now - 2 * MS, pair.now - MS);
    pair.send_at(key, ["NOP\n".repeat(5_000).into_bytes(), pub_("t", "a")].concat(), first);
    pair.send_at(key, pub_("t", "b"), second);
    turns_to_rest(&mut pair);
    assert_eq!(pair.take(key), [ok(), ok()]);
    assert_eq!(pair.bodies(consumer), ["a", "b"]);
    let arrivals: Vec<i64> = pair
        .trace("t")
        .arrival_ns
        .chunks(8)
        .map(|word| i64::from_le_bytes(word.try_into().expect("8 bytes")))
        .collect();
    assert_eq!(arrivals, [first, second]);
}

#[test]
fn a_flood_that_ends_its_stream_gets_the_answers_to_all_of_it() {
    let mut pair = Pair::new();
    let key = pair.connect();
    pair.send(key, ["NOP\n".repeat(10_000).into_bytes(), pub_("t", "x")].concat());
    pair.engine.handle_eof(key);
    turns_to_rest(&mut pair);
    assert_eq!(pair.take(key), [ok()]);
    assert!(pair.closed.contains(&key));
}

#[test]
fn a_flood_of_requests_by_http_is_shared_out_too() {
    let mut pair = Pair::new();
    let (hostile, calm) = (pair.connect_http(), pair.connect_http());
    pair.send(hostile, "GET /ping HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2_000));
    pair.send(calm, "GET /ping HTTP/1.1\r\nHost: x\r\n\r\n");
    pair.turn();
    assert_eq!(pair.take_text(calm).matches("200 OK").count(), 1);
    assert!(turns_to_rest(&mut pair) >= 5);
    assert_eq!(pair.take_text(hostile).matches("200 OK").count(), 2_000);
}

#[test]
fn what_python_has_of_requests_counts_against_the_memory_until_it_answers() {
    let mut pair = Pair::new();
    let before = pair.engine.memory_used();
    let keys: Vec<_> = (0..10).map(|_| pair.connect_http()).collect();
    let request = format!("PUT /config/x HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n{}", "x".repeat(50_000));
    for &key in &keys {
        pair.send(key, &request);
        pair.turn();
    }
    assert_eq!(pair.engine.memory_used() - before, 10 * request.len() as u64);
    let now = pair.now;
    for handed in pair.engine.poll_handed() {
        let answer = Answer { status: 200, content_type: "", headers: &[], body: b"" };
        assert!(pair.engine.respond(handed.id, &answer, now));
    }
    pair.turn();
    assert_eq!(pair.engine.memory_used(), before);
}

#[test]
fn the_first_connection_too_many_is_told_and_the_next_one_comes_in_when_one_has_gone() {
    let mut pair = with(|config| config.max_connections = 2);
    let first = pair.accept();
    pair.connect_http();
    let unwanted = pair.engine.admit("192.0.2.9:1").expect_err("one too many");
    assert_eq!(decode(&unwanted.frame()), [error("E_INVALID too many connections: there may be 2 (max_connections)")]);
    let now = pair.now;
    let answer = String::from_utf8(pair.engine.unwanted_by_http(&unwanted, now)).expect("text");
    assert!(
        answer.starts_with("HTTP/1.1 503 ")
            && answer.contains("max_connections")
            && answer.contains("Connection: close"),
        "{answer}"
    );
    assert_eq!(met(&mut pair, "max_connections"), 1);
    pair.close(first);
    assert_eq!(pair.engine.admit("192.0.2.9:1"), Ok(()));
}

#[test]
fn one_address_cannot_take_all_connections() {
    let mut pair = with(|config| config.max_connections_per_address = 2);
    let first = pair.engine.handle_accept("192.0.2.1:1", START);
    pair.engine.handle_accept("[2001:db8::1]:1", START);
    pair.engine.handle_accept("192.0.2.1:2", START);
    let unwanted = pair.engine.admit("192.0.2.1:3").expect_err("one too many");
    let text = "E_INVALID too many connections of 192.0.2.1: there may be 2 (max_connections_per_address)";
    assert_eq!(decode(&unwanted.frame()), [error(text)]);
    assert_eq!(pair.engine.admit("192.0.2.2:1"), Ok(()));
    pair.engine.handle_accept("[2001:db8::2]:1", START);
    assert!(pair.engine.admit("[2001:db8::3]:1").is_err(), "a network of IPv6 is one");
    assert_eq!(pair.engine.admit("[2001:db8:0:1::3]:1"), Ok(()));
    assert_eq!(pair.engine.admit("@"), Ok(()), "who comes by a Unix socket has no address");
    pair.close(first);
    assert_eq!(pair.engine.admit("192.0.2.1:3"), Ok(()));
}

#[test]
fn where_nothing_is_said_one_address_leaves_an_eighth_to_the_others() {
    let mut pair = Pair::new();
    pair.engine.set_room(Some(16));
    let mine = (0..16).take_while(|port| {
        let remote = format!("192.0.2.1:{port}");
        pair.engine.admit(&remote).is_ok_and(|()| !pair.engine.handle_accept(&remote, START).is_null())
    });
    assert_eq!(mine.count(), 14);
    assert_eq!(pair.engine.admit("192.0.2.2:1"), Ok(()));
}

#[test]
fn a_crowd_for_which_there_is_room_makes_no_table_grow() {
    let mut pair = Pair::new();
    pair.engine.set_room(Some(1_000));
    let before = pair.engine.conns.capacity();
    for port in 0..1_000 {
        pair.engine.handle_accept(&format!("192.0.2.1:{port}"), START);
    }
    assert_eq!(
        pair.engine.conns.capacity(),
        before,
        "a larger table is a copy of everybody's connection, in one piece"
    );
}

#[test]
fn topics_are_bounded_and_those_that_are_there_are_served_on() {
    let mut pair = with(|config| config.max_topics = 2);
    let calm = pair.connect();
    pair.ask(calm, pub_("a", "x"));
    pair.ask(calm, pub_("b", "x"));
    assert_eq!(pair.publish("c", "x"), error("E_PUB_FAILED PUB failed there may be 2 topics (max_topics)"));
    let consumer = pair.connect();
    assert_eq!(pair.ask(consumer, "SUB c x\n"), [error("E_SUB_FAILED SUB failed there may be 2 topics (max_topics)")]);
    let http = pair.connect_http();
    pair.send(http, "POST /pub?topic=c HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx");
    pair.turn();
    assert!(pair.take_text(http).ends_with(r#"{"message":"there may be 2 topics (max_topics)"}"#));
    assert_eq!((met(&mut pair, "max_topics"), pair.snapshot()["topics"].as_array().expect("a list").len()), (3, 2));
    assert_eq!(pair.ask(calm, pub_("a", "x")), [ok()]);
    assert!(pair.engine.delete_topic("b"));
    assert_eq!(pair.publish("c", "x"), ok());
}

#[test]
fn channels_of_a_topic_are_bounded() {
    let mut pair = with(|config| config.max_channels_per_topic = 2);
    for channel in ["a", "b", "b"] {
        pair.subscribe("t", channel, 1);
    }
    let text = "E_SUB_FAILED SUB failed a topic may have 2 channels (max_channels_per_topic)";
    let hostile = pair.connect();
    assert_eq!(pair.ask(hostile, "SUB t c\n"), [error(text)]);
    assert_eq!(
        pair.engine.refusal_to_make("t", "c", "").as_deref(),
        Some("a topic may have 2 channels (max_channels_per_topic)")
    );
    assert_eq!(pair.engine.refusal_to_make("t", "b", ""), None);
    pair.subscribe("u", "c", 1);
}

#[test]
fn when_the_list_of_topics_is_final_clients_have_what_there_is_and_nothing_is_made() {
    let mut pair = Pair::default();
    pair.subscribe("t", "c", 1);
    pair.engine.finish_list();
    let (publisher, consumer) = (pair.connect(), pair.subscribe("t", "c", 1));
    assert_eq!(pair.publish("t", "x"), ok());
    assert_eq!(pair.bodies(consumer).len(), 0, "the first one has it");
    assert_eq!(pair.ask(publisher, pub_("u", "x")), [error("E_PUB_FAILED PUB failed exiting")]);
    for line in ["SUB t d\n", "SUB u c\n"] {
        let late = pair.connect();
        assert_eq!(pair.ask(late, line), [error("E_SUB_FAILED SUB failed exiting")]);
    }
    assert_eq!(pair.snapshot()["topics"].as_array().expect("a list").len(), 1);
}

#[test]
fn an_mpub_of_too_many_messages_is_refused_before_its_body_is_there() {
    let mut pair = with(|config| config.max_mpub_messages = 2);
    let key = pair.connect();
    assert_eq!(pair.ask(key, mpub("t", &["a", "b"])), [ok()]);
    assert_eq!(pair.ask(key, &mpub("t", &["a", "b", "c"])[..15]), [error("E_BAD_BODY MPUB too many messages 3 > 2")]);
    let http = pair.connect_http();
    pair.send(http, "POST /mpub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\na\nb\nc");
    pair.turn();
    assert!(pair.take_text(http).ends_with(r#"{"message":"TOO_MANY_MESSAGES: 3 > 2"}"#));
    assert_eq!(met(&mut pair, "max_mpub_messages"), 2);
}

#[test]
fn half_commands_of_many_connections_are_bounded_together_and_small_ones_go_on() {
    let mut pair = with(|config| config.max_unfinished_bytes = 100_000);
    let half = &pub_("t", &"x".repeat(20_000))[..15_000];
    let answers: Vec<Vec<Frame>> = (0..20)
        .map(|_| {
            let key = pair.connect();
            pair.ask(key, half)
        })
        .collect();
    let text =
        "E_INVALID unfinished command: all clients together may leave 100000 bytes unfinished (max_unfinished_bytes)";
    assert!(answers[..6].iter().all(Vec::is_empty), "{answers:?}");
    assert!(answers[6..].iter().all(|answer| *answer == [error(text)]), "{answers:?}");
    assert!(pair.engine.limits.unfinished.used() <= 120_000);
    let calm = pair.connect();
    let whole = pub_("t", "calm");
    assert_eq!(pair.ask(calm, &whole[..7]), []);
    assert_eq!(pair.ask(calm, &whole[7..]), [ok()]);
}

#[test]
fn who_is_refused_for_the_time_a_command_takes_is_told_so_also_where_it_begins_to_read_then() {
    let mut pair = Pair::new();
    let slow = heartless(&mut pair);
    pair.stick(slow);
    pair.send(slow, [pub_("t", "x"), pub_("t", "x")[..7].into()].concat());
    pair.turn();
    pair.stall(60 * S);
    pair.unstick(slow);
    pair.turn();
    assert_eq!(pair.take(slow), [ok(), error("E_INVALID unfinished command: not whole within 60 s")]);
}

#[test]
fn a_command_that_drips_in_is_refused_after_a_minute_also_where_there_are_no_heartbeats() {
    let mut pair = Pair::new();
    let (slow, patient) = (heartless(&mut pair), heartless(&mut pair));
    let whole = pub_("t", &"x".repeat(100));
    for second in 0..60 {
        pair.send(slow, &whole[second..=second]);
        pair.advance(S - 1);
        assert!(pair.take(slow).is_empty(), "second {second}");
        pair.advance(1);
    }
    assert_eq!(pair.take(slow), [error("E_INVALID unfinished command: not whole within 60 s")]);
    pair.advance(600 * S);
    assert_eq!(pair.ask(patient, whole), [ok()], "silence between commands is no offence");
}

#[test]
fn a_dribbler_that_ends_its_commands_starts_each_with_a_minute() {
    let mut pair = Pair::new();
    let key = heartless(&mut pair);
    let whole = pub_("t", "x");
    pair.send(key, &whole[..5]);
    for _ in 0..3 {
        pair.advance(50 * S);
        assert_eq!(pair.ask(key, [&whole[5..], &whole[..5]].concat()), [ok()]);
    }
}

#[test]
fn clients_that_read_nothing_are_cut_when_together_they_leave_too_much() {
    let mut pair = with(|config| config.max_unread_bytes = 300_000);
    let (publisher, calm) = (pair.connect(), pair.subscribe("t", "calm", 2_500));
    let stuck: Vec<_> = (0..5).map(|i| pair.subscribe("t", &format!("stuck-{i}"), 2_500)).collect();
    for &key in &stuck {
        pair.stick(key);
    }
    for _ in 0..100 {
        assert_eq!(pair.ask(publisher, pub_("t", &"x".repeat(1_000))), [ok()]);
    }
    let cut = stuck.iter().filter(|key| pair.closed.contains(key)).count();
    assert!((1..5).contains(&cut), "{cut} of 5 were cut");
    assert!(pair.engine.limits.unread.used() <= 300_000 + 110_000);
    assert_eq!(pair.bodies(calm).len(), 100);
    assert_eq!(met(&mut pair, "max_unread_bytes"), cut as u64);
    for key in stuck {
        pair.close(key);
    }
    assert_eq!(pair.engine.limits.unread.used(), 0);
}

#[test]
fn a_limit_that_is_met_for_long_is_told_once_in_ten_seconds() {
    let mut pair = with(|config| config.max_topics = 1);
    pair.publish("a", "x");
    for _ in 0..100 {
        pair.publish("b", "x");
    }
    assert_eq!(told(&mut pair), [("max_topics", 1)]);
    pair.advance(10 * S - 1);
    pair.turn();
    assert_eq!(told(&mut pair), []);
    pair.stall(1);
    pair.turn();
    assert_eq!(told(&mut pair), [("max_topics", 99)]);
    pair.advance(60 * S);
    assert_eq!(told(&mut pair), []);
}

#[test]
fn what_a_consumer_never_answers_goes_on_to_another_when_its_time_is_over() {
    let mut pair = Pair::new();
    let silent = pair.subscribe("t", "c", 10);
    for body in ["a", "b", "c"] {
        pair.publish("t", body);
    }
    assert_eq!(pair.bodies(silent), ["a", "b", "c"]);
    let calm = pair.subscribe("t", "c", 10);
    for _ in 0..6 {
        pair.advance(10 * S - 1);
        pair.send(silent, "NOP\n");
        pair.send(calm, "NOP\n");
    }
    assert_eq!(pair.bodies(calm), [""; 0]);
    pair.send(silent, "RDY 0\n");
    pair.advance(S);
    let again = pair.messages(calm);
    assert_eq!(
        again.iter().map(|message| (message.body.as_str(), message.attempts)).collect::<Vec<_>>(),
        [("a", 2), ("b", 2), ("c", 2)]
    );
    assert_eq!(
        (pair.channel()["timeout_count"].clone(), pair.channel()["in_flight_count"].clone()),
        (3.into(), 3.into())
    );
}

#[test]
fn a_consumer_that_stops_reading_is_cut_after_a_heartbeat_and_holds_a_bounded_part() {
    let mut pair = Pair::new();
    let (publisher, stopped) = (pair.connect(), pair.subscribe("t", "c", 2_500));
    pair.stick(stopped);
    for _ in 0..100 {
        pair.ask(publisher, pub_("t", &"x".repeat(50_000)));
    }
    assert!(pair.engine.limits.unread.used() < (1 << 20) + 60_000, "the rest stays in the queue");
    pair.advance(29 * S);
    pair.send(publisher, "NOP\n");
    assert!(!pair.closed.contains(&stopped));
    pair.advance(2 * S);
    assert!(pair.closed.contains(&stopped));
    assert_eq!((pair.channel()["depth"].clone(), pair.channel()["in_flight_count"].clone()), (100.into(), 0.into()));
    assert_eq!(pair.engine.limits.unread.used(), 0);
}

#[test]
fn the_room_that_unfinished_commands_are_promised_is_bounded_and_who_gets_none_goes_on_without() {
    const MOST: u64 = 16 << 20;
    let mut pair = Pair::with(Config { max_unfinished_bytes: MOST, ..Config::default() });
    let command = mpub("t", &["x".repeat(1_000_000).as_str(); 5]);
    let hostile: Vec<ConnKey> = (0..40).map(|_| pair.connect()).collect();
    for key in &hostile {
        for part in command[..200_000].chunks(50_000) {
            pair.send(*key, part);
        }
        pair.turn();
    }
    let room: usize = hostile.iter().map(|key| pair.engine.conns[*key].input.capacity()).sum();
    assert!(room as u64 <= MOST + 40 * 400_000, "{room} bytes");
    assert!(pair.engine.conns[hostile[0]].input.capacity() > command.len(), "the first has room for all of it");
    let last = hostile[39];
    pair.send(last, &command[200_000..]);
    for _ in 0..30 {
        pair.turn();
    }
    assert_eq!(pair.take(last), [ok()]);
    hostile.iter().for_each(|key| pair.close(*key));
    assert_eq!((pair.engine.limits.unfinished.used(), pair.engine.limits.promised.used()), (0, 0));
}

#[test]
fn a_large_publish_is_not_refused_for_what_strangers_hold_besides_messages() {
    let body = "x".repeat(1_500_000);
    let half = body.len() / 2;
    for command in [mpub("t", &[&body[..100]; 15_000]), pub_("t", &body)[..].to_vec()] {
        let mut pair = with(|config| (config.max_memory_bytes, config.max_msg_size) = (5_000_000, 2_000_000));
        for _ in 0..4 {
            let stranger = pair.connect();
            pair.send(stranger, &pub_("s", &"x".repeat(1_000_000))[..900_000]);
        }
        pair.turn();
        assert!(pair.engine.memory_used() > 3_500_000);
        let key = pair.connect();
        pair.send(key, &command);
        pair.advance(0);
        assert_eq!(pair.take(key), [ok()], "all at once");
        pair.engine.empty_topic("t");
        let key = pair.connect();
        pair.send(key, &command[..half]);
        pair.send(key, &command[half..]);
        pair.advance(0);
        assert_eq!(pair.take(key), [ok()], "in two parts");
    }
}
