//! Sessions that follow their clients to another broker: what brokers tell each other of them, and how far each has
//! come. Pure.
//!
//! The broker to which a client comes tells all others (`Came`). The one that has the session ends its connection, and
//! sends its state and what it is owed, and goes on to collect (`Departure`). The new one collects as well (`Arrival`),
//! once all brokers know what the session wants. Marks in all links to it (`Flush`) tell what was published before: the
//! old one has that, and the new one leaves it out. Then it says so (`Known`). By marks of its own the old one finds
//! out that nothing older is under way to it, says so (`Over`), and forgets the session once it is kept at the new one
//! (`Taken`). Until then the old one has all of it: whoever is killed in between loses nothing. While some broker is
//! away, the old one goes on to collect what that one has, and sends it on: it forgets the session when all have come.
//! Each `Over` has a number, and its `Taken` the same: what was sent since is kept until the next one.
//! If the client comes back to it before that, it leaves nothing out: what it was to collect nobody else has.
//! What waits for groups of which the session is the last member goes last, before the last `Over`. If more has come
//! for them until `Taken`, both are said again. Who starts anew tells since when it has its sessions (`Restored`): of
//! two brokers, the later one gets all.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::rc::Rc;

use crate::id::MessageId;
use crate::keys::{ConnKey, GroupKey, SessionKey};
use crate::memory::Stock;
use crate::mqtt::elsewhere::link_peers::Latest;
use crate::mqtt::outgoing::InFlight;
use crate::mqtt::saved_session::{eight, long, text};
use crate::protocol::mqtt::field_reader::Fields;
use crate::protocol::mqtt::packet::Qos;
use crate::protocol::mqtt::reason::Fault;
use crate::protocol::mqtt::version::Version;
use crate::queueing::message::Message;
use crate::queueing::queue::Queue;
use crate::time::{NS_PER_S, Nanos};
use crate::timer::Armed;

/// So long a CONNECT waits for what other brokers have of its client.
pub const PATIENCE_NS: Nanos = NS_PER_S;

/// Messages that are known again where two brokers send them: both do so at nearly the same time.
const LATEST: usize = 1_024;

/// When a client came to a broker, by that one's wall clock, and to which: of two brokers, the later one has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch {
    pub wall_ns: i64,
    pub channel: Box<str>, // of the links of that broker
}

