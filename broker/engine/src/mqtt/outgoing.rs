//! Messages of QoS 1 and 2 that a session is owed: those that wait, and those that its client has not acknowledged.

use std::collections::VecDeque;

use crate::id::MessageId;
use crate::keys::{GroupKey, TallyKey};
use crate::memory::{LARGE_BYTES, Stock};
use crate::mqtt::forms::Target;
use crate::mqtt::topic_tally::Owed;
use crate::protocol::mqtt::packet::{AckKind, Qos};
use crate::queueing::message::Message;
use crate::queueing::queue::Queue;

/// What is under way to a client under one packet identifier.
#[derive(Debug, Clone)]
pub struct InFlight {
    pub id: u16,
    pub qos: Qos,
    pub retain: bool,
    pub group: Option<GroupKey>,  // whose message it is
    pub message: Option<Message>, // None: its PUBREC came, and PUBREL is out
    pub topic: TallyKey,          // that it counts for
}

/// What an acknowledgement does (figure 4.3 of the standard).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The exchange is over; there is room for the next message. The topic that its message counted for.
    Ended(TallyKey),
    /// PUBREL is due.
    Release,
    /// There is no such exchange.
    Unknown,
    /// It does not fit the state of its exchange.
    Wrong,
}

#[derive(Debug)]
pub struct Outgoing {
    pub queue: Queue,
    pub owed: Owed,                // what is in the queue, by topic
    in_flight: VecDeque<InFlight>, // in the order in which they were sent
    stock: Stock,                  // of the messages in flight
    pub window: u16,               // so many may be in flight
    pub is_on_disk: bool,          // nothing goes out that is not written
    last_id: u16,
    /// Messages in flight that lie at the front of the queue too: they came from another broker, and are written there.
    twins: VecDeque<(MessageId, i64)>,
}

impl Outgoing {
    pub fn new(queue: Queue, stock: Stock, window: u16) -> Self {
        let (owed, in_flight, twins) = Default::default();
        Self { queue, owed, in_flight, stock, window, is_on_disk: false, last_id: 0, twins }
    }

    pub fn in_flight(&self) -> impl ExactSizeIterator<Item = &InFlight> {
        self.in_flight.iter()
    }

    /// Whether one more may go into flight. A little may always, whatever others hold: so an acknowledgement is awaited
    /// whenever this says no, and the session goes on with it.
    pub fn has_room(&self) -> bool {
        let is_little = self.stock.used() < LARGE_BYTES as u64;
        self.in_flight.len() < usize::from(self.window) && (is_little || self.stock.has_room_for(0))
    }

