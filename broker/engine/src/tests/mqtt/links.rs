//! Two brokers in memory, and the link between them: each message of the one comes once, in order, to the subscribers
//! of the other, whatever breaks.

use crate::config::Config;
use crate::event::Event;
use crate::harness::memory_store::MemoryStore;
use crate::harness::pair::{Pair, S, START, contract, pub_};
use crate::limiter::topic_contracts::Terms;
use crate::mqtt::elsewhere::interest::MOST_GROUPS;
use crate::mqtt::managed_names::V3Excess;
use crate::protocol::mqtt::version::Version;
use crate::queueing::link_interest::LinkInterest;
use crate::tests::mqtt::access::granted;
use crate::tests::mqtt::client::{Client, message_5, packet, publish_5, subscribe, text};
use crate::tests::mqtt::two_brokers::{Brokers, CHANNEL, KEY, retain, say, say_once};
use crate::tests::topic_access::{config, mqtt_connect};

const KEPT: &[u8] = &[0x11, 0, 0, 0, 60];

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
    brokers.tell();
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
fn a_group_whose_members_are_away_asks_to_be_kept_until_their_sessions_end() {
    let mut pair = Pair::new();
    pair.engine.share_interest(true);
    let (mut member, _) = Client::with(&mut pair, "member", true, KEPT);
    member.send(&mut pair, &packet(0x82, &[&[0, 1, 0][..], &text("$share/g/n"), &[1]].concat()));
    let news = |pair: &mut Pair| {
        pair.turn();
        assert!(pair.engine.poll_events().contains(&Event::MqttInterestChanged));
        let wanted = pair.engine.interest();
        (wanted.groups, wanted.kept, wanted.durable)
    };
    let name = || vec!["$share/g/n".to_owned()];
    assert_eq!(news(&mut pair), (name(), Vec::new(), true));
    pair.close(member.key);
    assert_eq!(news(&mut pair), (Vec::new(), name(), true));
    pair.advance(61 * S);
    assert_eq!(news(&mut pair), (Vec::new(), Vec::new(), false));
}

/// A group at `b` whose only member has a session that outlives its connection, and is away.
fn away_at_b(brokers: &mut Brokers) {
    let (mut member, _) = Client::with(&mut brokers.b, "member", true, KEPT);
    member.subscribe(&mut brokers.b, "$share/g/n", 1);
    brokers.b.close(member.key);
    brokers.b.turn();
    brokers.tell();
    brokers.open("default");
}

#[test]
fn what_is_published_anywhere_waits_where_the_members_of_a_group_are_away_also_after_kills() {
    let (disk_a, disk_b) = (MemoryStore::default(), MemoryStore::default());
    let start = |disk: &MemoryStore, incarnation, now| Pair::on_disk(Config::default(), disk, incarnation, now);
    let mut brokers = Brokers::of(start(&disk_a, 1, START), start(&disk_b, 1, START));
    away_at_b(&mut brokers);
    brokers.break_off();
    let mut sensor = Client::new(&mut brokers.a, "sensor");
    let answer = sensor.ask(&mut brokers.a, &publish_5("n", 1, 1, "1"));
    assert_eq!(answer[..2], [0x40, 2], "somebody wants it");
    brokers.a = start(&disk_a, 2, START + S); // killed
    brokers.tell();
    brokers.open("default");
    brokers.b = start(&disk_b, 2, START + S);
    brokers.link = None;
    brokers.tell();
    brokers.open("default");
    say_once(&mut brokers.a, "n", b"2");
    brokers.carry();
    let (mut member, answer) = Client::with(&mut brokers.b, "member", false, KEPT);
    assert_eq!(answer[2], 1, "it is there");
    assert_eq!(brokers.said(&mut member), ["1", "2"]);
}

#[test]
fn a_group_whose_members_are_away_gets_what_nsq_publishes_where_nobody_subscribes() {
    let mut brokers = Brokers::new();
    away_at_b(&mut brokers);
    brokers.open("n");
    let nsq = brokers.a.connect();
    brokers.a.send(nsq, pub_("n", "by NSQ"));
    brokers.carry();
    let (mut member, _) = Client::with(&mut brokers.b, "member", false, KEPT);
    assert_eq!(brokers.said(&mut member), ["by NSQ"]);
}

