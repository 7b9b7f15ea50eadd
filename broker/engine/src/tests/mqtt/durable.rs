//! What of sessions and retained messages outlives the broker: a stop in good order, and a kill at any turn.

use crate::config::Config;
use crate::event::Event;
use crate::harness::invariant;
use crate::harness::memory_store::MemoryStore;
use crate::harness::pair::{Pair, S, START};
use crate::protocol::mqtt::version::Version;
use crate::tests::mqtt::client::{Client, connect, packet, publish_5, text};

pub const KEPT: &[u8] = &[0x11, 0, 0, 0, 60];

pub struct Disk {
    pub store: MemoryStore,
    incarnations: u64,
}

impl Disk {
    pub fn new() -> Self {
        Self { store: MemoryStore::default(), incarnations: 0 }
    }

    /// The next process on it.
    pub fn start(&mut self, now: i64) -> Pair {
        self.incarnations += 1;
        Pair::on_disk(Config::default(), &self.store, self.incarnations, now)
    }

    /// The process is killed, and the next one starts.
    pub fn kill(&mut self, pair: Pair) -> Pair {
        let now = pair.now;
        drop(pair);
        self.start(now + S)
    }
}

pub fn present(pair: &mut Pair, id: &str) -> (Client, bool) {
    let (client, answer) = Client::with(pair, id, false, KEPT);
    (client, answer[2] == 1)
}

pub fn said(client: &mut Client, pair: &mut Pair) -> Vec<String> {
    client.messages(pair).into_iter().map(|(_, payload)| payload).collect()
}

#[test]
fn what_was_acknowledged_for_a_session_that_is_away_outlives_a_kill_in_its_order() {
    let mut disk = Disk::new();
    let mut pair = disk.start(START);
    let (mut client, _) = Client::with(&mut pair, "client", true, KEPT);
    client.subscribe(&mut pair, "a/#", 1);
    pair.close(client.key);
    let mut sensor = Client::new(&mut pair, "sensor");
    for number in 1..=3 {
        assert_eq!(sensor.ask(&mut pair, &publish_5("a/b", 1, number, &number.to_string()))[..2], [0x40, 2]);
    }
    let mut pair = disk.kill(pair);
    let (mut client, is_there) = present(&mut pair, "client");
    assert!(is_there);
    assert_eq!(said(&mut client, &mut pair), ["1", "2", "3"]);
    let mut pair = disk.kill(pair);
    let (mut client, _) = present(&mut pair, "client");
    assert_eq!(said(&mut client, &mut pair), ["1", "2", "3"], "nothing was acknowledged");
    client.send(&mut pair, &[0x40, 2, 0, 1, 0x40, 2, 0, 2]);
    pair.advance(10 * S);
    let mut pair = disk.kill(pair);
    let (mut client, _) = present(&mut pair, "client");
    assert_eq!(said(&mut client, &mut pair), ["3"]);
}

#[test]
fn what_is_in_flight_to_a_connected_client_outlives_a_kill() {
    let mut disk = Disk::new();
    let mut pair = disk.start(START);
    let (mut client, _) = Client::with(&mut pair, "client", true, KEPT);
    client.subscribe(&mut pair, "a", 2);
    let mut sensor = Client::new(&mut pair, "sensor");
    sensor.ask(&mut pair, &publish_5("a", 1, 5, "x"));
    assert_eq!(said(&mut client, &mut pair), ["x"]);
    let mut pair = disk.kill(pair);
    let (mut client, _) = present(&mut pair, "client");
    assert_eq!(said(&mut client, &mut pair), ["x"]);
}

#[test]
fn a_stop_in_good_order_keeps_the_same_things() {
    let mut disk = Disk::new();
    let mut pair = disk.start(START);
    let (mut client, _) = Client::with(&mut pair, "client", true, KEPT);
    client.subscribe(&mut pair, "#", 1);
    let mut sensor = Client::new(&mut pair, "sensor");
    for number in 1..=3 {
        sensor.ask(&mut pair, &publish_5("a", 1, number, &number.to_string()));
    }
    client.take(&mut pair);
    client.send(&mut pair, &[0x40, 2, 0, 1]);
    pair.stop().expect("a sound disk");
    let mut pair = disk.kill(pair);
    let (mut client, is_there) = present(&mut pair, "client");
    assert!(is_there);
    assert_eq!(said(&mut client, &mut pair), ["2", "3"]);
}

