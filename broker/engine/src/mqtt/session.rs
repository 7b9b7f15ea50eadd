//! What one client has, also while it is away: its subscriptions, what it is owed, what it is about to release.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use crate::keys::{ConnKey, GroupKey};
use crate::memory::Stock;
use crate::mqtt::filter_trie::Place;
use crate::mqtt::outgoing::Outgoing;
use crate::mqtt::retained::Replay;
use crate::mqtt::will::Will;
use crate::protocol::access::{Object, Permission};
use crate::protocol::grants::{Grant, MQTT_CHANNEL};
use crate::protocol::mqtt::attributes::origin_of;
use crate::protocol::mqtt::topic_filter::Filter;
use crate::queueing::journal::Entry;
use crate::queueing::queue::Queue;
use crate::time::Nanos;
use crate::timer::Armed;

/// A session that ends with its connection.
pub const ENDS_WITH_CONNECTION: u32 = 0;
/// A session that ends only when its client says so.
pub const NEVER_EXPIRES: u32 = u32::MAX;

#[derive(Debug)]
pub struct Session {
    pub client_id: Rc<str>,
    pub origin: u64,
    pub conn: Option<ConnKey>,
    pub since_wall_ns: i64, // when its client came, as an epoch of moves
    pub begun: Begun,
    pub departs: bool,                   // to another broker (`Moves::departures`)
    pub arrives: bool,                   // part of it may still come from another broker (`Moves::arrivals`)
    pub(crate) grant: Option<Rc<Grant>>, // None: it may do everything
    pub expiry_s: u32,                   // `Hub::amend` changes it, and the will
    pub ends_at: Nanos,                  // while it has no connection
    pub window: u16,                     // deliveries that may be in flight to its client
    pub subscriptions: Vec<Place>,
    pub outgoing: Option<Box<Outgoing>>, // once it was owed something
    pub will: Option<Box<Will>>,
    pub seldom: Option<Box<Seldom>>,
    pub(crate) entry: Option<Entry>, // of its state on disk
    pub(crate) is_noted: bool,       // in the engine's list of sessions to write
    pub resends: bool,               // what is in flight comes again, on a new connection
    pub listed: bool,                // in the engine's list of sessions with something to send
    pub found_in: u64,               // the latest message that it was found for, and where in the list of targets
    pub target: u32,
    pub armed: Armed, // of its expiry
}

/// What few sessions have: most are of sensors that publish, and are there by the hundred thousand.
#[derive(Debug, Default)]
pub struct Seldom {
    pub replays: VecDeque<Replay>, // of what is retained, for new subscriptions
    pub groups: Vec<GroupKey>,
    pub received: HashMap<u16, Received>, // {packet identifier of QoS 2: until its PUBREL}
    pub queue_number: u64,                // of the files of what it is owed; 0: none
    pub dropped: u64,                     // messages for want of room
}

impl Seldom {
    fn is_empty(&self) -> bool {
        let none_waits = self.replays.is_empty() && self.groups.is_empty() && self.received.is_empty();
        none_waits && self.queue_number == 0 && self.dropped == 0
    }
}

/// How a session began to be here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// Anew, with its client's latest CONNECT.
    Clean,
    /// Its client's latest CONNECT may have found one here or elsewhere.
    Resumed,
    /// From disk, and its client has not come since.
    Restored,
}

/// A PUBLISH of QoS 2 that was taken, and may come again until its PUBREL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    pub digest: u64,
    pub repeats: u8,
}

/// What becomes of a PUBLISH of QoS 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    New,
    /// It was taken before [MQTT-4.3.3-10].
    Known,
    /// A client that repeats the same again and again does not read its answers.
    Excess,
    /// More are unreleased than the broker's Receive Maximum.
    TooMany,
}

/// Bytes that are kept without a client. `lasting`: the id of one whose session outlives its connection.
pub fn cost_of(lasting: Option<&str>, will: u64) -> u64 {
    lasting.map_or(0, |client_id| size_of::<Session>() + client_id.len()) as u64 + will
}

/// So often a PUBLISH of QoS 2 may come again on one connection. Mosquitto ends the connection at the second repeat, as
/// its byte vectors show.
const MOST_REPEATS: u8 = 1;

impl Session {
    pub fn new(client_id: &str, conn: ConnKey) -> Self {
        Self { conn: Some(conn), ..Self::away(client_id) }
    }

