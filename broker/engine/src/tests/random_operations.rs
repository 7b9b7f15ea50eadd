//! Invariant (`harness::invariant`), after every turn of any sequence of bytes, accepts, closes, commands and time
//! jumps. No panic. The fuzzer goes further with the same operations.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::pair::*;
use crate::config::Config;
use crate::harness::operations::{CONNECTIONS, Operation, TOPICS, World};

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let topic = prop::sample::select(&TOPICS[..]);
    prop_oneof![
        (topic.clone(), 1..300usize).prop_map(|(topic, len)| pub_(topic, &"x".repeat(len))),
        (topic.clone(), 1..5usize).prop_map(|(topic, count)| mpub(topic, &vec!["yy"; count])),
        (topic.clone(), 0..5_000u64).prop_map(|(topic, ms)| dpub(topic, ms, "z")),
        (topic, prop_oneof![Just("x"), Just("y#ephemeral")])
            .prop_map(|(t, c)| format!("SUB {t} {c}\nRDY 3\n").into_bytes()),
        (0..10u32).prop_map(|count| format!("RDY {count}\n").into_bytes()),
        Just(identify(r#"{"client_id":"p","msg_timeout":1000,"srtm":{"v":1,"receipts":true}}"#)),
        Just(identify(r#"{"heartbeat_interval":-1,"sample_rate":50}"#)),
        Just(b"NOP\nCLS\n".to_vec()),
        Just(b"FIN 0123456789abcdef\nTOUCH 0123456789abcdef\n".to_vec()),
        Just(b"PUB a\n\0\0\0\x05cut".to_vec()),
        prop::collection::vec(any::<u8>(), 0..30),
    ]
}

fn publish_by_http(topic: usize) -> Operation {
    let topic = TOPICS[topic].replace('#', "%23");
    Operation::Http(format!("POST /pub?topic={topic} HTTP/1.0\r\nContent-Length: 1\r\n\r\nh").into_bytes())
}

fn operation() -> impl Strategy<Value = Operation> {
    let (conn, topic) = (0..CONNECTIONS, 0..TOPICS.len());
    prop_oneof![
        3 => Just(Operation::Accept),
        1 => conn.clone().prop_map(Operation::Close),
        1 => conn.clone().prop_map(Operation::Eof),
        1 => conn.clone().prop_map(Operation::Stick),
        1 => conn.clone().prop_map(Operation::Unstick),
        14 => (conn.clone(), bytes()).prop_map(|(conn, bytes)| Operation::Send(conn, bytes)),
        8 => (conn, 0..4u8).prop_map(|(conn, how)| Operation::Answer(conn, how)),
        4 => prop_oneof![0..10 * MS, S..40 * S].prop_map(Operation::Time),
        2 => (topic.clone(), 0..2_000u64, 1..5u64, any::<bool>()).prop_map(|(topic, rate, burst, reject)| {
            Operation::Share { topic, rate, burst: if rate == 0 { 0 } else { burst }, reject }
        }),
        1 => topic.clone().prop_map(Operation::Clear),
        1 => (topic.clone(), any::<bool>()).prop_map(|(topic, paused)| Operation::Pause(topic, paused)),
        1 => (topic.clone(), any::<bool>()).prop_map(|(topic, paused)| Operation::PauseChannel(topic, paused)),
        1 => topic.clone().prop_map(Operation::Empty),
        1 => topic.clone().prop_map(Operation::Delete),
        1 => topic.clone().prop_map(Operation::DeleteChannel),
        1 => topic.clone().prop_map(Operation::Publishers),
        1 => (topic.clone(), 0..4u64).prop_map(|(topic, burst)| Operation::Contract(topic, burst)),
        1 => topic.prop_map(publish_by_http),
        2 => Just(Operation::Turn),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, rng_seed: RngSeed::Fixed(16), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_operations_keeps_the_invariant(operations in prop::collection::vec((operation(), any::<bool>()), 1..120)) {
        let config = Config { max_memory_bytes: 20_000, max_channel_consumers: 3, ..Config::default() };
        let mut world = World::in_memory(config);
        for (operation, turn) in operations {
            world.apply(operation);
            if turn {
                world.turn();
            }
        }
        world.end();
    }
}
