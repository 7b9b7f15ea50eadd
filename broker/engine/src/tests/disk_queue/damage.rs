//! What a queue on disk makes of files that are torn, damaged, unreadable or have no room.

use super::*;

#[test]
fn a_torn_tail_is_cut_at_the_last_whole_message_and_reported() {
    for cut in 1..HEAD + 5 {
        let mut world = World::new();
        world.put(&["first", "last!"]);
        world.store.with(|disk| {
            let content = disk.files.get_mut("t:c.000000.seg").expect("there");
            content.truncate(content.len() - cut);
        });
        let torn = HEAD + 5 - cut;
        let expected = format!("t:c.000000.seg had a torn end: cut at the last whole message, {torn} bytes off");
        assert_eq!(world.restart(), [expected]);
        assert_eq!(world.drain(), ["first"]);
        assert_eq!(world.restart(), [""; 0], "it is told once");
    }
}

#[test]
fn a_segment_that_was_just_being_made_is_no_news() {
    for len in 0..=HEADER {
        let mut world = World::new();
        world.put(&["a"]);
        world.store.with(|disk| disk.files.get_mut("t:c.000000.seg").expect("there").truncate(len));
        assert_eq!(world.restart(), [""; 0]);
        assert_eq!(world.store.names(), [""; 0]);
    }
}

#[test]
fn a_damaged_message_in_the_middle_costs_only_itself_and_the_file_is_kept_aside() {
    for byte in [0, 4, 8, 20, HEAD, HEAD + 3] {
        let mut world = World::new();
        world.put(&["aaaa", "bbbb", "cccc"]);
        world.sync();
        world.damage("t:c.000000.seg", HEADER + HEAD + 4 + byte);
        assert_eq!(world.restart(), [""; 0]);
        assert_eq!(world.queue.unread(), 3);
        assert_eq!(world.drain(), ["aaaa", "cccc"], "byte {byte}");
        assert_eq!(
            world.reports(),
            ["t:c.000000.seg is damaged at 116: 80 bytes skipped, up to the next sound message"]
        );
        assert_eq!(world.queue.unread(), 0);
        world.sync();
        assert_eq!(world.store.names(), ["t:c.000000.seg.bad"]);
    }
}

#[test]
fn damage_in_what_was_written_after_the_last_sync_costs_only_the_damaged_message() {
    let mut world = World::new();
    world.put(&["aaaa", "bbbb", "cccc"]);
    world.damage("t:c.000000.seg", HEADER + 4);
    assert_eq!(world.restart(), [""; 0]);
    assert_eq!(world.queue.unread(), 2);
    assert_eq!(world.drain(), ["bbbb", "cccc"]);
    assert_eq!(world.reports(), ["t:c.000000.seg is damaged at 36: 80 bytes skipped, up to the next sound message"]);
}

#[test]
fn a_damaged_header_costs_its_segment_which_is_kept_aside() {
    let mut world = World::with(150);
    world.put(&["a", "b"]);
    world.damage("t:c.000000.seg", 9);
    assert_eq!(world.restart(), ["t:c.000000.seg has no sound header: set aside with 113 bytes"]);
    assert_eq!(world.drain(), ["b"]);
    assert!(world.store.names().contains(&"t:c.000000.seg.bad".to_owned()));
}

#[test]
fn a_damaged_meta_file_costs_nothing_but_repetition() {
    let mut world = World::new();
    world.put(&["a", "b"]);
    world.read(1);
    world.sync();
    world.damage("t:c.meta", 9);
    assert_eq!(world.restart(), ["t:c.meta is damaged: all that is there is delivered, some of it again"]);
    assert_eq!(world.drain(), ["a", "b"]);
}

#[test]
fn a_meta_file_that_promises_more_messages_than_there_is_room_for_is_not_believed() {
    let mut world = World::new();
    world.put(&["a", "b"]);
    world.sync();
    let meta =
        Meta { highest_id: 2, entries: vec![Entry { number: 0, start: HEADER as u64, end: 190, count: u64::MAX }] };
    world.store.with(|disk| disk.files.insert("t:c.meta".into(), meta.encode()));
    assert_eq!(world.restart(), ["t:c.000000.seg is not as its meta file says: all that is there is delivered"]);
    assert_eq!(world.queue.unread(), 2);
    assert_eq!(world.drain(), ["a", "b"]);
}

#[test]
fn a_file_that_is_shorter_than_it_was_gives_what_it_has() {
    let mut world = World::new();
    world.put(&["a", "b"]);
    world.sync();
    world.store.with(|disk| disk.files.get_mut("t:c.000000.seg").expect("there").truncate(HEADER + HEAD + 1));
    assert_eq!(world.restart(), ["t:c.000000.seg has 113 bytes where 190 were written"]);
    assert_eq!(world.drain(), ["a"]);
}

#[test]
fn bodies_that_look_like_records_are_not_taken_for_some() {
    let mut world = World::new();
    let mut forged = Vec::new();
    record::encode(&mut forged, &record(7, "forged"), 0);
    let hostile = Record { body: &forged, ..record(1, "") };
    let (_, result) = world.queue.append(&mut world.volume, [hostile, record(2, "after")].into_iter(), u64::MAX);
    result.expect("a sound disk");
    world.damage("t:c.000000.seg", HEADER + 4);
    world.restart();
    assert_eq!(world.drain(), ["after"]);
}

#[test]
fn a_full_disk_stops_at_a_whole_message_and_space_lets_it_go_on() {
    let mut world = World::new();
    world.put(&["a"]);
    world.store.with(|disk| disk.space = Some(HEAD / 2));
    let (written, result) = world.append(&["b", "c"]);
    let error = result.expect_err("no space").to_string();
    assert_eq!((written, &*error), (0, "write t:c.000000.seg: No space left on device (os error 28)"));
    world.store.with(|disk| disk.space = None);
    world.put(&["d"]);
    assert_eq!(world.restart(), [""; 0], "half a message was cut off at once");
    assert_eq!(world.drain(), ["a", "d"]);
}

#[test]
fn a_segment_whose_torn_end_cannot_be_cut_off_is_written_to_no_more() {
    let mut world = World::new();
    world.put(&["a"]);
    world.store.with(|disk| disk.unwritable = true);
    assert!(world.append(&["b"]).1.is_err());
    world.store.with(|disk| disk.unwritable = false);
    world.put(&["c"]);
    assert_eq!(world.store.names(), ["t:c.000000.seg", "t:c.000001.seg"]);
    assert_eq!(world.drain(), ["a", "c"]);
}

#[test]
fn a_segment_that_cannot_be_made_leaves_nothing_behind() {
    let mut world = World::new();
    world.store.with(|disk| disk.space = Some(10));
    assert!(world.append(&["a"]).1.is_err());
    assert_eq!(world.store.names(), [""; 0]);
}

#[test]
fn an_unreadable_segment_can_be_given_up_for_the_next() {
    let mut world = World::with(150);
    world.put(&["a", "b"]);
    world.store.with(|disk| disk.unreadable = Some(("000000".into(), libc::EIO)));
    assert!(world.queue.read(&mut world.volume, portion(9), |_| ()).is_err());
    assert_eq!(world.queue.unread(), 2, "it may get better");
    world.queue.give_up_segment(&mut world.volume);
    assert_eq!(world.drain(), ["b"]);
    assert_eq!(world.reports(), ["t:c.000000.seg cannot be read: set aside with about 1 messages in 77 bytes"]);
    world.sync();
    assert_eq!(world.store.names(), ["t:c.000000.seg.bad"]);
}
