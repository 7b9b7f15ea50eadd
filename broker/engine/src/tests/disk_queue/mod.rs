//! A queue on disk, on a disk in memory.

mod damage;

use proptest::prelude::*;

use super::*;
use crate::id::MessageId;
use crate::storage::record::{HEAD, Times};
use crate::storage::store::Outcome;
use crate::tests::memory_store::MemoryStore;

const TIMES: Times = Times { arrival: 1, due: 2, queued: 3, trace: 4 };

struct World {
    store: MemoryStore,
    volume: Volume,
    queue: DiskQueue,
    incarnation: u64,
    max: u64,
}

impl World {
    fn new() -> Self {
        Self::with(1 << 20)
    }

    fn with(max: u64) -> Self {
        let store = MemoryStore::default();
        let volume = Volume::new(Box::new(store.clone()), 1, max);
        Self { store, volume, queue: DiskQueue::new("t:c"), incarnation: 1, max }
    }

    fn append(&mut self, bodies: &[&str]) -> (u64, io::Result<()>) {
        let ids = self.queue.highest_id() + 1..;
        self.queue.append(&mut self.volume, ids.zip(bodies).map(|(id, body)| record(id, body)), u64::MAX)
    }

    fn put(&mut self, bodies: &[&str]) {
        let (written, result) = self.append(bodies);
        result.expect("a sound disk");
        assert_eq!(written, bodies.len() as u64);
    }

    fn read(&mut self, max: u64) -> (Vec<String>, Vec<Rc<Receipt>>) {
        let (mut bodies, mut receipts) = (Vec::new(), Vec::new());
        let count = self.queue.read(&mut self.volume, portion(max), |read| {
            bodies.push(text(read.record.body));
            receipts.push(read.receipt);
        });
        assert_eq!(count.expect("a sound disk"), bodies.len() as u64);
        (bodies, receipts)
    }

    /// Read and give back.
    fn drain(&mut self) -> Vec<String> {
        self.read(u64::MAX).0
    }

    /// The outcome of a job, if there was something to do.
    fn try_sync(&mut self) -> Option<Outcome> {
        let job = self.queue.sync()?;
        self.volume.store.begin(job);
        let outcome = self.volume.store.outcomes().pop().expect("one that ended");
        self.queue.errand().end(&outcome);
        Some(outcome)
    }

    fn sync(&mut self) {
        assert!(self.try_sync().is_none_or(|outcome| outcome.result.is_ok()));
    }

    /// The sync fails for this reason.
    fn fail_to_sync(&mut self) -> String {
        self.try_sync().and_then(|outcome| outcome.result.err()).expect("an error").to_string()
    }

    /// The process is killed and another one starts. The reports of its start.
    fn restart(&mut self) -> Vec<String> {
        self.store = self.store.after_kill();
        self.incarnation += 1;
        self.volume = Volume::new(Box::new(self.store.clone()), self.incarnation, self.max);
        let found = self.volume.found().expect("a list").remove("t:c").unwrap_or_default();
        self.queue = DiskQueue::open(&mut self.volume, "t:c", &found).expect("a sound disk");
        self.reports()
    }

    fn reports(&mut self) -> Vec<String> {
        std::mem::take(&mut self.volume.reports)
            .into_iter()
            .map(|report| format!("{} {}", report.file, report.what))
            .collect()
    }

    fn damage(&mut self, file: &str, offset: usize) {
        self.store.with(|disk| disk.files.get_mut(file).expect("there")[offset] ^= 1);
    }
}

fn record(id: u64, body: &str) -> Record<'_> {
    Record {
        id: MessageId(id),
        wall_ns: 9,
        attempts: 2,
        defer_ms: 0,
        times: TIMES,
        until_wall_ns: 0,
        attributes: b"",
        body: body.as_bytes(),
    }
}

fn portion(messages: u64) -> Portion {
    Portion { messages, bytes: u64::MAX }
}

fn text(body: &[u8]) -> String {
    String::from_utf8(body.to_vec()).expect("text")
}

#[test]
fn messages_come_back_in_order_and_whole() {
    let mut world = World::new();
    world.put(&["a", "b"]);
    world.put(&["c"]);
    assert_eq!(world.queue.unread(), 3);
    let mut seen = Vec::new();
    let sink = |read: Read<'_>| seen.push((read.record.id.0, read.record.attempts, read.record.times, read.foreign));
    assert_eq!(world.queue.read(&mut world.volume, portion(2), sink).expect("sound"), 2);
    assert_eq!(seen, [(1, 2, TIMES, false), (2, 2, TIMES, false)]);
    assert_eq!((world.drain(), world.queue.unread()), (vec!["c".to_owned()], 0));
}

