//! Answers to SUBSCRIBE that wait until other brokers know what is wanted here: what is published there after the
//! answer must come.

use serde::Serialize;

use crate::clients::reply::Reply;
use crate::engine::Engine;
use crate::event::Event;
use crate::keys::{GroupKey, SessionKey, VISITS_A_TURN};
use crate::mqtt::elsewhere::interest::{MOST_FILTER_BYTES, MOST_FILTERS, Subscribed, told_groups};
use crate::mqtt::filter_trie::Subscriber;
use crate::mqtt::group::Group;
use crate::mqtt::session::Session;
use crate::protocol::mqtt::topic_filter::is_reserved;
use crate::scheduling::client_limits::Limit;
use crate::time::Nanos;
use crate::timer::Timer;

/// What the subscribers here want of other brokers. `filters`: `None` for all messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InterestView {
    pub version: u64,
    pub filters: Option<Vec<String>>,
    pub groups: Vec<String>, // `$share/GROUP/FILTER` with a member that is connected
    pub kept: Vec<String>,   // others, which outlive the connections of their members
    pub durable: bool,
}

impl Engine {
    /// There are other brokers from now on, or none any more.
    pub fn share_interest(&mut self, is_shared: bool) {
        self.mqtt.interest.share(is_shared);
    }

    /// What is wanted of other brokers now.
    pub fn interest(&mut self) -> InterestView {
        let patterns = self.mqtt.filters.patterns(MOST_FILTERS + 1, Subscriber::is_session);
        let is_short = patterns.iter().map(String::len).sum::<usize>() <= MOST_FILTER_BYTES;
        let filters = (patterns.len() <= MOST_FILTERS && is_short).then_some(patterns);
        let subscribes = |session: &Session| !session.subscriptions.is_empty() || !session.groups().is_empty();
        let is_durable = |session: &Session| session.is_durable() && subscribes(session);
        let sessions = &self.mqtt.sessions;
        let declares = self.mqtt.groups.values().any(|group| group.is_declared);
        let durable = declares || sessions.len() > VISITS_A_TURN || sessions.values().any(is_durable);
        let version = self.mqtt.interest.look(filters.is_none(), durable);
        let (groups, kept, untold) = self.groups_to_tell();
        untold.into_iter().for_each(|name| self.limits.note(Limit::SharedGroups, &name));
        InterestView { version, filters, groups, kept, durable }
    }

    /// Those with a member that is connected, others that last, and the first that is too many.
    fn groups_to_tell(&self) -> (Vec<String>, Vec<String>, Option<String>) {
        let groups = || self.mqtt.groups.values();
        let with_members = groups().filter(|group| self.has_member_here(group));
        let kept = groups().filter(|group| !self.has_member_here(group) && self.is_kept_here(group));
        let (told, untold) = told_groups(with_members.chain(kept).map(|group| &*group.name));
        let has_member = |name: &&str| self.mqtt.by_group.get(*name).is_some_and(|key| self.is_connected_group(*key));
        let (groups, kept): (Vec<&str>, Vec<&str>) = told.into_iter().partition(has_member);
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        (owned(groups), owned(kept), untold.map(str::to_owned))
    }

    fn is_connected_group(&self, key: GroupKey) -> bool {
        self.mqtt.groups.get(key).is_some_and(|group| self.has_member_here(group))
    }

    /// Whether a client may not make this group, since other brokers would not hear of it. The first such one is noted,
    /// to be logged.
    pub(crate) fn is_group_too_many(&mut self, name: &str) -> bool {
        if !self.mqtt.interest.is_shared || self.mqtt.by_group.contains_key(name) {
            return false;
        }
        let names = self.mqtt.groups.values().map(|group| &*group.name).chain([name]);
        let is_too_many = told_groups(names).1.is_some();
        if is_too_many {
            self.limits.note(Limit::SharedGroups, name);
        }
        is_too_many
    }

