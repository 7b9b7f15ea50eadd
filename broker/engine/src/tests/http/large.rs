//! Large messages by HTTP to a topic with a bucket: nobody waits while a megabyte is copied.

use super::*;
use crate::scheduling::work_budget::{COPIED_A_UNIT, TURN_UNITS};

const MEGABYTE: usize = 1_000_000;

/// A body that is not alike anywhere.
fn large() -> String {
    (0..MEGABYTE / 8).map(|at| format!("{at:08}")).collect()
}

fn roomy() -> Limit {
    Limit { max_backlog_bytes: 1 << 30, ..limit(1_000_000, 1_000_000, 1) }
}

/// What a consumer of "h" gets of one message, and how much of it was built before its last tenth came.
fn built_of(pair: &mut Pair, key: ConnKey, request: &str) -> (usize, Vec<(u16, String)>) {
    let parts: Vec<&[u8]> = request.as_bytes().chunks(request.len().div_ceil(10)).collect();
    for part in &parts[..9] {
        assert_eq!(ask(pair, key, part), []);
    }
    let built = pair.engine.conns[key].building.as_ref().map_or(0, |building| building.done());
    (built, ask(pair, key, parts[9]))
}

#[test]
fn one_whose_length_is_said_is_built_as_it_comes_in_and_goes_in_the_turn_in_which_it_is_whole() {
    let mut pair = Pair::new();
    pair.limit("h", roomy());
    let (key, consumer) = (pair.connect_http(), pair.subscribe("h", "c", 10));
    for _ in 0..2 {
        let (built, answers) = built_of(&mut pair, key, &post("/pub?topic=h", &large()));
        assert!(built >= 9 * MEGABYTE / 10 - 200, "{built} bytes");
        assert_eq!(answers, [(200, "OK".into())]);
        assert_eq!(pair.engine.memory.partial.used(), 0);
        pair.advance(2 * MS);
        let messages = pair.messages(consumer);
        assert!(messages.len() == 1 && messages[0].body == large());
        pair.send(consumer, format!("FIN {}\n", messages[0].id));
    }
}

#[test]
fn nothing_is_begun_for_one_that_would_not_be_taken_or_has_no_bucket() {
    let config = Config { http_token: "secret".into(), max_msg_size: MEGABYTE as u32, ..Config::default() };
    let authorized =
        |target: &str, body: &str| post(target, body).replacen("Host: x", "Host: x\r\nAuthorization: Bearer secret", 1);
    let requests = [
        (401, post("/pub?topic=h", &large())),
        (405, authorized("/pub?topic=h", &large()).replacen("POST", "PUT", 1)),
        (400, authorized("/pub?topic=!", &large())),
        (400, authorized("/pub", &large())),
        (200, authorized("/pub?topic=free", &large())),
        (200, authorized("/mpub?topic=h", &large())),
    ];
    for (status, request) in requests {
        let mut pair = Pair::with(config.clone());
        pair.limit("h", roomy());
        let key = pair.connect_http();
        let (built, mut answers) = built_of(&mut pair, key, &request);
        pair.advance(0);
        answers.extend(taken(&mut pair, key));
        assert_eq!((built, answers[0].0), (0, status), "{}", &request[..60]);
        assert_eq!(pair.engine.memory.partial.used(), 0);
    }
}

#[test]
fn what_was_begun_of_one_that_is_refused_when_it_is_whole_is_given_up() {
    let mut pair = Pair::new();
    pair.limit("h", roomy());
    let (key, consumer) = (pair.connect_http(), pair.subscribe("h", "c", 10));
    let (built, answers) = built_of(&mut pair, key, &post("/pub?topic=h&defer=never", &large()));
    assert_eq!((built > 0, answers), (true, vec![refused(400, "INVALID_DEFER")]));
    assert_eq!(pair.engine.memory.partial.used(), 0);
    let other = large().replace('1', "2");
    assert_eq!(ask(&mut pair, key, post("/pub?topic=h", &other)), [(200, "OK".into())]);
    pair.advance(2 * MS);
    assert!(pair.bodies(consumer) == [other], "as it was sent, and nothing of the one before");
}

#[test]
fn what_was_begun_of_one_whose_client_goes_is_given_up() {
    let mut pair = Pair::new();
    pair.limit("h", roomy());
    let key = pair.connect_http();
    pair.send(key, &post("/pub?topic=h", &large())[..MEGABYTE / 2]);
    assert_eq!(pair.engine.memory.partial.used(), MEGABYTE as u64);
    pair.close(key);
    assert_eq!(pair.engine.memory.partial.used(), 0);
}

#[test]
fn one_that_comes_in_chunks_is_built_in_portions_when_it_is_whole_and_the_others_are_served_between_them() {
    let mut pair = Pair::new();
    pair.limit("h", roomy());
    let calm = pair.connect();
    let (key, consumer) = (pair.connect_http(), pair.subscribe("h", "c", 10));
    let head = "POST /pub?topic=h HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    pair.send(key, format!("{head}{MEGABYTE:x}\r\n{}\r\n0\r\n\r\n", large()));
    let mut turns = 0;
    let answers = loop {
        assert_eq!(pair.ask(calm, pub_("calm", "x")), [ok()]);
        turns += 1;
        let answers = taken(&mut pair, key);
        if !answers.is_empty() {
            break answers;
        }
    };
    assert_eq!(answers, [(200, "OK".into())]);
    assert!(turns > MEGABYTE / (TURN_UNITS as usize * COPIED_A_UNIT), "{turns} turns");
    assert_eq!(pair.engine.memory.partial.used(), 0);
    pair.advance(2 * MS);
    assert!(pair.bodies(consumer) == [large()]);
}