#[test]
fn one_read_ends_when_it_has_enough_bytes() {
    let mut world = World::with(150);
    world.put(&["a", "b", "c"]);
    let two = Portion { messages: 9, bytes: HEAD as u64 + 2 };
    assert_eq!(world.queue.read(&mut world.volume, two, |_| ()).expect("sound"), 2);
    assert_eq!(world.drain(), ["c"]);
}

#[test]
fn a_batch_is_one_write_and_segments_are_no_longer_than_they_may_be() {
    let mut world = World::with((HEADER + 3 * (HEAD + 1)) as u64);
    world.put(&["a", "b", "c"]);
    assert_eq!(world.store.with(|disk| disk.writes), 2, "the header and the messages");
    world.put(&["d", "e", "f", "g"]);
    assert_eq!(world.store.names(), ["t:c.000000.seg", "t:c.000001.seg", "t:c.000002.seg"]);
    assert!(world.store.with(|disk| disk.files.values().all(|content| content.len() as u64 <= world.max)));
    assert_eq!(world.drain(), ["a", "b", "c", "d", "e", "f", "g"]);
}

#[test]
fn a_message_longer_than_a_segment_may_be_gets_one_of_its_own() {
    let mut world = World::with(200);
    let long = "x".repeat(1_000_000);
    world.put(&["a", &long, "b"]);
    assert_eq!(world.store.names().len(), 3);
    assert_eq!(world.drain(), ["a", &long, "b"]);
}

#[test]
fn what_was_read_but_is_still_needed_comes_again_after_a_kill_and_what_was_given_back_before_the_sync_does_not() {
    let mut world = World::new();
    world.put(&["a", "b", "c", "d"]);
    let (_, mut receipts) = world.read(3);
    receipts.remove(0);
    world.sync();
    assert_eq!(world.restart(), [""; 0]);
    assert_eq!(world.queue.unread(), 3);
    assert_eq!(world.drain(), ["b", "c", "d"]);
}

#[test]
fn without_a_sync_everything_that_was_written_is_there_after_a_kill() {
    let mut world = World::new();
    world.put(&["a", "b"]);
    world.drain();
    world.put(&["c"]);
    assert_eq!(world.restart(), [""; 0]);
    assert_eq!((world.queue.unread(), world.queue.highest_id()), (3, 3));
    assert_eq!(world.drain(), ["a", "b", "c"]);
}

#[test]
fn what_was_written_after_the_last_sync_is_counted_at_the_start() {
    let mut world = World::new();
    world.put(&["a", "b"]);
    world.read(1);
    world.sync();
    world.put(&["c", "d"]);
    world.restart();
    assert_eq!(world.queue.unread(), 3);
    assert_eq!(world.drain(), ["b", "c", "d"]);
}

#[test]
fn a_segment_that_nobody_needs_is_removed_by_the_next_sync_and_an_empty_queue_leaves_no_file() {
    let mut world = World::with(150);
    world.put(&["a", "b"]);
    let (_, receipts) = world.read(2);
    world.sync();
    assert_eq!(world.store.names(), ["t:c.000000.seg", "t:c.000001.seg", "t:c.meta"]);
    drop(receipts);
    world.put(&["c"]);
    world.sync();
    assert_eq!(world.store.names(), ["t:c.000002.seg", "t:c.meta"]);
    world.drain();
    world.sync();
    assert_eq!(world.store.names(), [""; 0]);
    assert!(world.queue.is_empty());
    world.sync();
    assert!(world.queue.is_gone(), "once it is known that the files are");
}

#[test]
fn a_long_held_message_keeps_its_own_segment_only() {
    let mut world = World::with(150);
    world.put(&["held", "b", "c", "d"]);
    let (_, receipts) = world.read(1);
    world.drain();
    world.sync();
    assert_eq!(world.store.names(), ["t:c.000000.seg", "t:c.000003.seg", "t:c.meta"]);
    drop(receipts);
}

#[test]
fn nothing_to_sync_is_no_job() {
    let mut world = World::new();
    world.put(&["a"]);
    assert!(world.try_sync().is_some());
    assert!(world.queue.sync().is_none());
}

