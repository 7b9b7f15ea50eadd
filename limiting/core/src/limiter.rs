//! The limiter: contracts, the subjects under them, and what may be asked of both.

mod corrections;
pub mod kept_use;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};
use thiserror::Error;

use crate::Nanos;
use crate::contract::{Contract, Contracts};
use crate::grant::{Corrected, GRANT_BYTES, Grant};
use crate::heavy::{Heaviest, Heavy};
use crate::policy::{BadPolicy, MAX_POLICIES, Rule};
use crate::state::{Look, Now, Stores};
use crate::table::{Hash, Place, Table};

/// Buckets that new subjects share where their namespace has as many subjects as it may have.
pub(crate) const OVERFLOW_SUBJECTS: u32 = 1_024;

/// Bytes of the longest subject: what is longer is refused before it is hashed.
pub const MAX_SUBJECT: usize = 1_024;

/// Bytes of the longest pattern or name of a namespace or policy.
pub const MAX_NAME: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refused {
    #[error("policies: must be 1 to 8")]
    Policies,
    #[error("policies: {0:?} is the name of two")]
    TwoPolicies(Box<str>),
    #[error("policy {0:?}: {1}")]
    Policy(Box<str>, BadPolicy),
    #[error("{0}: must be 1 to 255 bytes")]
    Name(&'static str),
    #[error("subject: at most 1024 bytes")]
    Subject,
    #[error("subject: no contract is for it")]
    NoContract,
    #[error("grant: is none of this limiter")]
    NotAGrant,
    #[error("grant: is older than 60 s")]
    OldGrant,
    #[error("grant: was used before")]
    UsedGrant,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub allowed: bool,
    pub contract: u32,
    /// What each policy says, in the contract's order, after the check where it was allowed.
    pub policies: Vec<Look>,
    /// Bits of the policies that refuse.
    pub violated: u8,
    /// The longest time to wait: until it may be asked again if refused, else before going on. `Nanos::MAX`: for ever.
    pub wait: Nanos,
    /// For a correction or release; of a refusal or a peek there is none.
    pub grant: Option<[u8; GRANT_BYTES]>,
    /// The namespace has no room for another subject: this one shares with others.
    pub shared: bool,
    /// A shadow contract refuses, and lets it pass.
    pub shadowed: bool,
}

/// Counts of one policy since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PolicyCounts {
    pub allowed: u64, // checks
    pub refused: u64, // checks that this policy refused
    pub cost: u64,    // of the allowed ones
}

#[derive(Debug, Default)]
struct Namespace {
    subjects: u64,
    heaviest: Heaviest,
}

/// Limits of any number of subjects. `key`: of the hash, and of grants; the same on all nodes of a cluster.
#[derive(Debug)]
pub struct Limiter {
    key: (u64, u64),
    subjects_key: (u64, u64),
    max_subjects: u64, // a namespace
    contracts: Contracts,
    tables: BTreeMap<usize, Table>, // by the words of a contract's policies
    stores: Stores,
    namespaces: HashMap<Box<str>, Namespace>,
    counts: HashMap<u32, Vec<PolicyCounts>>,
    corrected: Corrected,
    granted: u64,
    kept: HashMap<u32, u8>,         // by contract: bits of the policies that are kept on disk
    changed: BTreeSet<(u32, Hash)>, // subjects of these contracts whose use is news to the disk
}

impl Limiter {
    pub fn new(key: (u64, u64), max_subjects: u64) -> Self {
        Self {
            key,
            subjects_key: key,
            max_subjects,
            contracts: Contracts::default(),
            tables: BTreeMap::new(),
            stores: Stores::default(),
            namespaces: HashMap::new(),
            counts: HashMap::new(),
            corrected: Corrected::default(),
            granted: 0,
            kept: HashMap::new(),
            changed: BTreeSet::new(),
        }
    }

    /// Hashes subjects by another key: one that outlives the process, as what is kept on disk does.
    #[must_use]
    pub fn with_subjects_key(self, subjects_key: (u64, u64)) -> Self {
        Self { subjects_key, ..self }
    }

