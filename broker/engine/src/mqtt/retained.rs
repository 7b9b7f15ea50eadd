//! Messages that are retained, by name, and the way of a new subscription through them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;

use crate::memory::Stock;
use crate::protocol::mqtt::packet::Options;
use crate::protocol::mqtt::topic_filter::{is_reserved, levels, matches};
use crate::queueing::journal::Entry;
use crate::queueing::message::{Message, cost_of};

#[derive(Debug, Default)]
pub struct Retained {
    kept: BTreeMap<Box<str>, Kept>,
    stock: Stock, // of what they take
    removed: Removed,
}

/// Names that were removed lately, and when: an older message of another broker may be on its way. They stand here by a
/// hash with a secret key: names may be long, and nothing else bounds what they would take.
#[derive(Debug, Default)]
struct Removed {
    key: RandomState,
    versions: HashMap<u64, i64>,
    order: VecDeque<u64>,
}

/// Removals that are remembered.
const MOST_REMOVED: usize = 10_000;

impl Removed {
    fn note(&mut self, name: &str, version: i64) {
        let name = self.key.hash_one(name);
        if self.versions.insert(name, version).is_none() {
            self.order.push_back(name);
        }
        if self.order.len() > MOST_REMOVED {
            self.order.pop_front().map(|oldest| self.versions.remove(&oldest));
        }
    }

    fn version(&self, name: &str) -> Option<i64> {
        self.versions.get(&self.key.hash_one(name)).copied()
    }
}

#[derive(Debug)]
struct Kept {
    message: Message,
    entry: Option<Entry>, // of its record on disk
}

/// A subscription on its way through what is retained, so many names in a turn.
#[derive(Debug)]
pub struct Replay {
    pub pattern: Box<str>,
    pub options: Options,
    pub id: u32,                        // Subscription Identifier; 0: none
    pub(crate) after: Option<Box<str>>, // the last name that was looked at
}

/// What a look at some names found.
#[derive(Debug)]
pub enum Found {
    Message(Message),
    /// There are more names to look at.
    Nothing,
    End,
}

impl Replay {
    pub fn new(pattern: &str, options: Options, id: u32) -> Self {
        Self { pattern: pattern.into(), options, id, after: None }
    }

    /// The text with which all names begin that the pattern matches.
    fn prefix(&self) -> &str {
        let literal = levels(&self.pattern).take_while(|level| !matches!(*level, "+" | "#"));
        let len: usize = literal.map(|level| level.len() + 1).sum();
        self.pattern.get(..len.saturating_sub(1)).unwrap_or(&self.pattern)
    }
}

/// What a message takes that is retained, in bytes: its attributes hold the name once more.
fn cost(name: &str, attributes: usize, body: usize) -> u64 {
    cost_of(1, (name.len() + attributes + body) as u64, 1)
}

fn cost_of_kept(name: &str, message: &Message) -> u64 {
    cost(name, message.attributes().len(), message.body_len())
}

impl Retained {
    pub fn new(stock: Stock) -> Self {
        Self { stock, ..Self::default() }
    }

    /// Bytes that they take.
    pub fn used(&self) -> u64 {
        self.stock.used()
    }

    /// Why no message of these lengths in bytes may be retained under a name, if so. `most`: names that there may be.
    pub fn refusal(&self, name: &str, attributes: usize, body: usize, most: usize) -> Option<String> {
        let known = self.kept.get(name).map(|kept| cost_of_kept(name, &kept.message));
        if known.is_none() && self.kept.len() >= most {
            return Some(format!("{most} messages are retained (mqtt_max_retained)"));
        }
        let more = cost(name, attributes, body).saturating_sub(known.unwrap_or(0));
        // Whatever waits of any topic: an update of another broker must not be lost for it.
        (more > 0 && !self.stock.has_own_room_for(more)).then(|| self.fullness())
    }

    pub fn fullness(&self) -> String {
        format!("what is retained may take {} bytes, an eighth of max_memory_bytes", self.stock.most())
    }

    /// Forgets the oldest messages that have no room, as if they had never been; returns how many.
    pub(crate) fn trim(&mut self) -> u64 {
        if self.stock.used() <= self.stock.most() {
            return 0;
        }
        let mut by_age: Vec<(i64, Box<str>)> =
            self.kept.iter().map(|(name, kept)| (kept.message.wall_ns(), name.clone())).collect();
        by_age.sort_unstable();
        let mut forgotten = 0;
        for (_, name) in by_age {
            if self.stock.used() <= self.stock.most() {
                break;
            }
            self.take(&name);
            forgotten += 1;
        }
        forgotten
    }

    fn take(&mut self, name: &str) {
        if let Some(kept) = self.kept.remove(name) {
            self.stock.subtract(cost_of_kept(name, &kept.message));
        }
    }

    pub fn len(&self) -> usize {
        self.kept.len()
    }

    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub fn contains(&self, name: &str) -> bool {
        self.kept.contains_key(name)
    }

    /// Keeps a message as the one of its name; one without a payload removes it [MQTT-3.3.1-6].
    pub(crate) fn keep(&mut self, name: &str, message: Message, entry: Option<Entry>) {
        self.take(name);
        if message.body_len() == 0 {
            self.removed.note(name, message.wall_ns());
        } else {
            self.stock.add(cost_of_kept(name, &message));
            self.kept.insert(name.into(), Kept { message, entry });
        }
    }

