//! The broker to which a client comes: it asks the others for the session, and lets the client in once it is whole, or
//! has been waited for long enough.

use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

use crate::clients::pending_input::WaitFor;
use crate::engine::Engine;
use crate::engine::mqtt::routing::met_limit;
use crate::event::Event;
use crate::keys::{ConnKey, GroupKey, SessionKey, TallyKey};
use crate::mqtt::elsewhere::moves::{Arrival, Carried, Flushing, Owed, PATIENCE_NS, Thanks, Word};
use crate::mqtt::outgoing::InFlight;
use crate::mqtt::saved_session::{Saved, SavedSession};
use crate::protocol::mqtt::packet::Connect;
use crate::queueing::message::{Alone, Message};
use crate::queueing::queue::Queue;
use crate::time::Nanos;
use crate::timer::Timer;

impl Engine {
    /// When the client of a CONNECT came, by the wall clock. `None`: it waits for what other brokers have of it.
    pub(crate) fn find_home(&mut self, conn: ConnKey, client: &str, connect: &Connect<'_>, now: Nanos) -> Option<i64> {
        let came = self.conns.get_mut(conn).and_then(|conn| conn.mqtt.as_mut()?.came.take());
        if came.is_some() {
            return came;
        }
        let (is_clean, version) = (connect.clean_start, connect.version);
        if is_clean && self.mqtt.moves.arrivals.get(client).is_some_and(|arrival| !arrival.is_open) {
            self.abandon(client);
        }
        if let Some(arrival) = self.mqtt.moves.arrivals.get_mut(client).filter(|arrival| !arrival.is_open) {
            arrival.waiting.push((conn, version));
            self.defer(conn, WaitFor::Brokers);
            return None;
        }
        let wall_ns = self.mqtt.moves.next_epoch(self.clock.wall(now));
        // The others are told once they hear; all are where this one has no link by which they could answer.
        let can_ask = self.mqtt.moves.own_channel.is_some();
        let (mut asked, silent): (HashSet<Box<str>>, HashSet<Box<str>>) =
            self.linked_brokers().into_iter().partition(|broker| can_ask && self.is_hearing(broker));
        for broker in &asked {
            self.tell_broker(broker, Word::Came { client, wall_ns, is_clean }, now);
            // Who has just returned is told of all that came before, too.
            self.mqtt.moves.told.get_mut(broker).into_iter().for_each(|told| *told = wall_ns);
        }
        if now < self.mqtt.moves.starts_until {
            asked.extend(silent); // they make their links anew just now
        }
        let known = self.mqtt.session_of(client);
        let departs = known.and_then(|key| self.mqtt.sessions.get(key)).is_some_and(|session| session.departs);
        if is_clean || known.is_some() && !departs || asked.is_empty() {
            if !is_clean && known.is_none() {
                self.note_absent(now);
            }
            if let Some(arrival) = self.mqtt.moves.arrivals.get_mut(client) {
                // It is open. Who has something still says so anew: the client may have been at another broker.
                arrival.wall_ns = wall_ns;
                arrival.givers.clear();
                self.mqtt.moves.to_flush.push(Flushing::End(client.into(), wall_ns));
            }
            return Some(wall_ns);
        }
        let arrival = self.expect(client, wall_ns, asked, now);
        arrival.waiting.push((conn, version));
        if let Some(key) = known {
            self.stay(client, key);
        }
        self.defer(conn, WaitFor::Brokers);
        None
    }

    /// A session may come here.
    pub(super) fn expect(&mut self, client: &str, wall_ns: i64, asked: HashSet<Box<str>>, now: Nanos) -> &mut Arrival {
        let (client, until): (Rc<str>, _) = (client.into(), now + PATIENCE_NS);
        self.mqtt.moves.due.push_back((until, Rc::clone(&client)));
        self.timers.arm(&mut self.mqtt.moves.armed, until, Timer::Arrivals);
        let stock = self.memory.stock(self.config.max_memory_bytes);
        self.mqtt.moves.arrivals.entry(client).or_insert_with(|| Arrival::new(wall_ns, asked, until, stock))
    }

