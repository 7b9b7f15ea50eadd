//! Brokers in memory, all linked, and one client that is at any of them.

use crate::config::Config;
use crate::harness::invariant;
use crate::harness::memory_store::MemoryStore;
use crate::harness::pair::{Pair, S, START};
use crate::keys::ConnKey;
use crate::protocol::link_frames::{Opening, RETAINED_TOPIC};
use crate::protocol::mqtt::version::Version;
use crate::queueing::link_interest::LinkInterest;
use crate::tests::mqtt::client::{Client, connect, packet, publish_5};
use crate::time::Nanos;

pub(super) const KEPT: &[u8] = &[0x11, 0, 0, 14, 16]; // an hour
pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

pub(super) struct Link {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) at_from: ConnKey,
    pub(super) at_to: ConnKey,
}

pub(super) struct Cluster {
    pub(super) brokers: Vec<Pair>,
    pub(super) disks: Vec<MemoryStore>,
    pub(super) links: Vec<Link>,
    pub(super) incarnations: u64,
}

pub(super) fn channel(broker: usize) -> String {
    format!("srtm.link.{}", NAMES[broker])
}

pub(super) fn start(disk: &MemoryStore, node_id: u16, incarnation: u64, now: Nanos) -> Pair {
    Pair::on_disk(Config { node_id, ..Config::default() }, disk, incarnation, now)
}

impl Cluster {
    pub(super) fn new(size: usize) -> Self {
        let disks: Vec<MemoryStore> = (0..size).map(|_| MemoryStore::default()).collect();
        let brokers = disks.iter().zip(0..).map(|(disk, number)| start(disk, number, 1, START)).collect();
        let mut cluster = Self { brokers, disks, links: Vec::new(), incarnations: 1 };
        for broker in 0..size {
            cluster.join(broker);
        }
        cluster.carry();
        cluster
    }

    /// With the client at the first broker, which wants the topic `n`.
    pub(super) fn subscribed(size: usize) -> (Self, Client) {
        let mut cluster = Self::new(size);
        let (mut client, _) = cluster.connect(0, false);
        client.subscribe(&mut cluster.brokers[0], "n", 1);
        (cluster, client)
    }

    /// Links a broker with all others, both ways.
    pub(super) fn join(&mut self, broker: usize) {
        for other in (0..self.brokers.len()).filter(|other| *other != broker) {
            for (from, to) in [(broker, other), (other, broker)] {
                if !self.links.iter().any(|link| (link.from, link.to) == (from, to)) {
                    self.link(from, to, RETAINED_TOPIC);
                    self.link(from, to, "default");
                }
            }
        }
    }

    pub(super) fn link(&mut self, from: usize, to: usize, topic: &str) {
        let (name, own) = (NAMES[to], channel(to));
        let source = &mut self.brokers[from];
        source.engine.allow_links(name, &own, "key", LinkInterest::EVERYTHING);
        source.engine.create_topic(topic);
        source.engine.create_channel(topic, &own, source.now);
        source.engine.release_topic(topic, source.now); // as Python does after a start
        let at_from = source.accept();
        let (origin, topic) = (NAMES[from].into(), topic.into());
        let opening = Opening { broker: name.into(), key: "key".into(), origin, topic, channel: own, ready: 100 };
        let remote = format!("192.0.2.{}:4150", from + 1);
        let target = &mut self.brokers[to];
        let at_to = target.engine.open_link(self.links.len() as u64 + 1, &opening, &remote, target.now);
        self.links.push(Link { from, to, at_from, at_to });
    }

    /// Carries what is under way on one link, both ways. False: nothing is.
    pub(super) fn carry_one(&mut self, number: usize) -> bool {
        let Link { from, to, at_from, at_to } = self.links[number];
        self.brokers[from].turn();
        self.brokers[to].turn();
        let (forth, back) = (self.brokers[from].take_bytes(at_from), self.brokers[to].take_bytes(at_to));
        let is_idle = forth.is_empty() && back.is_empty();
        self.brokers[to].send(at_to, forth);
        self.brokers[from].send(at_from, back);
        self.brokers[from].turn();
        self.brokers[to].turn();
        [from, to].into_iter().for_each(|broker| invariant::check_tally(&self.brokers[broker].engine));
        !is_idle
    }

    pub(super) fn carry(&mut self) {
        let mut is_more = true;
        while is_more {
            is_more = false;
            for number in 0..self.links.len() {
                is_more |= self.carry_one(number);
            }
        }
    }

    pub(super) fn advance(&mut self, ns: Nanos) {
        for _ in 0..10 {
            self.brokers.iter_mut().for_each(|broker| broker.advance(ns / 10));
            self.carry();
        }
    }

