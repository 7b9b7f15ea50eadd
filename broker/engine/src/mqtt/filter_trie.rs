//! All subscriptions, in a trie over the levels of their patterns.
//!
//! A level's text is kept once, under a number (`Symbols`); an edge leads from a node and a symbol to a node. A name is
//! followed along its own levels and, at each node, along `+` and `#`.
//!
//! Edges and texts are found by hash tables of numbers, whose keys stand where the numbers lead: a table that is large
//! enough for all clients costs five bytes a place.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use crate::keys::{GroupKey, SessionKey};
use crate::protocol::mqtt::packet::Options;
use crate::protocol::mqtt::topic_filter::{is_reserved, levels, matches};

/// Who wants messages of a pattern, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscriber {
    pub who: Who,
    pub slot: u32, // of the session's list of subscriptions
    pub id: u32,   // Subscription Identifier; 0: none
    pub options: Options,
}

impl Subscriber {
    /// Whether it is a session, and no group.
    pub fn is_session(&self) -> bool {
        matches!(self.who, Who::Session(_))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    Session(SessionKey),
    Group(GroupKey),
}

/// Where a subscription is: the node of its pattern, and its place there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub node: u32,
    pub position: u32,
}

const ROOT: u32 = 0;
const PLUS: u32 = 0;
const HASH: u32 = 1;

#[derive(Debug)]
struct Node<T> {
    parent: u32,
    symbol: u32,
    children: u32,
    subscribers: Vec<T>,
}

/// `T`: what a pattern leads to.
#[derive(Debug)]
pub struct FilterTrie<T = Subscriber> {
    nodes: Vec<Node<T>>,
    free: Vec<u32>,
    edges: HashTable<u32>, // nodes, by parent and symbol
    key: RandomState,
    symbols: Symbols,
    count: usize, // of subscribers
}

impl<T> Default for FilterTrie<T> {
    fn default() -> Self {
        let symbols = Symbols::default();
        let root = Node { parent: 0, symbol: 0, children: 0, subscribers: Vec::new() };
        let key = RandomState::new();
        Self { nodes: vec![root], free: Vec::new(), edges: HashTable::new(), key, symbols, count: 0 }
    }
}

fn hash_of(key: &RandomState, node: u32, symbol: u32) -> u64 {
    key.hash_one(u64::from(node) << 32 | u64::from(symbol))
}

impl<T: Copy> FilterTrie<T> {
    /// Makes room for so many subscriptions, each with one level of its own and one behind it.
    pub fn reserve(&mut self, subscriptions: usize) {
        self.nodes.reserve(2 * subscriptions);
        self.edges.reserve(2 * subscriptions, |node| {
            let Node { parent, symbol, .. } = &self.nodes[*node as usize];
            hash_of(&self.key, *parent, *symbol)
        });
        self.symbols.reserve(subscriptions);
    }

    /// Where an edge leads.
    fn next(&self, node: u32, symbol: u32) -> Option<u32> {
        let is_it = |child: &u32| {
            let child = &self.nodes[*child as usize];
            (child.parent, child.symbol) == (node, symbol)
        };
        self.edges.find(hash_of(&self.key, node, symbol), is_it).copied()
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The node of a pattern that somebody has subscribed to.
    pub fn node_of(&self, pattern: &str) -> Option<u32> {
        levels(pattern).try_fold(ROOT, |node, level| {
            let symbol = self.symbols.find(level)?;
            self.next(node, symbol)
        })
    }

    /// Adds a subscriber; the pattern is sound.
    pub fn insert(&mut self, pattern: &str, subscriber: T) -> Place {
        let node = levels(pattern).fold(ROOT, |node, level| self.child(node, level));
        let subscribers = &mut self.nodes[node as usize].subscribers;
        if subscribers.is_empty() {
            subscribers.reserve_exact(1); // most patterns have one subscriber
        }
        subscribers.push(subscriber);
        self.count += 1;
        Place { node, position: subscribers.len() as u32 - 1 }
    }

    fn child(&mut self, parent: u32, level: &str) -> u32 {
        let known = self.symbols.find(level).and_then(|symbol| self.next(parent, symbol));
        if let Some(node) = known {
            return node;
        }
        let symbol = self.symbols.take(level);
        let new = Node { parent, symbol, children: 0, subscribers: Vec::new() };
        let node = match self.free.pop() {
            Some(free) => {
                self.nodes[free as usize] = new;
                free
            }
            None => {
                self.nodes.push(new);
                self.nodes.len() as u32 - 1
            }
        };
        let Self { nodes, edges, key, .. } = self;
        edges.insert_unique(hash_of(key, parent, symbol), node, |node| {
            let Node { parent, symbol, .. } = &nodes[*node as usize];
            hash_of(key, *parent, *symbol)
        });
        self.nodes[parent as usize].children += 1;
        node
    }

    pub fn get(&self, place: Place) -> Option<&T> {
        self.nodes.get(place.node as usize)?.subscribers.get(place.position as usize)
    }

    pub fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        self.nodes.get_mut(place.node as usize)?.subscribers.get_mut(place.position as usize)
    }

