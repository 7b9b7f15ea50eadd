//! Sessions and groups without room, where publishers are to be refused then.

use crate::config::{Config, FullSession};
use crate::event::Event;
use crate::harness::invariant;
use crate::harness::pair::{Pair, ok};
use crate::mqtt::managed_names::V3Excess;
use crate::protocol::mqtt::version::Version;
use crate::tests::mqtt::client::{Client, packet, publish_5, text};
use crate::tests::mqtt::durable::KEPT;

const QUOTA_EXCEEDED: u8 = 0x97;

fn pair() -> Pair {
    let full = FullSession::Refuse;
    Pair::with(Config { mqtt_max_queued: 2, mqtt_full_session: full, ..Config::default() })
}

/// The client of a session that is kept, and is away.
fn away(pair: &mut Pair, filter: &str) {
    let (mut client, _) = Client::with(pair, "away", true, KEPT);
    client.subscribe(pair, filter, 1);
    client.send(pair, &[0xe0, 0]);
}

fn back(pair: &mut Pair) -> Vec<String> {
    let (mut client, _) = Client::with(pair, "away", false, KEPT);
    client.messages(pair).into_iter().map(|(_, payload)| payload).collect()
}

/// The reason code of the answer.
fn publish(pair: &mut Pair, sensor: &mut Client, number: u16) -> u8 {
    let answer = sensor.ask(pair, &publish_5("a/b", 1, number, &number.to_string()));
    answer.get(4).copied().unwrap_or(0)
}

#[test]
fn a_publisher_is_refused_while_a_kept_session_or_group_is_full_and_nobody_gets_the_message() {
    for filter in ["a/#", "$share/g/a/#"] {
        let mut pair = if filter.starts_with('$') { on_disk() } else { pair() };
        away(&mut pair, filter);
        let mut other = Client::new(&mut pair, "other");
        other.subscribe(&mut pair, "a/#", 1);
        let mut sensor = Client::new(&mut pair, "sensor");
        let codes = [1, 2, 3].map(|number| publish(&mut pair, &mut sensor, number));
        assert_eq!(codes, [0, 0, QUOTA_EXCEEDED], "{filter}");
        assert_eq!(other.messages(&mut pair).len(), 2, "{filter}");
        assert_eq!(back(&mut pair), ["1", "2"], "{filter}");
        assert_eq!(publish(&mut pair, &mut sensor, 4), 0, "there is room again");
        invariant::check(&pair.engine, pair.now);
    }
}

/// A group is kept where there is a disk.
fn on_disk() -> Pair {
    let (store, full) = (crate::harness::memory_store::MemoryStore::default(), FullSession::Refuse);
    let config = Config { mqtt_max_queued: 2, mqtt_full_session: full, ..Config::default() };
    Pair::on_disk(config, &store, 1, crate::harness::pair::START)
}

/// How many messages of 10,000 bytes wait for each.
fn waiting(pair: &Pair) -> Vec<usize> {
    let hub = &pair.engine.mqtt;
    let sessions = hub.sessions.values().filter_map(|session| session.outgoing.as_ref()).map(|one| one.waiting());
    sessions.chain(hub.groups.values().map(|group| group.queue.len())).filter(|count| *count > 0).collect()
}

/// Clients that have one message in flight and never acknowledge it.
fn stuck(pair: &mut Pair, filters: impl IntoIterator<Item = String>) {
    for filter in filters {
        let (mut client, _) = Client::with(pair, &filter, true, &[0x21, 0, 1]);
        assert_eq!(client.subscribe(pair, &filter, 1), 1);
    }
}

