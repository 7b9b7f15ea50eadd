//! Topology-aware consumption, as nsqd's experiment: a ready consumer in the broker's zone comes first, then one in its
//! region.
//!
//! It is a preference only: no message is kept back for any consumer.

use crate::config::Config;
use crate::protocol::identify::Identity;

/// Distance class of a consumer, nearest first.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nearness {
    Zone,
    Region,
    #[default]
    Far,
}

impl Nearness {
    /// The class of a consumer. Zone and region are compared independently; a consumer without a location is far.
    pub fn of(identity: &Identity, config: &Config) -> Self {
        let same = |theirs: &str, ours: &str| !ours.is_empty() && theirs == ours;
        if same(identity.topology_zone(), &config.topology_zone) {
            Self::Zone
        } else if same(identity.topology_region(), &config.topology_region) {
            Self::Region
        } else {
            Self::Far
        }
    }
}

/// Deliveries of a channel, by distance class.
#[derive(Debug, Default)]
pub struct Deliveries {
    pub zone: u64,
    pub region: u64,
    pub far: u64,
}

impl Deliveries {
    pub fn record(&mut self, nearness: Nearness) {
        match nearness {
            Nearness::Zone => self.zone += 1,
            Nearness::Region => self.region += 1,
            Nearness::Far => self.far += 1,
        }
    }
}
