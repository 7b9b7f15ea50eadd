//! What goes to disk, when, what the publisher is told, and what is there again after a stop or a kill.

use std::collections::HashMap;

use proptest::prelude::*;

use super::memory_store::MemoryStore;
use super::pair::*;
use crate::bucket::Nanos;
use crate::config::Config;
use crate::engine::ConnKey;
use crate::event::Event;

struct World {
    pair: Pair,
    store: MemoryStore,
    config: Config,
    incarnation: u64,
}

impl World {
    fn new(mem_queue_size: usize) -> Self {
        Self::with(Config { mem_queue_size, ..Config::default() })
    }

    fn with(config: Config) -> Self {
        let store = MemoryStore::default();
        let pair = Pair::on_disk(config.clone(), &store, 1, START);
        Self { pair, store, config, incarnation: 1 }
    }

    /// Stop in good order, and start again `down` later.
    fn restart_after(&mut self, down: Nanos) {
        assert_eq!(self.pair.engine.save(), Ok(()));
        self.start(down);
    }

    fn restart(&mut self) {
        self.restart_after(0);
    }

    fn kill(&mut self) {
        self.start(0);
    }

    fn start(&mut self, down: Nanos) {
        self.store = self.store.after_kill();
        self.incarnation += 1;
        self.pair = Pair::on_disk(self.config.clone(), &self.store, self.incarnation, self.pair.now + down);
    }

    /// Another process that knows all topics and channels: nothing is held any more.
    fn release(&mut self, topic: &str) {
        assert!(self.pair.engine.release_topic(topic, self.pair.now));
        self.pair.turn();
    }

    fn publish(&mut self, bodies: &[&str]) {
        for body in bodies {
            assert_eq!(self.pair.publish("t", body), ok(), "{body}");
        }
    }

    fn channel(&mut self, name: &str) {
        self.pair.engine.create_topic("t");
        self.pair.engine.create_channel("t", name, self.pair.now);
    }

    /// All that comes to a new consumer, answered.
    fn drain(&mut self) -> Vec<String> {
        let consumer = self.pair.subscribe("t", "c", 2_500);
        let bodies = finish_all(&mut self.pair, consumer);
        self.pair.close(consumer);
        bodies
    }

    fn depths(&mut self) -> (u64, u64) {
        let channel = self.pair.channel();
        (channel["depth"].as_u64().expect("a number"), channel["backend_depth"].as_u64().expect("a number"))
    }

    fn events(&mut self) -> Vec<Event> {
        let events = self.pair.engine.poll_events().into_iter();
        events.filter(|event| matches!(event, Event::DiskFailed { .. } | Event::DiskWorks | Event::DiskRepaired { .. })).collect()
    }

    fn names(&self) -> Vec<String> {
        self.store.names()
    }
}

/// Finish what came, and what comes then, until nothing comes.
fn finish_all(pair: &mut Pair, consumer: ConnKey) -> Vec<String> {
    let mut bodies = Vec::new();
    loop {
        let came = pair.messages(consumer);
        if came.is_empty() {
            return bodies;
        }
        for delivery in came {
            pair.send(consumer, format!("FIN {}\n", delivery.id));
            bodies.push(delivery.body);
        }
        pair.turn();
    }
}

