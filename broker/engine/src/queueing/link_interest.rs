//! What another broker wants of a topic: the channel of its link takes nothing else.

use crate::protocol::mqtt::topic_filter::matches;

/// What the subscribers of another broker want.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkInterest {
    pub filters: Option<Vec<String>>, // None: all names
    pub groups: Vec<String>,          // `$share/GROUP/FILTER` that have a member there who is connected
    pub kept: Vec<String>,            // others that last, and are kept there until a member comes
    /// One of them has a session that outlives its connection: nothing is acknowledged before it is on disk.
    pub durable: bool,
}

impl LinkInterest {
    /// Of a broker that has not said yet what it wants.
    pub const EVERYTHING: Self = Self { filters: None, groups: Vec::new(), kept: Vec::new(), durable: true };

    /// Whether a message of this name is wanted. Its subscribers judge again, each by its own filters.
    pub fn wants(&self, name: &str) -> bool {
        self.filters.as_ref().is_none_or(|filters| filters.iter().any(|filter| matches(filter, name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_takes_what_a_filter_of_the_other_broker_matches() {
        let some = LinkInterest { filters: Some(vec!["plant/+/heat".into()]), ..LinkInterest::EVERYTHING };
        assert!(some.wants("plant/1/heat") && !some.wants("plant/1/cold"));
        let all = LinkInterest::EVERYTHING;
        assert!(all.wants("a") && all.wants("$x/y"));
    }
}
