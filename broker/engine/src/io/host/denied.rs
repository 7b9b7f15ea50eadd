//! What the host does not grant to a setting.

/// The text begins with the setting's name and says why.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {why}")]
pub struct Refused {
    pub field: &'static str,
    pub why: String,
}