#[test]
fn what_waits_for_a_session_or_group_has_an_eighth_of_the_memory_and_all_of_it_half() {
    for prefix in ["", "$share/g/"] {
        let mut pair = Pair::with(Config { max_memory_bytes: 800_000, ..Config::default() });
        stuck(&mut pair, (1..=6).map(|number| format!("{prefix}{number}")));
        let mut sensor = Client::new(&mut pair, "sensor");
        for topic in 1..=6 {
            for number in 1..=20 {
                let publish = publish_5(&topic.to_string(), 1, number, &"x".repeat(10_000));
                assert_eq!(sensor.ask(&mut pair, &publish).len(), 4, "no refusal");
            }
        }
        assert_eq!(waiting(&pair), [9, 9, 9, 8], "{prefix}"); // and one each is in flight
        assert_eq!(pair.engine.mqtt.counters.dropped, 6 * 19 - 35, "{prefix}");
        let first = format!("{prefix}1");
        let mut events = pair.engine.poll_events().into_iter();
        let told = events.find_map(|event| match event {
            Event::LimitReached { limit, client, .. } => Some((limit, client.to_string())),
            _ => None,
        });
        assert_eq!(told, Some(("mqtt_queued_bytes", first)), "{prefix}");
        invariant::check(&pair.engine, pair.now);
    }
}

/// Six subscribers that acknowledge nothing, a name each, of each of which 20 messages of 30,000 bytes come.
fn six_slow(pair: &mut Pair, qos: u8, properties: &[u8]) -> Vec<Client> {
    let mut clients = Vec::new();
    for name in ["1", "2", "3", "4", "5", "6"] {
        let (mut client, _) = Client::with(pair, name, true, properties);
        assert_eq!(client.subscribe(pair, name, qos), qos);
        clients.push(client);
    }
    let mut sensor = Client::new(pair, "sensor");
    for (topic, number) in (1..=6).flat_map(|topic| (1..=20).map(move |number| (topic, number))) {
        let publish = publish_5(&topic.to_string(), qos, number, &"x".repeat(30_000));
        assert_eq!(sensor.ask(pair, &publish).len(), 4, "no refusal");
    }
    clients
}

fn in_flight(pair: &Pair) -> Vec<usize> {
    let counts = pair.engine.mqtt.sessions.values().filter_map(|session| session.outgoing.as_ref());
    counts.map(|outgoing| outgoing.in_flight().len()).collect()
}

/// Acknowledges each message that came by this packet; gives how many there were.
fn acknowledge(pair: &mut Pair, client: &mut Client, kind: u8) -> usize {
    let publishes: Vec<Vec<u8>> = client.take(pair).into_iter().filter(|packet| packet[0] >> 4 == 3).collect();
    for publish in &publishes {
        let id_at = 4 + 2 + 1; // behind the header and a name of one letter
        client.send(pair, &[kind, 2, publish[id_at], publish[id_at + 1]]);
    }
    publishes.len()
}

fn acknowledge_all(pair: &mut Pair, client: &mut Client, count: usize) {
    let mut came = 0;
    while came < count {
        let more = acknowledge(pair, client, 0x40);
        assert!(more > 0, "it goes on with its own acknowledgements");
        came += more;
    }
    assert_eq!((came, acknowledge(pair, client, 0x40)), (count, 0));
}

const MEMORY: u64 = 1_600_000; // bytes: an eighth is more than the little that each may have

#[test]
fn what_is_in_flight_to_one_has_an_eighth_of_the_memory_and_counts_in_the_half_of_all() {
    let mut pair = Pair::with(Config { max_memory_bytes: MEMORY, ..Config::default() });
    let mut clients = six_slow(&mut pair, 1, &[]);
    assert_eq!(in_flight(&pair), [7, 7, 3, 3, 3, 3], "beyond the half a little each");
    assert_eq!(waiting(&pair), [6, 6]);
    assert_eq!(pair.engine.mqtt.counters.dropped, 7 + 7 + 4 * 17);
    invariant::check(&pair.engine, pair.now);
    acknowledge_all(&mut pair, &mut clients[0], 7 + 6);
    clients.into_iter().for_each(|client| pair.close(client.key));
    invariant::check(&pair.engine, pair.now);
    assert_eq!(pair.engine.memory.stocks.used(), 0);
}