    /// A session that was to leave is wanted here again.
    fn stay(&mut self, client: &str, key: SessionKey) {
        let Some(departure) = self.mqtt.moves.departures.remove(&key) else { return };
        let Some(session) = self.mqtt.sessions.get_mut(key) else { return };
        session.departs = false;
        self.note_member(key);
        let mut known = HashSet::new();
        self.put_back(key, departure.sent, departure.shared);
        let outgoing = self.mqtt.sessions.get(key).and_then(|session| session.outgoing.as_ref());
        if let Some(outgoing) = outgoing {
            let in_flight = outgoing.in_flight().filter_map(|entry| entry.message.as_ref());
            known.extend(in_flight.chain(outgoing.queue.memory()).map(|one| (one.id, one.wall_ns())));
        }
        if let Some(arrival) = self.mqtt.moves.arrivals.get_mut(client) {
            (arrival.session, arrival.is_own, arrival.is_forgotten) = (Some(key), true, departure.is_taken);
            arrival.seen = known;
            arrival.flush = Some(0); // it was to collect for the other broker, and goes on to, now for itself
        }
    }

    /// What a session that was to leave has sent is what it, and its groups, are owed next.
    pub(super) fn put_back(&mut self, key: SessionKey, sent: VecDeque<Message>, shared: Vec<(GroupKey, Message)>) {
        for message in sent.into_iter().rev() {
            let topic = self.tally_key_of(&message);
            self.put_first(key, message, topic);
        }
        for (group, message) in shared.into_iter().rev() {
            let topic = self.tally_key_of(&message);
            let Some(of_group) = self.mqtt.groups.get_mut(group) else { continue };
            let topic = self.mqtt.tally.key_of_shared(group, &mut of_group.counts, topic);
            of_group.queue.push_front(message);
            self.mqtt.tally.wait(&mut of_group.owed, topic);
        }
    }

    /// A broker has answered: it has nothing, or has begun to send.
    pub(super) fn note_answer(&mut self, client: &str, wall_ns: i64, sender: &str, now: Nanos) {
        let Some(arrival) = self.mqtt.moves.arrivals.get_mut(client).filter(|one| one.wall_ns == wall_ns) else {
            return;
        };
        arrival.asked.remove(sender);
        if arrival.givers.contains_key(sender) {
            self.note_over(client, sender, true, now); // it was killed since, and has nothing more
        } else if arrival.asked.is_empty() && arrival.givers.is_empty() {
            let is_found = arrival.session.is_some();
            self.let_in(client, now);
            if !is_found {
                self.note_absent(now);
            }
        }
    }

    /// No session was found of a client that wants one: a broker that could not be asked may have it.
    fn note_absent(&mut self, now: Nanos) {
        let can_ask = self.mqtt.moves.own_channel.is_some();
        if self.linked_brokers().iter().any(|broker| !can_ask || !self.is_hearing(broker)) {
            self.mqtt.moves.early += 1;
            self.timers.arm(&mut self.mqtt.moves.armed, now + PATIENCE_NS, Timer::Arrivals);
        }
    }

