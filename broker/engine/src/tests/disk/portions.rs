//! A turn writes a quantum: who waits for that, who does not, and what is there after an end in between.

use super::*;
use crate::http::answer::Answer;
use crate::scheduling::work_budget::QUANTUM_BYTES;

/// A world in which everything goes to disk, a hundred bytes a turn, and a message that takes several turns.
fn world() -> (World, String) {
    let mut world = World::new(0);
    world.channel("c");
    world.write_in(Some(100));
    (world, "x".repeat(1_000))
}

/// Turns until something comes to that connection.
fn turns_until_answered(pair: &mut Pair, key: ConnKey) -> (usize, Vec<Frame>) {
    for turns in 1..100 {
        pair.turn();
        let frames = pair.take(key);
        if !frames.is_empty() {
            return (turns, frames);
        }
    }
    panic!("no answer");
}

#[test]
fn a_large_message_is_written_in_portions_and_answered_when_all_of_it_is_there() {
    let (mut world, large) = world();
    let key = world.pair.connect();
    world.pair.send(key, pub_("t", &large));
    let (turns, frames) = turns_until_answered(&mut world.pair, key);
    assert_eq!(frames, [ok()]);
    assert!((10..=14).contains(&turns), "{turns} turns");
    assert_eq!(world.store.with(|disk| disk.writes), turns + 1, "a header, and a portion in each turn");
    assert_eq!(world.drain(), [large]);
}

#[test]
fn nobody_else_waits_for_it() {
    let (mut world, large) = world();
    let consumer = world.pair.subscribe("u#ephemeral", "c#ephemeral", 5);
    let (slow, calm) = (world.pair.connect(), world.pair.connect());
    world.pair.send(slow, pub_("t", &large));
    for _ in 0..5 {
        assert_eq!(world.pair.ask(calm, pub_("u#ephemeral", "x")), [ok()]);
        assert_eq!(
            (world.pair.bodies(consumer), world.pair.take(slow)),
            (vec!["x".to_owned()], vec![]),
            "in the same turn"
        );
    }
    world.pair.advance(0);
    assert_eq!(world.pair.take(slow), [ok()]);
}

#[test]
fn what_a_connection_asks_for_behind_it_is_answered_behind_it() {
    let (mut world, large) = world();
    let key = world.pair.connect();
    world.pair.send(key, pub_("t", &large));
    world.pair.send(key, [pub_("u#ephemeral", "x"), b"FIN 0123456789abcdef\n".to_vec()].concat());
    world.pair.turn();
    world.pair.send(key, b"SUB u#ephemeral c#ephemeral\nRDY 1\nPU");
    let not_subscribed = error("E_INVALID cannot FIN in current state");
    let (_, frames) = turns_until_answered(&mut world.pair, key);
    assert_eq!(frames, [ok(), ok(), not_subscribed], "and that ends the connection, before it runs what came later");
    world.pair.turn();
    assert!(world.pair.ended.contains(&key));
}

#[test]
fn what_comes_meanwhile_runs_when_it_is_answered_with_its_own_arrival() {
    let (mut world, large) = world();
    let key = world.pair.connect();
    world.pair.send(key, [pub_("t", &large), b"SUB u#eph".to_vec()].concat());
    world.pair.turn();
    world.pair.send(key, b"emeral c#ephemeral\n");
    world.pair.turn();
    assert!(!world.pair.engine.topic_names.contains_key("u#ephemeral"), "it waits");
    world.pair.advance(0);
    assert_eq!(world.pair.take(key), [ok(), ok()]);
    assert!(world.pair.engine.topic_names.contains_key("u#ephemeral"));
}

#[test]
fn an_unfinished_command_behind_it_is_not_lost() {
    let (mut world, large) = world();
    let key = world.pair.connect();
    world.pair.send(key, [pub_("t", &large), b"SUB u#eph".to_vec()].concat());
    world.pair.advance(0);
    assert_eq!(world.pair.take(key), [ok()]);
    assert_eq!(world.pair.ask(key, b"emeral c#ephemeral\n"), [ok()]);
}

#[test]
fn the_next_slice_of_an_mpub_waits_for_the_last_to_be_written() {
    let (mut world, _) = world();
    let key = world.pair.connect();
    let unwritten = |world: &World| {
        world.pair.engine.channels.values().map(|channel| channel.queue.unwritten().count()).sum::<usize>()
    };
    world.pair.send(key, mpub("t", &vec!["x"; 2_000]));
    world.pair.turn();
    let mut most = unwritten(&world);
    assert!((1..2_000).contains(&most));
    for _ in 0..100 {
        world.pair.turn();
        assert!(unwritten(&world) <= most);
        most = unwritten(&world);
    }
    world.pair.advance(0);
    assert_eq!(
        (world.pair.take(key), world.depths()),
        (vec![ok()], (2_000, 1_999)),
        "the first one is kept in memory too"
    );
}

