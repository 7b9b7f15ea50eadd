//! What is sent to a broker for a shared group that is not there any more.

use crate::harness::pair::S;
use crate::queueing::link_interest::LinkInterest;
use crate::tests::mqtt::client::Client;
use crate::tests::mqtt::linked_brokers::{Cluster, NAMES, channel};

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

const GROUP: &str = "$share/g/n";

/// Tells a broker of the groups that have members at another one, as Python does.
fn tell(cluster: &mut Cluster, broker: usize, other: usize, groups: &[&str]) {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    let interest = LinkInterest { groups, ..LinkInterest::EVERYTHING };
    cluster.brokers[broker].engine.allow_links(NAMES[other], &channel(other), "key", interest);
}

fn say(cluster: &mut Cluster, payload: &str) {
    let mut sensor = Client::new(&mut cluster.brokers[A], "sensor");
    cluster.say(A, &mut sensor, payload);
    cluster.brokers[A].close(sensor.key);
}

/// A group whose only member was at the second broker, as the first one believes still, and is at the third.
fn moved() -> (Cluster, Client) {
    let mut cluster = Cluster::new(3);
    let (mut client, _) = cluster.connect(B, false);
    client.subscribe(&mut cluster.brokers[B], GROUP, 1);
    tell(&mut cluster, A, B, &[GROUP]);
    cluster.advance(20 * S);
    let (client, _) = cluster.connect(C, false);
    cluster.advance(S);
    assert_eq!(cluster.sessions(), [C]);
    tell(&mut cluster, B, C, &[GROUP]);
    (cluster, client)
}

#[test]
fn what_comes_for_a_group_that_has_moved_follows_it() {
    let (mut cluster, mut client) = moved();
    ["1", "2"].into_iter().for_each(|payload| say(&mut cluster, payload));
    assert_eq!(cluster.said(C, &mut client), ["1", "2"]);
    cluster.check();
}

#[test]
fn what_goes_with_the_session_of_its_last_member_is_no_loss_where_it_waited() {
    let mut cluster = Cluster::new(2);
    let (mut client, _) = cluster.connect(A, false);
    client.subscribe(&mut cluster.brokers[A], GROUP, 1);
    cluster.brokers[A].close(client.key);
    ["1", "2"].into_iter().for_each(|payload| say(&mut cluster, payload));
    let (mut client, _) = cluster.connect(B, false);
    cluster.advance(S);
    assert_eq!(cluster.said(B, &mut client), ["1", "2"]);
    assert!(cluster.brokers[A].engine.mqtt.groups.is_empty());
    assert_eq!([A, B].map(|broker| cluster.brokers[broker].engine.mqtt.counters.dropped), [0, 0]);
    cluster.check();
}

#[test]
fn what_follows_a_group_to_a_broker_that_is_away_outlives_the_one_through_which_it_goes() {
    let (mut cluster, mut client) = moved();
    cluster.cut(C);
    say(&mut cluster, "1");
    cluster.carry();
    cluster.kill(B);
    cluster.join(B);
    cluster.join(C);
    assert_eq!(cluster.said(C, &mut client), ["1"]);
    cluster.advance(2 * S);
    cluster.check();
}

#[test]
fn what_comes_for_a_group_that_has_ended_everywhere_is_dropped_and_counted() {
    let mut cluster = Cluster::new(3);
    let mut member = Client::new(&mut cluster.brokers[B], "member");
    member.subscribe(&mut cluster.brokers[B], GROUP, 1);
    tell(&mut cluster, A, B, &[GROUP]);
    cluster.brokers[B].close(member.key); // its session ends, and the group with it
    say(&mut cluster, "1");
    cluster.carry();
    let mqtt = &cluster.brokers[B].engine.mqtt;
    let dropped: Vec<(&str, u64)> = mqtt.tally.all().map(|held| (&*held.topic, held.dropped)).collect();
    assert_eq!((mqtt.counters.dropped, dropped), (1, vec![("default", 1)]));
    cluster.check();
}
