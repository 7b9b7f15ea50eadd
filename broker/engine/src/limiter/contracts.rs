//! Contracts of clients: how much a publisher or a tenant may send, and a consumer gets, whatever the topic. A publish
//! that they refuse takes nothing, neither of them nor of the topic's bucket.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use srtm_limits::contract::Contract;
use srtm_limits::limiter::{Limiter, Refused, Verdict};
use srtm_limits::state::Now;

use crate::time::Nanos;

/// The namespace of tenants: their subjects are the names that topics give.
pub const TENANTS: &str = "tenants";

/// Subjects of a namespace in memory; beyond them new ones share places. They take 100 bytes each at most.
const MAX_SUBJECTS: u64 = 1_000_000;

/// Subjects whose takes are kept for other brokers: many more than act between two polls.
const MAX_TAKEN: usize = 100_000;

/// Slots that each check looks at, to forget who has nothing used. A full table is seen through in as many checks as it
/// has slots, over this.
const SWEPT_A_CHECK: usize = 4;

/// Characters of a publisher's id by which it is known here: at most 1,024 bytes, which a subject may have.
const LONGEST: usize = 256;

/// Which contracts the publishers of a topic are under, as the control plane says it. Empty names are none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Terms {
    /// The namespace of publishers that `named` does not name.
    pub publishers: Box<str>,
    /// {namespace: publishers}.
    pub named: HashMap<Box<str>, Vec<Box<str>>>,
    /// The namespace of consumers.
    pub consumers: Box<str>,
    /// Whose topic it is.
    pub tenant: Box<str>,
}

/// Who is held to a contract.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    pub namespace: Box<str>,
    pub name: Box<str>,
}

/// The same as `Terms`, to look publishers up in.
#[derive(Debug)]
pub struct TopicContracts {
    publishers: Rc<str>,
    named: HashMap<Box<str>, Rc<str>>,
    consumers: Box<str>,
    pub tenant: Option<Rc<Subject>>,
}

impl TopicContracts {
    /// None: there is nobody whom they hold.
    pub fn of(terms: Terms) -> Option<Self> {
        if terms == Terms::default() {
            return None;
        }
        let Terms { publishers, named, consumers, tenant } = terms;
        let by_namespace = named.into_iter().map(|(namespace, ids)| (Rc::<str>::from(namespace), ids));
        Some(Self {
            publishers: publishers.into(),
            named: by_namespace
                .flat_map(|(namespace, ids)| ids.into_iter().map(move |id| (id, namespace.clone())))
                .collect(),
            consumers,
            tenant: (!tenant.is_empty()).then(|| Rc::new(Subject { namespace: TENANTS.into(), name: tenant })),
        })
    }

    /// What `publisher` is held to. None: nothing but the topic's limit.
    pub fn subject(&self, publisher: &str) -> Option<Rc<Subject>> {
        subject(self.named.get(publisher).unwrap_or(&self.publishers), publisher)
    }

    pub fn holds_consumers(&self) -> bool {
        !self.consumers.is_empty()
    }

    /// What a consumer is held to. `known`: what this gave for it before, on this topic.
    pub fn consumer(&self, consumer: &str, known: Option<Rc<Subject>>) -> Option<Rc<Subject>> {
        known.filter(|known| known.namespace == self.consumers).or_else(|| subject(&self.consumers, consumer))
    }
}

fn subject(namespace: &str, id: &str) -> Option<Rc<Subject>> {
    let subject = || Subject { namespace: namespace.into(), name: id.chars().take(LONGEST).collect() };
    (!namespace.is_empty()).then(|| Rc::new(subject()))
}

/// A contract that refuses.
#[derive(Debug, Clone, PartialEq)]
pub struct Breach {
    pub subject: Rc<Subject>,
    /// None: never, it is more than the contract allows at once.
    pub wait: Option<Nanos>,
    /// What it allows at once, in messages.
    pub most: u64,
}

