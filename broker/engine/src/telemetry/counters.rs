//! Counters of an engine besides those of its topics: connections, stamps, clocks.

use crate::arrival::stamps::Sharing;

/// Counts since the engine began.
#[derive(Debug, Default)]
pub struct Counters {
    pub clock_steps: u64,      // of the wall clock, seen by the reactor
    pub stamps_corrected: u64, // out of the bounds in which their bytes can have come
    pub accepted: u64,
    pub accept_failures: u64,     // for want of descriptors or memory
    pub timestamp_fallbacks: u64, // reads with publishes that the kernel gave no stamp for
    pub sharing: Sharing,
    pub packet_fallbacks: u64, // reads of clocked ports that took the kernel's stamp although packets count
    pub packets_lost: u64,     // the ring had no room for them
}
