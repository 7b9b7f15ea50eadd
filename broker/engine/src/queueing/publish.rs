//! A publish of a turn: its source, its parameters, its outcome.

use std::rc::Rc;

use crate::keys::{ConnKey, TopicKey};
use crate::limiter::topic_contracts::Subject;
use crate::protocol::errors::{self, WireError};
use crate::protocol::verb::Verb;
use crate::queueing::disk_ticket::Fate;
use crate::time::Nanos;

/// A publish without its messages: connection, parameters, arrival.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub key: ConnKey,
    pub verb: Verb,
    pub topic: &'a str,
    pub defer_ms: u32,
    pub stamp: Nanos,
    pub attributes: &'a [u8], // of its messages; empty: none
}

/// Origin of a publish.
#[derive(Debug, Clone)]
pub struct Source {
    pub declared: bool,
    pub trace_index: Option<u32>,
    pub held_to: Option<Rc<Subject>>, // by a contract
    pub conn: ConnKey,
}

#[derive(Debug, Clone)]
pub struct Publish {
    pub verb: Verb,
    pub topic: TopicKey,
    pub source: Source,
    pub stamp: Nanos,
    pub first: usize, // its messages: Turn::messages[first..first + count]
    pub count: u32,
    pub bytes: u64,
    pub outcome: Outcome,
    pub unheard: bool,                 // it was released, and nobody wanted it
    pub(crate) fate: Option<Rc<Fate>>, // set if a message overflowed to disk
}

impl Publish {
    /// Whether none of its messages awaits the disk.
    pub(crate) fn is_written(&self) -> bool {
        self.fate.as_ref().is_none_or(Fate::is_settled)
    }

    /// Takes over a disk refusal as its outcome, once all writes have ended.
    pub(crate) fn settle(&mut self) {
        if let Some(reason) = self.fate.take().and_then(|fate| fate.reason()) {
            self.outcome = Outcome::Failed(reason);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Undecided,
    /// Accepted; the last message waits this long for tokens under the present parameters. `None`: a zero share has no
    /// release instant.
    Done {
        wait_ns: Option<Nanos>,
        fill: f64,
    },
    /// Refused by the bucket, or by a contract. `None`: no retry instant is known.
    Limited {
        retry_at: Option<Nanos>,
        contract: Option<Rc<Subject>>,
    },
    /// More messages than the burst holds, or a contract allows at once.
    TooLarge {
        burst: f64,
    },
    Failed(String),
}

impl Outcome {
    /// Milliseconds until a retry makes sense, at least 1. Without a known instant (a zero share), 1,000.
    pub fn retry_ms(retry_at: Option<Nanos>, now: Nanos) -> i64 {
        retry_at.map_or(1_000, |at| ((at - now).max(0) as u64).div_ceil(1_000_000).max(1) as i64)
    }

    /// The error frame of a refusal.
    #[cold]
    pub fn error(&self, publish: &Publish, now: Nanos) -> WireError {
        let verb = publish.verb;
        match self {
            Self::Limited { retry_at, contract } => {
                let by = contract.as_ref().map_or_else(String::new, |of| format!(" (contract {})", of.namespace));
                let text = format!("{} retry after {} ms{by}", verb.name(), Self::retry_ms(*retry_at, now));
                WireError::new(errors::E_RATE_LIMITED, text)
            }
            Self::TooLarge { burst } => {
                let text = format!(
                    "{} of {} messages can never pass a burst of {burst}: send fewer at once",
                    verb.name(),
                    publish.count
                );
                WireError::new(errors::E_RATE_LIMITED, text)
            }
            Self::Failed(reason) => WireError::new(verb.failed(), format!("{} failed {reason}", verb.name())),
            Self::Undecided | Self::Done { .. } => WireError::new(verb.failed(), format!("{} failed", verb.name())),
        }
    }
}