/// What was asked of one contract since it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContractView {
    pub namespace: Box<str>,
    pub subject: Box<str>,
    pub shadow: bool,
    pub policies: Vec<PolicyView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyView {
    pub name: Box<str>,
    pub allowed: u64, // publishes
    pub refused: u64, // by this policy; under a shadow contract they passed
    pub cost: u64,    // messages of the allowed ones
}

/// What a subject took: namespace, subject, cost.
pub type Taken = (Box<str>, Box<str>, u64);

/// The contracts in force, and who has used what of them.
#[derive(Debug)]
pub struct Contracts {
    limiter: Limiter,
    replicated: HashSet<u32>,         // numbers of contracts that brokers hold together
    taken: HashMap<Rc<Subject>, u64>, // of these, since `poll_taken`
}

impl Default for Contracts {
    fn default() -> Self {
        let key = || RandomState::new().hash_one(0); // the standard library's keys are secret, and serve as well here
        let limiter = Limiter::new((key(), key()), MAX_SUBJECTS);
        Self { limiter, replicated: HashSet::new(), taken: HashMap::new() }
    }
}

impl Contracts {
    /// Puts a contract in force. Subjects keep what they have used, unless its policies are of other kinds.
    /// `is_replicated`: what is taken of it is to be told to other brokers.
    pub fn put(&mut self, contract: Contract, is_replicated: bool, now: Now) -> Result<(), Refused> {
        let number = self.limiter.put_contract(contract, now)?;
        match is_replicated {
            true => self.replicated.insert(number),
            false => self.replicated.remove(&number),
        };
        Ok(())
    }

    /// What was taken of replicated contracts since the last call.
    pub fn poll_taken(&mut self) -> Vec<Taken> {
        let taken = std::mem::take(&mut self.taken).into_iter();
        taken.map(|(subject, cost)| (subject.namespace.clone(), subject.name.clone(), cost)).collect()
    }

    /// Takes what subjects took at another broker, also below nothing. Who has no contract here owes nothing.
    pub fn charge(&mut self, taken: &[Taken], now: Now) {
        for (namespace, subject, cost) in taken {
            let cost = i64::try_from(*cost).unwrap_or(i64::MAX);
            _ = self.limiter.charge(namespace, subject, cost, now);
        }
    }

    /// False: there is none of this pattern.
    pub fn remove(&mut self, namespace: &str, pattern: &str) -> bool {
        self.limiter.remove_contract(namespace, pattern)
    }

    /// Takes `cost` from the contracts of all `subjects`, or from none. Who has no contract is not held to one.
    pub fn take<'a>(
        &mut self,
        subjects: impl Iterator<Item = &'a Rc<Subject>> + Clone,
        cost: u32,
        now: Now,
    ) -> Result<(), Breach> {
        let mut refuses = |subject: &&Rc<Subject>| {
            let found = self.limiter.peek(&subject.namespace, &subject.name, cost, now);
            found.is_ok_and(|verdict| !verdict.allowed)
        };
        if subjects.clone().nth(1).is_some()
            && let Some(subject) = subjects.clone().find(&mut refuses)
        {
            return self.take_one(subject, cost, now); // it counts the refusal
        }
        subjects.into_iter().try_for_each(|subject| self.take_one(subject, cost, now))
    }

    fn take_one(&mut self, subject: &Rc<Subject>, cost: u32, now: Now) -> Result<(), Breach> {
        self.limiter.sweep(SWEPT_A_CHECK, now);
        match self.limiter.check(&subject.namespace, &subject.name, cost, now) {
            Ok(verdict) if !verdict.allowed => return Err(self.breach(subject, &verdict)),
            Ok(verdict) if self.replicated.contains(&verdict.contract) && !verdict.shadowed => {
                self.note_taken(subject, cost);
            }
            _ => {}
        }
        Ok(())
    }

    fn note_taken(&mut self, subject: &Rc<Subject>, cost: u32) {
        if let Some(taken) = self.taken.get_mut(subject) {
            *taken += u64::from(cost);
        } else if self.taken.len() < MAX_TAKEN {
            self.taken.insert(subject.clone(), u64::from(cost));
        }
    }

    #[cold]
    fn breach(&self, subject: &Rc<Subject>, verdict: &Verdict) -> Breach {
        let policies = self.limiter.contract(verdict.contract).map_or(&[][..], |contract| &contract.policies);
        let most = policies.iter().map(|policy| policy.rule.most()).min().unwrap_or(0);
        Breach { subject: subject.clone(), wait: (verdict.wait < Nanos::MAX).then_some(verdict.wait), most }
    }

    /// The contracts with numbers above `after`, at most `most` of them, each with its number.
    pub fn views(&self, after: u32, most: usize) -> Vec<(u32, ContractView)> {
        let views = self.limiter.contracts_after(after).map(|(number, contract, counts)| {
            let policy =
                |(policy, count): (&srtm_limits::policy::Policy, &srtm_limits::limiter::PolicyCounts)| PolicyView {
                    name: policy.name.clone(),
                    allowed: count.allowed,
                    refused: count.refused,
                    cost: count.cost,
                };
            let view = ContractView {
                namespace: contract.namespace.clone(),
                subject: contract.subject.clone(),
                shadow: contract.shadow,
                policies: contract.policies.iter().zip(counts).map(policy).collect(),
            };
            (number, view)
        });
        views.take(most).collect()
    }
}

