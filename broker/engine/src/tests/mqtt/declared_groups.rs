//! Groups of shared subscriptions that topic files declare: there without members, and after a kill.

use crate::config::Config;
use crate::harness::invariant;
use crate::harness::pair::{Pair, S, START};
use crate::protocol::link_frames::RETAINED_TOPIC;
use crate::queueing::link_interest::LinkInterest;
use crate::tests::mqtt::client::{Client, message_5, packet, publish_5, text};
use crate::tests::mqtt::durable::{Disk, KEPT, said};
use crate::tests::mqtt::durable_groups::{GROUP, files_of_groups, publish};
use crate::tests::mqtt::linked_brokers::packet_id;
use crate::tests::mqtt::two_brokers::{Brokers, KEY};

fn declare(pair: &mut Pair, topic: &str, groups: &[&str]) -> bool {
    let groups: Vec<String> = groups.iter().map(|name| (*name).to_owned()).collect();
    pair.engine.set_mqtt_groups(topic, &groups, pair.now)
}

/// As Python does at the start.
fn restart(disk: &mut Disk, pair: Pair, groups: &[&str]) -> Pair {
    let mut pair = disk.kill(pair);
    declare(&mut pair, "heat", groups);
    pair.engine.forget_left_groups();
    pair
}

/// A member whose session ends with its connection.
fn member(pair: &mut Pair) -> Client {
    let mut member = Client::new(pair, "member");
    assert_eq!(member.subscribe(pair, GROUP, 1), 1);
    member
}

#[test]
fn it_collects_before_anybody_has_subscribed_and_outlives_kills() {
    let mut disk = Disk::new();
    let mut pair = disk.start(START);
    assert!(declare(&mut pair, "heat", &[GROUP]));
    publish(&mut pair, 1..=2);
    let mut pair = restart(&mut disk, pair, &[GROUP]);
    publish(&mut pair, 3..=3);
    let mut pair = restart(&mut disk, pair, &[GROUP]);
    let held = &pair.snapshot()["mqtt_topics"][0];
    assert_eq!((held["depth"].as_u64(), held["holders"].as_u64()), (Some(3), Some(0)), "{held}");
    let mut member = member(&mut pair);
    assert_eq!(said(&mut member, &mut pair), ["1", "2", "3"]);
    invariant::check(&pair.engine, pair.now);
}

#[test]
fn it_goes_on_to_collect_when_its_last_member_has_left() {
    let mut disk = Disk::new();
    let mut pair = disk.start(START);
    declare(&mut pair, "heat", &[GROUP]);
    let mut first = member(&mut pair);
    publish(&mut pair, 1..=1);
    assert_eq!(said(&mut first, &mut pair), ["1"]);
    pair.close(first.key); // and has not acknowledged
    publish(&mut pair, 2..=2);
    let mut next = member(&mut pair);
    assert_eq!(said(&mut next, &mut pair), ["1", "2"]);
    next.send(&mut pair, &packet(0xa2, &[&[0, 7, 0][..], &text(GROUP)].concat()));
    assert_eq!(pair.engine.mqtt.groups.len(), 1);
    invariant::check(&pair.engine, pair.now);
}

#[test]
fn it_is_as_full_as_a_session_may_be_and_loses_the_newest() {
    let mut pair = Pair::with(Config { mqtt_max_queued: 2, ..Config::default() });
    declare(&mut pair, "heat", &[GROUP]);
    publish(&mut pair, 1..=3);
    assert_eq!(pair.snapshot()["mqtt_topics"][0]["full"].as_u64(), Some(1));
    let mut member = member(&mut pair);
    assert_eq!(said(&mut member, &mut pair), ["1", "2"]);
}

#[test]
fn without_its_line_it_ends_with_its_files_unless_it_has_members_or_another_topic_declares_it() {
    let mut disk = Disk::new();
    let mut pair = disk.start(START);
    declare(&mut pair, "heat", &[GROUP, "$share/other/#"]);
    declare(&mut pair, "noise", &[GROUP]);
    publish(&mut pair, 1..=1);
    declare(&mut pair, "heat", &[GROUP]);
    assert_eq!((pair.engine.mqtt.groups.len(), files_of_groups(&disk)), (1, 1));
    declare(&mut pair, "heat", &[]);
    assert_eq!(pair.engine.mqtt.groups.len(), 1);
    let member = member(&mut pair);
    declare(&mut pair, "noise", &[]);
    assert_eq!(pair.engine.mqtt.groups.len(), 1);
    pair.close(member.key);
    pair.advance(10 * S);
    assert_eq!((pair.engine.mqtt.groups.len(), files_of_groups(&disk)), (0, 0));
    assert!(pair.engine.mqtt.filters.is_empty());
    invariant::check(&pair.engine, pair.now);
}

#[test]
fn what_is_kept_for_one_that_no_file_declares_any_more_goes_once_all_files_are_known() {
    let mut disk = Disk::new();
    let mut pair = disk.start(START);
    declare(&mut pair, "heat", &[GROUP]);
    publish(&mut pair, 1..=1);
    let mut pair = disk.kill(pair);
    pair.advance(10 * S);
    assert!(files_of_groups(&disk) > 0, "until then it may be declared");
    pair.engine.forget_left_groups();
    pair.advance(10 * S);
    assert_eq!(files_of_groups(&disk), 0);
}