#[test]
fn there_is_one_job_at_a_time_and_what_came_meanwhile_is_in_the_next() {
    let mut world = World::new();
    world.put(&["a"]);
    assert!(world.queue.sync().is_some());
    world.put(&["b", "c"]);
    assert!(world.queue.sync().is_none());
    assert_eq!(world.queue.changes(), 2);
    world.queue.errand().end(&Outcome { synced: true, result: Ok(()) });
    let job = world.queue.sync().expect("a job");
    assert!(job.sync == ["t:c.000000.seg"] && job.replace.is_some());
    assert_eq!(world.queue.changes(), 0);
}

#[test]
fn all_of_a_failed_sync_is_done_again() {
    let mut world = World::with(150);
    world.put(&["a", "b"]);
    world.read(1);
    world.store.with(|disk| disk.unsyncable = true);
    assert_eq!(world.fail_to_sync(), "Input/output error (os error 5)");
    let again = world.queue.sync().expect("a job");
    assert_eq!((again.sync, again.remove), (vec!["t:c.000001.seg".to_owned()], vec!["t:c.000000.seg".to_owned()]));
    assert!(again.replace.is_some());
}

#[test]
fn a_full_disk_gets_the_space_of_what_was_read_back_and_nothing_of_it_comes_again() {
    let mut world = World::with(150);
    world.put(&["a", "b", "c"]);
    world.sync();
    world.read(2);
    world.store.with(|disk| disk.space = Some(0));
    world.sync();
    assert_eq!(world.store.names(), ["t:c.000002.seg", "t:c.meta"]);
    world.put(&["d"]);
    world.restart();
    assert_eq!(world.drain(), ["c", "d"]);
}

#[test]
fn a_file_that_could_not_be_removed_is_removed_later() {
    let mut world = World::with(150);
    world.put(&["a", "b"]);
    world.sync();
    world.drain();
    world.store.with(|disk| disk.unremovable = true);
    world.fail_to_sync();
    assert!(world.queue.is_empty() && !world.queue.is_gone());
    world.put(&["c"]);
    world.store.with(|disk| disk.unremovable = false);
    world.sync();
    assert_eq!(world.store.names(), ["t:c.000002.seg", "t:c.meta"]);
    world.drain();
    world.sync();
    world.sync();
    assert!(world.queue.is_gone() && world.store.names().is_empty());
}

#[test]
fn a_meta_file_goes_with_the_last_segment_also_if_it_could_not_be_written_anew() {
    let mut world = World::new();
    world.put(&["a", "b"]);
    world.sync();
    world.read(1);
    world.store.with(|disk| disk.space = Some(0));
    world.fail_to_sync();
    world.drain();
    world.sync();
    assert_eq!(world.store.names(), [""; 0]);
}

#[test]
fn a_kill_at_any_point_of_a_sync_leaves_no_segment_that_the_meta_file_leaves_out() {
    for lives in 0..6 {
        let mut world = World::with(150);
        world.put(&["c", "d"]);
        let first = [record(8, "a"), record(9, "b")];
        assert!(world.queue.prepend(&mut world.volume, first.into_iter()).1.is_ok());
        world.sync();
        world.read(2);
        world.store.with(|disk| disk.lives = Some(lives));
        world.try_sync();
        let meta = world.store.with(|disk| Meta::decode(&disk.files["t:c.meta"]).expect("sound"));
        let listed: Vec<String> = meta.entries.iter().map(|entry| segment::file_name("t:c", entry.number)).collect();
        let there = world.store.names();
        assert!(
            there.iter().all(|name| name == "t:c.meta" || listed.contains(name)),
            "{lives}: {there:?} of {listed:?}"
        );
        world.restart();
        assert!(world.drain().ends_with(&["c".to_owned(), "d".to_owned()]), "{lives}");
    }
}

#[test]
fn a_number_that_only_a_meta_file_or_a_file_set_aside_still_has_is_not_used_again() {
    let mut world = World::with(150);
    world.put(&["a", "b"]);
    world.sync();
    world.drain();
    world.store.with(|disk| disk.lives = Some(1)); // the kill comes behind the first removal
    world.fail_to_sync();
    world.restart();
    world.store.with(|disk| drop(disk.files.remove("t:c.000001.seg")));
    world.restart();
    world.put(&["c"]);
    assert_eq!(world.store.names(), ["t:c.000002.seg", "t:c.meta"]);
    world.restart();
    assert_eq!(world.drain(), ["c"]);
    world.store.with(|disk| drop(disk.files.insert("other.000007.seg.bad".into(), Vec::new())));
    world.restart();
    world.put(&["d"]);
    assert!(world.store.names().contains(&"t:c.000008.seg".to_owned()));
}