#[cfg(test)]
mod tests {
    use srtm_limits::policy::{Policy, Rule};

    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn at(mono: Nanos) -> Now {
        Now { mono, wall: mono }
    }

    fn bucket(namespace: &str, rate: u64, burst: u64) -> Contract {
        let rule = Rule::Bucket { rate_micro: rate * 1_000_000, burst_micro: burst * 1_000_000, max_debt_micro: 0 };
        let policies = vec![Policy { name: "burst".into(), rule }];
        Contract { namespace: namespace.into(), subject: "*".into(), policies, shadow: false, starts_full: true }
    }

    fn subject(namespace: &str, name: &str) -> Rc<Subject> {
        Rc::new(Subject { namespace: namespace.into(), name: name.into() })
    }

    fn refused(contracts: &Contracts) -> Vec<u64> {
        contracts.views(0, 9).iter().map(|(_, view)| view.policies[0].refused).collect()
    }

    #[test]
    fn each_subject_has_a_bucket_of_its_own_and_is_told_when() {
        let mut contracts = Contracts::default();
        contracts.put(bucket("sensors", 10, 2), false, at(0)).expect("valid");
        let (one, two) = (subject("sensors", "1"), subject("sensors", "2"));
        assert_eq!(contracts.take([&one].into_iter(), 2, at(0)), Ok(()));
        let breach = contracts.take([&one].into_iter(), 1, at(0)).expect_err("empty");
        assert_eq!((breach.wait, breach.subject), (Some(SECOND / 10), one.clone()));
        assert_eq!(contracts.take([&two].into_iter(), 2, at(0)), Ok(()));
        assert_eq!(contracts.take([&one].into_iter(), 1, at(SECOND / 10)), Ok(()));
        let never = contracts.take([&one].into_iter(), 3, at(9 * SECOND)).expect_err("above the burst");
        assert_eq!((never.wait, never.most), (None, 2));
        assert_eq!(contracts.take([&subject("nosuch", "1")].into_iter(), 9, at(0)), Ok(()), "nobody's contract");
    }

    #[test]
    fn what_one_of_two_refuses_takes_nothing_of_the_other() {
        let mut contracts = Contracts::default();
        contracts.put(bucket("sensors", 1, 9), false, at(0)).expect("valid");
        contracts.put(bucket(TENANTS, 1, 3), false, at(0)).expect("valid");
        let (sensor, tenant) = (subject("sensors", "1"), subject(TENANTS, "acme"));
        let both = || [&sensor, &tenant].into_iter();
        assert_eq!(contracts.take(both(), 3, at(0)), Ok(()));
        assert_eq!(contracts.take(both(), 1, at(0)).expect_err("the tenant").subject, tenant);
        assert_eq!(refused(&contracts), [0, 1]);
        assert_eq!(contracts.take([&sensor].into_iter(), 6, at(0)), Ok(()), "all that it had left");
    }