    fn hash(&self, namespace: &str, subject: &str) -> Hash {
        hash_of(self.subjects_key, namespace.as_bytes(), subject.as_bytes())
    }

    /// Puts a contract in force, in the place of the one with its pattern. Subjects keep what they have used as long as
    /// the policies are of the same kinds, in the same order.
    pub fn put_contract(&mut self, contract: Contract, now: Now) -> Result<u32, Refused> {
        let mut replaced = HashMap::new();
        let put = self.put(contract, &mut replaced);
        self.adopt(replaced, now);
        put
    }

    /// The same of several, of different patterns. Subjects are gone through once, which takes milliseconds where there
    /// are a million.
    pub fn put_contracts(&mut self, contracts: Vec<Contract>, now: Now) -> Vec<Result<u32, Refused>> {
        let mut replaced = HashMap::new();
        let put = contracts.into_iter().map(|contract| self.put(contract, &mut replaced)).collect();
        self.adopt(replaced, now);
        put
    }

    /// `replaced`: gets the contract whose policies this one changes, by number.
    fn put(&mut self, contract: Contract, replaced: &mut HashMap<u32, Contract>) -> Result<u32, Refused> {
        check_contract(&contract)?;
        let (number, old) = self.contracts.put(contract);
        let policies = &self.contracts.all[&number].policies;
        let counts = self.counts.entry(number).or_default();
        if let Some(old) = old.filter(|old| old.policies != *policies) {
            counts.clear();
            replaced.entry(number).or_insert(old);
        }
        counts.resize(policies.len(), PolicyCounts::default());
        Ok(number)
    }

    /// Subjects go on under the new policies of their contract, or begin anew where those are of other kinds.
    fn adopt(&mut self, replaced: HashMap<u32, Contract>, now: Now) {
        let kinds = |contract: &Contract| -> Vec<_> {
            contract.policies.iter().map(|p| (std::mem::discriminant(&p.rule), p.rule.words())).collect()
        };
        let is_same = |(number, old): &(u32, Contract)| kinds(old) == kinds(&self.contracts.all[number]);
        let (same, other): (HashMap<_, _>, HashMap<_, _>) = replaced.into_iter().partition(is_same);
        self.forget_subjects(&other);
        let words: BTreeSet<usize> = same.values().map(words_of).collect();
        for words in words {
            let Some(table) = self.tables.get_mut(&words) else { continue };
            let places: Vec<_> = table.places().filter(|place| same.contains_key(&table.contract(*place))).collect();
            for place in places {
                let number = table.contract(place);
                let (old, new) = (&same[&number], &self.contracts.all[&number]);
                let mut words = table.policies_mut(place);
                for (after, before) in new.policies.iter().zip(&old.policies) {
                    let (mine, rest) = words.split_at_mut(after.rule.words());
                    after.rule.adopt(&before.rule, mine, now);
                    words = rest;
                }
            }
        }
    }

    /// Forgets the subjects of contracts, by number.
    fn forget_subjects(&mut self, contracts: &HashMap<u32, Contract>) {
        let words: BTreeSet<usize> = contracts.values().map(words_of).collect();
        for words in words {
            let Some(table) = self.tables.get_mut(&words) else { continue };
            let theirs = |place: &Place| contracts.contains_key(&table.contract(*place));
            let hashes: Vec<_> =
                table.places().filter(theirs).map(|place| (table.contract(place), table.hash(place))).collect();
            for (number, hash) in hashes {
                let (Some(place), contract) = (table.find(hash, number), &contracts[&number]) else { continue };
                end_all(contract, table.policies(place), &mut self.stores);
                table.remove(place);
                if self.kept.contains_key(&number) {
                    self.changed.insert((number, hash));
                }
                if let Some(namespace) = self.namespaces.get_mut(&contract.namespace) {
                    namespace.subjects -= 1;
                }
            }
        }
    }

