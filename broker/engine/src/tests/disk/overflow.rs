//! What goes to disk and when, and how it comes back.

use super::*;

#[test]
fn memory_takes_as_many_as_it_may_the_rest_goes_to_disk_and_all_come_in_order() {
    let mut world = World::new(3);
    world.channel("c");
    world.publish(&["a", "b", "c"]);
    assert_eq!(world.names(), [""; 0], "nothing is on disk while memory has room");
    world.publish(&["d", "e"]);
    assert_eq!((world.depths(), world.names()), ((5, 2), vec!["t:c.000000.seg".to_owned()]));
    assert_eq!(world.drain(), ["a", "b", "c", "d", "e"]);
    assert_eq!(world.depths(), (0, 0));
}

#[test]
fn as_long_as_something_is_on_disk_what_comes_goes_there_too() {
    let mut world = World::new(2);
    world.channel("c");
    world.publish(&["a", "b", "c"]);
    let consumer = world.pair.subscribe("t", "c", 1);
    assert_eq!(world.pair.bodies(consumer), ["a"]);
    world.publish(&["d"]);
    assert_eq!(world.depths(), (3, 2));
    world.pair.close(consumer);
    assert_eq!(world.drain(), ["a", "b", "c", "d"]);
    world.publish(&["e"]);
    assert_eq!(world.depths(), (1, 0), "all that was on disk has been read: memory is used again");
}

#[test]
fn a_topic_without_a_channel_keeps_its_overflow_on_disk_and_gives_it_to_the_first() {
    let mut world = World::new(1);
    world.publish(&["a", "b", "c"]);
    assert_eq!(world.pair.topic()["backend_depth"], 2);
    assert_eq!(world.names(), ["t.000000.seg"]);
    assert_eq!(world.drain(), ["a", "b", "c"]);
}

#[test]
fn a_turn_is_one_write_a_queue() {
    let mut world = World::new(0);
    world.channel("c");
    world.channel("d");
    let (one, other) = (world.pair.connect(), world.pair.connect());
    world.pair.send(one, pub_("t", "a"));
    world.pair.send(one, mpub("t", &["b", "c"]));
    world.pair.send(other, pub_("t", "d"));
    world.pair.turn();
    assert_eq!(world.store.with(|disk| disk.writes), 4, "a header and the messages, twice");
    assert_eq!((world.pair.take(one), world.pair.take(other)), (vec![ok(), ok()], vec![ok()]));
}

#[test]
fn an_idle_disk_is_left_without_files() {
    let mut world = World::new(0);
    world.channel("c");
    world.publish(&["a", "b"]);
    world.drain();
    world.pair.advance(2 * S);
    assert_eq!(world.names(), [""; 0]);
}

#[test]
fn files_are_synced_after_so_many_messages_and_after_so_long() {
    let mut world = World::with(Config { mem_queue_size: 0, sync_every: 3, ..Config::default() });
    world.channel("c");
    let jobs = |world: &World| world.store.with(|disk| disk.jobs.len());
    world.publish(&["a"]);
    assert_eq!(jobs(&world), 0);
    world.publish(&["b", "c", "d"]);
    assert_eq!(jobs(&world), 1);
    world.pair.advance(2 * S);
    assert_eq!(jobs(&world), 2);
    world.pair.advance(10 * S);
    assert_eq!(jobs(&world), 2, "nothing has happened since");
}

#[test]
fn a_queue_has_one_job_under_way_and_what_came_meanwhile_is_synced_with_the_next() {
    let mut world = World::with(Config { mem_queue_size: 0, sync_every: 3, ..Config::default() });
    world.channel("c");
    world.store.with(|disk| disk.slow = true);
    world.publish(&["a", "b", "c", "d", "e", "f", "g", "h", "i"]);
    world.pair.advance(10 * S);
    assert_eq!(world.store.with(|disk| disk.waiting.len()), 1);
    world.store.with(|disk| disk.slow = false);
    world.pair.advance(10 * S);
    assert_eq!(world.store.with(|disk| disk.jobs.len()), 2);
    world.cut_power();
    world.release("t");
    assert_eq!(world.drain(), ["a", "b", "c", "d", "e", "f", "g", "h", "i"]);
}

#[test]
fn with_all_through_disk_a_kill_loses_nothing_that_was_acknowledged_not_even_what_is_in_flight() {
    let mut world = World::new(0);
    world.channel("c");
    world.publish(&["a", "b", "c"]);
    let consumer = world.pair.subscribe("t", "c", 2);
    assert_eq!(world.pair.bodies(consumer), ["a", "b"]);
    world.pair.advance(3 * S);
    world.kill();
    world.release("t");
    assert_eq!(world.drain(), ["a", "b", "c"]);
}

#[test]
fn what_was_finished_before_the_last_sync_does_not_come_again_after_a_kill() {
    let mut world = World::new(0);
    world.channel("c");
    world.publish(&["a", "b"]);
    assert_eq!(world.drain(), ["a", "b"]);
    world.publish(&["c"]);
    world.pair.advance(3 * S);
    world.kill();
    world.release("t");
    assert_eq!(world.drain(), ["c"]);
}

#[test]
fn an_ephemeral_queue_drops_what_memory_does_not_take_and_counts_it() {
    let mut world = World::new(5);
    for number in 0..12 {
        assert_eq!(world.pair.publish("t#ephemeral", &number.to_string()), ok());
    }
    let topic = world.pair.topic();
    assert_eq!((&topic["depth"], &topic["dropped"], &topic["message_count"]), (&5.into(), &7.into(), &12.into()));
    assert_eq!(world.names(), [""; 0]);
}