    pub(super) fn take_state(&mut self, client: &str, wall_ns: i64, sender: &str, saved: &SavedSession, now: Nanos) {
        let known = self.mqtt.session_of(client);
        let departure = known.and_then(|key| Some((key, self.mqtt.moves.departures.get_mut(&key)?)));
        if let Some((key, departure)) = departure {
            // This and what follows goes on to where the session is. Until that one has it all, it is here.
            (departure.is_told, departure.over, departure.is_taken) = (None, None, false);
            let (to, wall_ns) = (departure.epoch.channel.clone(), departure.epoch.wall_ns);
            self.subscribe_as(key, saved);
            self.note_session(key);
            self.list_owing(key);
            let saved = Saved::Lives(saved.clone()).encode();
            return self.tell_broker(&to, Word::State { client, wall_ns, had_connection: false, saved: &saved }, now);
        }
        self.expect_late(client, wall_ns, now);
        let Some(arrival) = self.mqtt.moves.arrivals.get_mut(client) else { return };
        arrival.asked.remove(sender);
        let is_first = arrival.givers.is_empty();
        arrival.givers.insert(sender.into(), None);
        arrival.early.remove(sender);
        let (session, is_forgotten, is_open) = (arrival.session, arrival.is_forgotten, arrival.is_open);
        if is_first && !is_open {
            if let Some(key) = session {
                if is_forgotten {
                    self.unsubscribe_all(key);
                }
                self.subscribe_as(key, saved);
            }
            let key = session.unwrap_or_else(|| self.restore_session(saved, now));
            if let Some(session) = self.mqtt.sessions.get_mut(key).filter(|_| session.is_none()) {
                (session.entry, session.since_wall_ns, session.arrives) = (None, wall_ns, true);
            }
            self.mqtt.moves.arrivals.get_mut(client).into_iter().for_each(|arrival| arrival.session = Some(key));
        } else if let Some(key) = self.mqtt.session_of(client) {
            self.subscribe_as(key, saved); // its client went on without it for a while, maybe at a third broker
            self.note_session(key);
        }
        self.flush_when_known(client);
    }

    /// What comes late of a session: its client has gone on without it.
    fn expect_late(&mut self, client: &str, wall_ns: i64, now: Nanos) {
        let Some(key) = self.mqtt.session_of(client).filter(|_| !self.mqtt.moves.arrivals.contains_key(client)) else {
            return;
        };
        let stock = self.memory.stock(self.config.max_memory_bytes);
        let mut arrival = Arrival::new(wall_ns, HashSet::new(), now, stock);
        (arrival.session, arrival.is_open, arrival.flush) = (Some(key), true, Some(0));
        self.mqtt.moves.arrivals.insert(client.into(), arrival);
        if let Some(session) = self.mqtt.sessions.get_mut(key) {
            session.arrives = true;
            session.since_wall_ns = session.since_wall_ns.max(wall_ns); // later than it knew, if it was killed since
        }
        self.note_session(key);
    }

    /// Finds out how far the links have come, once all brokers know what the session wants.
    fn flush_when_known(&mut self, client: &str) {
        let (version, is_settled) = (self.mqtt.interest.version(), self.mqtt.interest.is_settled());
        let arrival = self.mqtt.moves.arrivals.get_mut(client);
        arrival.into_iter().for_each(|arrival| arrival.awaits = Some(version));
        if is_settled {
            self.flush_known(version);
        }
    }

    /// Other brokers know what is wanted here: sessions that come here collect from now on.
    pub(crate) fn flush_known(&mut self, version: u64) {
        let moves = &mut self.mqtt.moves;
        for (client, arrival) in &mut moves.arrivals {
            if arrival.awaits.take_if(|wanted| *wanted <= version).is_some() {
                moves.to_flush.push(Flushing::Arrival(Rc::clone(client), arrival.wall_ns));
            }
        }
    }

    /// Whether what a broker sends of a session is too early. It has all of it until it is told that it is kept here.
    fn is_early(&mut self, client: &str, sender: &str) -> bool {
        let arrival = self.mqtt.moves.arrivals.get_mut(client);
        let Some(arrival) = arrival.filter(|one| !one.is_open && !one.givers.contains_key(sender)) else {
            return false;
        };
        if arrival.session.is_none() {
            arrival.early.insert(sender.into());
        }
        arrival.early.contains(sender)
    }

