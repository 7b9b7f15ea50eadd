//! Targets of the fuzzer: each takes any bytes, and panics where a law of its module is broken.
//!
//! Imports everything. Begin with `ALL`. `broker/fuzz/corpus` keeps inputs that reach far; a test replays them.

mod auth;
mod commands;
mod identify;
mod layers;
mod mqtt;
mod operations;
mod queues;
mod requests;
mod segments;

pub type Target = fn(&[u8]);

/// By name; the name of its corpus, too.
pub const ALL: [(&str, Target); 9] = [
    ("commands", commands::run),
    ("identify", identify::run),
    ("requests", requests::run),
    ("layers", layers::run),
    ("mqtt", mqtt::run),
    ("auth", auth::run),
    ("operations", operations::run),
    ("queues", queues::run),
    ("segments", segments::run),
];

pub fn named(name: &str) -> Option<Target> {
    ALL.into_iter().find(|(other, _)| *other == name).map(|(_, target)| target)
}
