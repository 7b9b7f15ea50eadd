//! What holds after every turn of any sequence of operations: the meters are sums over all queues; each message in
//! flight is counted by its owner and by nobody else, and has a deadline that is armed; each consumer is in its
//! channel's ring at most once, and exactly if it is marked as listed; a connection that wants a message is listed;
//! keys that owners hold lead somewhere; nothing is past its due time; what sessions and groups hold of each topic is
//! counted once.

use std::collections::HashMap;

use crate::engine::Engine;
use crate::keys::ConnKey;
use crate::mqtt::session::Session;
use crate::protocol::codec;
use crate::queueing::disk_ticket::Owner;
use crate::queueing::message::{ENTRY_OVERHEAD, Message};
use crate::queueing::queue::Queue;
use crate::time::Nanos;

/// What messages hold: themselves, and blocks that some of them share.
#[derive(Default)]
struct Held {
    entries: u64,
    blocks: HashMap<*const u8, u64>, // {where: bytes}
}

impl Held {
    fn note<'a>(&mut self, messages: impl Iterator<Item = &'a Message>) {
        for message in messages {
            self.entries += 1;
            self.blocks.extend([message.frame.block()]);
        }
    }

    fn cost(&self) -> u64 {
        self.entries * ENTRY_OVERHEAD + self.blocks.values().sum::<u64>()
    }
}

/// What a queue without a disk keeps.
fn ephemeral(name: &str, queue: &Queue) -> u64 {
    if codec::is_ephemeral(name) { queue.memory().iter().map(Message::cost).sum() } else { 0 }
}

