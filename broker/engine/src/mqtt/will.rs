//! A will: what the broker publishes for a client that has gone without a word (5.0, section 3.1.2.5).

use crate::protocol::mqtt::packet::{Qos, Will as WillPacket};
use crate::protocol::mqtt::property;
use crate::time::Nanos;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Will {
    pub topic: Box<str>,
    pub payload: Box<[u8]>,
    pub qos: Qos,
    pub retain: bool,
    pub delay_s: u32,
    pub expiry_s: Option<u32>,
    pub properties: Box<[u8]>, // that subscribers get
    pub due_at: Nanos,         // without a connection
}

impl Will {
    pub fn of(packet: &WillPacket<'_>) -> Self {
        let passed = packet
            .properties
            .spans()
            .filter(|(id, ..)| !matches!(*id, property::WILL_DELAY | property::MESSAGE_EXPIRY));
        let properties: Vec<u8> = passed.flat_map(|(_, _, span)| span.iter().copied()).collect();
        Self {
            topic: packet.topic.into(),
            payload: packet.payload.into(),
            qos: packet.qos,
            retain: packet.retain,
            delay_s: packet.properties.number(property::WILL_DELAY).unwrap_or(0),
            expiry_s: packet.properties.number(property::MESSAGE_EXPIRY),
            properties: properties.into(),
            due_at: Nanos::MAX,
        }
    }

    /// Bytes that it takes.
    pub fn cost(&self) -> u64 {
        (size_of::<Self>() + self.topic.len() + self.payload.len() + self.properties.len()) as u64
    }

    /// Bytes that the will of a CONNECT will take, at most.
    pub fn cost_of(packet: &WillPacket<'_>) -> u64 {
        (size_of::<Self>() + packet.topic.len() + packet.payload.len() + packet.properties.size()) as u64
    }
}
