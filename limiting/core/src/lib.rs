//! Limits of subjects: who may do how much, how often, with what bursts. Sans-IO: time is a parameter.
//!
//! A *subject* (a client, a user, a sensor) is known by a 128-bit keyed hash. A *contract* holds up to 8 *policies* for
//! a pattern of subjects. A check asks all policies of a contract, and takes from all or from none. `limiter` puts the
//! parts together; begin there.
//!
//! * `bucket`: the exact token bucket, which the broker's engine uses for topics too.
//! * `policy`: the kinds of policies; `state`: what a subject has of each.
//! * `contract`: contracts, and which one a subject is under.
//! * `table`: the subjects in memory. It grows in steps.
//! * `grant`: what a check hands out for a later correction or release.
//! * `heavy`: the heaviest subjects.
//! * `levels`, `slices`: what nodes know of subjects that they limit together, of buckets and of windows.
//! * `http`: checks by HTTP.
//! * `throttle`: buckets whose parameters come with each request; `resp`: the Redis protocol that asks them.

pub mod bucket;
pub mod contract;
pub mod grant;
pub mod heavy;
pub mod http;
pub mod levels;
pub mod limiter;
pub mod policy;
pub mod resp;
pub mod slices;
pub mod state;
pub mod table;
pub mod throttle;

/// Nanoseconds on a monotonic clock, or of one.
pub type Nanos = i64;
