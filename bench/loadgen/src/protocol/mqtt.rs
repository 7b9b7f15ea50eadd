//! MQTT 3.1.1 (OASIS standard; numbers in square brackets are its rules). A packet is a byte of type and flags, the
//! length of the rest, the rest.
//!
//! Sessions are clean, unless the plan wants the subscribers' kept; the keep-alive is the longest that there is.
//! Publications and the subscription have the plan's quality of service: with 0 a publish has no answer and a message
//! gets none; with 1 both are acknowledged, in order [4.6.0-2]. With 2 a publish is taken at its PUBCOMP, and a message
//! counts at its PUBLISH.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Driver, Event, LARGEST_UNIT, Role, broken};
use crate::plan::Plan;
use crate::protocol::body::{BodyFormat, Stamp};

const CONNECT: u8 = 0x10;
const CONNACK: u8 = 0x20;
const PUBLISH: u8 = 0x30;
const PUBACK: u8 = 0x40;
const PUBREC: u8 = 0x50;
/// Its lower half must be 2 [3.6.1-1].
const PUBREL: u8 = 0x62;
const RELEASED: u8 = PUBREL & 0xf0;
const PUBCOMP: u8 = 0x70;
/// Its lower half must be 2 [3.8.1-1].
const SUBSCRIBE: u8 = 0x82;
const SUBACK: u8 = 0x90;
/// Protocol name and level 4 (section 3.1.2).
const PROTOCOL: &[u8] = b"\0\x04MQTT\x04";
/// Flags of a CONNECT: the session ends with the connection.
const CLEAN: u8 = 2;
/// Seconds, the most there are: none at all is what rumqttd refuses. No run lasts 1.5 times as long.
const KEEP_ALIVE: [u8; 2] = u16::MAX.to_be_bytes();
/// A length has four bytes at most, seven bits in each (section 2.2.3).
const LENGTH_BYTES: usize = 4;

/// Of this process: its number alone comes again, on other hosts and in other containers.
static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));

/// Drivers made in this process, over all its runs.
static DRIVERS: AtomicU64 = AtomicU64::new(0);

pub struct Mqtt<'a> {
    /// What is published to, or subscribed to.
    topic: Cow<'a, str>,
    role: Role<'a>,
    /// Nobody else's, unless the plan says so: a broker ends the connection of whoever had the same client identifier
    /// before [3.1.4-2], another generator's or an earlier run's.
    client: String,
    /// Its session outlives the connection.
    is_kept: bool,
    qos: u8,
    /// Of the last publication; never 0 [2.3.1-1]. It comes round after 65,535, by when the answers must be in.
    packet_id: u16,
}

impl<'a> Driver<'a> for Mqtt<'a> {
    const BATCHES: bool = false;

    fn new(plan: &'a Plan, target: usize, role: Role<'a>) -> Mqtt<'a> {
        let topic = plan.topic_at(target);
        let (topic, client) = match role {
            Role::Publisher { id } if plan.own_names => (Cow::Owned(format!("{topic}/{id}")), id.to_owned()),
            _ => {
                let own = format!("{}-{:016x}-{}", role.name(), *PROCESS, DRIVERS.fetch_add(1, Ordering::Relaxed));
                (if plan.own_names { Cow::Owned(format!("{topic}/#")) } else { Cow::Borrowed(topic) }, own)
            }
        };
        let is_kept = plan.durable && matches!(role, Role::Subscriber { .. });
        Mqtt { topic, role, client, is_kept, qos: plan.qos, packet_id: 0 }
    }

    fn greet(&mut self, out: &mut Vec<u8>) {
        let flags = if self.is_kept { 0 } else { CLEAN };
        out.push(CONNECT);
        length(PROTOCOL.len() + 1 + KEEP_ALIVE.len() + 2 + self.client.len(), out);
        out.extend_from_slice(PROTOCOL);
        out.push(flags);
        out.extend_from_slice(&KEEP_ALIVE);
        string(&self.client, out);
    }

    fn answered(&self) -> bool {
        self.qos > 0
    }

    fn publish(&mut self, format: &BodyFormat, first: Stamp, _one: u32, out: &mut Vec<u8>) {
        out.push(PUBLISH | self.qos << 1);
        length(2 + self.topic.len() + if self.qos > 0 { 2 } else { 0 } + format.size(), out);
        string(&self.topic, out);
        if self.qos > 0 {
            self.packet_id = self.packet_id.checked_add(1).unwrap_or(1);
            out.extend_from_slice(&self.packet_id.to_be_bytes());
        }
        format.write(first, out);
    }

    fn next<'b>(&mut self, bytes: &'b [u8], out: &mut Vec<u8>) -> io::Result<Option<(Event<'b>, usize)>> {
        let Some((kind, rest, whole)) = packet(bytes)? else { return Ok(None) };
        let event = match (kind & 0xf0, rest) {
            (PUBLISH, _) => message(kind, rest, out)?,
            (PUBACK, [_, _]) if self.qos == 1 => Event::Taken,
            (PUBREC, &[high, low]) if self.qos == 2 => {
                out.extend_from_slice(&[PUBREL, 2, high, low]);
                Event::Nothing
            }
            (PUBCOMP, [_, _]) if self.qos == 2 => Event::Taken,
            (RELEASED, &[high, low]) if self.qos == 2 => {
                out.extend_from_slice(&[PUBCOMP, 2, high, low]);
                Event::Nothing
            }
            (CONNACK, [_, 0]) => self.connected(out),
            (CONNACK, [_, code]) => {
                return Err(io::Error::other(format!("the broker refuses the connection with code {code}")));
            }
            (SUBACK, [_, _, code]) if *code == self.qos => Event::Ready,
            (SUBACK, [_, _, code]) => {
                return Err(io::Error::other(format!(
                    "the broker grants quality of service {code}, asked for {}",
                    self.qos
                )));
            }
            _ => return Err(broken(format!("a packet of type {kind:#04x} and {} bytes", rest.len()))),
        };
        Ok(Some((event, whole)))
    }
}

