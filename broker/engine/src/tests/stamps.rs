//! Stamps of reads: whose arrival a command takes, and what publishes that share one lose.

use super::pair::*;
use crate::arrival::stamps::{Sharing, Stamps};
use crate::clients::pending_input::WaitFor;
use crate::time::Nanos;

fn sharing(pair: &Pair) -> (u64, u64, Nanos) {
    let Sharing { reads, merged, bias_max } = pair.engine.counters.sharing;
    (reads, merged, bias_max)
}

#[test]
fn a_read_that_ends_with_its_only_publish_has_no_bias() {
    let mut pair = Pair::new();
    let key = pair.connect();
    let (stamp, since) = (pair.now, pair.now - S);
    pair.engine.handle_bytes(key, &pub_("t", "a"), Stamps::shared(stamp, since), stamp);
    let half = pub_("t", "b");
    pair.engine.handle_bytes(key, &half[..5], Stamps::shared(stamp, since), stamp);
    pair.engine.handle_bytes(key, &half[5..], Stamps::shared(stamp, since), stamp);
    assert_eq!(sharing(&pair), (2, 0, 0));
}

#[test]
fn publishes_that_share_a_stamp_are_counted_with_the_largest_bound_of_its_bias() {
    let mut pair = Pair::new();
    let key = pair.connect();
    for (later, age) in [("b", 3 * MS), ("c", MS)] {
        let bytes = [pub_("t", "a"), pub_("t", later)].concat();
        pair.engine.handle_bytes(key, &bytes, Stamps::shared(pair.now, pair.now - age), pair.now);
    }
    assert_eq!(sharing(&pair), (2, 2, 3 * MS));
    let topic = pair.topic();
    assert!(topic["bucket"].is_null());
    let snapshot = pair.snapshot();
    let shown = ["timestamp_bias_max_ns", "publish_reads", "merged_reads"]
        .map(|field| snapshot[field].as_i64().expect("a number"));
    assert_eq!(shown, [3 * MS, 2, 2]);
}

#[test]
fn a_publish_in_front_of_anything_else_shares_its_stamp() {
    for behind in [&b"NOP\n"[..], b"PU"] {
        let mut pair = Pair::new();
        let key = pair.connect();
        let bytes = [&pub_("t", "a"), behind].concat();
        pair.engine.handle_bytes(key, &bytes, Stamps::shared(pair.now, pair.now - MS), pair.now);
        assert_eq!(sharing(&pair), (1, 1, MS));
    }
}

#[test]
fn a_read_without_publishes_is_not_counted() {
    let mut pair = Pair::new();
    let key = pair.connect();
    pair.engine.handle_bytes(key, b"NOP\nNOP\n", Stamps::shared(pair.now, pair.now - MS), pair.now);
    assert_eq!(sharing(&pair), (0, 0, 0));
}

#[test]
fn a_topic_is_shown_as_before_whatever_stamps_others_share() {
    let mut pair = Pair::new();
    pair.limit("t", limit(1_000, 5, 1));
    let before = pair.topic();
    let key = pair.connect();
    let both = [pub_("u", "a"), pub_("u", "b")].concat();
    pair.engine.handle_bytes(key, &both, Stamps::shared(pair.now, pair.now - MS), pair.now);
    assert_eq!(sharing(&pair), (1, 1, MS));
    assert_eq!(pair.topic(), before);
}

fn arrivals(pair: &Pair) -> Vec<Nanos> {
    let trace = pair.trace("t");
    trace.arrival_ns.chunks(8).map(|at| Nanos::from_le_bytes(at.try_into().expect("8 bytes"))).collect()
}

#[test]
fn each_command_takes_the_arrival_of_its_own_last_byte() {
    let mut pair = Pair::new();
    pair.limit("t", limit(1_000, 5, 1));
    let key = pair.connect();
    pair.stall(S); // the limit's own instant is not later than what follows
    let (now, one) = (pair.now, pub_("t", "a").len());
    let bytes = [pub_("t", "a"), pub_("t", "b"), pub_("t", "c")].concat();
    let spans = [(one, now - 4 * MS), (2 * one - 1, now - 3 * MS), (2 * one + 1, now - 2 * MS), (3 * one, now - MS)];
    pair.engine.handle_bytes(key, &bytes, Stamps::exact(&spans).expect("spans"), now);
    pair.turn();
    assert_eq!(arrivals(&pair), [now - 4 * MS, now - 2 * MS, now - MS]);
    assert_eq!(sharing(&pair), (1, 0, 0));
}

#[test]
fn the_rest_of_a_command_counts_from_the_read_that_brings_it() {
    let mut pair = Pair::new();
    pair.limit("t", limit(1_000, 5, 1));
    let key = pair.connect();
    pair.stall(S); // the limit's own instant is not later than what follows
    let (now, one) = (pair.now, pub_("t", "a").len());
    let bytes = [pub_("t", "a"), pub_("t", "b")].concat();
    pair.send_at(key, &bytes[..7], now - 9 * MS);
    let spans = [(one - 7, now - 2 * MS), (2 * one - 7, now - MS)];
    pair.engine.handle_bytes(key, &bytes[7..], Stamps::exact(&spans).expect("spans"), now);
    pair.turn();
    assert_eq!(arrivals(&pair), [now - 2 * MS, now - MS]);
}

#[test]
fn spans_are_kept_while_a_connection_waits() {
    let mut pair = Pair::new();
    pair.limit("t", limit(1_000, 5, 1));
    let key = pair.connect();
    pair.turn();
    pair.engine.defer(key, WaitFor::Python);
    pair.stall(S); // the limit's own instant is not later than what follows
    let (now, one) = (pair.now, pub_("t", "a").len());
    let bytes = [pub_("t", "a"), pub_("t", "b"), pub_("t", "c")].concat();
    pair.send_at(key, &bytes[..3], now - 9 * MS);
    let spans = [(one - 3, now - 3 * MS), (2 * one - 3, now - 2 * MS), (3 * one - 3, now - MS)];
    pair.engine.handle_bytes(key, &bytes[3..], Stamps::exact(&spans).expect("spans"), now);
    assert!(pair.engine.resume(key, now));
    pair.turn();
    assert_eq!(arrivals(&pair), [now - 3 * MS, now - 2 * MS, now - MS]);
}
