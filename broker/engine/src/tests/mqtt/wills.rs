//! Which deaths of a client publish its will, when, and how often.

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