    /// False: there is none with this pattern.
    pub fn remove_contract(&mut self, namespace: &str, pattern: &str) -> bool {
        let Some((number, contract)) = self.contracts.remove(namespace, pattern) else { return false };
        self.forget_subjects(&HashMap::from([(number, contract)]));
        self.counts.remove(&number);
        self.kept.remove(&number);
        true
    }

    /// The counts of a contract's policies. None: there is no such contract.
    pub fn counts(&self, number: u32) -> Option<&[PolicyCounts]> {
        self.counts.get(&number).map(Vec::as_slice)
    }

    /// All contracts with the counts of their policies, by number.
    pub fn contracts(&self) -> impl Iterator<Item = (u32, &Contract, &[PolicyCounts])> {
        self.contracts_after(0)
    }

    /// The same of those with numbers above `after`.
    pub fn contracts_after(&self, after: u32) -> impl Iterator<Item = (u32, &Contract, &[PolicyCounts])> {
        let later = self.contracts.all.range(after.saturating_add(1)..);
        later.map(|(number, contract)| (*number, contract, self.counts[number].as_slice()))
    }

    /// Whether a contract is for a subject.
    pub fn is_limited(&self, namespace: &str, subject: &str) -> bool {
        self.contracts.find(namespace, subject).is_some()
    }

    /// The contract of a verdict.
    pub fn contract(&self, number: u32) -> Option<&Contract> {
        self.contracts.all.get(&number)
    }

    /// Asks all policies for `cost`, and takes it from all or from none.
    pub fn check(&mut self, namespace: &str, subject: &str, cost: u32, now: Now) -> Result<Verdict, Refused> {
        self.decide(namespace, subject, cost, now, true)
    }

    /// What `check` would say. Changes nothing.
    pub fn peek(&mut self, namespace: &str, subject: &str, cost: u32, now: Now) -> Result<Verdict, Refused> {
        self.decide(namespace, subject, cost, now, false)
    }

    fn decide(&mut self, space: &str, subject: &str, cost: u32, now: Now, takes: bool) -> Result<Verdict, Refused> {
        if subject.len() > MAX_SUBJECT {
            return Err(Refused::Subject);
        }
        let number = self.contracts.find(space, subject).ok_or(Refused::NoContract)?;
        let own = self.hash(space, subject);
        if takes && let Some(namespace) = self.namespaces.get_mut(space) {
            namespace.heaviest.note(own, subject);
        }
        let (hash, place) = self.place_of(number, own, now, takes);
        let shared = hash != own;
        let contract = &self.contracts.all[&number];
        let Some(place) = place else {
            // A peek at who is not there: as a new subject.
            let mut words = vec![0; words_of(contract)];
            begin_all(contract, &mut words, now);
            let (policies, violated) = look_all(contract, &words, &self.stores, cost, now);
            return Ok(verdict(number, contract.shadow, policies, violated, shared));
        };
        let Some(table) = self.tables.get_mut(&words_of(contract)) else { return Err(Refused::NoContract) };
        let (policies, violated) = look_all(contract, table.policies(place), &self.stores, cost, now);
        let mut found = verdict(number, contract.shadow, policies, violated, shared);
        if !takes {
            return Ok(found);
        }
        let counts = self.counts.get_mut(&number).map_or(&mut [][..], |counts| counts);
        for (bit, count) in counts.iter_mut().enumerate() {
            count.allowed += u64::from(found.allowed);
            count.refused += u64::from(violated >> bit & 1);
            count.cost += if found.allowed { u64::from(cost) } else { 0 };
        }
        if violated == 0 {
            self.granted += 1;
            let grant = Grant { number: self.granted, hash, contract: number, cost, at: now.mono };
            let mut words = table.policies_mut(place);
            for policy in &contract.policies {
                let (mine, rest) = words.split_at_mut(policy.rule.words());
                policy.rule.take(mine, &mut self.stores, cost, grant.number, now);
                words = rest;
            }
            let words = table.policies(place);
            for (look, (rule, words)) in found.policies.iter_mut().zip(each(contract, words)) {
                let after = rule.look(words, &self.stores, 0, now);
                (look.remaining, look.reset) = (after.remaining, after.reset);
            }
            found.grant = Some(grant.encode(self.key));
            self.note_change(number, hash);
        }
        Ok(found)
    }