#[test]
fn what_a_session_has_on_disk_waits_there_while_too_much_is_in_flight_and_is_not_lost() {
    let store = crate::harness::memory_store::MemoryStore::default();
    let config = Config { max_memory_bytes: MEMORY, ..Config::default() };
    let mut pair = Pair::on_disk(config, &store, 1, crate::harness::pair::START);
    let mut clients = six_slow(&mut pair, 1, KEPT);
    assert_eq!(in_flight(&pair), [7, 7, 7, 6, 3, 3]);
    invariant::check(&pair.engine, pair.now);
    clients.iter_mut().rev().for_each(|client| acknowledge_all(&mut pair, client, 20));
    assert_eq!(pair.engine.mqtt.counters.dropped, 0);
    invariant::check(&pair.engine, pair.now);
}

#[test]
fn a_message_of_qos_2_takes_no_more_memory_once_its_client_has_it() {
    let mut pair = Pair::with(Config { max_memory_bytes: MEMORY, ..Config::default() });
    let mut clients = six_slow(&mut pair, 2, &[]);
    assert_eq!(acknowledge(&mut pair, &mut clients[0], 0x50), 7, "by PUBREC");
    let more = acknowledge(&mut pair, &mut clients[0], 0x50);
    assert!(more > 0 && in_flight(&pair)[0] > 7, "PUBREC made room, and identifiers are taken until PUBCOMP");
    invariant::check(&pair.engine, pair.now);
}

#[test]
fn sessions_and_wills_that_are_kept_take_nothing_from_the_half_that_messages_have() {
    let mut pair = Pair::with(Config { max_memory_bytes: 800_000, ..Config::default() });
    for number in 1..=9 {
        let (id, payload) = (text(&format!("dying{number}")), text(&"x".repeat(10_000)));
        let connect = [&text("MQTT")[..], &[5, 0x06, 0, 60, 0], &id, &[0], &text("will"), &payload].concat();
        let connect = packet(0x10, &connect);
        assert_eq!(Client::accept(&mut pair).ask(&mut pair, &connect)[3], 0);
    }
    (1..=10).for_each(|_| assert_eq!(pair.publish("nsq", &"x".repeat(10_000)), ok())); // messages in no stock
    stuck(&mut pair, (1..=6).map(|number| number.to_string()));
    let mut sensor = Client::new(&mut pair, "sensor");
    for (topic, number) in (1..=6).flat_map(|topic| (1..=20).map(move |number| (topic, number))) {
        sensor.ask(&mut pair, &publish_5(&topic.to_string(), 1, number, &"x".repeat(10_000)));
    }
    assert!(pair.engine.mqtt.kept.used() > 90_000);
    assert_eq!(waiting(&pair), [9, 9, 9, 8]);
    invariant::check(&pair.engine, pair.now);
}

#[test]
fn what_many_sessions_wait_for_together_is_in_memory_once() {
    let mut pair = Pair::with(Config { max_memory_bytes: 800_000, ..Config::default() });
    stuck(&mut pair, (1..=20).map(|number| format!("{}#", "+/".repeat(number))));
    let mut sensor = Client::new(&mut pair, "sensor");
    let name = vec!["a"; 21].join("/");
    (1..=9).for_each(|number| sensor.publish_5(&mut pair, &name, 1, number, &"x".repeat(10_000)));
    assert_eq!(waiting(&pair), [8; 20]);
    invariant::check(&pair.engine, pair.now);
}

#[test]
fn a_kept_session_without_a_disk_refuses_publishers_when_its_memory_is_full() {
    let full = FullSession::Refuse;
    let mut pair = Pair::with(Config { max_memory_bytes: 800_000, mqtt_full_session: full, ..Config::default() });
    away(&mut pair, "a/#");
    let mut sensor = Client::new(&mut pair, "sensor");
    let publish = |number| publish_5("a/b", 1, number, &"x".repeat(10_000));
    let codes: Vec<u8> =
        (1..=11).map(|number| sensor.ask(&mut pair, &publish(number)).get(4).copied().unwrap_or(0)).collect();
    assert_eq!(codes, [[0; 9].as_slice(), &[QUOTA_EXCEEDED; 2]].concat());
    assert_eq!(back(&mut pair).len(), 9);
}

