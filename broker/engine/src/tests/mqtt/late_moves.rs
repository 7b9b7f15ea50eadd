//! Sessions that move while a broker is away, and what that broker has for them: each case of `random_moves` by itself.

use crate::harness::pair::S;
use crate::tests::mqtt::client::Client;
use crate::tests::mqtt::linked_brokers::{Cluster, Link};

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

fn say(cluster: &mut Cluster, broker: usize, payload: &str) {
    let mut sensor = Client::new(&mut cluster.brokers[broker], "sensor");
    cluster.say(broker, &mut sensor, payload);
    cluster.brokers[broker].close(sensor.key);
}

/// The client comes to another broker, late enough to be no one of too many takeovers.
fn come(cluster: &mut Cluster, broker: usize) -> Client {
    cluster.advance(20 * S);
    cluster.connect(broker, false).0
}

fn carry_from(cluster: &mut Cluster, from: usize, to: usize) {
    let links = cluster.links.iter().zip(0..);
    let between: Vec<usize> = links.filter(|(link, _)| (link.from, link.to) == (from, to)).map(|(_, at)| at).collect();
    between.into_iter().for_each(|link| _ = cluster.carry_one(link));
}

/// All that one broker has for another comes in one read.
fn carry_in_one_read(cluster: &mut Cluster, from: usize, to: usize) {
    for Link { at_from, at_to, .. } in cluster.links.iter().filter(|link| (link.from, link.to) == (from, to)) {
        cluster.brokers[to].turn();
        let opening = cluster.brokers[to].take_bytes(*at_to);
        cluster.brokers[from].send(*at_from, opening);
        let mut bytes = Vec::new();
        for _ in 0..10 {
            cluster.brokers[from].turn();
            bytes.extend(cluster.brokers[from].take_bytes(*at_from));
        }
        cluster.brokers[to].send(*at_to, bytes);
        cluster.brokers[to].turn();
    }
}

#[test]
fn a_session_that_comes_back_still_collects_what_it_was_left_to_collect() {
    let (mut cluster, _) = Cluster::subscribed(3);
    cluster.carry();
    say(&mut cluster, B, "1");
    carry_from(&mut cluster, B, C); // which wants nothing of it: only the first broker is to have it
    cluster.cut(B);
    come(&mut cluster, C); // what the second broker has is left to the first
    let mut client = come(&mut cluster, A); // before it could collect that
    cluster.join(B);
    assert_eq!(cluster.said(A, &mut client), ["1"]);
    cluster.advance(S);
    assert_eq!(cluster.sessions(), [A]);
    cluster.check();
}

#[test]
fn what_a_session_left_out_for_it_was_sent_comes_still_when_it_goes_back_there() {
    let (mut cluster, _) = Cluster::subscribed(3);
    cluster.carry();
    cluster.advance(20 * S);
    cluster.begin(B, false);
    say(&mut cluster, C, "1");
    while !cluster.brokers[B].engine.mqtt.moves.arrivals.values().any(|arrival| arrival.flush.is_some()) {
        carry_from(&mut cluster, B, A);
        carry_from(&mut cluster, A, B);
    }
    carry_from(&mut cluster, C, B); // left out there: it comes from the first broker, which has it by its own link
    cluster.cut(C);
    cluster.carry();
    let mut client = come(&mut cluster, A);
    cluster.join(C);
    assert_eq!(cluster.said(A, &mut client), ["1"]);
    cluster.advance(S);
    assert_eq!(cluster.sessions(), [A]);
    cluster.check();
}

#[test]
fn of_a_session_that_came_back_the_time_counts_when_its_client_did() {
    let (mut cluster, _) = Cluster::subscribed(3);
    cluster.carry();
    cluster.cut(C); // the first broker keeps what it gives up, to collect what that one has
    come(&mut cluster, B);
    cluster.advance(20 * S);
    cluster.begin(A, false);
    while !cluster.brokers[B].engine.mqtt.moves.departures.values().any(|one| one.is_told.is_some()) {
        carry_from(&mut cluster, B, A);
        carry_from(&mut cluster, A, B);
    }
    (0..10).for_each(|_| cluster.brokers[B].turn()); // what ends the move is on disk, and not under way yet
    cluster.kill(B); // it comes back with the session, of an earlier time
    cluster.join(B);
    carry_in_one_read(&mut cluster, B, A); // that end, and the earlier time
    let moves = &cluster.brokers[A].engine.mqtt.moves;
    assert!(moves.departures.is_empty(), "it stays: {moves:?}");
    cluster.join(C);
    cluster.advance(S);
    assert_eq!(cluster.sessions(), [A]);
    cluster.check();
}

#[test]
fn subscriptions_that_come_late_are_on_disk_before_their_old_home_forgets_them() {
    let (mut cluster, _) = Cluster::subscribed(2);
    cluster.carry();
    cluster.cut(A);
    come(&mut cluster, B);
    cluster.join(A);
    cluster.advance(S);
    assert_eq!(cluster.sessions(), [B], "the first broker has forgotten it");
    cluster.kill(B);
    cluster.join(B);
    let mut client = come(&mut cluster, B);
    say(&mut cluster, B, "1");
    assert_eq!(cluster.said(B, &mut client), ["1"]);
    cluster.check();
}

#[test]
fn a_session_that_comes_back_has_also_the_subscriptions_of_an_older_one_that_is_found_meanwhile() {
    let (mut cluster, _) = Cluster::subscribed(3);
    cluster.carry();
    cluster.cut(A);
    come(&mut cluster, B); // which finds none
    cluster.begin(C, false);
    while cluster.brokers[B].engine.mqtt.moves.departures.is_empty() {
        carry_from(&mut cluster, C, B);
    }
    let mut client = cluster.begin(B, false);
    cluster.join(A);
    while cluster.brokers[B].engine.mqtt.moves.arrivals.values().all(|arrival| arrival.givers.is_empty()) {
        carry_from(&mut cluster, B, A);
        carry_from(&mut cluster, A, B);
    }
    cluster.carry();
    say(&mut cluster, B, "1");
    assert_eq!(cluster.said(B, &mut client), ["1"]);
    cluster.advance(S);
    assert_eq!(cluster.sessions(), [B]);
    cluster.check();
}
