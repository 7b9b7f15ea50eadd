//! Which deaths of a client publish its will, when, and how often.

use crate::config::Config;
use crate::event::Event;
use crate::harness::invariant;
use crate::harness::pair::{MS, Pair, S, limit};
use crate::protocol::mqtt::version::Version;
use crate::queueing::topic::Limit;
use crate::tests::mqtt::client::{Client, packet, text};

/// A CONNECT of 5.0 with a will for `dead`, of QoS 1; both spans are in seconds.
fn connect(id: &str, clean: bool, expiry_s: u8, delay_s: u8) -> Vec<u8> {
    let properties = [5, 0x11, 0, 0, 0, expiry_s];
    let will = [5, 0x18, 0, 0, 0, delay_s];
    let flags = 0x0c | u8::from(clean) << 1;
    let front = [&text("MQTT")[..], &[Version::V5 as u8, flags, 0, 60], &properties].concat();
    packet(0x10, &[front, text(id), will.to_vec(), text("dead"), text(id)].concat())
}

struct Watched {
    pair: Pair,
    watcher: Client,
}

impl Watched {
    fn new() -> Self {
        let mut pair = Pair::new();
        let mut watcher = Client::new(&mut pair, "watcher");
        watcher.subscribe(&mut pair, "dead", 0);
        Self { pair, watcher }
    }

    fn client(&mut self, clean: bool, expiry_s: u8, delay_s: u8) -> Client {
        let mut client = Client::accept(&mut self.pair);
        let answer = client.ask(&mut self.pair, &connect("client", clean, expiry_s, delay_s));
        assert_eq!(answer[3], 0);
        client
    }

    fn wills(&mut self) -> usize {
        self.watcher.messages(&mut self.pair).len()
    }
}

#[test]
fn a_broken_connection_publishes_the_will_and_a_disconnect_does_not_unless_it_says_so() {
    for (last, wills) in [(&[][..], 1), (&[0xe0, 0], 0), (&[0xe0, 1, 4], 1), (&[0x90, 0], 1)] {
        let mut watched = Watched::new();
        let mut client = watched.client(true, 0, 0);
        client.send(&mut watched.pair, last);
        watched.pair.close(client.key);
        watched.pair.turn();
        assert_eq!(watched.wills(), wills, "{last:02x?}");
    }
}

#[test]
fn a_will_waits_for_its_delay_or_for_the_end_of_the_session_and_not_if_the_client_comes_back() {
    for (expiry_s, delay_s, at_s) in [(60, 5, 5), (5, 60, 5), (0, 60, 0)] {
        let mut watched = Watched::new();
        let client = watched.client(true, expiry_s, delay_s);
        watched.pair.close(client.key);
        watched.pair.advance(at_s * S - 100 * MS);
        assert_eq!(watched.wills(), usize::from(at_s == 0), "{expiry_s} {delay_s}");
        watched.pair.advance(200 * MS);
        assert_eq!(watched.wills(), usize::from(at_s > 0), "{expiry_s} {delay_s}");
        watched.pair.advance(100 * S);
        assert_eq!(watched.wills(), 0, "once");
    }
    let mut watched = Watched::new();
    let client = watched.client(true, 60, 5);
    watched.pair.close(client.key);
    watched.pair.advance(4 * S);
    watched.client(false, 60, 5);
    watched.pair.advance(10 * S);
    assert_eq!(watched.wills(), 0);
}

#[test]
fn a_takeover_publishes_the_will_without_a_delay_or_when_it_ends_the_session() {
    for (clean, delay_s, wills) in [(false, 0, 1), (false, 5, 0), (true, 5, 1)] {
        let mut watched = Watched::new();
        watched.client(true, 60, delay_s);
        watched.client(clean, 60, delay_s);
        watched.pair.turn();
        assert_eq!(watched.wills(), wills, "clean {clean}, after {delay_s} s");
    }
}

#[test]
fn a_will_is_never_refused_and_takes_a_token_of_its_topic() {
    let mut watched = Watched::new();
    watched.pair.limit("dead", Limit { reject: true, full: true, ..limit(1, 1, 1) });
    let clients: Vec<Client> = (0..3)
        .map(|number| {
            let mut client = Client::accept(&mut watched.pair);
            client.ask(&mut watched.pair, &connect(&format!("client {number}"), true, 0, 0));
            client
        })
        .collect();
    clients.iter().for_each(|client| watched.pair.close(client.key));
    assert_eq!(watched.wills(), 1);
    watched.pair.advance(1_001 * MS);
    assert_eq!(watched.wills(), 1);
    watched.pair.advance(1_001 * MS);
    assert_eq!(watched.wills(), 1);
}