#[test]
fn the_answer_says_why_and_when_to_come_again_and_the_log_says_who_is_full() {
    let mut pair = pair();
    away(&mut pair, "a/#");
    let mut sensor = Client::new(&mut pair, "sensor");
    assert_eq!([1, 2].map(|number| publish(&mut pair, &mut sensor, number)), [0, 0]);
    let answer = sensor.ask(&mut pair, &publish_5("a/b", 2, 3, "x"));
    assert_eq!((answer[0], answer[4]), (0x50, QUOTA_EXCEEDED));
    let said = String::from_utf8_lossy(&answer);
    assert!(said.contains("retry after 1000 ms: a session") && said.contains("srtm-retry-ms"), "{said}");
    pair.turn();
    let is_told = |event: &Event| matches!(event, Event::LimitReached { client, .. } if client == "away");
    assert!(pair.engine.poll_events().iter().any(is_told));
    let again = sensor.ask(&mut pair, &publish_5("a/b", 2, 3, "x"));
    assert_eq!(again[4], QUOTA_EXCEEDED, "its identifier was free");
}

#[test]
fn what_was_acknowledged_is_kept_though_others_took_the_room_in_the_same_turn() {
    let mut pair = pair();
    away(&mut pair, "a/#");
    let mut sensor = Client::new(&mut pair, "sensor");
    let burst: Vec<u8> = (1..=4).flat_map(|number| publish_5("a/b", 1, number, &number.to_string())).collect();
    sensor.send(&mut pair, &burst);
    let codes: Vec<u8> = sensor.take(&mut pair).iter().map(|answer| answer.get(4).copied().unwrap_or(0)).collect();
    assert_eq!(codes, [0, 0, 0, 0]);
    assert_eq!(back(&mut pair), ["1", "2", "3", "4"]);
    assert_eq!(pair.engine.mqtt.counters.dropped, 0);
}

#[test]
fn qos_0_and_sessions_that_end_with_their_connection_refuse_nobody() {
    let mut pair = pair();
    away(&mut pair, "a/#");
    let (mut passing, _) = Client::with(&mut pair, "passing", true, &[0x21, 0, 1]); // one in flight
    passing.subscribe(&mut pair, "c/#", 1);
    let mut sensor = Client::new(&mut pair, "sensor");
    assert_eq!([1, 2].map(|number| publish(&mut pair, &mut sensor, number)), [0, 0]);
    sensor.send(&mut pair, &publish_5("a/b", 0, 0, "x"));
    for number in 10..15 {
        let answer = sensor.ask(&mut pair, &publish_5("c/d", 1, number, "x"));
        assert_eq!(answer, [0x40, 2, 0, number as u8]);
    }
    assert!(!sensor.has_ended(&pair));
    assert_eq!(pair.engine.mqtt.counters.dropped, 2, "the queue has two, one is in flight");
}

#[test]
fn a_client_of_3_1_1_is_ended_or_gets_no_answer_as_its_topic_says() {
    for (excess, ends) in [(V3Excess::Delay, true), (V3Excess::Close, true), (V3Excess::Drop, false)] {
        let mut pair = pair();
        pair.engine.create_topic("heat");
        pair.engine.set_mqtt_names("heat", vec!["a/#".into()], excess);
        away(&mut pair, "a/#");
        let mut sensor = Client::accept(&mut pair);
        sensor.connect(&mut pair, Version::V3_1_1, "sensor");
        for number in 1..=3 {
            sensor.send(&mut pair, &packet(0x32, &[&text("a/b")[..], &[0, number], b"x"].concat()));
        }
        assert_eq!(sensor.take(&mut pair), [[0x40, 2, 0, 1], [0x40, 2, 0, 2]], "{excess:?}");
        assert_eq!(sensor.has_ended(&pair), ends, "{excess:?}");
        assert_eq!(back(&mut pair).len(), 2, "{excess:?}");
    }
}
