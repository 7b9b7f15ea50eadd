//! The fields of a packet, one after another (5.0, section 1.5).

use crate::protocol::mqtt::reason::Fault;

const TRUNCATED: Fault = Fault::malformed("a field is longer than its packet");

/// Largest value of a variable byte integer: four bytes of seven bits.
pub const MAX_VARIABLE: u32 = 0x0fff_ffff;

/// Bytes of a packet that are still to be read.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn byte(&mut self) -> Result<u8, Fault> {
        let (byte, rest) = self.0.split_first().ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(*byte)
    }

    pub fn two(&mut self) -> Result<u16, Fault> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(u16::from_be_bytes(*bytes))
    }

    pub fn four(&mut self) -> Result<u32, Fault> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*bytes))
    }

    /// A variable byte integer in its shortest form [MQTT-1.5.5-1].
    pub fn variable(&mut self) -> Result<u32, Fault> {
        let (value, len) = variable(self.0)?.ok_or(TRUNCATED)?;
        if len > 1 && self.0[len - 1] == 0 {
            return Err(Fault::malformed("a variable byte integer is longer than it must be [MQTT-1.5.5-1]"));
        }
        self.0 = &self.0[len..];
        Ok(value)
    }

    /// Binary data: its length in two bytes, and so many.
    pub fn binary(&mut self) -> Result<&'a [u8], Fault> {
        let len = self.two()?;
        self.take(usize::from(len))
    }

    /// A UTF-8 string; U+0000 is not allowed [MQTT-1.5.4-1], [MQTT-1.5.4-2].
    pub fn text(&mut self) -> Result<&'a str, Fault> {
        let bytes = self.binary()?;
        if bytes.contains(&0) {
            return Err(Fault::malformed("a string has U+0000 [MQTT-1.5.4-2]"));
        }
        std::str::from_utf8(bytes).map_err(|_| Fault::malformed("a string is not UTF-8 [MQTT-1.5.4-1]"))
    }

    /// A string that names something: a client, a user, a topic. Control characters are not allowed, which a receiver
    /// may refuse (section 1.5.4).
    pub fn name(&mut self) -> Result<&'a str, Fault> {
        let text = self.text()?;
        // Without an early end the compiler looks at many bytes at once.
        let is_plain = text.bytes().fold(true, |plain, byte| plain & (b' '..0x7f).contains(&byte));
        if !is_plain && text.chars().any(is_control) {
            return Err(Fault::malformed("a name has a control character or a noncharacter (section 1.5.4)"));
        }
        Ok(text)
    }
}

fn is_control(character: char) -> bool {
    let code = u32::from(character);
    character.is_control() || code & 0xfffe == 0xfffe || (0xfdd0..=0xfdef).contains(&code)
}

/// A variable byte integer at the front: its value and its length. `None`: more bytes are missing.
pub fn variable(bytes: &[u8]) -> Result<Option<(u32, usize)>, Fault> {
    let mut value = 0;
    for (at, byte) in bytes.iter().take(4).enumerate() {
        value |= u32::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(Some((value, at + 1)));
        }
    }
    if bytes.len() < 4 { Ok(None) } else { Err(Fault::malformed("a variable byte integer has more than four bytes")) }
}
