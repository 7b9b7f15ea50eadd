//! When bytes arrived: the stamps of a read, and the instants of packets where those are watched.
//!
//! Pure: imports `keys` and `time`. Begin with `stamps`; `flow_table` is for the packet clock.

pub mod flow_table;
pub mod packet_filter;
pub mod stamps;
pub mod tcp_sequence;
pub mod unread_since;
