//! Shared subscriptions: a group has one queue, and each of its messages goes to one of its members.
//!
//! It is what a channel is for NSQ: members that are connected and have room take turns; what was in flight to one that
//! left goes to another at once, in front of the others.

use std::collections::VecDeque;

use crate::keys::SessionKey;
use crate::mqtt::filter_trie::Place;
use crate::mqtt::topic_tally::Owed;
use crate::protocol::mqtt::packet::Options;
use crate::queueing::queue::Queue;

#[derive(Debug, Clone, Copy)]
pub struct Member {
    pub session: SessionKey,
    pub id: u32, // Subscription Identifier; 0: none
    pub options: Options,
}

#[derive(Debug)]
pub struct Group {
    pub name: Box<str>,
    pub place: Place,
    pub members: VecDeque<Member>, // who is next comes first
    pub queue: Queue,
    pub owed: Owed, // what is in it, by topic
}

impl Group {
    pub fn position(&self, session: SessionKey) -> Option<usize> {
        self.members.iter().position(|member| member.session == session)
    }
}
