//! Two brokers in memory, and the link between them.

use crate::engine::mqtt::subscribed_elsewhere::InterestView;
use crate::event::Event;
use crate::harness::pair::Pair;
use crate::keys::ConnKey;
use crate::protocol::link_frames::Opening;
use crate::queueing::link_interest::LinkInterest;
use crate::tests::mqtt::client::{Client, packet, text};

pub(super) const KEY: &str = "secret";
pub(super) const CHANNEL: &str = "srtm.link.b";

/// Broker `a` has publishers, broker `b` subscribers.
pub(super) struct Brokers {
    pub(super) a: Pair,
    pub(super) b: Pair,
    pub(super) link: Option<(ConnKey, ConnKey)>, // at `a`, at `b`
    pub(super) links: u64,
}

impl Brokers {
    pub(super) fn new() -> Self {
        Self::of(Pair::new(), Pair::new())
    }

    pub(super) fn of(a: Pair, b: Pair) -> Self {
        let mut brokers = Self { a, b, link: None, links: 0 };
        brokers.want(None, true);
        brokers
    }

    pub(super) fn want(&mut self, filters: Option<&[&str]>, durable: bool) {
        let filters = filters.map(|filters| filters.iter().map(|one| (*one).to_owned()).collect());
        let interest = LinkInterest { filters, durable, ..LinkInterest::EVERYTHING };
        self.a.engine.allow_links("b", CHANNEL, KEY, interest);
    }

    /// Tells `a` what is wanted at `b`, as Python does.
    pub(super) fn tell(&mut self) {
        let InterestView { filters, groups, kept, durable, .. } = self.b.engine.interest();
        self.a.engine.allow_links("b", CHANNEL, KEY, LinkInterest { filters, groups, kept, durable });
    }

    /// Opens a link to a topic; an earlier one is not closed.
    pub(super) fn open(&mut self, topic: &str) {
        self.a.engine.create_topic(topic);
        self.a.engine.create_channel(topic, CHANNEL, self.a.now);
        self.a.engine.release_topic(topic, self.a.now); // as Python does after a start
        self.open_with(topic, KEY);
    }

    pub(super) fn open_with(&mut self, topic: &str, key: &str) {
        self.links += 1;
        let opening = Opening {
            broker: "b".into(),
            key: key.into(),
            origin: "a".into(),
            topic: topic.into(),
            channel: CHANNEL.into(),
            ready: 100,
        };
        let at_b = self.b.engine.open_link(self.links, &opening, "192.0.2.1:4150", self.b.now);
        self.link = Some((self.a.accept(), at_b));
        self.carry();
    }

    /// Carries bytes both ways until there are none.
    pub(super) fn carry(&mut self) {
        let Some((at_a, at_b)) = self.link else { return };
        loop {
            self.a.turn();
            self.b.turn();
            let (forth, back) = (self.a.take_bytes(at_a), self.b.take_bytes(at_b));
            if forth.is_empty() && back.is_empty() {
                return;
            }
            self.b.send(at_b, forth);
            self.a.send(at_a, back);
        }
    }

    /// Messages reach `b`, whose answers are lost with the link.
    pub(super) fn break_off(&mut self) {
        let Some((at_a, at_b)) = self.link.take() else { return };
        self.a.turn();
        let forth = self.a.take_bytes(at_a);
        self.b.send(at_b, forth);
        self.b.turn();
        self.a.engine.handle_broken(at_a);
        self.b.engine.handle_broken(at_b);
        self.a.turn();
        self.b.turn();
    }

    pub(super) fn said(&mut self, client: &mut Client) -> Vec<String> {
        self.carry();
        self.b.turn();
        client.messages(&mut self.b).into_iter().map(|(_, payload)| payload).collect()
    }

    pub(super) fn ends(&mut self) -> Vec<String> {
        let reason = |event| if let Event::LinkEnded { reason, .. } = event { Some(reason) } else { None };
        self.b.engine.poll_events().into_iter().filter_map(reason).collect()
    }
}

/// A client of 5.0 publishes with QoS 1, and is answered.
pub(super) fn say(pair: &mut Pair, client: &mut Client, name: &str, payload: &[u8]) {
    client.publish_5(pair, name, 1, 7, &String::from_utf8_lossy(payload));
    client.take(pair);
}

pub(super) fn say_once(pair: &mut Pair, name: &str, payload: &[u8]) {
    let mut sensor = Client::new(pair, "sensor");
    say(pair, &mut sensor, name, payload);
}

/// A client has a message retained.
pub(super) fn retain(pair: &mut Pair, client: &mut Client, name: &str, payload: &str) {
    client.send(pair, &packet(0x33, &[&text(name)[..], &[0, 9, 0], payload.as_bytes()].concat()));
    client.take(pair);
}
