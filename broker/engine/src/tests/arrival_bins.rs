//! Histories of a whole engine: who counts, in which bin, and what waits at the edges.

use super::pair::*;
use crate::event::Event;
use crate::keys::ConnKey;
use crate::telemetry::arrival_bins::{BIN_NS, SLOT_NS, open_at};

/// The columns of "t" from bin 0 on, up to now.
fn columns(pair: &mut Pair) -> serde_json::Value {
    pair.advance(10 * MS); // stamps may be a little older than their turn
    let now = pair.now;
    let found = pair.engine.histories(&["t".into(), "nowhere".into()], 0, open_at(now), now);
    serde_json::to_value(found).expect("JSON")[0].clone()
}

/// A column of whole numbers from bin `first` on.
fn column(pair: &mut Pair, name: &str, first: i64) -> Vec<i64> {
    let columns = columns(pair);
    let from = (first - columns["first"].as_i64().expect("a number")) as usize;
    columns[name].as_array().expect("a column")[from..].iter().filter_map(serde_json::Value::as_i64).collect()
}

/// What asks for bins asks for changes, too.
fn columns_now(pair: &mut Pair) {
    pair.engine.histories(&["t".into()], 0, open_at(pair.now), pair.now);
}

/// At the beginning of the next bin.
fn at_an_edge(pair: &mut Pair) -> i64 {
    let number = pair.now.div_euclid(BIN_NS) + 1;
    pair.advance(number * BIN_NS - pair.now);
    number
}

#[test]
fn what_waits_at_the_edge_of_a_bin_is_exact_although_nothing_happens_there() {
    let mut pair = Pair::new();
    pair.limit("t", limit(100, 5, 1)); // a token every 10 ms
    pair.advance(S);
    let publisher = pair.connect();
    let first = at_an_edge(&mut pair);
    pair.advance(5 * MS);
    let bodies = ["x"; 30];
    pair.ask(publisher, mpub("t", &bodies)); // 5 go, 25 wait; the first of these goes 10 ms later
    pair.advance(4 * BIN_NS);
    let columns = columns(&mut pair);
    let from = (first - columns["first"].as_i64().expect("a number")) as usize;
    let tail = |name: &str| columns[name].as_array().expect("a column")[from..].to_vec();
    assert_eq!(tail("arrivals"), [30, 0, 0, 0]);
    assert_eq!(tail("waiting"), [0, 16, 6, 0]);
    let unfinished: Vec<f64> = tail("unfinished").iter().filter_map(serde_json::Value::as_f64).collect();
    assert_eq!(unfinished, [30.0, 20.5, 10.5, 0.5]);
    assert_eq!(columns["version"], 1);
}

#[test]
fn the_delay_of_a_bin_is_what_those_that_came_in_it_wait() {
    let mut pair = Pair::new();
    pair.limit("t", limit(100, 5, 1)); // a token every 10 ms
    pair.advance(S);
    let publisher = pair.connect();
    let first = at_an_edge(&mut pair);
    pair.ask(publisher, mpub("t", &["x"; 8])); // 5 go, the others wait 10, 20 and 30 ms
    pair.advance(BIN_NS);
    pair.ask(publisher, pub_("t", "x"));
    pair.ask(publisher, mpub("t", &["x"; 4])); // of the 5 that the bucket keeps none is left
    pair.ask(publisher, pub_("t", "x"));
    pair.advance(BIN_NS);
    assert_eq!(column(&mut pair, "delay_ns", first), [60 * MS, 10 * MS]);
    let trace = pair.trace("t");
    let instants = |bytes: &[u8]| -> i64 {
        bytes.chunks(8).map(|word| i64::from_le_bytes(word.try_into().expect("8 bytes"))).sum()
    };
    assert_eq!(instants(&trace.due_ns) - instants(&trace.arrival_ns), 70 * MS, "every message is in one bin");
}

#[test]
fn of_what_is_refused_and_of_what_comes_under_a_share_of_nothing_no_delay_is_counted() {
    let mut pair = Pair::new();
    pair.limit("t", crate::queueing::topic::Limit { reject: true, full: true, ..limit(1, 1, 1) });
    let publisher = pair.connect();
    let first = at_an_edge(&mut pair);
    pair.ask(publisher, pub_("t", "x"));
    pair.ask(publisher, pub_("t", "x"));
    pair.advance(BIN_NS);
    pair.limit("t", limit(0, 0, 2));
    pair.ask(publisher, pub_("t", "x"));
    pair.advance(BIN_NS);
    assert_eq!(column(&mut pair, "delay_ns", first), [0, 0]);
}