    /// Wall clock of the latest message of a name, also of one that removed it: of two brokers' messages the later one
    /// counts. 0: there is none.
    pub fn version(&self, name: &str) -> i64 {
        let kept = self.kept.get(name).map(|kept| kept.message.wall_ns());
        kept.or_else(|| self.removed.version(name)).unwrap_or(0)
    }

    /// At most `most` messages behind a name.
    pub fn behind(&self, after: Option<&str>, most: usize) -> impl Iterator<Item = (&str, &Message)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.kept.range::<str, _>((from, Bound::Unbounded)).take(most).map(|(name, kept)| (&**name, &kept.message))
    }

    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        self.kept.values().map(|kept| &kept.message)
    }

    /// Writes at most `most` of them anew, behind a name. Returns the last one's; `None`: there are no more.
    pub(crate) fn renew(
        &mut self,
        after: &str,
        most: usize,
        mut put: impl FnMut(Message) -> Entry,
    ) -> Option<Box<str>> {
        let from = if after.is_empty() { Bound::Unbounded } else { Bound::Excluded(after) };
        let mut last = None;
        for (name, kept) in self.kept.range_mut::<str, _>((from, Bound::Unbounded)).take(most) {
            if kept.entry.is_some() {
                kept.entry = Some(put(kept.message.clone()));
            }
            last = Some(name.clone());
        }
        last
    }

    /// Goes on through at most `most` names, up to the next message of the pattern.
    pub fn next(&self, replay: &mut Replay, most: usize) -> Found {
        let prefix = replay.prefix();
        let from = match &replay.after {
            Some(after) => Bound::Excluded(&**after),
            None => Bound::Included(prefix),
        };
        let mut last = None;
        let names = self.kept.range::<str, _>((from, Bound::Unbounded));
        for (visited, (name, kept)) in names.enumerate() {
            if !name.starts_with(prefix) {
                return Found::End;
            }
            if visited == most {
                replay.after = last;
                return Found::Nothing;
            }
            last = Some(name.clone());
            let is_hidden = is_reserved(name) && replay.pattern.starts_with(['+', '#']);
            if !is_hidden && matches(&replay.pattern, name) {
                replay.after = last;
                return Found::Message(kept.message.clone());
            }
        }
        Found::End
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::MessageId;
    use crate::memory::Meter;
    use crate::protocol::mqtt::topic_filter::Filter;
    use crate::queueing::message::{Alone, Builder};

    fn message(body: &str) -> Message {
        let alone = Alone { id: MessageId(1), wall_ns: 0, attributes: b"", body: body.as_bytes() };
        Builder::default().alone(&Meter::default(), alone, 0, 0)
    }

    fn all(retained: &Retained, pattern: &str, most: usize) -> Vec<String> {
        let (mut replay, mut found) = (Replay::new(pattern, Options::default(), 0), Vec::new());
        loop {
            match retained.next(&mut replay, most) {
                Found::Message(message) => found.push(String::from_utf8(message.body().to_vec()).expect("a name")),
                Found::Nothing => {}
                Found::End => return found,
            }
        }
    }

    #[test]
    fn a_message_without_a_payload_removes_what_is_retained() {
        let mut retained = Retained::default();
        retained.keep("a", message("a"), None);
        retained.keep("a", message(""), None);
        assert!(retained.is_empty());
    }

    #[test]
    fn a_name_keeps_the_version_of_its_latest_message_also_of_one_that_removed_it() {
        let of = |wall_ns, body: &str| {
            let alone = Alone { id: MessageId(1), wall_ns, attributes: b"", body: body.as_bytes() };
            Builder::default().alone(&Meter::default(), alone, 0, 0)
        };
        let mut retained = Retained::default();
        assert_eq!(retained.version("a"), 0);
        retained.keep("a", of(5, "a"), None);
        assert_eq!(retained.version("a"), 5);
        retained.keep("a", of(7, ""), None);
        assert_eq!(retained.version("a"), 7);
        retained.keep("a", of(9, "a"), None);
        assert_eq!(retained.version("a"), 9);
        for number in 0..=MOST_REMOVED {
            retained.keep(&number.to_string(), of(9, ""), None);
        }
        assert_eq!((retained.version("0"), retained.version("1")), (0, 9), "no more than that is remembered");
    }

    proptest! {
        #[test]
        fn a_subscription_finds_each_name_that_it_matches_once_in_whatever_portions(
            names in prop::collection::btree_set("(a|b|[$]x|)(/(a|b|ab|)){0,3}", 1..30),
            pattern in "(a|b|[+]|[$]x)(/(a|b|[+]|)){0,2}(/#)?", most in 1..4_usize,
        ) {
            prop_assume!(Filter::parse(&pattern).is_some());
            let mut retained = Retained::default();
            names.iter().filter(|name| !name.is_empty()).for_each(|name| retained.keep(name, message(name), None));
            let wanted: Vec<String> =
                names.iter().filter(|name| !name.is_empty() && matches(&pattern, name)).cloned().collect();
            prop_assert_eq!(all(&retained, &pattern, most), wanted);
        }
    }
}