#[test]
fn a_read_error_midway_keeps_the_count_of_what_is_left() {
    let mut world = World::with(150);
    world.put(&["a", "b", "c"]);
    world.store.with(|disk| disk.unreadable = Some(("000001".into(), libc::EIO)));
    assert!(world.queue.read(&mut world.volume, portion(9), |_| ()).is_err());
    assert_eq!(world.queue.unread(), 2);
    world.store.with(|disk| disk.unreadable = None);
    assert_eq!(world.drain(), ["b", "c"]);
    assert_eq!(world.queue.unread(), 0);
}

#[test]
fn a_read_error_within_a_segment_keeps_the_count_of_what_is_left() {
    let mut world = World::new();
    let long = "x".repeat(300_000); // longer than what one look at the file brings
    world.put(&["a", &long]);
    world.store.with(|disk| (disk.unreadable, disk.unreadable_from) = (Some(("000000".into(), libc::EIO)), 270_000));
    let mut count = 0;
    assert!(world.queue.read(&mut world.volume, portion(9), |_| count += 1).is_err());
    assert_eq!((count, world.queue.unread(), world.queue.changes()), (1, 1, 3));
    world.store.with(|disk| disk.unreadable = None);
    assert_eq!((world.drain().len(), world.queue.unread()), (1, 0));
}

/// Another queue that was read, after its records were copied.
fn copied_from_another(world: &mut World) -> DiskQueue {
    let mut other = DiskQueue::new("t");
    other.append(&mut world.volume, [record(1, "a"), record(2, "b")].into_iter(), u64::MAX).1.expect("a sound disk");
    let mut receipts = Vec::new();
    other.read(&mut world.volume, portion(9), |read| receipts.push(read.receipt)).expect("a sound disk");
    for receipt in receipts {
        world.put(&["a copy"]);
        world.queue.keep_until_synced(Some(receipt));
    }
    assert!(other.sync().is_some_and(|job| job.remove.is_empty()));
    other.errand().end(&Outcome { synced: true, result: Ok(()) });
    other
}

#[test]
fn a_record_of_another_queue_is_needed_until_its_copy_is_on_the_device() {
    let mut world = World::new();
    let mut other = copied_from_another(&mut world);
    assert!(other.sync().is_none(), "the copies may be lost yet");
    // A full disk does not keep what is safe elsewhere.
    world.store.with(|disk| disk.space = Some(0));
    world.fail_to_sync();
    assert_eq!(other.sync().expect("a job").remove, ["t.000000.seg", "t.meta"]);
}

#[test]
fn a_record_of_another_queue_stays_after_a_sync_failed_for_the_next_one_tells_nothing() {
    let mut world = World::new();
    let mut other = copied_from_another(&mut world);
    world.store.with(|disk| disk.unsyncable = true);
    world.fail_to_sync();
    world.store.with(|disk| disk.unsyncable = false);
    world.sync();
    world.sync();
    assert!(other.sync().is_none());
}

#[test]
fn what_a_stopping_broker_writes_comes_before_what_was_on_disk_and_what_stood_beside_the_queue_comes_apart() {
    let mut world = World::with(150);
    world.put(&["c", "d"]);
    let (written, result) = world.queue.prepend(&mut world.volume, [record(8, "a"), record(9, "b")].into_iter());
    assert!(written == 2 && result.is_ok());
    let later = Record { until_wall_ns: 77, ..record(7, "later") };
    assert!(world.queue.put_aside(&mut world.volume, std::iter::once(later)).1.is_ok());
    world.sync();
    assert_eq!(world.restart(), [""; 0]);
    let mut aside = Vec::new();
    let sink =
        |read: Read<'_>| aside.push((text(read.record.body), read.record.until_wall_ns, read.foreign, read.receipt));
    world.queue.read_aside(&mut world.volume, sink).expect("a sound disk");
    assert!(matches!(&aside[..], [(body, 77, true, _)] if body == "later"));
    world.put(&["e"]);
    assert_eq!((world.queue.unread(), world.drain()), (5, ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec()));
    world.sync();
    assert_eq!(
        world.store.names(),
        ["t:c.000004.seg", "t:c.000005.seg", "t:c.meta"],
        "as long as the deferred one is needed"
    );
}