#[test]
fn the_supply_of_a_bin_is_the_rate_in_force_at_its_end() {
    let mut pair = Pair::new();
    pair.limit("t", limit(100, 5, 1));
    let publisher = pair.connect();
    let first = at_an_edge(&mut pair);
    for rate in [100, 300, 200] {
        pair.ask(publisher, pub_("t", "x"));
        pair.advance(BIN_NS / 2);
        pair.limit("t", limit(rate, 5, 1));
        pair.advance(BIN_NS / 2);
    }
    pair.ask(publisher, pub_("t", "x"));
    let boot_now = pair.now; // nothing was suspended
    pair.limit("t", crate::queueing::topic::Limit { expires: boot_now + BIN_NS / 4, ..limit(200, 5, 1) });
    pair.advance(BIN_NS);
    let supply = columns(&mut pair)["supply"].clone();
    let since = |number: i64| {
        supply
            .as_array()
            .expect("pairs")
            .iter()
            .rfind(|pair| pair[0].as_i64() <= Some(number))
            .map(|pair| pair[1].clone())
    };
    assert_eq!([0, 1, 2, 3].map(|number| since(first + number).expect("known")), [100.0, 300.0, 200.0, 0.0]);
}

#[test]
fn the_largest_work_is_that_behind_the_last_message_of_a_publish_whatever_waits_then() {
    for count in [1, 2, 200] {
        let mut pair = Pair::new();
        pair.limit("t", limit(1, 5, 1));
        pair.advance(5 * S);
        let publisher = pair.connect();
        let first = at_an_edge(&mut pair);
        pair.ask(publisher, mpub("t", &vec!["x"; count]));
        pair.advance(BIN_NS);
        let columns = columns(&mut pair);
        let from = (first - columns["first"].as_i64().expect("a number")) as usize;
        assert_eq!(columns["unfinished"][from], count as f64);
        assert_eq!(pair.snapshot()["topics"][0]["bucket"]["largest_backlog"], count as f64);
    }
}

#[test]
fn refused_messages_are_arrivals_too() {
    let mut pair = Pair::new();
    pair.limit("t", crate::queueing::topic::Limit { reject: true, full: true, ..limit(1, 2, 1) });
    let publisher = pair.connect();
    at_an_edge(&mut pair);
    for _ in 0..3 {
        pair.ask(publisher, pub_("t", "x"));
    }
    pair.advance(BIN_NS);
    let arrivals = columns(&mut pair)["arrivals"].as_array().expect("a column").clone();
    assert_eq!(arrivals.iter().filter_map(serde_json::Value::as_u64).sum::<u64>(), 3);
}