#[test]
fn a_member_that_is_connected_anywhere_comes_before_a_broker_that_keeps_the_group_and_that_before_another_one() {
    let mut brokers = Brokers::new();
    away_at_b(&mut brokers);
    let groups = vec!["$share/g/n".to_owned()];
    let of_c = |groups| LinkInterest { filters: Some(Vec::new()), groups, kept: Vec::new(), durable: false };
    brokers.a.engine.allow_links("c", "srtm.link.c", KEY, of_c(groups));
    brokers.a.engine.create_channel("default", "srtm.link.c", START);
    let waits = |brokers: &mut Brokers| {
        say_once(&mut brokers.a, "n", b"x");
        brokers.carry();
        let at = |pair: &Pair| pair.engine.mqtt.groups.values().map(|group| group.queue.len()).sum::<usize>();
        let mut for_c = brokers.a.engine.channels.values().filter(|channel| &*channel.name == "srtm.link.c");
        [at(&brokers.a), at(&brokers.b), for_c.next().map_or(0, |channel| channel.queue.len())]
    };
    assert_eq!(waits(&mut brokers), [0, 0, 1], "a member is connected at c");
    brokers.a.engine.allow_links("c", "srtm.link.c", KEY, of_c(Vec::new()));
    assert_eq!(waits(&mut brokers), [0, 1, 1], "b keeps the group");
    let (mut near, _) = Client::with(&mut brokers.a, "near", true, KEPT);
    near.subscribe(&mut brokers.a, "$share/g/n", 1);
    brokers.a.close(near.key);
    assert_eq!(waits(&mut brokers), [1, 1, 1], "a keeps it too");
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

#[test]
fn a_link_that_has_shown_its_key_needs_no_auth() {
    let config = Config { auth_servers: true, ..Config::default() };
    let mut brokers = Brokers::of(Pair::with(config), Pair::new());
    let mut heard = Client::new(&mut brokers.b, "subscriber");
    heard.subscribe(&mut brokers.b, "#", 1);
    let mut publisher = granted(&mut brokers.a, "publisher");
    brokers.open("default");
    publisher.publish_5(&mut brokers.a, "open.n", 1, 1, "x");
    assert_eq!(brokers.said(&mut heard), ["x"]);
}

#[test]
fn renewed_rows_leave_a_link_open() {
    let mut brokers = Brokers::of(Pair::with(config()), Pair::new());
    let mut heard = Client::new(&mut brokers.b, "subscriber");
    heard.subscribe(&mut brokers.b, "#", 1);
    let (mut cars, _) = mqtt_connect(&mut brokers.a, "cars", "c");
    brokers.open("default");
    brokers.a.engine.set_access(config().access);
    cars.publish_5(&mut brokers.a, "roads-7", 1, 1, "x");
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

#[test]
fn a_message_of_qos_2_is_given_once_though_the_link_breaks_before_its_answer() {
    let mut brokers = Brokers::new();
    let mut client = Client::new(&mut brokers.b, "client");
    client.subscribe(&mut brokers.b, "n", 2);
    brokers.open("default");
    let mut sensor = Client::new(&mut brokers.a, "sensor");
    for (id, payload) in [(1, "first"), (2, "second")] {
        assert_eq!(sensor.ask(&mut brokers.a, &publish_5("n", 2, id, payload))[0], 0x50, "PUBREC");
        sensor.ask(&mut brokers.a, &[0x62, 2, 0, id as u8]);
    }
    brokers.break_off();
    brokers.open("default");
    brokers.b.turn();
    let came = client.take(&mut brokers.b);
    let came: Vec<(u8, String)> = came.iter().map(|one| (one[0], message_5(one).1)).collect();
    assert_eq!(came, [(0x34, "first".to_owned()), (0x34, "second".to_owned())], "with QoS 2, not as copies");
    for id in [1, 2] {
        assert_eq!(client.ask(&mut brokers.b, &[0x50, 2, 0, id])[..4], [0x62, 2, 0, id], "PUBREL");
        client.send(&mut brokers.b, &[0x70, 2, 0, id]);
    }
    assert!(client.take(&mut brokers.b).is_empty());
}

#[test]
fn each_of_many_shared_groups_at_another_broker_gets_a_message() {
    let mut brokers = Brokers::new();
    brokers.b.engine.share_interest(true);
    let mut member = Client::new(&mut brokers.b, "member");
    for group in 0..70 {
        assert_eq!(join(&mut brokers.b, &mut member, &format!("$share/{group}/plant/+")), Some(0));
    }
    assert_eq!(brokers.b.engine.interest().groups.len(), 70);
    brokers.tell();
    brokers.open("default");
    say_once(&mut brokers.a, "elsewhere", b"nobody's");
    say_once(&mut brokers.a, "plant/1", b"one");
    assert_eq!(brokers.said(&mut member), ["one"; 70], "each group has one member");
}

#[test]
fn a_shared_group_of_which_other_brokers_would_not_hear_is_refused_and_told() {
    let mut pair = Pair::new();
    pair.engine.share_interest(true);
    let mut member = Client::new(&mut pair, "member");
    let mut ask = |pair: &mut Pair, name: &str| (join(pair, &mut member, name), pair.engine.interest().groups.len());
    for group in 0..MOST_GROUPS {
        assert_eq!(ask(&mut pair, &format!("$share/{group}/a")), (Some(0), group + 1));
    }
    assert_eq!(ask(&mut pair, "$share/more/a"), (Some(0x97), MOST_GROUPS));
    assert_eq!(ask(&mut pair, "$share/0/a"), (Some(0), MOST_GROUPS), "one that is there");
    let told = |event: &Event| matches!(event, Event::LimitReached { limit: "shared_groups", client, .. } if client == "$share/more/a");
    assert!(pair.engine.poll_events().iter().any(told));
}

#[test]
fn groups_that_were_there_before_other_brokers_came_are_told_up_to_the_bound_and_the_log_says_so() {
    let mut pair = Pair::new();
    let mut member = Client::new(&mut pair, "member");
    let long = "x".repeat(60_000);
    for group in ["1", "2"] {
        assert_eq!(member.subscribe(&mut pair, &format!("$share/{group}/{long}"), 1), 1, "alone it may");
    }
    pair.engine.share_interest(true);
    assert_eq!(pair.engine.interest().groups.len(), 1);
    pair.turn();
    let told = |event: &Event| matches!(event, Event::LimitReached { limit: "shared_groups", times: 1, .. });
    assert!(pair.engine.poll_events().iter().any(told));
}

/// Subscribes with QoS 0, and has all other brokers know it; gives the code of the answer.
fn join(pair: &mut Pair, member: &mut Client, filter: &str) -> Option<u8> {
    member.send(pair, &subscribe(filter, 0));
    let wanted = pair.engine.interest();
    pair.engine.settle_interest(wanted.version);
    pair.turn();
    member.take(pair).last().and_then(|answer| answer.last().copied())
}
