//! What waits in a topic goes on to its channels in portions: nobody waits for thousands, and what is published
//! meanwhile comes behind them.

use super::pair::*;
use crate::config::Config;
use crate::harness::memory_store::MemoryStore;
use crate::keys::ConnKey;
use crate::queueing::topic::Limit;
use crate::scheduling::work_budget::TURN_UNITS;

const COUNT: usize = 10_000;

/// Publish so many numbered messages to "t".
fn fill(pair: &mut Pair, count: usize) {
    let key = pair.connect();
    let bodies: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    for bodies in bodies.chunks(100) {
        let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
        assert_eq!(pair.ask(key, mpub("t", &bodies)), [ok()]);
    }
}

fn depth(pair: &Pair) -> usize {
    pair.engine.topics[pair.engine.topic_names["t"]].queue.len()
}

/// Turn by turn until the topic is empty, with a word of somebody else in each; gives the depths.
fn depths(pair: &mut Pair, calm: ConnKey) -> Vec<usize> {
    let mut depths = vec![depth(pair)];
    while depths.last().is_some_and(|left| *left > 0) {
        assert_eq!(pair.ask(calm, pub_("calm", "x")), [ok()]);
        depths.push(depth(pair));
        assert!(depths.len() < 100, "{depths:?}");
    }
    depths
}

/// All that came, in order.
fn drained(pair: &mut Pair, consumer: ConnKey) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let messages = pair.messages(consumer);
        if messages.is_empty() {
            return all;
        }
        for message in messages {
            pair.send(consumer, format!("FIN {}\n", message.id));
            all.push(message.body);
        }
        pair.advance(0);
    }
}

fn assert_in_order(all: &[String]) {
    let expected: Vec<String> = (0..COUNT).map(|number| number.to_string()).chain(["last".to_owned()]).collect();
    assert!(all == expected, "{} came, the last {:?}", all.len(), all.last());
}

#[test]
fn a_first_channel_gets_its_backlog_over_several_turns_and_in_order() {
    let mut pair = Pair::new();
    let (publisher, calm) = (pair.connect(), pair.connect());
    fill(&mut pair, COUNT);
    let consumer = pair.connect();
    assert_eq!(pair.ask(consumer, "SUB t c\n"), [ok()]);
    assert!((1..COUNT).contains(&depth(&pair)), "{}", depth(&pair));
    assert_eq!(pair.ask(publisher, pub_("t", "last")), [ok()]);
    let depths = depths(&mut pair, calm);
    assert!(depths.windows(2).all(|two| two[0] - two[1] <= TURN_UNITS as usize), "{depths:?}");
    pair.send(consumer, "RDY 2500\n");
    pair.advance(0);
    assert_in_order(&drained(&mut pair, consumer));
}

#[test]
fn a_backlog_is_gone_in_the_end_however_much_is_published_meanwhile() {
    let mut pair = Pair::new();
    let publishers: Vec<ConnKey> = (0..200).map(|_| pair.connect()).collect();
    fill(&mut pair, COUNT);
    pair.engine.create_channel("t", "c", pair.now);
    let mut before = usize::MAX;
    while depth(&pair) > 0 {
        assert!(depth(&pair) < before, "{} after {before}", depth(&pair));
        before = depth(&pair);
        for key in &publishers {
            pair.send(*key, pub_("t", "x").repeat(16));
        }
        pair.turn();
    }
}

#[test]
fn a_channel_that_is_made_while_the_backlog_moves_gets_the_rest_of_it_too() {
    let mut pair = Pair::new();
    fill(&mut pair, COUNT);
    let now = pair.now;
    pair.engine.create_channel("t", "a", now);
    pair.engine.create_channel("t", "b", now);
    pair.advance(0);
    let topic = pair.topic();
    let depths: Vec<u64> =
        topic["channels"].as_array().expect("a list").iter().filter_map(|channel| channel["depth"].as_u64()).collect();
    assert_eq!(depths[0], COUNT as u64);
    assert!((1..COUNT as u64).contains(&depths[1]), "{depths:?}");
}

#[test]
fn what_waited_for_tokens_goes_on_in_portions_when_its_bucket_is_removed() {
    let mut pair = Pair::new();
    let (publisher, calm, consumer) = (pair.connect(), pair.connect(), pair.subscribe("t", "c", 2_500));
    pair.limit("t", Limit { max_backlog: 1 << 20, max_backlog_bytes: 1 << 30, ..limit(0, 0, 1) });
    fill(&mut pair, COUNT);
    let now = pair.now;
    assert!(pair.engine.clear_bucket("t", now));
    assert!((1..COUNT).contains(&depth(&pair)), "{}", depth(&pair));
    assert_eq!(pair.ask(publisher, pub_("t", "last")), [ok()]);
    assert!(depths(&mut pair, calm).len() > 5);
    assert_eq!(pair.engine.topics[pair.engine.topic_names["t"]].counters.released, 1 + COUNT as u64);
    assert_in_order(&drained(&mut pair, consumer));
}

