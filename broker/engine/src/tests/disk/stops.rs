//! What is there again after a stop in good order, and how it goes on.

use super::*;

#[test]
fn a_stop_in_good_order_keeps_everything_in_order_and_once() {
    let mut world = World::new(2);
    world.channel("c");
    world.publish(&["in flight", "a", "b", "c", "d"]);
    let consumer = world.pair.subscribe("t", "c", 1);
    assert_eq!(world.pair.messages(consumer)[0].attempts, 1);
    world.restart();
    world.release("t");
    assert_eq!(world.depths(), (5, 5));
    let consumer = world.pair.subscribe("t", "c", 10);
    let came: Vec<_> =
        world.pair.messages(consumer).into_iter().map(|delivery| (delivery.attempts, delivery.body)).collect();
    assert_eq!(came, [(2, "in flight"), (1, "a"), (1, "b"), (1, "c"), (1, "d")].map(|(n, body)| (n, body.to_owned())));
    world.restart();
    world.release("t");
    assert_eq!(world.drain(), ["in flight", "a", "b", "c", "d"]);
    world.restart();
    assert_eq!(world.names(), [""; 0], "nothing is left of what was finished");
}

#[test]
fn a_message_for_several_channels_is_there_once_in_each_after_a_stop() {
    let mut world = World::new(0);
    world.pair.engine.create_topic("t");
    world.pair.engine.pause_topic("t", true, START);
    world.publish(&["a", "b"]); // in the topic's own queue
    world.channel("c");
    world.channel("d");
    world.pair.engine.pause_topic("t", false, START);
    world.pair.turn();
    let consumer = world.pair.subscribe("t", "c", 1);
    assert_eq!(world.pair.bodies(consumer), ["a"]);
    world.restart();
    world.release("t");
    let channels = world.pair.topic()["channels"].clone();
    let depths: Vec<_> = channels.as_array().expect("a list").iter().map(|channel| channel["depth"].as_u64()).collect();
    assert_eq!((world.pair.topic()["depth"].as_u64(), depths), (Some(0), vec![Some(2), Some(2)]));
    assert_eq!(world.drain(), ["a", "b"]);
}

#[test]
fn deferred_messages_keep_the_time_that_they_have_left_over_a_stop() {
    let mut world = World::new(10);
    world.channel("c");
    let publisher = world.pair.connect();
    assert_eq!(world.pair.ask(publisher, dpub("t", 10_000, "late")), [ok()]);
    assert_eq!(world.pair.ask(publisher, dpub("t", 2_000, "due while down")), [ok()]);
    world.restart_after(4 * S);
    world.release("t");
    assert_eq!((world.pair.channel()["deferred_count"].as_u64(), world.depths().0), (Some(1), 1));
    let consumer = world.pair.subscribe("t", "c", 5);
    assert_eq!(world.pair.bodies(consumer), ["due while down"]);
    world.pair.advance(6 * S - 1);
    assert_eq!(world.pair.bodies(consumer), [""; 0]);
    world.pair.advance(1);
    assert_eq!(world.pair.bodies(consumer), ["late"]);
}

#[test]
fn a_restored_deferral_survives_a_kill() {
    let mut world = World::new(10);
    world.channel("c");
    let publisher = world.pair.connect();
    assert_eq!(world.pair.ask(publisher, dpub("t", 60_000, "late")), [ok()]);
    world.restart();
    world.pair.advance(10 * S);
    world.kill();
    assert_eq!(world.pair.channel()["deferred_count"], 1);
}

#[test]
fn what_waited_for_tokens_waits_again_and_never_passes_the_envelope() {
    let mut world = World::with(Config { accepting: false, ..Config::default() });
    world.pair.engine.set_accepting(true, "", START);
    world.channel("c");
    world.pair.limit("t", limit(1, 1, 1));
    world.publish(&["a", "b", "c"]);
    world.restart();
    assert_eq!(world.pair.topic()["depth"], 3, "before anybody knows of its limit");
    world.pair.limit("t", limit(1, 1, 1));
    world.pair.engine.set_accepting(true, "", world.pair.now);
    world.release("t");
    let consumer = world.pair.subscribe("t", "c", 10);
    assert_eq!(world.pair.topic()["bucket"]["backlog"], 3);
    let mut came = Vec::new();
    for _ in 0..3 {
        world.pair.advance(S - 1);
        came.push(world.pair.bodies(consumer).len());
        world.pair.advance(1);
        came.push(world.pair.bodies(consumer).len());
    }
    assert_eq!(came, [0, 1, 0, 1, 0, 1]);
}

