//! The data plane of an SRTM broker: NSQ protocol V2, an exact token bucket per topic, latency histograms, one epoll
//! reactor.
//!
//! Imports go one way: `io` -> `engine` -> `clients` -> `mqtt`, `scheduling` -> `queueing` -> `storage`, `telemetry`,
//! `limiter`. All of these import `transport`, `http`, `protocol`, `arrival` and the leaves, which are single files
//! here. `tests/test_engine_architecture.py` holds the table.
//!
//! `io` does all input and output and reads all clocks. Everything else is sans-I/O: bytes, keys and `now` come in,
//! values go out. Begin with `engine`, and with `io::reactor` for what drives it. The cargo features `packet-clock`
//! (`io::arrival_clock`) and `lab` (`scheduling::service_time`) are on by default.
//!
//! A message meets the modules in this order:
//!
//! 1. `io::reactor`: one `recvmsg`, with the kernel's stamp (`arrival::stamps`).
//! 2. `transport`: TLS and compression are removed, if the client uses them.
//! 3. `protocol::codec`: a command. `engine::commands` runs it; `publish_messages` makes its messages.
//! 4. `engine::commands::admission`: all publishes of the turn, in order of arrival.
//! 5. `queueing::topic` with `limiter::bucket` and `limiter::backlog`: released now, at an exact instant, or refused.
//! 6. `queueing::channel`: a queue, in memory or through `storage`.
//! 7. `engine::delivery`: a ready consumer, into the output of its `clients::connection`.
//! 8. `io::reactor`: one `send` a consumer and turn; then `telemetry::latency` and `limiter::trace` record it.
//!
//! A message costs one allocation: the frame that all channels and consumers share.

pub mod arrival;
pub mod clients;
pub mod engine;
pub mod http;
pub mod io;
pub mod limiter;
pub mod mqtt;
pub mod protocol;
pub mod queueing;
pub mod scheduling;
pub mod storage;
pub mod telemetry;
pub mod transport;

pub mod config;
pub mod event;
pub mod id;
pub mod keys;
pub mod memory;
pub mod time;
pub mod timer;

#[cfg(any(test, feature = "harness"))]
pub mod harness;
#[cfg(test)]
mod tests;