#[test]
fn a_connection_that_waits_for_something_else_too_goes_on_when_both_are_there() {
    for python_is_late in [false, true] {
        let (mut world, large) = world();
        let key = world.pair.connect_http();
        let publish =
            format!("POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{large}", large.len());
        world.pair.send(key, publish + "GET /stats HTTP/1.1\r\nHost: h\r\n\r\nGET /ping HTTP/1.1\r\nHost: h\r\n\r\n");
        world.pair.turn();
        if python_is_late {
            world.pair.advance(0);
            assert_eq!(world.pair.take_text(key).matches("HTTP/1.1 200 ").count(), 1, "the publish, and not the ping");
        }
        let id = world.pair.engine.poll_handed()[0].id;
        let answer = Answer { status: 204, content_type: "", headers: &[], body: b"" };
        assert!(world.pair.engine.respond(id, &answer, world.pair.now));
        world.pair.advance(0);
        let text = world.pair.take_text(key);
        let codes: Vec<&str> = text.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
        assert_eq!(codes, if python_is_late { vec!["204", "200"] } else { vec!["200", "204", "200"] });
    }
}

#[test]
fn who_ends_its_stream_gets_the_answer_before_ours_ends() {
    let (mut world, large) = world();
    let key = world.pair.connect();
    world.pair.send(key, pub_("t", &large));
    world.pair.turn();
    world.pair.engine.handle_eof(key);
    world.pair.advance(0);
    assert_eq!((world.pair.take(key), world.pair.closed.contains(&key)), (vec![ok()], true));
}

#[test]
fn what_somebody_sent_who_left_meanwhile_is_kept() {
    let (mut world, large) = world();
    let key = world.pair.connect();
    world.pair.send(key, pub_("t", &large));
    world.pair.turn();
    world.pair.close(key);
    world.pair.advance(0);
    assert_eq!(world.drain(), [large]);
}

#[test]
fn what_does_not_fit_on_the_disk_in_the_end_is_refused_and_leaves_no_trace() {
    let (mut world, large) = world();
    world.publish(&["before"]);
    world.store.with(|disk| disk.space = Some(500));
    let key = world.pair.connect();
    world.pair.send(key, pub_("t", &large));
    world.pair.send(key, pub_("t", "small"));
    world.pair.advance(0);
    assert_eq!(world.pair.take(key), [disk_full(), disk_full()], "nothing overtakes");
    assert_eq!((world.depths().0, world.pair.topic()["message_count"].as_u64()), (1, Some(1)));
    world.store.with(|disk| disk.space = None);
    world.publish(&["behind"]);
    world.kill();
    world.release("t");
    assert_eq!(world.events(), [], "the begun message was cut off");
    assert_eq!(world.drain(), ["before", "behind"]);
}

#[test]
fn an_mpub_of_which_one_queue_of_two_refuses_the_end_is_refused_once() {
    let (mut world, _) = world();
    world.channel("d");
    world.store.with(|disk| disk.space = Some(900));
    let key = world.pair.connect();
    world.pair.send(key, mpub("t", &["x".repeat(300).as_str(), "y".repeat(300).as_str()]));
    world.pair.advance(0);
    assert!(
        matches!(&world.pair.take(key)[..], [Frame::Error(text)] if text.starts_with("E_MPUB_FAILED MPUB failed write t:"))
    );
}

#[test]
fn queues_write_a_message_that_takes_several_turns_one_after_the_other() {
    let (mut world, large) = world();
    world.channel("d");
    world.channel("e");
    let (key, other) = (world.pair.connect(), world.pair.connect());
    world.pair.send(key, pub_("t", &large));
    world.pair.turn();
    world.pair.send(other, pub_("t", &large));
    while world.pair.engine.poll_timeout() == Some(0) {
        world.pair.turn();
        let begun = world.pair.engine.channels.values().filter(|channel| channel.queue.has_begun()).count();
        assert!(begun <= 1, "each takes memory");
    }
    assert_eq!((world.pair.take(key), world.pair.take(other)), (vec![ok()], vec![ok()]));
}