/// What one broker tells another.
#[derive(Debug, PartialEq, Eq)]
pub struct News<'a> {
    pub sender: &'a str, // the channel of its links, for answers
    pub word: Word<'a>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Word<'a> {
    /// A client is here now. Answered by `Nothing` or `State`.
    Came { client: &'a str, wall_ns: i64, is_clean: bool },
    /// A client's session is here since then, as the disk says after a start: what others have of it is older, and what
    /// they have sent before is to be sent again.
    Restored { client: &'a str, wall_ns: i64 },
    /// No session is to be had. `had_connection`: the client was connected until now.
    Nothing { client: &'a str, wall_ns: i64, had_connection: bool },
    /// The state of a session, as on disk; what it is owed follows.
    State { client: &'a str, wall_ns: i64, had_connection: bool, saved: &'a [u8] },
    /// A message that a session, or a group of which it is the last member, is owed. `client` "": the group was here.
    Owed { client: &'a str, wall_ns: i64, owed: Owed<'a> },
    /// All brokers know what the session wants; `is_final`: also such as were away.
    Known { client: &'a str, wall_ns: i64, is_final: bool },
    /// All has been sent; `is_final`: of all brokers, also of such as are away.
    Over { client: &'a str, wall_ns: i64, is_final: bool, number: u64 },
    /// What was sent before the `Over` of this number is kept here, and may be forgotten there.
    Taken { client: &'a str, wall_ns: i64, number: u64 },
    /// Tell by each of your links here how far it has come.
    Flush { number: u64 },
    /// One of `count` marks, each in a link of its own.
    Flushed { number: u64, count: u32 },
    /// A broker that ends has this session: take it.
    Offer { client: &'a str },
}

impl Word<'_> {
    /// Of whom it is, if of one client.
    pub fn client(&self) -> Option<&str> {
        match self {
            Self::Came { client, .. }
            | Self::Restored { client, .. }
            | Self::Nothing { client, .. }
            | Self::State { client, .. }
            | Self::Owed { client, .. }
            | Self::Known { client, .. }
            | Self::Over { client, .. }
            | Self::Taken { client, .. }
            | Self::Offer { client } => Some(client),
            Self::Flush { .. } | Self::Flushed { .. } => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owed<'a> {
    pub packet_id: u16, // under which it is in flight; 0: it waits
    pub qos: Qos,       // in flight
    pub retain: bool,
    pub group: &'a str,               // `$share/GROUP/FILTER`; "": it is the session's own
    pub message: Option<Carried<'a>>, // None: only its PUBREL is due
}

/// A whole message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried<'a> {
    pub id: MessageId,
    pub wall_ns: i64,
    pub attributes: &'a [u8],
    pub body: &'a [u8],
}

impl<'a> Carried<'a> {
    pub fn of(message: &'a Message) -> Self {
        let (attributes, body) = (message.attributes(), message.body());
        Self { id: message.id, wall_ns: message.wall_ns(), attributes, body }
    }
}

const CAME: u8 = 1;
const NOTHING: u8 = 2;
const STATE: u8 = 3;
const OWED: u8 = 4;
const KNOWN: u8 = 5;
const OVER: u8 = 6;
const TAKEN: u8 = 7;
const FLUSH: u8 = 8;
const FLUSHED: u8 = 9;
const OFFER: u8 = 10;
const RESTORED: u8 = 11;

impl<'a> News<'a> {
    /// `kind(1) sender` and the fields of the word in their order; integers are big-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut begin = |kind: u8, client: Option<(&str, i64)>| {
            out.push(kind);
            text(&mut out, self.sender);
            if let Some((client, wall_ns)) = client {
                text(&mut out, client);
                out.extend_from_slice(&wall_ns.to_be_bytes());
            }
        };
        match &self.word {
            Word::Came { client, wall_ns, is_clean } => {
                begin(CAME, Some((client, *wall_ns)));
                out.push(u8::from(*is_clean));
            }
            Word::Restored { client, wall_ns } => begin(RESTORED, Some((client, *wall_ns))),
            Word::Nothing { client, wall_ns, had_connection } => {
                begin(NOTHING, Some((client, *wall_ns)));
                out.push(u8::from(*had_connection));
            }
            Word::State { client, wall_ns, had_connection, saved } => {
                begin(STATE, Some((client, *wall_ns)));
                out.push(u8::from(*had_connection));
                long(&mut out, saved);
            }
            Word::Owed { client, wall_ns, owed } => {
                begin(OWED, Some((client, *wall_ns)));
                out.extend_from_slice(&owed.packet_id.to_be_bytes());
                out.push(owed.qos as u8 | u8::from(owed.retain) << 2 | u8::from(owed.message.is_some()) << 3);
                text(&mut out, owed.group);
                if let Some(Carried { id, wall_ns, attributes, body }) = owed.message {
                    out.extend_from_slice(&id.0.to_be_bytes());
                    out.extend_from_slice(&wall_ns.to_be_bytes());
                    long(&mut out, attributes);
                    long(&mut out, body);
                }
            }
            Word::Known { client, wall_ns, is_final } => {
                begin(KNOWN, Some((client, *wall_ns)));
                out.push(u8::from(*is_final));
            }
            Word::Over { client, wall_ns, is_final, number } => {
                begin(OVER, Some((client, *wall_ns)));
                out.push(u8::from(*is_final));
                out.extend_from_slice(&number.to_be_bytes());
            }
            Word::Taken { client, wall_ns, number } => {
                begin(TAKEN, Some((client, *wall_ns)));
                out.extend_from_slice(&number.to_be_bytes());
            }
            Word::Flush { number } => {
                begin(FLUSH, None);
                out.extend_from_slice(&number.to_be_bytes());
            }
            Word::Flushed { number, count } => {
                begin(FLUSHED, None);
                out.extend_from_slice(&number.to_be_bytes());
                out.extend_from_slice(&count.to_be_bytes());
            }
            Word::Offer { client } => {
                begin(OFFER, None);
                text(&mut out, client);
            }
        }
        out
    }

    /// `None`: a broker of another version says something else.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut fields = Fields::new(bytes);
        read(&mut fields).ok().flatten().filter(|_| fields.is_empty())
    }
}

fn read<'a>(fields: &mut Fields<'a>) -> Result<Option<News<'a>>, Fault> {
    let (kind, sender) = (fields.byte()?, fields.text()?);
    if matches!(kind, FLUSH | FLUSHED | OFFER) {
        let word = match kind {
            FLUSH => Word::Flush { number: eight(fields)? },
            FLUSHED => Word::Flushed { number: eight(fields)?, count: fields.four()? },
            _ => Word::Offer { client: fields.text()? },
        };
        return Ok(Some(News { sender, word }));
    }
    let (client, wall_ns) = (fields.text()?, eight(fields)? as i64);
    let word = match kind {
        CAME => Word::Came { client, wall_ns, is_clean: fields.byte()? != 0 },
        RESTORED => Word::Restored { client, wall_ns },
        NOTHING => Word::Nothing { client, wall_ns, had_connection: fields.byte()? != 0 },
        STATE => {
            let had_connection = fields.byte()? != 0;
            Word::State { client, wall_ns, had_connection, saved: read_long(fields)? }
        }
        OWED => Word::Owed { client, wall_ns, owed: read_owed(fields)? },
        KNOWN => Word::Known { client, wall_ns, is_final: fields.byte()? != 0 },
        OVER => Word::Over { client, wall_ns, is_final: fields.byte()? != 0, number: eight(fields)? },
        TAKEN => Word::Taken { client, wall_ns, number: eight(fields)? },
        _ => return Ok(None),
    };
    Ok(Some(News { sender, word }))
}

fn read_owed<'a>(fields: &mut Fields<'a>) -> Result<Owed<'a>, Fault> {
    let (packet_id, flags, group) = (fields.two()?, fields.byte()?, fields.text()?);
    let message = if flags & 8 == 0 {
        None
    } else {
        let (id, wall_ns) = (MessageId(eight(fields)?), eight(fields)? as i64);
        Some(Carried { id, wall_ns, attributes: read_long(fields)?, body: read_long(fields)? })
    };
    let qos = Qos::from_bits(flags & 3).unwrap_or_default();
    Ok(Owed { packet_id, qos, retain: flags & 4 != 0, group, message })
}

