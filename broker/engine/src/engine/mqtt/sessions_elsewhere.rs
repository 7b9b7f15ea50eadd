//! Sessions follow their clients: a CONNECT brings its session from the broker that has it, with what it is owed, and
//! ends the connection there. Brokers tell each other over the links of what is retained; `mqtt::elsewhere::moves` has the steps.

use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

use crate::clients::pending_input::WaitFor;
use crate::engine::Engine;
use crate::event::Event;
use crate::keys::{ChannelKey, ConnKey, SessionKey};
use crate::mqtt::elsewhere::moves::{
    Arrival, Carried, Departure, Epoch, Flush, Flushing, News, Owed, PATIENCE_NS, Thanks, Word,
};
use crate::mqtt::outgoing::InFlight;
use crate::mqtt::saved_session::{Saved, SavedSession};
use crate::mqtt::session::Session;
use crate::protocol::link_frames::{NEWS, RETAINED_TOPIC};
use crate::protocol::mqtt::attributes::Attributes;
use crate::protocol::mqtt::packet::{Connect, Qos};
use crate::protocol::mqtt::reason::Reason;
use crate::queueing::message::{Alone, Message};
use crate::scheduling::work_budget::{QUANTUM, message_units};
use crate::time::Nanos;
use crate::timer::Timer;

impl Engine {
    // ---- words between brokers ------------------------------------------------------------------------------------

    /// Puts a word for another broker behind all that goes to it.
    fn tell_broker(&mut self, broker: &str, word: Word<'_>, now: Nanos) {
        let topic = self.topic_key(RETAINED_TOPIC);
        if let Some(channel) = topic.and_then(|topic| self.find_channel(topic, broker)) {
            self.tell_by(channel, word, now);
        }
    }

    fn tell_by(&mut self, channel: ChannelKey, word: Word<'_>, now: Nanos) {
        let Some(own) = self.mqtt.moves.own_channel.clone() else { return };
        let body = News { sender: &own, word }.encode();
        let (qos, properties) = (Qos::AtLeastOnce, &[][..]);
        let attributes =
            Attributes { origin: 0, expires_wall_ns: 0, qos, retain: false, name: NEWS, group: "", properties };
        let mut bytes = Vec::new();
        attributes.encode(&mut bytes);
        let wall_ns = self.clock.wall(now);
        let alone = Alone { id: self.ids.next(wall_ns), wall_ns, attributes: &bytes, body: &body };
        let message = self.builder.alone(&self.memory.messages, alone, now, 0);
        self.work.note(message_units(body.len()));
        self.put_retained(channel, message, now);
    }

    /// The channels of all brokers that speak MQTT.
    fn linked_brokers(&self) -> Vec<Box<str>> {
        let topic = self.topic_key(RETAINED_TOPIC).and_then(|topic| self.topics.get(topic));
        let channels = topic.into_iter().flat_map(|topic| topic.channels.iter());
        let linked = channels.filter_map(|key| self.channels.get(*key)).filter(|channel| channel.link.is_some());
        linked.map(|channel| channel.name.clone()).collect()
    }

    /// Whether a broker hears what it is told.
    fn is_hearing(&self, broker: &str) -> bool {
        let topic = self.topic_key(RETAINED_TOPIC);
        let channel = topic.and_then(|topic| self.find_channel(topic, broker)).and_then(|key| self.channels.get(key));
        channel.is_some_and(|channel| !channel.consumers.is_empty())
    }

    /// Follows what other brokers have said in this turn, and what has come of it.
    pub(crate) fn tend_moves(&mut self, now: Nanos) {
        for (link, message) in std::mem::take(&mut self.mqtt.moves.heard) {
            match News::decode(message.body()) {
                Some(News { sender, word: Word::Flushed { number, count } }) => {
                    self.mqtt.moves.note_mark(link, sender, number, count);
                }
                Some(News { sender, word }) => self.hear(sender, word, now),
                None => {}
            }
        }
        for broker in std::mem::take(&mut self.mqtt.moves.returned) {
            self.tell_again(&broker, now);
        }
        self.start_flush(now);
        self.end_flushes(now);
        self.give_thanks(now);
    }