#[test]
fn subscriptions_are_those_of_the_last_answer_and_a_session_that_ended_stays_ended() {
    let mut disk = Disk::new();
    let mut pair = disk.start(START);
    let (mut client, _) = Client::with(&mut pair, "client", true, KEPT);
    for filter in ["a", "b", "$share/g/c"] {
        client.subscribe(&mut pair, filter, 1);
    }
    client.send(&mut pair, &packet(0xa2, &[&[0, 7, 0][..], &text("a")].concat()));
    let (gone, _) = Client::with(&mut pair, "gone", true, KEPT);
    let (mut ended, _) = Client::with(&mut pair, "ended", true, KEPT);
    ended.send(&mut pair, &[0xe0, 7, 0, 5, 0x11, 0, 0, 0, 0]);
    pair.close(gone.key);
    Client::with(&mut pair, "gone", true, &[]);
    let mut pair = disk.kill(pair);
    assert!(!present(&mut pair, "ended").1 && !present(&mut pair, "gone").1);
    let (mut client, is_there) = present(&mut pair, "client");
    assert!(is_there);
    let mut sensor = Client::new(&mut pair, "sensor");
    for topic in ["a", "b", "c"] {
        sensor.ask(&mut pair, &publish_5(topic, 1, 5, topic));
    }
    assert_eq!(said(&mut client, &mut pair), ["b", "c"]);
}

#[test]
fn a_session_ends_as_long_after_its_connection_as_it_would_have_without_the_kill() {
    let mut disk = Disk::new();
    let mut pair = disk.start(START);
    let (client, _) = Client::with(&mut pair, "client", true, KEPT);
    pair.close(client.key);
    pair.advance(50 * S);
    let mut pair = disk.kill(pair); // 51 s
    pair.advance(8 * S);
    assert_eq!(pair.engine.mqtt.sessions.len(), 1);
    pair.advance(2 * S);
    assert_eq!(pair.engine.mqtt.sessions.len(), 0);
}

#[test]
fn a_publish_of_qos_2_is_known_after_a_kill() {
    let mut disk = Disk::new();
    let mut pair = disk.start(START);
    let (mut client, _) = Client::with(&mut pair, "client", true, KEPT);
    client.ask(&mut pair, &publish_5("a", 2, 5, "x"));
    let mut pair = disk.kill(pair);
    let mut watcher = Client::new(&mut pair, "watcher");
    watcher.subscribe(&mut pair, "#", 0);
    let (mut client, _) = present(&mut pair, "client");
    let mut again = publish_5("a", 2, 5, "x");
    again[0] |= 8;
    assert_eq!(client.ask(&mut pair, &again), [0x50, 2, 0, 5]);
    assert!(watcher.messages(&mut pair).is_empty());
}

#[test]
fn a_will_outlives_the_broker_with_its_session() {
    let mut disk = Disk::new();
    let mut pair = disk.start(START);
    let mut client = Client::accept(&mut pair);
    let mut with_will = connect(Version::V5, "client", true, KEPT);
    with_will[9] |= 4;
    with_will.extend([&[5, 0x18, 0, 0, 0, 3][..], &text("dead"), &text("gone")].concat());
    with_will[1] = (with_will.len() - 2) as u8;
    client.ask(&mut pair, &with_will);
    let mut pair = disk.kill(pair);
    let mut watcher = Client::new(&mut pair, "watcher");
    watcher.subscribe(&mut pair, "dead", 0);
    pair.advance(4 * S);
    assert_eq!(watcher.messages(&mut pair), [("dead".to_owned(), "gone".to_owned())]);
}

#[test]
fn what_is_retained_outlives_a_kill_and_what_was_removed_does_not_come_back() {
    let mut disk = Disk::new();
    let mut pair = disk.start(START);
    let mut sensor = Client::new(&mut pair, "sensor");
    for (topic, payload) in [("a", "old"), ("a", "new"), ("b", "b"), ("b", ""), ("c", "c")] {
        sensor.send(&mut pair, &packet(0x31, &[&text(topic)[..], &[0], payload.as_bytes()].concat()));
    }
    for _ in 0..2 {
        pair.advance(10 * S);
        pair = disk.kill(pair);
        let mut client = Client::new(&mut pair, "client");
        client.subscribe(&mut pair, "#", 0);
        assert_eq!(said(&mut client, &mut pair), ["new", "c"]);
    }
}