/// An engine that does not accept yet, in which `COUNT` messages have waited for tokens since an earlier incarnation;
/// and its disk.
fn restored() -> (Pair, MemoryStore) {
    let store = MemoryStore::default();
    let mut pair = Pair::on_disk(Config::default(), &store, 1, START);
    pair.limit("t", starved());
    fill(&mut pair, COUNT);
    pair.engine.save().expect("a sound disk");
    (restarted(&store, 2), store)
}

fn restarted(store: &MemoryStore, incarnation: u64) -> Pair {
    let config = Config { accepting: false, ..Config::default() };
    let mut pair = Pair::on_disk(config, &store.after_kill(), incarnation, START);
    let now = pair.now;
    pair.engine.release_topic("t", now);
    pair
}

fn starved() -> Limit {
    Limit { max_backlog: 1 << 20, max_backlog_bytes: 1 << 30, ..limit(0, 0, 1) }
}

/// How many of those that were restored are not decided.
fn undecided(pair: &Pair) -> usize {
    pair.engine.topics[pair.engine.topic_names["t"]].restored.len()
}

#[test]
fn what_waited_for_tokens_of_an_earlier_incarnation_goes_on_in_portions_too() {
    let (mut pair, _) = restored();
    let (publisher, calm, consumer) = (pair.connect(), pair.connect(), pair.subscribe("t", "c", 2_500));
    let now = pair.now;
    pair.engine.set_accepting(true, "", now);
    assert!((1..COUNT).contains(&depth(&pair)), "{}", depth(&pair));
    assert_eq!(pair.ask(publisher, pub_("t", "last")), [ok()]);
    assert!(depths(&mut pair, calm).len() > 5);
    assert_in_order(&drained(&mut pair, consumer));
}

#[test]
fn what_waits_for_tokens_again_is_decided_in_portions_and_passes_in_order() {
    let (mut pair, _) = restored();
    let consumer = pair.subscribe("t", "c", 2_500);
    pair.limit("t", Limit { full: true, ..limit(1_000_000, 3 * COUNT as u64, 1) });
    let mut left = vec![undecided(&pair)];
    while left.last().is_some_and(|count| *count > 0) {
        pair.turn();
        left.push(undecided(&pair));
    }
    assert!(left.len() > 5 && left.windows(2).all(|two| two[0] - two[1] <= TURN_UNITS as usize), "{left:?}");
    pair.engine.set_accepting(true, "", pair.now);
    assert_eq!(pair.publish("t", "last"), ok());
    assert_in_order(&drained(&mut pair, consumer));
}

/// A consumer, and a broker that accepts publishes while some of what was restored is not decided yet.
fn partly_decided() -> (Pair, ConnKey) {
    let (mut pair, _) = restored();
    let consumer = pair.subscribe("t", "c", 2_500);
    pair.limit("t", starved());
    pair.engine.set_accepting(true, "", pair.now);
    assert!(undecided(&pair) > 0);
    (pair, consumer)
}

#[test]
fn what_comes_before_all_is_decided_again_is_decided_behind_it() {
    let (mut pair, consumer) = partly_decided();
    assert_eq!(pair.publish("t", "last"), ok());
    assert_eq!(undecided(&pair), 0);
    pair.limit("t", Limit { version: 2, ..limit(1_000_000, 3 * COUNT as u64, 1) });
    pair.advance(S);
    assert_in_order(&drained(&mut pair, consumer));
}

#[test]
fn a_bucket_that_is_removed_before_all_is_decided_again_lets_go_the_rest_too() {
    let (mut pair, consumer) = partly_decided();
    assert!(pair.engine.clear_bucket("t", pair.now));
    assert_eq!(pair.publish("t", "last"), ok());
    assert_in_order(&drained(&mut pair, consumer));
}

#[test]
fn a_stop_before_all_is_decided_again_keeps_it_in_order() {
    let (mut pair, store) = restored();
    pair.limit("t", starved());
    assert!(undecided(&pair) > 0);
    pair.engine.save().expect("a sound disk");
    let mut pair = restarted(&store, 3);
    let consumer = pair.subscribe("t", "c", 2_500);
    pair.engine.set_accepting(true, "", pair.now);
    assert_eq!(pair.publish("t", "last"), ok());
    assert_in_order(&drained(&mut pair, consumer));
}
