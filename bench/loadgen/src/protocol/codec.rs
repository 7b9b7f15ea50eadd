//! The little of NSQ V2 that a load generator speaks. Not the engine's codec on purpose: two readings of the protocol
//! check each other.
//!
//! Server to client: `int32 size | int32 type | size - 4 bytes`; type 0 response, 1 error, 2 message (`int64 time |
//! uint16 attempts | 16 bytes id | body`).

use std::io;

use crate::protocol::body::{BodyFormat, Stamp};

pub const MAGIC: &[u8] = b"  V2";
pub const NOP: &[u8] = b"NOP\n";
/// A frame beyond this is no frame but garbage: four times nsqd's largest body.
const LARGEST_FRAME: usize = 20 << 20;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CodecError {
    #[error("a frame of {0} bytes")]
    Size(i32),
    #[error("a frame of type {0}")]
    Type(i32),
    #[error("a message frame of {0} bytes")]
    ShortMessage(usize),
}

#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    Response(&'a [u8]),
    Error(&'a [u8]),
    Message { id: &'a [u8; 16], body: &'a [u8] },
}

/// The first frame of `bytes` and its length; None: more bytes are needed.
pub fn next_frame(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, CodecError> {
    let Some((size, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let size = i32::from_be_bytes(*size);
    let length =
        usize::try_from(size).ok().filter(|n| (4..=LARGEST_FRAME).contains(n)).ok_or(CodecError::Size(size))?;
    let Some(frame) = rest.get(..length) else { return Ok(None) };
    let Some((kind, data)) = frame.split_first_chunk::<4>() else { return Ok(None) };
    let frame = match i32::from_be_bytes(*kind) {
        0 => Frame::Response(data),
        1 => Frame::Error(data),
        2 => message(data).ok_or(CodecError::ShortMessage(length))?,
        other => return Err(CodecError::Type(other)),
    };
    Ok(Some((frame, 4 + length)))
}

fn message(data: &[u8]) -> Option<Frame<'_>> {
    let (_time_and_attempts, rest) = data.split_first_chunk::<10>()?;
    let (id, body) = rest.split_first_chunk::<16>()?;
    Some(Frame::Message { id, body })
}

/// Magic and IDENTIFY. `unbuffered`: messages come at once (nsqd holds a lone one back for up to 250 ms otherwise).
pub fn hello(client_id: &str, unbuffered: bool) -> Vec<u8> {
    let wish = if unbuffered { serde_json::json!({"output_buffer_size": -1}) } else { serde_json::json!({}) };
    identify(client_id, wish)
}

/// Of a connection that never reads again: it must not be closed for not answering heartbeats.
pub fn silent_hello(client_id: &str) -> Vec<u8> {
    identify(client_id, serde_json::json!({"heartbeat_interval": -1}))
}

fn identify(client_id: &str, mut identity: serde_json::Value) -> Vec<u8> {
    identity["client_id"] = client_id.into();
    identity["hostname"] = "srtm-loadgen".into();
    identity["user_agent"] = concat!("srtm-loadgen/", env!("CARGO_PKG_VERSION")).into();
    identity["feature_negotiation"] = true.into();
    let json = identity.to_string();
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(b"IDENTIFY\n");
    out.extend_from_slice(&(json.len() as u32).to_be_bytes());
    out.extend_from_slice(json.as_bytes());
    out
}

pub fn publish(topic: &str, format: &BodyFormat, stamp: Stamp, out: &mut Vec<u8>) {
    command_line("PUB", topic, out);
    sized_body(format, stamp, out);
}

pub fn publish_many(topic: &str, format: &BodyFormat, first: Stamp, count: u32, out: &mut Vec<u8>) {
    command_line("MPUB", topic, out);
    let size = 4 + count * (4 + format.size() as u32);
    out.extend_from_slice(&size.to_be_bytes());
    out.extend_from_slice(&count.to_be_bytes());
    for i in 0..u64::from(count) {
        sized_body(format, Stamp { sequence: first.sequence + i, ..first }, out);
    }
}

fn command_line(command: &str, topic: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(command.as_bytes());
    out.push(b' ');
    out.extend_from_slice(topic.as_bytes());
    out.push(b'\n');
}

fn sized_body(format: &BodyFormat, stamp: Stamp, out: &mut Vec<u8>) {
    out.extend_from_slice(&(format.size() as u32).to_be_bytes());
    format.write(stamp, out);
}

pub fn finish(id: &[u8; 16], out: &mut Vec<u8>) {
    out.extend_from_slice(b"FIN ");
    out.extend_from_slice(id);
    out.push(b'\n');
}

pub fn subscribe(topic: &str, channel: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("SUB {topic} {channel}\n").as_bytes());
}

pub fn ready(count: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("RDY {count}\n").as_bytes());
}

