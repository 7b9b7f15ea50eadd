//! Who asks whether what it has published has left is told as soon as it has, and no earlier.

use super::pair::*;
use crate::keys::ConnKey;

const LOOK: i64 = 10 * MS; // a look, and the turns around it

/// A publisher that may ask.
fn asking(pair: &mut Pair) -> ConnKey {
    let key = pair.connect();
    let body = r#"{"client_id":"p","feature_negotiation":true,"srtm":{"v":1,"left":true}}"#;
    let answer = pair.ask(key, identify(body));
    assert!(
        matches!(&answer[..], [Frame::Response(json)] if json.contains(r#""srtm":{"v":1,"left":true}"#)),
        "{answer:?}"
    );
    key
}

fn left(number: u64) -> Vec<Frame> {
    vec![response(&format!("_left_ t {number}"))]
}

/// What it is told once it has asked with `number` and everybody has had the time to look.
fn ask(pair: &mut Pair, key: ConnKey, number: u64) -> Vec<Frame> {
    pair.send(key, format!("LEFT t {number}\n"));
    pair.turn();
    pair.advance(LOOK);
    pair.take(key)
}

fn later(pair: &mut Pair, key: ConnKey) -> Vec<Frame> {
    pair.advance(LOOK);
    pair.take(key)
}

#[test]
fn it_is_told_once_every_consumer_that_takes_messages_has_been_sent_all_of_them() {
    let mut pair = Pair::new();
    let consumers = [pair.subscribe("t", "c", 1), pair.subscribe("t", "d", 10)];
    let key = asking(&mut pair);
    assert_eq!(pair.ask(key, mpub("t", &["a", "b"])), [ok()]);
    assert_eq!(ask(&mut pair, key, 1), [], "one of them waits for the first consumer");
    let id = pair.messages(consumers[0]).remove(0).id;
    pair.ask(consumers[0], format!("FIN {id}\n"));
    assert_eq!(later(&mut pair, key), left(1));
    assert_eq!(later(&mut pair, key), [], "and once");
}

#[test]
fn messages_that_came_after_the_question_are_not_waited_for() {
    let mut pair = Pair::new();
    let consumer = pair.subscribe("t", "c", 1);
    let (key, other) = (asking(&mut pair), pair.connect());
    pair.ask(key, mpub("t", &["a", "b"]));
    assert_eq!(ask(&mut pair, key, 7), []);
    pair.ask(other, mpub("t", &["x", "y"]));
    let id = pair.messages(consumer).remove(0).id;
    pair.ask(consumer, format!("FIN {id}\n"));
    assert_eq!(later(&mut pair, key), left(7), "b is out, x waits");
}

#[cfg(feature = "lab")]
#[test]
fn what_waits_for_its_token_or_for_the_server_has_not_left() {
    let mut pair = Pair::with(crate::config::Config { lab_service_time_ns: 300 * MS as u64, ..Default::default() });
    pair.limit("t", crate::queueing::topic::Limit { full: true, ..limit(10, 1, 1) });
    let consumer = pair.subscribe("t", "c", 10);
    let key = asking(&mut pair);
    assert_eq!(pair.ask(key, mpub("t", &["a", "b"])), [ok()]);
    assert_eq!(ask(&mut pair, key, 1), [], "b has its token after 100 ms");
    pair.advance(590 * MS - 2 * LOOK);
    assert_eq!(
        (pair.bodies(consumer), pair.take(key)),
        (vec!["a".to_owned()], vec![]),
        "the server is done with it after 600"
    );
    pair.advance(2 * LOOK);
    assert_eq!((pair.bodies(consumer), later(&mut pair, key)), (vec!["b".to_owned()], left(1)));
}

#[test]
fn what_a_consumer_does_not_read_has_not_left() {
    let mut pair = Pair::new();
    let consumer = pair.subscribe("t", "c", 10);
    pair.stick(consumer);
    let key = asking(&mut pair);
    pair.ask(key, pub_("t", "a"));
    assert_eq!(ask(&mut pair, key, 1), []);
    pair.unstick(consumer);
    assert_eq!(later(&mut pair, key), left(1));
}

#[test]
fn what_is_paused_is_not_waited_for() {
    let mut pair = Pair::new();
    pair.subscribe("t", "c", 0);
    let key = asking(&mut pair);
    pair.ask(key, pub_("t", "a"));
    assert_eq!(ask(&mut pair, key, 1), [], "the consumer has no credit");
    pair.engine.pause_channel("t", "c", true);
    assert_eq!(later(&mut pair, key), left(1));
}

#[test]
fn what_nobody_takes_is_waited_for_as_long_as_its_consumers_may_be_on_their_way() {
    let mut pair = Pair::new();
    let key = asking(&mut pair);
    pair.ask(key, pub_("t", "a"));
    assert_eq!(ask(&mut pair, key, 1), [], "there is no channel");
    let consumer = pair.subscribe("t", "c", 1);
    assert_eq!((pair.bodies(consumer), later(&mut pair, key)), (vec!["a".to_owned()], left(1)));
    pair.close(consumer);
    pair.ask(key, pub_("t", "b"));
    assert_eq!(ask(&mut pair, key, 2), [], "the channel has no consumer");
    pair.advance(5 * S);
    assert_eq!(pair.take(key), left(2), "and it is abandoned");
    pair.ask(key, pub_("t", "c"));
    assert_eq!(ask(&mut pair, key, 3), left(3), "whatever comes behind");
}

#[test]
fn what_came_back_from_a_consumer_holds_nothing_up() {
    let mut pair = Pair::new();
    let consumer = pair.subscribe("t", "c", 1);
    let key = asking(&mut pair);
    pair.ask(key, pub_("t", "a"));
    let id = pair.messages(consumer).remove(0).id;
    pair.ask(consumer, "RDY 0\n");
    pair.ask(consumer, format!("REQ {id} 0\n"));
    assert_eq!(ask(&mut pair, key, 1), left(1));
}

#[test]
fn another_question_takes_the_place_of_the_one_before_and_one_about_nothing_is_answered_at_once() {
    let mut pair = Pair::new();
    let consumer = pair.subscribe("t", "c", 0);
    let key = asking(&mut pair);
    assert_eq!(pair.ask(key, "LEFT t 1\n"), left(1), "nothing was published");
    pair.ask(key, pub_("t", "a"));
    assert_eq!((ask(&mut pair, key, 2), ask(&mut pair, key, 3)), (vec![], vec![]));
    pair.ask(consumer, "RDY 1\n");
    assert_eq!(later(&mut pair, key), left(3));
}

#[test]
fn who_was_not_granted_it_cannot_ask_and_bad_words_are_refused() {
    let mut pair = Pair::new();
    let plain = pair.connect_aware("p");
    assert_eq!(pair.ask(plain, "LEFT t 1\n"), [error("E_INVALID invalid command LEFT")]);
    for (line, text) in [
        ("LEFT\n", "E_INVALID LEFT insufficient number of parameters"),
        ("LEFT t\n", "E_INVALID LEFT insufficient number of parameters"),
        ("LEFT t x\n", "E_INVALID LEFT could not parse number x"),
        ("LEFT t! 1\n", "E_BAD_TOPIC LEFT topic name \"t!\" is not valid"),
    ] {
        let key = asking(&mut pair);
        assert_eq!(pair.ask(key, line), [error(text)]);
    }
}

#[test]
fn of_a_topic_that_is_deleted_all_has_left_and_a_client_that_is_gone_is_forgotten() {
    let mut pair = Pair::new();
    pair.subscribe("t", "c", 0);
    let (key, gone) = (asking(&mut pair), asking(&mut pair));
    for one in [key, gone] {
        pair.ask(one, pub_("t", "a"));
        pair.ask(one, "LEFT t 1\n");
    }
    pair.close(gone);
    pair.engine.delete_topic("t");
    assert_eq!(later(&mut pair, key), left(1));
    assert_eq!(pair.take(gone), []);
}
