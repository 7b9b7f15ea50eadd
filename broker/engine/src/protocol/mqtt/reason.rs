//! Reason codes (5.0, section 2.4), and what ends a connection.

use crate::protocol::mqtt::version::Version;

/// A reason code of 5.0. From 0x80 on it is a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reason(pub u8);

impl Reason {
    pub const SUCCESS: Self = Self(0x00);
    pub const NO_MATCHING_SUBSCRIBERS: Self = Self(0x10);
    pub const NO_SUBSCRIPTION_EXISTED: Self = Self(0x11);
    pub const UNSPECIFIED: Self = Self(0x80);
    pub const MALFORMED: Self = Self(0x81);
    pub const PROTOCOL_ERROR: Self = Self(0x82);
    pub const UNSUPPORTED_VERSION: Self = Self(0x84);
    pub const CLIENT_ID_INVALID: Self = Self(0x85);
    pub const BAD_USER_OR_PASSWORD: Self = Self(0x86);
    pub const NOT_AUTHORIZED: Self = Self(0x87);
    pub const SERVER_UNAVAILABLE: Self = Self(0x88);
    pub const SERVER_BUSY: Self = Self(0x89);
    pub const SERVER_SHUTTING_DOWN: Self = Self(0x8b);
    pub const BAD_AUTHENTICATION_METHOD: Self = Self(0x8c);
    pub const KEEP_ALIVE_TIMEOUT: Self = Self(0x8d);
    pub const SESSION_TAKEN_OVER: Self = Self(0x8e);
    pub const TOPIC_NAME_INVALID: Self = Self(0x90);
    pub const PACKET_ID_NOT_FOUND: Self = Self(0x92);
    pub const RECEIVE_MAXIMUM_EXCEEDED: Self = Self(0x93);
    pub const TOPIC_ALIAS_INVALID: Self = Self(0x94);
    pub const PACKET_TOO_LARGE: Self = Self(0x95);
    pub const QUOTA_EXCEEDED: Self = Self(0x97);
    pub const ADMINISTRATIVE: Self = Self(0x98);
    pub const USE_ANOTHER_SERVER: Self = Self(0x9c);

    pub fn is_refusal(self) -> bool {
        self.0 >= 0x80
    }

    /// Return code of a 3.1 or 3.1.1 CONNACK (3.1.1, table 3.1). `None`: it has none for this, and just closes.
    pub fn connack_code(self) -> Option<u8> {
        match self {
            Self::SUCCESS => Some(0),
            Self::UNSUPPORTED_VERSION => Some(1),
            Self::CLIENT_ID_INVALID => Some(2),
            Self::SERVER_UNAVAILABLE | Self::SERVER_BUSY | Self::QUOTA_EXCEEDED => Some(3),
            Self::BAD_USER_OR_PASSWORD => Some(4),
            Self::NOT_AUTHORIZED => Some(5),
            _ => None,
        }
    }
}

/// Why a packet ends its connection: the reason code of 5.0, and the rule for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub reason: Reason,
    pub rule: &'static str,
    /// In which version a CONNECT that has this fault is to be answered, if it said so much.
    pub version: Option<Version>,
}

impl Fault {
    pub const fn new(reason: Reason, rule: &'static str) -> Self {
        Self { reason, rule, version: None }
    }

    pub const fn malformed(rule: &'static str) -> Self {
        Self::new(Reason::MALFORMED, rule)
    }

    pub const fn protocol(rule: &'static str) -> Self {
        Self::new(Reason::PROTOCOL_ERROR, rule)
    }

    pub(crate) fn in_version(self, version: Version) -> Self {
        Self { version: Some(version), ..self }
    }
}
