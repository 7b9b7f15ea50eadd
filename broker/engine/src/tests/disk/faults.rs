//! A disk that refuses: who is told, and what stays.

use super::*;

#[test]
fn a_full_disk_is_told_to_exactly_the_publisher_that_needs_it_until_there_is_space_again() {
    let mut world = World::new(1);
    world.channel("c");
    world.publish(&["a"]);
    world.store.with(|disk| disk.space = Some(100));
    let (needs, needs_not) = (world.pair.connect(), world.pair.connect());
    world.pair.send(needs, pub_("t", "b"));
    world.pair.send(needs_not, pub_("u", "x"));
    world.pair.turn();
    world.pair.advance(0);
    assert_eq!((world.pair.take(needs), world.pair.take(needs_not)), (vec![disk_full()], vec![ok()]));
    assert_eq!(world.depths(), (1, 0));
    assert_eq!(world.pair.topic()["message_count"], 1);
    assert_eq!(world.pair.channel()["message_count"], 1);
    let reason = "write t:c.000000.seg: No space left on device (os error 28)".to_owned();
    assert_eq!(world.events(), [Event::DiskFailed { reason }]);
    assert_eq!(world.pair.publish("t", "c"), disk_full());
    assert_eq!(world.events(), [], "it is told once");
    world.store.with(|disk| disk.space = None);
    world.publish(&["d"]);
    assert_eq!(world.events(), [Event::DiskWorks]);
    assert_eq!(world.drain(), ["a", "d"]);
}

#[test]
fn by_http_a_disk_error_is_an_error_too() {
    let mut world = World::new(0);
    world.channel("c");
    world.store.with(|disk| disk.unwritable = true);
    let key = world.pair.connect_http();
    world.pair.send(key, "POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\na");
    world.pair.turn();
    let answer = world.pair.take_text(key);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("create t:c.000000.seg: Input/output error (os error 5)"), "{answer}");
}

#[test]
fn messages_that_the_disk_refuses_and_nobody_can_be_told_of_stay_in_memory() {
    let mut world = World::new(0);
    world.channel("c");
    world.publish(&["a", "b"]);
    let consumer = world.pair.subscribe("t", "c", 2);
    let came = world.pair.messages(consumer);
    world.store.with(|disk| disk.unwritable = true);
    // One is requeued, one times out.
    world.pair.send(consumer, "RDY 0\n");
    world.pair.send(consumer, format!("REQ {} 0\n", came[0].id));
    world.pair.turn();
    for _ in 0..3 {
        world.pair.advance(25 * S);
        world.pair.send(consumer, "NOP\n");
    }
    assert_eq!(world.depths(), (2, 2));
    world.pair.send(consumer, "RDY 5\n");
    world.pair.turn();
    assert_eq!(world.pair.bodies(consumer), ["a", "b"]);
}

#[test]
fn a_message_that_waited_for_tokens_is_not_lost_when_the_disk_is_full_at_its_release() {
    let mut world = World::new(0);
    world.channel("c");
    world.pair.limit("t", limit(1, 1, 1));
    world.publish(&["a", "b"]);
    world.store.with(|disk| disk.space = Some(0));
    world.pair.advance(10 * S);
    assert_eq!(world.pair.topic()["bucket"]["backlog"], 0);
    assert_eq!(world.depths(), (2, 2));
    world.store.with(|disk| disk.space = None);
    world.pair.advance(S);
    assert_eq!(world.pair.engine.poll_events().last(), Some(&Event::DiskWorks), "it is tried again every second");
    world.kill();
    world.release("t");
    assert_eq!(world.drain(), ["a", "b"]);
}

