//! The real store, in a directory of its own.

use std::os::unix::fs::PermissionsExt;

use super::*;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("srtm-files-{}-{name}", std::process::id()));
        fs::create_dir(&path).expect("a new directory");
        Self(path)
    }

    fn store(&self) -> Files {
        Files::open(&self.0.join("queue"), Progress::default(), || ()).expect("a store")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("removed");
    }
}

fn listed(store: &mut Files) -> Vec<(String, u64)> {
    let mut files = store.list().expect("a list");
    files.sort();
    files
}

#[test]
fn what_is_written_is_read_and_listed_also_by_another_store() {
    let directory = Directory::new("written");
    let mut store = directory.store();
    store.create("a", b"head").expect("new");
    store.write("a", 4, b"more").expect("written");
    assert_eq!(store.create("a", b"").expect_err("there").kind(), ErrorKind::AlreadyExists);
    let mut other = directory.store();
    let mut bytes = [0; 10];
    assert_eq!(other.read("a", 2, &mut bytes).expect("read"), 6);
    assert_eq!(&bytes[..6], b"admore");
    other.truncate("a", 4).expect("cut");
    assert_eq!(listed(&mut other), [("a".to_owned(), 4)]);
}

#[test]
fn a_job_does_all_its_parts_and_is_told() {
    let directory = Directory::new("job");
    let (told, hears) = mpsc::channel();
    let mut store = Files::open(&directory.0.join("queue"), Progress::default(), move || told.send(()).expect("heard"))
        .expect("a store");
    for file in ["a", "b", "c"] {
        store.create(file, b"x").expect("new");
    }
    let replace = Some(("meta".to_owned(), b"content".to_vec()));
    store.begin(Job {
        sync: vec!["a".into(), "gone".into()],
        replace,
        set_aside: vec!["b".into(), "gone".into()],
        remove: vec!["c".into(), "gone".into()],
    });
    hears.recv().expect("told");
    let outcomes = store.outcomes();
    assert!(matches!(&outcomes[..], [Outcome { synced: true, result: Ok(()) }]));
    assert_eq!(listed(&mut store).into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b.bad", "meta"]);
    assert!(store.outcomes().is_empty());
}

#[test]
fn a_job_that_fails_names_the_file_and_the_next_one_still_runs() {
    let directory = Directory::new("fails");
    let mut store = directory.store();
    store.create("a", b"x").expect("new");
    let meta = |place: &str| Some((format!("{place}meta"), b"content".to_vec()));
    store.begin(Job { remove: vec!["a".into()], replace: meta("no/"), ..Job::default() });
    store.begin(Job { replace: meta(""), ..Job::default() });
    let texts: Vec<_> = store
        .wait()
        .into_iter()
        .map(|outcome| (outcome.synced, outcome.result.map_err(|error| error.to_string())))
        .collect();
    assert_eq!(
        texts,
        [(true, Err("write no/meta: No such file or directory (os error 2)".to_owned())), (true, Ok(()))]
    );
    assert_eq!(listed(&mut store), [("meta".to_owned(), 7)], "what was to go is gone");
}

#[test]
fn every_file_is_tried_before_the_list_of_them_is_left_as_it_was() {
    let directory = Directory::new("tried");
    let mut store = directory.store();
    store.create("a", b"x").expect("new");
    fs::create_dir(directory.0.join("queue/folder")).expect("made");
    let replace = Some(("meta".to_owned(), b"content".to_vec()));
    store.begin(Job { remove: vec!["folder".into(), "a".into()], replace, ..Job::default() });
    let error = store.wait().pop().and_then(|outcome| outcome.result.err()).expect("an error");
    assert_eq!(error.to_string(), "remove folder: Is a directory (os error 21)");
    assert_eq!(listed(&mut store), []);
}

#[test]
fn files_that_are_kept_open_give_way_when_no_descriptor_is_left() {
    let directory = Directory::new("descriptors");
    let mut store = directory.store();
    store.create("a", b"x").expect("new");
    let path = directory.0.join("queue/a");
    let mut attempts = 0;
    let opened = store.opened(|| {
        attempts += 1;
        if attempts == 1 { Err(io::Error::from_raw_os_error(libc::EMFILE)) } else { File::open(&path) }
    });
    assert!(opened.is_ok() && store.open.is_empty());
    let refused = store.opened(|| Err(io::Error::from_raw_os_error(libc::ENFILE)));
    assert_eq!(refused.expect_err("nothing to give").raw_os_error(), Some(libc::ENFILE));
}

#[test]
fn more_files_than_may_be_open_are_no_trouble() {
    let directory = Directory::new("many");
    let mut store = directory.store();
    for number in 0..2 * MAX_OPEN {
        store.create(&number.to_string(), b"x").expect("new");
    }
    for number in 0..2 * MAX_OPEN {
        store.write(&number.to_string(), 1, b"y").expect("written");
    }
    assert!(store.open.len() <= MAX_OPEN);
    assert!(listed(&mut store).iter().all(|(_, len)| *len == 2));
}

#[test]
fn files_are_for_their_owner_alone_and_those_of_an_earlier_release_serve_on() {
    let directory = Directory::new("modes");
    let mut store = directory.store();
    let path = |name: &str| directory.0.join("queue").join(name);
    fs::write(path("earlier"), "x").expect("written");
    fs::set_permissions(path("earlier"), fs::Permissions::from_mode(0o644)).expect("set");
    store.write("earlier", 1, b"y").expect("written");
    store.create("a", b"x").expect("new");
    store.begin(Job { replace: Some(("meta".into(), b"content".to_vec())), ..Job::default() });
    assert!(store.wait().iter().all(|outcome| outcome.result.is_ok()));
    for (name, mode) in [("earlier", 0o644), ("a", 0o600), ("meta", 0o600)] {
        assert_eq!(fs::metadata(path(name)).expect("there").permissions().mode() & 0o777, mode, "{name}");
    }
}

#[test]
fn what_a_crash_left_half_written_is_swept_away() {
    let directory = Directory::new("left");
    drop(directory.store());
    fs::write(directory.0.join("queue/t.meta.tmp"), "half").expect("written");
    assert_eq!(listed(&mut directory.store()), []);
}

#[test]
fn a_store_that_takes_a_whole_patience_for_each_thing_it_does_is_waited_for() {
    let directory = Directory::new("slow");
    let progress = Progress::default();
    let (told, hears) = mpsc::channel();
    let mut store = Files::open(&directory.0.join("queue"), progress.clone(), move || told.send(()).expect("heard"))
        .expect("a store");
    let sync = |file: &str| Job { sync: vec![file.into()], ..Job::default() };
    let (mut done, steps) = (0, 30);
    let ended = progress.wait_while_it_goes_on(|| {
        match done % 3 {
            0 => store.create(&format!("{done}"), b"head").expect("new"),
            1 => store.write(&format!("{}", done - 1), 4, b"more").expect("written"),
            _ => {
                store.begin(sync(&format!("{}", done - 2)));
                hears.recv().expect("told");
            }
        }
        done += 1;
        done > steps
    });
    assert_eq!((ended, done), (true, steps + 1));
    assert!(!progress.wait_while_it_goes_on(|| false), "and not when it does nothing");
}

#[test]
fn what_is_long_is_written_whole_and_shows_that_it_goes_on() {
    let directory = Directory::new("long");
    let progress = Progress::default();
    let mut store = Files::open(&directory.0.join("queue"), progress.clone(), || ()).expect("a store");
    let long: Vec<u8> = (0..3 * PIECE + 7).map(|at| (at % 251) as u8).collect();
    store.create("a", b"head").expect("new");
    let before = progress.count();
    store.write("a", 4, &long).expect("written");
    assert_eq!(progress.count() - before, 4);
    let mut read = vec![0; long.len() + 1];
    assert_eq!(store.read("a", 4, &mut read).expect("read"), long.len());
    assert!(read[..long.len()] == long);
}

#[test]
fn what_is_discarded_is_there_under_another_name_until_a_job_or_the_next_start_removes_it() {
    let directory = Directory::new("discarded");
    let mut store = directory.store();
    for file in ["a", "b"] {
        store.create(file, b"head").expect("new");
        store.discard(file).expect("renamed");
    }
    store.discard("gone").expect("nothing to do");
    assert_eq!(listed(&mut store), [("a.tmp".to_owned(), 4), ("b.tmp".to_owned(), 4)]);
    store.begin(Job { remove: vec!["a.tmp".into()], ..Job::default() });
    assert!(store.wait()[0].result.is_ok());
    assert_eq!(listed(&mut store), [("b.tmp".to_owned(), 4)]);
    assert_eq!(listed(&mut directory.store()), []);
}
