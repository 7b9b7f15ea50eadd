//! When bytes arrived: stamps of reads, bounds on what a stamp can be, and the instants of packets where those are kept.
//!
//! Pure: imports `time` and `keys`. Begin with `stamps`.

pub mod flow_table;
pub mod packet_filter;
pub mod stamps;
pub mod tcp_sequence;
pub mod unread_since;