fn read_long<'a>(fields: &mut Fields<'a>) -> Result<&'a [u8], Fault> {
    let len = fields.four()?;
    fields.take(len as usize)
}

/// A session that goes to another broker.
#[derive(Debug)]
pub struct Departure {
    pub epoch: Epoch,                     // of its client there
    pub sent: VecDeque<Message>,          // and not known to be kept there
    pub shared: Vec<(GroupKey, Message)>, // likewise, of groups of which it is the last member
    pub flushed: Option<bool>,            // nothing is under way to it from brokers that are there; true: from any
    pub is_told: Option<bool>,            // that the other broker has been told
    pub over: Option<Over>,               // as it was told last, and has not answered
    pub is_taken: bool,                   // what was sent is kept there; only what is late goes on
    pub shares_again: bool,               // more has come for its groups since they were sent
}

impl Departure {
    pub fn new(epoch: Epoch) -> Self {
        let (sent, shared) = Default::default();
        Self { epoch, sent, shared, flushed: None, is_told: None, over: None, is_taken: false, shares_again: false }
    }

    /// Whether the other broker is to be told that all has been sent, and of which brokers.
    pub fn says_over(&self) -> Option<bool> {
        let is_more = self.shares_again || self.over.is_none() && !self.sent.is_empty();
        self.flushed.filter(|_| self.flushed != self.is_told || is_more)
    }

    /// All has been sent, and the other broker is told so.
    pub fn tell_over(&mut self, is_final: bool, number: u64) {
        (self.is_told, self.shares_again) = (Some(is_final), false);
        self.over = Some(Over { number, sent: self.sent.len(), shared: self.shared.len() });
    }

    /// The other broker keeps what was sent before the `Over` of this number. False: more was to be sent since, or it
    /// answers an earlier incarnation.
    pub fn note_taken(&mut self, number: u64) -> bool {
        let Some(over) = self.over.take_if(|over| over.number == number) else { return false };
        self.sent.drain(..over.sent.min(self.sent.len()));
        self.shared.drain(..over.shared.min(self.shared.len()));
        self.is_taken = true;
        true
    }
}

