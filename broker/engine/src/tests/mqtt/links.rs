//! Two brokers in memory, and the link between them: each message of the one comes once, in order, to the subscribers
//! of the other, whatever breaks.

use crate::config::Config;
use crate::event::Event;
use crate::harness::memory_store::MemoryStore;
use crate::harness::pair::{Pair, S, START, contract, limit, pub_};
use crate::keys::ConnKey;
use crate::limiter::contracts::Terms;
use crate::mqtt::managed_names::V3Excess;
use crate::protocol::link_frames::{self, Frame, Opening, RETAINED_TOPIC};
use crate::protocol::mqtt::version::Version;
use crate::queueing::link_interest::LinkInterest;
use crate::tests::mqtt::access::granted;
use crate::tests::mqtt::client::{Client, packet, publish_5, text};
use crate::tests::topic_access::{config, mqtt_connect};

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
        self.a.engine.allow_links("b", CHANNEL, KEY, LinkInterest { filters, groups: Vec::new(), durable });
    }

    /// Opens a link to a topic; an earlier one is not closed.
    fn open(&mut self, topic: &str) {
        self.a.engine.create_topic(topic);
        self.a.engine.create_channel(topic, CHANNEL, self.a.now);
        self.a.engine.release_topic(topic, self.a.now); // as Python does after a start
        self.open_with(topic, KEY);
    }

    fn open_with(&mut self, topic: &str, key: &str) {
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
        self.b.turn();
        client.messages(&mut self.b).into_iter().map(|(_, payload)| payload).collect()
    }

    fn ends(&mut self) -> Vec<String> {
        let reason = |event| if let Event::LinkEnded { reason, .. } = event { Some(reason) } else { None };
        self.b.engine.poll_events().into_iter().filter_map(reason).collect()
    }
}

/// A client of 5.0 publishes with QoS 1, and is answered.
fn say(pair: &mut Pair, client: &mut Client, name: &str, payload: &[u8]) {
    client.publish_5(pair, name, 1, 7, &String::from_utf8_lossy(payload));
    client.take(pair);
}

fn say_once(pair: &mut Pair, name: &str, payload: &[u8]) {
    let mut sensor = Client::new(pair, "sensor");
    say(pair, &mut sensor, name, payload);
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
    say_once(&mut brokers.a, "plant/1", b"once");
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
        say(&mut brokers.a, &mut sensor, "n", number.as_bytes());
    }
    brokers.break_off();
    for number in ["3", "4"] {
        say(&mut brokers.a, &mut sensor, "n", number.as_bytes());
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
    say(&mut brokers.a, &mut sensor, "n", b"1"); // which stays on the way
    let hangs = brokers.link.expect("open").0;
    brokers.open("default");
    say(&mut brokers.a, &mut sensor, "n", b"2");
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
        say(&mut brokers.a, &mut sensor, name, b"x");
    }
    let waiting = |brokers: &Brokers| brokers.a.engine.channels.values().map(|one| one.queue.len()).sum::<usize>();
    assert_eq!(waiting(&brokers), 2);
    brokers.want(Some(&["#"]), false);
    say(&mut brokers.a, &mut sensor, "b/1", b"x");
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
    brokers.open_with("gone", KEY);
    let [end] = &brokers.ends()[..] else { panic!("it ends") };
    assert!(end.starts_with("E_SUB_FAILED") && !brokers.a.engine.topic_names.contains_key("gone"), "{end}");
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
fn a_message_goes_to_one_member_of_a_group_wherever_its_members_are_and_to_those_at_its_own_broker_first() {
    let mut brokers = Brokers::new();
    let mut member = Client::new(&mut brokers.b, "member");
    member.subscribe(&mut brokers.b, "$share/g/#", 1);
    brokers.b.engine.share_interest(true);
    let wanted = brokers.b.engine.interest();
    assert_eq!((wanted.filters, &wanted.groups), (Some(Vec::new()), &vec!["$share/g/#".to_owned()]));
    let mut plain = Client::new(&mut brokers.b, "plain");
    plain.send(&mut brokers.b, &packet(0x82, &[&[0, 1, 0][..], &text("#"), &[1]].concat()));
    let interest = LinkInterest { filters: Some(vec!["#".into()]), groups: wanted.groups, durable: false };
    brokers.a.engine.allow_links("b", CHANNEL, KEY, interest);
    brokers.open("default");
    let mut sensor = Client::new(&mut brokers.a, "sensor");
    say(&mut brokers.a, &mut sensor, "n", b"1");
    assert_eq!(brokers.said(&mut member), ["1"], "no member is nearer");
    assert_eq!(brokers.said(&mut plain), ["1"], "and no other subscriber gets it twice");
    let mut near = Client::new(&mut brokers.a, "near");
    near.subscribe(&mut brokers.a, "$share/g/#", 1);
    say(&mut brokers.a, &mut sensor, "n", b"2");
    assert_eq!(brokers.said(&mut plain), ["2"]);
    assert!(brokers.said(&mut member).is_empty());
    let here: Vec<String> = near.messages(&mut brokers.a).into_iter().map(|(_, payload)| payload).collect();
    assert_eq!(here, ["2"]);
}

