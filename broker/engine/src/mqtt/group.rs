//! Shared subscriptions: a group has one queue, and each of its messages goes to one of its members.
//!
//! It is what a channel is for NSQ: members that are connected and have room take turns; what was in flight to one that
//! left goes to another at once, in front of the others. If the session of a member outlives its connection, the queue
//! is on disk. So is that of a group that a topic file declares, which is there also without members.

use std::collections::{HashMap, VecDeque};

use ring::digest;

use crate::keys::{SessionKey, TallyKey};
use crate::mqtt::filter_trie::Place;
use crate::mqtt::topic_tally::Owed;
use crate::protocol::mqtt::packet::Options;
use crate::queueing::queue::Queue;
use crate::storage::disk_queue::DiskQueue;

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
    pub is_declared: bool,                 // by a topic file: it is there without members too
    pub is_on_disk: bool,                  // it is so once a member's session outlives its connection
    pub owed: Owed,                        // what is in it, by topic
    pub counts: Vec<(TallyKey, TallyKey)>, // {topic: what the group has of it}
}

/// The groups that topic files declare.
#[derive(Debug, Default)]
pub struct DeclaredGroups {
    by_topic: HashMap<Box<str>, Vec<Box<str>>>,
    /// Queues of an earlier incarnation, by name, of groups that nobody has named yet.
    pub left: HashMap<String, DiskQueue>,
}

impl DeclaredGroups {
    /// Gives those that the topic had.
    pub fn set(&mut self, topic: &str, groups: &[String]) -> Vec<Box<str>> {
        let before = self.by_topic.remove(topic).unwrap_or_default();
        if !groups.is_empty() {
            self.by_topic.insert(topic.into(), groups.iter().map(|name| name.as_str().into()).collect());
        }
        before
    }

    pub fn has(&self, name: &str) -> bool {
        self.by_topic.values().flatten().any(|declared| **declared == *name)
    }
}

/// Of the queues of groups on disk. No topic has such a name: a plus is not allowed there.
pub const QUEUE: &str = "mqtt+queue+share+";

/// Bytes of a digest that tell the queues of groups apart.
const DIGEST_BYTES: usize = 16;

impl Group {
    /// Without members.
    pub fn new(name: &str, queue: Queue) -> Self {
        let (members, owed, counts) = Default::default();
        let place = Place { node: 0, position: 0 };
        Self { name: name.into(), place, members, queue, is_declared: false, is_on_disk: false, owed, counts }
    }

    /// Of its queue on disk, the same after each start.
    pub fn queue_name(&self) -> String {
        let digest = digest::digest(&digest::SHA256, self.name.as_bytes());
        let digits = digest.as_ref().iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}"));
        std::iter::once(QUEUE.to_owned()).chain(digits).collect()
    }

    pub fn position(&self, session: SessionKey) -> Option<usize> {
        self.members.iter().position(|member| member.session == session)
    }
}