/// An `Over`, and how much of what the departure keeps was sent before it.
#[derive(Debug, Clone, Copy)]
pub struct Over {
    pub number: u64,
    pub sent: usize,
    pub shared: usize,
}

/// A client's session that is to come here.
#[derive(Debug)]
pub struct Arrival {
    pub wall_ns: i64,                     // when the client came
    pub waiting: Vec<(ConnKey, Version)>, // whose CONNECT waits
    pub asked: HashSet<Box<str>>,         // brokers that have not answered
    pub until: Nanos,                     // it waits no longer
    /// {broker that has the session, or had it once: what it sent last is here, the flag of `Over`}
    pub givers: BTreeMap<Box<str>, Option<bool>>,
    /// Brokers that have only what is late, and began to send it before there was a session: they are asked to do so
    /// again.
    pub early: BTreeSet<Box<str>>,
    pub session: Option<SessionKey>, // as it collects here
    pub is_own: bool,                // it was here before
    pub is_forgotten: bool,          // and another broker has had it since
    pub awaits: Option<u64>,         // that others know this version of the interest, with what it wants
    /// What a link brings before its mark of this flush is left out; None: all that links bring; 0: nothing.
    pub flush: Option<u64>,
    pub in_flight: Vec<InFlight>,
    pub owed: Vec<Message>,               // what the other broker has sent so far
    pub held: Queue,                      // what has come here meanwhile
    pub is_open: bool,                    // its client is, or may be, connected
    pub seen: HashSet<(MessageId, i64)>,  // what it is owed, until it is whole
    pub latest: Latest<(MessageId, i64)>, // of what it has had since
}

impl Arrival {
    /// `stock`: what `held` may have.
    pub fn new(wall_ns: i64, asked: HashSet<Box<str>>, until: Nanos, stock: Stock) -> Self {
        Self {
            wall_ns,
            waiting: Vec::new(),
            asked,
            until,
            givers: BTreeMap::new(),
            early: BTreeSet::new(),
            session: None,
            is_own: false,
            is_forgotten: false,
            awaits: None,
            flush: None,
            in_flight: Vec::new(),
            owed: Vec::new(),
            held: Queue::in_stock(stock),
            is_open: false,
            seen: HashSet::new(),
            latest: Latest::new(LATEST),
        }
    }

    /// Whether all that brokers have of it, or will have, is here.
    pub fn is_whole(&self) -> bool {
        self.givers.values().all(|over| *over == Some(true))
    }
}

/// For whom links are asked how far they have come, with the epoch.
#[derive(Debug, Clone)]
pub enum Flushing {
    Arrival(Rc<str>, i64),
    /// The last of what two brokers have sent is here.
    End(Rc<str>, i64),
    /// The flag: all brokers know what the session wants elsewhere.
    Departure(SessionKey, Epoch, bool),
}

/// Links of other brokers to here that are to tell how far they have come.
#[derive(Debug)]
pub struct Flush {
    pub first: u64, // of those that it has taken the place of
    pub number: u64,
    pub left: BTreeMap<Box<str>, HashSet<Rc<str>>>, // {broker: its links that have brought their marks}
    pub sessions: Vec<Flushing>,
    pub is_told: bool, // all brokers that are there have answered
}

impl Flush {
    /// A mark of a broker has come by a link, one of `count`; it may come again.
    pub fn note(&mut self, broker: &str, link: &Rc<str>, count: u32) {
        let Some(links) = self.left.get_mut(broker) else { return };
        links.insert(Rc::clone(link));
        if links.len() >= count as usize {
            self.left.remove(broker);
        }
    }

    /// Takes the place of an earlier one too, of whose brokers it has asked all again.
    pub fn follow(&mut self, mut earlier: Self) {
        self.first = earlier.first;
        earlier.sessions.append(&mut self.sessions);
        self.sessions = earlier.sessions;
    }
}

