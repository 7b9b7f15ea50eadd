//! What of shared subscriptions outlives the broker.

use crate::harness::invariant;
use crate::harness::pair::{Pair, S, START};
use crate::tests::mqtt::client::{Client, packet, publish_5, text};
use crate::tests::mqtt::durable::{Disk, KEPT, present, said};

pub(super) const GROUP: &str = "$share/g/a/#";

/// Publishes, and has each answered.
pub(super) fn publish(pair: &mut Pair, numbers: std::ops::RangeInclusive<u16>) {
    let mut sensor = Client::new(pair, "sensor");
    for number in numbers {
        assert_eq!(sensor.ask(pair, &publish_5("a/b", 1, number, &number.to_string()))[..2], [0x40, 2]);
    }
}

pub(super) fn files_of_groups(disk: &Disk) -> usize {
    disk.store.with(|disk| disk.files.keys().filter(|name| name.contains("share")).count())
}

/// A group with two members, of whom the first has a session that is kept.
fn two_members(disk: &mut Disk) -> (Pair, Client, Client) {
    let mut pair = disk.start(START);
    let (mut lasting, _) = Client::with(&mut pair, "lasting", true, KEPT);
    let mut passing = Client::new(&mut pair, "passing");
    lasting.subscribe(&mut pair, GROUP, 1);
    passing.subscribe(&mut pair, GROUP, 1);
    (pair, lasting, passing)
}

#[test]
fn what_was_acknowledged_for_a_group_outlives_kills_in_its_order_until_a_member_acknowledges_it() {
    let mut disk = Disk::new();
    let mut pair = disk.start(START);
    let (mut member, _) = Client::with(&mut pair, "member", true, KEPT);
    member.subscribe(&mut pair, GROUP, 1);
    publish(&mut pair, 1..=2); // in flight to the member
    pair.close(member.key);
    publish(&mut pair, 3..=4); // nobody is there
    let mut pair = disk.kill(pair);
    let (mut member, is_there) = present(&mut pair, "member");
    assert!(is_there);
    assert_eq!(said(&mut member, &mut pair), ["1", "2", "3", "4"]);
    member.send(&mut pair, &[0x40, 2, 0, 1, 0x40, 2, 0, 2]);
    pair.advance(10 * S);
    invariant::check(&pair.engine, pair.now);
    let mut pair = disk.kill(pair);
    let (mut member, _) = present(&mut pair, "member");
    assert_eq!(said(&mut member, &mut pair), ["3", "4"]);
}

#[test]
fn a_stop_in_good_order_gives_the_group_back_what_was_in_flight_to_any_member() {
    let mut disk = Disk::new();
    let (mut pair, mut lasting, mut passing) = two_members(&mut disk);
    publish(&mut pair, 1..=4);
    assert_eq!((said(&mut lasting, &mut pair).len(), said(&mut passing, &mut pair).len()), (2, 2));
    pair.stop().expect("a sound disk");
    let mut pair = disk.kill(pair);
    let (mut lasting, _) = present(&mut pair, "lasting");
    assert_eq!(said(&mut lasting, &mut pair), ["1", "2", "3", "4"]);
}

#[test]
fn a_group_without_a_lasting_member_costs_no_disk_and_goes_there_with_what_waits_when_one_joins() {
    let mut disk = Disk::new();
    let mut pair = disk.start(START);
    let (mut passing, _) = Client::with(&mut pair, "passing", true, &[0x21, 0, 1]); // one in flight
    passing.subscribe(&mut pair, GROUP, 1);
    publish(&mut pair, 1..=2);
    pair.advance(10 * S);
    assert_eq!(files_of_groups(&disk), 0);
    let (mut lasting, _) = Client::with(&mut pair, "lasting", true, KEPT);
    lasting.send(&mut pair, &[0xe0, 0]);
    let (mut lasting, _) = Client::with(&mut pair, "lasting", false, &[0x11, 0, 0, 0, 60, 0x21, 0, 1]);
    lasting.subscribe(&mut pair, GROUP, 1);
    pair.advance(10 * S);
    let mut pair = disk.kill(pair);
    let (mut lasting, _) = present(&mut pair, "lasting");
    assert_eq!(said(&mut lasting, &mut pair), ["2"]);
    invariant::check(&pair.engine, pair.now);
}

#[test]
fn the_files_of_a_group_go_with_its_last_lasting_member() {
    let mut disk = Disk::new();
    let mut pair = disk.start(START);
    let (mut member, _) = Client::with(&mut pair, "member", true, KEPT);
    member.subscribe(&mut pair, GROUP, 1);
    pair.close(member.key);
    publish(&mut pair, 1..=1);
    assert_eq!(files_of_groups(&disk), 1);
    let (mut member, _) = present(&mut pair, "member");
    member.send(&mut pair, &packet(0xa2, &[&[0, 7, 0][..], &text(GROUP)].concat()));
    pair.advance(10 * S);
    assert_eq!(files_of_groups(&disk), 0);
    member.subscribe(&mut pair, GROUP, 1);
    pair.close(member.key);
    publish(&mut pair, 2..=2);
    let mut pair = disk.kill(pair);
    pair.advance(61 * S); // its session ends
    assert_eq!(files_of_groups(&disk), 0);
    assert!(pair.engine.mqtt.groups.is_empty());
}

#[test]
fn files_of_a_group_that_nobody_is_in_any_more_are_removed_at_the_start() {
    let mut disk = Disk::new();
    let (mut pair, mut lasting, _) = two_members(&mut disk);
    publish(&mut pair, 1..=2);
    lasting.send(&mut pair, &packet(0xa2, &[&[0, 7, 0][..], &text(GROUP)].concat()));
    let mut pair = disk.kill(pair);
    pair.engine.forget_left_groups();
    pair.advance(10 * S);
    assert_eq!(files_of_groups(&disk), 0);
}

#[test]
fn qos_0_goes_to_a_member_that_is_there_without_the_disk_and_waits_on_it_behind_others() {
    let mut disk = Disk::new();
    let mut pair = disk.start(START);
    let (mut member, _) = Client::with(&mut pair, "member", true, KEPT);
    member.subscribe(&mut pair, GROUP, 1);
    let mut sensor = Client::new(&mut pair, "loose");
    sensor.send(&mut pair, &publish_5("a/b", 0, 0, "first"));
    assert_eq!(said(&mut member, &mut pair), ["first"]);
    assert_eq!(files_of_groups(&disk), 0);
    pair.close(member.key);
    publish(&mut pair, 1..=1);
    sensor.send(&mut pair, &publish_5("a/b", 0, 0, "last"));
    let mut pair = disk.kill(pair);
    let (mut member, _) = present(&mut pair, "member");
    assert_eq!(said(&mut member, &mut pair), ["1", "last"]);
}
