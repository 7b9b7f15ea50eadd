//! A share that ends by itself: what its bucket may let go, and when.

use super::pair::*;
use crate::event::Event;
use crate::queueing::topic::Limit;
use crate::time::Nanos;

const LEASE: Nanos = 5 * S;

/// 1,000 msg/s, a burst of one, for `LEASE` from now on.
fn leased(pair: &Pair, version: u64) -> Limit {
    Limit { expires: pair.now + LEASE, ..limit(1_000, 1, version) }
}

fn lapsed(pair: &mut Pair) -> Vec<usize> {
    let told = pair.engine.poll_events().into_iter();
    told.filter_map(|event| if let Event::Lapsed { waiting, .. } = event { Some(waiting) } else { None }).collect()
}

fn due(pair: &Pair) -> Vec<Nanos> {
    pair.trace("t").due_ns.chunks(8).map(|word| Nanos::from_le_bytes(word.try_into().expect("8 bytes"))).collect()
}

#[test]
fn a_share_lets_go_what_is_due_before_its_end_and_nothing_from_then_on() {
    let mut pair = Pair::new();
    let consumer = pair.subscribe("t", "c", 100);
    let publisher = pair.connect();
    let limit = leased(&pair, 1);
    pair.limit("t", limit);
    pair.advance(LEASE - 10);
    pair.ask(publisher, mpub("t", &["in time", "too late"]));
    assert_eq!(pair.bodies(consumer), ["in time"]);
    pair.advance(10 * S);
    assert_eq!(pair.bodies(consumer), [""; 0]);
    assert_eq!(lapsed(&mut pair), [1]);
    let bucket = &pair.topic()["bucket"];
    assert_eq!(
        (bucket["rate_micro"].as_u64(), bucket["burst_micro"].as_u64(), bucket["fill"].as_f64()),
        (Some(0), Some(0), Some(0.0))
    );
    assert_eq!((bucket["lapses"].as_u64(), bucket["backlog"].as_u64()), (Some(1), Some(1)));
}

#[test]
fn an_engine_that_was_stopped_past_the_end_lets_nothing_go_not_even_what_was_due_before() {
    let mut pair = Pair::new();
    let consumer = pair.subscribe("t", "c", 100);
    let publisher = pair.connect();
    let limit = leased(&pair, 1);
    pair.limit("t", limit);
    pair.ask(publisher, mpub("t", &["0", "1", "2"])); // due in the next milliseconds
    pair.stall(LEASE);
    let earlier = pair.now - S; // has lain in the kernel
    pair.send_at(publisher, pub_("t", "3"), earlier);
    pair.turn();
    assert_eq!(pair.bodies(consumer), [""; 0]);
    assert_eq!(pair.topic()["bucket"]["backlog"], 4);
}

#[test]
fn the_time_for_which_the_host_is_suspended_counts() {
    let mut pair = Pair::new();
    let consumer = pair.subscribe("t", "c", 100);
    let publisher = pair.connect();
    let limit = leased(&pair, 1);
    pair.limit("t", limit);
    pair.advance(S);
    pair.engine.clock.set_suspended(LEASE - S);
    pair.ask(publisher, pub_("t", "0"));
    assert_eq!(pair.bodies(consumer), [""; 0]);
    assert_eq!(pair.topic()["bucket"]["lease_left_ns"], 0);
}

#[test]
fn a_renewed_share_goes_on_as_if_nothing_had_been() {
    let mut pair = Pair::new();
    let consumer = pair.subscribe("t", "c", 100);
    let publisher = pair.connect();
    let limit = leased(&pair, 7);
    pair.limit("t", limit);
    pair.advance(LEASE - S);
    let (now, until) = (pair.now, pair.now + LEASE);
    pair.engine.renew_leases(&[("t".into(), 6, until + S), ("t".into(), 7, until), ("other".into(), 7, until)], now);
    pair.advance(LEASE - 1);
    pair.ask(publisher, pub_("t", "0"));
    assert_eq!(pair.bodies(consumer), ["0"]); // the token had come in the meantime
    pair.advance(1);
    assert_eq!(pair.topic()["bucket"]["lease_left_ns"], 0);
}

#[test]
fn a_share_renewed_after_its_end_begins_empty() {
    let mut pair = Pair::new();
    let consumer = pair.subscribe("t", "c", 100);
    let publisher = pair.connect();
    let limit = leased(&pair, 1);
    pair.limit("t", Limit { burst_micro: 5_000_000, full: true, ..limit });
    pair.advance(2 * LEASE);
    pair.ask(publisher, mpub("t", &["0", "1"]));
    let now = pair.now;
    pair.engine.renew_leases(&[("t".into(), 1, now - 1)], now); // of an answer that was long under way
    pair.advance(S);
    assert_eq!(pair.bodies(consumer), [""; 0]);
    let now = pair.now;
    pair.engine.renew_leases(&[("t".into(), 1, now + LEASE)], now);
    pair.advance(S);
    assert_eq!(pair.bodies(consumer), ["0", "1"]);
    assert_eq!(due(&pair), [now + MS, now + 2 * MS]);
    assert_eq!(lapsed(&mut pair), [0]);
}

#[test]
fn a_share_whose_word_came_after_its_end_lets_nothing_go() {
    let mut pair = Pair::new();
    let consumer = pair.subscribe("t", "c", 100);
    let publisher = pair.connect();
    let expires = pair.now;
    pair.limit("t", Limit { expires, full: true, ..limit(1_000, 5, 1) });
    pair.ask(publisher, pub_("t", "0"));
    assert_eq!(pair.bodies(consumer), [""; 0]);
}

#[test]
fn a_lease_that_ended_refuses_under_reject() {
    let mut pair = Pair::new();
    let publisher = pair.connect();
    let limit = leased(&pair, 1);
    pair.limit("t", Limit { reject: true, full: true, ..limit });
    pair.advance(LEASE);
    assert_eq!(pair.ask(publisher, pub_("t", "0")), [error("E_RATE_LIMITED PUB retry after 1000 ms")]);
}