/// A client with a session that is kept and a will of so many bytes; gives the answer to its CONNECT.
fn leave_will(pair: &mut Pair, id: &str, expiry_s: u32, len: usize) -> (Client, Vec<u8>) {
    let properties = [&[5, 0x11][..], &expiry_s.to_be_bytes()].concat();
    let will = [&[5, 0x18][..], &expiry_s.to_be_bytes(), &text("dead"), &text(&"w".repeat(len))].concat();
    let front = [&text("MQTT")[..], &[Version::V5 as u8, 0x0e, 0, 60], &properties].concat();
    let mut client = Client::accept(pair);
    let answer = client.ask(pair, &packet(0x10, &[front, text(id), will].concat()));
    (client, answer)
}

#[test]
fn wills_take_an_eighth_of_the_memory_and_whoever_leaves_more_is_refused_and_told() {
    let mut pair = Pair::with(Config { max_memory_bytes: 1 << 20, ..Config::default() });
    let mut codes = Vec::new();
    for number in 0..4 {
        let (client, answer) = leave_will(&mut pair, &format!("c{number}"), 100, 60_000);
        codes.push(answer[3]);
        pair.close(client.key);
        pair.turn();
    }
    assert_eq!(codes, [0, 0, 0x97, 0x97]);
    assert!(pair.engine.memory_used() > 120_000);
    let told = |event: &Event| matches!(event, Event::LimitReached { limit: "max_memory_bytes", .. });
    assert!(pair.engine.poll_events().iter().any(told));
    let (_, answer) = leave_will(&mut pair, "c4", 0, 60_000);
    let text = String::from_utf8_lossy(&answer).into_owned();
    assert!(text.contains("may take 131072 bytes, an eighth of max_memory_bytes"), "{text}");
    let mut old = Client::accept(&mut pair);
    let flags = [Version::V3_1_1 as u8, 0x06, 0, 60];
    let will = [super::client::text("dead"), super::client::text(&"w".repeat(20_000))].concat();
    let connect = [&super::client::text("MQTT")[..], &flags, &super::client::text("old"), &will].concat();
    assert_eq!(old.ask(&mut pair, &packet(0x10, &connect)), [0x20, 2, 0, 3]);
    Client::new(&mut pair, "others leave nothing here and come in");
    assert_eq!(leave_will(&mut pair, "c0", 100, 50_000).1[3], 0, "it takes the place of the larger one");
    invariant::check(&pair.engine, pair.now);
    pair.advance(101 * S);
    assert_eq!(leave_will(&mut pair, "c5", 100, 60_000).1[3], 0, "those that waited are gone");
    invariant::check(&pair.engine, pair.now);
}

#[test]
fn a_further_session_that_outlives_its_connection_is_refused_until_one_ends() {
    let mut pair = Pair::with(Config { mqtt_max_sessions: 2, ..Config::default() });
    let join = |pair: &mut Pair, id: &str, properties: &[u8]| Client::with(pair, id, false, properties).1[3];
    let kept = [0x11, 0, 0, 0, 60];
    let (first, _) = Client::with(&mut pair, "a", true, &kept);
    pair.close(first.key);
    assert_eq!([join(&mut pair, "b", &kept), join(&mut pair, "c", &kept)], [0, 0x97]);
    assert_eq!([join(&mut pair, "d", &[]), join(&mut pair, "a", &kept)], [0, 0], "one that ends, one that is there");
    let told = |event: &Event| matches!(event, Event::LimitReached { limit: "mqtt_max_sessions", times: 1, .. });
    assert!(pair.engine.poll_events().iter().any(told));
    invariant::check(&pair.engine, pair.now);
    let (mut last, answer) = Client::with(&mut pair, "b", false, &kept);
    assert_eq!(answer[3], 0);
    last.send(&mut pair, &[0xe0, 7, 0, 5, 0x11, 0, 0, 0, 0]);
    assert_eq!(join(&mut pair, "c", &kept), 0, "b has given up its own");
    invariant::check(&pair.engine, pair.now);
}