/// Refuse a RDY count that the broker's IDENTIFY answer does not allow: it would close the connection without a word.
pub fn check_ready_count(identify_answer: &[u8], count: u32) -> io::Result<()> {
    let answer: serde_json::Value = serde_json::from_slice(identify_answer).unwrap_or_default();
    match answer["max_rdy_count"].as_u64() {
        Some(most) if u64::from(count) > most => {
            Err(io::Error::other(format!("rdy: {count}: must be at most the broker's max_rdy_count, {most}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: i32, data: &[u8]) -> Vec<u8> {
        [&(data.len() as i32 + 4).to_be_bytes(), &kind.to_be_bytes()[..], data].concat()
    }

    #[test]
    fn a_frame_is_read_only_when_its_last_byte_is_there() {
        let data = [&[0; 10][..], b"0123456789abcdef", b"body"].concat();
        let bytes = frame(2, &data);
        for cut in 0..bytes.len() {
            assert_eq!(next_frame(&bytes[..cut]), Ok(None), "{cut} bytes");
        }
        let expected = Frame::Message { id: b"0123456789abcdef", body: b"body" };
        assert_eq!(next_frame(&[&bytes[..], b"more"].concat()), Ok(Some((expected, bytes.len()))));
    }

    #[test]
    fn garbage_is_an_error_and_not_a_wait_for_more() {
        assert_eq!(next_frame(b"HTTP/1.1"), Err(CodecError::Size(i32::from_be_bytes(*b"HTTP"))));
        assert_eq!(next_frame(&(-1i32).to_be_bytes()), Err(CodecError::Size(-1)));
        assert_eq!(next_frame(&frame(3, b"x")), Err(CodecError::Type(3)));
        assert_eq!(next_frame(&frame(2, b"short")), Err(CodecError::ShortMessage(9)));
    }

    #[test]
    fn a_ready_count_above_the_brokers_is_refused() {
        let answer = br#"{"max_rdy_count":2500}"#;
        assert!(check_ready_count(answer, 2500).is_ok());
        assert!(check_ready_count(answer, 2501).is_err_and(|e| e.to_string().starts_with("rdy: 2501: must")));
        assert!(check_ready_count(b"OK", 2501).is_ok());
    }

    #[test]
    fn commands_have_the_bytes_of_the_protocol() {
        let format = BodyFormat::new(1, 32);
        let stamp = Stamp { publisher: 2, sequence: 3, intended_ns: 4, measured: true };
        let mut body = Vec::new();
        format.write(stamp, &mut body);
        let mut out = Vec::new();
        publish("t", &format, stamp, &mut out);
        assert_eq!(out, [&b"PUB t\n\0\0\0\x20"[..], &body].concat());
        out.clear();
        publish_many("t", &format, stamp, 2, &mut out);
        let second = {
            let mut b = Vec::new();
            format.write(Stamp { sequence: 4, ..stamp }, &mut b);
            b
        };
        let expected = [&b"MPUB t\n\0\0\0\x4c\0\0\0\x02\0\0\0\x20"[..], &body, b"\0\0\0\x20", &second].concat();
        assert_eq!(out, expected);
        out.clear();
        finish(b"0123456789abcdef", &mut out);
        subscribe("t", "c", &mut out);
        ready(5, &mut out);
        assert_eq!(out, b"FIN 0123456789abcdef\nSUB t c\nRDY 5\n");
        assert!(hello("p", true).starts_with(b"  V2IDENTIFY\n\0\0\0"));
        assert!(hello("p", true).ends_with(b"}"));
    }
}
