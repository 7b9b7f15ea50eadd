//! The data plane of an SRTM broker: NSQ protocol V2, an exact token bucket per topic, four latency histograms, one epoll reactor.
//!
//! Everything outside `io` is sans-I/O: bytes, keys and `now` come in, values go out, no clock is read. A message meets the modules in this order:
//! `io::reactor` (one `recvmsg` with the kernel's stamp) -> `wire` (a command) -> `collect` (made messages) -> `publish` (at the end of the turn decided in
//! order of arrival) -> `topic` / `backlog` / `bucket` (released now, at an exact instant, or refused) -> `channel` (a queue) -> `delivery` (a ready consumer) ->
//! `connection` (its out buffer) -> `io::reactor` (one `send` a consumer and turn) -> `latency` (four histograms), `trace`.
//! It costs one allocation: the frame that all channels and consumers share.

pub mod config;
pub mod event;
#[cfg(any(test, feature = "harness"))]
pub mod harness;
pub mod http;
pub mod id;
pub mod io;
pub mod keys;
pub mod memory;
pub mod time;
pub mod timer;

pub mod arrival;
pub mod clients;
pub mod engine;
pub mod limiter;
pub mod protocol;
pub mod queueing;
pub mod scheduling;
pub mod storage;
pub mod telemetry;
#[cfg(test)]
mod tests;
pub mod transport;
