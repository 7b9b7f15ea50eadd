//! What an operator's log is to have of each of many clients or topics: the first at once, the rest once a minute.

use std::collections::HashMap;

use crate::time::{NS_PER_S, Nanos};

/// At most one event of each name in this time.
const TELL_AGAIN_NS: Nanos = 60 * NS_PER_S;

/// So many are told by name at a time: a log that a million clients fill helps nobody. The others are told as one.
pub const MOST_NAMES: usize = 64;

/// Sums by name. `T`: what is summed.
#[derive(Debug, Default)]
pub struct OnceAMinute<T> {
    named: HashMap<Box<str>, Told<T>>,
    others: Told<T>,       // beyond `MOST_NAMES`
    due_at: Option<Nanos>, // when something is to be told or forgotten
}

#[derive(Debug, Default)]
struct Told<T> {
    untold: Option<T>,
    again_at: Nanos, // no event before
}

impl<T: Default> OnceAMinute<T> {
    /// The sum of a name since its last event, to be added to.
    pub fn of(&mut self, name: &str) -> &mut T {
        let is_named = self.named.len() < MOST_NAMES || self.named.contains_key(name);
        let told = if is_named { self.named.entry(name.into()).or_default() } else { &mut self.others };
        self.due_at = Some(self.due_at.map_or(told.again_at, |due| due.min(told.again_at)));
        told.untold.get_or_insert_default()
    }

    /// The names of which there is something to tell, with their sums; "": all others. Who was quiet for a minute is
    /// forgotten.
    pub fn take(&mut self, now: Nanos) -> Vec<(Box<str>, T)> {
        if self.due_at.is_none_or(|due| now < due) {
            return Vec::new();
        }
        self.named.retain(|_, told| told.untold.is_some() || now < told.again_at);
        let mut taken: Vec<(Box<str>, T)> =
            self.named.iter_mut().filter_map(|(name, told)| Some((name.clone(), told.take(now)?))).collect();
        taken.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        taken.extend(self.others.take(now).map(|sum| (Box::default(), sum)));
        let others = Some(&self.others).filter(|others| others.untold.is_some());
        self.due_at = self.named.values().chain(others).map(|told| told.again_at).min();
        taken
    }
}

impl<T> Told<T> {
    fn take(&mut self, now: Nanos) -> Option<T> {
        let sum = self.untold.take_if(|_| now >= self.again_at)?;
        self.again_at = now + TELL_AGAIN_NS;
        Some(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(sums: &mut OnceAMinute<u64>, now: Nanos) -> Vec<(String, u64)> {
        sums.take(now).into_iter().map(|(name, sum)| (name.into(), sum)).collect()
    }

    #[test]
    fn each_name_is_told_at_once_and_then_at_most_once_a_minute_with_its_sum() {
        let mut sums = OnceAMinute::default();
        *sums.of("a") += 1;
        assert_eq!(taken(&mut sums, 5), [("a".to_owned(), 1)]);
        *sums.of("a") += 2;
        *sums.of("b") += 3;
        assert_eq!(taken(&mut sums, 6), [("b".to_owned(), 3)], "a was told just now");
        assert_eq!(taken(&mut sums, 4 + TELL_AGAIN_NS), []);
        assert_eq!(taken(&mut sums, 5 + TELL_AGAIN_NS), [("a".to_owned(), 2)], "also if it was quiet since");
    }

    #[test]
    fn of_a_million_names_some_are_told_as_such_and_the_others_as_one_until_there_is_room() {
        let mut sums = OnceAMinute::default();
        (0..1_000_000).for_each(|number| *sums.of(&format!("{number:06}")) += 1);
        let told = taken(&mut sums, 0);
        assert_eq!((told.len(), told[0].clone()), (MOST_NAMES + 1, ("000000".to_owned(), 1)));
        assert_eq!(told[MOST_NAMES], (String::new(), 1_000_000 - MOST_NAMES as u64));
        *sums.of("late") += 1;
        assert_eq!((taken(&mut sums, 1).len(), sums.named.len()), (0, MOST_NAMES));
        assert_eq!(taken(&mut sums, TELL_AGAIN_NS), [(String::new(), 1)]);
        *sums.of("late") += 1;
        assert_eq!(taken(&mut sums, TELL_AGAIN_NS), [("late".to_owned(), 1)], "the others were quiet for a minute");
    }
}
