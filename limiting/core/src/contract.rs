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
    namespaces: HashMap<Box<str>, Patterns>,
}

/// The patterns of a namespace, with the numbers of their contracts.
#[derive(Debug, Default)]
struct Patterns {
    exact: HashMap<Box<str>, u32>,
    prefixes: HashMap<Box<str>, u32>,
    lengths: BTreeMap<usize, usize>, // of prefixes, in bytes: how many have it
}

impl Patterns {
    fn of_subject(&self, subject: &str) -> Option<u32> {
        if let Some(number) = self.exact.get(subject) {
            return Some(*number);
        }
        let fits = |length: &usize| subject.get(..*length).and_then(|prefix| self.prefixes.get(prefix));
        self.lengths.keys().rev().find_map(fits).copied()
    }

    fn of_pattern(&self, pattern: &str) -> Option<u32> {
        match pattern.strip_suffix('*') {
            None => self.exact.get(pattern).copied(),
            Some(prefix) => self.prefixes.get(prefix).copied(),
        }
    }

    fn add(&mut self, pattern: &str, number: u32) {
        match pattern.strip_suffix('*') {
            None => {
                self.exact.insert(pattern.into(), number);
            }
            Some(prefix) => {
                self.prefixes.insert(prefix.into(), number);
                *self.lengths.entry(prefix.len()).or_default() += 1;
            }
        }
    }

    fn remove(&mut self, pattern: &str) {
        let Some(prefix) = pattern.strip_suffix('*') else {
            self.exact.remove(pattern);
            return;
        };
        self.prefixes.remove(prefix);
        if let Some(count) = self.lengths.get_mut(&prefix.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prefix.len());
            }
        }
    }
}

impl Contracts {
    /// The contract with the longest pattern that fits; a pattern without `*` comes first.
    pub fn find(&self, namespace: &str, subject: &str) -> Option<u32> {
        self.namespaces.get(namespace)?.of_subject(subject)
    }

    /// The number of the contract with exactly this pattern.
    pub fn of_pattern(&self, namespace: &str, pattern: &str) -> Option<u32> {
        self.namespaces.get(namespace)?.of_pattern(pattern)
    }

    /// Adds a contract, or puts it in the place of the one with its pattern. Returns its number, and what it replaced.
    pub fn put(&mut self, contract: Contract) -> (u32, Option<Contract>) {
        if let Some(number) = self.of_pattern(&contract.namespace, &contract.subject) {
            return (number, self.all.insert(number, contract));
        }
        self.last += 1;
        self.namespaces.entry(contract.namespace.clone()).or_default().add(&contract.subject, self.last);
        self.all.insert(self.last, contract);
        (self.last, None)
    }

    pub fn remove(&mut self, namespace: &str, pattern: &str) -> Option<(u32, Contract)> {
        let number = self.of_pattern(namespace, pattern)?;
        self.namespaces.get_mut(namespace)?.remove(pattern);
        Some((number, self.all.remove(&number)?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contract(pattern: &str) -> Contract {
        let (namespace, subject) = ("api".into(), pattern.into());
        Contract { namespace, subject, policies: Vec::new(), shadow: false, starts_full: true }
    }

    proptest! {
        #[test]
        fn it_finds_what_a_look_at_each_pattern_finds(
            steps in prop::collection::vec(("[aé]{0,3}[*]?", any::<bool>()), 0..40),
            subject in "[aé]{0,4}",
        ) {
            let (mut contracts, mut patterns) = (Contracts::default(), BTreeMap::new());
            for (pattern, adds) in steps {
                if adds {
                    let (number, _) = contracts.put(contract(&pattern));
                    patterns.insert(pattern, number);
                } else {
                    let gone = contracts.remove("api", &pattern).map(|(number, _)| number);
                    prop_assert_eq!(gone, patterns.remove(&pattern));
                }
            }
            let fits = |pattern: &&String| {
                pattern.strip_suffix('*').map_or(**pattern == subject, |prefix| subject.starts_with(prefix))
            };
            let wanted = patterns.keys().filter(fits).max_by_key(|pattern| (!pattern.ends_with('*'), pattern.len()));
            prop_assert_eq!(contracts.find("api", &subject), wanted.map(|pattern| patterns[pattern]));
            prop_assert_eq!(contracts.find("other", &subject), None);
        }
    }
}