impl Mqtt<'_> {
    fn connected(&self, out: &mut Vec<u8>) -> Event<'static> {
        match self.role {
            Role::Publisher { .. } => Event::Ready,
            Role::Subscriber { .. } => {
                out.push(SUBSCRIBE);
                length(2 + 2 + self.topic.len() + 1, out);
                out.extend_from_slice(&1u16.to_be_bytes());
                string(&self.topic, out);
                out.push(self.qos);
                Event::Nothing
            }
        }
    }
}

/// Type and flags, the rest, and how long both are with the length between them; None: it is not whole.
fn packet(bytes: &[u8]) -> io::Result<Option<(u8, &[u8], usize)>> {
    let Some((kind, after)) = bytes.split_first() else { return Ok(None) };
    let mut rest = 0;
    for (i, byte) in after.iter().take(LENGTH_BYTES).enumerate() {
        rest |= usize::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return if rest > LARGEST_UNIT {
                Err(too_large(rest))
            } else {
                Ok(after.get(i + 1..i + 1 + rest).map(|r| (*kind, r, i + 2 + rest)))
            };
        }
    }
    if after.len() < LENGTH_BYTES { Ok(None) } else { Err(broken("a length of more than four bytes")) }
}

fn too_large(rest: usize) -> io::Error {
    broken(format!("a packet of {rest} bytes"))
}

/// A PUBLISH: topic, with quality of service 1 or 2 a number to answer with, body.
fn message<'b>(kind: u8, rest: &'b [u8], out: &mut Vec<u8>) -> io::Result<Event<'b>> {
    let cut = || broken("a PUBLISH that ends in its head");
    let (topic_length, rest) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
    let (_topic, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*topic_length))).ok_or_else(cut)?;
    match (kind >> 1) & 3 {
        0 => Ok(Event::Message(rest)),
        qos @ 1..=2 => {
            let (packet_id, body) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
            out.extend_from_slice(&[if qos == 1 { PUBACK } else { PUBREC }, 2]);
            out.extend_from_slice(packet_id);
            Ok(Event::Message(body))
        }
        other => Err(broken(format!("a message with quality of service {other}, which nobody asked for"))),
    }
}

