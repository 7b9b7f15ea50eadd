//! Cache of the topics to which a connection publishes.

use std::rc::Rc;

use crate::keys::TopicKey;
use crate::limiter::topic_contracts::Subject;
use crate::protocol::grants::MAX_REMEMBERED;

/// State common to all publishes of a connection to one topic.
#[derive(Debug)]
pub struct Published {
    pub topic: TopicKey,
    pub name: Box<str>,
    pub count: u64,
    pub generation: u64, // of the topic when this was read
    pub declared: bool,
    pub trace_index: Option<u32>,
    pub held_to: Option<Rc<Subject>>, // by a contract
}

/// The topics of a connection's latest publishes, oldest first.
///
/// The oldest is stored in place: most connections use one topic, and every message reads the entry.
#[derive(Debug, Default)]
pub struct PublishedTopics {
    first: Option<Published>,
    others: Vec<Published>,
}

impl PublishedTopics {
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Published> {
        self.first.iter().chain(&self.others)
    }

    pub fn get(&self, index: usize) -> Option<&Published> {
        if index == 0 { self.first.as_ref() } else { self.others.get(index - 1) }
    }

    /// The index of the one that this is true of.
    pub fn find(&self, is_it: impl Fn(&Published) -> bool) -> Option<usize> {
        if self.first.as_ref().is_some_and(&is_it) {
            return Some(0);
        }
        self.others.iter().position(is_it).map(|index| index + 1)
    }

    pub fn position(&self, name: &str) -> Option<usize> {
        self.find(|published| &*published.name == name)
    }

    /// Replaces the entry at `index`, or adds it as the newest; returns its index.
    pub fn remember(&mut self, index: Option<usize>, published: Published) -> usize {
        if let Some((index, known)) = index.and_then(|index| Some((index, self.get_mut(index)?))) {
            *known = published;
            return index;
        }
        if self.first.is_none() {
            self.first = Some(published);
            return 0;
        }
        if self.others.len() + 1 == MAX_REMEMBERED {
            self.first = Some(self.others.remove(0));
        }
        self.others.push(published);
        self.others.len()
    }

    pub fn count(&mut self, topic: TopicKey, messages: u32) {
        if let Some(published) = self.find(|published| published.topic == topic).and_then(|index| self.get_mut(index)) {
            published.count += u64::from(messages);
        }
    }

    pub fn clear(&mut self) {
        (self.first, self.others) = (None, Vec::new());
    }

    fn get_mut(&mut self, index: usize) -> Option<&mut Published> {
        if index == 0 { self.first.as_mut() } else { self.others.get_mut(index - 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(name: &str) -> Published {
        Published {
            topic: TopicKey::default(),
            name: name.into(),
            count: 0,
            generation: 0,
            declared: true,
            trace_index: None,
            held_to: None,
        }
    }

    #[test]
    fn the_newest_topics_are_remembered_and_each_is_found_where_it_was_said_to_be() {
        let mut topics = PublishedTopics::default();
        assert!(topics.is_empty());
        for number in 0..MAX_REMEMBERED + 3 {
            let name = number.to_string();
            let index = topics.remember(None, published(&name));
            assert_eq!((topics.position(&name), &*topics.get(index).expect("remembered").name), (Some(index), &*name));
        }
        let names: Vec<&str> = topics.iter().map(|published| &*published.name).collect();
        let newest: Vec<String> = (3..MAX_REMEMBERED + 3).map(|number| number.to_string()).collect();
        assert_eq!(names, newest);
        topics.clear();
        assert!(topics.is_empty() && topics.get(0).is_none() && topics.get(1).is_none());
    }

    #[test]
    fn one_that_is_known_is_replaced_where_it_stands() {
        let mut topics = PublishedTopics::default();
        ["a", "b", "c"].into_iter().for_each(|name| {
            topics.remember(None, published(name));
        });
        for index in 0..3 {
            assert_eq!(topics.remember(Some(index), Published { generation: 7, ..published("new") }), index);
        }
        assert!(topics.iter().all(|published| published.generation == 7));
        assert_eq!(topics.iter().count(), 3);
    }
}
