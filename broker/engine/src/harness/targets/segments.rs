//! Law: whatever lies in the directory, an engine starts on it, delivers whole records only (each of which is there,
//! checksum and all), and once all of them are finished nothing of the queues is left. Checksums are put right where
//! the input says so: else it would never get beyond them.

use crate::config::Config;
use crate::harness::invariant;
use crate::harness::memory_store::MemoryStore;
use crate::harness::pair::{Pair, S, START};
use crate::harness::source::Source;
use crate::storage::meta::Meta;
use crate::storage::record;
use crate::storage::segment::{self, HEADER, Header};

const QUEUES: [&str; 6] = ["t", "t:c", "t#ephemeral", "u:c#ephemeral", "t:c:d", "bad name"];

/// Above those of the files: nobody writes with the number of a process that comes later.
const INCARNATION: u64 = 1 << 40;

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    let store = MemoryStore::default();
    for _ in 0..1 + source.below(4) {
        let (name, content) = file(&mut source);
        store.with(|disk| disk.files.insert(name, content));
    }
    let bodies = bodies(&store);
    let config =
        Config { mem_queue_size: usize::from(source.byte() & 7), max_bytes_per_file: 4_096, ..Config::default() };
    let mut pair = Pair::on_disk(config, &store, INCARNATION, START);
    deliver(&mut pair, &bodies);
    let ours = |name: &String| segment::parse_file_name(name).is_some_and(|(queue, _)| queue == "t:c");
    let left: Vec<String> = store.names().into_iter().filter(ours).collect();
    assert!(left.is_empty(), "{left:?} of a queue that is empty");
    for name in ["t", "u"] {
        pair.engine.delete_topic(name);
    }
    pair.turn();
    assert_eq!(pair.engine.memory.messages.used(), 0);
}

/// A file of the directory, named and made as the input says.
fn file(source: &mut Source<'_>) -> (String, Vec<u8>) {
    let (how, queue) = (source.byte(), QUEUES[source.below(QUEUES.len())]);
    let number = if how & 16 == 0 { u64::from(source.byte() & 3) } else { source.number() };
    let mut content = source.text().to_vec();
    let more = source.text();
    content.extend_from_slice(more);
    match how & 7 {
        0 => (meta_name(queue), content),
        1 => (meta_name(queue), sealed_meta(content)),
        2 => (segment::file_name(queue, number), content),
        _ => (segment::file_name(queue, number), sealed_segment(content, number)),
    }
}

fn meta_name(queue: &str) -> String {
    crate::storage::meta::file_name(queue)
}

/// The content as entries of a meta file.
fn sealed_meta(content: Vec<u8>) -> Vec<u8> {
    let number = |bytes: &[u8], at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    let entry = |e: &[u8]| crate::storage::meta::Entry {
        number: number(e, 0),
        start: number(e, 8),
        end: number(e, 16),
        count: number(e, 24),
    };
    let (highest, entries) = content.split_at(content.len().min(8));
    let highest_id = highest.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    Meta { highest_id, entries: entries.chunks_exact(32).map(entry).collect() }.encode()
}

/// The content behind a sound header; records in it get the checksum that makes them sound, if they are whole.
fn sealed_segment(mut content: Vec<u8>, number: u64) -> Vec<u8> {
    let kind =
        if content.first().is_some_and(|byte| byte & 1 == 1) { segment::Kind::Aside } else { segment::Kind::Queue };
    let header = Header { kind, salt: 0x5a17, incarnation: u64::from(content.get(1).copied().unwrap_or(0)), number };
    let mut at = 0;
    while at < content.len() {
        let Some(size) = record::expected_size(&content[at..]).filter(|size| at + size <= content.len()) else {
            at += 1;
            continue;
        };
        let crc = crc32c::crc32c_append(
            crc32c::crc32c_append(header.salt, &content[at + 4..at + 8]),
            &content[at + 12..at + size],
        );
        content[at + 8..at + 12].copy_from_slice(&crc.to_le_bytes());
        at += size;
    }
    [&header.encode()[..], &content].concat()
}

/// The bodies of all sound records, found byte by byte.
fn bodies(store: &MemoryStore) -> Vec<String> {
    store.with(|disk| {
        let segments =
            disk.files.values().filter_map(|content| Some((Header::decode(content)?.salt, &content[HEADER..])));
        let records = segments
            .flat_map(|(salt, content)| (0..content.len()).filter_map(move |at| record::decode(&content[at..], salt)));
        records.map(|record| String::from_utf8_lossy(record.body).into_owned()).collect()
    })
}

/// Let a consumer take and finish all that is there.
fn deliver(pair: &mut Pair, bodies: &[String]) {
    let mut left = 2 * bodies.len() + 2;
    pair.engine.create_topic("t");
    pair.engine.create_channel("t", "c", pair.now);
    pair.engine.release_topic("t", pair.now);
    pair.turn();
    pair.advance(0);
    pair.stall(50 * 86_400 * S); // whatever is deferred (32 bits of ms) is due
    pair.turn();
    let consumer = pair.subscribe("t", "c", 3);
    loop {
        pair.advance(0); // the turns that the last one called for
        invariant::check(&pair.engine, pair.now);
        let came = pair.messages(consumer);
        if came.is_empty() {
            break;
        }
        for delivery in came {
            assert!(bodies.contains(&delivery.body), "{:?} was never written", delivery.body);
            pair.send(consumer, format!("FIN {}\n", delivery.id));
            left = left.checked_sub(1).expect("messages come again and again");
        }
        pair.turn();
    }
    pair.close(consumer);
    pair.advance(10 * S);
}
