//! What comes at once is spread over turns: connections, IDENTIFYs, large messages, copies for many channels, deliveries, and what is due.

use super::pair::*;
use crate::config::Config;
use crate::keys::ConnKey;
use crate::queueing::topic::Limit;

fn count(pair: &mut Pair, topic: &str, field: &str) -> u64 {
    let topics = pair.snapshot()["topics"].as_array().cloned().expect("a list");
    topics.iter().find(|view| view["topic_name"] == topic).and_then(|view| view[field].as_u64()).expect("a count")
}

/// A pair in which messages of two topics are on their way, and a publisher to one of them.
fn shared() -> (Pair, ConnKey) {
    let mut pair = Pair::new();
    let calm = shared_in(&mut pair);
    (pair, calm)
}

fn two_channels(pair: &mut Pair, topic: &str) {
    pair.engine.create_topic(topic);
    for channel in ["a", "b"] {
        let now = pair.now;
        pair.engine.create_channel(topic, channel, now);
    }
}

fn shared_in(pair: &mut Pair) -> ConnKey {
    let calm = pair.connect();
    for topic in ["calm", "other", "calm"] {
        assert_eq!(pair.ask(calm, pub_(topic, "x")), [ok()]);
    }
    calm
}

#[test]
fn a_crowd_that_introduces_itself_at_once_is_answered_over_many_turns_and_the_others_go_on() {
    let mut pair = Pair::new();
    let crowd: Vec<_> = (0..200).map(|_| pair.connect()).collect();
    for &key in &crowd {
        pair.send(key, identify("{}"));
    }
    let calm = pair.connect();
    assert_eq!(pair.ask(calm, pub_("t", "calm")), [ok()], "in the first turn");
    let mut turns = 1;
    let mut answered: usize = crowd.iter().map(|&key| pair.take(key).len()).sum();
    while answered < crowd.len() {
        pair.turn();
        let more: usize = crowd.iter().map(|&key| pair.take(key).len()).sum();
        assert!((1..=20).contains(&more), "{more} in a turn");
        answered += more;
        turns += 1;
    }
    assert!(turns >= 10, "{turns} turns");
}

#[test]
fn connections_that_come_in_use_up_the_turn() {
    let mut pair = Pair::new();
    let accepted = (0..100).take_while(|_| !pair.engine.has_a_full_turn() && pair.engine.admit("192.0.2.1:1").is_ok()).count();
    assert!((2..=20).contains(&accepted), "{accepted}");
    pair.turn();
    assert!(!pair.engine.has_a_full_turn());
}

#[test]
fn of_many_large_messages_for_several_channels_one_is_taken_in_a_turn_beside_those_that_have_waited() {
    let mut pair = Pair::new();
    two_channels(&mut pair, "h");
    let _ = shared_in(&mut pair);
    let large = pub_("h", &"x".repeat(500_000));
    let publishers: Vec<_> = (0..8).map(|_| pair.connect()).collect();
    publishers.iter().for_each(|&key| pair.send(key, &large));
    let mut answered = 0;
    while answered < publishers.len() {
        pair.turn();
        let more: usize = publishers.iter().map(|&key| pair.take(key).len()).sum();
        assert!(more <= 2, "{more} in a turn");
        answered += more;
    }
}

#[test]
fn a_batch_for_many_channels_is_cut_smaller_where_others_wait_and_is_one_where_nobody_does() {
    for alone in [true, false] {
        let (mut pair, calm) = if alone { (Pair::new(), ConnKey::default()) } else { shared() };
        for channel in 0..20 {
            pair.engine.create_topic("h");
            let now = pair.now;
            pair.engine.create_channel("h", &format!("c{channel}"), now);
        }
        pair.turn();
        let hostile = pair.connect();
        pair.send(hostile, mpub("h", &["x"; 500]));
        pair.turn();
        assert_eq!((count(&mut pair, "h", "message_count"), pair.take(hostile)), (500, vec![ok()]), "all of it or none, {alone}");
        if alone {
            continue;
        }
        pair.send(hostile, mpub("h", &["x"; 600]));
        pair.turn();
        let mut seen = count(&mut pair, "h", "message_count");
        assert!((501..=520).contains(&seen), "{seen} in the first turn");
        while pair.take(hostile).is_empty() {
            assert_eq!(pair.ask(calm, pub_("calm", "x")), [ok()]);
            let now = count(&mut pair, "h", "message_count");
            assert!(now - seen <= 40, "{now} after {seen}");
            seen = now;
        }
        assert_eq!(count(&mut pair, "h", "message_count"), 1_100);
    }
}