    /// Makes a subject a new one. False: it was.
    pub fn reset(&mut self, space: &str, subject: &str) -> bool {
        let Some(number) = self.contracts.find(space, subject) else { return false };
        let hash = self.hash(space, subject);
        let Some(contract) = self.contracts.all.get(&number) else { return false };
        let Some(table) = self.tables.get_mut(&words_of(contract)) else { return false };
        let Some(place) = table.find(hash, number) else { return false };
        end_all(contract, table.policies(place), &mut self.stores);
        table.remove(place);
        if let Some(namespace) = self.namespaces.get_mut(space) {
            namespace.subjects -= 1;
        }
        self.note_change(number, hash);
        true
    }

    fn change(&mut self, number: u32, hash: Hash, now: Now, mut with: impl FnMut(&Rule, &mut [u32], &mut Stores)) {
        let Some(contract) = self.contracts.all.get(&number) else { return };
        let Some(table) = self.tables.get_mut(&words_of(contract)) else { return };
        // A subject that was forgotten meanwhile has nothing used: it is charged as a new one.
        let place = match table.find(hash, number) {
            Some(place) => place,
            None => {
                let place = table.add(hash, number);
                begin_all(contract, table.policies_mut(place), now);
                self.namespaces.entry(contract.namespace.clone()).or_default().subjects += 1;
                place
            }
        };
        let mut words = table.policies_mut(place);
        for policy in &contract.policies {
            let (mine, rest) = words.split_at_mut(policy.rule.words());
            with(&policy.rule, mine, &mut self.stores);
            words = rest;
        }
        self.note_change(number, hash);
    }

    /// The hash under which a subject is kept, and where. Where its namespace is full, that is of a subject that it
    /// shares with others. `makes`: it is added if it is missing.
    fn place_of(&mut self, number: u32, own: Hash, now: Now, makes: bool) -> (Hash, Option<Place>) {
        let contract = &self.contracts.all[&number];
        let words = words_of(contract);
        let table = self.tables.entry(words).or_insert_with(|| Table::new(words));
        if let Some(place) = table.find(own, number) {
            return (own, Some(place));
        }
        if !self.namespaces.contains_key(&contract.namespace) {
            self.namespaces.insert(contract.namespace.clone(), Namespace::default());
        }
        let Some(namespace) = self.namespaces.get_mut(&contract.namespace) else { return (own, None) };
        let mut hash = own;
        if namespace.subjects >= self.max_subjects {
            hash = [own[2] % OVERFLOW_SUBJECTS, 0, 0, number];
            if let Some(place) = table.find(hash, number) {
                return (hash, Some(place));
            }
        }
        if !makes {
            return (hash, None);
        }
        let place = table.add(hash, number);
        begin_all(contract, table.policies_mut(place), now);
        namespace.subjects += 1;
        (hash, Some(place))
    }

    /// Looks at the next `slots` slots, and forgets subjects that have nothing used.
    pub fn sweep(&mut self, slots: usize, now: Now) {
        let (contracts, stores, namespaces) = (&self.contracts.all, &mut self.stores, &mut self.namespaces);
        let (kept, changed) = (&self.kept, &mut self.changed);
        for table in self.tables.values_mut() {
            table.sweep(slots, |table, place| {
                let Some(contract) = contracts.get(&table.contract(place)) else { return true };
                let words = table.policies(place);
                let rests = each(contract, words).all(|(rule, words)| rule.rests(words, stores, now));
                if rests {
                    end_all(contract, words, stores);
                    if kept.contains_key(&table.contract(place)) {
                        changed.insert((table.contract(place), table.hash(place)));
                    }
                    if let Some(namespace) = namespaces.get_mut(&contract.namespace) {
                        namespace.subjects -= 1;
                    }
                }
                rests
            });
        }
    }

