//! What a read costs that completes nothing.

use crate::config::Config;
use crate::engine::Engine;
use crate::scheduling::small_reads::LOOK_UNITS;

#[test]
fn only_what_makes_nothing_whole_costs_no_more_than_a_look() {
    let mut engine = Engine::new(Config::default());
    let (nsq, http) = (engine.handle_accept("192.0.2.1:1", 0), engine.handle_accept_http("192.0.2.1:2", 0));
    let reads: [(_, &[u8], _); 10] = [
        (nsq, b" ", true),
        (nsq, b" V2", false),
        (nsq, b"PU", true),
        (nsq, b"B t\n\0\0\0\x01", true),
        (nsq, b"x", false),
        (nsq, b"NOP\n", false),
        (http, b"GET /ping HTTP/1.1\r\nHo", true),
        (http, b"st: h\r\n\r\n", false),
        (http, b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na", true),
        (http, b"bc", false),
    ];
    for (key, bytes, looked) in reads {
        let before = engine.work_so_far();
        engine.handle_bytes(key, bytes, 0, 0);
        assert_eq!(engine.work_so_far() - before <= LOOK_UNITS, looked, "{bytes:?}");
    }
}
