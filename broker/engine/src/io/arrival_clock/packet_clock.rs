//! The packet clock: exact arrivals of the bytes of some ports' connections, from a ring of the packets that brought
//! them.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

use slotmap::SecondaryMap;

use crate::arrival::flow_table::Flows;
use crate::arrival::packet_filter::{Flow, is_intact, parse};
use crate::arrival::stamps::Stamps;
use crate::io::arrival_clock::ArrivalClock;
use crate::io::arrival_clock::packet_ring::Ring;
use crate::io::clock::{self, ClockMap};
use crate::io::host::denied::Refused;
use crate::io::listener::{Listener, Speaks};
use crate::keys::ConnKey;
use crate::telemetry::counters::Counters;
use crate::time::Nanos;

pub struct PacketClock {
    ring: Ring,
    flows: Flows,
    spans: Vec<(usize, Nanos)>,
    drained: Nanos,                     // what is in the ring came after this
    clocked: SecondaryMap<ConnKey, ()>, // connections to its ports, seen from their opening on or not
    fallbacks: u64,                     // reads of these that took the kernel's stamp: packets of them were not seen
}

impl PacketClock {
    /// For connections to the ports of `listeners`.
    ///
    /// Without CAP_NET_RAW, or where the kernel has no such rings, the error holds `Refused`.
    pub fn open(listeners: &[Listener]) -> io::Result<Self> {
        let ring = Ring::open(&ports(listeners)?).map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "needs the capability CAP_NET_RAW, which this process does not have".to_owned()
                }
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

    /// Note the packets that came since the last call.
    fn drain(&mut self, clock: &mut ClockMap) {
        let now = clock::monotonic();
        let (flows, since) = (&mut self.flows, self.drained);
        self.ring.drain(|packet| {
            if let Some(segment) = parse(packet.bytes).filter(|_| packet.is_checked || is_intact(packet.bytes)) {
                flows.note(&segment, clock.monotonic_of(packet.stamp, since, clock::monotonic()));
            }
        });
        self.drained = now;
    }
}

impl ArrivalClock for PacketClock {
    fn begin_turn(&mut self, clock: &mut ClockMap, counters: &mut Counters) {
        self.drain(clock);
        (counters.packets_lost, counters.packet_fallbacks) = (self.ring.lost(), self.fallbacks);
    }

    fn accept(&mut self, key: ConnKey, speaks: Speaks, fd: &OwnedFd, peer: Option<SocketAddr>, clock: &mut ClockMap) {
        let Some(peer) = peer.filter(|_| is_clocked(speaks)) else { return };
        let Ok(local) = fd.try_clone().and_then(|copy| TcpStream::from(copy).local_addr()) else { return };
        let end = |address: SocketAddr| (address.ip().to_canonical(), address.port());
        let flow = Flow { from: end(peer), to: end(local) };
        if !self.flows.is_opened(&flow) {
            self.drain(clock); // it was opened since the last look
        }
        self.flows.accept(key, flow);
        self.clocked.insert(key, ());
    }

    fn forget(&mut self, key: ConnKey) {
        self.flows.forget(key);
        self.clocked.remove(key);
    }

    fn missed(&mut self) -> bool {
        self.flows.missed()
    }

    fn stamps<'a>(&'a mut self, key: ConnKey, len: usize, of_read: Stamps<'a>, clock: &mut ClockMap) -> Stamps<'a> {
        if !self.flows.knows(key) {
            self.fallbacks += u64::from(self.clocked.contains_key(key));
            return of_read;
        }
        if !self.flows.covers(key, len) {
            self.drain(clock); // they came since the last look
        }
        self.spans.clear();
        if !self.flows.take(key, len, of_read.since(), &mut self.spans) {
            self.ring.count_lost();
            self.fallbacks += 1;
            return of_read;
        }
        Stamps::exact(&self.spans).unwrap_or(of_read)
    }
}

/// Whether packets carry the bytes of its commands: those of a TLS stream are elsewhere in them.
fn is_clocked(speaks: Speaks) -> bool {
    matches!(speaks, Speaks::Nsq | Speaks::Http | Speaks::Mqtt)
}

/// The numbers of the ports whose arrivals packets can tell.
fn ports(listeners: &[Listener]) -> io::Result<Vec<u16>> {
    let clocked = listeners.iter().filter(|listener| is_clocked(listener.speaks));
    let ports: Vec<u16> = clocked.filter_map(Listener::port).collect();
    if ports.is_empty() { Err(io::Error::other("the packet clock needs a TCP port")) } else { Ok(ports) }
}
