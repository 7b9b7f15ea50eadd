//! Whose word counts for when bytes arrived: by default the kernel's stamp of a read, or that of each packet.
//!
//! Imports `arrival`, `keys`, `telemetry`, `time`, and `io`'s clock, host and listener. Begin with `ArrivalClock`;
//! `packet_clock` is the other one (cargo feature `packet-clock`), `packet_ring` the kernel's side of it.

#[cfg(feature = "packet-clock")]
pub mod packet_clock;
#[cfg(feature = "packet-clock")]
mod packet_ring;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use crate::arrival::stamps::Stamps;
use crate::io::clock::ClockMap;
#[cfg(not(feature = "packet-clock"))]
use crate::io::host::denied::Refused;
use crate::io::listener::Speaks;
use crate::keys::ConnKey;
use crate::telemetry::counters::Counters;

/// When the bytes of connections arrived. What an implementation leaves out, the stamp of a read answers.
pub trait ArrivalClock {
    /// A turn begins; its reads come next.
    fn begin_turn(&mut self, _clock: &mut ClockMap, _counters: &mut Counters) {}

    /// A connection was accepted. `peer` is `None` on a Unix socket.
    fn accept(
        &mut self,
        _key: ConnKey,
        _speaks: Speaks,
        _fd: &OwnedFd,
        _peer: Option<SocketAddr>,
        _clock: &mut ClockMap,
    ) {
    }

    /// The connection is gone, or its further bytes are dropped unread.
    fn forget(&mut self, _key: ConnKey) {}

    /// Whether something came, before this turn began, on connections that were not read in it.
    fn missed(&mut self) -> bool {
        false
    }

    /// Arrivals of the `len` bytes that were just read; `of_read` is what the stamp of the read tells.
    fn stamps<'a>(&'a mut self, _key: ConnKey, _len: usize, of_read: Stamps<'a>, _clock: &mut ClockMap) -> Stamps<'a> {
        of_read
    }
}

/// The kernel's stamp of a read: one for all segments that it merges.
#[derive(Debug)]
pub struct ReadClock;

impl ArrivalClock for ReadClock {}

/// Why this build has no packet clock.
#[cfg(not(feature = "packet-clock"))]
pub fn needs_feature() -> std::io::Error {
    let why = "packet needs a build with the cargo feature packet-clock".to_owned();
    std::io::Error::other(Refused { field: "arrival_clock", why })
}