    /// All links of a broker break, and what is under way on them is gone.
    pub(super) fn cut(&mut self, broker: usize) {
        let (cut, left): (Vec<Link>, Vec<Link>) =
            std::mem::take(&mut self.links).into_iter().partition(|link| link.from == broker || link.to == broker);
        self.links = left;
        for Link { from, to, at_from, at_to } in cut {
            self.brokers[from].engine.handle_broken(at_from);
            self.brokers[to].engine.handle_broken(at_to);
            self.brokers[from].turn();
            self.brokers[to].turn();
        }
    }

    /// SIGKILL; `join` brings it back.
    pub(super) fn kill(&mut self, broker: usize) {
        self.cut(broker);
        self.incarnations += 1;
        self.brokers[broker] = start(&self.disks[broker], broker as u16, self.incarnations, self.brokers[broker].now);
        let pair = &mut self.brokers[broker];
        for topic in [RETAINED_TOPIC, "default"] {
            pair.engine.create_topic(topic);
            for other in (0..self.disks.len()).filter(|other| *other != broker) {
                pair.engine.create_channel(topic, &channel(other), pair.now); // as Python does from nsqd.dat
            }
            pair.engine.release_topic(topic, pair.now);
        }
    }

    /// A durable client at a broker: itself, and whether its session was there.
    pub(super) fn connect(&mut self, broker: usize, clean: bool) -> (Client, bool) {
        let mut client = self.begin(broker, clean);
        self.carry();
        client.read(&mut self.brokers[broker]);
        let answer = client.packets.remove(0);
        assert_eq!((answer[0], answer[3]), (0x20, 0), "{answer:02x?}");
        (client, answer[2] == 1)
    }

    /// Its CONNECT has been sent, and may wait.
    pub(super) fn begin(&mut self, broker: usize, clean: bool) -> Client {
        let mut client = Client::accept(&mut self.brokers[broker]);
        self.brokers[broker].send(client.key, connect(Version::V5, "client", clean, KEPT));
        self.brokers[broker].turn();
        client.read(&mut self.brokers[broker]);
        client
    }

    pub(super) fn say(&mut self, broker: usize, sensor: &mut Client, payload: &str) {
        let answer = sensor.ask(&mut self.brokers[broker], &publish_5("n", 1, 7, payload));
        assert_eq!(answer[0], 0x40, "{answer:02x?}");
    }

    /// What a client at broker 1 has got once a broker was killed, came back and all is quiet.
    pub(super) fn said_after_kill(&mut self, victim: usize, mut client: Client) -> Vec<String> {
        self.kill(victim);
        self.advance(2 * S);
        self.join(victim);
        self.carry();
        if victim == 1 {
            client = self.connect(1, false).0;
        }
        self.advance(2 * S);
        self.said(1, &mut client)
    }

    /// What came to a client, which acknowledges all of it.
    pub(super) fn said(&mut self, broker: usize, client: &mut Client) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            self.carry();
            let packets = client.take(&mut self.brokers[broker]);
            let published: Vec<Vec<u8>> = packets.into_iter().filter(|packet| packet[0] >> 4 == 3).collect();
            if published.is_empty() {
                return said;
            }
            for one in published {
                let (_, payload) = crate::tests::mqtt::client::message_5(&one);
                said.push(payload);
                client.send(&mut self.brokers[broker], &packet(0x40, &packet_id(&one)));
            }
        }
    }

    pub(super) fn sessions(&self) -> Vec<usize> {
        let has = |pair: &Pair| pair.engine.mqtt.session_of("client").is_some();
        (0..self.brokers.len()).filter(|broker| has(&self.brokers[*broker])).collect()
    }

    pub(super) fn check(&mut self) {
        for broker in &mut self.brokers {
            broker.turn();
            invariant::check(&broker.engine, broker.now);
            let moves = &broker.engine.mqtt.moves;
            assert!(moves.arrivals.is_empty() && moves.departures.is_empty() && moves.flushes.is_empty(), "{moves:?}");
        }
    }
}

/// Xorshift.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, end: usize) -> usize {
        for shift in [13_i32, -7, 17] {
            self.0 ^= if shift > 0 { self.0 << shift } else { self.0 >> -shift };
        }
        (self.0 >> 32) as usize % end
    }
}

pub(super) fn packet_id(publish: &[u8]) -> [u8; 2] {
    let len = usize::from(u16::from_be_bytes([publish[2], publish[3]]));
    [publish[4 + len], publish[5 + len]]
}
