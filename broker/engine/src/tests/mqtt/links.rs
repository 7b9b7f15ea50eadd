//! Two brokers in memory, and the link between them: each message of the one comes once, in order, to the subscribers
//! of the other, whatever breaks.

use crate::config::Config;
use crate::event::Event;
use crate::harness::memory_store::MemoryStore;
use crate::harness::pair::{Pair, S, START, pub_};
use crate::keys::ConnKey;
use crate::protocol::link_frames::Opening;
use crate::protocol::mqtt::version::Version;
use crate::queueing::link_interest::LinkInterest;
use crate::tests::mqtt::client::{Client, packet, publish_5, text};

const KEY: &str = "secret";
const CHANNEL: &str = "srtm.link.b";
const KEPT: &[u8] = &[0x11, 0, 0, 0, 60];

/// Broker `a` has publishers, broker `b` subscribers.
struct Brokers {
    a: Pair,
    b: Pair,
    link: Option<(ConnKey, ConnKey)>, // at `a`, at `b`
    links: u64,
}

impl Brokers {
    fn new() -> Self {
        Self::of(Pair::new(), Pair::new())
    }

    fn of(a: Pair, b: Pair) -> Self {
        let mut brokers = Self { a, b, link: None, links: 0 };
        brokers.want(None, true);
        brokers
    }

    fn want(&mut self, filters: Option<&[&str]>, durable: bool) {
        let filters = filters.map(|filters| filters.iter().map(|one| (*one).to_owned()).collect());
        self.a.engine.allow_links("b", CHANNEL, KEY, LinkInterest { filters, durable });
    }

    /// Opens a link to a topic; an earlier one is not closed.
    fn open(&mut self, topic: &str) {
        self.a.engine.create_topic(topic);
        self.a.engine.create_channel(topic, CHANNEL, self.a.now);
        self.open_with(topic, KEY);
    }

    fn open_with(&mut self, topic: &str, key: &str) {
        self.links += 1;
        let opening =
            Opening { broker: "b".into(), key: key.into(), topic: topic.into(), channel: CHANNEL.into(), ready: 100 };
        let at_b = self.b.engine.open_link(self.links, &opening, "192.0.2.1:4150", self.b.now);
        self.link = Some((self.a.accept(), at_b));
        self.carry();
    }

