//! Stamps of reads: whose arrival a command takes, and what publishes that share one lose.

use super::pair::*;
use crate::arrival::{Sharing, Stamps};
use crate::bucket::Nanos;

fn sharing(pair: &Pair) -> (u64, u64, Nanos) {
    let Sharing { reads, merged, bias_max } = pair.engine.sharing;
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
    let shown = ["timestamp_bias_max_ns", "publish_reads", "merged_reads"].map(|field| snapshot[field].as_i64().expect("a number"));
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
fn the_bucket_of_a_topic_shows_the_share_of_merged_reads() {
    let mut pair = Pair::new();
    pair.limit("t", limit(1_000, 5, 1));
    let key = pair.connect();
    let both = [pub_("t", "a"), pub_("t", "b")].concat();
    pair.engine.handle_bytes(key, &both, Stamps::shared(pair.now, pair.now - MS), pair.now);
    pair.send(key, pub_("t", "c"));
    let bucket = &pair.topic()["bucket"];
    assert_eq!((bucket["merged_read_share"].as_f64(), bucket["timestamp_bias_max_ns"].as_i64()), (Some(0.5), Some(MS)));
}