#[test]
fn a_kill_in_between_cuts_off_what_nobody_was_told_of() {
    let (mut world, large) = world();
    world.publish(&["before"]);
    let key = world.pair.connect();
    world.pair.send(key, pub_("t", &large));
    world.pair.turn();
    world.pair.turn();
    world.kill();
    world.release("t");
    assert!(matches!(&world.events()[..], [Event::DiskRepaired { what, .. }] if what.starts_with("had a torn end")));
    assert_eq!(world.drain(), ["before"]);
}

#[test]
fn a_stop_in_between_keeps_it() {
    let (mut world, large) = world();
    let key = world.pair.connect();
    world.pair.send(key, mpub("t", &["a", &large, "b"]));
    world.pair.turn();
    world.pair.turn();
    world.restart();
    world.release("t");
    assert_eq!(world.events(), []);
    assert_eq!(world.drain(), ["a", &large, "b"]);
}

#[test]
fn a_file_whose_messages_are_all_finished_stays_while_one_is_being_written_to_it() {
    let (mut world, large) = world();
    world.publish(&["a"]);
    let key = world.pair.connect();
    let consumer = world.pair.subscribe("t", "c", 5);
    let id = world.pair.messages(consumer)[0].id.clone();
    world.pair.send(key, pub_("t", &large));
    world.pair.turn();
    world.pair.send(consumer, format!("FIN {id}\n"));
    world.pair.stall(3 * S); // all queues are synced
    world.pair.advance(0);
    assert_eq!((world.pair.take(key), world.pair.bodies(consumer)), (vec![ok()], vec![large]));
    assert_eq!(world.names(), ["t:c.000000.seg", "t:c.meta"]);
}

#[test]
fn a_consumer_gets_what_is_written_and_not_before() {
    let (mut world, large) = world();
    let consumer = world.pair.subscribe("t", "c", 5);
    let key = world.pair.connect();
    world.pair.send(key, mpub("t", &["a", &large]));
    world.pair.turn();
    assert_eq!(world.pair.bodies(consumer), ["a"], "it is written");
    let mut turns = 0;
    while world.pair.take(key).is_empty() {
        assert_eq!(world.pair.bodies(consumer), [""; 0], "it is in memory alone");
        world.pair.turn();
        turns += 1;
    }
    assert!(turns > 5, "{turns} turns");
    assert_eq!(world.pair.bodies(consumer), [large]);
}

#[test]
fn a_publish_whose_queue_was_removed_meanwhile_waits_for_nothing() {
    let (mut world, large) = world();
    let key = world.pair.connect();
    world.pair.send(key, pub_("t", &large));
    world.pair.turn();
    world.pair.engine.delete_channel("t", "c");
    world.pair.advance(0);
    assert_eq!(world.pair.take(key), [ok()]);
    world.pair.advance(2 * S);
    assert_eq!(world.names(), [""; 0]);
}

#[test]
fn by_http_it_is_the_same_and_a_broker_that_closes_still_gives_the_answer() {
    let (mut world, large) = world();
    let request = format!("POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{large}", large.len());
    for closes in [false, true] {
        let key = world.pair.connect_http();
        world.pair.send(key, &request);
        world.pair.turn();
        world.pair.turn();
        assert_eq!(world.pair.take_text(key), "");
        if closes {
            world.pair.engine.close_http();
        }
        world.pair.advance(0);
        assert!(world.pair.take_text(key).starts_with("HTTP/1.1 200 "));
        assert_eq!(world.pair.ended.contains(&key), closes);
    }
    assert_eq!(world.drain(), [large.clone(), large]);
}

#[test]
fn heartbeats_and_messages_do_not_wait_for_it() {
    let (mut world, large) = world();
    let key = world.pair.subscribe("u#ephemeral", "c#ephemeral", 5);
    world.pair.send(key, pub_("t", &large));
    world.pair.turn();
    world.pair.stall(31 * S);
    world.pair.turn();
    assert_eq!(world.pair.take(key), [response("_heartbeat_")]);
    let other = world.pair.connect();
    world.pair.send(other, pub_("u#ephemeral", "x"));
    world.pair.turn();
    assert_eq!(world.pair.bodies(key), ["x"]);
    world.pair.advance(0);
    assert_eq!(world.pair.take(key), [ok()]);
}

#[test]
fn a_queue_that_wrote_much_is_synced_however_few_messages_that_were() {
    let mut world = World::new(0);
    world.channel("c");
    world.publish(&[&"x".repeat(200 << 10)]);
    assert_eq!(world.store.with(|disk| disk.jobs.len()), 0);
    world.publish(&[&"x".repeat(100 << 10)]);
    assert_eq!(world.store.with(|disk| disk.jobs.len()), 1);
}

