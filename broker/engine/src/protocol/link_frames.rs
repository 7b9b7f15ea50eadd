//! What travels on a link between brokers: NSQ's protocol V2, as its client speaks it, with MQTT's attributes in front
//! of each body.
//!
//! A message on a link has the body `length(4) attributes [access(8) processing(8)] payload`; integers are big-endian.
//! The length is that of the attributes. Its highest bit says that the delays so far are there, in ns: a broker sends
//! them if the other one has asked for them (`timed`), and knows them.

use serde::Serialize;

use crate::id::MessageId;
use crate::protocol::codec::{FrameType, HEARTBEAT, MAGIC, MESSAGE_HEADER};
use crate::time::Nanos;

/// Channels of links begin so; the name of the broker that consumes them follows.
pub const LINK_CHANNEL: &str = "srtm.link.";

/// The topic whose links carry what is retained, and sessions that move, to all brokers that speak MQTT.
pub const RETAINED_TOPIC: &str = "srtm.retained";

/// The name of a message that tells how far a link has come; it is not retained.
pub const MARK: &str = "$srtm/link/mark";

/// The name of a word about sessions that move; it is not retained.
pub const NEWS: &str = "$srtm/link/session";

/// How often a broker says that its link is alive, in ms. Silent for twice as long, it is broken.
pub const HEARTBEAT_MS: u64 = 5_000;

/// What a broker asks for on a new link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    pub broker: String, // who asks
    pub key: String,    // which the other broker has given it
    pub origin: String, // who is asked
    pub topic: String,
    pub channel: String,
    pub ready: u32, // messages that may be unanswered
}

#[derive(Serialize)]
struct Identify<'a> {
    client_id: &'a str,
    heartbeat_interval: u64,
    srtm: Srtm<'a>,
}

#[derive(Serialize)]
struct Srtm<'a> {
    link: Link<'a>,
}

#[derive(Serialize)]
struct Link<'a> {
    broker: &'a str,
    key: &'a str,
    timed: bool,
}

impl Opening {
    /// All that is said before the first message, in one piece: a refusal ends the connection.
    pub fn encode(&self) -> Vec<u8> {
        let link = Link { broker: &self.broker, key: &self.key, timed: true };
        let identify = Identify { client_id: &self.broker, heartbeat_interval: HEARTBEAT_MS, srtm: Srtm { link } };
        let body = serde_json::to_vec(&identify).unwrap_or_default();
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(b"IDENTIFY\n");
        out.extend_from_slice(&(body.len() as u32).to_be_bytes());
        out.extend_from_slice(&body);
        out.extend_from_slice(format!("SUB {} {}\nRDY {}\n", self.topic, self.channel, self.ready).as_bytes());
        out
    }
}

/// A whole frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    Heartbeat,
    /// To IDENTIFY or SUB.
    Accepted,
    Refused(&'a [u8]),
    Message(Linked<'a>),
}

/// A message of another broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Linked<'a> {
    pub id: MessageId,
    pub wall_ns: i64,
    pub attributes: &'a [u8],
    pub so_far: Option<SoFar>, // None: its own broker does not say
    pub payload: &'a [u8],
}

/// How long a message has been on its way when it goes out on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoFar {
    pub access: Nanos,     // arrival to due
    pub processing: Nanos, // due until now
}

/// 1 day: no longer delay is told.
const LONGEST: Nanos = 86_400_000_000_000;

/// In the length of attributes.
const TIMED: u32 = 1 << 31;

/// Bytes of a frame's size, and of the type that it counts.
const SIZE: usize = 4;
const TYPE: usize = 4;

/// Bytes of the frame that begins here, once its size is there.
pub fn announced_len(bytes: &[u8]) -> Option<usize> {
    bytes.first_chunk::<SIZE>().map(|size| SIZE + u32::from_be_bytes(*size) as usize)
}

/// The frame that begins here, and its length. `Ok(None)`: it is not whole. An error: what rule it breaks.
pub fn frame(bytes: &[u8], most: usize) -> Result<Option<(Frame<'_>, usize)>, &'static str> {
    let Some(len) = announced_len(bytes) else { return Ok(None) };
    if len < SIZE + TYPE || len > most {
        return Err("a frame's size is not that of a frame, or above the longest message");
    }
    let Some(whole) = bytes.get(SIZE..len) else { return Ok(None) };
    let (kind, data) = whole.split_at(TYPE);
    let frame = match kind {
        [0, 0, 0, kind] if *kind == FrameType::Response as u8 => match data {
            HEARTBEAT => Frame::Heartbeat,
            _ => Frame::Accepted,
        },
        [0, 0, 0, kind] if *kind == FrameType::Error as u8 => Frame::Refused(data),
        [0, 0, 0, kind] if *kind == FrameType::Message as u8 => {
            Frame::Message(message(data).ok_or("a message has no attributes of a link")?)
        }
        _ => return Err("a frame's type is none of 0, 1 and 2"),
    };
    Ok(Some((frame, len)))
}

fn message(data: &[u8]) -> Option<Linked<'_>> {
    let (wall_ns, rest) = data.split_first_chunk::<8>()?;
    let (_attempts, rest) = rest.split_first_chunk::<2>()?;
    let (id, rest) = rest.split_first_chunk::<16>()?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let len = u32::from_be_bytes(*len);
    let (attributes, rest) = rest.split_at_checked((len & !TIMED) as usize)?;
    let (so_far, payload) =
        if len & TIMED == 0 { (None, rest) } else { so_far(rest).map(|(it, rest)| (Some(it), rest))? };
    Some(Linked { id: MessageId::from_hex(id)?, wall_ns: i64::from_be_bytes(*wall_ns), attributes, so_far, payload })
}