    /// A broker has opened its link: it may have been killed with what it had heard, and hears now who came meanwhile.
    fn tell_again(&mut self, broker: &str, now: Nanos) {
        let pending = self.mqtt.moves.flushes.iter().filter(|flush| flush.left.contains_key(broker));
        let numbers: Vec<u64> = pending.map(|flush| flush.number).collect();
        for number in numbers {
            self.tell_broker(broker, Word::Flush { number }, now);
        }
        let is_of_it = |arrival: &Arrival| arrival.giver.as_deref() == Some(broker) || arrival.asked.contains(broker);
        let arrivals = self.mqtt.moves.arrivals.iter().filter(|(_, arrival)| is_of_it(arrival));
        let clients: Vec<(Rc<str>, i64)> = arrivals.map(|(client, one)| (Rc::clone(client), one.wall_ns)).collect();
        let told = self.mqtt.moves.told.insert(broker.into(), self.mqtt.moves.latest_ns).unwrap_or(0);
        let since = self.mqtt.sessions.values().filter(|session| session.since_wall_ns > told && !session.departs);
        let since: Vec<(Rc<str>, i64, bool)> =
            since.map(|one| (Rc::clone(&one.client_id), one.since_wall_ns, one.is_clean)).collect();
        let expected = clients.into_iter().map(|(client, wall_ns)| (client, wall_ns, false));
        for (client, wall_ns, is_clean) in expected.chain(since) {
            self.tell_broker(broker, Word::Came { client: &client, wall_ns, is_clean }, now);
        }
    }

    /// Keeps a word until the publishes of this turn are decided.
    pub(crate) fn hear_later(&mut self, conn: ConnKey, message: Message) {
        if let Some(link) = self.source_of(conn) {
            self.mqtt.moves.heard.push((link, message));
        }
    }

    fn hear(&mut self, sender: &str, word: Word<'_>, now: Nanos) {
        match word {
            Word::Came { client, wall_ns, is_clean } => {
                self.give_up(client, Epoch { wall_ns, channel: sender.into() }, is_clean, now);
            }
            Word::Nothing { client, wall_ns, had_connection } => {
                self.note_taken_over(client, had_connection, now);
                self.note_answer(client, wall_ns, sender, now);
            }
            Word::State { client, wall_ns, had_connection, saved } => {
                self.note_taken_over(client, had_connection, now);
                if let Some(Saved::Lives(saved)) = Saved::decode(saved) {
                    self.take_state(client, wall_ns, sender, &saved, now);
                }
            }
            Word::Owed { client, owed, .. } => self.take_owed(client, owed, now),
            Word::Known { client, wall_ns, is_final } => {
                if let Some(key) = self.departing(client, wall_ns, sender) {
                    let epoch = Epoch { wall_ns, channel: sender.into() };
                    self.mqtt.moves.to_flush.push(Flushing::Departure(key, epoch, is_final));
                }
            }
            Word::Over { client, wall_ns, is_final } => self.end_arrival(client, wall_ns, sender, is_final, now),
            Word::Taken { client, wall_ns } => {
                if let Some(key) = self.departing(client, wall_ns, sender) {
                    self.forget_departed(key, now);
                } else {
                    self.forget_restored(client, wall_ns, now);
                }
            }
            Word::Flush { number } => self.mark_links(sender, number, now),
            Word::Flushed { .. } => {}
            Word::Offer { client } => self.take_offer(client, sender, now),
        }
    }

    fn note_taken_over(&mut self, client: &str, had_connection: bool, now: Nanos) {
        if had_connection {
            self.mqtt.takeovers.note(client, false, now);
        }
    }