#[test]
fn emptied_and_deleted_queues_leave_no_files() {
    let mut world = World::new(0);
    world.publish(&["a"]);
    assert!(world.pair.engine.empty_topic("t"));
    assert_eq!(world.names(), [""; 0]);
    world.channel("c");
    world.channel("d");
    world.publish(&["b"]);
    assert!(world.pair.engine.empty_channel("t", "c"));
    assert_eq!(world.names(), ["t:d.000002.seg"]);
    assert!(world.pair.engine.delete_channel("t", "d"));
    assert_eq!(world.names(), [""; 0]);
    world.publish(&["c"]);
    world.pair.advance(3 * S);
    assert!(world.pair.engine.delete_topic("t"));
    assert_eq!(world.names(), [""; 0]);
    world.channel("c");
    world.publish(&["d"]);
    assert_eq!(world.drain(), ["d"]);
}

#[test]
fn a_long_backlog_moves_to_the_first_channel_portion_by_portion() {
    let mut world = World::new(0);
    let bodies: Vec<String> = (0..2_500).map(|number| number.to_string()).collect();
    let publisher = world.pair.connect();
    for chunk in bodies.chunks(100) {
        let chunk: Vec<&str> = chunk.iter().map(String::as_str).collect();
        assert_eq!(world.pair.ask(publisher, mpub("t", &chunk)), [ok()]);
    }
    world.channel("c");
    let left = world.pair.topic()["depth"].as_u64().expect("a number");
    assert!((1..2_500).contains(&left), "{left} wait for the next turn");
    world.publish(&["last"]);
    world.pair.advance(0);
    assert_eq!(world.pair.topic()["depth"], 0);
    let mut expected = bodies;
    expected.push("last".into());
    assert_eq!(world.drain(), expected);
}

#[test]
fn memory_is_charged_for_what_is_in_memory_only() {
    let mut world = World::new(2);
    world.channel("c");
    world.publish(&["a", "b"]);
    let used = world.pair.engine.memory.messages.used();
    world.publish(&["c", "d"]);
    assert_eq!(world.pair.engine.memory.messages.used(), used);
    world.drain();
    assert_eq!(world.pair.engine.memory.messages.used(), 0);
}

#[test]
fn queues_go_on_on_disk_when_memory_is_half_full() {
    let mut world = World::with(Config { mem_queue_size: 1_000, max_memory_bytes: 100_000, ..Config::default() });
    world.channel("c");
    let body = "x".repeat(5_000);
    world.publish(&vec![body.as_str(); 50]);
    assert_eq!(world.depths().0, 50, "five times what fits into half of it");
    assert!(world.pair.engine.memory.messages.used() < 60_000, "{}", world.pair.engine.memory.messages.used());
    assert_eq!(world.drain(), vec![body.clone(); 50]);
    world.publish(&[&body]);
    assert_eq!(world.depths(), (1, 0), "there is room in memory again");
}

/// Twenty megabytes in the queue of a channel, most of them on disk, and a broker that may have eight in memory.
fn twenty_in_eight() -> (World, Vec<String>) {
    let mut world = World::with(Config { mem_queue_size: 1_000, max_memory_bytes: 8 << 20, ..Config::default() });
    world.channel("c");
    let bodies: Vec<String> = (0..200).map(|number| format!("{number:03}{}", "x".repeat(100_000))).collect();
    for some in bodies.chunks(10) {
        world.publish(&some.iter().map(String::as_str).collect::<Vec<_>>());
    }
    (world, bodies)
}

#[test]
fn a_consumer_that_takes_all_and_answers_nothing_leaves_memory_for_what_is_published() {
    let (mut world, bodies) = twenty_in_eight();
    let consumer = world.pair.subscribe("t", "c", 2_500);
    let mut taken = Vec::new();
    loop {
        let more = world.pair.messages(consumer);
        if more.is_empty() {
            break;
        }
        taken.extend(more);
        world.pair.advance(MS);
    }
    assert!(taken.len() < 80, "{} messages of 100 kB", taken.len());
    assert_eq!(world.pair.publish("u", "x"), ok());
    let mut got = Vec::new();
    while let Some(message) = taken.pop() {
        world.pair.send(consumer, format!("FIN {}\n", message.id));
        got.push(message.body);
        world.pair.turn();
        taken.extend(world.pair.messages(consumer));
    }
    got.sort();
    assert!(got == bodies, "all of them come, each once, without a timer: {}", got.len());
}

#[test]
fn a_consumer_that_puts_everything_off_leaves_memory_for_what_is_published() {
    let (mut world, bodies) = twenty_in_eight();
    let consumer = world.pair.subscribe("t", "c", 1);
    let mut put_off = 0;
    while let [message] = &world.pair.messages(consumer)[..] {
        world.pair.send(consumer, format!("REQ {} 3600000\n", message.id));
        world.pair.turn();
        put_off += 1;
    }
    assert!(put_off < 80, "{put_off} messages of 100 kB");
    assert_eq!(world.pair.publish("u", "x"), ok());
    world.pair.close(consumer);
    world.pair.advance(3_600 * S);
    let mut got = world.drain();
    got.sort();
    assert!(got == bodies);
}
