//! Topology-aware consumption: near consumers first, none kept waiting for them, counted by nearness.

use super::pair::{Pair, identify, ok};
use crate::config::Config;
use crate::keys::ConnKey;

fn pair(topology_aware: bool) -> Pair {
    let (topology_region, topology_zone) = ("r1".into(), "z1".into());
    Pair::with(Config { topology_region, topology_zone, topology_aware, ..Config::default() })
}

/// A subscriber that says where it is and has room for `ready` messages.
fn subscribe_from(pair: &mut Pair, region: &str, zone: &str, ready: u32) -> ConnKey {
    let key = pair.connect();
    let place = format!(r#"{{"topology_region":"{region}","topology_zone":"{zone}"}}"#);
    assert_eq!(pair.ask(key, identify(&place)), [ok()]);
    assert_eq!(pair.ask(key, "SUB t c\n"), [ok()]);
    pair.send(key, format!("RDY {ready}\n"));
    pair.turn();
    key
}

fn publish(pair: &mut Pair, count: usize) {
    for number in 0..count {
        assert_eq!(pair.publish("t", &number.to_string()), ok());
    }
}

fn counts(pair: &mut Pair) -> [u64; 3] {
    let channel = pair.channel();
    ["zone_local_msg_count", "region_local_msg_count", "global_msg_count"]
        .map(|name| channel[name].as_u64().expect("a count"))
}

#[test]
fn the_zone_comes_first_then_the_region_then_anybody() {
    let mut pair = pair(true);
    let far = subscribe_from(&mut pair, "r9", "z9", 5);
    let region = subscribe_from(&mut pair, "r1", "z2", 5);
    let zone = subscribe_from(&mut pair, "r1", "z1", 5);
    publish(&mut pair, 15);
    assert_eq!(pair.bodies(zone), ["0", "1", "2", "3", "4"]);
    assert_eq!(pair.bodies(region), ["5", "6", "7", "8", "9"]);
    assert_eq!(pair.bodies(far), ["10", "11", "12", "13", "14"]);
    assert_eq!(counts(&mut pair), [5, 5, 5]);
}

#[test]
fn the_zone_counts_whatever_the_region_and_those_of_one_zone_take_turns() {
    let mut pair = pair(true);
    let far = subscribe_from(&mut pair, "", "", 5);
    let one = subscribe_from(&mut pair, "r9", "z1", 5);
    let other = subscribe_from(&mut pair, "r1", "z1", 5);
    publish(&mut pair, 4);
    assert_eq!((pair.bodies(one), pair.bodies(other)), (vec!["0".into(), "2".into()], vec!["1".into(), "3".into()]));
    assert_eq!(pair.bodies(far), [""; 0]);
}

#[test]
fn a_near_consumer_without_room_keeps_nobody_waiting() {
    let mut pair = pair(true);
    let near = subscribe_from(&mut pair, "r1", "z1", 0);
    let far = subscribe_from(&mut pair, "", "", 1);
    publish(&mut pair, 1);
    assert_eq!((pair.bodies(near).len(), pair.bodies(far)), (0, vec!["0".into()]));
}

#[test]
fn a_broker_that_does_not_say_where_it_is_is_near_to_nobody() {
    let mut pair = Pair::with(Config { topology_aware: true, ..Config::default() });
    subscribe_from(&mut pair, "", "", 1);
    publish(&mut pair, 1);
    assert_eq!(counts(&mut pair), [0, 0, 1]);
}

#[test]
fn without_the_experiment_nearness_changes_nothing() {
    let mut pair = pair(false);
    let far = subscribe_from(&mut pair, "", "", 5);
    let zone = subscribe_from(&mut pair, "r1", "z1", 5);
    publish(&mut pair, 4);
    assert_eq!((pair.bodies(far).len(), pair.bodies(zone).len()), (2, 2));
    assert_eq!(counts(&mut pair), [0, 0, 0]);
}