    pub(super) fn take_owed(&mut self, client: &str, sender: &str, owed: Owed<'_>, now: Nanos) {
        if self.is_early(client, sender) {
            return;
        }
        let message = owed.message.map(|Carried { id, wall_ns, attributes, body }| {
            let alone = Alone { id, wall_ns, attributes, body };
            let mut message = self.builder.alone(&self.memory.messages, alone, now, 0);
            message.foreign = true;
            message
        });
        if !owed.group.is_empty() {
            let Some(message) = message else { return };
            let Some(group) = self.mqtt.by_group.get(owed.group).copied() else {
                if client.is_empty() {
                    self.share_on(owed.group, &message, now); // else it is still where the session comes from
                }
                return;
            };
            let mut forms = std::mem::take(&mut self.fan.forms);
            let topic = self.tally_key_of(&message);
            self.give_to_group(&mut forms, group, message, topic, now);
            self.fan.forms = forms;
            return;
        }
        let topic = message.as_ref().map(|message| self.tally_key_of(message)).unwrap_or_default();
        if let Some(arrival) = self.mqtt.moves.arrivals.get_mut(client).filter(|arrival| !arrival.is_open) {
            let Owed { packet_id, qos, retain, .. } = owed;
            let is_new = message.as_ref().is_none_or(|one| arrival.seen.insert((one.id, one.wall_ns())));
            match message {
                _ if !is_new => {}
                _ if packet_id > 0 && arrival.in_flight.iter().any(|entry| entry.id == packet_id) => {}
                message if packet_id > 0 => {
                    arrival.in_flight.push(InFlight { id: packet_id, qos, retain, group: None, message, topic });
                }
                Some(message) => arrival.owed.push(message),
                None => {}
            }
            return;
        }
        let (Some(key), Some(message)) = (self.mqtt.session_of(client), message) else { return };
        if self.is_new_to(client, &message) {
            self.owe(key, message, topic);
        }
    }

    /// What is published here, or comes by a link, for a session that may be arriving. Gives it back if the session is
    /// to have it now: it is whole and has not had it. Before that it is held, unless it comes from the other broker as
    /// well.
    pub(crate) fn hold_for_arriving(&mut self, key: SessionKey, message: Message) -> Option<Message> {
        let session = self.mqtt.sessions.get_mut(key)?;
        if !session.arrives {
            return Some(message);
        }
        let client = Rc::clone(&session.client_id);
        let Some(arrival) = self.mqtt.moves.arrivals.get(&client) else { return Some(message) };
        if !self.mqtt.moves.is_for(arrival) {
            return None;
        }
        if arrival.is_open {
            return self.is_new_to(&client, &message).then_some(message);
        }
        let arrival = self.mqtt.moves.arrivals.get_mut(&client)?;
        let (waiting, most) = (arrival.held.len(), self.config.mqtt_max_queued);
        let Some(limit) = met_limit(&arrival.held, waiting, most, message.cost()) else {
            arrival.held.push_back(message);
            return None;
        };
        session.seldom().dropped += 1;
        self.limits.note(limit, &client);
        let topic = self.tally_key_of(&message);
        self.mqtt.drop_for_full(topic, &client);
        None
    }

    /// Whether a session that is still arriving has not had this message.
    pub(crate) fn is_new_to(&mut self, client: &str, message: &Message) -> bool {
        let id = (message.id, message.wall_ns());
        let arrival = self.mqtt.moves.arrivals.get_mut(client);
        arrival.is_none_or(|arrival| !arrival.seen.contains(&id) && arrival.latest.note(id))
    }