#[test]
fn the_journal_stays_small_however_often_what_it_keeps_changes() {
    let mut disk = Disk::new();
    let config = Config { max_bytes_per_file: 1 << 20, ..Config::default() };
    let mut pair = Pair::on_disk(config, &disk.store, 1, START);
    let mut sensor = Client::new(&mut pair, "sensor");
    let body = "x".repeat(60_000);
    sensor.send(&mut pair, &packet(0x31, &[&text("stays")[..], &[0], b"stays"].concat()));
    for _ in 0..800 {
        sensor.send(&mut pair, &packet(0x31, &[&text("a")[..], &[0], body.as_bytes()].concat()));
        pair.advance(S / 10);
    }
    pair.advance(10 * S);
    let bytes = disk.store.with(|disk| disk.files.values().map(Vec::len).sum::<usize>());
    assert!(bytes < 24 << 20, "{bytes} bytes of 48 MB are still there");
    disk.incarnations = 1;
    let mut pair = disk.kill(pair);
    let mut client = Client::new(&mut pair, "client");
    client.subscribe(&mut pair, "stays", 0);
    assert_eq!(said(&mut client, &mut pair), ["stays"]);
}

#[test]
fn what_the_disk_does_not_take_is_refused_in_the_order_in_which_it_came() {
    for qos in [1, 2] {
        let mut disk = Disk::new();
        let mut pair = disk.start(START);
        let (mut client, _) = Client::with(&mut pair, "client", true, KEPT);
        client.subscribe(&mut pair, "a", 2);
        pair.close(client.key);
        let mut sensor = Client::new(&mut pair, "sensor");
        disk.store.with(|disk| disk.space = Some(0));
        let packets = [1, 2, 3].map(|id| publish_5("a", qos, id, "x"));
        sensor.send(&mut pair, &packets.concat());
        sensor.read(&mut pair);
        let answers: Vec<(u8, u8)> = sensor.take(&mut pair).iter().map(|packet| (packet[3], packet[4])).collect();
        assert_eq!(answers, [(1, 0x97), (2, 0x97), (3, 0x97)], "QoS {qos}");
        assert!(!sensor.has_ended(&pair));
        disk.store.with(|disk| disk.space = None);
        let again = sensor.ask(&mut pair, &publish_5("a", qos, 1, "again"));
        assert_eq!(again[1..4], [2, 0, 1], "QoS {qos}: there is room again, and the identifier is a new one");
        let (mut client, _) = present(&mut pair, "client");
        assert_eq!(said(&mut client, &mut pair), ["again"], "QoS {qos}");
    }
}

#[test]
fn of_what_is_retained_on_disk_the_oldest_has_no_room_in_less_memory_and_the_log_says_so() {
    let mut disk = Disk::new();
    let mut pair = disk.start(START);
    let mut sensor = Client::new(&mut pair, "sensor");
    for number in 0..10 {
        pair.now += S;
        let retained = packet(0x33, &[&text(&format!("r/{number}"))[..], &[0, 1, 0], &[b'x'; 20_000]].concat());
        assert_eq!(sensor.ask(&mut pair, &retained)[0], 0x40);
    }
    let (client, _) = Client::with(&mut pair, "client", true, KEPT);
    pair.close(client.key);
    pair.turn();
    let now = pair.now + S;
    drop(pair);
    let small = Config { max_memory_bytes: 1 << 20, ..Config::default() };
    let mut pair = Pair::on_disk(small.clone(), &disk.store, 2, now);
    pair.turn();
    let told = pair.engine.poll_events().into_iter().find_map(|event| match event {
        Event::MqttExcess { why, dropped, .. } => Some((why, dropped)),
        _ => None,
    });
    assert_eq!(told, Some(("what is retained may take 131072 bytes, an eighth of max_memory_bytes".into(), 4)));
    assert!(present(&mut pair, "client").1, "nothing else is harmed");
    let names = |pair: &mut Pair| {
        let mut reader = Client::new(pair, "reader");
        reader.subscribe(pair, "r/#", 0);
        reader.messages(pair).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(names(&mut pair), ["r/4", "r/5", "r/6", "r/7", "r/8", "r/9"]);
    invariant::check(&pair.engine, pair.now);
    let now = pair.now + S;
    drop(pair);
    let mut pair = Pair::on_disk(small, &disk.store, 3, now);
    assert_eq!(names(&mut pair).len(), 6, "on disk as well");
}