    /// Takes a message into flight; returns its packet identifier, which no other one has.
    pub fn begin(&mut self, message: Message, target: &Target) -> u16 {
        let Target { qos, retain, group, topic, .. } = *target;
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            let id = self.last_id;
            if self.in_flight.iter().all(|other| other.id != id) {
                self.stock.add(message.cost());
                self.in_flight.push_back(InFlight { id, qos, retain, group, message: Some(message), topic });
                return id;
            }
        }
    }

    /// Adds what another broker had in flight. `writes`: it goes through the queue as well, to be written.
    pub fn take_in_flight(&mut self, entries: Vec<InFlight>, writes: bool) {
        for entry in entries {
            self.stock.add(entry.message.as_ref().map_or(0, Message::cost));
            if let Some(message) = entry.message.as_ref().filter(|_| writes) {
                self.twins.push_back((message.id, message.wall_ns()));
                self.queue.push_back(message.clone());
            }
            self.in_flight.push_back(entry);
        }
    }

    /// Messages of the queue that are not in flight already.
    pub fn waiting(&self) -> usize {
        self.queue.len().saturating_sub(self.twins.len()) // the disk may have refused some
    }

    /// The next message of the queue that is not in flight already.
    pub fn pop_front(&mut self) -> Option<Message> {
        loop {
            let message = self.queue.pop_front()?;
            if self.twins.front() != Some(&(message.id, message.wall_ns())) {
                return Some(message);
            }
            self.twins.pop_front();
            let is_it = |entry: &&mut InFlight| entry.message.as_ref().is_some_and(|one| one.id == message.id);
            if let Some(entry) = self.in_flight.iter_mut().find(is_it) {
                entry.message = Some(message); // with its place on disk
            }
        }
    }

    /// Takes the messages of groups out of flight, in the order in which they were sent.
    pub fn take_shared(&mut self) -> Vec<(GroupKey, Message, TallyKey)> {
        let mut taken = Vec::new();
        self.in_flight.retain_mut(|entry| {
            let Some(group) = entry.group else { return true };
            let Some(message) = entry.message.take() else { return true };
            self.stock.subtract(message.cost());
            taken.push((group, message, entry.topic));
            false
        });
        taken
    }

    /// Takes everything out of flight.
    pub fn end_flights(&mut self) -> impl Iterator<Item = InFlight> {
        self.stock.clear();
        self.in_flight.drain(..)
    }

    /// Acknowledgements come in order nearly always, and cost no search then.
    pub fn acknowledge(&mut self, kind: AckKind, id: u16, is_refusal: bool) -> Step {
        let Some(at) = self.in_flight.iter().position(|entry| entry.id == id) else { return Step::Unknown };
        let entry = &mut self.in_flight[at];
        match (kind, entry.qos, entry.message.is_some()) {
            (AckKind::Puback, Qos::AtLeastOnce, _) | (AckKind::Pubcomp, Qos::ExactlyOnce, false) => {}
            (AckKind::Pubrec, Qos::ExactlyOnce, true) if is_refusal => {}
            (AckKind::Pubrec, Qos::ExactlyOnce, _) => {
                self.stock.subtract(entry.message.take().map_or(0, |message| message.cost()));
                return Step::Release;
            }
            _ => return Step::Wrong,
        }
        let topic = entry.topic;
        self.stock.subtract(entry.message.as_ref().map_or(0, Message::cost));
        self.in_flight.remove(at);
        Step::Ended(topic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Meter;
    use crate::queueing::message::{Alone, Builder};

    fn message() -> Message {
        let alone = Alone { id: MessageId(1), wall_ns: 0, attributes: b"", body: b"x" };
        Builder::default().alone(&Meter::default(), alone, 0, 0)
    }

    fn target(qos: Qos) -> Target {
        Target {
            session: Default::default(),
            qos,
            retain: false,
            ids: Vec::new(),
            group: None,
            topic: TallyKey::default(),
        }
    }

    #[test]
    fn what_another_broker_had_in_flight_is_written_and_not_sent_anew() {
        let mut outgoing = Outgoing::new(Queue::in_memory(), Stock::default(), 4);
        let topic = TallyKey::default();
        let (qos, retain, group) = (Qos::AtLeastOnce, false, None);
        let entry = InFlight { id: 7, qos, retain, group, message: Some(message()), topic };
        outgoing.take_in_flight(vec![entry], true);
        assert_eq!(outgoing.queue.len(), 1);
        assert!(outgoing.pop_front().is_none() && outgoing.queue.is_empty());
        assert_eq!(outgoing.acknowledge(AckKind::Puback, 7, false), Step::Ended(topic));
        outgoing.queue.push_back(message());
        assert!(outgoing.pop_front().is_some());
    }

    fn after(qos: Qos, steps: &[(AckKind, bool)]) -> Vec<Step> {
        let mut outgoing = Outgoing::new(Queue::in_memory(), Stock::default(), 4);
        let id = outgoing.begin(message(), &target(qos));
        steps.iter().map(|(kind, refused)| outgoing.acknowledge(*kind, id, *refused)).collect()
    }

    #[test]
    fn each_exchange_takes_its_own_acknowledgements_in_their_order() {
        use AckKind::{Puback, Pubcomp, Pubrec};
        let (once, twice) = (Qos::AtLeastOnce, Qos::ExactlyOnce);
        let ended = Step::Ended(TallyKey::default());
        assert_eq!(after(once, &[(Puback, false), (Puback, false)]), [ended, Step::Unknown]);
        assert_eq!(after(once, &[(Pubrec, false)]), [Step::Wrong]);
        assert_eq!(after(twice, &[(Puback, false)]), [Step::Wrong]);
        assert_eq!(after(twice, &[(Pubcomp, false)]), [Step::Wrong]);
        let whole = [(Pubrec, false), (Pubrec, false), (Pubcomp, false)];
        assert_eq!(after(twice, &whole), [Step::Release, Step::Release, ended]);
        assert_eq!(after(twice, &[(Pubrec, true)]), [ended]);
    }

    #[test]
    fn an_identifier_is_used_again_only_when_it_is_free() {
        let mut outgoing = Outgoing::new(Queue::in_memory(), Stock::default(), u16::MAX);
        let first = outgoing.begin(message(), &target(Qos::AtLeastOnce));
        for _ in 0..u16::MAX - 1 {
            let id = outgoing.begin(message(), &target(Qos::AtLeastOnce));
            assert_eq!(outgoing.acknowledge(AckKind::Puback, id, false), Step::Ended(TallyKey::default()));
        }
        assert_ne!(outgoing.begin(message(), &target(Qos::AtLeastOnce)), first, "it is still out");
    }
}