    #[test]
    fn a_shadow_counts_and_lets_pass() {
        let mut contracts = Contracts::default();
        contracts.put(Contract { shadow: true, ..bucket("sensors", 1, 1) }, false, at(0)).expect("valid");
        let one = subject("sensors", "1");
        for _ in 0..3 {
            assert_eq!(contracts.take([&one].into_iter(), 1, at(0)), Ok(()));
        }
        assert_eq!(refused(&contracts), [2]);
    }

    #[test]
    fn terms_name_a_contract_for_some_publishers_and_one_for_all_others() {
        let named = HashMap::from([("gateways".into(), vec!["g".into()])]);
        let contracts = TopicContracts::of(Terms {
            publishers: "sensors".into(),
            named,
            consumers: "c".into(),
            tenant: "acme".into(),
        });
        let contracts = contracts.expect("some");
        assert_eq!(contracts.subject("g"), Some(subject("gateways", "g")));
        assert_eq!(contracts.subject("s"), Some(subject("sensors", "s")));
        assert_eq!(contracts.tenant, Some(subject(TENANTS, "acme")));
        let known = contracts.consumer("1", None);
        assert_eq!(known, Some(subject("c", "1")));
        assert_eq!(contracts.consumer("1", Some(subject("before", "1"))), known, "the terms have changed");
        assert!(TopicContracts::of(Terms::default()).is_none());
        let only_tenant = TopicContracts::of(Terms { tenant: "acme".into(), ..Terms::default() }).expect("some");
        assert_eq!((only_tenant.subject("s"), only_tenant.consumer("c", None)), (None, None));
    }

    #[test]
    fn views_come_in_portions() {
        let mut contracts = Contracts::default();
        for number in 0..5 {
            contracts.put(bucket(&number.to_string(), 1, 1), false, at(0)).expect("valid");
        }
        let first = contracts.views(0, 3);
        assert_eq!(first.len(), 3);
        let rest = contracts.views(first[2].0, 3);
        assert_eq!(rest.iter().map(|(_, view)| &*view.namespace).collect::<Vec<_>>(), ["3", "4"]);
    }

    #[test]
    fn what_is_taken_of_a_replicated_contract_is_told_and_taken_elsewhere() {
        let (mut here, mut there) = (Contracts::default(), Contracts::default());
        for contracts in [&mut here, &mut there] {
            contracts.put(bucket("sensors", 10, 5), true, at(0)).expect("valid");
            contracts.put(bucket("local", 10, 5), false, at(0)).expect("valid");
        }
        let one = subject("sensors", "1");
        for subject in [&one, &subject("local", "1"), &one] {
            here.take([subject].into_iter(), 2, at(0)).expect("there");
        }
        let taken = here.poll_taken();
        assert_eq!(taken, [("sensors".into(), "1".into(), 4)]);
        assert_eq!(here.poll_taken(), []);
        there.charge(&taken, at(0));
        assert_eq!(there.take([&one].into_iter(), 1, at(0)), Ok(()));
        assert!(there.take([&one].into_iter(), 1, at(0)).is_err());
        assert_eq!(there.poll_taken(), [("sensors".into(), "1".into(), 1)], "not what it was told");
        there.charge(&[("sensors".into(), "1".into(), u64::MAX), ("nosuch".into(), "1".into(), 1)], at(0));
        let breach = there.take([&one].into_iter(), 1, at(0)).expect_err("it owes");
        assert_eq!(breach.wait, Some(SECOND / 10), "no debt: the contract allows none");
    }
}
