//! Which names belong to which topic, as topic files say, and what they say of clients that know no refusal.

use std::collections::HashMap;
use std::rc::Rc;

use slotmap::{SlotMap, new_key_type};

use crate::mqtt::filter_trie::FilterTrie;
use crate::protocol::mqtt::topic_filter::matches;

new_key_type! { struct OwnerKey; }

/// What becomes of a PUBLISH of QoS 1 or 2 above the limit, from a client of 3.1 or 3.1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum V3Excess {
    /// It waits for its token, also where others are refused. Where the topic has no room, the connection ends.
    #[default]
    Delay,
    /// The connection ends: the client sends again after its next CONNECT.
    Close,
    /// It is not acknowledged: the client may send it again after its next CONNECT.
    Drop,
}

impl V3Excess {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "delay" => Some(Self::Delay),
            "close" => Some(Self::Close),
            "drop" => Some(Self::Drop),
            _ => None,
        }
    }
}

/// A topic whose file was submitted.
#[derive(Debug)]
struct Owner {
    topic: Rc<str>,
    filters: Vec<String>,
    v3_excess: V3Excess,
    said: Option<Box<str>>, // the name of messages that came by NSQ; None: the topic's own
}

/// The filters of all topics. Those of different topics have no name in common, except while they change hands.
#[derive(Debug, Default)]
pub struct ManagedNames {
    owners: SlotMap<OwnerKey, Owner>,
    by_topic: HashMap<Rc<str>, OwnerKey>,
    filters: FilterTrie<OwnerKey>,
}

impl ManagedNames {
    /// Gives a topic these filters, which are sound, instead of those that it had.
    pub fn set(&mut self, topic: &str, filters: Vec<String>, v3_excess: V3Excess) {
        self.clear(topic);
        if filters.is_empty() && v3_excess == V3Excess::default() {
            return;
        }
        let topic: Rc<str> = topic.into();
        let key = self.owners.insert(Owner { topic: topic.clone(), filters, v3_excess, said: None });
        for filter in &self.owners[key].filters {
            self.filters.insert(filter, key);
        }
        self.by_topic.insert(topic, key);
    }

    pub fn clear(&mut self, topic: &str) {
        let Some(owner) = self.by_topic.remove(topic).and_then(|key| Some((key, self.owners.remove(key)?))) else {
            return;
        };
        for filter in &owner.1.filters {
            self.filters.take_out(filter, owner.0);
        }
    }

    /// The topic with a filter that matches the name.
    pub fn owner_of(&self, name: &str) -> Option<&str> {
        if self.filters.is_empty() {
            return None;
        }
        let mut found = Vec::new();
        self.filters.matching(name, &mut found);
        found.first().and_then(|key| self.owners.get(*key)).map(|owner| &*owner.topic)
    }

    /// Names the messages of a topic that come by NSQ, until `set`; `false`: no filter of the topic matches the name.
    pub fn say(&mut self, topic: &str, name: &str) -> bool {
        let Some(owner) = self.by_topic.get(topic).and_then(|key| self.owners.get_mut(*key)) else { return false };
        let is_its = owner.filters.iter().any(|filter| matches(filter, name));
        if is_its {
            owner.said = Some(name.into());
        }
        is_its
    }

    /// The name of a topic's messages that came by NSQ.
    pub fn name_of<'a>(&'a self, topic: &'a str) -> &'a str {
        let owner = self.by_topic.get(topic).and_then(|key| self.owners.get(*key));
        owner.and_then(|owner| owner.said.as_deref()).unwrap_or(topic)
    }

    pub fn v3_excess(&self, topic: &str) -> V3Excess {
        let owner = self.by_topic.get(topic).and_then(|key| self.owners.get(*key));
        owner.map(|owner| owner.v3_excess).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filters(texts: &[&str]) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_name_belongs_to_the_topic_whose_filter_matches_it_until_the_filter_goes() {
        let mut names = ManagedNames::default();
        names.set("heat", filters(&["plant/+/heat", "old/heat/#"]), V3Excess::Close);
        names.set("noise", filters(&["plant/+/noise"]), V3Excess::Delay);
        assert_eq!(names.owner_of("plant/7/heat"), Some("heat"));
        assert_eq!(names.owner_of("plant/7/noise"), Some("noise"));
        assert_eq!(names.owner_of("old/heat"), Some("heat"));
        assert_eq!(names.owner_of("plant/7/light"), None);
        assert_eq!(names.v3_excess("heat"), V3Excess::Close);
        assert_eq!(names.v3_excess("light"), V3Excess::Delay);
        names.set("heat", filters(&["plant/+/heat"]), V3Excess::Drop);
        assert_eq!((names.owner_of("old/heat"), names.v3_excess("heat")), (None, V3Excess::Drop));
        names.clear("heat");
        names.clear("noise");
        assert_eq!((names.owner_of("plant/7/heat"), names.v3_excess("heat")), (None, V3Excess::Delay));
        assert!(names.filters.is_empty() && names.owners.is_empty() && names.by_topic.is_empty());
    }

    #[test]
    fn a_filter_that_changes_hands_belongs_to_its_new_topic_in_either_order() {
        for new_first in [true, false] {
            let mut names = ManagedNames::default();
            names.set("old", filters(&["a/#"]), V3Excess::Delay);
            match new_first {
                true => {
                    names.set("new", filters(&["a/#"]), V3Excess::Delay);
                    names.clear("old");
                }
                false => {
                    names.clear("old");
                    names.set("new", filters(&["a/#"]), V3Excess::Delay);
                }
            }
            assert_eq!(names.owner_of("a/b"), Some("new"));
            assert!(names.say("new", "a/b") && !names.say("new", "b") && !names.say("old", "a/b"));
            assert_eq!((names.name_of("new"), names.name_of("old")), ("a/b", "old"));
        }
    }
}