    /// Whether a group lasts here without a member that is connected. A session that leaves takes what waits with it.
    fn is_kept_here(&self, group: &Group) -> bool {
        let lasts = |session: &Session| session.is_durable() && !session.departs;
        let has_lasting = || group.members.iter().any(|one| self.mqtt.sessions.get(one.session).is_some_and(lasts));
        group.is_declared || has_lasting()
    }

    pub(crate) fn has_member_here(&self, group: &Group) -> bool {
        let is_here = |key| self.mqtt.sessions.get(key).is_some_and(|session| session.conn.is_some());
        group.members.iter().any(|member| is_here(member.session))
    }

    /// A session that may have groups has joined one, got a connection or lost it.
    pub(crate) fn note_member(&mut self, key: SessionKey) {
        if self.mqtt.sessions.get(key).is_some_and(|session| !session.groups().is_empty()) {
            self.mqtt.interest.note_groups();
            self.tell_interest();
            self.list_lending();
        }
    }

    /// Topic files declare other groups than before.
    pub(crate) fn note_declared(&mut self) {
        self.mqtt.interest.note_groups();
        self.tell_interest();
        self.list_lending();
    }

    /// All other brokers know this version of what is wanted.
    pub fn settle_interest(&mut self, version: u64) {
        let settled = self.mqtt.interest.settle(version);
        self.flush_known(version);
        self.answer_subscribed(settled);
    }

    /// A subscription is new. `is_first`: nobody had its pattern before.
    pub(crate) fn note_interest(&mut self, key: SessionKey, pattern: &str, is_first: bool) {
        if is_first {
            self.mqtt.interest.note_pattern(is_reserved(pattern));
        }
        if self.mqtt.sessions.get(key).is_some_and(Session::is_durable) {
            self.mqtt.interest.note_durable();
        }
        self.tell_interest();
    }

    /// A pattern has lost a subscriber. If that was the last one, the other brokers may send less.
    pub(crate) fn lose_interest(&mut self, pattern: &str) {
        let node = self.mqtt.filters.node_of(pattern);
        if node.is_some_and(|node| self.mqtt.filters.has(node, Subscriber::is_session)) {
            return;
        }
        self.mqtt.interest.lose_pattern(self.mqtt.filters.len());
        self.tell_interest();
    }

    fn tell_interest(&mut self) {
        if self.mqtt.interest.take_news() {
            self.events.push(Event::MqttInterestChanged);
        }
    }

    /// Gives the answer to a SUBSCRIBE, now or once all other brokers know of it.
    pub(crate) fn answer_subscribe(&mut self, subscribed: Subscribed, now: Nanos) {
        if self.mqtt.interest.is_settled() {
            return self.answer_subscribed(vec![subscribed]);
        }
        let at = self.mqtt.interest.wait(subscribed, now);
        self.timers.arm(&mut self.mqtt.interest.armed, at, Timer::Subscriptions);
    }

    pub(crate) fn handle_late_subscriptions(&mut self, at: Nanos, now: Nanos) {
        if !self.mqtt.interest.armed.fire(at) {
            return;
        }
        let overdue = self.mqtt.interest.overdue(now);
        if !overdue.is_empty() {
            self.events.push(Event::SubscribedEarly { times: overdue.len() as u64 });
        }
        self.answer_subscribed(overdue);
        if let Some(at) = self.mqtt.interest.next_due() {
            self.timers.arm(&mut self.mqtt.interest.armed, at, Timer::Subscriptions);
        }
    }

    fn answer_subscribed(&mut self, all: Vec<Subscribed>) {
        for Subscribed { conn, session: key, answer, replays } in all {
            self.turn.replies.push((conn, Reply::Raw(answer)));
            if replays.is_empty() || self.mqtt.retained.is_empty() {
                continue;
            }
            if let Some(session) = self.mqtt.sessions.get_mut(key) {
                session.seldom().replays.extend(replays);
            }
            self.list_owing(key);
        }
    }
}
