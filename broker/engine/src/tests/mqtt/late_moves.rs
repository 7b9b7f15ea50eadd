//! Sessions that move while a broker is away, and what that broker has for them: each case of `random_moves` by itself.

use crate::harness::pair::S;
use crate::mqtt::elsewhere::moves::{Arrival, Departure};
use crate::tests::mqtt::client::Client;
use crate::tests::mqtt::linked_brokers::{Cluster, Link, channel};

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

fn say(cluster: &mut Cluster, broker: usize, payload: &str) {
    let mut sensor = Client::new(&mut cluster.brokers[broker], "sensor");
    cluster.say(broker, &mut sensor, payload);
    cluster.brokers[broker].close(sensor.key);
}

/// The client is at the first of so many linked brokers, and has subscribed there; all know it.
fn subscribed(brokers: usize) -> Cluster {
    let (mut cluster, _) = Cluster::subscribed(brokers);
    cluster.carry();
    cluster
}

/// In the end the session is there alone.
fn check_home(cluster: &mut Cluster, broker: usize) {
    cluster.advance(2 * S);
    assert_eq!(cluster.sessions(), [broker]);
    cluster.check();
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

fn departures(cluster: &Cluster, broker: usize) -> impl Iterator<Item = &Departure> {
    cluster.brokers[broker].engine.mqtt.moves.departures.values()
}

fn arrivals(cluster: &Cluster, broker: usize) -> impl Iterator<Item = &Arrival> {
    cluster.brokers[broker].engine.mqtt.moves.arrivals.values()
}

/// Carries what is under way from and to these brokers until something is so.
fn carry_until(cluster: &mut Cluster, ways: &[[usize; 2]], is_so: impl Fn(&Cluster) -> bool) {
    for _ in 0..100 {
        if is_so(cluster) {
            return;
        }
        ways.iter().for_each(|[from, to]| carry_from(cluster, *from, *to));
    }
    panic!("it is never so");
}

/// What brokers say of sessions, and no message.
fn carry_words(cluster: &mut Cluster, from: usize, to: usize) {
    let words = cluster.links.iter().position(|link| (link.from, link.to) == (from, to));
    words.into_iter().for_each(|link| _ = cluster.carry_one(link));
}

/// Clocks go on: who comes now comes later.
fn tick(cluster: &mut Cluster) {
    cluster.brokers.iter_mut().for_each(|broker| broker.advance(1));
}

#[test]
fn a_session_that_comes_back_still_collects_what_it_was_left_to_collect() {
    let mut cluster = subscribed(3);
    say(&mut cluster, B, "1");
    carry_from(&mut cluster, B, C); // which wants nothing of it: only the first broker is to have it
    cluster.cut(B);
    come(&mut cluster, C); // what the second broker has is left to the first
    let mut client = come(&mut cluster, A); // before it could collect that
    cluster.join(B);
    assert_eq!(cluster.said(A, &mut client), ["1"]);
    check_home(&mut cluster, A);
}

#[test]
fn what_a_session_left_out_for_it_was_sent_comes_still_when_it_goes_back_there() {
    let mut cluster = subscribed(3);
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
    check_home(&mut cluster, A);
}

#[test]
fn of_a_session_that_came_back_the_time_counts_when_its_client_did() {
    let mut cluster = subscribed(3);
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
    check_home(&mut cluster, A);
}

#[test]
fn subscriptions_that_come_late_are_on_disk_before_their_old_home_forgets_them() {
    let mut cluster = subscribed(2);
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
    let mut cluster = subscribed(3);
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
    check_home(&mut cluster, B);
}

#[test]
fn what_comes_in_one_read_with_the_answer_that_lets_a_client_in_is_heard_behind_its_connect() {
    let mut cluster = subscribed(3);
    cluster.cut(B);
    come(&mut cluster, C); // what the second broker has is left to the first
    cluster.join(B);
    cluster.kill(C);
    carry_from(&mut cluster, B, A); // the second broker can ask the first one, and no other
    tick(&mut cluster);
    cluster.begin(B, false);
    let goes_on = |cluster: &Cluster| departures(cluster, A).any(|one| *one.epoch.channel == *channel(B));
    carry_until(&mut cluster, &[[B, A]], goes_on);
    carry_in_one_read(&mut cluster, A, B); // it has no session any more, and all that comes late is there
    cluster.join(C);
    check_home(&mut cluster, B);
}

#[test]
fn a_session_that_was_sent_twice_is_forgotten_though_that_is_answered_once() {
    let mut cluster = subscribed(3);
    say(&mut cluster, A, "0");
    cluster.advance(20 * S);
    cluster.begin(B, false);
    cluster.cut(A); // with the word on its way that the client is at the second broker, which finds none
    cluster.advance(20 * S);
    cluster.begin(C, false);
    carry_until(&mut cluster, &[[B, C], [C, B]], |cluster| departures(cluster, B).any(|one| one.is_told.is_some()));
    cluster.join(A);
    (0..10).for_each(|_| [[A, B], [B, A]].into_iter().for_each(|[from, to]| carry_from(&mut cluster, from, to)));
    carry_in_one_read(&mut cluster, B, C); // that all was sent, the older one of the first broker, and that again
    let mut client = come(&mut cluster, C);
    say(&mut cluster, B, "1");
    assert_eq!(cluster.said(C, &mut client), ["0", "1"], "it has the older one's subscription");
    check_home(&mut cluster, C);
}

#[test]
fn what_came_late_is_not_lost_with_the_broker_that_it_was_sent_to() {
    let mut cluster = subscribed(3);
    say(&mut cluster, B, "1");
    carry_from(&mut cluster, B, C); // which wants nothing of it: only the first broker is to have it
    cluster.cut(B);
    come(&mut cluster, C); // what the second broker has is left to the first
    cluster.join(B);
    for [from, to] in [[A, B], [B, A], [B, C], [C, B]] {
        carry_words(&mut cluster, from, to);
    }
    tick(&mut cluster);
    cluster.begin(B, false); // which waits for the session, of the third broker
    (0..10).for_each(|_| carry_words(&mut cluster, B, A));
    (0..10).for_each(|_| [[B, A], [A, B]].into_iter().for_each(|[from, to]| carry_from(&mut cluster, from, to)));
    cluster.kill(B); // it had heard of the message, and had no session for it yet
    let mut client = come(&mut cluster, C);
    cluster.join(B);
    assert_eq!(cluster.said(C, &mut client), ["1"]);
    check_home(&mut cluster, C);
}

/// The client has come back from the second broker to the first one, which has an older session of it on disk, and is
/// killed when it has all. Carries what is then under way in this order.
fn kill_with_all(order: &[[usize; 2]]) {
    let mut cluster = subscribed(3);
    cluster.cut(C); // the first broker keeps what it gives up, to collect what that one has
    come(&mut cluster, B);
    say(&mut cluster, B, "1");
    cluster.advance(20 * S);
    cluster.begin(A, false);
    carry_until(&mut cluster, &[[B, A], [A, B]], |cluster| departures(cluster, B).any(|one| one.is_told.is_some()));
    assert!(arrivals(&cluster, A).any(|one| !one.is_open && one.in_flight.len() + one.owed.len() > 0));
    cluster.kill(A);
    cluster.join(A);
    for [from, to] in order {
        (0..10).for_each(|_| carry_from(&mut cluster, *from, *to));
    }
    let mut client = come(&mut cluster, A);
    cluster.join(C);
    assert!(cluster.said(A, &mut client).contains(&"1".into()), "{order:?}");
    check_home(&mut cluster, A);
}

#[test]
fn a_broker_that_was_killed_does_not_say_that_it_keeps_what_came_before() {
    kill_with_all(&[[B, A]]); // it hears that all was sent, before others can hear it
    kill_with_all(&[[A, B], [B, A]]);
}

#[test]
fn what_is_late_comes_also_where_it_begins_to_come_before_the_session() {
    let mut cluster = subscribed(3);
    cluster.cut(C);
    come(&mut cluster, B); // what the third broker has is left to the first
    cluster.join(C);
    for [from, to] in [[A, C], [C, A], [B, C], [C, B]] {
        carry_words(&mut cluster, from, to);
    }
    tick(&mut cluster);
    let mut client = cluster.begin(C, false); // the second broker has not answered when the first one does
    say(&mut cluster, A, "1");
    carry_until(&mut cluster, &[[C, A], [A, C]], |cluster| arrivals(cluster, C).any(|one| !one.early.is_empty()));
    assert_eq!(cluster.said(C, &mut client), ["1"]);
    check_home(&mut cluster, C);
}

#[test]
fn what_is_late_comes_to_a_client_whose_subscriptions_are_at_a_broker_that_is_away() {
    let mut cluster = subscribed(3);
    cluster.cut(C);
    come(&mut cluster, B); // what the third broker has is left to the first
    cluster.join(C);
    cluster.cut(B);
    let mut client = come(&mut cluster, C); // which finds no session
    say(&mut cluster, A, "1");
    assert_eq!(cluster.said(C, &mut client), ["1"]);
    cluster.join(B);
    check_home(&mut cluster, C);
}
