//! How long bytes are on their way between clients and this broker: half of the smallest round trip that the kernel has seen on their connections. (The
//! smoothed one has delayed acknowledgements in it.) Asked for only while somebody measures, of one topic after the other, a few connections in each turn.

use std::sync::Arc;

use slotmap::SecondaryMap;

use crate::keys::{ConnKey, TopicKey};
use crate::telemetry::measurement::Network;
use crate::time::Nanos;

#[derive(Debug, Default)]
pub(crate) struct NetworkDelay {
    pub(crate) asking: Option<(TopicKey, Nanos)>, // of whose clients, and since when
    pub(crate) unvisited: Vec<ConnKey>,
    pub(crate) found: Network,
    pub(crate) of_consumers: Vec<Nanos>,
    pub(crate) known: SecondaryMap<TopicKey, (Nanos, Arc<Network>)>, // asked for when, and what was found
}