fn so_far(bytes: &[u8]) -> Option<(SoFar, &[u8])> {
    let (access, rest) = bytes.split_first_chunk::<8>()?;
    let (processing, rest) = rest.split_first_chunk::<8>()?;
    let delay = |bytes: &[u8; 8]| Nanos::from_be_bytes(*bytes).clamp(0, LONGEST);
    Some((SoFar { access: delay(access), processing: delay(processing) }, rest))
}

/// Appends a built message frame with its attempts, and attributes and the delays so far in front of its body.
pub fn encode_linked(out: &mut Vec<u8>, frame: &[u8], attempts: u16, attributes: &[u8], so_far: Option<SoFar>) {
    let (head, body) = frame.split_at(MESSAGE_HEADER.min(frame.len()));
    let timed = if so_far.is_some() { (TIMED, 16) } else { (0, 0) };
    let size = frame.len() - SIZE + 4 + attributes.len() + timed.1;
    out.extend_from_slice(&(size as u32).to_be_bytes());
    let attempts_at = out.len() + TYPE + 8;
    out.extend_from_slice(&head[SIZE..]);
    out[attempts_at..attempts_at + 2].copy_from_slice(&attempts.to_be_bytes());
    out.extend_from_slice(&(attributes.len() as u32 | timed.0).to_be_bytes());
    out.extend_from_slice(attributes);
    if let Some(SoFar { access, processing }) = so_far {
        out.extend_from_slice(&access.to_be_bytes());
        out.extend_from_slice(&processing.to_be_bytes());
    }
    out.extend_from_slice(body);
}

/// The answer to a message that is kept here.
pub fn fin(id: MessageId) -> Vec<u8> {
    [b"FIN ".as_slice(), &id.to_hex(), b"\n"].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::codec::build_message;

    const MOST: usize = 1 << 20;

    proptest! {
        #[test]
        fn a_message_comes_back_with_its_attributes_and_no_part_of_it_is_a_frame(
            attributes in prop::collection::vec(any::<u8>(), 0..40), body in prop::collection::vec(any::<u8>(), 0..40),
            wall_ns in any::<i64>(), id in any::<u64>(), attempts in any::<u16>(),
            so_far in prop::option::of((0..=LONGEST, 0..=LONGEST)),
        ) {
            let (mut built, mut out) = (Vec::new(), Vec::new());
            build_message(&mut built, wall_ns, MessageId(id), &body);
            let so_far = so_far.map(|(access, processing)| SoFar { access, processing });
            encode_linked(&mut out, &built, attempts, &attributes, so_far);
            let linked = Linked { id: MessageId(id), wall_ns, attributes: &attributes, so_far, payload: &body };
            prop_assert_eq!(frame(&out, MOST), Ok(Some((Frame::Message(linked), out.len()))));
            for len in 0..out.len() {
                prop_assert_eq!(frame(&out[..len], MOST), Ok(None));
            }
        }

        #[test]
        fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(Some((_, len))) = frame(&bytes, MOST) {
                prop_assert!(len <= bytes.len());
            }
        }
    }

    #[test]
    fn what_is_no_message_of_a_link_is_refused() {
        let mut plain = Vec::new();
        build_message(&mut plain, 0, MessageId(7), b"\0\0\0\x09short");
        assert_eq!(frame(&plain, MOST), Err("a message has no attributes of a link"));
        plain.clear();
        build_message(&mut plain, 0, MessageId(7), b"\x80\0\0\0 less than two delays");
        plain.truncate(SIZE + MESSAGE_HEADER - SIZE + 4 + 15);
        let len = (plain.len() - SIZE) as u32;
        plain[..SIZE].copy_from_slice(&len.to_be_bytes());
        assert_eq!(frame(&plain, MOST), Err("a message has no attributes of a link"));
        assert!(frame(&[0, 0, 0, 3, 0, 0, 0], MOST).is_err(), "less than a type");
        assert!(frame(&[0, 0, 0, 9], 12).is_err(), "longer than the longest");
        assert!(frame(&[0, 0, 0, 4, 0, 0, 0, 3], MOST).is_err(), "of no type");
    }
}
