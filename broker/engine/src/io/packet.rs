//! The packet clock: exact arrivals of the bytes of one listener's connections, from a ring of the packets that brought them.

use std::io;
use std::net::SocketAddr;

use crate::arrival::Stamps;
use crate::bucket::Nanos;
use crate::engine::ConnKey;
use crate::flows::Flows;
use crate::io::clock::{self, ClockMap};
use crate::io::refused::Refused;
use crate::io::ring::Ring;
use crate::packet::{Flow, parse};

pub struct PacketClock {
    ring: Ring,
    flows: Flows,
    spans: Vec<(usize, Nanos)>,
    drained: Nanos, // what is in the ring came after this
}

impl PacketClock {
    /// For connections to `port`. Without CAP_NET_RAW, or where the kernel has no such rings, the error holds `Refused`.
    pub fn open(port: u16) -> io::Result<Self> {
        let ring = Ring::open(port).map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::PermissionDenied => "needs the capability CAP_NET_RAW, which this process does not have".to_owned(),
                _ => format!("needs a packet ring, which the kernel refuses ({error})"),
            };
            io::Error::new(error.kind(), Refused { field: "arrival_clock", why })
        })?;
        Ok(Self { ring, flows: Flows::default(), spans: Vec::new(), drained: clock::monotonic() })
    }

    /// Take in what came since the last time.
    pub fn drain(&mut self, clock: &mut ClockMap) {
        let now = clock::monotonic();
        let (flows, since) = (&mut self.flows, self.drained);
        self.ring.drain(|packet| {
            if let Some(segment) = parse(packet.bytes) {
                flows.note(&segment, clock.monotonic_of(packet.stamp, since, clock::monotonic()));
            }
        });
        self.drained = now;
    }

    /// Packets that the ring had no room for.
    pub fn lost(&self) -> u64 {
        self.ring.lost()
    }

    pub fn accept(&mut self, key: ConnKey, peer: SocketAddr, local: SocketAddr, clock: &mut ClockMap) {
        let end = |address: SocketAddr| (address.ip().to_canonical(), address.port());
        let flow = Flow { from: end(peer), to: end(local) };
        if !self.flows.is_opened(&flow) {
            self.drain(clock); // it was opened since the last look
        }
        self.flows.accept(key, flow);
    }

    /// The connection is gone, or its bytes are no longer those of its commands.
    pub fn forget(&mut self, key: ConnKey) {
        self.flows.forget(key);
    }

    /// Whether something came, before the last `drain`, to connections that were not read after it: the wait did not report them yet.
    pub fn missed(&mut self) -> bool {
        self.flows.missed()
    }

    /// Arrivals of the `len` bytes that were just read; `None` where packets of them were not seen.
    pub fn stamps(&mut self, key: ConnKey, len: usize, clock: &mut ClockMap) -> Option<Stamps<'_>> {
        if !self.flows.knows(key) {
            return None;
        }
        if !self.flows.covers(key, len) {
            self.drain(clock); // they came since the last look
        }
        self.spans.clear();
        if !self.flows.take(key, len, &mut self.spans) {
            self.ring.count_lost();
            return None;
        }
        Stamps::exact(&self.spans)
    }
}
