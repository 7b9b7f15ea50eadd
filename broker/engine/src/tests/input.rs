//! A connection that waits for an answer from Python, and what it sends meanwhile.

use super::pair::*;
use crate::arrival::stamps::Stamps;
use crate::clients::pending_input::WaitFor;
use crate::config::Config;

fn deferred(pair: &mut Pair) -> crate::keys::ConnKey {
    let key = pair.connect();
    pair.turn();
    pair.engine.defer(key, WaitFor::Python);
    key
}

fn resume(pair: &mut Pair, key: crate::keys::ConnKey) -> Vec<Frame> {
    assert!(pair.engine.resume(key, pair.now));
    pair.turn();
    pair.take(key)
}

#[test]
fn what_comes_while_a_connection_waits_runs_in_order_once_it_is_resumed() {
    let mut pair = Pair::new();
    let consumer = pair.subscribe("t", "c", 10);
    let key = deferred(&mut pair);
    assert_eq!(pair.ask(key, [pub_("t", "a"), pub_("t", "b")].concat()), []);
    let third = pub_("t", "c");
    assert_eq!(pair.ask(key, &third[..7]), []);
    assert_eq!(pair.bodies(consumer), [""; 0]);
    assert_eq!(resume(&mut pair, key), [ok(), ok()]);
    assert_eq!(pair.ask(key, &third[7..]), [ok()], "the unfinished command is as it was");
    assert_eq!(pair.bodies(consumer), ["a", "b", "c"]);
}

#[test]
fn what_was_kept_counts_as_of_its_own_arrival() {
    let mut pair = Pair::new();
    pair.limit("t", limit(1_000, 5, 1));
    let key = deferred(&mut pair);
    let arrivals = [pair.now + MS, pair.now + 2 * MS];
    for at in arrivals {
        pair.send_at(key, pub_("t", "x"), at);
    }
    pair.stall(S);
    assert_eq!(resume(&mut pair, key), [ok(), ok()]);
    let trace = pair.trace("t");
    let stamps: Vec<i64> =
        trace.arrival_ns.chunks(8).map(|at| i64::from_le_bytes(at.try_into().expect("8 bytes"))).collect();
    assert_eq!(stamps, arrivals);
}

#[test]
fn others_go_on_while_one_waits() {
    let mut pair = Pair::new();
    let key = deferred(&mut pair);
    pair.send(key, pub_("t", "late"));
    assert_eq!(pair.publish("t", "x"), ok());
}

#[test]
fn heartbeats_go_on_and_silence_counts_from_the_resumption() {
    let mut pair = Pair::new();
    let key = pair.connect();
    pair.ask(key, identify(r#"{"heartbeat_interval":1000}"#));
    pair.engine.defer(key, WaitFor::Python);
    pair.advance(10 * S);
    assert_eq!(pair.take(key), vec![response("_heartbeat_"); 10]);
    assert!(!pair.closed.contains(&key));
    resume(&mut pair, key);
    pair.advance(2 * S - 1);
    assert!(!pair.closed.contains(&key));
    pair.advance(1);
    assert!(pair.closed.contains(&key));
}

#[test]
fn a_stream_that_ends_while_it_waits_ends_once_all_it_sent_is_answered() {
    let mut pair = Pair::new();
    let key = deferred(&mut pair);
    pair.send(key, pub_("t", "x"));
    pair.engine.handle_eof(key);
    pair.turn();
    assert!(!pair.closed.contains(&key));
    assert_eq!(resume(&mut pair, key), [ok()]);
    assert!(pair.closed.contains(&key));
}

#[test]
fn deferring_twice_changes_nothing_and_one_resumption_ends_it() {
    let mut pair = Pair::new();
    let key = deferred(&mut pair);
    pair.send(key, pub_("t", "x"));
    pair.send(key, pub_("t", "y"));
    pair.engine.defer(key, WaitFor::Python);
    assert_eq!(resume(&mut pair, key), [ok(), ok()]);
    assert!(!pair.engine.resume(key, pair.now), "it does not wait any more");
}

#[test]
fn what_is_kept_is_bounded_and_charged() {
    let mut pair = Pair::with(Config { max_memory_bytes: 1 << 20, ..Config::default() });
    let key = deferred(&mut pair);
    pair.send(key, [b'x'; 60_000]);
    assert!(pair.engine.wants_input(key));
    pair.send(key, [b'x'; 10_000]);
    assert!(!pair.engine.wants_input(key), "the kernel keeps the rest");
    assert!(pair.engine.limits.unfinished.used() >= 70_000);
    let many = deferred(&mut pair);
    let reads = (0..1_000).take_while(|_| {
        pair.send(many, "N");
        pair.engine.wants_input(many)
    });
    assert_eq!(reads.count(), 255);
    pair.close(key);
    pair.close(many);
    assert_eq!(pair.engine.limits.unfinished.used(), 0);
}

#[test]
fn the_room_of_a_large_command_goes_with_it() {
    let (large, mut pair) = (pub_("t", &"x".repeat(1_000_000)), Pair::new());
    let (key, deferred) = (pair.connect(), deferred(&mut pair));
    for sender in [key, deferred] {
        pair.send(sender, &large[..200_000]);
        pair.send(sender, [&large[200_000..], b"N"].concat());
    }
    pair.turn();
    resume(&mut pair, deferred);
    pair.advance(0);
    for sender in [key, deferred] {
        let input = &pair.engine.conns.get(sender).expect("it is open").input;
        assert_eq!(input, b"N");
        assert!(input.capacity() <= 64 << 10, "{} bytes kept for one", input.capacity());
    }
    assert_eq!(pair.ask(key, "OP\n"), [ok()], "and the command goes on");
}

#[test]
fn a_command_that_came_in_more_packets_than_a_share_has_units_runs_at_its_resumption() {
    let mut pair = Pair::new();
    pair.limit("t", limit(1_000, 5, 1));
    let key = deferred(&mut pair);
    let command = pub_("t", &"x".repeat(2_000));
    pair.stall(S);
    let spans: Vec<_> = (1..=command.len()).map(|end| (end, pair.now)).collect();
    pair.engine.handle_bytes(key, &command, Stamps::exact(&spans).expect("spans"), pair.now);
    assert_eq!(resume(&mut pair, key), [ok()]);
    assert!(!pair.engine.is_waiting(key));
}