    /// Carries bytes both ways until there are none.
    fn carry(&mut self) {
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
    fn break_off(&mut self) {
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

    fn said(&mut self, client: &mut Client) -> Vec<String> {
        self.carry();
        client.messages(&mut self.b).into_iter().map(|(_, payload)| payload).collect()
    }

    fn ends(&mut self) -> Vec<String> {
        let reason = |event| if let Event::LinkEnded { reason, .. } = event { Some(reason) } else { None };
        self.b.engine.poll_events().into_iter().filter_map(reason).collect()
    }
}

#[test]
fn what_mqtt_and_nsq_clients_publish_at_one_broker_comes_to_subscribers_of_the_other() {
    let mut brokers = Brokers::new();
    let mut heard = Client::new(&mut brokers.b, "subscriber");
    heard.subscribe(&mut brokers.b, "#", 1);
    brokers.open("default");
    let mut sensor = Client::new(&mut brokers.a, "sensor");
    let answer = sensor.ask(&mut brokers.a, &publish_5("plant/1", 1, 1, "by MQTT"));
    assert_eq!(answer[..2], [0x40, 2], "somebody wants it");
    let nsq = brokers.a.connect();
    brokers.a.send(nsq, pub_("default", "by NSQ"));
    brokers.carry();
    assert_eq!(
        heard.messages(&mut brokers.b),
        [("plant/1".into(), "by MQTT".into()), ("default".into(), "by NSQ".into())]
    );
    let (topic, channel) = (&brokers.a.engine.topics, &brokers.a.engine.channels);
    assert_eq!((topic.len(), channel.len()), (1, 1));
    assert!(channel.values().all(|channel| channel.queue.is_empty() && channel.in_flight.is_empty()), "answered");
    assert!(brokers.b.engine.topics.is_empty(), "no bucket and no channel there has part in it");
}

#[test]
fn a_message_goes_over_one_link_and_not_over_the_next() {
    let mut brokers = Brokers::new();
    brokers.b.engine.allow_links("c", "srtm.link.c", KEY, LinkInterest::EVERYTHING);
    brokers.b.engine.create_topic("default");
    brokers.b.engine.create_channel("default", "srtm.link.c", START);
    let mut heard = Client::new(&mut brokers.b, "subscriber");
    heard.subscribe(&mut brokers.b, "#", 0);
    brokers.open("default");
    Client::new(&mut brokers.a, "sensor").publish(&mut brokers.a, "plant/1", 1, b"once");
    assert_eq!(brokers.said(&mut heard), ["once"]);
    let onward = brokers.b.engine.channels.values().find(|channel| &*channel.name == "srtm.link.c").expect("there");
    assert!(onward.queue.is_empty());
}

#[test]
fn after_a_break_what_was_not_answered_comes_again_in_order_and_nothing_twice() {
    let mut brokers = Brokers::new();
    let mut heard = Client::new(&mut brokers.b, "subscriber");
    heard.subscribe(&mut brokers.b, "#", 1);
    brokers.open("default");
    let mut sensor = Client::new(&mut brokers.a, "sensor");
    for number in ["1", "2"] {
        sensor.publish(&mut brokers.a, "n", 1, number.as_bytes());
    }
    brokers.break_off();
    for number in ["3", "4"] {
        sensor.publish(&mut brokers.a, "n", 1, number.as_bytes());
    }
    brokers.open("default");
    assert_eq!(brokers.said(&mut heard), ["1", "2", "3", "4"]);
    assert_eq!(brokers.ends(), ["the connection is broken"]);
}

#[test]
fn a_new_link_takes_the_place_of_one_that_hangs_with_all_that_is_in_flight_to_it() {
    let mut brokers = Brokers::new();
    let mut heard = Client::new(&mut brokers.b, "subscriber");
    heard.subscribe(&mut brokers.b, "#", 1);
    brokers.open("default");
    let mut sensor = Client::new(&mut brokers.a, "sensor");
    sensor.publish(&mut brokers.a, "n", 1, b"1"); // which stays on the way
    let hangs = brokers.link.expect("open").0;
    brokers.open("default");
    sensor.publish(&mut brokers.a, "n", 1, b"2");
    assert_eq!(brokers.said(&mut heard), ["1", "2"]);
    assert!(brokers.a.closed.contains(&hangs));
}

#[test]
fn a_kill_of_either_broker_loses_nothing_that_was_acknowledged_for_a_session_that_is_kept() {
    let (disk_a, disk_b) = (MemoryStore::default(), MemoryStore::default());
    let start = |disk: &MemoryStore, incarnation, now| Pair::on_disk(Config::default(), disk, incarnation, now);
    let mut brokers = Brokers::of(start(&disk_a, 1, START), start(&disk_b, 1, START));
    let (mut client, _) = Client::with(&mut brokers.b, "client", true, KEPT);
    client.subscribe(&mut brokers.b, "n", 1);
    brokers.b.close(client.key);
    brokers.open("default");
    brokers.break_off();
    let mut sensor = Client::new(&mut brokers.a, "sensor");
    for number in 1..=3 {
        assert_eq!(sensor.ask(&mut brokers.a, &publish_5("n", 1, number, &number.to_string()))[..2], [0x40, 2]);
    }
    brokers.a = start(&disk_a, 2, START + S); // killed
    brokers.want(None, true);
    brokers.open("default");
    let mut sensor = Client::new(&mut brokers.a, "sensor");
    assert_eq!(sensor.ask(&mut brokers.a, &publish_5("n", 1, 9, "4"))[..2], [0x40, 2]);
    brokers.carry();
    brokers.b = start(&disk_b, 2, START + 2 * S);
    brokers.link = None;
    let (mut client, answer) = Client::with(&mut brokers.b, "client", false, KEPT);
    assert_eq!(answer[2], 1, "it is there");
    assert_eq!(brokers.said(&mut client), ["1", "2", "3", "4"]);
}

#[test]
fn a_link_takes_only_what_is_wanted_at_the_other_broker() {
    let mut brokers = Brokers::new();
    brokers.want(Some(&["a/+"]), false);
    brokers.open("default");
    brokers.break_off();
    let mut sensor = Client::new(&mut brokers.a, "sensor");
    for name in ["a/1", "b/1", "a/2"] {
        sensor.publish(&mut brokers.a, name, 1, b"x");
    }
    let waiting = |brokers: &Brokers| brokers.a.engine.channels.values().map(|one| one.queue.len()).sum::<usize>();
    assert_eq!(waiting(&brokers), 2);
    brokers.want(Some(&["#"]), false);
    sensor.publish(&mut brokers.a, "b/1", 1, b"x");
    assert_eq!(waiting(&brokers), 3);
}

#[test]
fn nobody_consumes_a_link_but_its_broker_with_the_key() {
    let mut brokers = Brokers::new();
    brokers.a.engine.create_topic("default");
    brokers.a.engine.create_channel("default", CHANNEL, START);
    brokers.open_with("default", "another");
    let [end] = &brokers.ends()[..] else { panic!("it ends") };
    assert!(end.starts_with("E_IDENTIFY_FAILED IDENTIFY the key of a link is not known"), "{end}");
    let stranger = brokers.a.connect();
    let answer = format!("{:?}", brokers.a.ask(stranger, format!("SUB default {CHANNEL}\n")));
    assert!(answer.contains("E_SUB_FAILED SUB failed channel srtm.link.b is the link of a broker"), "{answer}");
    brokers.open("default");
    let at_a = brokers.link.expect("open").0;
    brokers.a.engine.forbid_links("b");
    brokers.a.turn();
    assert!(brokers.a.closed.contains(&at_a));
}

#[test]
fn a_link_that_says_nonsense_or_nothing_ends_with_a_reason() {
    let mut brokers = Brokers::new();
    brokers.open("default");
    let at_b = brokers.link.expect("open").1;
    brokers.b.send(at_b, [0, 0, 0, 5, 0, 0, 0, 9, 1]);
    brokers.b.turn();
    assert_eq!(brokers.ends(), ["a frame's type is none of 0, 1 and 2"]);
    brokers.open("default");
    brokers.b.advance(11 * S);
    assert_eq!(brokers.ends(), ["the connection is broken"]);
    brokers.open("default");
    assert!(brokers.b.engine.close_link(brokers.links) && !brokers.b.engine.close_link(brokers.links));
    assert_eq!(brokers.ends(), ["it is not needed any more"]);
}

#[test]
fn a_subscription_is_answered_once_other_brokers_know_of_it_or_after_a_second() {
    let mut pair = Pair::new();
    pair.engine.share_interest(true);
    let mut client = Client::new(&mut pair, "client");
    let first = pair.engine.interest();
    pair.engine.settle_interest(first.version);
    let subscribe = |id: u8, filter: &str| packet(0x82, &[&[0, id], &[0][..], &text(filter), &[1]].concat());
    client.send(&mut pair, &subscribe(1, "a/+"));
    assert_eq!(client.take(&mut pair), [[0_u8; 0]; 0], "not yet");
    assert!(pair.engine.poll_events().contains(&Event::MqttInterestChanged));
    let wanted = pair.engine.interest();
    assert_eq!((wanted.filters, wanted.durable), (Some(vec!["a/+".into()]), false));
    pair.engine.settle_interest(wanted.version);
    pair.turn();
    assert_eq!(client.take(&mut pair), [[0x90, 4, 0, 1, 0, 1]]);
    client.send(&mut pair, &subscribe(2, "a/+"));
    assert_eq!(client.take(&mut pair).len(), 1, "it is known already");
    client.send(&mut pair, &subscribe(3, "b"));
    pair.advance(S - 1);
    assert!(client.take(&mut pair).is_empty());
    pair.advance(1);
    assert_eq!(client.take(&mut pair), [[0x90, 4, 0, 3, 0, 1]]);
    assert!(pair.engine.poll_events().contains(&Event::SubscribedEarly { times: 1 }));
}

#[test]
fn with_many_filters_other_brokers_are_asked_for_all_and_told_of_no_more() {
    let mut pair = Pair::new();
    pair.engine.share_interest(true);
    let mut client = Client::accept(&mut pair);
    client.connect(&mut pair, Version::V5, "client");
    for number in 0..65 {
        let filter = text(&format!("a/{number}"));
        client.send(&mut pair, &packet(0x82, &[&[1, 0], &[0][..], &filter, &[0]].concat()));
    }
    let wanted = pair.engine.interest();
    assert_eq!(wanted.filters, None);
    pair.engine.settle_interest(wanted.version);
    pair.turn();
    assert_eq!(client.take(&mut pair).len(), 65);
    client.send(&mut pair, &packet(0x82, &[&[1, 0], &[0][..], &text("another"), &[0]].concat()));
    assert_eq!(client.take(&mut pair).len(), 1, "at once");
}