#[derive(Debug, Default)]
pub struct Moves {
    pub own_channel: Option<Box<str>>, // by which other brokers reach this one
    pub starts_until: Nanos,           // this broker has just started: others are waited for that are not linked yet
    pub latest_ns: i64,                // the latest epoch that was heard of
    pub told: HashMap<Box<str>, i64>,  // {broker: the latest epoch of a client that it was told of}
    pub departures: HashMap<SessionKey, Departure>,
    pub arrivals: HashMap<Rc<str>, Arrival>, // by client
    pub due: VecDeque<(Nanos, Rc<str>)>,     // when arrivals wait no longer
    pub armed: Armed,
    pub early: u64, // clients that were let in without a session that a broker may have; nobody was told of them yet
    pub to_flush: Vec<Flushing>,
    pub flushes: Vec<Flush>, // ascending: one that waits for brokers that are away, one that is asked
    pub to_thank: Vec<Thanks>,
    pub heard: VecDeque<(Rc<str>, Message)>, // words of other brokers that are not followed yet, with their links
    pub marked: HashMap<Rc<str>, u64>,       // {link, or the address of a broker for all of them: its latest flush}
    pub link: Option<Rc<str>>,               // that a message comes by just now
    pub to_resume: BTreeMap<Rc<str>, Vec<ConnKey>>, // {client that was let in: whose CONNECT has waited}
    pub offered: HashSet<SessionKey>,
    pub returned: Vec<Box<str>>, // brokers that hear again: what they were told may be lost
}

/// A broker that may forget a session once it is written here.
#[derive(Debug)]
pub struct Thanks {
    pub to: Box<str>,
    pub client: Rc<str>,
    pub wall_ns: i64,
    pub number: u64, // of its `Over`
}

impl Moves {
    /// A new epoch, above all that were heard of: clocks may differ (a hybrid logical clock).
    pub fn next_epoch(&mut self, wall_ns: i64) -> i64 {
        self.latest_ns = wall_ns.max(self.latest_ns + 1);
        self.latest_ns
    }

    /// A mark has come by a link; those of earlier flushes would have come before it.
    pub fn note_mark(&mut self, link: Rc<str>, broker: &str, number: u64, count: u32) {
        let Some(at) = self.flushes.iter().position(|flush| flush.number == number) else { return };
        self.flushes[at].note(broker, &link, count);
        if !self.flushes[at].left.contains_key(broker) {
            self.flushes[..at].iter_mut().for_each(|earlier| _ = earlier.left.remove(broker));
            self.marked.insert(address_of(&link).into(), number);
        }
        self.marked.insert(link, number);
    }

    /// Whether a message that comes now is for a session that arrives; others come from the broker that has it.
    pub fn is_for(&self, arrival: &Arrival) -> bool {
        let Some(link) = &self.link else { return true };
        let Some(number) = arrival.flush else { return false };
        let has_passed = |name: &str| self.marked.get(name).is_some_and(|marked| *marked >= number);
        let is_it = |flush: &Flush| (flush.first..=flush.number).contains(&number);
        has_passed(link) || has_passed(address_of(link)) || !self.flushes.iter().any(is_it)
    }

    /// Whether a session still waits for a flush that was asked for it: it has not moved on since.
    pub fn is_awaited(&self, flushing: &Flushing) -> bool {
        match flushing {
            Flushing::Arrival(client, wall_ns) | Flushing::End(client, wall_ns) => {
                self.arrivals.get(client).is_some_and(|arrival| arrival.wall_ns == *wall_ns)
            }
            Flushing::Departure(key, epoch, _) => {
                self.departures.get(key).is_some_and(|departure| departure.epoch == *epoch)
            }
        }
    }

    /// Whether a turn is due without news from outside.
    pub fn is_idle(&self) -> bool {
        self.to_resume.is_empty() && self.heard.is_empty() && self.returned.is_empty()
    }

    /// All messages that are kept for sessions on their way.
    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        let arriving = self.arrivals.values().flat_map(|arrival| {
            let in_flight = arrival.in_flight.iter().filter_map(|entry| entry.message.as_ref());
            arrival.owed.iter().chain(arrival.held.memory()).chain(in_flight)
        });
        let leaving = self.departures.values().flat_map(|departure| {
            let shared = departure.shared.iter().map(|(_, message)| message);
            departure.sent.iter().chain(shared)
        });
        leaving.chain(arriving)
    }
}