    /// The session is whole, or has been waited for long enough: its client may have it.
    fn let_in(&mut self, client: &str, now: Nanos) {
        let Some(arrival) = self.mqtt.moves.arrivals.get_mut(client).filter(|arrival| !arrival.is_open) else { return };
        arrival.is_open = true;
        let (waiting, came) = (std::mem::take(&mut arrival.waiting), arrival.wall_ns);
        let (in_flight, owed) = (std::mem::take(&mut arrival.in_flight), std::mem::take(&mut arrival.owed));
        let nothing = Queue::in_stock(self.memory.stock(self.config.max_memory_bytes));
        let (session, held) = (arrival.session, std::mem::replace(&mut arrival.held, nothing));
        let early = std::mem::take(&mut arrival.early);
        if arrival.givers.is_empty() {
            self.mqtt.moves.arrivals.remove(client);
        }
        if let Some(key) = session {
            // Before its CONNECT runs, an earlier time may be heard of.
            self.mqtt.sessions.get_mut(key).into_iter().for_each(|session| session.since_wall_ns = came);
            self.hand_out(client, key, in_flight, owed, held, now);
        }
        for (conn, _) in waiting {
            if let Some(mqtt) = self.conns.get_mut(conn).and_then(|conn| conn.mqtt.as_mut()) {
                mqtt.came = Some(came);
                self.mqtt.moves.to_resume.entry(client.into()).or_default().push(conn);
            }
        }
        for broker in early {
            self.tell_broker(&broker, Word::Restored { client, wall_ns: came }, now);
        }
    }

    /// What another broker has sent comes first, then what has come here meanwhile.
    fn hand_out(
        &mut self,
        client: &str,
        key: SessionKey,
        in_flight: Vec<InFlight>,
        owed: Vec<Message>,
        mut held: Queue,
        now: Nanos,
    ) {
        let writes = self.journal.is_some();
        let topics: Vec<TallyKey> =
            in_flight.iter().filter(|sent| sent.message.is_some()).map(|sent| sent.topic).collect();
        let Some(outgoing) = self.outgoing_of(key) else { return };
        outgoing.take_in_flight(in_flight, writes);
        for topic in topics {
            self.tally_given(key, topic);
            self.mqtt.tally.begin_flight(topic);
        }
        for message in owed {
            let topic = self.tally_key_of(&message);
            self.put_last(key, message, topic);
        }
        while let Some(message) = held.pop_front() {
            if self.is_new_to(client, &message) {
                let topic = self.tally_key_of(&message);
                self.owe(key, message, topic);
            }
        }
        let is_late = self.mqtt.moves.arrivals.contains_key(client);
        if let Some(arrival) = self.mqtt.moves.arrivals.get_mut(client) {
            std::mem::take(&mut arrival.seen).into_iter().for_each(|id| _ = arrival.latest.note(id));
        }
        self.mqtt.sessions.get_mut(key).into_iter().for_each(|session| session.arrives = is_late);
        self.keep_on_disk(key, now);
        self.note_session(key);
        self.list_owing(key);
    }

    /// Runs each CONNECT that has waited for its session.
    pub(crate) fn resume_arrived(&mut self, now: Nanos) {
        for (client, mut conns) in std::mem::take(&mut self.mqtt.moves.to_resume) {
            conns.iter().for_each(|conn| _ = self.resume(*conn, now));
            conns.retain(|key| {
                let conn = self.conns.get(*key).filter(|conn| conn.input_state.waits()); // its quantum is used up
                conn.and_then(|conn| conn.mqtt.as_ref()).is_some_and(|mqtt| mqtt.came.is_some())
            });
            if !conns.is_empty() {
                self.mqtt.moves.to_resume.insert(client, conns);
            }
        }
    }

    pub(super) fn end_arrival(
        &mut self,
        client: &str,
        (wall_ns, number): (i64, u64),
        sender: &str,
        is_final: bool,
        now: Nanos,
    ) {
        if self.is_early(client, sender) {
            return;
        }
        let Some(key) = self.mqtt.session_of(client) else { return };
        if !is_final && !self.mqtt.moves.departures.contains_key(&key) {
            self.expect_late(client, wall_ns, now);
        }
        let arrival = self.mqtt.moves.arrivals.get_mut(client).filter(|arrival| arrival.wall_ns == wall_ns);
        if let Some(arrival) = arrival {
            if !is_final && !arrival.givers.contains_key(sender) {
                arrival.givers.insert(sender.into(), None); // it had the session once, and still gets messages of it
                self.flush_when_known(client);
            }
            self.note_over(client, sender, is_final, now);
        }
        self.mqtt.moves.to_thank.retain(|thanks| *thanks.to != *sender || *thanks.client != *client); // this is for all
        self.mqtt.moves.to_thank.push(Thanks { to: sender.into(), client: client.into(), wall_ns, number });
    }

