//! What subjects are charged, and given back, without a check.

use crate::grant::{CORRECT_WITHIN_NS, Grant};
use crate::limiter::{Limiter, Refused, each, words_of};
use crate::state::Now;
use crate::table::Hash;

impl Limiter {
    /// Replaces the cost of a check by what it came to. Once, within 60 s.
    pub fn correct(&mut self, grant: &[u8], cost: u32, now: Now) -> Result<(), Refused> {
        let grant = self.used_once(grant, now)?;
        let more = i64::from(cost) - i64::from(grant.cost);
        self.change(grant.contract, grant.hash, now, |rule, words, stores| rule.correct(words, stores, more, now));
        Ok(())
    }

    /// Ends an open request of the policies of kind `concurrency`. Once. It may be as old as they allow.
    pub fn release(&mut self, grant: &[u8], now: Now) -> Result<(), Refused> {
        let grant = Grant::decode(grant, self.key).ok_or(Refused::NotAGrant)?;
        let mut is_open = false;
        self.change(grant.contract, grant.hash, now, |rule, words, stores| {
            is_open |= rule.release(words, stores, grant.number);
        });
        if is_open { Ok(()) } else { Err(Refused::UsedGrant) }
    }

    fn used_once(&mut self, grant: &[u8], now: Now) -> Result<Grant, Refused> {
        let grant = Grant::decode(grant, self.key).ok_or(Refused::NotAGrant)?;
        if now.mono - grant.at > CORRECT_WITHIN_NS {
            return Err(Refused::OldGrant);
        }
        if self.corrected.note(grant.number, now.mono) { Ok(grant) } else { Err(Refused::UsedGrant) }
    }

    /// Charges (or, below 0, gives back to) a subject without a check: a ban, or pardon.
    pub fn charge(&mut self, space: &str, subject: &str, more: i64, now: Now) -> Result<(), Refused> {
        let (number, hash) = self.subject_of(space, subject, now)?;
        self.change(number, hash, now, |rule, words, stores| rule.correct(words, stores, more, now));
        Ok(())
    }

    /// Takes what was allowed elsewhere, without a check, and however far below zero. `capped`: of each policy no more
    /// than it ever lets through at once.
    pub fn debit(&mut self, space: &str, subject: &str, cost: u32, capped: bool, now: Now) -> Result<(), Refused> {
        let (number, hash) = self.subject_of(space, subject, now)?;
        self.change(number, hash, now, |rule, words, stores| {
            let most = if capped { u32::try_from(rule.most()).unwrap_or(u32::MAX) } else { u32::MAX };
            rule.take(words, stores, cost.min(most), 0, now);
        });
        Ok(())
    }

    /// The contract that a subject is under, and by which hash it has a place there.
    fn subject_of(&mut self, space: &str, subject: &str, now: Now) -> Result<(u32, Hash), Refused> {
        let number = self.contracts.find(space, subject).ok_or(Refused::NoContract)?;
        Ok((number, self.place_of(number, self.hash(space, subject), now, true).0))
    }

    /// By how much a subject is below zero: tokens of its worst bucket, rounded up. 0: it has no contract.
    pub fn overdraft(&mut self, space: &str, subject: &str, now: Now) -> u64 {
        let Some(number) = self.contracts.find(space, subject) else { return 0 };
        let (_, place) = self.place_of(number, self.hash(space, subject), now, false);
        let contract = &self.contracts.all[&number];
        let (Some(place), Some(table)) = (place, self.tables.get(&words_of(contract))) else { return 0 };
        each(contract, table.policies(place)).map(|(rule, words)| rule.overdraft(words, now)).max().unwrap_or(0)
    }
}