#[test]
fn what_waits_in_a_topic_stays_on_a_full_disk_but_for_half_of_the_memory() {
    let mut world = World::with(Config { mem_queue_size: 1, max_memory_bytes: 4 << 20, ..Config::default() });
    let body = "x".repeat(1_000);
    let key = world.pair.connect();
    for _ in 0..100 {
        assert_eq!(world.pair.ask(key, mpub("t", &[&*body; 100])), [ok()]);
    }
    world.store.with(|disk| disk.space = Some(0));
    world.channel("c");
    let mut most = 0;
    for _ in 0..200 {
        world.pair.advance(S / 10);
        most = most.max(world.pair.engine.memory.messages.used());
    }
    assert!(most < 7 << 19, "{most} of 10 MB in memory: half of it, and what is read at once");
    assert_eq!(world.pair.engine.poll_timeout().map(|at| at > world.pair.now), Some(true), "it waits");
    let other = world.pair.subscribe("v", "c", 1);
    assert_eq!(world.pair.publish("v", "x"), ok(), "there is memory for who needs no disk");
    assert_eq!(world.pair.bodies(other), ["x"]);
    world.store.with(|disk| disk.space = None);
    world.pair.advance(S);
    let mut came = 0;
    for _ in 0..100 {
        came += world.drain().len();
        world.pair.advance(S);
    }
    assert_eq!(came, 10_000, "each once");
}

#[test]
fn a_queue_that_cannot_be_read_is_tried_again_and_goes_on() {
    let mut world = World::new(1);
    world.channel("c");
    world.publish(&["a", "b"]);
    world.store.with(|disk| disk.unreadable = Some(("000000".into(), libc::EIO)));
    let consumer = world.pair.subscribe("t", "c", 5);
    assert_eq!(world.pair.bodies(consumer), ["a"]);
    let reason = "read t:c.000000.seg: Input/output error (os error 5)".to_owned();
    assert_eq!(world.events(), [Event::DiskFailed { reason }]);
    world.pair.advance(2 * S);
    assert_eq!(world.pair.bodies(consumer), [""; 0]);
    world.store.with(|disk| disk.unreadable = None);
    world.pair.advance(S);
    assert_eq!(world.pair.bodies(consumer), ["b"]);
}

#[test]
fn a_file_that_stays_unreadable_is_given_up_for_the_next_and_that_is_told() {
    let mut world = World::with(Config { mem_queue_size: 1, max_bytes_per_file: 120, ..Config::default() });
    world.channel("c");
    world.publish(&["a", "b", "c"]);
    world.store.with(|disk| disk.unreadable = Some(("000000".into(), libc::EIO)));
    let consumer = world.pair.subscribe("t", "c", 5);
    world.pair.advance(10 * S);
    assert_eq!(world.pair.bodies(consumer), ["a", "c"]);
    let what = "cannot be read: set aside with about 1 messages in 77 bytes".to_owned();
    assert!(world.events().contains(&Event::DiskRepaired { file: "t:c.000000.seg".into(), what }));
}

#[test]
fn a_sync_that_fails_is_told_and_done_again() {
    let mut world = World::new(0);
    world.channel("c");
    world.publish(&["a"]);
    world.store.with(|disk| disk.unwritable = true);
    world.pair.advance(2 * S);
    assert!(matches!(&world.events()[..], [Event::DiskFailed { .. }]));
    world.store.with(|disk| disk.unwritable = false);
    world.pair.advance(2 * S);
    assert!(world.names().contains(&"t:c.meta".to_owned()));
}

#[test]
fn what_fails_for_want_of_descriptors_is_no_damage() {
    let mut world = World::with(Config { mem_queue_size: 1, max_bytes_per_file: 120, ..Config::default() });
    world.channel("c");
    world.publish(&["a", "b", "c"]);
    world.store.with(|disk| disk.unreadable = Some(("000000".into(), libc::EMFILE)));
    let consumer = world.pair.subscribe("t", "c", 5);
    for _ in 0..20 {
        world.pair.advance(S);
        world.pair.send(consumer, "NOP\n");
    }
    assert_eq!(world.pair.bodies(consumer), ["a"]);
    world.store.with(|disk| disk.unreadable = None);
    world.pair.advance(2 * S);
    assert_eq!(world.pair.bodies(consumer), ["b", "c"]);
    let reason = "read t:c.000000.seg: Too many open files (os error 24)".to_owned();
    assert_eq!(
        world.events(),
        [Event::DiskFailed { reason }, Event::DiskWorks],
        "and it is told that reading works again"
    );
}

