//! Deficit round robin: every connection gets as much as any other, and a turn is bounded, whatever is sent.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::pair::*;
use crate::config::Config;
use crate::keys::ConnKey;
use crate::queueing::topic::Limit;
use crate::scheduling::work_budget::{QUANTUM, TURN_UNITS};

fn count(pair: &mut Pair, topic: &str, field: &str) -> u64 {
    let topics = pair.snapshot()["topics"].as_array().cloned().expect("a list");
    topics.iter().find(|view| view["topic_name"] == topic).and_then(|view| view[field].as_u64()).expect("a count")
}

/// A topic with so many channels.
fn channels(pair: &mut Pair, topic: &str, count: usize) {
    pair.engine.create_topic(topic);
    for channel in 0..count {
        let now = pair.now;
        pair.engine.create_channel(topic, &channel.to_string(), now);
    }
    pair.turn();
}

/// What the connections that wait cost in the next turn, in units.
fn units_of_turn(pair: &mut Pair) -> u32 {
    let now = pair.now;
    pair.engine.run_deferred(now);
    let units = pair.engine.work.units;
    pair.turn();
    units
}

/// What a client that never stops may send, and how many units one command costs at most in one piece.
fn flood(kind: usize) -> (Vec<u8>, u32) {
    match kind {
        0 => (b"NOP\n".repeat(20_000), 1),
        1 => (b"FIN 0123456789abcdef\n".repeat(5_000), 4),
        2 => (pub_("h", "x").repeat(10_000), 2),
        3 => (pub_("h", &"x".repeat(40_000)).repeat(50), 160),
        4 => (pub_("many", &"x".repeat(2_000)).repeat(1_000), 200), // 20 copies
        5 => (mpub("many", &["x"; 500]).repeat(50), 10_010),        // whole: 20 copies of each message
        6 => (mpub("h", &["x"; 20_000]).repeat(10), 2),             // in chunks
        7 => (pub_("h", &"x".repeat(1_000_000)).repeat(3), 1),      // in parts
        _ => (mpub("h", &["x".repeat(100_000).as_str(); 20]).repeat(2), 1),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn in_n_turns_each_connection_that_has_more_to_do_gets_its_quanta_and_no_turn_is_long(
        kinds in prop::collection::vec(0_usize..9, 1..12),
    ) {
        let mut pair = Pair::with(Config { max_memory_bytes: 1 << 32, max_msg_size: 2 << 20, ..Config::default() });
        channels(&mut pair, "many", 20);
        let calm = pair.connect();
        let floods: Vec<(ConnKey, u32)> = kinds.iter().map(|kind| {
            let (bytes, most) = flood(*kind);
            let key = pair.connect();
            pair.send(key, bytes);
            (key, most)
        }).collect();
        pair.turn();
        let used = |pair: &Pair| floods.iter().map(|(key, _)| pair.engine.conns[*key].deficit.used).collect::<Vec<_>>();
        let before = used(&pair);
        const TURNS: u32 = 60;
        for _ in 0..TURNS {
            pair.send(calm, pub_("calm", "x"));
            let units = units_of_turn(&mut pair);
            prop_assert_eq!(pair.take(calm), [ok()], "in the turn in which it came");
            let most = floods.iter().map(|(_, most)| most).max().copied().unwrap_or(0);
            prop_assert!(units <= TURN_UNITS + QUANTUM + most + 10, "{} units in a turn, commands of {}", units, most);
        }
        // All of them together have a turn's budget in each turn, which goes round.
        let rounds = TURNS * (TURN_UNITS / QUANTUM) / floods.len() as u32;
        for (((key, most), before), now) in floods.iter().zip(before).zip(used(&pair)) {
            if *most > 2 * QUANTUM {
                continue; // it cools down, see below
            }
            let due = i64::from(rounds - 1) * i64::from(QUANTUM) - i64::from(*most);
            prop_assert!(now - before >= due || !pair.engine.is_waiting(*key), "{} units of {}", now - before, due);
        }
    }
}

#[test]
fn who_waits_goes_on_in_order_and_who_did_not_come_is_first_in_the_next_turn() {
    let mut pair = Pair::new();
    let floods: Vec<_> = (0..6).map(|_| pair.connect()).collect();
    floods.iter().for_each(|&key| pair.send(key, pub_("t", "x").repeat(2_000)));
    pair.turn();
    floods.iter().for_each(|&key| _ = pair.take(key));
    for (turn, two) in floods.chunks(2).cycle().skip(1).take(9).enumerate() {
        pair.turn();
        let answered: Vec<bool> = floods.iter().map(|&key| !pair.take(key).is_empty()).collect();
        assert!(floods.iter().zip(answered).all(|(key, answered)| answered == two.contains(key)), "turn {turn}");
    }
}

#[test]
fn a_batch_of_no_more_than_a_quantum_goes_in_as_a_whole_and_others_have_their_turns_while_it_is_paid() {
    let mut pair = Pair::new();
    channels(&mut pair, "h", 20);
    let [dear, cheap] = [pair.connect(), pair.connect()];
    pair.send(cheap, b"NOP\n".repeat(100_000));
    pair.send(dear, mpub("h", &["x"; 500]).repeat(2));
    pair.turn();
    assert_eq!((count(&mut pair, "h", "message_count"), pair.take(dear)), (500, vec![ok()]), "all of it or none");
    let kept = |pair: &Pair| pair.engine.conns[cheap].input.len();
    let before = kept(&pair);
    let mut turns = 0;
    while pair.take(dear).is_empty() {
        pair.turn();
        turns += 1;
    }
    assert!((9..=11).contains(&turns), "{turns} turns for 10,000 copies");
    let ran = (before - kept(&pair)) / 4;
    assert!((16 * QUANTUM as usize..=21 * QUANTUM as usize).contains(&ran), "{ran} commands beside them");
}

#[test]
fn clients_of_expensive_commands_go_on_one_at_a_time_and_leave_most_of_the_time_to_the_others() {
    let mut pair = Pair::with(Config { max_memory_bytes: 1 << 32, ..Config::default() });
    channels(&mut pair, "h", 20);
    let calm = pair.connect();
    let clients: Vec<_> = (0..4).map(|_| pair.connect()).collect();
    assert_eq!(pair.ask(calm, pub_("calm", "x")), [ok()]);
    clients.iter().for_each(|&key| pair.send(key, mpub("h", &["x"; 500]).repeat(5))); // 10,000 copies, 1 ms, each
    let (began, mut answered) = (pair.now, [0; 4]);
    while answered != [5; 4] {
        assert_eq!(pair.ask(calm, pub_("calm", "x")), [ok()], "in the turn in which it came");
        let before = answered.iter().sum::<usize>();
        clients.iter().zip(&mut answered).for_each(|(&key, count)| *count += pair.take(key).len());
        let (least, most) = (answered.iter().min(), answered.iter().max());
        assert!(least.zip(most).is_some_and(|(least, most)| most - least <= 1), "{answered:?}");
        assert!(before == 0 || answered.iter().sum::<usize>() - before <= 1, "{answered:?}");
        let next = pair.engine.poll_timeout().filter(|at| (pair.now..pair.now + S).contains(at));
        pair.stall(next.map_or(10_000, |at| at - pair.now));
    }
    let took = pair.now - began;
    assert!((16 * 4 * MS..20 * 6 * MS).contains(&took), "{took} ns for 20 commands of 1 ms");
}

#[test]
fn publishes_to_a_limited_topic_run_in_the_turn_in_which_they_came_whatever_they_cost() {
    let mut pair = Pair::new();
    pair.limit("t", Limit { max_backlog: 1 << 20, max_backlog_bytes: 1 << 30, ..limit(1_000_000, 1_000_000, 1) });
    channels(&mut pair, "t", 8);
    let floods: Vec<_> = (0..4).map(|_| pair.connect()).collect();
    floods.iter().for_each(|&key| pair.send(key, b"NOP\n".repeat(20_000)));
    pair.turn();
    for command in [mpub("t", &["x"; 500]), pub_("t", &"x".repeat(60_000)), dpub("t", 1, &"x".repeat(200_000))] {
        let key = pair.connect();
        assert_eq!(pair.ask(key, command), [ok()]);
    }
}

#[test]
fn connections_that_come_in_use_up_the_turn() {
    let mut pair = Pair::new();
    let accepted =
        (0..100).take_while(|_| !pair.engine.has_a_full_turn() && pair.engine.admit("192.0.2.1:1").is_ok()).count();
    assert!((2..=20).contains(&accepted), "{accepted}");
    pair.turn();
    assert!(!pair.engine.has_a_full_turn());
}

#[test]
fn a_backlog_is_delivered_in_portions_and_others_are_served_between_them() {
    let mut pair = Pair::new();
    let calm = pair.connect();
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
    assert!((1..=2_048).contains(&got), "{got} at once");
    pair.turn();
    assert_eq!((before, pair.bodies(consumer)), (0, vec!["next".to_owned()]), "in the next turn");
    while got < 2_100 {
        let more = pair.messages(hungry).len();
        assert!((1..=1_536).contains(&more), "{more} in a turn");
        got += more;
        pair.turn();
    }
    assert_eq!(got, 2_100);
}

#[test]
fn all_channels_with_a_backlog_come_to_their_turn() {
    let mut pair = Pair::new();
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
        assert!(least.zip(most).is_some_and(|(least, most)| most - least <= QUANTUM as usize), "turn {turns}: {got:?}");
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
fn a_sampler_that_drops_nearly_all_of_a_backlog_takes_it_in_portions() {
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
    assert!((8_000..10_000).contains(&left), "{left} after the first turn");
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
fn a_consumer_keeps_up_with_a_fleet_of_which_as_many_are_read_in_a_turn_as_there_can_be() {
    let mut pair = Pair::new();
    let consumer = pair.subscribe("t", "c", 2_500);
    let flooder = pair.connect();
    pair.send(flooder, b"NOP\n".repeat(200_000));
    let fleet: Vec<_> = (0..255).map(|_| pair.connect()).collect();
    for _ in 0..100 {
        fleet.iter().for_each(|&key| pair.send(key, pub_("t", "x")));
        pair.turn();
        let messages = pair.messages(consumer);
        assert_eq!(messages.len(), fleet.len(), "in the turn in which they came");
        pair.send(consumer, messages.into_iter().map(|message| format!("FIN {}\n", message.id)).collect::<String>());
        assert!(!pair.engine.is_waiting(consumer));
    }
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
