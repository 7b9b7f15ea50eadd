//! Inputs that the fuzzer found worth keeping, replayed: what it broke once stays whole.

use std::fs;
use std::path::Path;

use crate::harness::targets::{ALL, Target};

/// So many inputs of a corpus, each run to its end.
fn replay(name: &str, target: Target) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let inputs: Vec<Vec<u8>> = files.map(|file| fs::read(file.expect("a file").path()).expect("its content")).collect();
    inputs.iter().for_each(|input| target(input));
    inputs.len()
}

#[test]
fn no_input_of_the_corpus_breaks_a_law() {
    for (name, target) in ALL {
        assert!(replay(name, target) > 0, "{name} has no corpus");
    }
}