fn length(mut rest: usize, out: &mut Vec<u8>) {
    while rest > 0x7f {
        out.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Of at most 65,535 bytes: `rules` sees to that.
fn string(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::testing::{all_of, body, plan, published, publisher, subscriber, torn};
    use super::*;

    #[test]
    fn a_subscriber_subscribes_when_it_is_let_in_and_acknowledges_with_quality_of_service_1() {
        let plan = plan("mqtt", 1);
        let (mut driver, mut out) = (subscriber::<Mqtt>(&plan), Vec::new());
        driver.client = "srtm-loadgen-subscriber-0".into();
        driver.greet(&mut out);
        assert_eq!(out, b"\x10\x25\0\x04MQTT\x04\x02\xff\xff\0\x19srtm-loadgen-subscriber-0");
        let bytes = b"\x20\x02\0\0\x90\x03\0\x01\x01\x32\x09\0\x01t\x12\x34body\x30\x07\0\x01tbody";
        let (events, said) = torn(driver, bytes);
        assert_eq!(events, ["Nothing", "Ready", "Message body", "Message body"]);
        assert_eq!(said, b"\x82\x06\0\x01\0\x01t\x01\x40\x02\x12\x34");
    }

    #[test]
    fn a_subscriber_whose_session_is_kept_says_so_and_a_publisher_does_not() {
        let plan = Plan { durable: true, ..plan("mqtt", 1) };
        let flags = |driver: &mut Mqtt| {
            let mut out = Vec::new();
            driver.greet(&mut out);
            out[9]
        };
        assert_eq!((flags(&mut subscriber::<Mqtt>(&plan)), flags(&mut publisher::<Mqtt>(&plan))), (0, CLEAN));
    }

    #[test]
    fn no_two_connections_have_the_same_client_identifier_and_each_keeps_its_own() {
        let plan = plan("mqtt", 0);
        let said = |driver: &mut Mqtt| {
            let mut out = Vec::new();
            driver.greet(&mut out);
            out
        };
        let (mut first, mut second) = (publisher::<Mqtt>(&plan), publisher::<Mqtt>(&plan));
        let before = said(&mut first);
        assert_ne!(before, said(&mut second), "of an earlier run, or another process");
        assert_eq!(before, said(&mut first), "when it connects again");
        let process = format!("-{:016x}-", *PROCESS);
        assert!(first.client.starts_with(&format!("{}{process}", plan.publishers.ids[0])), "{}", first.client);
    }

    #[test]
    fn with_own_names_a_publisher_is_known_by_its_id_and_publishes_below_the_topic() {
        let plan = Plan { own_names: true, ..plan("mqtt", 1) };
        let (mut driver, id) = (publisher::<Mqtt>(&plan), &plan.publishers.ids[0]);
        let mut out = Vec::new();
        driver.greet(&mut out);
        assert!(out.ends_with(id.as_bytes()));
        let name = format!("t/{id}");
        assert!(published(&mut driver)[4..].starts_with(name.as_bytes()));
        let mut driver = subscriber::<Mqtt>(&plan);
        let (_, said) = all_of(&mut driver, b"\x20\x02\0\0").expect("the protocol");
        assert_eq!(said, b"\x82\x08\0\x01\0\x03t/#\x01");
    }

    #[test]
    fn a_publish_is_numbered_and_answered_with_quality_of_service_1_alone() {
        let first = body();
        let (zero, one) = (plan("mqtt", 0), plan("mqtt", 1));
        let mut driver = publisher::<Mqtt>(&zero);
        assert!(!driver.answered());
        assert_eq!(published(&mut driver), [&b"\x30\x2b\0\x01t"[..], &first].concat());
        let mut driver = publisher::<Mqtt>(&one);
        assert!(driver.answered());
        assert_eq!(published(&mut driver), [&b"\x32\x2d\0\x01t\0\x01"[..], &first].concat());
        driver.packet_id = u16::MAX;
        assert_eq!(published(&mut driver), [&b"\x32\x2d\0\x01t\0\x01"[..], &first].concat());
        let (events, _) = all_of(&mut driver, b"\x20\x02\0\0\x40\x02\0\x01").expect("the protocol");
        assert_eq!(events, ["Ready", "Taken"]);
    }

    #[test]
    fn with_quality_of_service_2_a_publish_is_taken_when_it_is_complete_and_a_message_comes_once() {
        let (first, plan) = (body(), plan("mqtt", 2));
        let mut driver = publisher::<Mqtt>(&plan);
        assert_eq!(published(&mut driver), [&b"\x34\x2d\0\x01t\0\x01"[..], &first].concat());
        let (events, said) = torn(driver, b"\x20\x02\0\0\x50\x02\0\x01\x70\x02\0\x01");
        assert_eq!(
            (&events[..], &said[..]),
            (&["Ready", "Nothing", "Taken"].map(String::from)[..], &b"\x62\x02\0\x01"[..])
        );
        let bytes = b"\x90\x03\0\x01\x02\x34\x09\0\x01t\x12\x34body\x62\x02\x12\x34";
        let (events, said) = torn(subscriber::<Mqtt>(&plan), bytes);
        assert_eq!(events, ["Ready", "Message body", "Nothing"]);
        assert_eq!(said, b"\x50\x02\x12\x34\x70\x02\x12\x34");
        assert!(all_of(&mut publisher::<Mqtt>(&plan), b"\x40\x02\0\x01").is_err(), "a PUBACK is of 1");
    }

    #[test]
    fn a_long_packet_has_a_long_length() {
        let mut out = Vec::new();
        [0, 127, 128, 16_384].into_iter().for_each(|rest| length(rest, &mut out));
        assert_eq!(out, b"\0\x7f\x80\x01\x80\x80\x01");
        let large = [&b"\x30\x83\x01\0\x01t"[..], &[b'x'; 128]].concat();
        assert_eq!(
            packet(&large).expect("the protocol").map(|(_, rest, whole)| (rest.len(), whole)),
            Some((131, large.len()))
        );
    }

    #[test]
    fn what_is_not_the_protocol_or_is_refused_is_an_error() {
        let plan = plan("mqtt", 0);
        let cases = [
            &b"HTTP/1.1 400 Bad Request\r\n\r\nHTTP/1.1 400 Bad Request HTTP/1.1 400 Bad Request HTTP/1.1"[..],
            b"\x30\xff\xff\xff\x7f",
            b"\x30\x80\x80\x80\x80",
            b"\x30\x01\0",
            b"\x30\x02\0\x05",
            b"\x32\x04\0\x01t\0",
            b"\x34\x04\0\x01t\0",
            b"\x36\x05\0\x01t\0\x01",
            b"\x20\x02\0\x05",
            b"\x20\x01\0",
            b"\x90\x03\0\x01\x80",
        ];
        for bytes in cases {
            assert!(all_of(&mut subscriber::<Mqtt>(&plan), bytes).is_err(), "{bytes:?}");
        }
    }
}
