//! `$SYS`: what is told, to whom, and what that must not disturb.

use crate::config::Config;
use crate::harness::pair::{Pair, S};
use crate::tests::mqtt::client::Client;

fn pair() -> Pair {
    let mut pair = Pair::with(Config { mqtt_address: "127.0.0.1:1883".into(), ..Config::default() });
    pair.turn();
    pair
}

#[test]
fn values_are_retained_and_told_again_every_10_s() {
    let mut pair = pair();
    let mut client = Client::new(&mut pair, "client");
    client.subscribe(&mut pair, "$SYS/broker/clients/#", 0);
    assert_eq!(client.messages(&mut pair).len(), 4);
    pair.advance(10 * S);
    let told = client.messages(&mut pair);
    assert!(told.contains(&("$SYS/broker/clients/connected".into(), "1".into())), "{told:?}");
    client.subscribe(&mut pair, "$SYS/broker/uptime", 0);
    assert_eq!(client.messages(&mut pair)[0].1, "10 seconds");
}

#[test]
fn who_subscribes_to_everything_is_not_told_and_no_topic_counts_it() {
    let mut pair = pair();
    let mut client = Client::new(&mut pair, "client");
    client.subscribe(&mut pair, "#", 0);
    pair.advance(30 * S);
    assert!(client.messages(&mut pair).is_empty());
    assert!(pair.engine.topics.is_empty());
}
