//! Open-loop load generator for NSQ brokers, and for those of NATS, MQTT and Redis beside them.
//!
//! Two threads. One owns every publisher connection and does nothing but send at the intended instants; the other owns
//! the subscribers. One thread for both would stamp each receipt late by the burst of sends in progress (25 members of
//! a group: 0.3 ms), and send late by the receipts in progress; both errors would be booked on the broker. More than
//! two would compete with the broker for the cores.
//! The sending thread is woken by its timer only: answers to publishes are left in the sockets, with the kernel's time
//! of arrival, and read before the next send on that connection or by a sweep, because each wake-up would cost the
//! broker, which does the waking, an interrupt of the other core.
//!
//! Latency counts from the intended instant, drawn from the seed before anything is sent: a late generator, a full
//! socket and a broken connection all count (no coordinated omission). The generator's own share of it, `lateness`, is
//! measured and decides whether a run is valid.
//!
//! Besides (`flood`): closed loops that ask how much a broker carries instead of how long it takes.
//!
//! Reading order: `plan` (what is asked, by whom, when), `protocol` (bytes), `connections`, `publisher`, `subscriber`,
//! `results` (who got what, and the verdict), `run` (threads), `error` (what goes wrong). Only `sys` makes unsafe
//! calls.

mod connections;
mod error;
mod flood;
mod job;
mod plan;
mod protocol;
mod publisher;
mod results;
mod run;
mod shared;
mod subscriber;
mod sys;

pub use error::RunError;
pub use flood::{Flood, FloodPlan};
pub use plan::Plan;
pub use plan::bad_plan::BadPlan;
pub use results::report::RunReport;
pub use run::LoadGen;
