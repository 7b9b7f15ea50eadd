//! Law: no sequence of operations breaks the invariant, and at the end nothing is left (`harness::operations`).

use crate::config::Config;
use crate::harness::operations::{CONNECTIONS, Operation, TOPICS, World};
use crate::harness::pair::{MS, S, dpub, identify, mpub, pub_};
use crate::harness::source::Source;

/// Longer sequences find nothing that shorter ones do not, later.
const LONGEST: usize = 200;

/// Whatever else connections may say, as the input chooses.
const PHRASES: [&[u8]; 10] = [
    b"RDY 1\n",
    b"RDY 10\n",
    b"RDY 0\n",
    b"CLS\n",
    b"NOP\n",
    b"FIN 0123456789abcdef\nTOUCH 0123456789abcdef\n",
    b"PUB a\n\0\0\0\x05cut",
    b"DPUB a 1\n\0\0",
    b"\0\0\0\x01x",
    b"  V2",
];

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    let choice = source.byte();
    let config = Config {
        max_memory_bytes: if choice & 1 == 0 { 20_000 } else { 1 << 20 },
        max_channel_consumers: 3,
        mem_queue_size: usize::from(choice >> 1 & 3) * 2,
        max_bytes_per_file: 1_000,
        sync_every: 20,
        trace_entries: 64,
        e2e_percentiles: if choice & 8 == 0 { Vec::new() } else { vec![0.5, 1.0] },
        // What is compressed is another target's, and here nobody could read it.
        snappy: false,
        deflate: false,
        ..Config::default()
    };
    let mut world = if choice & 16 == 0 {
        World::in_memory(config)
    } else {
        World::on_disk(config, (choice & 32 != 0).then_some(40))
    };
    for _ in 0..LONGEST {
        if source.is_empty() {
            break;
        }
        let kind = source.byte();
        world.apply(operation(kind & 127, &mut source));
        if kind & 128 == 0 {
            world.turn();
        }
    }
    world.end();
}

fn operation(kind: u8, source: &mut Source<'_>) -> Operation {
    let which = source.byte();
    if kind >= 120 {
        return Operation::Turn;
    }
    let (conn, topic, flag) = (usize::from(which) % CONNECTIONS, usize::from(which) % TOPICS.len(), which & 128 != 0);
    match kind % 40 {
        0..=3 => Operation::Accept,
        4 => Operation::Close(conn),
        5 => Operation::Eof(conn),
        6 => Operation::Stick(conn),
        7 => Operation::Unstick(conn),
        8..=16 => Operation::Send(conn, bytes(source)),
        17..=21 => Operation::Answer(conn, which >> 5 & 3),
        22..=23 => Operation::Time(i64::from(which) * if flag { S / 2 } else { MS }),
        24..=25 => {
            let rate = source.number() >> (which % 64);
            let burst = source.number() % 5;
            let rate = if burst == 0 { 0 } else { rate % 1_000_000_000 };
            Operation::Share { topic, rate, burst, reject: flag }
        }
        26 => Operation::Clear(topic),
        27 => Operation::Pause(topic, flag),
        28 => Operation::PauseChannel(topic, flag),
        29 => Operation::Empty(topic),
        30 => Operation::Delete(topic),
        31 => Operation::DeleteChannel(topic),
        32 => Operation::Publishers(topic),
        33 => Operation::Accepting(flag),
        34 => Operation::Http(request(topic, flag, source)),
        35 if flag => Operation::Watch(which & 1 == 0),
        35 => Operation::Respond,
        36 if flag => Operation::Histories(i64::from(which & 127) * 2),
        36 => Operation::Snapshot,
        37 => Operation::Wall(1_700_000_000 * S + (source.number() >> 20) as i64 - (1 << 43)),
        38 => Operation::Space(flag.then_some(usize::from(which & 127) * 8)),
        _ if flag => Operation::Restart,
        _ => Operation::Kill,
    }
}

fn bytes(source: &mut Source<'_>) -> Vec<u8> {
    let (how, size) = (source.byte(), source.byte());
    let topic = TOPICS[usize::from(how >> 4) % TOPICS.len()];
    match how & 15 {
        0..=2 => pub_(topic, &"x".repeat(1 + usize::from(size))),
        3..=4 => mpub(topic, &vec!["yy"; 1 + usize::from(size) % 40]),
        5 => dpub(topic, u64::from(size) * 20, "z"),
        6..=8 => format!("SUB {topic} {}\nRDY {}\n", if size & 1 == 0 { "x" } else { "y#ephemeral" }, size >> 1 & 7)
            .into_bytes(),
        9 => identify(r#"{"client_id":"p","msg_timeout":1000,"srtm":{"v":1,"receipts":true,"left":true}}"#),
        10 => identify(r#"{"heartbeat_interval":-1,"sample_rate":50,"output_buffer_size":64}"#),
        11 => source.bytes(usize::from(size)).to_vec(),
        _ => PHRASES[usize::from(size) % PHRASES.len()].to_vec(),
    }
}

fn request(topic: usize, raw: bool, source: &mut Source<'_>) -> Vec<u8> {
    let topic = TOPICS[topic].replace('#', "%23");
    let body = source.text();
    let head = match (raw, body.len() % 3) {
        (true, _) => return body.to_vec(),
        (_, 0) => format!("POST /pub?topic={topic} HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len()),
        (_, 1) => format!("POST /mpub?topic={topic} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len()),
        _ => "GET /stats HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
    };
    [head.as_bytes(), body].concat()
}