#[test]
fn after_a_dear_command_none_runs_for_as_long_as_leaves_the_others_most_of_the_time() {
    for alone in [true, false] {
        let (mut pair, calm) = if alone { (Pair::new(), ConnKey::default()) } else { shared() };
        pair.engine.create_topic("h");
        for channel in 0..20 {
            let now = pair.now;
            pair.engine.create_channel("h", &format!("c{channel}"), now);
        }
        pair.turn();
        let dear: Vec<_> = (0..2).map(|_| pair.connect()).collect();
        dear.iter().for_each(|&key| pair.send(key, mpub("h", &["x"; 500])));
        (0..5).for_each(|_| pair.turn());
        assert_eq!(count(&mut pair, "h", "message_count"), if alone { 1_000 } else { 500 }, "500 messages for 20 channels each");
        if alone {
            continue;
        }
        let goes_on = pair.engine.poll_timeout().expect("it waits for its instant");
        assert!((2_000_000..6_000_000).contains(&(goes_on - pair.now)), "{} ns for 10,000 copies", goes_on - pair.now);
        assert_eq!(pair.ask(calm, pub_("calm", "x")), [ok()], "meanwhile");
        pair.advance(goes_on - pair.now);
        pair.turn();
        assert_eq!(count(&mut pair, "h", "message_count"), 1_000);
        assert!(dear.iter().all(|&key| pair.take(key) == [ok()]));
    }
}

#[test]
fn however_many_rest_nobody_is_asked_before_their_instant_and_then_one_at_a_time_in_order() {
    let (mut pair, calm) = shared();
    pair.engine.create_topic("h");
    for channel in 0..20 {
        let now = pair.now;
        pair.engine.create_channel("h", &format!("c{channel}"), now);
    }
    pair.turn();
    let dear: Vec<_> = (0..8).map(|_| pair.connect()).collect();
    dear.iter().for_each(|&key| pair.send(key, mpub("h", &["x"; 500])));
    (0..3).for_each(|_| pair.turn());
    for (done, key) in dear.iter().enumerate() {
        assert_eq!(pair.take(*key), [ok()], "the {done}th");
        assert_eq!(count(&mut pair, "h", "message_count"), 500 * (done as u64 + 1));
        let more = mpub("calm", &["x"; 40]);
        assert_eq!(pair.ask(calm, more), [ok()], "more than those get who come behind a long line");
        let Some(goes_on) = pair.engine.poll_timeout() else { continue };
        let postponed = pair.engine.work.postponements;
        assert!(goes_on > pair.now, "it may sleep until then");
        pair.turn();
        assert_eq!(pair.engine.work.postponements, postponed, "nobody was tried in vain");
        pair.advance(goes_on - pair.now);
        pair.turn();
    }
    assert_eq!(count(&mut pair, "h", "message_count"), 4_000);
}

#[test]
fn a_batch_for_a_limited_topic_does_not_rest_behind_the_dear_commands_of_others() {
    let (mut pair, _) = shared();
    pair.limit("t", Limit { max_backlog: 1 << 20, max_backlog_bytes: 1 << 30, ..limit(1_000_000, 1_000_000, 1) });
    let [dear, limited] = [pair.connect(), pair.connect()];
    two_channels(&mut pair, "h");
    pair.send(dear, pub_("h", &"x".repeat(1_000_000)));
    (0..100).for_each(|_| pair.turn());
    for channel in 0..8 {
        let now = pair.now;
        pair.engine.create_channel("t", &channel.to_string(), now);
    }
    pair.send(limited, mpub("t", &["x"; 500]));
    pair.turn();
    assert_eq!((pair.take(dear), pair.take(limited)), (vec![ok()], vec![ok()]));
    pair.send(limited, mpub("t", &["x"; 4_000]));
    (0..50).for_each(|_| pair.turn());
    assert_eq!(pair.take(limited), [ok()], "no slice of it rests");
}