#[test]
fn what_waited_for_tokens_goes_when_the_topic_comes_back_without_a_limit() {
    let mut world = World::with(Config { accepting: false, ..Config::default() });
    world.pair.engine.set_accepting(true, "", START);
    world.channel("c");
    world.pair.limit("t", limit(1, 1, 1));
    world.publish(&["a", "b"]);
    world.restart();
    world.channel("c");
    world.release("t");
    assert_eq!(world.depths(), (0, 0));
    world.pair.engine.set_accepting(true, "", world.pair.now);
    assert_eq!(world.drain(), ["a", "b"]);
}

#[test]
fn a_stop_before_the_limit_is_known_again_keeps_what_waited() {
    let mut world = World::with(Config { accepting: false, ..Config::default() });
    world.pair.engine.set_accepting(true, "", START);
    world.pair.limit("t", limit(1, 1, 1));
    world.publish(&["a", "b"]);
    world.restart();
    world.restart();
    world.pair.limit("t", limit(1, 1, 1));
    assert_eq!(world.pair.topic()["bucket"]["backlog"], 2);
}

#[test]
fn a_stop_that_the_disk_refuses_says_how_many_messages_are_lost_and_keeps_those_that_it_had() {
    let mut world = World::new(2);
    world.channel("c");
    world.publish(&["a", "b", "c", "d"]);
    let consumer = world.pair.subscribe("t", "c", 3);
    assert_eq!(world.pair.bodies(consumer), ["a", "b", "c"]);
    world.store.with(|disk| disk.unwritable = true);
    let error = world.pair.engine.save().expect_err("no disk");
    assert_eq!(error, "2 messages could not be saved: create t:c.000001.seg: Input/output error (os error 5)");
    world.start(0);
    world.release("t");
    assert_eq!(world.drain(), ["c", "d"]);
}

#[test]
fn messages_of_an_earlier_incarnation_make_no_latency_sample() {
    let mut world = World::new(0);
    world.channel("c");
    world.publish(&["old"]);
    world.kill();
    world.release("t");
    assert_eq!(world.drain(), ["old"]);
    assert_eq!(world.pair.topic()["latency"]["since_start"]["total"]["count"], 0);
    world.publish(&["new"]);
    assert_eq!(world.drain(), ["new"]);
    assert_eq!(world.pair.topic()["latency"]["since_start"]["total"]["count"], 1);
}

#[test]
fn a_message_that_went_through_disk_in_this_incarnation_is_timed_from_its_arrival() {
    let mut world = World::new(1);
    world.channel("c");
    world.publish(&["a", "b"]);
    world.pair.advance(S);
    assert_eq!(world.drain(), ["a", "b"]);
    let total = world.pair.topic()["latency"]["since_start"]["total"].clone();
    assert_eq!(total["count"], 2);
    assert!(total["p50_ns"].as_i64().is_some_and(|ns| (ns - S).abs() < S / 100), "{total}");
}

#[test]
fn after_a_start_nothing_moves_before_the_topics_are_released() {
    let mut world = World::new(0);
    world.publish(&["a"]);
    world.channel("c");
    world.pair.turn();
    world.pair.engine.pause_topic("t", true, world.pair.now);
    world.publish(&["b"]);
    world.pair.advance(3 * S);
    world.kill();
    let consumer = world.pair.subscribe("t", "c", 5);
    assert_eq!(world.pair.bodies(consumer), [""; 0], "its channel may be paused");
    world.pair.engine.create_channel("t", "d", world.pair.now);
    world.release("t");
    assert_eq!(world.pair.bodies(consumer), ["a", "b"]);
    let other = world.pair.subscribe("t", "d", 5);
    assert_eq!(world.pair.bodies(other), ["b"], "a channel that was there when the topic moved on");
}

#[cfg(feature = "lab")]
#[test]
fn a_stop_in_good_order_keeps_what_the_laboratorys_server_holds() {
    let mut world = World::with(Config { mem_queue_size: 10, lab_service_time_ns: 1_000_000_000, ..Config::default() });
    world.channel("c");
    world.publish(&["a", "b"]);
    world.restart();
    world.release("t");
    assert_eq!(world.drain(), ["a", "b"]);
}