#[test]
fn what_waits_in_a_topic_comes_to_memory_no_faster_than_its_channel_writes_it() {
    let mut world = World::new(0);
    world.pair.engine.create_topic("t");
    let key = world.pair.connect();
    for _ in 0..50 {
        assert_eq!(world.pair.ask(key, mpub("t", &[&*"x".repeat(1_000); 100])), [ok()]);
    }
    world.write_in(Some(1_000));
    world.channel("c");
    let mut most = 0;
    for _ in 0..2_000 {
        world.pair.turn();
        most = most.max(world.pair.engine.memory.messages.used());
    }
    assert!(most < 3 << 20, "{most} of 5 MB in memory");
    world.write_in(Some(1 << 20));
    assert_eq!(world.drain().len(), 5_000);
}

#[test]
fn a_queue_that_always_has_something_to_write_keeps_no_other_waiting() {
    let (mut world, _) = world();
    world.pair.engine.create_topic("u");
    let busy: Vec<ConnKey> = (0..10).map(|_| world.pair.connect()).collect();
    let publishes = |pair: &mut Pair| busy.iter().for_each(|key| pair.send(*key, pub_("t", &"x".repeat(150))));
    publishes(&mut world.pair);
    world.pair.turn();
    let key = world.pair.connect();
    world.pair.send(key, pub_("u", "x"));
    for turns in 1.. {
        for busy in &busy {
            if world.pair.take(*busy) == [ok()] {
                world.pair.send(*busy, pub_("t", &"x".repeat(150)));
            }
        }
        world.pair.turn();
        if world.pair.take(key) == [ok()] {
            break;
        }
        assert!(turns < 10, "it waits for the messages of the other queue");
    }
}

#[test]
fn however_much_overflows_a_turn_writes_a_quantum_of_it() {
    let mut world = World::new(0);
    ["c", "d", "e", "f"].iter().for_each(|name| world.channel(name));
    let keys: Vec<ConnKey> = (0..100).map(|_| world.pair.connect()).collect();
    keys.iter().for_each(|key| world.pair.send(*key, pub_("t", &"x".repeat(50_000))));
    let mut written = 0;
    let mut turns = 0;
    while turns == 0 || world.pair.engine.poll_timeout() == Some(0) {
        world.pair.turn();
        let before = std::mem::replace(&mut written, world.store.bytes());
        assert!(written - before <= QUANTUM_BYTES + 1_000, "{} bytes in a turn", written - before);
        turns += 1;
    }
    assert!(written > 20_000_000, "{written} bytes in {turns} turns");
    assert!(keys.iter().all(|key| world.pair.take(*key) == [ok()]));
}

#[test]
fn a_turn_writes_few_queues_however_little_each_has() {
    let mut world = World::new(0);
    for number in 0..50 {
        world.pair.engine.create_topic(&format!("t{number}"));
    }
    let key = world.pair.connect();
    world.pair.engine.write_in_portions(QUANTUM_BYTES as u64);
    for _ in 0..2 {
        for number in 0..50 {
            world.pair.send(key, pub_(&format!("t{number}"), "x"));
        }
        for turns in 1.. {
            let before = world.store.with(|disk| disk.writes);
            world.pair.turn();
            let writes = world.store.with(|disk| disk.writes) - before;
            assert!(writes <= 16, "{writes} writes and new files in turn {turns}");
            if world.pair.engine.poll_timeout() != Some(0) {
                break;
            }
        }
        assert_eq!(world.pair.take(key), vec![ok(); 50]);
    }
}

#[test]
fn who_has_its_answer_keeps_no_turn_busy_and_nobody_behind_it() {
    let (mut world, large) = world();
    let key = world.pair.connect();
    world.pair.send(key, pub_("t", &large));
    while world.pair.take(key).is_empty() {
        assert_eq!(world.pair.engine.poll_timeout(), Some(0));
        world.pair.turn();
    }
    assert_ne!(world.pair.engine.poll_timeout(), Some(0), "there is nothing of it to run");
    assert!(!world.pair.engine.is_waiting(key));
}

#[test]
fn http_that_closes_in_the_turn_of_an_answer_ends_its_connection() {
    let (mut world, large) = world();
    let key = world.pair.connect_http();
    world
        .pair
        .send(key, format!("POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{large}", large.len()));
    while world.pair.take_text(key).is_empty() {
        world.pair.turn();
    }
    world.pair.engine.close_http();
    world.pair.turn();
    assert!(world.pair.ended.contains(&key));
}

