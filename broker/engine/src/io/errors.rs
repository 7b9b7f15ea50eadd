//! Why an engine has no handle, does not start, or gives no answer.

use crate::config::BadSetting;

#[derive(Debug, thiserror::Error)]
#[error("the engine is not running")]
pub struct NotRunning;

/// Why the engine does not take a connection to another broker.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error(transparent)]
    NotRunning(#[from] NotRunning),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Why there is no handle.
#[derive(Debug, thiserror::Error)]
pub enum HandleError {
    #[error(transparent)]
    Setting(#[from] BadSetting),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl From<HandleError> for std::io::Error {
    fn from(error: HandleError) -> Self {
        match error {
            HandleError::Setting(error) => Self::new(std::io::ErrorKind::InvalidInput, error),
            HandleError::Io(error) => error,
        }
    }
}

/// Why certificates are not taken.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    #[error(transparent)]
    Setting(#[from] BadSetting),
    #[error(transparent)]
    NotRunning(#[from] NotRunning),
}

/// Why an engine does not start. `field`: the setting whose address cannot be listened on, or whose directory cannot be
/// used.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct StartError {
    pub field: Option<&'static str>,
    pub error: std::io::Error,
}

impl From<std::io::Error> for StartError {
    fn from(error: std::io::Error) -> Self {
        Self { field: None, error }
    }
}