#[test]
fn a_group_without_a_member_that_is_connected_asks_for_nothing() {
    let mut pair = Pair::new();
    pair.engine.share_interest(true);
    let (mut member, _) = Client::with(&mut pair, "member", true, KEPT);
    member.send(&mut pair, &packet(0x82, &[&[0, 1, 0][..], &text("$share/g/n"), &[1]].concat()));
    assert_eq!(pair.engine.interest().groups, ["$share/g/n"]);
    pair.engine.poll_events();
    pair.close(member.key);
    pair.turn();
    assert!(pair.engine.poll_events().contains(&Event::MqttInterestChanged));
    assert!(pair.engine.interest().groups.is_empty());
}

#[test]
fn a_subscription_is_answered_once_other_brokers_know_of_it_or_after_a_second() {
    let mut pair = Pair::new();
    pair.engine.share_interest(true);
    let mut client = Client::new(&mut pair, "client");
    let first = pair.engine.interest();
    pair.engine.settle_interest(first.version);
    let subscribe = |id: u8, filter: &str| packet(0x82, &[&[0, id, 0][..], &text(filter), &[1]].concat());
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
fn who_unsubscribes_before_the_answer_to_its_subscription_gets_nothing_that_is_retained() {
    let mut pair = Pair::new();
    let mut client = Client::new(&mut pair, "client");
    retain(&mut pair, &mut client, "n/1", "x");
    pair.engine.share_interest(true);
    pair.engine.interest();
    client.send(&mut pair, &packet(0x82, &[&[0, 1, 0][..], &text("n/+"), &[1]].concat()));
    client.send(&mut pair, &packet(0xa2, &[&[0, 2, 0][..], &text("n/+")].concat()));
    pair.advance(S);
    let kinds: Vec<u8> = client.take(&mut pair).iter().map(|packet| packet[0]).collect();
    assert_eq!(kinds, [0xb0, 0x90]);
}

#[test]
fn what_came_by_a_link_that_is_not_needed_any_more_is_forgotten() {
    let mut brokers = Brokers::new();
    brokers.open("default");
    assert_eq!(brokers.b.engine.mqtt.peers.latest.len(), 1);
    assert!(brokers.b.engine.close_link(brokers.links));
    assert!(brokers.b.engine.mqtt.peers.latest.is_empty());
}

#[test]
fn with_many_filters_other_brokers_are_asked_for_all_and_told_of_no_more() {
    let mut pair = Pair::new();
    pair.engine.share_interest(true);
    let mut client = Client::accept(&mut pair);
    client.connect(&mut pair, Version::V5, "client");
    for number in 0..65 {
        let filter = text(&format!("a/{number}"));
        client.send(&mut pair, &packet(0x82, &[&[1, 0, 0][..], &filter, &[0]].concat()));
    }
    let wanted = pair.engine.interest();
    assert_eq!(wanted.filters, None);
    pair.engine.settle_interest(wanted.version);
    pair.turn();
    assert_eq!(client.take(&mut pair).len(), 65);
    client.send(&mut pair, &packet(0x82, &[&[1, 0, 0][..], &text("another"), &[0]].concat()));
    assert_eq!(client.take(&mut pair).len(), 1, "at once");
}

/// Opens the link of what is retained, from broker `a` to `b`.
fn open_retained(brokers: &mut Brokers) {
    brokers.open(RETAINED_TOPIC);
    for _ in 0..10 {
        brokers.carry();
    }
}

fn retain(pair: &mut Pair, client: &mut Client, name: &str, payload: &str) {
    client.send(pair, &packet(0x33, &[&text(name)[..], &[0, 9, 0], payload.as_bytes()].concat()));
    client.take(pair);
}

fn retained_at(pair: &mut Pair, id: &str) -> Vec<(String, String)> {
    let mut client = Client::new(pair, id);
    client.subscribe(pair, "#", 0);
    for _ in 0..10 {
        pair.turn();
    }
    client.messages(pair)
}

#[test]
fn what_is_retained_at_one_broker_is_at_all_whenever_they_meet_and_the_latest_counts() {
    let mut brokers = Brokers::new();
    let mut sensor = Client::new(&mut brokers.a, "sensor");
    for number in 0..100 {
        retain(&mut brokers.a, &mut sensor, &format!("n/{number:02}"), "before");
    }
    open_retained(&mut brokers);
    assert_eq!(retained_at(&mut brokers.b, "one").len(), 100, "all that was there before");
    brokers.a.now += 1_000;
    brokers.b.now += 2_000;
    let mut other = Client::new(&mut brokers.b, "other");
    retain(&mut brokers.b, &mut other, "n/00", "of b, later");
    retain(&mut brokers.a, &mut sensor, "n/00", "of a, earlier");
    retain(&mut brokers.a, &mut sensor, "n/01", "");
    retain(&mut brokers.a, &mut sensor, "n/02", "after");
    brokers.carry();
    let there = retained_at(&mut brokers.b, "two");
    assert_eq!(there.len(), 99);
    assert_eq!(there[0], ("n/00".into(), "of b, later".into()));
    assert_eq!(there[1], ("n/02".into(), "after".into()));
}

#[test]
fn what_was_removed_does_not_come_back_with_an_older_message_that_was_late() {
    let mut brokers = Brokers::new();
    let mut sensor = Client::new(&mut brokers.a, "sensor");
    retain(&mut brokers.a, &mut sensor, "n", "old");
    brokers.b.now += S;
    brokers.b.engine.create_topic(RETAINED_TOPIC);
    let mut other = Client::new(&mut brokers.b, "other");
    retain(&mut brokers.b, &mut other, "n", "");
    open_retained(&mut brokers);
    assert!(retained_at(&mut brokers.b, "subscriber").is_empty());
}

#[test]
fn a_mark_comes_behind_all_that_was_retained_before_it() {
    let mut brokers = Brokers::new();
    let mut sensor = Client::new(&mut brokers.a, "sensor");
    for number in 0..100 {
        retain(&mut brokers.a, &mut sensor, &format!("n/{number:02}"), "x");
    }
    assert!(!brokers.a.engine.mark_link(CHANNEL, "too early", START));
    brokers.a.engine.create_topic(RETAINED_TOPIC);
    brokers.a.engine.create_channel(RETAINED_TOPIC, CHANNEL, START);
    assert!(brokers.a.engine.mark_link(CHANNEL, "v1", START));
    open_retained(&mut brokers);
    let marks = |events: Vec<Event>| {
        let mark = |event| if let Event::LinkMarked { mark, .. } = event { Some(mark) } else { None };
        events.into_iter().filter_map(mark).collect::<Vec<String>>()
    };
    assert_eq!(marks(brokers.b.engine.poll_events()), ["v1"]);
    assert_eq!(retained_at(&mut brokers.b, "subscriber").len(), 100);
    let now = brokers.a.now;
    assert!(brokers.a.engine.mark_link(CHANNEL, "v2", now));
    brokers.carry();
    assert_eq!(marks(brokers.b.engine.poll_events()), ["v2"]);
}

#[test]
fn a_new_subscription_gets_what_is_retained_once_the_others_know_of_it() {
    let mut pair = Pair::new();
    let mut sensor = Client::new(&mut pair, "sensor");
    retain(&mut pair, &mut sensor, "n", "before");
    pair.engine.share_interest(true);
    let mut client = Client::new(&mut pair, "client");
    client.send(&mut pair, &packet(0x82, &[&[0, 1, 0][..], &text("n"), &[1]].concat()));
    retain(&mut pair, &mut sensor, "n", "after");
    let wanted = pair.engine.interest();
    let early: Vec<String> = client.messages(&mut pair).into_iter().map(|(_, payload)| payload).collect();
    assert_eq!(early, ["after"], "live; nothing is replayed yet");
    pair.engine.settle_interest(wanted.version);
    pair.turn();
    pair.turn();
    let late: Vec<String> = client.messages(&mut pair).into_iter().map(|(_, payload)| payload).collect();
    assert_eq!(late, ["after"], "the one that is retained now");
}

#[test]
fn a_link_that_has_shown_its_key_needs_no_auth() {
    let config = Config { auth_required: true, ..Config::default() };
    let mut brokers = Brokers::of(Pair::with(config), Pair::new());
    let mut heard = Client::new(&mut brokers.b, "subscriber");
    heard.subscribe(&mut brokers.b, "#", 1);
    let mut publisher = granted(&mut brokers.a, "publisher");
    brokers.open("default");
    publisher.publish_5(&mut brokers.a, "open.n", 1, 1, "x");
    assert_eq!(brokers.said(&mut heard), ["x"]);
}

#[test]
fn a_link_is_not_held_and_the_broker_of_the_subscriber_holds_it() {
    let mut brokers = Brokers::new();
    let mut heard = Client::new(&mut brokers.b, "subscriber");
    heard.subscribe(&mut brokers.b, "#", 1);
    brokers.open("default");
    let (engine, now) = (&mut brokers.a.engine, brokers.a.now);
    engine.set_contracts(vec![(contract("readers", 1, 1), false)], false, now);
    engine.set_terms("default", Terms { consumers: "readers".into(), ..Terms::default() });
    let mut sensor = Client::new(&mut brokers.a, "sensor");
    for payload in ["1", "2", "3"] {
        say(&mut brokers.a, &mut sensor, "n", payload.as_bytes());
    }
    assert_eq!(brokers.said(&mut heard), ["1", "2", "3"]);
    let (engine, now) = (&mut brokers.b.engine, brokers.b.now);
    engine.set_contracts(vec![(contract("readers", 1, 1), false)], false, now);
    engine.set_terms("default", Terms { consumers: "readers".into(), ..Terms::default() });
    for payload in ["4", "5"] {
        say(&mut brokers.a, &mut sensor, "n", payload.as_bytes());
    }
    assert_eq!(brokers.said(&mut heard), ["4"]);
    brokers.b.advance(S);
    assert_eq!(brokers.said(&mut heard), ["5"]);
}

#[test]
fn what_comes_over_a_link_is_judged_by_the_same_rows_as_at_its_own_broker() {
    let mut brokers = Brokers::of(Pair::new(), Pair::with(config()));
    let (mut cars, _) = mqtt_connect(&mut brokers.b, "cars", "c");
    cars.subscribe(&mut brokers.b, "#", 0);
    for (topic, filter) in [("news-7", "open/#"), ("news-secret", "news/closed")] {
        assert!(brokers.a.engine.set_mqtt_names(topic, vec![filter.into()], V3Excess::Delay));
    }
    let mut sensor = Client::new(&mut brokers.a, "sensor");
    for (topic, name, is_let_through) in [
        ("default", "news/1", true),
        ("default", "news/secret", false),
        ("default", "roads/7", false),
        ("news-7", "open/1", true),
        ("news-secret", "news/closed", false),
    ] {
        brokers.open(topic);
        say(&mut brokers.a, &mut sensor, name, b"x");
        assert_eq!(brokers.said(&mut cars).len(), usize::from(is_let_through), "{name}");
    }
}

/// {origin, topic: [messages, median of access, processing, consumer wait, total, in ms]} at `b`.
fn ways(brokers: &mut Brokers) -> Vec<(String, String, [u64; 5])> {
    let views = brokers.b.engine.link_way_views(0, 10, brokers.b.now);
    let shown = serde_json::to_value(views).expect("JSON");
    let median = |kinds: &serde_json::Value, kind: &str| kinds[kind]["p50_ns"].as_u64().expect("ns") / 1_000_000;
    let figures = |way: &serde_json::Value| {
        let all = &way["latency"]["since_start"];
        let [access, processing, wait, total] =
            ["access", "processing", "consumer_wait", "total"].map(|kind| median(all, kind));
        [all["total"]["count"].as_u64().expect("a number"), access, processing, wait, total]
    };
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    let all = shown.as_array().expect("a list").iter();
    all.map(|way| (text(&way["origin"]), text(&way["topic"]), figures(way))).collect()
}

#[test]
fn the_delay_of_a_message_is_that_at_both_brokers_whose_clocks_have_nothing_in_common() {
    let mut brokers = Brokers::new();
    brokers.b.advance(1_000 * S);
    let mut heard = Client::new(&mut brokers.b, "subscriber");
    heard.subscribe(&mut brokers.b, "#", 1);
    brokers.a.engine.create_topic("default");
    brokers.a.limit("default", limit(1, 1, 1));
    brokers.open("default");
    let mut sensor = Client::new(&mut brokers.a, "sensor");
    for number in ["1", "2"] {
        say(&mut brokers.a, &mut sensor, "n", number.as_bytes());
    }
    brokers.break_off();
    brokers.a.advance(3 * S); // they are due after 1 s and 2 s, and the link is away
    brokers.open("default");
    assert_eq!(brokers.said(&mut heard), ["1", "2"]);
    let [(origin, topic, [count, _, _, wait, total])] = &ways(&mut brokers)[..] else { panic!("one way") };
    assert_eq!((origin.as_str(), topic.as_str()), ("a", "default"));
    assert_eq!((*count, *wait, *total / 10), (2, 0, 300));
    let shown = serde_json::to_value(brokers.b.engine.link_way_views(0, 10, brokers.b.now)).expect("JSON");
    let longest = |kind: &str| shown[0]["latency"]["since_start"][kind]["max_ns"].as_u64().expect("ns") / 10_000_000;
    assert_eq!(["access", "processing", "total"].map(longest), [200, 200, 300], "in units of 10 ms");
}

#[test]
fn one_delivery_of_each_class_stands_for_a_message_however_many_subscribers_it_has() {
    let mut brokers = Brokers::new();
    let mut all = Vec::new();
    for (number, (qos, kept)) in [(0, false), (1, false), (1, true)].into_iter().cycle().take(9).enumerate() {
        let properties = if kept { KEPT } else { &[] };
        let (mut client, _) = Client::with(&mut brokers.b, &format!("client {number}"), true, properties);
        client.subscribe(&mut brokers.b, "#", qos);
        all.push(client);
    }
    brokers.open("default");
    say_once(&mut brokers.a, "n", b"x");
    let heard: Vec<usize> = all.iter_mut().map(|client| brokers.said(client).len()).collect();
    assert_eq!(heard, [1; 9]);
    assert_eq!(ways(&mut brokers)[0].2[0], 3);
}

#[test]
fn a_broker_of_an_earlier_version_is_told_no_delays() {
    let mut brokers = Brokers::new();
    for topic in ["asks", "does not"] {
        brokers.a.engine.create_topic(&topic.replace(' ', "_"));
    }
    for (topic, timed, expected) in [("asks", r#","timed":true"#, true), ("does_not", "", false)] {
        brokers.a.engine.create_channel(topic, CHANNEL, brokers.a.now);
        let key = brokers.a.accept();
        let body = format!(r#"{{"srtm":{{"link":{{"broker":"b","key":"{KEY}"{timed}}}}}}}"#);
        let mut bytes = b"  V2IDENTIFY\n".to_vec();
        bytes.extend((body.len() as u32).to_be_bytes());
        bytes.extend(format!("{body}SUB {topic} {CHANNEL}\nRDY 1\n").into_bytes());
        brokers.a.send(key, bytes);
        let nsq = brokers.a.connect();
        brokers.a.send(nsq, pub_(topic, "x"));
        brokers.a.turn();
        let (got, mut at, mut told) = (brokers.a.take_bytes(key), 0, Vec::new());
        while let Some((frame, len)) = link_frames::frame(&got[at..], 1 << 20).expect("frames") {
            at += len;
            if let Frame::Message(linked) = frame {
                told.push((linked.so_far.is_some(), linked.payload.to_vec()));
            }
        }
        assert_eq!(told, [(expected, b"x".to_vec())]);
    }
}