    /// Removes a subscriber. Another one may have taken its place: it is returned.
    pub fn remove(&mut self, place: Place) -> Option<T> {
        let subscribers = &mut self.nodes.get_mut(place.node as usize)?.subscribers;
        if place.position as usize >= subscribers.len() {
            return None;
        }
        subscribers.swap_remove(place.position as usize);
        self.count -= 1;
        let moved = subscribers.get(place.position as usize).copied();
        self.prune(place.node);
        moved
    }

    /// Removes a node that leads nowhere any more, and those above it.
    fn prune(&mut self, mut node: u32) {
        while node != ROOT {
            let Node { parent, symbol, children, subscribers } = &mut self.nodes[node as usize];
            if *children > 0 || !subscribers.is_empty() {
                return;
            }
            *subscribers = Vec::new();
            let (parent, symbol) = (*parent, *symbol);
            if let Ok(edge) = self.edges.find_entry(hash_of(&self.key, parent, symbol), |child| *child == node) {
                edge.remove();
            }
            self.symbols.give_back(symbol);
            self.free.push(node);
            self.nodes[parent as usize].children -= 1;
            node = parent;
        }
    }

    /// Removes the first subscriber of a pattern that is this one.
    pub fn take_out(&mut self, pattern: &str, subscriber: T)
    where
        T: PartialEq,
    {
        let Some(node) = self.node_of(pattern) else { return };
        let position = self.nodes[node as usize].subscribers.iter().position(|other| *other == subscriber);
        position.into_iter().for_each(|at| _ = self.remove(Place { node, position: at as u32 }));
    }

    /// Whether one of the subscribers at a node is such.
    pub fn has(&self, node: u32, is_such: impl Fn(&T) -> bool) -> bool {
        self.nodes.get(node as usize).is_some_and(|node| node.subscribers.iter().any(is_such))
    }

    /// Patterns that have such a subscriber, `most` of them at most.
    pub fn patterns(&self, most: usize, is_such: impl Fn(&T) -> bool) -> Vec<String> {
        let such = self.nodes.iter().zip(0..).filter(|(node, _)| node.subscribers.iter().any(&is_such));
        such.take(most).map(|(_, number)| self.pattern(number)).collect()
    }

    /// The pattern of a node.
    pub fn pattern(&self, mut node: u32) -> String {
        let mut parts = Vec::new();
        while node != ROOT {
            let Node { parent, symbol, .. } = &self.nodes[node as usize];
            parts.push(self.symbols.text(*symbol));
            node = *parent;
        }
        parts.reverse();
        parts.join("/")
    }

    /// Adds the subscribers of all patterns that match a name to `found`. Returns from how many patterns they come: a
    /// session may be there once for each.
    pub fn matching(&self, name: &str, found: &mut Vec<T>) -> usize {
        let mut patterns = 0;
        self.visit(name, |_, subscribers| {
            patterns += 1;
            found.extend_from_slice(subscribers);
        });
        patterns
    }

    /// Gives `take` one subscriber's subscriptions to the patterns that match a name. `own`: where all of them are,
    /// which `is_own` tells from those of others; at each pattern the shorter list is searched.
    pub fn matching_of(&self, name: &str, own: &[Place], is_own: impl Fn(&T) -> bool, mut take: impl FnMut(&T)) {
        if let [only] = own {
            let it = self.get(*only).filter(|_| matches(&self.pattern(only.node), name));
            return it.into_iter().for_each(take); // the way through the trie is longer
        }
        self.visit(name, |node, subscribers| {
            let found = if own.len() < subscribers.len() {
                let place = own.iter().find(|place| place.node == node);
                place.and_then(|place| subscribers.get(place.position as usize))
            } else {
                subscribers.iter().find(|subscriber| is_own(subscriber))
            };
            found.into_iter().for_each(&mut take);
        });
    }

