//! Contracts of clients: set between two turns, asked when a publish is decided.

use srtm_limits::contract::Contract;
use srtm_limits::limiter::Refused;
use srtm_limits::state::Now;

use crate::engine::Engine;
use crate::keys::TopicKey;
use crate::limiter::contracts::{Terms, TopicContracts};
use crate::queueing::publish::{Outcome, Source};
use crate::time::Nanos;

impl Engine {
    /// Puts a contract in force. What its subjects have used stays, as long as its policies are of the same kinds.
    pub fn set_contract(&mut self, contract: Contract, now: Nanos) -> Result<(), Refused> {
        let now = self.both_clocks(now);
        self.contracts.put(contract, now)
    }

    /// False: there is none of this pattern.
    pub fn remove_contract(&mut self, namespace: &str, pattern: &str) -> bool {
        self.contracts.remove(namespace, pattern)
    }

    /// Sets which contracts the publishers of a topic are under.
    pub fn set_terms(&mut self, topic: &str, terms: Terms) {
        let key = self.topic_of(topic);
        let Some(topic) = self.topics.get_mut(key) else { return };
        topic.contracts = TopicContracts::of(terms).map(Box::new);
        topic.generation += 1;
    }

    /// Takes tokens of all contracts that a publish is under; else says how they refuse it.
    pub(crate) fn refused_by_contract(
        &mut self,
        key: TopicKey,
        source: &Source,
        count: u32,
        stamp: Nanos,
    ) -> Option<Outcome> {
        let now = self.both_clocks(stamp);
        let topic = self.topics.get_mut(key)?;
        let tenant = topic.contracts.as_ref().and_then(|contracts| contracts.tenant.as_ref());
        let subjects = source.held_to.iter().chain(tenant);
        let breach = self.contracts.take(subjects, count, now).err()?;
        topic.counters.rejected += u64::from(count);
        Some(match breach.wait {
            Some(wait) => {
                Outcome::Limited { retry_at: Some(stamp.saturating_add(wait)), contract: Some(breach.subject) }
            }
            None => Outcome::TooLarge { burst: breach.most as f64 },
        })
    }

    fn both_clocks(&self, mono: Nanos) -> Now {
        Now { mono, wall: self.clock.wall(mono) }
    }
}
