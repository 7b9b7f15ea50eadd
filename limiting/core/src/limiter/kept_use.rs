//! What subjects have used of the policies that are kept on disk, as it goes there and comes back.

use crate::limiter::{Limiter, OVERFLOW_SUBJECTS, begin_all, words_of};
use crate::state::Now;
use crate::table::{Hash, Table};

/// What a subject has used of a contract some of whose policies are kept on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Used {
    pub contract: u32,
    pub hash: Hash,
    /// Of all its policies. None: it has nothing used any more.
    pub words: Option<Vec<u32>>,
}

impl Limiter {
    /// From now on what subjects use of these policies of a contract is noted for the disk. `policies`: their bits.
    pub fn keep(&mut self, number: u32, policies: u8) {
        let Some(contract) = self.contracts.all.get(&number) else { return };
        if policies == 0 {
            self.kept.remove(&number);
            return;
        }
        self.kept.insert(number, policies);
        let Some(table) = self.tables.get(&words_of(contract)) else { return };
        let live = table.places().filter(|place| table.contract(*place) == number);
        self.changed.extend(live.map(|place| (number, table.hash(place))));
    }

    /// At most `most` subjects whose use has changed since they were last given out here.
    pub fn changed(&mut self, most: usize) -> Vec<Used> {
        let mut found = Vec::new();
        while found.len() < most
            && let Some((contract, hash)) = self.changed.pop_first()
        {
            let Some(known) = self.contracts.all.get(&contract) else { continue };
            let table = self.tables.get(&words_of(known));
            let words = table.and_then(|table| table.find(hash, contract).map(|place| table.policies(place).to_vec()));
            found.push(Used { contract, hash, words });
        }
        found
    }

    /// Gives a subject what it had used when `changed` gave it out, at `saved`. Policies that are not kept begin anew.
    /// False: it is not of this contract as it is now, or it is there already.
    pub fn restore(&mut self, used: &Used, saved: Now, now: Now) -> bool {
        let (Some(contract), Some(old)) = (self.contracts.all.get(&used.contract), &used.words) else { return false };
        let size = words_of(contract);
        let mut hash = used.hash;
        if hash[1..3] == [0, 0] && hash[0] < OVERFLOW_SUBJECTS {
            hash[3] = used.contract; // one that new subjects share: contracts have other numbers now
        }
        let table = self.tables.entry(size).or_insert_with(|| Table::new(size));
        if old.len() != size || table.find(hash, used.contract).is_some() {
            return false;
        }
        let bits = self.kept.get(&used.contract).copied().unwrap_or(0);
        let place = table.add(hash, used.contract);
        begin_all(contract, table.policies_mut(place), now);
        let (mut words, mut old) = (table.policies_mut(place), &old[..]);
        for (bit, policy) in contract.policies.iter().enumerate() {
            let (mine, rest) = words.split_at_mut(policy.rule.words());
            let (before, others) = old.split_at(mine.len());
            if bits >> bit & 1 == 1 {
                policy.rule.restore(mine, before, saved, now);
            }
            (words, old) = (rest, others);
        }
        self.namespaces.entry(contract.namespace.clone()).or_default().subjects += 1;
        true
    }

    pub(super) fn note_change(&mut self, number: u32, hash: Hash) {
        if self.kept.contains_key(&number) {
            self.changed.insert((number, hash));
        }
    }
}
