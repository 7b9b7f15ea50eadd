//! Law: whatever an auth server answers, the connection is granted something or told that it failed, and nothing is
//! published that no rule covers.

use crate::config::Config;
use crate::event::Event;
use crate::harness::pair::{Pair, pub_};
use crate::harness::source::Source;

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    let topic = ["t", "orders.eu", "x#ephemeral"][source.below(3)];
    let ahead_ns = (source.number() >> 16) as i64; // up to three days, within any sane ttl and beyond it
    let again = source.flag();
    let answer = source.rest();
    let mut pair = Pair::with(Config { auth_servers: true, ..Config::default() });
    let key = pair.connect();
    pair.send(key, b"AUTH\n\0\0\0\x06secret");
    pair.send(key, pub_(topic, "before the answer"));
    let granted = authorize(&mut pair, answer);
    assert!(granted || pair.engine.conns.get(key).is_none_or(|conn| !conn.reads()), "a refused client is still heard");
    pair.stall(ahead_ns);
    pair.send(key, pub_(topic, "later"));
    if again {
        authorize(&mut pair, answer);
    }
    pair.send(key, format!("SUB {topic} c\n"));
    pair.turn();
    if !granted {
        assert!(pair.engine.topics.is_empty(), "published without a grant");
    }
    pair.close(key);
    pair.engine.delete_topic(topic);
    assert_eq!(pair.engine.memory_used(), 0);
}

/// Give the answer to whoever waits for one; whether it was taken.
fn authorize(pair: &mut Pair, answer: &[u8]) -> bool {
    let mut taken = true;
    for event in pair.engine.poll_events() {
        if let Event::AuthAsked { connection, .. } = event {
            taken &= pair.engine.set_authorization(connection, Some(answer), pair.now).is_ok();
        }
    }
    pair.turn();
    taken
}
