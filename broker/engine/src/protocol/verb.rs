//! The commands that publish, and what a refusal of one is called.

use crate::protocol::errors::{self, WireError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Pub,
    Mpub,
    Dpub,
    /// MQTT's PUBLISH.
    Publish,
    /// MQTT's PUBLISH that waits for its token also where others are refused: its version has no refusal.
    PatientPublish,
    /// MQTT's will, which is never refused.
    Will,
    /// A message over a link: it was decided at its own broker.
    Linked,
}

impl Verb {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pub => "PUB",
            Self::Mpub => "MPUB",
            Self::Dpub => "DPUB",
            Self::Publish | Self::PatientPublish => "PUBLISH",
            Self::Will => "will",
            Self::Linked => "link",
        }
    }

    #[cold]
    pub fn refused(self, why: &str) -> WireError {
        WireError::new(self.failed(), format!("{} failed {why}", self.name()))
    }

    pub fn failed(self) -> &'static str {
        match self {
            Self::Pub | Self::Publish | Self::PatientPublish | Self::Will | Self::Linked => errors::E_PUB_FAILED,
            Self::Mpub => errors::E_MPUB_FAILED,
            Self::Dpub => errors::E_DPUB_FAILED,
        }
    }
}