    /// A session whose client is not connected.
    pub fn away(client_id: &str) -> Self {
        Self {
            client_id: client_id.into(),
            origin: origin_of(client_id),
            conn: None,
            since_wall_ns: 0,
            begun: Begun::Resumed,
            departs: false,
            arrives: false,
            grant: None,
            expiry_s: ENDS_WITH_CONNECTION,
            ends_at: Nanos::MAX,
            window: 1,
            subscriptions: Vec::new(),
            outgoing: None,
            will: None,
            seldom: None,
            entry: None,
            is_noted: false,
            resends: false,
            listed: false,
            found_in: 0,
            target: 0,
            armed: Armed::default(),
        }
    }

    pub fn may_read(&self, object: Object<'_>) -> bool {
        self.grant.as_ref().is_none_or(|grant| grant.allows(Permission::Subscribe, object, MQTT_CHANNEL))
    }

    pub fn may_write(&self, object: Object<'_>) -> bool {
        self.grant.as_ref().is_none_or(|grant| grant.allows(Permission::Publish, object, ""))
    }

    /// Whether a filter is not refused. Each delivery is checked again, by name; those of groups by this.
    pub fn may_subscribe(&self, filter: Filter<'_>, object: Object<'_>) -> bool {
        self.grant.as_ref().is_none_or(|grant| grant.may_subscribe(filter, object))
    }

    /// Whether it outlives its connection.
    pub fn is_durable(&self) -> bool {
        self.expiry_s != ENDS_WITH_CONNECTION
    }

    /// Bytes that are kept of it without its client: itself, if it outlives its connection, and its will.
    pub fn cost(&self) -> u64 {
        cost_of(self.is_durable().then_some(&*self.client_id), self.will.as_ref().map_or(0, |will| will.cost()))
    }

    /// Whether there is something to send, as far as its client lets it.
    pub fn is_owed(&self) -> bool {
        let waits = self.outgoing.as_ref().is_some_and(|outgoing| !outgoing.queue.is_empty());
        waits || self.resends || self.seldom.as_ref().is_some_and(|seldom| !seldom.replays.is_empty())
    }

    /// What it is owed, from the first time on. `stock` makes one: of what waits in memory, and of what is in flight.
    pub fn outgoing_in(&mut self, stock: impl Fn() -> Stock) -> &mut Outgoing {
        let window = self.window;
        self.outgoing.get_or_insert_with(|| Box::new(Outgoing::new(Queue::in_stock(stock()), stock(), window)))
    }

    /// To write what few sessions have.
    pub fn seldom(&mut self) -> &mut Seldom {
        self.seldom.get_or_insert_default()
    }

    /// Something of what few sessions have is gone: without the rest its memory is given back.
    pub fn tidy(&mut self) {
        self.seldom.take_if(|seldom| seldom.is_empty());
    }

    pub fn groups(&self) -> &[GroupKey] {
        self.seldom.as_ref().map_or(&[], |seldom| &seldom.groups)
    }

    /// What is retained and has not been sent to new subscriptions, the next first.
    pub fn replays(&mut self) -> Option<&mut VecDeque<Replay>> {
        self.seldom.as_mut().map(|seldom| &mut seldom.replays)
    }

    pub fn received(&self) -> impl Iterator<Item = (u16, Received)> + '_ {
        self.seldom.iter().flat_map(|seldom| seldom.received.iter().map(|(id, received)| (*id, *received)))
    }

    pub fn queue_number(&self) -> u64 {
        self.seldom.as_ref().map_or(0, |seldom| seldom.queue_number)
    }

    pub fn dropped(&self) -> u64 {
        self.seldom.as_ref().map_or(0, |seldom| seldom.dropped)
    }

    /// When its will is due, without a connection.
    pub fn will_at(&self) -> Nanos {
        self.will.as_ref().map_or(Nanos::MAX, |will| will.due_at)
    }

    /// Notes a PUBLISH of QoS 2 under its identifier; `digest` stands for its content.
    pub fn receive(&mut self, id: u16, digest: u64, most: usize) -> Arrival {
        let received = &mut self.seldom().received;
        if let Some(known) = received.get_mut(&id) {
            if known.digest != digest {
                *known = Received { digest, repeats: 0 };
                return Arrival::Known;
            }
            known.repeats += 1;
            return if known.repeats > MOST_REPEATS { Arrival::Excess } else { Arrival::Known };
        }
        if received.len() >= most {
            return Arrival::TooMany;
        }
        received.insert(id, Received { digest, repeats: 0 });
        Arrival::New
    }

    /// Its PUBLISH was refused, or its PUBREL has come.
    pub fn release(&mut self, id: u16) {
        if let Some(seldom) = &mut self.seldom {
            seldom.received.remove(&id);
            self.tidy();
        }
    }

    /// A new connection: what comes again does so for the first time.
    pub fn forget_repeats(&mut self) {
        let known = self.seldom.iter_mut().flat_map(|seldom| seldom.received.values_mut());
        known.for_each(|known| known.repeats = 0);
    }
}
