//! Beside messages connections come in and go a few at a time; where there are none, as fast as turns are.

use super::pair::*;
use crate::time::Nanos;

const FLOW: Nanos = 10 * MS;

/// With a message on its way at this moment.
fn flowing() -> Pair {
    let mut pair = Pair::new();
    let publisher = pair.connect();
    assert_eq!(pair.ask(publisher, pub_("t", "x")), [ok()]);
    pair
}

/// As the reactor lets in those that wait; gives how many came.
fn let_in(pair: &mut Pair) -> usize {
    let now = pair.now;
    let come = |pair: &mut Pair| pair.engine.admit("192.0.2.1:1").is_ok();
    assert!(come(pair), "one at least");
    1 + (1..100).take_while(|_| !pair.engine.has_enough_newcomers(now) && come(pair)).count()
}

#[test]
fn beside_messages_fewer_come_in_a_turn_and_others_rest_behind_them_for_twice_as_long_as_they_take() {
    let mut pair = flowing();
    assert_eq!(let_in(&mut pair), 2);
    assert_eq!(pair.engine.newcomers_rest_until(pair.now), Some(pair.now + 153_600));
    pair.turn();
    assert_eq!(pair.engine.newcomers_rest_until(pair.now), None, "none came in this turn");
    assert!(pair.engine.admit("192.0.2.1:1").is_ok());
    assert_eq!(pair.engine.newcomers_rest_until(pair.now), Some(pair.now + 76_800));
}

#[test]
fn where_no_message_is_on_its_way_nobody_rests() {
    let mut quiet = Pair::new();
    assert_eq!(let_in(&mut quiet), 4);
    assert_eq!(quiet.engine.newcomers_rest_until(quiet.now), None);

    let mut over = flowing();
    let last = over.now;
    assert!(over.engine.newcomers_rest_until(last).is_none(), "who publishes came before its message");
    over.advance(FLOW - 1);
    assert_eq!(let_in(&mut over), 2);
    over.turn();
    over.advance(1);
    assert_eq!(let_in(&mut over), 4);
    assert_eq!(over.engine.newcomers_rest_until(over.now), None);
}

#[test]
fn a_message_that_is_only_delivered_is_on_its_way_too() {
    let mut pair = flowing();
    pair.advance(FLOW);
    assert!(pair.engine.closes(pair.now) > 4);
    pair.subscribe("t", "c", 1);
    assert_eq!(pair.engine.closes(pair.now), 4);
}
