//! How much of each topic sessions and groups hold, which mix the topics in one queue: the figures of the pseudo
//! channels `mqtt` and `$share/GROUP/FILTER`. Messages of QoS 0 wait for no session, and are not in the former.

use std::collections::HashMap;

use slotmap::SlotMap;

use crate::keys::{GroupKey, TallyKey};

/// Of one topic: what all sessions have, or one group.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Held {
    pub topic: Box<str>,
    pub group: Option<GroupKey>, // None: of sessions
    pub depth: usize,            // messages that wait
    pub in_flight: usize,        // went out, and are not acknowledged
    pub messages: u64,           // given to them since the start
    pub holders: usize,          // that were given some, until they end
    pub dropped: u64,            // deliveries for which there was no room, or no group any more, since the start
    pub full: u64,               // of these, as many messages waited already as may
}

impl Held {
    fn is_shown(&self) -> bool {
        self.holders > 0 || self.dropped > 0
    }
}

/// How many messages of each topic wait in one queue.
#[derive(Debug, Default)]
pub struct Owed(Vec<(TallyKey, u32)>);

#[derive(Debug, Default)]
pub struct TopicTally {
    held: SlotMap<TallyKey, Held>,
    by_topic: HashMap<Box<str>, TallyKey>,
}

impl TopicTally {
    /// The key of a topic, here or at another broker; it gets one if it has none.
    pub fn key_of(&mut self, topic: &str) -> TallyKey {
        if let Some(key) = self.by_topic.get(topic) {
            return *key;
        }
        let key = self.held.insert(Held { topic: topic.into(), ..Held::default() });
        self.by_topic.insert(topic.into(), key);
        key
    }

    /// The key of a topic, or one that stands for none.
    pub fn find(&self, topic: &str) -> TallyKey {
        self.by_topic.get(topic).copied().unwrap_or_default()
    }

    /// The key of what a group has of a topic; it gets one if it has none. `known`: {topic: the key}, of that group.
    pub fn key_of_shared(
        &mut self,
        group: GroupKey,
        known: &mut Vec<(TallyKey, TallyKey)>,
        topic: TallyKey,
    ) -> TallyKey {
        if let Some((_, key)) = known.iter().find(|(of, _)| *of == topic) {
            return *key;
        }
        let Some(name) = self.held.get(topic).map(|held| held.topic.clone()) else { return TallyKey::default() };
        known.retain(|(of, _)| self.held.contains_key(*of)); // topics come and go
        let key = self.held.insert(Held { topic: name, group: Some(group), ..Held::default() });
        known.push((topic, key));
        key
    }

    /// All topics of which somebody was given something, or should have been.
    pub fn all(&self) -> impl Iterator<Item = &Held> {
        self.held.values().filter(|held| held.is_shown())
    }

    /// The topic is gone.
    pub fn forget(&mut self, topic: &str) {
        self.by_topic.remove(topic);
        self.held.retain(|_, held| *held.topic != *topic);
    }

    /// A message is given to the holder of `owed`.
    pub fn give(&mut self, owed: &mut Owed, key: TallyKey) {
        owed.entry(self, key);
        self.held.get_mut(key).into_iter().for_each(|held| held.messages += 1);
    }

    /// As many messages wait as may: one is dropped.
    pub fn drop_for_full(&mut self, key: TallyKey) {
        self.held.get_mut(key).into_iter().for_each(|held| held.full += 1);
        self.drop(key, 1);
    }

    pub fn topic_of(&self, key: TallyKey) -> &str {
        self.held.get(key).map_or("", |held| &held.topic)
    }

    /// Somebody had no room for messages, or their group has ended.
    pub fn drop(&mut self, key: TallyKey, count: u64) {
        self.held.get_mut(key).into_iter().for_each(|held| held.dropped += count);
    }

    /// A message waits in the queue of `owed`.
    pub fn wait(&mut self, owed: &mut Owed, key: TallyKey) {
        let at = owed.entry(self, key);
        owed.0[at].1 += 1;
        self.held.get_mut(key).into_iter().for_each(|held| held.depth += 1);
    }

    /// The queue of `owed` is `len` long: what is not counted yet waits since before the start.
    pub fn count_restored(&mut self, owed: &mut Owed, key: TallyKey, len: usize) {
        let rest = len.saturating_sub(owed.len());
        let at = owed.entry(self, key);
        owed.0[at].1 += rest as u32;
        self.held.get_mut(key).into_iter().for_each(|held| held.depth += rest);
    }

    /// A message has left the queue of `owed`, which is `left` long; gives the topic that it counted for. Which topic a
    /// name belongs to may have changed since it came: then it counts for one of which something waits.
    pub fn take(&mut self, owed: &mut Owed, key: TallyKey, left: usize) -> TallyKey {
        let own = owed.0.iter().position(|(of, waits)| *of == key && *waits > 0);
        let Some(at) = own.or_else(|| owed.0.iter().position(|(_, waits)| *waits > 0)) else { return key };
        let key = owed.0[at].0;
        self.lower(owed, at, 1);
        self.trim(owed, left);
        key
    }

    /// The queue of `owed` is only `left` long: the disk refused messages.
    pub fn trim(&mut self, owed: &mut Owed, left: usize) {
        let mut excess = owed.len().saturating_sub(left);
        for at in (0..owed.0.len()).rev() {
            let lost = excess.min(owed.0[at].1 as usize);
            self.lower(owed, at, lost as u32);
            excess -= lost;
        }
    }

