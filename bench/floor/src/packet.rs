//! MQTT 3.1.1, as much as a load generator says with quality of service 0 and 1.

use crate::command::Garbage;

pub const CONNECT: u8 = 0x10;
pub const CONNACK: &[u8] = b"\x20\x02\0\0";
pub const PUBACK: &[u8] = b"\x40\x02";
/// The packet identifier and what is granted follow.
pub const SUBACK: &[u8] = b"\x90\x03";
/// A length has four bytes at most, seven bits in each (section 2.2.3).
const LENGTH_BYTES: usize = 4;

#[derive(Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    Connect,
    Subscribe {
        id: &'a [u8],
        qos: u8,
    },
    /// Goes on as it is.
    Publish(&'a [u8]),
    /// To be acknowledged; goes on with another packet identifier between its two parts.
    Numbered {
        before: &'a [u8],
        id: &'a [u8],
        after: &'a [u8],
    },
    /// PUBACK: no answer.
    Silent,
}

/// The first packet of `bytes` and its length; None: more bytes are needed.
pub fn next_packet(bytes: &[u8]) -> Result<Option<(Packet<'_>, usize)>, Garbage> {
    let Some((head, rest)) = lengths(bytes)? else { return Ok(None) };
    let Some(whole) = bytes.get(..head + rest) else { return Ok(None) };
    let rest = &whole[head..];
    let packet = match whole[0] {
        CONNECT => Packet::Connect,
        0x30 => Packet::Publish(whole),
        0x32 => {
            let (name, _) = rest.split_first_chunk::<2>().ok_or(Garbage)?;
            let number = head + 2 + usize::from(u16::from_be_bytes(*name));
            let (before, after) = whole.split_at_checked(number).ok_or(Garbage)?;
            let (id, after) = after.split_at_checked(2).ok_or(Garbage)?;
            Packet::Numbered { before, id, after }
        }
        0x40 => Packet::Silent,
        0x82 => {
            let (id, filter) = rest.split_at_checked(2).ok_or(Garbage)?;
            Packet::Subscribe { id, qos: *filter.last().ok_or(Garbage)? }
        }
        _ => return Err(Garbage),
    };
    Ok(Some((packet, whole.len())))
}

/// Of the fixed head, and of what follows it.
fn lengths(bytes: &[u8]) -> Result<Option<(usize, usize)>, Garbage> {
    let mut rest = 0;
    for (i, byte) in bytes.iter().skip(1).take(LENGTH_BYTES).enumerate() {
        rest |= usize::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Ok(Some((i + 2, rest)));
        }
    }
    if bytes.len() <= LENGTH_BYTES { Ok(None) } else { Err(Garbage) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASES: &[(&[u8], Packet<'_>)] = &[
        (b"\x10\x0d\0\x04MQTT\x04\x02\xff\xff\0\x01c", Packet::Connect),
        (b"\x82\x06\0\x01\0\x01t\x01", Packet::Subscribe { id: b"\0\x01", qos: 1 }),
        (b"\x30\x04\0\x01tx", Packet::Publish(b"\x30\x04\0\x01tx")),
        (b"\x32\x06\0\x01t\0\x07x", Packet::Numbered { before: b"\x32\x06\0\x01t", id: b"\0\x07", after: b"x" }),
        (b"\x40\x02\0\x07", Packet::Silent),
    ];

    #[test]
    fn a_packet_is_read_only_when_its_last_byte_is_there() {
        for (bytes, expected) in CASES {
            for cut in 0..bytes.len() {
                assert_eq!(next_packet(&bytes[..cut]), Ok(None), "{cut} bytes of {expected:?}");
            }
            let more = [*bytes, b"\x40"].concat();
            assert_eq!(next_packet(&more).ok().flatten().map(|(_, length)| length), Some(bytes.len()));
            assert_eq!(next_packet(bytes).ok().flatten().map(|(packet, _)| packet).as_ref(), Some(expected));
        }
    }

    #[test]
    fn a_long_packet_has_a_long_length() {
        let long = [&b"\x30\x83\x01\0\x01t"[..], &[b'x'; 128]].concat();
        assert_eq!(next_packet(&long), Ok(Some((Packet::Publish(&long), long.len()))));
    }

    #[test]
    fn what_is_no_packet_of_these_is_refused() {
        for bytes in [&b"\x34\x06\0\x01t\0\x07x"[..], b"\x30\xff\xff\xff\xff", b"\x32\x01\0", b"\x32\x03\0\x01t"] {
            assert_eq!(next_packet(bytes), Err(Garbage), "{bytes:?}");
        }
    }
}
