//! The real store, in a directory of its own.

use super::*;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("srtm-files-{}-{name}", std::process::id()));
        fs::create_dir(&path).expect("a new directory");
        Self(path)
    }

    fn store(&self) -> Files {
        Files::open(&self.0.join("queue"), || ()).expect("a store")
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
    let mut store = Files::open(&directory.0.join("queue"), move || told.send(()).expect("heard")).expect("a store");
    for file in ["a", "b", "c"] {
        store.create(file, b"x").expect("new");
    }
    let replace = Some(("meta".to_owned(), b"content".to_vec()));
    store.begin(Job {
        sync: vec!["a".into(), "gone".into()],
        replace,
        set_aside: vec!["b".into()],
        remove: vec!["c".into(), "gone".into()],
    });
    hears.recv().expect("told");
    let outcomes = store.outcomes();
    assert!(outcomes.len() == 1 && outcomes[0].is_ok());
    assert_eq!(listed(&mut store).into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b.bad", "meta"]);
    assert!(store.outcomes().is_empty());
}

#[test]
fn a_job_that_fails_names_the_file_and_the_next_one_still_runs() {
    let directory = Directory::new("fails");
    let mut store = directory.store();
    store.create("a", b"x").expect("new");
    store.begin(Job { set_aside: vec!["gone".into()], remove: vec!["a".into()], ..Job::default() });
    store.begin(Job { remove: vec!["a".into()], ..Job::default() });
    let texts: Vec<_> = store.wait().into_iter().map(|outcome| outcome.map_err(|error| error.to_string())).collect();
    assert_eq!(texts, [Err("rename gone: No such file or directory (os error 2)".to_owned()), Ok(())]);
    assert_eq!(listed(&mut store), []);
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
fn what_a_crash_left_half_written_is_swept_away() {
    let directory = Directory::new("left");
    drop(directory.store());
    fs::write(directory.0.join("queue/t.meta.tmp"), "half").expect("written");
    assert_eq!(listed(&mut directory.store()), []);
}
