//! HTTP/1.1 without I/O: requests, bodies and answers, and what one connection of the HTTP port has.
//!
//! Imports `config`, `keys`, `memory`, `protocol` and `time`. Begin with `request`.
//!
//! A connection's bytes go `request` (a head) -> `chunked` (a body, where its length is not said) ->
//! `engine::http::serve` (which request is whose) -> `engine::http::publish_routes` (collected with the turn's other
//! publishes, and decided with them in order of arrival) -> `answer`. One request of a connection is under way at a
//! time: while Python answers it, the connection's input is deferred (`engine/input.rs`), so answers go out in order
//! whoever gives them.

pub mod answer;
pub mod chunked;
pub mod date;
pub mod line_body;
pub mod query;
pub mod request;

use std::collections::HashMap;

use crate::config::TlsRequired;
use crate::http::answer::Exchange;
use crate::http::chunked::Chunked;
use crate::http::date::Date;
use crate::http::line_body::LineBody;
use crate::http::request::MAX_HEAD;
use crate::keys::ConnKey;
use crate::memory::{Charge, Meter};
use crate::time::{Nanos, PATIENCE_NS};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Connections wait in the kernel until the service around the engine is ready.
    Bound,
    Open,
    /// No further request begins.
    Closing,
}

/// What all connections of the HTTP port share.
#[derive(Debug)]
pub(crate) struct Service {
    pub connections: usize,
    pub asked: HashMap<u64, ConnKey>, // {request: who waits for its answer}
    pub held: Meter,                  // requests that Python has, and its answers until they are taken
    pub(crate) handed: Vec<Handed>,
    pub(crate) next_id: u64,
    pub(crate) health: String,
    pub(crate) stage: Stage,
    pub(crate) https_port: u16,
    pub date: Date,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            connections: 0,
            asked: HashMap::new(),
            held: Meter::default(),
            handed: Vec::new(),
            next_id: 0,
            health: "OK".into(),
            stage: Stage::Bound,
            https_port: 0,
            date: Date::at(0),
        }
    }
}

/// A request that Python answers, through `Engine::respond` with its `id`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handed {
    pub id: u64,
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>, // names in lower case
    pub body: Vec<u8>,
    pub over_tls: bool,
    pub remote: String, // address of who asks
}

/// What a connection of the HTTP port has besides its two streams.
#[derive(Debug)]
pub struct Http {
    pub(crate) over_tls: bool,
    idle_ns: Nanos,           // how long it may be idle; 0: for ever
    looked: usize,            // so many bytes of the input are known to hold no whole head
    pub(crate) wanted: usize, // the head is whole: so many bytes it has with its body
    pub(crate) coming: Option<Coming>,
    pub(crate) lines: Option<(usize, LineBody)>, // where the body of lines begins that is coming in, and what has come
    pub(crate) chunks: Option<Chunks>,
    pub(crate) begun: Option<Nanos>, // when the first bytes of the request under way came
    pub(crate) idle_since: Nanos,
    pub(crate) owed: Option<(u64, Exchange)>, // by Python
    pub(crate) handed_charge: Option<Charge>, // for the request that Python has
    pub(crate) answer_charge: Option<Charge>, // for an answer of Python's, until it is taken
}

/// A large message that is coming in: `len` bytes behind a head of `body_at` bytes.
#[derive(Debug)]
pub(crate) struct Coming {
    pub topic: Box<str>,
    pub body_at: usize,
    pub len: usize,
}

/// A request with a chunked body that is coming in.
#[derive(Debug)]
pub(crate) struct Chunks {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Chunked,
    pub(crate) limit: usize, // bytes of the body
    pub(crate) _charge: Charge,
}

impl Http {
    pub(crate) fn new(over_tls: bool, idle_ns: Nanos, now: Nanos) -> Self {
        Self {
            over_tls,
            idle_ns,
            looked: 0,
            wanted: 0,
            coming: None,
            lines: None,
            chunks: None,
            begun: None,
            idle_since: now,
            owed: None,
            handed_charge: None,
            answer_charge: None,
        }
    }

    /// The request that Python has not answered yet.
    pub fn owed(&self) -> Option<u64> {
        self.owed.map(|(id, _)| id)
    }

    /// Bytes of the request under way, if its head is complete and tells them.
    pub(crate) fn announced_len(&self) -> Option<usize> {
        Some(self.wanted).filter(|wanted| *wanted > 0)
    }

    /// Of the large message that `input` begins with: its topic, what has come of its body, and the body's length.
    pub(crate) fn announced_publish<'a>(&'a self, input: &'a [u8]) -> Option<(&'a str, &'a [u8], usize)> {
        let Coming { topic, body_at, len } = self.coming.as_ref()?;
        let body = input.get(*body_at..)?;
        Some((topic, &body[..body.len().min(*len)], *len))
    }

    /// Whether `input`, which has grown, may hold a whole request now. A head is parsed again when it has a new line:
    /// parsing it at each byte would cost its length squared.
    pub(crate) fn is_worth_a_look(&mut self, input: &[u8]) -> bool {
        if self.wanted > 0 {
            let whole = input.len() >= self.wanted;
            if let Some((body_at, lines)) = self.lines.as_mut().filter(|_| !whole) {
                lines.look(&input[*body_at..]);
            }
            return whole;
        }
        let new = &input[self.looked.min(input.len())..];
        let worth = self.looked == 0 || input.len() >= MAX_HEAD || new.contains(&b'\n');
        self.looked = input.len();
        worth
    }

    /// Whether this connection has the TLS that `required` demands.
    pub(crate) fn is_safe_enough(&self, required: TlsRequired) -> bool {
        self.over_tls || required != TlsRequired::True
    }

    /// The request under way is complete; the next one begins.
    pub(crate) fn start_over(&mut self, now: Nanos) {
        (self.looked, self.wanted, self.coming, self.begun, self.idle_since) = (0, 0, None, None, now);
    }

    /// Let the request under way take any time, until `Engine::note_unfinished`.
    pub(crate) fn stop_clock(&mut self) {
        self.begun = None;
    }

    pub(crate) fn is_late(&self, now: Nanos) -> bool {
        self.begun.is_some_and(|begun| begun + PATIENCE_NS <= now)
    }

    /// When to look at this connection: its request is late, its client takes nothing, or it has been idle for too
    /// long.
    ///
    /// `waits`: requests of it are kept.
    pub fn deadline(&self, blocked_since: Option<Nanos>, waits: bool) -> Option<Nanos> {
        let blocked = blocked_since.map(|since| since + PATIENCE_NS);
        let is_idle = self.idle_ns > 0 && self.begun.is_none() && self.owed.is_none() && !waits;
        let idle = is_idle.then_some(self.idle_since + self.idle_ns);
        self.begun.map(|begun| begun + PATIENCE_NS).into_iter().chain(blocked).chain(idle).min()
    }
}
