//! A consumer's credit says whether its answers may wait.

use crate::config::Config;
use crate::engine::Engine;
use crate::keys::ConnKey;
use crate::scheduling::deferred_reads::Credit;

fn consumer(ready: u32) -> (Engine, ConnKey, ConnKey) {
    let mut engine = Engine::new(Config::default());
    let (publisher, consumer) = (engine.handle_accept("192.0.2.1:1", 0), engine.handle_accept("192.0.2.1:2", 0));
    engine.handle_bytes(publisher, b"  V2", 0, 0);
    engine.handle_bytes(consumer, format!("  V2SUB t c\nRDY {ready}\n").as_bytes(), 0, 0);
    engine.answer_turn(0);
    engine.deliver_turn(0);
    (engine, publisher, consumer)
}

fn publish(engine: &mut Engine, key: ConnKey) {
    engine.handle_bytes(key, b"PUB t\n\0\0\0\x01x", 0, 0);
    engine.answer_turn(0);
    engine.deliver_turn(0);
}

#[test]
fn the_more_of_its_credit_is_used_the_sooner_a_consumer_is_read() {
    let (mut engine, publisher, consumer) = consumer(4);
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(engine.credit(consumer));
        publish(&mut engine, publisher);
    }
    assert_eq!(seen, [Some(Credit::Plenty), Some(Credit::Enough), Some(Credit::Scarce)]);
    assert_eq!(engine.credit(publisher), None);
}

#[test]
fn one_message_at_a_time_leaves_no_credit_to_spare() {
    let (mut engine, publisher, consumer) = consumer(1);
    publish(&mut engine, publisher);
    assert_eq!(engine.credit(consumer), Some(Credit::Scarce));
}

#[test]
fn a_consumer_that_publishes_too_is_read_at_once() {
    let (mut engine, _, consumer) = consumer(2_500);
    assert_eq!(engine.credit(consumer), Some(Credit::Plenty));
    publish(&mut engine, consumer);
    assert_eq!(engine.credit(consumer), Some(Credit::Scarce));
}
