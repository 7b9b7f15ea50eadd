//! `$SYS`: what is told, to whom, and what that must not disturb.

use crate::config::Config;
use crate::harness::pair::{Pair, S, limit};
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

fn told(client: &mut Client, pair: &mut Pair) -> Vec<(String, String)> {
    let topics = client.messages(pair).into_iter();
    let mut told: Vec<(String, String)> =
        topics.map(|(name, value)| (name.replace("$SYS/srtm/topics/", ""), value)).collect();
    told.sort_unstable();
    told
}

#[test]
fn a_topic_with_a_limit_tells_how_it_is_doing_to_who_has_subscribed_to_it() {
    let mut pair = pair();
    pair.limit("heat", limit(100, 5, 1));
    pair.engine.create_topic("free");
    pair.engine.set_promise("heat", 20_000_000);
    let mut client = Client::new(&mut pair, "client");
    client.subscribe(&mut pair, "$SYS/srtm/topics/+/+", 0);
    assert!(client.messages(&mut pair).is_empty(), "nothing is retained");
    pair.engine.set_verdicts(vec![("heat".into(), "kept".into(), Some(1.5)), ("gone".into(), "broken".into(), None)]);
    let mut sensor = Client::new(&mut pair, "sensor");
    for number in 1..=7 {
        sensor.publish_5(&mut pair, "heat", 1, number, "x");
    }
    pair.advance(10 * S);
    let first = told(&mut client, &mut pair);
    let value = |told: &[(String, String)], figure: &str| {
        told.iter().find(|(name, _)| *name == format!("heat/{figure}")).map(|(_, value)| value.clone())
    };
    for (figure, expected) in [
        ("share", "100.000"),
        ("fill", "5.000"),
        ("delayed", "7"), // the bucket was empty
        ("rejected", "0"),
        ("promise_ms", "20.000"),
        ("promise", "kept"),
        ("latency_ms", "1.500"),
    ] {
        assert_eq!(value(&first, figure).as_deref(), Some(expected), "{figure}");
    }
    assert_eq!(value(&first, "rate"), None, "it is not known since when");
    assert!(first.iter().all(|(name, _)| name.starts_with("heat/")), "{first:?}");
    for number in 1..=20 {
        sensor.publish_5(&mut pair, "heat", 1, number, "x");
    }
    pair.advance(10 * S);
    assert_eq!(value(&told(&mut client, &mut pair), "rate").as_deref(), Some("2.000"));
}

#[test]
fn many_topics_are_told_in_portions_and_only_the_figures_that_are_wanted() {
    let mut pair = pair();
    for number in 0..300 {
        pair.limit(&format!("t{number:03}"), limit(100, 5, 1));
    }
    let mut client = Client::new(&mut pair, "client");
    client.subscribe(&mut pair, "$SYS/srtm/topics/+/share", 0);
    pair.advance(10 * S);
    let mut names: Vec<String> = told(&mut client, &mut pair).into_iter().map(|(name, _)| name).collect();
    for _ in 0..300 {
        pair.turn();
        names.extend(told(&mut client, &mut pair).into_iter().map(|(name, _)| name));
    }
    names.sort_unstable();
    assert_eq!(names, (0..300).map(|number| format!("t{number:03}/share")).collect::<Vec<_>>());
    pair.close(client.key);
    pair.turn();
    pair.advance(10 * S);
    assert!(pair.engine.mqtt.news.due.is_empty(), "nobody wants to hear of them");
}