#[test]
fn of_large_messages_for_several_channels_in_one_command_each_rests_after_the_one_before() {
    let (mut pair, calm) = shared();
    two_channels(&mut pair, "h");
    let hostile = pair.connect();
    pair.send(hostile, mpub("h", &["x".repeat(1_000_000).as_str(); 3]));
    for published in 1..=3 {
        (0..100).for_each(|_| pair.turn());
        assert_eq!(count(&mut pair, "h", "message_count"), published);
        assert_eq!(pair.ask(calm, pub_("calm", "x")), [ok()]);
        pair.advance(2_000_000);
    }
    assert_eq!(pair.take(hostile), [ok()]);
}

#[test]
fn a_backlog_is_delivered_in_portions_where_others_wait_and_they_are_served_between_them() {
    let (mut pair, calm) = shared();
    let (consumer, greedy) = (pair.subscribe("calm", "c", 100), pair.connect());
    let before = pair.messages(consumer).len();
    assert_eq!(pair.ask(greedy, mpub("h", &["x"; 100])), [ok()]);
    for _ in 0..20 {
        pair.send(greedy, mpub("h", &["x"; 100]));
        pair.advance(0);
    }
    let hungry = pair.subscribe("h", "c", 2_500);
    pair.send(calm, pub_("calm", "next"));
    let mut got = pair.messages(hungry).len();
    assert!((1..=600).contains(&got), "{got} at once");
    pair.turn();
    assert_eq!((before, pair.bodies(consumer)), (2, vec!["next".to_owned()]), "in the next turn");
    while got < 2_100 {
        let more = pair.messages(hungry).len();
        assert!((1..=600).contains(&more), "{more} in a turn");
        got += more;
        pair.turn();
    }
    assert_eq!(got, 2_100);
}

#[test]
fn all_channels_with_a_backlog_come_to_their_turn() {
    let (mut pair, _) = shared();
    let channels: Vec<String> = (0..12).map(|number| format!("c{number}")).collect();
    pair.engine.create_topic("h");
    for channel in &channels {
        let now = pair.now;
        pair.engine.create_channel("h", channel, now);
    }
    let publisher = pair.connect();
    for _ in 0..10 {
        pair.send(publisher, mpub("h", &["x"; 100]));
        pair.advance(0);
    }
    let consumers: Vec<_> = channels.iter().map(|channel| pair.subscribe("h", channel, 0)).collect();
    for &key in &consumers {
        pair.send(key, "RDY 2500\n");
    }
    let mut got = vec![0; consumers.len()];
    let mut turns = 0;
    while got.iter().sum::<usize>() < 12_000 {
        pair.turn();
        turns += 1;
        for (sum, &key) in got.iter_mut().zip(&consumers) {
            *sum += pair.messages(key).len();
        }
        let (least, most) = (got.iter().min(), got.iter().max());
        assert!(turns < 4 || least.zip(most).is_some_and(|(least, most)| 8 * least >= *most), "turn {turns}: {got:?}");
    }
    assert!(turns >= 6, "{turns} turns");
}

#[test]
fn what_is_due_at_the_same_instant_comes_back_over_several_turns() {
    for late in ["in flight", "deferred"] {
        let mut pair = Pair::new();
        let (silent, publisher) = (pair.subscribe("t", "c", 2_500), pair.connect());
        pair.send(publisher, mpub("t", &["x"; 1_000]));
        pair.advance(0);
        let ids = pair.messages(silent).into_iter().map(|message| message.id);
        if late == "deferred" {
            let lines: String = ids.map(|id| format!("REQ {id} 60000\n")).collect();
            pair.send(silent, lines);
            pair.advance(0);
        }
        pair.send(silent, "RDY 0\n");
        pair.advance(50 * S);
        pair.send(silent, "NOP\n");
        pair.advance(9 * S);
        pair.stall(2 * S);
        let depth = |pair: &mut Pair| pair.channel()["depth"].as_u64().expect("a count");
        pair.turn();
        let first = depth(&mut pair);
        assert!((1..1_000).contains(&first), "{late}: {first} in the first turn");
        assert_eq!(pair.ask(publisher, pub_("other", "x")).first(), Some(&ok()), "{late}: the others go on");
        pair.advance(0);
        let topics = pair.snapshot()["topics"].as_array().cloned().expect("a list");
        let t = topics.iter().find(|view| view["topic_name"] == "t").expect("it is there");
        assert_eq!(t["channels"][0]["depth"], 1_000, "{late}");
    }
}