/// A link is known by the address of its broker, and its topic.
fn address_of(link: &str) -> &str {
    link.split_once(' ').map_or(link, |(address, _)| address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Meter;
    use crate::queueing::message::{Alone, Builder};

    #[test]
    fn what_brokers_say_comes_back_as_it_was_and_no_part_of_it_is_news() {
        let carried = Carried { id: MessageId(7), wall_ns: -7, attributes: b"name", body: b"body" };
        let owed = Owed { packet_id: 9, qos: Qos::ExactlyOnce, retain: true, group: "$share/g/#", message: None };
        let (client, wall_ns) = ("ü", -1);
        let words = [
            Word::Came { client, wall_ns, is_clean: true },
            Word::Restored { client, wall_ns },
            Word::Nothing { client, wall_ns, had_connection: true },
            Word::State { client, wall_ns, had_connection: false, saved: b"state" },
            Word::Owed { client, wall_ns, owed },
            Word::Owed { client, wall_ns, owed: Owed { message: Some(carried), ..owed } },
            Word::Known { client, wall_ns, is_final: true },
            Word::Over { client, wall_ns, is_final: true, number: 7 },
            Word::Taken { client, wall_ns, number: u64::MAX },
            Word::Flush { number: u64::MAX },
            Word::Flushed { number: 1, count: 2 },
            Word::Offer { client },
        ];
        for word in words {
            let news = News { sender: "srtm.link.a", word };
            let bytes = news.encode();
            assert_eq!(News::decode(&bytes).as_ref(), Some(&news));
            for len in 0..bytes.len() {
                assert_eq!(News::decode(&bytes[..len]), None, "{news:?}, {len} bytes");
            }
        }
        assert_eq!(News::decode(b"\xff\0\x01a"), None, "of a later version");
    }

    #[test]
    fn what_was_sent_since_all_was_said_to_be_sent_is_kept_until_that_is_said_again_and_answered() {
        let alone = Alone { id: MessageId(1), wall_ns: 1, attributes: b"", body: b"" };
        let message = Builder::default().alone(&Meter::default(), alone, 0, 0);
        let mut departure = Departure::new(Epoch { wall_ns: 1, channel: "a".into() });
        (departure.flushed, departure.is_told) = (Some(false), Some(false));
        assert_eq!(departure.says_over(), None);
        departure.sent.push_back(message.clone());
        assert_eq!(departure.says_over(), Some(false));
        departure.tell_over(false, 7);
        departure.sent.push_back(message);
        assert_eq!(departure.says_over(), None, "one is not answered yet");
        assert!(!departure.note_taken(6), "an earlier incarnation's");
        assert!(departure.note_taken(7) && !departure.note_taken(7));
        assert_eq!((departure.sent.len(), departure.says_over()), (1, Some(false)));
        departure.tell_over(false, 8);
        assert!(departure.note_taken(8) && departure.sent.is_empty());
    }

    #[test]
    fn of_two_brokers_the_one_to_which_the_client_came_last_has_it() {
        let at = |wall_ns, channel: &str| Epoch { wall_ns, channel: channel.into() };
        assert!(at(2, "a") > at(1, "b") && at(1, "b") > at(1, "a"));
    }

    #[test]
    fn a_client_that_comes_after_another_broker_was_heard_comes_later_also_by_a_clock_that_is_behind() {
        let mut moves = Moves { latest_ns: 7, ..Moves::default() };
        assert_eq!([5, 20, 20].map(|wall_ns| moves.next_epoch(wall_ns)), [8, 20, 21]);
    }

    #[test]
    fn a_broker_has_told_all_once_as_many_marks_are_there_as_it_says() {
        let left = ["a", "b"].map(|broker| (broker.into(), HashSet::new())).into();
        let mut flush = Flush { first: 1, number: 1, left, sessions: Vec::new(), is_told: false };
        for (broker, link, count) in [("a", "a 1", 2), ("b", "b 1", 1), ("c", "c 1", 1), ("a", "a 1", 2)] {
            flush.note(broker, &link.into(), count);
        }
        assert!(flush.left.keys().eq([&Box::from("a")]), "the same mark came twice");
        flush.note("a", &"a 2".into(), 2);
        assert!(flush.left.is_empty());
    }
}