#[test]
fn skipping_what_the_caller_kept_is_like_reading_it() {
    let mut world = World::with(150);
    world.put(&["a", "b", "c"]);
    let receipt = world.queue.skip((HEAD + 1) as u64).expect("there");
    assert_eq!(world.read(1).0, ["b"]);
    world.sync();
    world.restart();
    assert_eq!(world.drain(), ["a", "c"]);
    drop(receipt);
}

#[test]
fn a_queue_that_is_destroyed_leaves_nothing_also_while_a_sync_is_under_way() {
    let mut world = World::with(150);
    world.put(&["a", "b"]);
    let job = world.queue.sync().expect("a job");
    let queue = std::mem::replace(&mut world.queue, DiskQueue::new("t:c"));
    let (last, result) = queue.destroy(&mut world.volume);
    result.expect("a sound disk");
    world.volume.store.begin(job);
    world.volume.store.begin(last);
    assert_eq!(world.store.names(), [""; 0]);
}

#[derive(Debug, Clone)]
enum Step {
    Append(usize),
    Read(u64),
    GiveBack(usize),
    Sync,
    Kill,
    Fail(usize),
    SyncFull(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1usize..8).prop_map(Step::Append),
        4 => (1u64..8).prop_map(Step::Read),
        4 => (0usize..100).prop_map(Step::GiveBack),
        2 => Just(Step::Sync),
        1 => Just(Step::Kill),
        1 => (0usize..300).prop_map(Step::Fail),
        1 => (0usize..300).prop_map(Step::SyncFull),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    /// Whatever happens: in order, nothing that was accepted is lost, nothing comes that was never offered, and nothing
    /// that was given back before a sync.
    #[test]
    fn no_sequence_of_kills_and_full_disks_loses_a_message(steps in steps()) {
        let mut world = World::with(400);
        let mut next = 0;
        let (mut owed, mut settled) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
        let mut synced = std::collections::BTreeSet::new();
        let mut held: Vec<(u64, Rc<Receipt>)> = Vec::new();
        let mut last = None;
        for step in steps {
            match step {
                Step::Append(count) | Step::Fail(count) => {
                    if matches!(step, Step::Fail(_)) {
                        world.store.with(|disk| disk.space = Some(count));
                    }
                    let bodies: Vec<String> = (next..next + count.min(8)).map(|number| number.to_string()).collect();
                    let (written, _) = world.append(&bodies.iter().map(String::as_str).collect::<Vec<_>>());
                    owed.extend((next as u64)..next as u64 + written);
                    next += bodies.len();
                    world.store.with(|disk| disk.space = None);
                }
                Step::Read(max) => {
                    let (bodies, receipts) = world.read(max);
                    for (body, receipt) in bodies.iter().zip(receipts) {
                        let number: u64 = body.parse().expect("a number");
                        prop_assert!(owed.contains(&number) && !synced.contains(&number), "{number}");
                        prop_assert!(last.is_none_or(|last| number > last), "{number} after {last:?}");
                        last = Some(number);
                        held.push((number, receipt));
                    }
                }
                Step::GiveBack(index) if !held.is_empty() => {
                    let (number, _) = held.remove(index % held.len());
                    settled.insert(number);
                }
                Step::GiveBack(_) => {}
                Step::Sync => {
                    world.sync();
                    // What lies before the first one that is needed does not come again.
                    let first = held.iter().map(|(number, _)| *number).min().or(last.map(|last| last + 1)).unwrap_or(0);
                    synced.extend(settled.iter().copied().filter(|number| *number < first));
                }
                Step::SyncFull(space) => {
                    world.store.with(|disk| disk.space = Some(space));
                    let _ = world.try_sync();
                    world.store.with(|disk| disk.space = None);
                }
                Step::Kill => {
                    world.restart();
                    held.clear();
                    last = None;
                }
            }
        }
        world.restart();
        let there: Vec<u64> = world.drain().iter().map(|body| body.parse().expect("a number")).collect();
        prop_assert!(there.is_sorted());
        let missing: Vec<_> = owed.iter().filter(|number| !there.contains(number) && !settled.contains(number)).collect();
        prop_assert!(missing.is_empty(), "{missing:?} of {there:?}");
    }
}