#[test]
fn a_large_command_that_memory_has_no_room_for_is_refused_before_all_of_it_is_there() {
    let mut pair = Pair::with(Config { max_memory_bytes: 1_000_000, ..Config::default() });
    let body = "x".repeat(900_000);
    let reached = "memory limit of 1000000 bytes reached: nobody drains what is queued";
    for (command, name) in [(pub_("t", &body), "PUB"), (mpub("t", &[&body]), "MPUB"), (dpub("t", 5, &body), "DPUB")] {
        let refused = format!("E_{name}_FAILED {name} failed {reached}");
        let full = pair.connect();
        assert_eq!(pair.ask(full, &command[..100_000]), []);
        pair.publish("t", &"y".repeat(200_000));
        assert_eq!(pair.ask(full, &command[100_000..200_000]), [error(&refused)], "{name}");
        pair.engine.empty_topic("t");
        pair.close(full);
    }
}

#[test]
fn a_crowd_that_introduces_itself_while_messages_are_on_their_way_moves_on_as_fast_as_any() {
    let (mut pair, _) = shared();
    let crowd: Vec<_> = (0..60).map(|_| pair.connect()).collect();
    crowd.iter().for_each(|&key| pair.send(key, identify("{}")));
    let mut turns = 0;
    while crowd.iter().any(|&key| pair.engine.is_waiting(key)) {
        pair.turn();
        turns += 1;
    }
    assert!((5..=20).contains(&turns), "{turns} turns");
    assert!(crowd.iter().all(|&key| pair.take(key) == [ok()]));
}

#[test]
fn who_waited_and_could_not_run_goes_before_who_ran_and_has_more() {
    let (mut pair, _) = shared();
    two_channels(&mut pair, "t");
    pair.limit("t", Limit { max_backlog: 1 << 20, max_backlog_bytes: 1 << 30, ..limit(1_000_000, 1_000_000, 1) });
    let [greedy, first, other] = [pair.connect(), pair.connect(), pair.connect()];
    let large = mpub("t", &["x"; 500]);
    pair.send(greedy, large.repeat(20));
    pair.turn();
    pair.send(first, &large); // what may be larger of those that come with the turn
    pair.send(other, &large);
    assert!(pair.engine.is_waiting(greedy) && pair.engine.is_waiting(other));
    pair.turn();
    pair.turn();
    assert_eq!(pair.take(other), [ok()]);
    assert!(pair.take(greedy).len() < 5);
}

#[test]
fn a_calm_publisher_of_4_kb_does_not_wait_behind_a_line_of_floods() {
    let mut pair = Pair::new();
    let floods: Vec<_> = (0..20).map(|_| pair.connect()).collect();
    floods.iter().for_each(|&key| pair.send(key, "NOP\n".repeat(5_000)));
    pair.turn();
    let calm = pair.connect();
    assert_eq!(pair.ask(calm, pub_("t", &"x".repeat(4_096))), [ok()]);
}

#[test]
fn a_fleet_with_messages_of_5_kb_that_a_stopped_broker_wakes_up_to_is_decided_in_order_of_arrival_beside_floods() {
    let mut pair = Pair::new();
    pair.limit("t", limit(1_000, 1, 1));
    let floods: Vec<_> = (0..20).map(|_| pair.connect()).collect();
    let fleet: Vec<_> = (0..1_000).map(|_| pair.connect()).collect();
    pair.advance(S);
    floods.iter().for_each(|&key| pair.send(key, "NOP\n".repeat(5_000)));
    pair.turn();
    let stopped = pair.now;
    pair.stall(2 * S);
    let body = "x".repeat(5_000);
    for (number, &key) in fleet.iter().enumerate().rev() {
        let arrival = stopped + number as i64 * 2 * MS; // within the rate
        pair.send_at(key, pub_("t", &body), arrival);
        assert!(!pair.engine.has_enough_to_do(), "{number} were left unread");
    }
    pair.turn();
    let trace = pair.trace("t");
    assert_eq!(trace.arrival_ns.len(), 8 * fleet.len());
    assert_eq!(trace.due_ns, trace.arrival_ns, "none waited for a token");
    assert!(fleet.iter().all(|&key| pair.take(key) == [ok()]));
}

#[test]
fn reading_ends_also_for_large_messages_in_order_of_arrival() {
    let mut pair = Pair::new();
    pair.limit("t", limit(1_000, 1, 1));
    let body = "x".repeat(60_000);
    let read = (0..1_000).take_while(|_| {
        let key = pair.connect();
        pair.send(key, pub_("t", &body));
        !pair.engine.has_enough_to_do()
    });
    assert!(read.count() < 300);
}