    fn lower(&mut self, owed: &mut Owed, at: usize, by: u32) {
        let (key, waits) = &mut owed.0[at];
        *waits -= by;
        self.held.get_mut(*key).into_iter().for_each(|held| held.depth -= by as usize);
    }

    /// The holder of `owed` ends, with all that it has.
    pub fn end(&mut self, owed: &Owed) {
        for (key, waits) in &owed.0 {
            if let Some(held) = self.held.get_mut(*key) {
                held.depth -= *waits as usize;
                held.holders -= 1;
            }
        }
    }

    /// A group ends, with all that it has. `counts`: {topic: the key of what it has of it}.
    ///
    /// Gives how much of each topic waited for it.
    pub fn end_shared(&mut self, owed: &Owed, counts: &[(TallyKey, TallyKey)]) -> Vec<(TallyKey, u64)> {
        counts.iter().for_each(|(_, key)| _ = self.held.remove(*key));
        let topic_of = |own| counts.iter().find(|(_, key)| *key == own).map_or(own, |(topic, _)| *topic);
        let waiting = owed.0.iter().filter(|(_, waits)| *waits > 0);
        waiting.map(|(own, waits)| (topic_of(*own), u64::from(*waits))).collect()
    }

    /// A message went out, and is to be acknowledged.
    pub fn begin_flight(&mut self, key: TallyKey) {
        self.held.get_mut(key).into_iter().for_each(|held| held.in_flight += 1);
    }

    pub fn end_flight(&mut self, key: TallyKey) {
        self.held.get_mut(key).into_iter().for_each(|held| held.in_flight -= 1);
    }

    /// Panics unless the figures are sums over what holders have in their queues, and over what is in flight.
    #[cfg(any(test, feature = "harness"))]
    pub fn check<'a>(&self, holders: impl Iterator<Item = &'a Owed>, in_flight: impl Iterator<Item = TallyKey>) {
        let mut sums: HashMap<TallyKey, (usize, usize, usize)> = HashMap::new();
        for (key, waits) in holders.flat_map(|owed| &owed.0) {
            let (depth, _, holders) = sums.entry(*key).or_default();
            (*depth, *holders) = (*depth + *waits as usize, *holders + 1);
        }
        in_flight.for_each(|key| sums.entry(key).or_default().1 += 1);
        for (key, held) in &self.held {
            let figures = (held.depth, held.in_flight, held.holders);
            assert_eq!(figures, sums.get(&key).copied().unwrap_or_default(), "of {}", held.topic);
        }
    }
}

impl Owed {
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|(_, waits)| *waits as usize).sum()
    }

    fn entry(&mut self, tally: &mut TopicTally, key: TallyKey) -> usize {
        if let Some(at) = self.0.iter().position(|(of, _)| *of == key) {
            return at;
        }
        self.0.retain(|(of, _)| tally.held.contains_key(*of)); // topics come and go
        tally.held.get_mut(key).into_iter().for_each(|held| held.holders += 1);
        self.0.push((key, 0));
        self.0.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(tally: &TopicTally, topic: &str) -> Option<(usize, usize, u64, usize)> {
        tally
            .all()
            .find(|held| *held.topic == *topic)
            .map(|held| (held.depth, held.in_flight, held.messages, held.holders))
    }

    #[test]
    fn each_topic_has_what_waits_of_it_in_all_queues_until_their_holders_end() {
        let mut tally = TopicTally::default();
        let (heat, noise) = (tally.key_of("heat"), tally.key_of("noise"));
        let (mut one, mut other) = (Owed::default(), Owed::default());
        for key in [heat, noise, heat] {
            tally.give(&mut one, key);
            tally.wait(&mut one, key);
        }
        tally.give(&mut other, heat);
        tally.begin_flight(heat);
        assert_eq!(figures(&tally, "heat"), Some((2, 1, 3, 2)));
        assert_eq!(tally.take(&mut one, heat, 2), heat);
        assert_eq!((figures(&tally, "heat"), figures(&tally, "noise")), (Some((1, 1, 3, 2)), Some((1, 0, 1, 1))));
        tally.end(&one);
        tally.end_flight(heat);
        assert_eq!((figures(&tally, "heat"), figures(&tally, "noise")), (Some((0, 0, 3, 1)), None));
    }

    #[test]
    fn what_left_the_queue_unseen_or_under_another_topic_counts_no_more() {
        let mut tally = TopicTally::default();
        let (old, new) = (tally.key_of("old"), tally.key_of("new"));
        let mut owed = Owed::default();
        (0..5).for_each(|_| tally.wait(&mut owed, old));
        assert_eq!(tally.take(&mut owed, new, 4), old, "its name has changed hands");
        tally.trim(&mut owed, 2);
        assert_eq!(figures(&tally, "old").map(|held| held.0), Some(2));
        assert_eq!(tally.take(&mut owed, old, 0), old);
        assert_eq!(figures(&tally, "old").map(|held| held.0), Some(0));
    }

    #[test]
    fn a_topic_that_is_gone_is_forgotten_though_queues_hold_some_of_it() {
        let mut tally = TopicTally::default();
        let (gone, mut owed) = (tally.key_of("gone"), Owed::default());
        tally.wait(&mut owed, gone);
        tally.begin_flight(gone);
        tally.forget("gone");
        assert_eq!(tally.take(&mut owed, gone, 0), gone);
        tally.end_flight(gone);
        tally.end(&owed);
        assert_eq!((figures(&tally, "gone"), tally.all().count()), (None, 0));
    }
}