/// Panics where it is broken. After a turn, and those that it called for.
pub fn check(engine: &Engine, now: Nanos) {
    let (mut held, mut stocks) = (Held::default(), 0);
    for topic in engine.topics.values() {
        held.note(topic.queue.memory().iter().chain(topic.queue.unwritten()).chain(&topic.restored));
        stocks += ephemeral(&topic.name, &topic.queue);
        if let Some(limiter) = &topic.limiter {
            held.note(limiter.backlog.iter());
            assert_eq!(
                limiter.backlog_bytes,
                limiter.backlog.iter().map(|message| message.body_len() as u64).sum::<u64>()
            );
            assert_eq!(limiter.stock.used(), limiter.backlog.iter().map(Message::cost).sum::<u64>());
            stocks += limiter.stock.used();
            assert!(limiter.backlog.next_due().is_none_or(|due| due > now), "a message is due and still waits");
        }
        assert!(topic.channels.iter().all(|key| engine.channels.contains_key(*key)));
    }
    let mut in_flight: HashMap<ConnKey, u32> = HashMap::new();
    for (key, channel) in &engine.channels {
        held.note(channel.queue.memory().iter().chain(channel.queue.unwritten()));
        held.note(channel.in_flight.values().map(|entry| &entry.message));
        held.note(channel.deferred.values());
        assert_eq!(channel.stock.used(), channel.deferred.values().map(Message::cost).sum::<u64>());
        stocks += channel.stock.used();
        stocks += ephemeral(&channel.name, &channel.queue);
        assert!(engine.topics[channel.topic].channels.contains(&key));
        let waits = channel.starved && !channel.paused && !channel.ready.is_empty() && !channel.queue.is_empty();
        assert!(
            !waits || channel.dirty || channel.in_flight.len() + channel.deferred.len() > 0,
            "nothing ends its waiting"
        );
        assert!(channel.next_deferred().is_none_or(|due| due > now), "a deferred message is due");
        for (id, entry) in &channel.in_flight {
            *in_flight.entry(entry.owner).or_default() += 1;
            assert!(entry.deadline > now, "a message timeout is due");
            let sub = engine.conns[entry.owner].subscription.as_ref().expect("an owner is a consumer");
            assert!(sub.deadlines.contains(&(entry.deadline, *id)), "a message in flight has no deadline");
        }
        for consumer in &channel.consumers {
            let conn = &engine.conns[*consumer];
            let sub = conn.subscription.as_ref().expect("a consumer is subscribed");
            assert_eq!(sub.channel, key);
            assert_eq!(channel.ready.iter().filter(|other| *other == consumer).count(), usize::from(sub.listed));
            assert!(sub.listed || !conn.is_ready(), "a consumer wants messages and is not listed");
            let served = !channel.paused && !channel.queue.is_empty() && !channel.starved;
            assert!(!(served && conn.is_ready()), "a message and a ready consumer have not met");
        }
        assert!(channel.ready.iter().all(|consumer| channel.consumers.contains(consumer)));
    }
    held.note(engine.mqtt.retained.messages());
    stocks += engine.mqtt.retained.used();
    held.note(engine.mqtt.moves.messages());
    let arrivals = engine.mqtt.moves.arrivals.values();
    stocks += arrivals.flat_map(|arrival| arrival.held.memory()).map(Message::cost).sum::<u64>();
    held.note(engine.mqtt.groups.values().flat_map(|group| group.queue.memory().iter().chain(group.queue.unwritten())));
    let groups = engine.mqtt.groups.values().filter(|group| !group.is_on_disk).map(|group| &group.queue);
    stocks += groups.flat_map(Queue::memory).map(Message::cost).sum::<u64>();
    for outgoing in engine.mqtt.sessions.values().filter_map(|session| session.outgoing.as_ref()) {
        let in_stock = outgoing.queue.memory().iter().filter(|_| !outgoing.is_on_disk);
        let in_flight = outgoing.in_flight().filter_map(|sent| sent.message.as_ref());
        stocks += in_stock.chain(in_flight).map(Message::cost).sum::<u64>();
        held.note(outgoing.queue.memory().iter().chain(outgoing.queue.unwritten()));
        held.note(outgoing.in_flight().filter_map(|entry| entry.message.as_ref()));
    }
    for (key, conn) in &engine.conns {
        held.note(conn.sliced.iter().flat_map(|sliced| sliced.kept()));
        if let Some(sub) = &conn.subscription {
            assert_eq!(sub.in_flight, in_flight.get(&key).copied().unwrap_or(0));
            assert!(sub.deadlines.iter().is_sorted_by_key(|(deadline, _)| *deadline));
        }
    }
    let sessions = || engine.mqtt.sessions.values();
    assert_eq!(engine.mqtt.kept.used(), sessions().map(Session::cost).sum::<u64>());
    assert_eq!(engine.mqtt.durable, sessions().filter(|session| session.is_durable()).count());
    check_tally(engine);
    assert_eq!(engine.memory.messages.used(), held.cost());
    assert_eq!(engine.memory.stocks.used(), stocks);
    assert!(engine.poll_timeout().is_none_or(|at| at > now), "a timer is due");
}

/// A part of it, which holds within a turn too.
pub fn check_tally(engine: &Engine) {
    let hub = &engine.mqtt;
    for (key, session) in &hub.sessions {
        let is_counted = !hub.uncounted.contains(&Owner::Session(key));
        let Some(outgoing) = session.outgoing.as_ref().filter(|_| is_counted) else { continue };
        assert_eq!(outgoing.owed.len(), outgoing.waiting(), "of {}", session.client_id);
    }
    for (_, group) in hub.groups.iter().filter(|(key, _)| !hub.uncounted.contains(&Owner::Group(*key))) {
        assert_eq!(group.owed.len(), group.queue.len(), "of {}", group.name);
    }
    let outgoing = || hub.sessions.values().filter_map(|session| session.outgoing.as_ref());
    let holders = outgoing().map(|one| &one.owed).chain(hub.groups.values().map(|group| &group.owed));
    hub.tally.check(holders, outgoing().flat_map(|one| one.in_flight()).map(|sent| sent.topic));
}
