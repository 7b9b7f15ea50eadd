//! What a message that came by MQTT has besides its payload, as it stands in front of its frame and on disk.
//!
//! `origin(8) expires(8) flags(1) name_length(2) name [group_length(2) group] properties`; integers are big-endian.
//! Flags: QoS in bits 0 and 1, retain in bit 2, whether there is a group in bit 3.

use crate::protocol::mqtt::packet::Qos;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes<'a> {
    pub origin: u64,          // `origin_of` its publisher, for No Local
    pub expires_wall_ns: i64, // 0: never
    pub qos: Qos,
    pub retain: bool,
    pub name: &'a str,
    pub group: &'a str,       // of another broker that it is for alone; "": none
    pub properties: &'a [u8], // as they came, without Topic Alias and Message Expiry Interval
}

const FIXED: usize = 19;

impl<'a> Attributes<'a> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.origin.to_be_bytes());
        out.extend_from_slice(&self.expires_wall_ns.to_be_bytes());
        out.push(self.qos as u8 | u8::from(self.retain) << 2 | u8::from(!self.group.is_empty()) << 3);
        let group = Some(self.group).filter(|group| !group.is_empty());
        for text in std::iter::once(self.name).chain(group) {
            out.extend_from_slice(&(text.len() as u16).to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        out.extend_from_slice(self.properties);
    }

    /// `None`: there are none, or a file was written by another program.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = bytes.split_first_chunk::<FIXED>()?;
        let (origin, fixed) = fixed.split_first_chunk::<8>()?;
        let (expires, fixed) = fixed.split_first_chunk::<8>()?;
        let [flags, high, low] = *fixed else { return None };
        let (name, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([high, low])))?;
        let (group, properties) = if flags & 8 == 0 {
            (&[][..], rest)
        } else {
            let (len, rest) = rest.split_first_chunk::<2>()?;
            rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?
        };
        Some(Self {
            origin: u64::from_be_bytes(*origin),
            expires_wall_ns: i64::from_be_bytes(*expires),
            qos: Qos::from_bits(flags)?,
            retain: flags & 4 != 0,
            name: std::str::from_utf8(name).ok()?,
            group: std::str::from_utf8(group).ok()?,
            properties,
        })
    }

    /// Seconds that the message may still live, rounded up. `None`: it has expired.
    pub fn left_s(&self, wall_ns: i64) -> Option<u32> {
        if self.expires_wall_ns == 0 {
            return Some(u32::MAX);
        }
        let left = u64::try_from(self.expires_wall_ns - wall_ns).ok().filter(|left| *left > 0)?;
        Some(left.div_ceil(1_000_000_000) as u32)
    }
}

/// A number that stands for a client id: FNV-1a, equal in each process.
pub fn origin_of(client_id: &str) -> u64 {
    client_id.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_back_as_they_were_and_nothing_short_is_some() {
        let whole = Attributes {
            origin: origin_of("client"),
            expires_wall_ns: 7_000_000_001,
            qos: Qos::ExactlyOnce,
            retain: true,
            name: "a/ü",
            group: "$share/g/#",
            properties: b"properties",
        };
        let mut bytes = Vec::new();
        whole.encode(&mut bytes);
        assert_eq!(Attributes::decode(&bytes), Some(whole));
        for len in 0..FIXED + whole.name.len() + 2 + whole.group.len() {
            assert_eq!(Attributes::decode(&bytes[..len]), None);
        }
        let alone = Attributes { group: "", ..whole };
        bytes.clear();
        alone.encode(&mut bytes);
        assert_eq!(Attributes::decode(&bytes), Some(alone));
        assert_eq!((whole.left_s(6_000_000_000), whole.left_s(7_000_000_001)), (Some(2), None));
        assert_eq!(Attributes { expires_wall_ns: 0, ..whole }.left_s(i64::MAX), Some(u32::MAX));
    }
}
