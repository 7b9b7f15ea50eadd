//! Timers of the engine: releases, deferred messages, message timeouts, heartbeats and silence.

use crate::clients::connection::{Connection, Phase};
use crate::engine::Engine;
use crate::engine::turn::DueTimers;
use crate::keys::{ChannelKey, ConnKey, VISITS_A_TURN};
use crate::protocol::codec;
use crate::protocol::errors::WireError;
use crate::scheduling::client_limits::{Limit, UNFINISHED_NS};
use crate::scheduling::service_time::ServiceTime;
use crate::time::Nanos;
use crate::timer::Timer;

impl Engine {
    pub(crate) fn handle_timeouts(&mut self, now: Nanos) {
        for overdue in std::mem::take(&mut self.schedule.due) {
            match overdue {
                DueTimers::InFlight(key) => {
                    if let Some(sub) = self.conns.get_mut(key).and_then(|conn| conn.subscription.as_mut()) {
                        sub.has_due = false;
                    }
                    self.expire(key, now);
                }
                DueTimers::Deferred(key) => {
                    if let Some(channel) = self.channels.get_mut(key) {
                        channel.has_due = false;
                    }
                    self.undefer(key, now);
                }
            }
        }
        while let Some((at, timer)) = self.timers.pop(now) {
            match timer {
                Timer::Release(key) => {
                    if self.topics.get_mut(key).is_some_and(|topic| topic.armed.fire(at)) {
                        self.release_due(key, now);
                    }
                }
                Timer::Deferred(key) => self.handle_deferred(key, at, now),
                Timer::Session(key) => self.handle_session_timer(key, at, now),
                Timer::SystemTopics => self.handle_system_timer(at, now),
                Timer::Disk => self.handle_disk_timer(at),
                Timer::ServiceTime => self.handle_served(at, now),
                Timer::WatchList => self.handle_watch_list(at, now),
                Timer::Subscriptions => self.handle_late_subscriptions(at, now),
                Timer::Arrivals => self.handle_late_arrivals(at, now),
                Timer::Departures => self.handle_departures(at, now),
                Timer::MessageTimeout(key) => self.handle_message_timeouts(key, at, now),
                Timer::Allowance(key) => self.handle_allowance(key, at),
                Timer::Connection(key) => {
                    if self.conns.get_mut(key).is_some_and(|conn| conn.armed.fire(at)) {
                        self.handle_connection_timer(key, now);
                    }
                }
            }
        }
        self.drop_stale_timers();
    }

    /// Removes stale entries of owners that are gone or armed earlier: a storm of short connections must not leave a
    /// minute's entries.
    fn drop_stale_timers(&mut self) {
        let owners = 2 * self.conns.len() + self.channels.len() + self.topics.len() + self.mqtt.sessions.len();
        if self.timers.entries() < 1_024 + 2 * owners {
            return;
        }
        self.timers.retain(|at, timer| match timer {
            Timer::Release(key) => self.topics.get(key).is_some_and(|topic| topic.armed.is_for(at)),
            Timer::Session(key) => self.mqtt.sessions.get(key).is_some_and(|session| session.armed.is_for(at)),
            Timer::SystemTopics => self.mqtt.armed.is_for(at),
            Timer::Disk => self.disk.as_ref().is_some_and(|storage| storage.armed.is_for(at)),
            Timer::ServiceTime => self.server.is_due_at(at),
            Timer::WatchList => self.watch_list.is_due_at(at),
            Timer::Subscriptions => self.mqtt.interest.armed.is_for(at),
            Timer::Arrivals => self.mqtt.moves.armed.is_for(at),
            Timer::Departures => self.departures.is_due_at(at),
            Timer::Deferred(key) => self.channels.get(key).is_some_and(|channel| channel.armed.is_for(at)),
            Timer::Connection(key) => self.conns.get(key).is_some_and(|conn| conn.armed.is_for(at)),
            Timer::Allowance(key) => self.conns.get(key).is_some_and(|conn| conn.allowance.armed.is_for(at)),
            Timer::MessageTimeout(key) => {
                self.conns.get(key).and_then(|conn| conn.subscription.as_ref()).is_some_and(|sub| sub.armed.is_for(at))
            }
        });
    }

    /// What has been served goes on to its channels.
    fn handle_served(&mut self, at: Nanos, now: Nanos) {
        for (key, message) in self.server.served(at, now, &mut self.timers) {
            self.enqueue(key, message, now);
        }
    }

