//! What a client sends, as values that borrow from the bytes of the packet.

use crate::protocol::mqtt::property::Properties;
use crate::protocol::mqtt::reason::Reason;
use crate::protocol::mqtt::topic_filter::Filter;
use crate::protocol::mqtt::version::Version;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Qos {
    #[default]
    AtMostOnce = 0,
    AtLeastOnce = 1,
    ExactlyOnce = 2,
}

impl Qos {
    /// `None`: 3, which is reserved [MQTT-3.3.1-4].
    pub fn from_bits(bits: u8) -> Option<Self> {
        match bits & 3 {
            0 => Some(Self::AtMostOnce),
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::ExactlyOnce),
            _ => None,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    Connect(Box<Connect<'a>>), // much larger than the others, and once a connection
    Publish(Publish<'a>),
    Ack(Ack<'a>),
    Subscribe(Subscribe<'a>),
    Unsubscribe(Unsubscribe<'a>),
    PingRequest,
    Disconnect(Disconnect<'a>),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Connect<'a> {
    pub version: Version,
    pub is_bridge: bool, // as Mosquitto's bridges say it
    pub clean_start: bool,
    pub keep_alive_s: u16, // 0: none
    pub client_id: &'a str,
    pub will: Option<Will<'a>>,
    pub username: Option<&'a str>,
    pub password: Option<&'a [u8]>,
    pub properties: Properties<'a>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Will<'a> {
    pub qos: Qos,
    pub retain: bool,
    pub topic: &'a str,
    pub payload: &'a [u8],
    pub properties: Properties<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    pub dup: bool,
    pub qos: Qos,
    pub retain: bool,
    pub topic: &'a str, // "": by its alias
    pub id: u16,        // 0 with QoS 0 alone
    pub properties: Properties<'a>,
    pub payload: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckKind {
    Puback = 4,
    Pubrec = 5,
    Pubrel = 6,
    Pubcomp = 7,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    pub kind: AckKind,
    pub id: u16,
    pub reason: Reason,
    pub properties: Properties<'a>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Subscribe<'a> {
    pub id: u16,
    pub properties: Properties<'a>,
    pub(crate) version: Version,
    pub(crate) filters: &'a [u8], // checked
}

/// What a client wants of a subscription (section 3.8.3.1).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    pub qos: Qos,
    pub no_local: bool,
    pub retain_as_published: bool,
    pub retain_handling: RetainHandling,
}

/// When a subscription is sent the messages that are retained.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum RetainHandling {
    #[default]
    Always = 0,
    IfNew = 1,
    Never = 2,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    pub id: u16,
    pub properties: Properties<'a>,
    pub(crate) filters: &'a [u8], // checked
}

#[derive(Debug, PartialEq, Eq)]
pub struct Disconnect<'a> {
    pub reason: Reason,
    pub properties: Properties<'a>,
}

/// One filter of a SUBSCRIBE, and how it is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'a> {
    pub filter: Filter<'a>,
    pub options: Options,
}
