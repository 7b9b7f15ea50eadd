//! The broker that has a session whose client came elsewhere: it sends all of it, and forgets it once it is kept there.
//! A broker that ends offers its sessions to the others.

use std::collections::HashSet;
use std::rc::Rc;

use crate::engine::Engine;
use crate::keys::{GroupKey, SessionKey};
use crate::mqtt::elsewhere::moves::{Carried, Departure, Epoch, Owed, Word};
use crate::mqtt::group::Group;
use crate::mqtt::outgoing::InFlight;
use crate::mqtt::saved_session::Saved;
use crate::protocol::mqtt::packet::Qos;
use crate::protocol::mqtt::reason::Reason;
use crate::scheduling::work_budget::{QUANTUM, message_units};
use crate::time::Nanos;

impl Engine {
    /// A client came to another broker at `epoch`: what it has here ends, or goes there.
    pub(super) fn give_up(&mut self, client: &str, epoch: Epoch, is_clean: bool, is_restored: bool, now: Nanos) {
        let Some(own) = self.mqtt.moves.own_channel.clone() else { return };
        let (wall_ns, sender) = (epoch.wall_ns, epoch.channel.clone());
        self.mqtt.moves.latest_ns = self.mqtt.moves.latest_ns.max(wall_ns);
        let answer = |had_connection| Word::Nothing { client, wall_ns, had_connection };
        let to_older = |here| match is_restored {
            true => Word::Came { client, wall_ns: here, is_clean: false }, // what it has comes here
            false => answer(false),
        };
        let arrival = self.mqtt.moves.arrivals.get(client).filter(|arrival| !arrival.is_open);
        if let Some(arrival) = arrival {
            let here = arrival.wall_ns;
            if (Epoch { wall_ns: here, channel: own.clone() }) > epoch {
                return self.tell_broker(&sender, to_older(here), now);
            }
            self.abandon(client);
        }
        let known = self.mqtt.session_of(client);
        let Some(session) = known.and_then(|key| self.mqtt.sessions.get(key)) else {
            return self.tell_broker(&sender, answer(false), now);
        };
        let leaves_already = known.and_then(|key| self.mqtt.moves.departures.get(&key));
        if leaves_already.is_some_and(|departure| departure.epoch == epoch && !is_restored) {
            return; // it has asked again
        }
        if let Some(later) = leaves_already.map(|departure| departure.epoch.clone()).filter(|later| *later > epoch) {
            let was_killed = is_restored && later.channel == sender; // with what it had got of this session
            return match known.filter(|_| was_killed) {
                Some(key) => self.depart(key, later, false, now),
                None => self.tell_broker(&sender, answer(false), now),
            };
        }
        let here = session.since_wall_ns;
        if (Epoch { wall_ns: here, channel: own }) > epoch {
            return self.tell_broker(&sender, to_older(here), now);
        }
        let had_connection = session.conn.is_some();
        if let Some(key) = known.filter(|_| had_connection) {
            self.mqtt.takeovers.note(client, true, now);
            self.take_over(key, now);
        }
        match known.filter(|key| self.mqtt.sessions.contains_key(*key)) {
            Some(key) if !is_clean => self.depart(key, epoch, had_connection, now),
            left => {
                left.into_iter().for_each(|key| self.end_session(key, now));
                self.tell_broker(&sender, answer(had_connection), now);
            }
        }
    }

    /// A client that waits here has come to another broker since.
    pub(super) fn abandon(&mut self, client: &str) {
        let Some(arrival) = self.mqtt.moves.arrivals.remove(client) else { return };
        for (conn, version) in arrival.waiting {
            if self.conns.contains_key(conn) {
                let text = "the client has connected to another broker since";
                self.refuse_connect(conn, version, Reason::SERVER_BUSY, text);
            }
        }
        if let Some(key) = arrival.session.filter(|_| !arrival.is_own || arrival.is_forgotten) {
            self.drop_session(key); // the broker that has sent it has it still
        }
    }