#[test]
fn what_falls_due_while_more_is_due_than_a_turn_takes_does_not_let_more_come_back() {
    for late in ["in flight", "deferred"] {
        let mut pair = Pair::new();
        let (silent, publisher) = (pair.subscribe("t", "c", 2_500), pair.connect());
        pair.send(publisher, mpub("t", &["x"; 500]));
        pair.advance(0);
        let ids: Vec<String> = pair.messages(silent).into_iter().map(|message| message.id).collect();
        let (last, others) = ids.split_last().expect("messages");
        pair.send(silent, "RDY 0\n");
        if late == "deferred" {
            pair.send(silent, others.iter().map(|id| format!("REQ {id} 10000\n")).collect::<String>());
        }
        pair.advance(0);
        let depth = |pair: &mut Pair| pair.channel()["depth"].as_u64().expect("a count");
        let wait = if late == "deferred" { 10 * S } else { 60 * S - MS };
        pair.stall(wait);
        pair.send(silent, if late == "deferred" { format!("REQ {last} 1\n") } else { "NOP\n".to_owned() });
        pair.stall(MS);
        if late == "in flight" {
            pair.turn();
            pair.send(silent, format!("TOUCH {last}\n"));
            pair.stall(60 * S);
        }
        pair.send(silent, "NOP\n");
        let mut seen = depth(&mut pair);
        for _ in 0..6 {
            pair.turn();
            let now = depth(&mut pair);
            assert!(now - seen <= 128, "{late}: {now} after {seen}");
            seen = now;
        }
        assert_eq!(seen, 500, "{late}");
    }
}