fn disk_full() -> Frame {
    error("E_PUB_FAILED PUB failed write t:c.000000.seg: No space left on device (os error 28)")
}

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
fn a_full_disk_is_told_to_exactly_the_publisher_that_needs_it_until_there_is_space_again() {
    let mut world = World::new(1);
    world.channel("c");
    world.publish(&["a"]);
    world.store.with(|disk| disk.space = Some(100));
    let (needs, needs_not) = (world.pair.connect(), world.pair.connect());
    world.pair.send(needs, pub_("t", "b"));
    world.pair.send(needs_not, pub_("u", "x"));
    world.pair.turn();
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
    let came: Vec<_> = world.pair.messages(consumer).into_iter().map(|delivery| (delivery.attempts, delivery.body)).collect();
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
fn a_queue_that_cannot_be_read_is_tried_again_and_goes_on() {
    let mut world = World::new(1);
    world.channel("c");
    world.publish(&["a", "b"]);
    world.store.with(|disk| disk.unreadable = Some("000000".into()));
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
    world.store.with(|disk| disk.unreadable = Some("000000".into()));
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
fn memory_is_charged_for_what_is_in_memory_only() {
    let mut world = World::new(2);
    world.channel("c");
    world.publish(&["a", "b"]);
    let used = world.pair.engine.meter.used();
    world.publish(&["c", "d"]);
    assert_eq!(world.pair.engine.meter.used(), used);
    world.drain();
    assert_eq!(world.pair.engine.meter.used(), 0);
}

#[derive(Debug, Clone)]
enum Step {
    Publish(usize),
    Defer(u64),
    Answer(u8),
    Pass(i64),
    Space(Option<usize>),
    Stop,
    Kill,
}

fn steps() -> impl Strategy<Value = (usize, Vec<Step>)> {
    let step = prop_oneof![
        6 => (1usize..6).prop_map(Step::Publish),
        1 => (1u64..3_000).prop_map(Step::Defer),
        4 => any::<u8>().prop_map(Step::Answer),
        3 => (1i64..1_500).prop_map(Step::Pass),
        1 => proptest::option::of(0usize..500).prop_map(Step::Space),
        1 => Just(Step::Stop),
        1 => Just(Step::Kill),
    ];
    (0usize..4, proptest::collection::vec(step, 1..60))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    /// Whatever happens: what was acknowledged comes, unless it was only in memory (or deferred) when the process was killed; and a stop in good order
    /// makes nothing come again that was finished.
    #[test]
    fn stops_kills_and_full_disks_lose_nothing_that_was_on_disk((mem_queue_size, steps) in steps()) {
        let mut world = World::new(mem_queue_size);
        world.channel("c");
        let mut next = 0;
        let mut acknowledged = HashMap::new(); // {body: it may be lost by a kill}
        let mut finished = std::collections::HashSet::new();
        let (mut killed, mut full) = (false, false);
        let mut consumer = world.pair.subscribe("t", "c", 3);
        for step in steps {
            match step {
                Step::Publish(count) => {
                    let bodies: Vec<String> = (next..next + count).map(|number| number.to_string()).collect();
                    next += count;
                    let publisher = world.pair.connect();
                    let answer = world.pair.ask(publisher, mpub("t", &bodies.iter().map(String::as_str).collect::<Vec<_>>()));
                    if answer == [ok()] {
                        acknowledged.extend(bodies.into_iter().map(|body| (body, mem_queue_size > 0)));
                    }
                }
                Step::Defer(ms) => {
                    let publisher = world.pair.connect();
                    prop_assert_eq!(world.pair.ask(publisher, dpub("t", ms, &next.to_string())), [ok()]);
                    acknowledged.insert(next.to_string(), true);
                    next += 1;
                }
                Step::Answer(seed) => {
                    for (index, delivery) in world.pair.messages(consumer).into_iter().enumerate() {
                        match (usize::from(seed) + index) % 3 {
                            0 => {
                                world.pair.send(consumer, format!("FIN {}\n", delivery.id));
                                prop_assert!(killed || full || !finished.contains(&delivery.body), "{} came again", delivery.body);
                                finished.insert(delivery.body);
                            }
                            1 => world.pair.send(consumer, format!("REQ {} {}\n", delivery.id, seed)),
                            _ => {}
                        }
                    }
                    world.pair.turn();
                }
                Step::Pass(ms) => {
                    world.pair.advance(ms * MS);
                    world.pair.send(consumer, "NOP\n");
                    world.pair.turn();
                }
                Step::Space(space) => {
                    full |= space.is_some();
                    world.store.with(|disk| disk.space = space);
                }
                Step::Stop => {
                    world.store.with(|disk| disk.space = None);
                    world.restart();
                    world.channel("c");
                    world.release("t");
                    consumer = world.pair.subscribe("t", "c", 3);
                }
                Step::Kill => {
                    killed = true;
                    // A requeued message may be in memory only, while the disk is full.
                    acknowledged.retain(|_, volatile| !*volatile && !full);
                    full = false;
                    world.kill();
                    world.channel("c");
                    world.release("t");
                    consumer = world.pair.subscribe("t", "c", 3);
                }
            }
        }
        world.pair.close(consumer);
        world.store.with(|disk| disk.space = None);
        world.pair.advance(65 * S); // everything deferred is due
        let came = world.drain();
        let missing: Vec<_> = acknowledged.keys().filter(|body| !came.contains(body) && !finished.contains(*body)).collect();
        prop_assert!(missing.is_empty(), "{missing:?} of {came:?}");
        prop_assert_eq!(world.depths(), (0, 0));
    }
}
