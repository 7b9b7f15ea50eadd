//! When bytes arrived: the stamps of a read, and the instants of packets where those are watched.
//!
//! Pure: imports `keys` and `time`. Begin with `stamps`; `flow_table` is for the packet clock.

#[cfg(feature = "packet-clock")]
pub mod flow_table;
#[cfg(feature = "packet-clock")]
pub mod packet_filter;
pub mod stamps;
#[cfg(feature = "packet-clock")]
pub mod tcp_sequence;
pub mod unread_since;