    fn depart(&mut self, key: SessionKey, epoch: Epoch, had_connection: bool, now: Nanos) {
        let Some(session) = self.mqtt.sessions.get_mut(key) else { return };
        let client = Rc::clone(&session.client_id);
        (session.departs, session.arrives) = (true, false);
        session.will.iter_mut().for_each(|will| will.due_at = Nanos::MAX);
        self.mqtt.moves.arrivals.remove(&client);
        let (wall_ns, to) = (epoch.wall_ns, epoch.channel.clone());
        let mut departure = Departure::new(epoch);
        if let Some(before) = self.mqtt.moves.departures.remove(&key) {
            departure.is_taken = before.is_taken;
            departure.flushed = before.flushed.filter(|_| before.is_taken);
            self.put_back(key, before.sent, before.shared);
        }
        let is_taken = departure.is_taken;
        self.mqtt.moves.departures.insert(key, departure);
        self.note_member(key); // what is published for its groups is not wanted here any more
        if is_taken {
            let answer = Word::Nothing { client: &client, wall_ns, had_connection };
            self.tell_broker(&to, answer, now);
            return self.list_owing(key);
        }
        let Some(session) = self.mqtt.sessions.get(key) else { return };
        let saved = Saved::Lives(self.saved(session, now)).encode();
        let in_flight: Vec<InFlight> =
            session.outgoing.as_ref().map_or(Vec::new(), |outgoing| outgoing.in_flight().cloned().collect());
        self.tell_broker(&to, Word::State { client: &client, wall_ns, had_connection, saved: &saved }, now);
        for InFlight { id, qos, retain, message, .. } in in_flight {
            let message = message.as_ref().map(Carried::of);
            let owed = Owed { packet_id: id, qos, retain, group: "", message };
            self.tell_broker(&to, Word::Owed { client: &client, wall_ns, owed }, now);
        }
        self.list_owing(key);
    }

    /// Sends what a session that leaves is owed, a quantum. Gives the units.
    pub(crate) fn send_off(&mut self, key: SessionKey, now: Nanos) -> u32 {
        let mut units = 1;
        let Some(departure) = self.mqtt.moves.departures.get(&key) else { return units };
        let is_over = departure.is_told == Some(true); // what comes now, the other broker has by itself
        if is_over && !departure.shares_again {
            return units;
        }
        let (to, wall_ns) = (departure.epoch.channel.clone(), departure.epoch.wall_ns);
        let Some(client) = self.mqtt.sessions.get(key).map(|session| Rc::clone(&session.client_id)) else {
            return units;
        };
        while units < QUANTUM && !is_over {
            let Some(outgoing) = self.outgoing_of(key) else { break };
            if !outgoing.queue.ready(now) {
                break;
            }
            let Some(message) = outgoing.pop_front() else { continue };
            self.tally_taken(key, &message);
            units += message_units(message.body_len());
            let (qos, carried) = (Qos::AtMostOnce, Some(Carried::of(&message)));
            let owed = Owed { packet_id: 0, qos, retain: false, group: "", message: carried };
            self.tell_broker(&to, Word::Owed { client: &client, wall_ns, owed }, now);
            if let Some(departure) = self.mqtt.moves.departures.get_mut(&key) {
                departure.sent.push_back(message);
            }
        }
        let is_empty = is_over || self.outgoing_of(key).is_none_or(|outgoing| outgoing.queue.is_empty());
        let departure = self.mqtt.moves.departures.get(&key).filter(|_| is_empty);
        let flushed = departure.and_then(Departure::says_over);
        if flushed == Some(true) {
            units += self.send_off_shared(key, QUANTUM.saturating_sub(units), now);
        }
        if units >= QUANTUM {
            self.list_owing(key);
        }
        let Some(is_final) = flushed.filter(|is_final| !is_final || !self.leaves_shared(key)) else { return units };
        let number = self.mqtt.moves.next_epoch(self.clock.wall(now)) as u64; // no earlier incarnation had it
        let departure = self.mqtt.moves.departures.get_mut(&key);
        departure.into_iter().for_each(|departure| departure.tell_over(is_final, number));
        self.tell_broker(&to, Word::Over { client: &client, wall_ns, is_final, number }, now);
        units
    }

    /// Sends what waits for groups of which a session that leaves is the last member, as far as it is written. Gives
    /// the units.
    fn send_off_shared(&mut self, key: SessionKey, most: u32, now: Nanos) -> u32 {
        let mut units = 0;
        let Some(epoch) = self.mqtt.moves.departures.get(&key).map(|departure| departure.epoch.clone()) else {
            return units;
        };
        let Some(client) = self.mqtt.sessions.get(key).map(|session| Rc::clone(&session.client_id)) else {
            return units;
        };
        for (group, name) in self.groups_left_by(key) {
            while units < most {
                let queue = self.mqtt.groups.get_mut(group).map(|group| &mut group.queue);
                let Some(queue) = queue.filter(|queue| !queue.is_empty()) else { break };
                if !queue.ready(now) {
                    break;
                }
                let Some(message) = queue.pop_front() else { break };
                self.tally_taken_shared(group, &message);
                units += message_units(message.body_len());
                let (qos, carried) = (Qos::AtMostOnce, Some(Carried::of(&message)));
                let owed = Owed { packet_id: 0, qos, retain: false, group: &name, message: carried };
                self.tell_broker(&epoch.channel, Word::Owed { client: &client, wall_ns: epoch.wall_ns, owed }, now);
                if let Some(departure) = self.mqtt.moves.departures.get_mut(&key) {
                    departure.shared.push((group, message));
                }
            }
        }
        units
    }