#[test]
fn a_change_of_the_rate_is_told_at_once_while_histories_are_asked_for() {
    let mut pair = Pair::new();
    pair.limit("t", limit(1_000, 5, 3));
    let publisher = pair.connect();
    let mut told = Vec::new();
    for (slots, bodies) in [(60, 2), (3, 60)] {
        for slot in 0..slots {
            if slot % 5 == 0 {
                columns_now(&mut pair);
            }
            pair.ask(publisher, mpub("t", &vec!["x"; bodies]));
            pair.advance(SLOT_NS);
        }
        told.push(
            pair.engine
                .poll_events()
                .into_iter()
                .filter(|event| matches!(event, Event::RateChanged { .. }))
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(told[0], []);
    let [Event::RateChanged { topic, version, span_ns, arrivals, waiting, .. }] = &told[1][..] else {
        panic!("{told:?}")
    };
    assert_eq!((topic.as_str(), *version, *span_ns, *arrivals), ("t", 3, SLOT_NS, 60));
    assert!(*waiting > 60, "{waiting}");
}

/// Rates that the engine says a topic has moved to, as messages a slot.
fn moved(pair: &mut Pair, name: &str) -> Vec<u64> {
    let events = pair.engine.poll_events();
    let told = events.into_iter().filter_map(|event| match event {
        Event::RateChanged { topic, span_ns, arrivals, .. } if topic == name => {
            Some(arrivals / (span_ns / SLOT_NS) as u64)
        }
        _ => None,
    });
    told.collect()
}

#[test]
fn in_watched_topics_changes_show_without_any_question_and_so_does_the_end_of_their_traffic() {
    let mut pair = Pair::new();
    for number in 0..600 {
        pair.limit(&format!("other-{number}"), limit(10, 5, 1));
    }
    pair.limit("t", crate::queueing::topic::Limit { full: true, ..limit(100_000, 1_000, 1) });
    let publisher = pair.connect();
    let names =
        (0..600).map(|number| format!("other-{number}")).chain(["t".to_owned(), "nowhere".to_owned()]).collect();
    pair.engine.watch(names, &[], pair.now);
    for _ in 0..200 {
        pair.ask(publisher, mpub("t", &["x"; 4]));
        pair.advance(SLOT_NS);
    }
    assert!(moved(&mut pair, "t").is_empty());
    for _ in 0..3 {
        pair.ask(publisher, mpub("t", &["x"; 60]));
        pair.advance(SLOT_NS);
    }
    assert_eq!(moved(&mut pair, "t"), [60]);
    for _ in 0..100 {
        pair.ask(publisher, mpub("t", &["x"; 60]));
        pair.advance(SLOT_NS);
    }
    assert!(moved(&mut pair, "t").is_empty());
    for _ in 0..50 {
        pair.advance(SLOT_NS);
    }
    assert_eq!(moved(&mut pair, "t"), [0], "one round takes less than half a second");
}

#[test]
fn in_a_topic_that_is_watched_no_longer_nobody_looks_for_changes() {
    let mut pair = Pair::new();
    pair.limit("t", crate::queueing::topic::Limit { full: true, ..limit(100_000, 1_000, 1) });
    let publisher = pair.connect();
    pair.engine.watch(vec!["t".into()], &[], pair.now);
    for _ in 0..100 {
        pair.ask(publisher, mpub("t", &["x"; 4]));
        pair.advance(SLOT_NS);
    }
    pair.engine.watch(Vec::new(), &["t".into()], pair.now);
    pair.advance(2 * S);
    for _ in 0..5 {
        pair.ask(publisher, mpub("t", &["x"; 60]));
        pair.advance(SLOT_NS);
    }
    assert!(moved(&mut pair, "t").is_empty());
}

/// A topic that is watched, and to which a message has come in every so many slots for a minute.
fn at_rest(pair: &mut Pair, limit: crate::queueing::topic::Limit, apart: i64) -> ConnKey {
    pair.engine.watch(vec!["t".into()], &[], pair.now); // before it is there
    pair.limit("t", limit);
    let publisher = pair.connect();
    for _ in 0..3_000 / apart {
        pair.ask(publisher, pub_("t", "x"));
        pair.advance(apart * SLOT_NS);
    }
    assert!(said(pair).is_empty());
    publisher
}

/// What the engine has told of topics that it watches: whether each is that the rate has changed.
fn said(pair: &mut Pair) -> Vec<bool> {
    let told = pair.engine.poll_events().into_iter().filter_map(|event| match event {
        Event::RateChanged { .. } => Some(true),
        Event::Unsteady { .. } => Some(false),
        _ => None,
    });
    told.collect()
}

#[test]
fn a_queue_that_stands_in_a_topic_that_is_watched_is_told_of_although_its_traffic_is_steady() {
    let mut pair = Pair::new();
    let publisher = at_rest(&mut pair, crate::queueing::topic::Limit { full: true, ..limit(20, 5, 1) }, 5);
    pair.limit("t", limit(9, 5, 2));
    for _ in 0..200 {
        pair.ask(publisher, pub_("t", "x"));
        pair.advance(BIN_NS);
    }
    let said = said(&mut pair);
    assert!(!said.is_empty() && said.iter().all(|is_change| !is_change), "{said:?}");
}

#[test]
fn the_first_message_that_waits_in_a_topic_that_is_watched_is_told_of_at_once_and_only_once() {
    let mut pair = Pair::new();
    let publisher = at_rest(&mut pair, crate::queueing::topic::Limit { full: true, ..limit(100, 5, 1) }, 5);
    pair.ask(publisher, mpub("t", &["x"; 5]));
    assert!(said(&mut pair).is_empty(), "there was a token for each");
    pair.ask(publisher, mpub("t", &["x"; 5]));
    assert_eq!(said(&mut pair), [false]);
    pair.ask(publisher, mpub("t", &["x"; 5]));
    assert!(said(&mut pair).is_empty(), "it is watched no longer");
    pair.engine.watch(Vec::new(), &["t".into()], pair.now);
    pair.engine.watch(vec!["t".into()], &[], pair.now);
    pair.ask(publisher, pub_("t", "x"));
    assert_eq!(said(&mut pair), [false], "it is watched anew");
}

#[test]
fn the_end_of_traffic_in_a_topic_that_is_watched_shows_as_soon_as_silence_says_so() {
    for (apart, bins) in [(1, 7), (2, 12), (5, 30)] {
        let mut pair = Pair::new();
        at_rest(&mut pair, crate::queueing::topic::Limit { full: true, ..limit(100_000, 1_000, 1) }, apart);
        pair.advance(bins * BIN_NS);
        assert_eq!(moved(&mut pair, "t"), [0], "a message in {apart} slots");
    }
}

#[test]
fn a_topic_that_is_deleted_and_made_anew_is_still_watched() {
    let mut pair = Pair::new();
    let unlimited = crate::queueing::topic::Limit { full: true, ..limit(100_000, 1_000, 1) };
    at_rest(&mut pair, unlimited, 1);
    pair.engine.delete_topic("t");
    at_rest(&mut pair, unlimited, 1);
    pair.advance(S);
    assert_eq!(moved(&mut pair, "t"), [0]);
}

#[test]
fn under_a_share_of_nothing_all_that_came_waits() {
    let mut pair = Pair::new();
    pair.limit("t", limit(0, 0, 1));
    pair.publish("t", "a");
    pair.advance(3 * BIN_NS);
    let columns = columns(&mut pair);
    let waiting = columns["waiting"].as_array().expect("a column").clone();
    assert_eq!(
        (waiting.last(), columns["unfinished"].as_array().and_then(|all| all.last())),
        (Some(&1.into()), Some(&1.0.into()))
    );
}

#[test]
fn a_topic_to_which_nothing_was_is_left_out() {
    let mut pair = Pair::new();
    pair.limit("t", crate::queueing::topic::Limit { full: true, ..limit(100, 5, 1) });
    pair.advance(S);
    assert!(columns(&mut pair).is_null());
}