    fn handle_deferred(&mut self, key: ChannelKey, at: Nanos, now: Nanos) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        if channel.armed.fire(at) && !channel.has_due {
            self.undefer(key, now);
        }
    }

    /// Deferred messages that are due go to the queue, so many in a turn.
    fn undefer(&mut self, key: ChannelKey, now: Nanos) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        let moved = channel.undefer(VISITS_A_TURN, now);
        match channel.next_deferred() {
            Some(due) if due <= now => {
                channel.has_due = true;
                self.schedule.due.push(DueTimers::Deferred(key));
            }
            Some(due) => self.timers.arm(&mut channel.armed, due, Timer::Deferred(key)),
            None => {}
        }
        if moved {
            self.mark_channel(key);
        }
    }

    fn handle_message_timeouts(&mut self, key: ConnKey, at: Nanos, now: Nanos) {
        let Some(sub) = self.conns.get_mut(key).and_then(|conn| conn.subscription.as_mut()) else { return };
        if sub.armed.fire(at) && !sub.has_due {
            self.expire(key, now);
        }
    }

    /// What a consumer has had for too long goes back to the queue, so much in a turn.
    fn expire(&mut self, key: ConnKey, now: Nanos) {
        let Some(sub) = self.conns.get_mut(key).and_then(|conn| conn.subscription.as_mut()) else { return };
        let channel_key = sub.channel;
        let Some(channel) = self.channels.get_mut(channel_key) else { return };
        for _ in 0..VISITS_A_TURN {
            let Some(&(deadline, id)) = sub.deadlines.front().filter(|(deadline, _)| *deadline <= now) else { break };
            sub.deadlines.pop_front();
            let live = channel.in_flight.get(&id).is_some_and(|entry| entry.owner == key && entry.deadline == deadline);
            if let Some(entry) = live.then(|| channel.in_flight.remove(&id)).flatten() {
                sub.in_flight -= 1;
                channel.counters.timed_out += 1;
                channel.queue.push_back(entry.message);
            }
        }
        match sub.deadlines.front() {
            Some((deadline, _)) if *deadline <= now => {
                sub.has_due = true;
                self.schedule.due.push(DueTimers::InFlight(key));
            }
            Some((deadline, _)) => self.timers.arm(&mut sub.armed, *deadline, Timer::MessageTimeout(key)),
            None => {}
        }
        self.list_if_ready(key);
        self.mark_channel(channel_key);
    }

    fn handle_connection_timer(&mut self, key: ConnKey, now: Nanos) {
        if self.refuse_late(key, now) {
            return;
        }
        let Some(conn) = self.conns.get_mut(key) else { return };
        if conn.reads() && conn.is_handshaking() && conn.silence_deadline().is_some_and(|deadline| deadline <= now) {
            return self.handshake_timed_out(key);
        }
        if conn.reads() && conn.unfinished_deadline().is_some_and(|deadline| deadline <= now) {
            let text = format!("unfinished command: not whole within {} s", UNFINISHED_NS / 1_000_000_000);
            return self.refuse(key, WireError::invalid(text));
        }
        if self.is_silent(key, now) {
            return self.end_silent(key, now);
        }
        let Some(conn) = self.conns.get_mut(key) else { return };
        let overdue = conn.phase == Phase::Lingering && conn.linger_until <= now;
        if overdue || conn.silence_deadline().is_some_and(|deadline| deadline <= now) {
            if let Some(limit) = offence(conn) {
                self.note_limit(limit, key);
            }
            return self.close(key);
        }
        if let Some(interval) = conn.heartbeat_ns().filter(|_| conn.next_heartbeat <= now) {
            conn.next_heartbeat = now + interval;
            if conn.phase == Phase::Open && !conn.is_handshaking() {
                conn.respond(codec::HEARTBEAT);
                self.mark_dirty(key);
            }
        }
        self.arm_connection(key);
    }

    pub(crate) fn start_heartbeat(&mut self, key: ConnKey, now: Nanos) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.next_heartbeat = conn.heartbeat_ns().map_or(Nanos::MAX, |interval| now + interval);
        }
        self.arm_connection(key);
    }

    pub(crate) fn arm_connection(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let heartbeat = if conn.phase == Phase::Lingering { conn.linger_until } else { conn.next_heartbeat };
        let at = conn.silence_deadline().map_or(heartbeat, |deadline| deadline.min(heartbeat));
        if at < Nanos::MAX {
            self.timers.arm(&mut conn.armed, at, Timer::Connection(key));
        }
    }
}

/// Why the client's deadline ended its connection. `None`: no fault; it has ended, or was an idle HTTP connection.
fn offence(conn: &Connection) -> Option<Limit> {
    if conn.phase == Phase::Lingering {
        None
    } else if conn.blocked_since.is_some() {
        Some(Limit::SlowReader)
    } else {
        (conn.http.is_none() && conn.link.is_none()).then_some(Limit::SilentClient)
    }
}