#[test]
fn a_message_that_a_kill_left_twice_is_in_flight_once_and_takes_no_credit_for_ever() {
    let mut world = World::new(0);
    world.publish(&["a"]);
    world.pair.advance(3 * S); // the topic's file is synced
    world.store.with(|disk| disk.slow = true);
    world.channel("c");
    world.pair.turn(); // the message is in the channel's file now, and the topic's is not synced again
    world.kill();
    world.release("t");
    let consumer = world.pair.subscribe("t", "c", 2);
    let came = world.pair.messages(consumer);
    assert_eq!(came.len(), 1, "{came:?}");
    assert_eq!(world.pair.ask(consumer, format!("FIN {}\n", came[0].id)), []);
    world.publish(&["b", "c"]);
    assert_eq!(world.pair.bodies(consumer), ["b", "c"]);
}

#[test]
fn what_moved_from_a_topic_to_a_channel_is_synced_there_at_once_and_does_not_come_twice_after_a_kill() {
    let mut world = World::new(0);
    world.publish(&["a"]);
    world.pair.advance(3 * S);
    world.channel("c");
    world.pair.turn();
    assert_eq!(world.names(), ["t:c.000001.seg", "t:c.meta"]);
    world.kill();
    world.release("t");
    assert_eq!(world.drain(), ["a"]);
}

#[test]
fn a_power_cut_loses_nothing_that_was_synced_in_the_topic_when_it_moved_to_a_channel() {
    // A part of the jobs is done when the power goes: each of them once.
    for lives in 0..20 {
        let mut world = World::new(0);
        world.publish(&["a", "b"]);
        world.pair.advance(10 * S);
        world.store.with(|disk| disk.lives = Some(lives));
        world.channel("c");
        world.pair.turn();
        world.pair.advance(10 * S);
        world.cut_power();
        world.channel("c");
        world.release("t");
        let mut came = world.drain();
        came.dedup();
        assert!(came.starts_with(&["a".to_owned(), "b".to_owned()]), "{lives}: {came:?}");
    }
}

#[test]
fn a_stop_whose_sync_of_a_channel_fails_keeps_what_the_topic_had() {
    let mut world = World::new(0);
    world.publish(&["a"]);
    world.pair.advance(10 * S);
    world.store.with(|disk| disk.unsyncable = true);
    world.channel("c");
    world.pair.turn();
    let error = world.pair.engine.save().expect_err("no sync");
    assert_eq!(error, "0 messages could not be saved: Input/output error (os error 5)");
    world.cut_power();
    world.channel("c");
    world.release("t");
    assert_eq!(world.drain(), ["a"]);
}

#[test]
fn a_sync_that_succeeds_after_one_that_failed_lets_no_source_go() {
    let mut world = World::new(0);
    world.publish(&["a"]);
    world.pair.advance(10 * S);
    world.store.with(|disk| (disk.unsyncable, disk.drops_pages) = (true, true));
    world.channel("c");
    world.pair.turn();
    world.pair.advance(10 * S);
    world.store.with(|disk| disk.unsyncable = false);
    world.pair.advance(10 * S);
    world.publish(&["b"]);
    world.pair.advance(10 * S);
    world.cut_power();
    world.channel("c");
    world.release("t");
    assert!(world.drain().contains(&"a".to_owned()));
}

#[test]
fn a_stop_while_a_job_is_under_way_still_writes_down_where_reading_begins() {
    let mut world = World::new(0);
    world.channel("c");
    world.publish(&["a", "b"]);
    world.store.with(|disk| disk.slow = true);
    world.pair.advance(3 * S);
    assert_eq!(world.drain(), ["a", "b"]);
    world.publish(&["c"]);
    world.restart();
    world.release("t");
    assert_eq!(world.drain(), ["c"]);
}

#[test]
fn what_is_deleted_is_out_of_the_way_at_once_though_the_disk_takes_its_time_to_remove_it() {
    let mut world = World::new(0);
    world.channel("c");
    world.publish(&["a", "b"]);
    world.pair.advance(3 * S);
    world.store.with(|disk| disk.slow = true);
    assert!(world.pair.engine.delete_topic("t"));
    let names = world.names();
    assert!(!names.is_empty() && names.iter().all(|name| name.ends_with(".seg.tmp")), "{names:?}");
    world.kill();
    assert_eq!(world.pair.snapshot()["topics"], serde_json::json!([]), "nothing is found");
    world.channel("c");
    assert_eq!(world.drain(), [""; 0]);
}
