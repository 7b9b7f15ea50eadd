//! Replies to a connection's commands, sent at the end of the turn or after the disk write that they acknowledge.

use crate::http::answer::Exchange;
use crate::id::MessageId;
use crate::protocol::errors::WireError;
use crate::protocol::mqtt::packet::Qos;
use crate::queueing::publish::Publish;
use crate::transport::types::Step;

/// A reply that waits for the end of the turn.
#[derive(Debug)]
pub(crate) enum Reply {
    Response(&'static [u8]),
    Json(Vec<u8>),
    Error(WireError),
    Publish(usize), // index into `Turn::publishes`
    Slice(usize),   // the same, answered only if it is refused
    Start(Step),    // what follows goes through another layer
    /// The same for a publish by HTTP.
    Published(usize, Exchange),
    /// The same for a PUBLISH by MQTT: its packet identifier and QoS.
    Mqtt(usize, u16, Qos),
    /// To a message of another broker.
    Linked(usize, MessageId),
    /// An answer by HTTP or MQTT, as it goes out.
    Raw(Vec<u8>),
}

impl Reply {
    /// To a publish by either port.
    pub fn published(index: usize, exchange: Option<Exchange>) -> Self {
        exchange.map_or(Self::Publish(index), |exchange| Self::Published(index, exchange))
    }

    /// The publish that it answers.
    pub fn index(&self) -> Option<usize> {
        match self {
            Self::Publish(index)
            | Self::Slice(index)
            | Self::Published(index, _)
            | Self::Mqtt(index, ..)
            | Self::Linked(index, _) => Some(*index),
            _ => None,
        }
    }
}

/// An answer that waits for the disk, or behind one that does.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) reply: Reply,
    pub(crate) publish: Option<Publish>, // that it answers
}

impl Held {
    pub(crate) fn waits(&self) -> bool {
        self.publish.as_ref().is_some_and(|publish| !publish.is_written())
    }
}