    /// Visits the nodes whose patterns match a name, with their subscribers, if there are any.
    fn visit(&self, name: &str, mut each: impl FnMut(u32, &[T])) {
        let mut take = |node: u32| {
            let subscribers = &self.nodes[node as usize].subscribers;
            if !subscribers.is_empty() {
                each(node, subscribers);
            }
        };
        let wild = !is_reserved(name);
        let mut open: Vec<(u32, Option<&str>)> = vec![(ROOT, Some(name))];
        while let Some((node, rest)) = open.pop() {
            let any = wild || node != ROOT;
            if any && let Some(all) = self.next(node, HASH) {
                take(all);
            }
            let Some(rest) = rest else {
                take(node);
                continue;
            };
            let (level, behind) = rest.split_once('/').map_or((rest, None), |(level, behind)| (level, Some(behind)));
            if any && let Some(one) = self.next(node, PLUS) {
                open.push((one, behind));
            }
            let own = self.symbols.find(level).and_then(|symbol| self.next(node, symbol));
            if let Some(own) = own {
                open.push((own, behind));
            }
        }
    }
}

/// Texts of levels, each once.
#[derive(Debug)]
struct Symbols {
    numbers: HashTable<u32>, // of texts, by text
    key: RandomState,
    texts: Vec<(Box<str>, u32)>, // and how many nodes have each
    free: Vec<u32>,
}

impl Default for Symbols {
    fn default() -> Self {
        let (texts, free) = (Vec::new(), Vec::new());
        let mut symbols = Self { numbers: HashTable::new(), key: RandomState::new(), texts, free };
        symbols.take("+"); // PLUS and HASH stay for good
        symbols.take("#");
        symbols
    }
}

impl Symbols {
    fn reserve(&mut self, texts: usize) {
        self.numbers.reserve(texts, |symbol| self.key.hash_one(&*self.texts[*symbol as usize].0));
        self.texts.reserve(texts);
    }

    fn find(&self, text: &str) -> Option<u32> {
        self.numbers.find(self.key.hash_one(text), |symbol| *self.texts[*symbol as usize].0 == *text).copied()
    }

    fn text(&self, symbol: u32) -> &str {
        &self.texts[symbol as usize].0
    }

    fn take(&mut self, text: &str) -> u32 {
        if let Some(symbol) = self.find(text) {
            self.texts[symbol as usize].1 += 1;
            return symbol;
        }
        let symbol = match self.free.pop() {
            Some(free) => {
                self.texts[free as usize] = (text.into(), 1);
                free
            }
            None => {
                self.texts.push((text.into(), 1));
                self.texts.len() as u32 - 1
            }
        };
        let Self { numbers, key, texts, .. } = self;
        numbers.insert_unique(key.hash_one(text), symbol, |symbol| key.hash_one(&*texts[*symbol as usize].0));
        symbol
    }