#[test]
fn a_stop_gives_the_answers_that_wait() {
    let (mut world, large) = world();
    let (key, other) = (world.pair.connect(), world.pair.connect());
    world.pair.send(key, pub_("t", &large));
    world.pair.send(other, [pub_("t", "a"), b"SUB u#ephemeral c#ephemeral\n".to_vec()].concat());
    world.pair.turn();
    assert_eq!((world.pair.take(key), world.pair.take(other)), (vec![], vec![]));
    assert_eq!(world.pair.stop(), Ok(()));
    assert_eq!((world.pair.take(key), world.pair.take(other)), (vec![ok()], vec![ok(), ok()]));
    world.start(0);
    world.release("t");
    assert_eq!(world.drain(), [&large, "a"]);
}

#[test]
fn a_stop_on_a_full_disk_refuses_what_waits_and_leaves_nothing_of_it() {
    let (mut world, large) = world();
    world.store.with(|disk| disk.space = Some(500));
    let key = world.pair.connect();
    world.pair.send(key, pub_("t", &large));
    world.pair.turn();
    assert_eq!(world.pair.stop(), Ok(()), "nothing is lost that anybody was promised");
    assert_eq!(world.pair.take(key), [disk_full()]);
}

#[test]
fn a_message_in_portions_counts_for_the_next_sync_however_often_there_was_one_meanwhile() {
    let (mut world, _) = world();
    world.write_in(Some(100 << 10));
    let key = world.pair.connect();
    world.pair.send(key, pub_("t", &"x".repeat(300 << 10)));
    world.pair.turn();
    world.pair.stall(3 * S); // all queues are synced
    world.pair.turn();
    let jobs = world.store.with(|disk| disk.jobs.len());
    world.pair.advance(0);
    assert_eq!(world.pair.take(key), [ok()]);
    assert_eq!(world.store.with(|disk| disk.jobs.len()), jobs + 1);
}

#[test]
fn what_is_refused_is_counted_by_the_channels_that_it_went_to() {
    let (mut world, large) = world();
    world.publish(&["before"]);
    world.store.with(|disk| disk.space = Some(500));
    let key = world.pair.connect();
    world.pair.send(key, pub_("t", &large));
    world.pair.turn();
    world.channel("d"); // what was published before does not come here
    world.pair.advance(0);
    assert_eq!(world.pair.take(key), [disk_full()]);
    let topic = world.pair.topic();
    assert_eq!((topic["message_count"].as_u64(), topic["message_bytes"].as_u64()), (Some(1), Some(6)));
}

#[test]
fn what_the_disk_refuses_is_told_at_once() {
    let (mut world, large) = world();
    world.store.with(|disk| disk.space = Some(10));
    let key = world.pair.connect();
    world.pair.send(key, pub_("t", &large));
    world.pair.turn();
    assert!(matches!(&world.events()[..], [Event::DiskFailed { .. }]));
}

#[test]
fn a_request_behind_it_has_all_its_time_from_the_answer_on() {
    for chunked in [false, true] {
        let (mut world, large) = world();
        let key = world.pair.connect_http();
        let framing = if chunked { "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n" } else { "Content-" };
        let publish =
            format!("POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{large}", large.len());
        world.pair.send(key, publish + "POST /pub?topic=t HTTP/1.1\r\nHost: h\r\n" + framing);
        world.pair.turn();
        world.pair.stall(31 * S);
        world.pair.turn();
        assert_eq!(world.pair.take_text(key), "", "it could not be heard");
        while world.pair.take_text(key).is_empty() {
            world.pair.turn();
        }
        world.pair.advance(30 * S - 1);
        assert_eq!(world.pair.take_text(key), "");
        world.pair.advance(1);
        assert!(world.pair.take_text(key).starts_with("HTTP/1.1 408 "));
    }
}

#[test]
fn no_message_comes_before_the_answer_to_the_subscription_and_none_waits_for_later_ones() {
    let (mut world, large) = world();
    let (key, other) = (world.pair.connect(), world.pair.connect());
    world
        .pair
        .send(key, [pub_("t", &large), b"SUB u#ephemeral c#ephemeral\nRDY 1\n".to_vec(), pub_("t", &large)].concat());
    world.pair.turn();
    assert_eq!(world.pair.ask(other, pub_("u#ephemeral", "x")), [ok()]);
    let (_, frames) = turns_until_answered(&mut world.pair, key);
    assert!(matches!(&frames[..], [Frame::Response(_), Frame::Response(_), Frame::Message(_)]), "{frames:?}");
    world.pair.advance(0);
    assert_eq!(world.pair.take(key), [ok()]);
}
