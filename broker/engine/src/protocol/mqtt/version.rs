//! Versions of MQTT.

/// The protocol level of a CONNECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// `MQIsdp`.
    V3_1 = 3,
    V3_1_1 = 4,
    V5 = 5,
}