#[test]
fn a_sampler_that_drops_nearly_all_of_a_backlog_takes_it_in_portions_also_alone() {
    let mut pair = Pair::new();
    let publisher = pair.connect();
    pair.engine.create_topic("t");
    let now = pair.now;
    pair.engine.create_channel("t", "c", now);
    for _ in 0..20 {
        pair.send(publisher, mpub("t", &["x"; 500]));
        pair.advance(0);
    }
    let sampler = pair.connect();
    pair.ask(sampler, identify(r#"{"sample_rate":1}"#));
    pair.send(sampler, "SUB t c\nRDY 2500\n");
    let depth = |pair: &mut Pair| pair.channel()["depth"].as_u64().expect("a count");
    pair.turn();
    let left = depth(&mut pair);
    assert!((9_000..10_000).contains(&left), "{left} after the first turn");
    pair.advance(0);
    assert_eq!(depth(&mut pair), 0);
}

#[test]
fn what_a_refused_client_goes_on_sending_is_for_nobody() {
    let mut pair = Pair::new();
    let (refused, calm) = (pair.connect(), pair.connect());
    assert_eq!(pair.ask(calm, pub_("t", "x")), [ok()]);
    assert!(matches!(&pair.ask(refused, "NONSENSE\n")[..], [Frame::Error(_)]));
    assert!(!pair.engine.is_read(refused), "as long as it is there");
    assert!(pair.engine.is_read(calm));
}

#[test]
fn publishes_that_memory_has_no_room_for_share_the_turns_like_those_that_are_taken() {
    let mut pair = Pair::with(Config { max_memory_bytes: 1_000_000, ..Config::default() });
    pair.publish("full", &"y".repeat(200_000));
    let (calm, hostile) = (pair.connect(), pair.connect());
    assert_eq!(pair.ask(calm, pub_("calm", "x")), [ok()]);
    pair.advance(2_000_000_000);
    assert_eq!(pair.ask(calm, pub_("calm", "x")), [ok()]);
    assert!(!pair.engine.reads_little(), "one flow is alone");
    let large = mpub("full", &[&"x".repeat(900_000)]);
    assert!(matches!(&pair.ask(hostile, &large[..200_000])[..], [Frame::Error(text)] if text.starts_with("E_MPUB_FAILED")));
    assert!(pair.engine.reads_little());
}

#[test]
fn a_flood_that_carries_no_message_makes_turns_short_while_messages_are_on_their_way() {
    let fins = |ids: &[String]| ids.iter().map(|id| format!("FIN {id}\n")).collect::<String>().into_bytes();
    let unknown = fins(&vec!["0123456789abcdef".into(); 3_000]);
    let floods = [("NOP", b"NOP\n".repeat(3_000)), ("RDY", b"RDY 0\n".repeat(3_000)), ("FIN", unknown)];
    for (name, flood) in floods {
        for flows in [false, true] {
            let mut pair = Pair::new();
            let flooder = pair.subscribe("theirs", "c", 0);
            if flows {
                pair.publish("t", "x");
            }
            pair.send(flooder, &flood);
            pair.turn();
            assert_eq!(pair.engine.work.is_shared(), flows, "{name}");
            pair.advance(2 * S);
            pair.turn();
            assert!(!pair.engine.work.is_shared(), "{name}: it is over");
        }
    }
}

#[test]
fn messages_of_one_topic_have_turns_of_their_full_length_however_many_they_are() {
    let mut pair = Pair::new();
    let consumer = pair.subscribe("t", "c", 2_500);
    let publisher = pair.connect();
    pair.send(publisher, pub_("t", "x").repeat(3_000));
    pair.turn();
    assert!(pair.engine.work.next().is_some() && !pair.engine.work.is_shared());
    pair.advance(0);
    let ids: Vec<String> = pair.messages(consumer).into_iter().map(|message| message.id).collect();
    assert_eq!(ids.len(), 2_500);
    pair.send(consumer, ids.iter().map(|id| format!("FIN {id}\n")).collect::<String>());
    pair.turn();
    assert!(pair.engine.work.next().is_some() && !pair.engine.work.is_shared());
    pair.advance(0);
    assert_eq!(pair.channel()["in_flight_count"], 500);
}

/// So many publishers, each with a message on the way to `topic`.
fn fleet(pair: &mut Pair, topic: &str, size: usize) {
    for _ in 0..size {
        let key = pair.connect();
        pair.send(key, pub_(topic, "x"));
    }
}

#[test]
fn a_consumer_answers_for_what_a_whole_fleet_sent_in_one_turn_however_the_others_are_read() {
    for first in [true, false] {
        let mut pair = Pair::new();
        let consumer = pair.subscribe("t", "c", 2_500);
        fleet(&mut pair, "t", 2_500);
        pair.turn();
        let answers: String = pair.messages(consumer).into_iter().map(|message| format!("FIN {}\n", message.id)).collect();
        if first {
            pair.send(consumer, &answers);
        }
        fleet(&mut pair, "t", 2_500);
        if !first {
            pair.send(consumer, &answers);
        }
        pair.turn();
        assert_eq!(pair.engine.work.next(), None, "nothing is left for the next turn");
        assert_eq!(pair.messages(consumer).len(), 2_500);
    }
}

#[test]
fn what_fleets_send_is_delivered_in_the_turn_that_it_came_in_also_where_they_share_it() {
    let mut pair = Pair::new();
    let consumers = ["t", "u"].map(|topic| pair.subscribe(topic, "c", 2_500));
    for topic in ["t", "u"] {
        fleet(&mut pair, topic, 1_500);
    }
    pair.turn();
    assert!(pair.engine.work.is_shared());
    assert_eq!(consumers.map(|consumer| pair.messages(consumer).len()), [1_500; 2]);
}

#[test]
fn a_flood_has_no_more_of_a_turn_than_the_fleet_beside_it_makes_it_long() {
    let mut pair = Pair::new();
    let flooder = pair.connect();
    fleet(&mut pair, "t", 100);
    pair.send(flooder, pub_("u", "x").repeat(5_000));
    pair.turn();
    let beside = count(&mut pair, "u", "message_count");
    pair.turn();
    let alone = count(&mut pair, "u", "message_count") - beside;
    assert!((400..800).contains(&beside) && (100..200).contains(&alone), "{beside} beside a fleet of 100, {alone} alone");
}

#[test]
fn only_a_publish_to_a_topic_with_a_limit_waits_for_what_may_have_come_before_it() {
    let mut pair = Pair::new();
    pair.limit("limited", limit(1_000, 1, 1));
    let key = pair.connect();
    for (topic, waits) in [("t", false), ("limited", true)] {
        pair.send(key, pub_(topic, "x"));
        assert_eq!(pair.engine.decides_in_order(), waits, "{topic}");
    }
    pair.turn();
    assert!(!pair.engine.decides_in_order(), "it is decided");
}
