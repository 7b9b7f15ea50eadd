//! Bytes from a client into the few commands that matter here.

use std::fmt;

pub const MAGIC: &[u8] = b"  V2";
const LONGEST_LINE: usize = 16_384;
const LARGEST_BODY: usize = 16 << 20;

#[derive(Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// To be answered OK, and nothing else.
    Identify,
    Subscribe,
    Publish(&'a [u8]),
    /// `int32 count`, then `int32 size | body` for each.
    PublishMany(&'a [u8]),
    /// RDY, FIN, NOP, ...: no answer.
    Silent,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Garbage;

impl fmt::Display for Garbage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what came is no command")
    }
}

/// The first command of `bytes` and its length; None: more bytes are needed.
pub fn next_command(bytes: &[u8]) -> Result<Option<(Command<'_>, usize)>, Garbage> {
    // by far the most frequent, and always of one length
    if bytes.len() >= 21 && bytes.starts_with(b"FIN ") {
        return Ok(Some((Command::Silent, 21)));
    }
    let Some(end) = bytes.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') else {
        return if bytes.len() < LONGEST_LINE { Ok(None) } else { Err(Garbage) };
    };
    let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
    let word = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    let command = match word {
        b"SUB" => return Ok(Some((Command::Subscribe, end + 1))),
        b"IDENTIFY" | b"PUB" | b"MPUB" => word,
        b"RDY" | b"FIN" | b"NOP" | b"CLS" => return Ok(Some((Command::Silent, end + 1))),
        _ => return Err(Garbage),
    };
    let Some((body, length)) = sized(rest)? else { return Ok(None) };
    let command = match command {
        b"PUB" => Command::Publish(body),
        b"MPUB" => Command::PublishMany(body),
        _ => Command::Identify,
    };
    Ok(Some((command, end + 1 + length)))
}

/// The bodies of an MPUB. What is cut off is left out: the generator is no adversary.
pub fn bodies(many: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = many.get(4..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (body, length) = sized(rest).ok().flatten()?;
        rest = &rest[length..];
        Some(body)
    })
}

/// What follows an `int32 size`, and the length of both.
fn sized(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Garbage> {
    let Some((size, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let size = u32::from_be_bytes(*size) as usize;
    if size > LARGEST_BODY {
        return Err(Garbage);
    }
    Ok(rest.get(..size).map(|body| (body, 4 + size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASES: &[(&[u8], Command<'_>)] = &[
        (b"IDENTIFY\n\0\0\0\x02{}", Command::Identify),
        (b"SUB t c\n", Command::Subscribe),
        (b"PUB t\n\0\0\0\x03abc", Command::Publish(b"abc")),
        (b"MPUB t\n\0\0\0\x09\0\0\0\x01\0\0\0\x01x", Command::PublishMany(b"\0\0\0\x01\0\0\0\x01x")),
        (b"FIN 0123456789abcdef\n", Command::Silent),
        (b"RDY 5\n", Command::Silent),
    ];

    #[test]
    fn a_command_is_read_only_when_its_last_byte_is_there() {
        for (bytes, expected) in CASES {
            for cut in 0..bytes.len() {
                assert_eq!(next_command(&bytes[..cut]), Ok(None), "{cut} bytes of {expected:?}");
            }
            let more = [*bytes, b"FIN"].concat();
            assert_eq!(next_command(&more).ok().flatten().map(|(_, length)| length), Some(bytes.len()));
            assert_eq!(next_command(bytes).ok().flatten().map(|(command, _)| command).as_ref(), Some(expected));
        }
    }

    #[test]
    fn what_is_no_command_is_refused() {
        assert_eq!(next_command(b"GET / HTTP/1.1\r\n"), Err(Garbage));
        assert_eq!(next_command(b"PUB t\n\xff\xff\xff\xff"), Err(Garbage));
        assert_eq!(next_command(&[b'x'; LONGEST_LINE]), Err(Garbage));
    }

    #[test]
    fn the_bodies_of_a_batch_come_in_order() {
        let many = b"\0\0\0\x02\0\0\0\x01a\0\0\0\x02bc";
        assert_eq!(bodies(many).collect::<Vec<_>>(), [&b"a"[..], b"bc"]);
        assert_eq!(bodies(b"").count(), 0);
    }
}
