//! The fuzzer: libFuzzer's loop around the target that `FUZZ_TARGET` names. Everything worth reading is in the engine's
//! `harness`.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use srtm_engine::harness::targets::{self, Target};

static TARGET: OnceLock<Target> = OnceLock::new();

fn chosen() -> Target {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    targets::named(&name).unwrap_or_else(|| {
        let names: Vec<&str> = targets::ALL.iter().map(|(name, _)| *name).collect();
        eprintln!("FUZZ_TARGET: {name:?} must be one of {}", names.join(", "));
        std::process::exit(2)
    })
}

fuzz_target!(init: { TARGET.get_or_init(chosen); }, |input: &[u8]| TARGET.get_or_init(chosen)(input));
