//! Topology-aware consumption, an experiment of nsqd's: of the consumers that are ready, one in the broker's own zone comes first, then one in its
//! region. A preference only: nothing is kept back for anybody.

use crate::config::Config;
use crate::protocol::identify::Identity;

/// How near a consumer is, nearest first.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nearness {
    Zone,
    Region,
    #[default]
    Far,
}

impl Nearness {
    /// Zone and region are compared independently; who does not say where it is, is far.
    pub fn of(identity: &Identity, config: &Config) -> Self {
        let same = |theirs: &str, ours: &str| !ours.is_empty() && theirs == ours;
        if same(&identity.topology_zone, &config.topology_zone) {
            Self::Zone
        } else if same(&identity.topology_region, &config.topology_region) {
            Self::Region
        } else {
            Self::Far
        }
    }
}

/// Deliveries of a channel, by nearness.
#[derive(Debug, Default)]
pub struct Deliveries {
    pub zone: u64,
    pub region: u64,
    pub far: u64,
}

impl Deliveries {
    pub fn note(&mut self, nearness: Nearness) {
        match nearness {
            Nearness::Zone => self.zone += 1,
            Nearness::Region => self.region += 1,
            Nearness::Far => self.far += 1,
        }
    }
}
