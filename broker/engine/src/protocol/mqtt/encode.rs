//! What a broker sends, written behind what a buffer has.

use crate::protocol::mqtt::field_reader::MAX_VARIABLE;
use crate::protocol::mqtt::packet::{AckKind, Qos};
use crate::protocol::mqtt::property;
use crate::protocol::mqtt::reason::Reason;
use crate::protocol::mqtt::version::Version;

const CONNACK: u8 = 0x20;
const PUBLISH: u8 = 0x30;
const SUBACK: u8 = 0x90;
const UNSUBACK: u8 = 0xb0;
const DISCONNECT: u8 = 0xe0;

pub const PING_RESPONSE: &[u8] = &[0xd0, 0];

/// Properties under construction.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Written(Vec<u8>);

impl Written {
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn byte(&mut self, id: u8, value: u8) -> &mut Self {
        self.0.extend_from_slice(&[id, value]);
        self
    }

    pub fn two(&mut self, id: u8, value: u16) -> &mut Self {
        self.0.push(id);
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn four(&mut self, id: u8, value: u32) -> &mut Self {
        self.0.push(id);
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn variable(&mut self, id: u8, value: u32) -> &mut Self {
        self.0.push(id);
        variable(&mut self.0, value);
        self
    }

    pub fn text(&mut self, id: u8, value: &str) -> &mut Self {
        self.0.push(id);
        binary(&mut self.0, value.as_bytes());
        self
    }

    pub fn user(&mut self, name: &str, value: &str) -> &mut Self {
        self.0.push(property::USER);
        binary(&mut self.0, name.as_bytes());
        binary(&mut self.0, value.as_bytes());
        self
    }

    /// Properties as they came in.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

/// A PUBLISH without its payload.
#[derive(Debug, Clone, Copy)]
pub struct PublishHead<'a> {
    pub dup: bool,
    pub qos: Qos,
    pub retain: bool,
    pub topic: &'a str,
    pub id: u16, // counts if the QoS is not 0
    pub properties: &'a [u8],
}

/// Writes the answer to a CONNECT. 3.1 and 3.1.1 have no properties; what has no return code there is not answered.
pub fn connack(out: &mut Vec<u8>, version: Version, session_present: bool, reason: Reason, properties: &Written) {
    let flags = u8::from(session_present);
    if version == Version::V5 {
        head(out, CONNACK, 2 + with_length(properties.bytes()));
        out.extend_from_slice(&[flags, reason.0]);
        write_properties(out, properties.bytes());
    } else if let Some(code) = reason.connack_code() {
        let present = if version == Version::V3_1 { 0 } else { flags };
        out.extend_from_slice(&[CONNACK, 2, present, code]);
    }
}

fn publish_remaining(version: Version, publish: PublishHead<'_>, payload: usize) -> usize {
    let id = if publish.qos == Qos::AtMostOnce { 0 } else { 2 };
    let properties = if version == Version::V5 { with_length(publish.properties) } else { 0 };
    2 + publish.topic.len() + id + properties + payload
}

/// Writes a PUBLISH; returns where its packet identifier is, or would be. The caller has checked that it is not longer
/// than a packet may be.
pub fn publish(out: &mut Vec<u8>, version: Version, publish: PublishHead<'_>, payload: &[u8]) -> usize {
    let bits = u8::from(publish.dup) << 3 | (publish.qos as u8) << 1 | u8::from(publish.retain);
    head(out, PUBLISH | bits, publish_remaining(version, publish, payload.len()));
    binary(out, publish.topic.as_bytes());
    let id_at = out.len();
    if publish.qos != Qos::AtMostOnce {
        out.extend_from_slice(&publish.id.to_be_bytes());
    }
    if version == Version::V5 {
        write_properties(out, publish.properties);
    }
    out.extend_from_slice(payload);
    id_at
}

/// Writes a PUBACK, PUBREC, PUBREL or PUBCOMP; the code only where it says something (section 3.4.2.1).
pub fn ack(out: &mut Vec<u8>, version: Version, kind: AckKind, id: u16, reason: Reason, properties: &Written) {
    let flags = if kind == AckKind::Pubrel { 2 } else { 0 };
    let first = (kind as u8) << 4 | flags;
    let properties = if version == Version::V5 { properties.bytes() } else { &[] };
    let has_code = version == Version::V5 && (reason != Reason::SUCCESS || !properties.is_empty());
    let rest = if properties.is_empty() { 0 } else { with_length(properties) };
    head(out, first, 2 + usize::from(has_code) + rest);
    out.extend_from_slice(&id.to_be_bytes());
    if has_code {
        out.push(reason.0);
    }
    if !properties.is_empty() {
        write_properties(out, properties);
    }
}

/// Writes the answer to a SUBSCRIBE: a code for each filter. Older versions know one failure (3.1.1, section 3.9.3).
pub fn suback(out: &mut Vec<u8>, version: Version, id: u16, codes: &[Reason]) {
    let is_5 = version == Version::V5;
    head(out, SUBACK, 2 + usize::from(is_5) + codes.len());
    out.extend_from_slice(&id.to_be_bytes());
    if is_5 {
        out.push(0);
    }
    out.extend(codes.iter().map(|code| if !is_5 && code.is_refusal() { Reason::UNSPECIFIED.0 } else { code.0 }));
}

/// Writes the answer to an UNSUBSCRIBE: a code for each filter, in 5.0.
pub fn unsuback(out: &mut Vec<u8>, version: Version, id: u16, codes: &[Reason]) {
    if version != Version::V5 {
        head(out, UNSUBACK, 2);
        out.extend_from_slice(&id.to_be_bytes());
        return;
    }
    head(out, UNSUBACK, 3 + codes.len());
    out.extend_from_slice(&id.to_be_bytes());
    out.push(0);
    out.extend(codes.iter().map(|code| code.0));
}

/// Writes a DISCONNECT, which only 5.0 has from a broker.
pub fn disconnect(out: &mut Vec<u8>, version: Version, reason: Reason, properties: &Written) {
    if version != Version::V5 {
        return;
    }
    let properties = properties.bytes();
    let rest = if properties.is_empty() { 0 } else { with_length(properties) };
    head(out, DISCONNECT, 1 + rest);
    out.push(reason.0);
    if !properties.is_empty() {
        write_properties(out, properties);
    }
}

fn head(out: &mut Vec<u8>, first: u8, remaining: usize) {
    out.push(first);
    variable(out, remaining as u32);
}

fn write_properties(out: &mut Vec<u8>, properties: &[u8]) {
    variable(out, properties.len() as u32);
    out.extend_from_slice(properties);
}

/// Bytes of properties with their length in front.
fn with_length(properties: &[u8]) -> usize {
    variable_len(properties.len() as u32) + properties.len()
}

fn binary(out: &mut Vec<u8>, bytes: &[u8]) {
    debug_assert!(bytes.len() <= usize::from(u16::MAX));
    out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    out.extend_from_slice(bytes);
}

fn variable(out: &mut Vec<u8>, mut value: u32) {
    debug_assert!(value <= MAX_VARIABLE);
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn variable_len(value: u32) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}