    fn give_back(&mut self, symbol: u32) {
        let (text, users) = &mut self.texts[symbol as usize];
        *users -= 1;
        if *users == 0 {
            if let Ok(number) = self.numbers.find_entry(self.key.hash_one(&**text), |other| *other == symbol) {
                number.remove();
            }
            *text = Box::default();
            self.free.push(symbol);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use slotmap::SlotMap;

    use super::*;
    use crate::protocol::mqtt::topic_filter::Filter;

    fn subscriber(session: SessionKey) -> Subscriber {
        Subscriber { who: Who::Session(session), slot: 0, id: 0, options: Options::default() }
    }

    fn sessions(trie: &FilterTrie, name: &str) -> BTreeSet<Who> {
        let mut found = Vec::new();
        trie.matching(name, &mut found);
        let all: BTreeSet<Who> = found.iter().map(|subscriber| subscriber.who).collect();
        assert_eq!(all.len(), found.len(), "one subscription is found once");
        all
    }

    #[test]
    fn the_subscriptions_of_one_are_found_by_the_shorter_list() {
        let mut keys: SlotMap<SessionKey, ()> = SlotMap::with_key();
        let mut trie = FilterTrie::default();
        let (busy, plain) = (keys.insert(()), keys.insert(()));
        let mut of_busy: Vec<Place> = (0..1_000).map(|n| trie.insert(&format!("a/{n}"), subscriber(busy))).collect();
        of_busy.push(trie.insert("a/+", subscriber(busy)));
        (0..1_000).for_each(|_| _ = trie.insert("crowd/#", subscriber(keys.insert(()))));
        let of_plain = ["crowd/#", "b"].map(|pattern| trie.insert(pattern, subscriber(plain)));
        for (key, name, own, found, most) in [(busy, "a/7", &of_busy[..], 2, 2), (plain, "crowd/7", &of_plain, 1, 0)] {
            let (looked, mut taken) = (std::cell::Cell::new(0), 0);
            let is_own = |subscriber: &Subscriber| {
                looked.set(looked.get() + 1);
                subscriber.who == Who::Session(key)
            };
            trie.matching_of(name, own, is_own, |_| taken += 1);
            assert_eq!(taken, found);
            assert_eq!(looked.get(), most, "{name}");
        }
    }

    const LEVEL: &str = "(a|b|[$]x||[+])";

    proptest! {
        #[test]
        fn the_trie_finds_whom_the_plain_rule_finds(
            patterns in prop::collection::vec((prop::collection::vec(LEVEL, 1..5), any::<bool>()), 1..40),
            names in prop::collection::vec(prop::collection::vec("(a|b|c|[$]x|)", 1..6), 1..20),
            gone in any::<u64>(),
        ) {
            let mut keys: SlotMap<SessionKey, ()> = SlotMap::with_key();
            let mut trie = FilterTrie::default();
            let mut there: Vec<(String, SessionKey, Place)> = Vec::new();
            for (levels, all) in patterns {
                let pattern = if all { format!("{}/#", levels.join("/")) } else { levels.join("/") };
                if Filter::parse(&pattern).is_none() {
                    continue;
                }
                let session = keys.insert(());
                let place = trie.insert(&pattern, subscriber(session));
                prop_assert_eq!(trie.node_of(&pattern), Some(place.node));
                prop_assert_eq!(trie.pattern(place.node), pattern.as_str());
                there.push((pattern, session, place));
            }
            for round in 0..2 {
                for name in &names {
                    let name = name.join("/");
                    let wanted: BTreeSet<Who> =
                        there.iter()
                            .filter(|(pattern, ..)| matches(pattern, &name))
                            .map(|(_, session, _)| Who::Session(*session))
                            .collect();
                    prop_assert_eq!(sessions(&trie, &name), wanted, "{}", name);
                    // As if they were two sessions', one after the other.
                    for own in there.chunks(there.len() / 2 + 1) {
                        let places: Vec<Place> = own.iter().map(|(_, _, place)| *place).collect();
                        let is_own = |one: &Subscriber| own.iter().any(|(_, key, _)| one.who == Who::Session(*key));
                        let patterns = own.iter().map(|(pattern, ..)| pattern.as_str());
                        let patterns: BTreeSet<&str> = patterns.filter(|pattern| matches(pattern, &name)).collect();
                        let mut found = 0;
                        trie.matching_of(&name, &places, is_own, |_| found += 1);
                        prop_assert_eq!(found, patterns.len(), "{}", name);
                    }
                }
                prop_assert_eq!(trie.len(), there.len());
                let mut at = 0;
                while at < there.len() {
                    if round == 0 && gone >> (at % 64) & 1 == 0 {
                        at += 1;
                        continue;
                    }
                    let (_, _, place) = there.remove(at);
                    if let Some(moved) = trie.remove(place) {
                        let other = there.iter_mut().find(|(_, session, _)| Who::Session(*session) == moved.who);
                        other.expect("the one that moved").2.position = place.position;
                    }
                }
            }
            prop_assert!(trie.is_empty() && trie.edges.is_empty());
            prop_assert_eq!(trie.free.len(), trie.nodes.len() - 1, "every node is free again");
            prop_assert_eq!(trie.symbols.numbers.len(), 2);
        }
    }
}
