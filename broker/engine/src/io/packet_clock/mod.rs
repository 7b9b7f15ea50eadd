//! The packet clock: exact arrivals of the bytes of some ports' connections, from a ring of the packets that brought
//! them.
//!
//! Imports `arrival`, `keys`, `time`, and `io`'s clock and host. Begin with `PacketClock`; `ring` is the kernel's side.

pub mod ring;

use std::io;
use std::net::SocketAddr;

use slotmap::SecondaryMap;

use crate::arrival::flow_table::Flows;
use crate::arrival::packet_filter::{Flow, parse};
use crate::arrival::stamps::Stamps;
use crate::io::clock::{self, ClockMap};
use crate::io::host::denied::Refused;
use crate::io::packet_clock::ring::Ring;
use crate::keys::ConnKey;
use crate::time::Nanos;

pub struct PacketClock {
    ring: Ring,
    flows: Flows,
    spans: Vec<(usize, Nanos)>,
    drained: Nanos,                     // what is in the ring came after this
    clocked: SecondaryMap<ConnKey, ()>, // connections to its ports, seen from their opening on or not
    fallbacks: u64,
}

impl PacketClock {
    /// For connections to `ports`. Without CAP_NET_RAW, or where the kernel has no such rings, the error holds `Refused`.
    pub fn open(ports: &[u16]) -> io::Result<Self> {
        let ring = Ring::open(ports).map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::PermissionDenied => "needs the capability CAP_NET_RAW, which this process does not have".to_owned(),
                _ => format!("needs a packet ring, which the kernel refuses ({error})"),
            };
            io::Error::new(error.kind(), Refused { field: "arrival_clock", why })
        })?;
        Ok(Self {
            ring,
            flows: Flows::default(),
            spans: Vec::new(),
            drained: clock::monotonic(),
            clocked: SecondaryMap::new(),
            fallbacks: 0,
        })
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

    /// Reads of connections to its ports of which packets were not seen: they took the kernel's stamp.
    pub fn fallbacks(&self) -> u64 {
        self.fallbacks
    }

    pub fn accept(&mut self, key: ConnKey, peer: SocketAddr, local: SocketAddr, clock: &mut ClockMap) {
        let end = |address: SocketAddr| (address.ip().to_canonical(), address.port());
        let flow = Flow { from: end(peer), to: end(local) };
        if !self.flows.is_opened(&flow) {
            self.drain(clock); // it was opened since the last look
        }
        self.flows.accept(key, flow);
        self.clocked.insert(key, ());
    }

    /// The connection is gone, or nothing more of it is for anybody.
    pub fn forget(&mut self, key: ConnKey) {
        self.flows.forget(key);
        self.clocked.remove(key);
    }

    /// Whether something came, before the last `drain`, to connections that were not read after it: the wait did not report them yet.
    pub fn missed(&mut self) -> bool {
        self.flows.missed()
    }

    /// Arrivals of the `len` bytes that were just read; `None` where packets of them were not seen, and of connections to other ports.
    pub fn stamps(&mut self, key: ConnKey, len: usize, clock: &mut ClockMap) -> Option<Stamps<'_>> {
        if !self.flows.knows(key) {
            self.fallbacks += u64::from(self.clocked.contains_key(key));
            return None;
        }
        if !self.flows.covers(key, len) {
            self.drain(clock); // they came since the last look
        }
        self.spans.clear();
        if !self.flows.take(key, len, &mut self.spans) {
            self.ring.count_lost();
            self.fallbacks += 1;
            return None;
        }
        Stamps::exact(&self.spans)
    }
}