    /// The heaviest `most` subjects of a namespace, heaviest first.
    pub fn heaviest(&self, namespace: &str, most: usize) -> Vec<Heavy> {
        self.namespaces.get(namespace).map_or_else(Vec::new, |namespace| namespace.heaviest.top(most))
    }

    /// Subjects in memory, by namespace.
    pub fn subjects(&self) -> impl Iterator<Item = (&str, u64)> {
        self.namespaces.iter().map(|(name, namespace)| (&**name, namespace.subjects))
    }

    /// Bytes of all slots, used or not.
    pub fn bytes(&self) -> usize {
        self.tables.values().map(Table::bytes).sum()
    }
}

/// The keyed hash of a subject. No name can be made that meets another's.
pub(crate) fn hash_of(key: (u64, u64), namespace: &[u8], subject: &[u8]) -> Hash {
    let mut hasher = SipHasher24::new_with_keys(key.0, key.1);
    hasher.write(namespace);
    hasher.write_u8(0xff); // in no UTF-8: ("a", "bc") is not ("ab", "c")
    hasher.write(subject);
    let hash = hasher.finish128();
    [hash.h1 as u32, (hash.h1 >> 32) as u32, hash.h2 as u32, (hash.h2 >> 32) as u32]
}

fn check_contract(contract: &Contract) -> Result<(), Refused> {
    let is_name = |text: &str| (1..=MAX_NAME).contains(&text.len());
    if !is_name(&contract.namespace) {
        return Err(Refused::Name("namespace"));
    }
    if !is_name(&contract.subject) {
        return Err(Refused::Name("subject"));
    }
    if !(1..=MAX_POLICIES).contains(&contract.policies.len()) {
        return Err(Refused::Policies);
    }
    for (number, policy) in contract.policies.iter().enumerate() {
        if !is_name(&policy.name) {
            return Err(Refused::Name("policies.name"));
        }
        if contract.policies[..number].iter().any(|other| other.name == policy.name) {
            return Err(Refused::TwoPolicies(policy.name.clone()));
        }
        policy.rule.check().map_err(|bad| Refused::Policy(policy.name.clone(), bad))?;
    }
    Ok(())
}

fn words_of(contract: &Contract) -> usize {
    contract.policies.iter().map(|policy| policy.rule.words()).sum()
}

/// Each policy with its words.
fn each<'a>(contract: &'a Contract, mut words: &'a [u32]) -> impl Iterator<Item = (&'a Rule, &'a [u32])> {
    contract.policies.iter().map(move |policy| {
        let (mine, rest) = words.split_at(policy.rule.words());
        words = rest;
        (&policy.rule, mine)
    })
}

fn begin_all(contract: &Contract, mut words: &mut [u32], now: Now) {
    for policy in &contract.policies {
        let (mine, rest) = words.split_at_mut(policy.rule.words());
        policy.rule.begin(mine, now, contract.starts_full);
        words = rest;
    }
}

fn end_all(contract: &Contract, words: &[u32], stores: &mut Stores) {
    each(contract, words).for_each(|(rule, words)| rule.end(words, stores));
}

fn look_all(contract: &Contract, words: &[u32], stores: &Stores, cost: u32, now: Now) -> (Vec<Look>, u8) {
    let looks: Vec<_> = each(contract, words).map(|(rule, words)| rule.look(words, stores, cost, now)).collect();
    let violated = looks.iter().enumerate().fold(0, |bits, (bit, look)| bits | u8::from(!look.allowed) << bit);
    (looks, violated)
}

fn verdict(contract: u32, shadow: bool, policies: Vec<Look>, violated: u8, shared: bool) -> Verdict {
    let refuses = |look: &&Look| violated == 0 || !look.allowed;
    let wait = policies.iter().filter(refuses).map(|look| look.wait).max().unwrap_or(0);
    let allowed = violated == 0 || shadow;
    let shadowed = violated != 0 && shadow;
    Verdict { allowed, contract, policies, violated, wait, grant: None, shared, shadowed }
}