#[test]
fn a_name_that_is_no_shared_subscription_changes_nothing() {
    let mut pair = Pair::new();
    declare(&mut pair, "heat", &[GROUP]);
    for name in ["workers", "a/#", "$share/workers", "$share//a", "$share/w+/a", "$share/w/a/#/b", ""] {
        assert!(!declare(&mut pair, "heat", &["$share/new/a", name]), "{name}");
    }
    assert!(pair.engine.mqtt.by_group.keys().eq([&Box::from(GROUP)]));
}

#[test]
fn what_waits_at_a_broker_without_members_goes_to_the_members_of_another_one_also_after_a_kill() {
    for is_killed in [false, true] {
        let mut disk = Disk::new();
        let mut brokers = Brokers::of(disk.start(START), Pair::new());
        declare(&mut brokers.a, "heat", &[GROUP]);
        brokers.open("default");
        publish(&mut brokers.a, 1..=200);
        let mut member = member(&mut brokers.b);
        brokers.tell();
        if is_killed {
            brokers.a.turn(); // some are in the link's channel, and none was answered
            brokers.break_off();
            let dead = std::mem::take(&mut brokers.a);
            brokers.a = disk.kill(dead);
            brokers.tell();
            declare(&mut brokers.a, "heat", &[GROUP]);
            brokers.open("default");
        }
        let mut heard = Vec::new();
        loop {
            brokers.carry();
            let some = member.take(&mut brokers.b);
            if some.is_empty() {
                break;
            }
            for one in some {
                heard.push(message_5(&one).1);
                member.send(&mut brokers.b, &packet(0x40, &packet_id(&one)));
            }
        }
        heard.sort_by_key(|number| number.parse::<u16>().expect("a number"));
        heard.dedup();
        assert_eq!(heard, (1..=200).map(|number| number.to_string()).collect::<Vec<_>>(), "killed: {is_killed}");
        let group = brokers.a.engine.mqtt.groups.values().next().expect("declared");
        assert!(group.queue.is_empty());
    }
}

#[test]
fn what_another_broker_has_kept_finds_room_beside_what_waits_where_the_member_is() {
    let bound = || Pair::with(Config { mqtt_max_queued: 100, ..Config::default() });
    let mut brokers = Brokers::of(bound(), bound());
    let b = &mut brokers.b;
    b.engine.allow_links("a", "srtm.link.a", KEY, LinkInterest::EVERYTHING);
    b.engine.create_topic(RETAINED_TOPIC);
    b.engine.create_channel(RETAINED_TOPIC, "srtm.link.a", b.now);
    for broker in [&mut brokers.a, &mut brokers.b] {
        declare(broker, "heat", &[GROUP]);
        publish(broker, 1..=100);
    }
    brokers.open("default");
    let mut slow = member(&mut brokers.b); // acknowledges nothing
    brokers.tell();
    while !brokers.a.engine.mqtt.peers.lending.is_empty() {
        brokers.a.turn();
    }
    brokers.carry();
    assert_eq!(said(&mut slow, &mut brokers.b).len(), 64);
    let waits = |pair: &Pair| pair.engine.mqtt.groups.values().map(|group| group.queue.len()).sum::<usize>();
    assert_eq!((waits(&brokers.a), waits(&brokers.b)), (0, 200 - 64));
    publish(&mut brokers.b, 101..=101);
    assert_eq!((waits(&brokers.b), brokers.b.engine.mqtt.counters.dropped), (200 - 64, 1), "the bound here is met");
}

#[test]
fn what_a_member_leaves_behind_goes_to_a_member_at_another_broker() {
    for leaves in [&[0xe0, 0][..], &packet(0xa2, &[&[0, 7, 0][..], &text(GROUP)].concat())] {
        let mut brokers = Brokers::new();
        declare(&mut brokers.a, "heat", &[GROUP]);
        let one_in_flight = [&[0x11, 0, 0, 0, 60][..], &[0x21, 0, 1]].concat();
        let (mut near, _) = Client::with(&mut brokers.a, "near", true, &one_in_flight);
        near.subscribe(&mut brokers.a, GROUP, 1);
        publish(&mut brokers.a, 1..=2);
        brokers.open("default");
        let mut far = member(&mut brokers.b);
        brokers.tell();
        brokers.carry();
        assert!(said(&mut far, &mut brokers.b).is_empty(), "a member is nearer");
        near.send(&mut brokers.a, leaves);
        brokers.a.turn();
        let came = brokers.said(&mut far);
        assert_eq!(came, if leaves[0] == 0xe0 { &["1", "2"][..] } else { &["2"] }, "what is in flight stays so");
    }
}

#[test]
fn it_is_there_when_its_last_member_is_ended_by_an_operator() {
    let mut pair = Pair::new();
    declare(&mut pair, "heat", &[GROUP]);
    let (mut lasting, _) = Client::with(&mut pair, "lasting", true, KEPT);
    lasting.subscribe(&mut pair, GROUP, 1);
    assert!(pair.engine.kick_mqtt("lasting", pair.now));
    let mut sensor = Client::new(&mut pair, "sensor");
    sensor.ask(&mut pair, &publish_5("a/b", 1, 1, "kept"));
    assert_eq!(said(&mut member(&mut pair), &mut pair), ["kept"]);
}
