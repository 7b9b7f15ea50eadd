//! The seam between the generator and what brokers speak: one `Driver` a connection, bytes in, events out, no clock and
//! no socket.
//!
//! The sending and the receiving thread are compiled once for each driver, so that a protocol costs nothing to the
//! others. Everything that a broker sends is bounded: a unit that claims to be larger than `LARGEST_UNIT`, or a line
//! longer than `LONGEST_LINE`, is an error of that connection.

pub mod body;
pub mod codec;
mod line;
mod mqtt;
mod nats;
mod nsq;
mod redis;
mod rules;

use std::io;

use serde::Deserialize;

use crate::plan::{Plan, Subscriber};
use crate::protocol::body::{BodyFormat, Stamp};

pub use mqtt::Mqtt;
pub use nats::Nats;
pub use nsq::Nsq;
pub use redis::Redis;
pub use rules::check;

/// Beyond this it is no message but garbage: twice the largest that a plan may ask for.
const LARGEST_UNIT: usize = 2 << 20;
/// A NATS server describes itself in one line; nothing else comes near.
const LONGEST_LINE: usize = 64 << 10;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    #[default]
    Nsq,
    /// Core publish and subscribe, without JetStream.
    Nats,
    /// 3.1.1; `Plan::qos` says with which quality of service.
    Mqtt,
    /// Pub/Sub over RESP2.
    Redis,
}

/// Whose connection it is.
#[derive(Clone, Copy)]
pub enum Role<'a> {
    Publisher { id: &'a str },
    Subscriber { number: usize, spec: &'a Subscriber },
}

impl Role<'_> {
    /// What the broker may know this connection as.
    fn name(&self) -> String {
        match self {
            Role::Publisher { id } => (*id).to_owned(),
            Role::Subscriber { number, .. } => format!("srtm-loadgen-subscriber-{number}"),
        }
    }
}

/// What a broker said, whatever it speaks.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The greeting is over: a publisher may publish, a subscriber gets what is published from now on.
    Ready,
    /// The oldest publish without an answer was taken.
    Taken,
    /// It was refused, or (where publishes are not answered) something was.
    Refused(&'a [u8]),
    /// The body of a message.
    Message(&'a [u8]),
    /// For nobody: the driver has said what there is to say.
    Nothing,
}

pub trait Driver<'a>: Sized {
    /// Several messages can go as one command, with one answer.
    const BATCHES: bool;

    /// Of a connection to the target of that number.
    fn new(plan: &'a Plan, target: usize, role: Role<'a>) -> Self;

    /// The connection is there: write what is said first. What an earlier connection left off is forgotten.
    fn greet(&mut self, out: &mut Vec<u8>);

    /// Each publish is answered.
    fn answered(&self) -> bool;

    /// `count` messages, the first stamped `first`; more than one only where `BATCHES`.
    fn publish(&mut self, format: &BodyFormat, first: Stamp, count: u32, out: &mut Vec<u8>);

    /// The first event of `bytes` and how many bytes it is; None: more are needed. Writes what has to be answered. An
    /// error: this is not the protocol, or the broker does not want this connection.
    fn next<'b>(&mut self, bytes: &'b [u8], out: &mut Vec<u8>) -> io::Result<Option<(Event<'b>, usize)>>;
}

/// What the broker sent cannot be.
fn broken(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

/// A size that the broker wrote in decimals.
fn size(digits: &[u8]) -> io::Result<usize> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|c| c.is_ascii_digit()));
    let size = text.and_then(|text| text.parse().ok()).filter(|size| *size <= LARGEST_UNIT);
    size.ok_or_else(|| broken(format!("a size of {:?}", String::from_utf8_lossy(&digits[..digits.len().min(40)]))))
}

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests {
    use super::testing::{all_of, plan, subscriber};
    use super::*;
    use crate::plan::schedule::split_mix;

    /// Each with bytes of its own, changed at random places: a cut, a few bytes written over, a length blown up.
    fn survives<'a, D: Driver<'a>>(plan: &'a Plan, whole: &[u8]) {
        let (mut state, mut errors) = (11, 0);
        for _ in 0..20_000 {
            let mut bytes = whole.to_vec();
            for _ in 0..1 + split_mix(&mut state) % 4 {
                let place = split_mix(&mut state) as usize % bytes.len();
                bytes[place] = split_mix(&mut state) as u8;
            }
            bytes.truncate(1 + split_mix(&mut state) as usize % whole.len());
            errors += usize::from(all_of(&mut subscriber::<D>(plan), &bytes).is_err());
        }
        assert!((1..20_000).contains(&errors), "{errors} errors");
    }

    #[test]
    fn whatever_a_broker_sends_ends_in_events_or_an_error() {
        survives::<Nsq>(&plan("nsq", 0), b"\0\0\0\x06\0\0\0\0OK\0\0\0\x22\0\0\0\x020123456789 0123456789abcdefbody");
        survives::<Nats>(
            &plan("nats", 0),
            b"INFO {}\r\nPONG\r\nMSG t 1 4\r\nbody\r\nPING\r\n-ERR 'Stale Connection'\r\n",
        );
        survives::<Mqtt>(
            &plan("mqtt", 1),
            b"\x20\x02\0\0\x90\x03\0\x01\x01\x32\x09\0\x01t\x12\x34body\x30\x07\0\x01tbody\x40\x02\0\x01",
        );
        survives::<Redis>(
            &plan("redis", 0),
            b"*3\r\n$9\r\nsubscribe\r\n$1\r\nt\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\nt\r\n$4\r\nbody\r\n-ERR x\r\n",
        );
    }
}
