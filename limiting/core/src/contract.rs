//! Contracts, and which contract a subject is under.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::policy::Policy;

/// The policies for the subjects of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    pub namespace: Box<str>,
    /// A subject, or the beginning of subjects and a `*` at its end.
    pub subject: Box<str>,
    /// At least 1, at most `policy::MAX_POLICIES`.
    pub policies: Vec<Policy>,
    /// Decides and counts, and refuses nobody.
    pub shadow: bool,
    /// Whether a new subject's buckets begin full.
    pub starts_full: bool,
}

/// Contracts by number; 0 is none. A number is not used again.
#[derive(Debug, Default)]
pub(crate) struct Contracts {
    pub all: BTreeMap<u32, Contract>,
    last: u32,
    exact: HashMap<(Box<str>, Box<str>), u32>,
    prefixes: HashMap<Box<str>, Vec<(Box<str>, u32)>>, // by namespace, longest first
}

impl Contracts {
    /// The contract with the longest pattern that fits; a pattern without `*` comes first.
    pub fn find(&self, namespace: &str, subject: &str) -> Option<u32> {
        // A tuple of borrowed strings cannot be looked up among owned ones without a copy; most contracts are patterns.
        if !self.exact.is_empty()
            && let Some(number) = self.exact.get(&(namespace.into(), subject.into()))
        {
            return Some(*number);
        }
        let patterns = self.prefixes.get(namespace)?;
        patterns.iter().find(|(prefix, _)| subject.starts_with(&**prefix)).map(|(_, number)| *number)
    }

    /// The number of the contract with exactly this pattern.
    pub fn of_pattern(&self, namespace: &str, pattern: &str) -> Option<u32> {
        match pattern.strip_suffix('*') {
            None => self.exact.get(&(namespace.into(), pattern.into())).copied(),
            Some(prefix) => {
                let patterns = self.prefixes.get(namespace)?;
                patterns.iter().find(|(known, _)| **known == *prefix).map(|(_, number)| *number)
            }
        }
    }

    /// Adds a contract, or puts it in the place of the one with its pattern. Returns its number, and what it replaced.
    pub fn put(&mut self, contract: Contract) -> (u32, Option<Contract>) {
        if let Some(number) = self.of_pattern(&contract.namespace, &contract.subject) {
            return (number, self.all.insert(number, contract));
        }
        self.last += 1;
        let namespace = contract.namespace.clone();
        match contract.subject.strip_suffix('*') {
            None => {
                self.exact.insert((namespace, contract.subject.clone()), self.last);
            }
            Some(prefix) => {
                let patterns = self.prefixes.entry(namespace).or_default();
                patterns.push((prefix.into(), self.last));
                patterns.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
            }
        }
        self.all.insert(self.last, contract);
        (self.last, None)
    }

    pub fn remove(&mut self, namespace: &str, pattern: &str) -> Option<(u32, Contract)> {
        let number = self.of_pattern(namespace, pattern)?;
        self.exact.retain(|_, known| *known != number);
        if let Some(patterns) = self.prefixes.get_mut(namespace) {
            patterns.retain(|(_, known)| *known != number);
        }
        Some((number, self.all.remove(&number)?))
    }
}