    // ---- the broker to which a client comes -----------------------------------------------------------------------

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
        match self.mqtt.moves.arrivals.get_mut(client).filter(|_| !is_clean) {
            Some(arrival) if arrival.is_open => return Some(arrival.wall_ns),
            Some(arrival) => {
                arrival.waiting.push((conn, version));
                self.defer(conn, WaitFor::Brokers);
                return None;
            }
            None => {}
        }
        let wall_ns = self.mqtt.moves.next_epoch(self.clock.wall(now));
        // The others are told once they hear.
        let asked: HashSet<Box<str>> =
            self.linked_brokers().into_iter().filter(|broker| self.is_hearing(broker)).collect();
        for broker in &asked {
            self.tell_broker(broker, Word::Came { client, wall_ns, is_clean }, now);
            self.mqtt.moves.told.insert(broker.clone(), wall_ns);
        }
        let known = self.mqtt.session_of(client);
        let departs = known.and_then(|key| self.mqtt.sessions.get(key)).is_some_and(|session| session.departs);
        if is_clean || known.is_some() && !departs || asked.is_empty() || self.mqtt.moves.own_channel.is_none() {
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
    fn expect(&mut self, client: &str, wall_ns: i64, asked: HashSet<Box<str>>, now: Nanos) -> &mut Arrival {
        let (client, until): (Rc<str>, _) = (client.into(), now + PATIENCE_NS);
        self.mqtt.moves.due.push_back((until, Rc::clone(&client)));
        self.timers.arm(&mut self.mqtt.moves.armed, until, Timer::Arrivals);
        self.mqtt.moves.arrivals.entry(client).or_insert_with(|| Arrival::new(wall_ns, asked, until))
    }

    /// A session that was to leave is wanted here again.
    fn stay(&mut self, client: &str, key: SessionKey) {
        let Some(departure) = self.mqtt.moves.departures.remove(&key) else { return };
        let Some(session) = self.mqtt.sessions.get_mut(key) else { return };
        session.departs = false;
        let mut known = HashSet::new();
        self.put_back(key, departure.sent);
        let outgoing = self.mqtt.sessions.get(key).and_then(|session| session.outgoing.as_ref());
        if let Some(outgoing) = outgoing {
            let in_flight = outgoing.in_flight.iter().filter_map(|entry| entry.message.as_ref());
            known.extend(in_flight.chain(outgoing.queue.memory()).map(|one| (one.id, one.wall_ns())));
        }
        if let Some(arrival) = self.mqtt.moves.arrivals.get_mut(client) {
            (arrival.session, arrival.is_own, arrival.is_forgotten) = (Some(key), true, departure.is_taken);
            arrival.seen = known;
        }
    }

    /// What a session that was to leave has sent is what it is owed next.
    fn put_back(&mut self, key: SessionKey, sent: VecDeque<Message>) {
        for message in sent.into_iter().rev() {
            let topic = self.tally_key_of(&message);
            self.put_first(key, message, topic);
        }
    }

    /// A broker has answered: it has nothing, or has begun to send.
    fn note_answer(&mut self, client: &str, wall_ns: i64, sender: &str, now: Nanos) {
        let Some(arrival) = self.mqtt.moves.arrivals.get_mut(client).filter(|one| one.wall_ns == wall_ns) else {
            return;
        };
        arrival.asked.remove(sender);
        if arrival.asked.is_empty() && arrival.giver.is_none() {
            self.let_in(client, now);
        }
    }

    fn take_state(&mut self, client: &str, wall_ns: i64, sender: &str, saved: &SavedSession, now: Nanos) {
        let known = self.mqtt.session_of(client);
        if !self.mqtt.moves.arrivals.contains_key(client) {
            // It comes late: its client has gone on without it.
            let Some(key) = known else { return };
            let mut arrival = Arrival::new(wall_ns, HashSet::new(), now);
            (arrival.session, arrival.is_open, arrival.flush) = (Some(key), true, Some(0));
            self.subscribe_as(key, saved); // else what comes late would be for no subscription
            self.mqtt.moves.arrivals.insert(client.into(), arrival);
            self.mqtt.sessions.get_mut(key).into_iter().for_each(|session| session.arrives = true);
        }
        let Some(arrival) = self.mqtt.moves.arrivals.get_mut(client) else { return };
        arrival.asked.remove(sender);
        let is_first = arrival.giver.is_none();
        arrival.giver.get_or_insert_with(|| sender.into());
        let (session, is_forgotten, is_open) = (arrival.session, arrival.is_forgotten, arrival.is_open);
        if is_first && !is_open {
            if let (Some(key), true) = (session, is_forgotten) {
                self.unsubscribe_all(key);
                self.subscribe_as(key, saved);
            }
            let key = session.unwrap_or_else(|| self.restore_session(saved, now));
            if let Some(session) = self.mqtt.sessions.get_mut(key).filter(|_| session.is_none()) {
                (session.entry, session.since_wall_ns, session.arrives) = (None, wall_ns, true);
            }
            self.mqtt.moves.arrivals.get_mut(client).into_iter().for_each(|arrival| arrival.session = Some(key));
        }
        let (version, is_settled) = (self.mqtt.interest.version(), self.mqtt.interest.is_settled());
        if let Some(arrival) =
            self.mqtt.moves.arrivals.get_mut(client).filter(|one| one.giver.as_deref() == Some(sender))
        {
            arrival.awaits = Some(version);
        }
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

    fn take_owed(&mut self, client: &str, owed: Owed<'_>, now: Nanos) {
        let message = owed.message.map(|Carried { id, wall_ns, attributes, body }| {
            let alone = Alone { id, wall_ns, attributes, body };
            let mut message = self.builder.alone(&self.memory.messages, alone, now, 0);
            message.foreign = true;
            message
        });
        if !owed.group.is_empty() {
            let group = self.mqtt.by_group.get(owed.group).copied();
            if let (Some(group), Some(message)) = (group, message) {
                let mut forms = std::mem::take(&mut self.fan.forms);
                let topic = self.tally_key_of(&message);
                self.give_to_group(&mut forms, group, message, topic, now);
                self.fan.forms = forms;
            }
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

    /// Whether a message that is published here, or comes by a link, is for a session that arrives.
    pub(crate) fn is_for_arriving(&mut self, client: &str, message: &Message) -> bool {
        let Some(arrival) = self.mqtt.moves.arrivals.get(client) else { return true };
        self.mqtt.moves.is_for(arrival) && (!arrival.is_open || self.is_new_to(client, message))
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
        let (session, is_own) = (arrival.session, arrival.is_own);
        if arrival.giver.is_none() {
            self.mqtt.moves.arrivals.remove(client);
        }
        if let Some(key) = session {
            let held = if is_own { Vec::new() } else { self.take_held(key) };
            self.hand_out(client, key, in_flight, owed, held, now);
        }
        for (conn, _) in waiting {
            if let Some(mqtt) = self.conns.get_mut(conn).and_then(|conn| conn.mqtt.as_mut()) {
                mqtt.came = Some(came);
                self.mqtt.moves.to_resume.push(conn);
            }
        }
    }

    /// What another broker has sent comes first, then what has come here meanwhile.
    fn hand_out(
        &mut self,
        client: &str,
        key: SessionKey,
        in_flight: Vec<InFlight>,
        owed: Vec<Message>,
        held: Vec<Message>,
        now: Nanos,
    ) {
        let writes = self.journal.is_some();
        in_flight.iter().for_each(|sent| self.mqtt.tally.begin_flight(sent.topic));
        let Some(outgoing) = self.outgoing_of(key) else { return };
        outgoing.take_in_flight(in_flight, writes);
        for message in owed {
            let topic = self.tally_key_of(&message);
            self.put_last(key, message, topic);
        }
        for message in held {
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

    /// What has come here for a session that is not whole: it is in memory yet.
    fn take_held(&mut self, key: SessionKey) -> Vec<Message> {
        let mut held = Vec::new();
        let outgoing = self.mqtt.sessions.get_mut(key).and_then(|session| session.outgoing.as_mut());
        outgoing.into_iter().for_each(|outgoing| held.extend(std::iter::from_fn(|| outgoing.queue.pop_front())));
        self.tally_left(key);
        held
    }

    /// Runs each CONNECT that has waited for its session.
    pub(crate) fn resume_arrived(&mut self, now: Nanos) {
        for conn in std::mem::take(&mut self.mqtt.moves.to_resume) {
            self.resume(conn, now);
        }
    }

    fn end_arrival(&mut self, client: &str, wall_ns: i64, sender: &str, is_final: bool, now: Nanos) {
        let arrival = self.mqtt.moves.arrivals.get(client);
        if arrival.is_some_and(|arrival| arrival.giver.as_deref() == Some(sender)) {
            self.let_in(client, now);
            if is_final {
                self.mqtt.moves.to_flush.push(Flushing::End(client.into(), wall_ns));
            }
        }
        if self.mqtt.session_of(client).is_none() {
            return;
        }
        self.mqtt.moves.to_thank.push(Thanks { to: sender.into(), client: client.into(), wall_ns });
    }

    /// Says that a session is kept here, once that is so.
    fn give_thanks(&mut self, now: Nanos) {
        if self.mqtt.moves.to_thank.is_empty() || self.disk.as_ref().is_some_and(|storage| storage.disk.is_listed()) {
            return;
        }
        for thanks in std::mem::take(&mut self.mqtt.moves.to_thank) {
            let session = self.mqtt.session_of(&thanks.client).and_then(|key| self.mqtt.sessions.get(key));
            let outgoing = session.and_then(|session| session.outgoing.as_ref());
            let is_open = self.mqtt.moves.arrivals.get(&thanks.client).is_none_or(|arrival| arrival.is_open);
            if !is_open || outgoing.is_some_and(|outgoing| outgoing.queue.has_unwritten()) {
                self.mqtt.moves.to_thank.push(thanks);
                continue;
            }
            let Thanks { to, client, wall_ns } = thanks;
            self.tell_broker(&to, Word::Taken { client: &client, wall_ns }, now);
        }
    }

    /// Clients that have waited long enough are let in; who has not answered is asked again, for when it can.
    pub(crate) fn handle_late_arrivals(&mut self, at: Nanos, now: Nanos) {
        if !self.mqtt.moves.armed.fire(at) {
            return;
        }
        let mut times = 0;
        while let Some((until, client)) = self.mqtt.moves.due.front().cloned().filter(|(until, _)| *until <= now) {
            self.mqtt.moves.due.pop_front();
            let arrival = self.mqtt.moves.arrivals.get(&client);
            let Some(arrival) = arrival.filter(|arrival| !arrival.is_open && arrival.until == until) else { continue };
            let wall_ns = arrival.wall_ns;
            let silent: Vec<Box<str>> = arrival.asked.iter().chain(&arrival.giver).cloned().collect();
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

    // ---- the broker that has the session --------------------------------------------------------------------------

    /// A client came to another broker at `epoch`: what it has here ends, or goes there.
    fn give_up(&mut self, client: &str, epoch: Epoch, is_clean: bool, now: Nanos) {
        let Some(own) = self.mqtt.moves.own_channel.clone() else { return };
        let (wall_ns, sender) = (epoch.wall_ns, epoch.channel.clone());
        self.mqtt.moves.latest_ns = self.mqtt.moves.latest_ns.max(wall_ns);
        let answer = |had_connection| Word::Nothing { client, wall_ns, had_connection };
        let arrival = self.mqtt.moves.arrivals.get(client).filter(|arrival| !arrival.is_open);
        if let Some(arrival) = arrival {
            if (Epoch { wall_ns: arrival.wall_ns, channel: own.clone() }) > epoch {
                return self.tell_broker(&sender, answer(false), now);
            }
            self.abandon(client);
        }
        let known = self.mqtt.session_of(client);
        let Some(session) = known.and_then(|key| self.mqtt.sessions.get(key)) else {
            return self.tell_broker(&sender, answer(false), now);
        };
        let leaves_already = known.and_then(|key| self.mqtt.moves.departures.get(&key));
        if leaves_already.is_some_and(|departure| departure.epoch == epoch) {
            return; // it has asked again
        }
        let since = Epoch { wall_ns: session.since_wall_ns, channel: own };
        if leaves_already.is_some_and(|departure| departure.epoch > epoch) || since > epoch {
            return self.tell_broker(&sender, answer(false), now);
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
    fn abandon(&mut self, client: &str) {
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
        (session.departs, session.arrives, session.will_at) = (true, false, Nanos::MAX);
        self.mqtt.moves.arrivals.remove(&client);
        let (wall_ns, to) = (epoch.wall_ns, epoch.channel.clone());
        let mut departure = Departure::new(epoch);
        if let Some(before) = self.mqtt.moves.departures.remove(&key) {
            departure.is_taken = before.is_taken;
            departure.flushed = before.flushed.filter(|_| before.is_taken);
            self.put_back(key, before.sent);
        }
        let is_taken = departure.is_taken;
        self.mqtt.moves.departures.insert(key, departure);
        if is_taken {
            let answer = Word::Nothing { client: &client, wall_ns, had_connection };
            self.tell_broker(&to, answer, now);
            return self.list_owing(key);
        }
        let Some(session) = self.mqtt.sessions.get(key) else { return };
        let saved = Saved::Lives(self.saved(session, now)).encode();
        let in_flight: Vec<InFlight> =
            session.outgoing.as_ref().map_or(Vec::new(), |outgoing| outgoing.in_flight.iter().cloned().collect());
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
        if departure.is_told == Some(true) {
            return units; // what comes now, the other broker has by itself
        }
        let (to, wall_ns, is_taken) = (departure.epoch.channel.clone(), departure.epoch.wall_ns, departure.is_taken);
        let Some(client) = self.mqtt.sessions.get(key).map(|session| Rc::clone(&session.client_id)) else {
            return units;
        };
        while units < QUANTUM {
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
            if let Some(departure) = self.mqtt.moves.departures.get_mut(&key).filter(|_| !is_taken) {
                departure.sent.push_back(message);
            }
        }
        if units >= QUANTUM {
            self.list_owing(key);
        }
        let is_empty = self.outgoing_of(key).is_none_or(|outgoing| outgoing.queue.is_empty());
        let Some(departure) = self.mqtt.moves.departures.get_mut(&key).filter(|_| is_empty) else { return units };
        if let Some(is_final) = departure.flushed.filter(|_| departure.flushed != departure.is_told) {
            departure.is_told = departure.flushed;
            self.tell_broker(&to, Word::Over { client: &client, wall_ns, is_final }, now);
        }
        units
    }

    /// The session that leaves for that broker since then.
    fn departing(&self, client: &str, wall_ns: i64, broker: &str) -> Option<SessionKey> {
        let key = self.mqtt.session_of(client)?;
        let epoch = &self.mqtt.moves.departures.get(&key)?.epoch;
        (epoch.wall_ns == wall_ns && *epoch.channel == *broker).then_some(key)
    }

    /// A session is kept at another broker. What brokers that are away have for it still goes on to that one.
    fn forget_departed(&mut self, key: SessionKey, now: Nanos) {
        let Some(departure) = self.mqtt.moves.departures.get_mut(&key) else { return };
        departure.sent.clear();
        departure.is_taken = true;
        let (is_final, to, wall_ns) =
            (departure.is_told == Some(true), departure.epoch.channel.clone(), departure.epoch.wall_ns);
        self.save_end(key, now);
        let Some(session) = self.mqtt.sessions.get_mut(key) else { return };
        session.will = None;
        if let Some(outgoing) = &mut session.outgoing {
            outgoing.in_flight.drain(..).for_each(|sent| self.mqtt.tally.end_flight(sent.topic));
        }
        if !is_final {
            return;
        }
        let client = Rc::clone(&session.client_id);
        let groups = session.groups.clone();
        for group in groups.into_iter().flat_map(|groups| *groups) {
            let Some(group) = self.mqtt.groups.get_mut(group).filter(|group| group.members.len() == 1) else {
                continue;
            };
            let (name, mut left) = (group.name.clone(), Vec::new());
            while let Some(message) = group.queue.pop_front() {
                left.push(message);
            }
            self.mqtt.tally.trim(&mut group.owed, 0);
            for message in left {
                let (qos, carried) = (Qos::AtMostOnce, Some(Carried::of(&message)));
                let owed = Owed { packet_id: 0, qos, retain: false, group: &name, message: carried };
                self.tell_broker(&to, Word::Owed { client: &client, wall_ns, owed }, now);
            }
        }
        if let Some(outgoing) = self.outgoing_of(key) {
            outgoing.queue.clear();
        }
        self.mqtt.moves.departures.remove(&key);
        self.drop_session(key);
    }

    /// A session has left before a kill of this broker, which has not heard that it is kept elsewhere.
    fn forget_restored(&mut self, client: &str, wall_ns: i64, now: Nanos) {
        let known = self.mqtt.session_of(client);
        let is_older =
            |session: &Session| session.conn.is_none() && session.since_wall_ns < wall_ns && !session.departs;
        if let Some(key) = known.filter(|key| self.mqtt.sessions.get(*key).is_some_and(is_older)) {
            self.save_end(key, now);
            self.drop_session(key);
        }
    }

    // ---- what is under way ----------------------------------------------------------------------------------------

    /// Asks all brokers how far their links to here have come, for sessions that leave.
    fn start_flush(&mut self, now: Nanos) {
        let wall_ns = self.clock.wall(now);
        let moves = &mut self.mqtt.moves;
        if moves.to_flush.is_empty() || moves.flushes.iter().any(|flush| !flush.is_told) {
            return;
        }
        let sessions = std::mem::take(&mut moves.to_flush);
        let number = moves.next_epoch(wall_ns) as u64; // marks of an earlier incarnation may be on their way
        let brokers = self.linked_brokers();
        for broker in &brokers {
            self.tell_broker(broker, Word::Flush { number }, now);
        }
        for flushing in &sessions {
            if let Flushing::Arrival(client, wall_ns) = flushing {
                let arrival = self.mqtt.moves.arrivals.get_mut(client).filter(|arrival| arrival.wall_ns == *wall_ns);
                arrival.into_iter().for_each(|arrival| _ = arrival.flush.get_or_insert(number));
            }
        }
        let left = brokers.into_iter().map(|broker| (broker, HashSet::new())).collect();
        self.mqtt.moves.flushes.push(Flush { number, left, sessions, is_told: false });
    }

    /// Puts a mark into each link of a broker.
    fn mark_links(&mut self, broker: &str, number: u64, now: Nanos) {
        let theirs = self.channels.iter().filter(|(_, channel)| channel.link.is_some() && &*channel.name == broker);
        let theirs: Vec<ChannelKey> = theirs.map(|(key, _)| key).collect();
        let count = theirs.len() as u32;
        for channel in theirs {
            self.tell_by(channel, Word::Flushed { number, count }, now);
        }
    }

    fn end_flushes(&mut self, now: Nanos) {
        let mut flushes = std::mem::take(&mut self.mqtt.moves.flushes);
        let linked = if flushes.is_empty() { Vec::new() } else { self.linked_brokers() };
        flushes.retain_mut(|flush| {
            flush.left.retain(|broker, _| linked.contains(broker)); // nothing comes of one that is no member any more
            let is_final = flush.left.is_empty();
            if is_final || !flush.is_told && !flush.left.keys().any(|broker| self.is_hearing(broker)) {
                flush.is_told = true;
                flush.sessions.iter().for_each(|flushing| self.note_flushed(flushing, is_final, now));
            }
            !is_final
        });
        self.mqtt.moves.flushes.append(&mut flushes);
    }

    fn note_flushed(&mut self, flushing: &Flushing, is_final: bool, now: Nanos) {
        match flushing {
            Flushing::Arrival(client, wall_ns) => {
                let arrival = self.mqtt.moves.arrivals.get(client).filter(|arrival| arrival.wall_ns == *wall_ns);
                if let Some(giver) = arrival.and_then(|arrival| arrival.giver.clone()) {
                    self.tell_broker(&giver, Word::Known { client, wall_ns: *wall_ns, is_final }, now);
                }
            }
            Flushing::End(client, wall_ns) => {
                let arrival = self.mqtt.moves.arrivals.get(client);
                if arrival.is_none_or(|arrival| arrival.wall_ns != *wall_ns) {
                    return;
                }
                self.mqtt.moves.arrivals.remove(client);
                let session = self.mqtt.session_of(client).and_then(|key| self.mqtt.sessions.get_mut(key));
                session.into_iter().for_each(|session| session.arrives = false);
            }
            Flushing::Departure(key, epoch, are_all_known) => {
                let departure = self.mqtt.moves.departures.get_mut(key);
                if let Some(departure) = departure.filter(|departure| departure.epoch == *epoch) {
                    departure.flushed = departure.flushed.max(Some(is_final && *are_all_known));
                    self.list_owing(*key);
                }
            }
        }
    }

    // ---- the end of a broker --------------------------------------------------------------------------------------

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

    fn take_offer(&mut self, client: &str, sender: &str, now: Nanos) {
        if self.mqtt.session_of(client).is_some() || self.mqtt.moves.arrivals.contains_key(client) {
            return;
        }
        let wall_ns = self.mqtt.moves.next_epoch(self.clock.wall(now));
        self.expect(client, wall_ns, HashSet::from([sender.into()]), now);
        self.tell_broker(sender, Word::Came { client, wall_ns, is_clean: false }, now);
    }
}
