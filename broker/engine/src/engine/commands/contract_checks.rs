//! Contracts of clients: set between two turns, asked when a publish is decided, and before each delivery.

use srtm_limits::contract::Contract;
use srtm_limits::limiter::Refused;
use srtm_limits::state::Now;

use crate::clients::connection::Connection;
use crate::engine::Engine;
use crate::keys::{ConnKey, SessionKey, TopicKey};
use crate::limiter::contracts::{Contracts, SubjectView, Taken};
use crate::limiter::topic_contracts::{Terms, TopicContracts};
use crate::protocol::verb::Verb;
use crate::queueing::publish::Outcome;
use crate::time::{NS_PER_S, Nanos};
use crate::timer::{Timer, Timers};

impl Engine {
    /// Puts contracts in force, each with whether brokers hold it together; gives the refusal of each. What subjects
    /// have used stays, as long as the policies are of the same kinds. `rejoins`: this broker may have held them
    /// before, or others.
    pub fn set_contracts(
        &mut self,
        contracts: Vec<(Contract, bool)>,
        rejoins: bool,
        now: Nanos,
    ) -> Vec<Option<Refused>> {
        let now = self.both_clocks(now);
        self.contracts.put(contracts, rejoins, now)
    }

    /// What clients took of replicated contracts since the last call.
    pub fn poll_taken(&mut self, now: Nanos) -> Vec<Taken> {
        let now = self.both_clocks(now);
        self.contracts.poll_taken(now)
    }

    /// Takes what clients took at another broker. `late`: since it was last reached; then a burst at most counts.
    pub fn charge_contracts(&mut self, taken: &[Taken], late: bool, now: Nanos) {
        let now = self.both_clocks(now);
        self.contracts.charge(taken, late, now);
    }

    /// By how much subjects of replicated contracts are below zero, by what other brokers told.
    pub fn overdrawn(&mut self, now: Nanos) -> Vec<Taken> {
        let now = self.both_clocks(now);
        self.contracts.overdrawn(now)
    }

    /// Until this replicated contracts that were put with `rejoins` refuse everybody. What other brokers answered about
    /// `overdrawn` is charged right after it.
    pub fn join_contracts(&mut self, now: Nanos) {
        let now = self.both_clocks(now);
        self.contracts.join(now);
    }

    /// False: there is none of this pattern.
    pub fn remove_contract(&mut self, namespace: &str, pattern: &str) -> bool {
        self.contracts.remove(namespace, pattern)
    }

    /// The `most` most checked subjects of a namespace, heaviest first.
    pub fn heaviest_subjects(&mut self, namespace: &str, most: usize, now: Nanos) -> Vec<SubjectView> {
        let now = self.both_clocks(now);
        self.contracts.heaviest(namespace, most, now)
    }

    /// Sets which contracts the publishers of a topic are under.
    pub fn set_terms(&mut self, topic: &str, terms: Terms) {
        let key = self.topic_of(topic);
        let Some(topic) = self.topics.get_mut(key) else { return };
        topic.contracts = TopicContracts::of(terms).map(Box::new);
        topic.generation += 1;
    }

    /// Takes tokens of all contracts that a publish of the turn is under, unless its topic refuses it anyway; else says
    /// how they refuse it. `at`: when it came, as the topic has it.
    pub(crate) fn refused_by_contract(&mut self, index: usize, at: Nanos) -> Option<Outcome> {
        let now = self.both_clocks(at);
        let publish = &self.turn.publishes[index];
        let (count, is_patient) = (publish.count, publish.verb == Verb::PatientPublish);
        let topic = self.topics.get_mut(publish.topic)?;
        let tenant = topic.contracts.as_ref().and_then(|contracts| contracts.tenant.as_ref());
        let subjects = publish.source.held_to.iter().chain(tenant);
        subjects.clone().next()?;
        if topic.limiter.as_ref().is_some_and(|limiter| limiter.admit(count, publish.bytes, at, is_patient).is_err()) {
            return None;
        }
        let breach = self.contracts.take(subjects, count, now).err()?;
        topic.counters.received += u64::from(count);
        topic.counters.rejected += u64::from(count);
        Some(match breach.wait {
            Some(wait) => Outcome::Limited { retry_at: Some(at.saturating_add(wait)), contract: Some(breach.subject) },
            None => Outcome::TooLarge { burst: breach.most as f64 },
        })
    }

    /// Whether a topic's subscribers by MQTT are held to contracts.
    pub(crate) fn holds_subscribers(&self, topic: Option<TopicKey>) -> bool {
        let topic = topic.and_then(|key| self.topics.get(key));
        topic.and_then(|topic| topic.contracts.as_deref()).is_some_and(TopicContracts::holds_consumers)
    }

    /// Whether its contract lets a subscriber by MQTT have one more message of a topic now. If not, what its session is
    /// owed goes on when it does.
    pub(crate) fn may_have(&mut self, session: SessionKey, topic: Option<TopicKey>, now: Nanos) -> bool {
        let topic = topic.and_then(|key| self.topics.get(key));
        let terms = topic.and_then(|topic| topic.contracts.as_deref()).filter(|terms| terms.holds_consumers());
        let Some(terms) = terms else { return true };
        let Some(key) = self.mqtt.sessions.get(session).and_then(|session| session.conn) else { return true };
        let Some(conn) = self.conns.get_mut(key) else { return true };
        let clocks = Now { mono: now, wall: self.clock.wall(now) };
        !conn.allowance.is_over
            && Self::has_allowance(&mut self.contracts, &mut self.timers, terms, (key, conn), clocks)
    }

    /// Whether its contract lets a consumer have one more message now. If not, it is listed again when it does.
    pub(crate) fn has_allowance(
        contracts: &mut Contracts,
        timers: &mut Timers,
        terms: &TopicContracts,
        (key, conn): (ConnKey, &mut Connection),
        now: Now,
    ) -> bool {
        let known = conn.allowance.held_to.take();
        conn.allowance.held_to = terms.consumer(conn.client_id(), known);
        let Some(breach) = contracts.take(conn.allowance.held_to.iter(), 1, now).err() else { return true };
        // Not longer than that: the contract may change.
        let at = now.mono.saturating_add(breach.wait.unwrap_or(NS_PER_S).min(NS_PER_S));
        conn.allowance.is_over = true;
        timers.arm(&mut conn.allowance.armed, at, Timer::Allowance(key));
        false
    }

    pub(crate) fn handle_allowance(&mut self, key: ConnKey, at: Nanos) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if conn.allowance.armed.fire(at) {
            conn.allowance.is_over = false;
            self.list_if_ready(key);
            self.list_if_owed(key);
        }
    }

    pub(crate) fn both_clocks(&self, mono: Nanos) -> Now {
        Now { mono, wall: self.clock.wall(mono) }
    }
}