    /// The groups that end with a session, their last member, with their names.
    pub(crate) fn groups_left_by(&self, key: SessionKey) -> Vec<(GroupKey, Box<str>)> {
        let groups = self.mqtt.sessions.get(key).into_iter().flat_map(|session| session.groups());
        let known = groups.filter_map(|key| Some((*key, self.mqtt.groups.get(*key)?)));
        let ends = |group: &Group| group.members.len() == 1 && !group.is_declared;
        known.filter(|(_, group)| ends(group)).map(|(key, group)| (key, group.name.clone())).collect()
    }

    /// Whether something waits for a group of which a session is the last member.
    fn leaves_shared(&self, key: SessionKey) -> bool {
        let waits = |key: &GroupKey| self.mqtt.groups.get(*key).is_some_and(|group| !group.queue.is_empty());
        self.groups_left_by(key).iter().any(|(group, _)| waits(group))
    }

    /// The session that leaves for that broker since then.
    pub(super) fn departing(&self, client: &str, wall_ns: i64, broker: &str) -> Option<SessionKey> {
        let key = self.mqtt.session_of(client)?;
        let epoch = &self.mqtt.moves.departures.get(&key)?.epoch;
        (epoch.wall_ns == wall_ns && *epoch.channel == *broker).then_some(key)
    }

    /// A session is kept at another broker. What brokers that are away have for it still goes on to that one.
    pub(super) fn forget_departed(&mut self, key: SessionKey, number: u64, now: Nanos) {
        let Some(departure) = self.mqtt.moves.departures.get_mut(&key) else { return };
        if !departure.note_taken(number) {
            return;
        }
        let is_final = departure.is_told == Some(true);
        self.mqtt.amend(key, |session| session.will = None);
        let Some(session) = self.mqtt.sessions.get_mut(key) else { return };
        if let Some(outgoing) = &mut session.outgoing {
            outgoing.end_flights().for_each(|sent| self.mqtt.tally.end_flight(sent.topic));
        }
        if !is_final {
            return self.list_owing(key); // more may have been sent since, of which the other one is told now
        }
        let client = Rc::clone(&session.client_id);
        if self.leaves_shared(key) {
            let departure = self.mqtt.moves.departures.get_mut(&key);
            departure.into_iter().for_each(|departure| departure.shares_again = true);
            return self.list_owing(key);
        }
        self.save_end(key, now);
        self.mqtt.moves.departures.remove(&key);
        self.mqtt.moves.arrivals.remove(&client);
        self.drop_session(key);
    }

    /// Offers all sessions that outlive their connections to other brokers, in turn, and ends those connections. Gives
    /// how many are here still; none, if nobody could take them.
    pub fn hand_over_sessions(&mut self, now: Nanos) -> usize {
        let brokers: Vec<Box<str>> =
            self.linked_brokers().into_iter().filter(|broker| self.is_hearing(broker)).collect();
        if brokers.is_empty() {
            return 0;
        }
        let durable = self.mqtt.sessions.iter().filter(|(_, session)| session.is_durable());
        let here: Vec<SessionKey> = durable.map(|(key, _)| key).collect();
        for (number, key) in here.iter().enumerate() {
            let Some(session) = self.mqtt.sessions.get_mut(*key).filter(|session| !session.departs) else { continue };
            let (client, conn) = (Rc::clone(&session.client_id), session.conn);
            if let Some(conn) = conn {
                self.end_mqtt(conn, Reason::SERVER_SHUTTING_DOWN, "the broker ends: connect to another one");
            }
            if !self.mqtt.moves.offered.insert(*key) {
                continue;
            }
            self.tell_broker(&brokers[number % brokers.len()], Word::Offer { client: &client }, now);
        }
        here.len()
    }

    pub(super) fn take_offer(&mut self, client: &str, sender: &str, now: Nanos) {
        if self.mqtt.session_of(client).is_some() || self.mqtt.moves.arrivals.contains_key(client) {
            return;
        }
        let wall_ns = self.mqtt.moves.next_epoch(self.clock.wall(now));
        self.expect(client, wall_ns, HashSet::from([sender.into()]), now);
        self.tell_broker(sender, Word::Came { client, wall_ns, is_clean: false }, now);
    }
}