    /// A broker has sent all that it has of a session. The client is let in once all such brokers have.
    fn note_over(&mut self, client: &str, sender: &str, is_final: bool, now: Nanos) {
        let Some(arrival) = self.mqtt.moves.arrivals.get_mut(client) else { return };
        let Some(over) = arrival.givers.get_mut(sender) else { return };
        *over = Some(is_final);
        let wall_ns = arrival.wall_ns;
        let (are_over, are_final) = (arrival.givers.values().all(Option::is_some), arrival.is_whole());
        if are_over {
            self.let_in(client, now);
        }
        if are_final {
            self.mqtt.moves.to_flush.push(Flushing::End(client.into(), wall_ns));
        }
    }

    /// Says that a session is kept here, once that is so.
    pub(super) fn give_thanks(&mut self, now: Nanos) {
        if self.mqtt.moves.to_thank.is_empty() || self.disk.as_ref().is_some_and(|storage| storage.disk.is_listed()) {
            return;
        }
        for thanks in std::mem::take(&mut self.mqtt.moves.to_thank) {
            let session = self.mqtt.session_of(&thanks.client).and_then(|key| self.mqtt.sessions.get(key));
            let own = session.and_then(|session| session.outgoing.as_ref()).map(|outgoing| &outgoing.queue);
            let groups = session.into_iter().flat_map(|session| session.groups());
            let shared = groups.filter_map(|group| self.mqtt.groups.get(*group)).map(|group| &group.queue);
            let is_open = self.mqtt.moves.arrivals.get(&thanks.client).is_none_or(|arrival| arrival.is_open);
            // Who asks a broker that was killed must hear of that first.
            let is_told = self.mqtt.moves.told.contains_key(&thanks.to);
            if !is_open || !is_told || own.into_iter().chain(shared).any(Queue::has_unwritten) {
                self.mqtt.moves.to_thank.push(thanks);
                continue;
            }
            let Thanks { to, client, wall_ns, number } = thanks;
            self.tell_broker(&to, Word::Taken { client: &client, wall_ns, number }, now);
        }
    }

    /// Clients that have waited long enough are let in; who has not answered is asked again, for when it can.
    pub(crate) fn handle_late_arrivals(&mut self, at: Nanos, now: Nanos) {
        if !self.mqtt.moves.armed.fire(at) {
            return;
        }
        let mut times = std::mem::take(&mut self.mqtt.moves.early);
        while let Some((until, client)) = self.mqtt.moves.due.front().cloned().filter(|(until, _)| *until <= now) {
            self.mqtt.moves.due.pop_front();
            let arrival = self.mqtt.moves.arrivals.get(&client);
            let Some(arrival) = arrival.filter(|arrival| !arrival.is_open && arrival.until == until) else { continue };
            let wall_ns = arrival.wall_ns;
            let silent: Vec<Box<str>> = arrival.asked.iter().chain(arrival.givers.keys()).cloned().collect();
            for broker in silent {
                self.tell_broker(&broker, Word::Came { client: &client, wall_ns, is_clean: false }, now);
            }
            times += 1;
            self.let_in(&client, now);
        }
        if times > 0 {
            self.events.push(Event::ConnectedEarly { times });
        }
        if let Some((until, _)) = self.mqtt.moves.due.front() {
            self.timers.arm(&mut self.mqtt.moves.armed, *until, Timer::Arrivals);
        }
    }
}