#[test]
fn a_sync_that_works_again_is_told() {
    let mut world = World::new(0);
    world.channel("c");
    world.publish(&["a"]);
    world.store.with(|disk| disk.unsyncable = true);
    world.pair.advance(2 * S);
    assert!(matches!(&world.events()[..], [Event::DiskFailed { .. }]));
    world.pair.advance(2 * S);
    assert_eq!(world.events(), []);
    world.store.with(|disk| disk.unsyncable = false);
    world.pair.advance(2 * S);
    assert_eq!(world.events(), [Event::DiskWorks]);
    world.cut_power();
    world.release("t");
    assert_eq!(world.drain(), ["a"], "all of the failed sync was done again");
}

#[test]
fn a_read_does_not_say_that_a_full_disk_works_again() {
    let mut world = World::new(0);
    world.channel("c");
    world.publish(&["a"]);
    world.store.with(|disk| disk.space = Some(0));
    assert_eq!(world.pair.publish("t", "b"), disk_full());
    assert!(matches!(&world.events()[..], [Event::DiskFailed { .. }]));
    let consumer = world.pair.subscribe("t", "c", 5);
    assert_eq!(world.pair.bodies(consumer), ["a"]);
    assert_eq!(world.events(), []);
}

#[test]
fn a_full_disk_takes_messages_again_once_some_were_finished() {
    let mut world = World::with(Config { mem_queue_size: 0, max_bytes_per_file: 120, ..Config::default() });
    world.channel("c");
    world.publish(&["a", "b", "c"]);
    world.store.with(|disk| disk.space = Some(0));
    assert!(matches!(world.pair.publish("t", "d"), Frame::Error(_)));
    let consumer = world.pair.subscribe("t", "c", 2);
    for delivery in world.pair.messages(consumer) {
        world.pair.send(consumer, format!("FIN {}\nRDY 0\n", delivery.id));
    }
    world.pair.turn();
    world.pair.advance(3 * S);
    world.publish(&["e"]);
    world.kill();
    world.release("t");
    assert_eq!(world.drain(), ["c", "e"], "and what was finished does not come again");
}

#[test]
fn a_publish_that_is_refused_in_part_is_counted_as_far_as_it_came() {
    let mut world = World::new(3);
    world.channel("c");
    let publisher = world.pair.connect();
    world.store.with(|disk| disk.space = Some(0));
    let refused = world.pair.ask(publisher, mpub("t", &["a", "b", "c", "dd", "ee"]));
    assert!(matches!(&refused[..], [Frame::Error(text)] if text.starts_with("E_MPUB_FAILED ")), "{refused:?}");
    let topic = world.pair.topic();
    assert_eq!(
        (&topic["message_count"], &topic["message_bytes"], &topic["rejected"]),
        (&3.into(), &3.into(), &2.into())
    );
    assert_eq!(world.pair.channel()["message_count"], 3);
    assert_eq!(world.drain(), ["a", "b", "c"]);
}

#[test]
fn a_message_that_one_channel_could_not_take_and_another_could_is_counted() {
    let mut world = World::new(2);
    world.channel("c");
    world.publish(&["a"]);
    world.channel("d");
    world.store.with(|disk| disk.space = Some(0));
    let publisher = world.pair.connect();
    assert!(matches!(&world.pair.ask(publisher, mpub("t", &["b", "c", "d"]))[..], [Frame::Error(_)]));
    // "c" has room for one of the three, "d" for two.
    assert_eq!(world.pair.topic()["message_count"], 3);
    assert_eq!(
        world.pair.topic()["channels"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|c| c["depth"].as_u64())
            .sum::<Option<u64>>(),
        Some(4)
    );
}
