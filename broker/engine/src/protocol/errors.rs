//! Errors on the wire: every error frame of the engine is made here. `docs/protocol.md` lists them for clients.
//! `refuse` of `engine::commands` answers with it, and ends the input of the connection if the error is fatal.

use std::borrow::Cow;
use std::fmt;

/// An error frame: `CODE description`. A fatal one closes the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireError {
    pub code: &'static str,
    pub text: Cow<'static, str>,
    pub fatal: bool,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.text.is_empty() && self.code == E_BAD_PROTOCOL {
            f.write_str(self.code)
        } else {
            write!(f, "{} {}", self.code, self.text)
        }
    }
}

pub const E_BAD_PROTOCOL: &str = "E_BAD_PROTOCOL";
pub const E_INVALID: &str = "E_INVALID";
pub const E_BAD_BODY: &str = "E_BAD_BODY";
pub const E_BAD_TOPIC: &str = "E_BAD_TOPIC";
pub const E_BAD_CHANNEL: &str = "E_BAD_CHANNEL";
pub const E_BAD_MESSAGE: &str = "E_BAD_MESSAGE";
pub const E_PUB_FAILED: &str = "E_PUB_FAILED";
pub const E_MPUB_FAILED: &str = "E_MPUB_FAILED";
pub const E_DPUB_FAILED: &str = "E_DPUB_FAILED";
pub const E_SUB_FAILED: &str = "E_SUB_FAILED";
pub const E_FIN_FAILED: &str = "E_FIN_FAILED";
pub const E_REQ_FAILED: &str = "E_REQ_FAILED";
pub const E_TOUCH_FAILED: &str = "E_TOUCH_FAILED";
pub const E_AUTH_FIRST: &str = "E_AUTH_FIRST";
pub const E_AUTH_FAILED: &str = "E_AUTH_FAILED";
pub const E_UNAUTHORIZED: &str = "E_UNAUTHORIZED";
pub const E_IDENTIFY_FAILED: &str = "E_IDENTIFY_FAILED";
pub const E_AUTH_DISABLED: &str = "E_AUTH_DISABLED";
/// Ours: the topic's token bucket or a contract refused the publish. The connection goes on.
pub const E_RATE_LIMITED: &str = "E_RATE_LIMITED";

/// The codes that leave the connection open.
pub const NOT_FATAL: [&str; 4] = [E_FIN_FAILED, E_REQ_FAILED, E_TOUCH_FAILED, E_RATE_LIMITED];

impl WireError {
    #[cold]
    pub fn new(code: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        Self { code, text: text.into(), fatal: !NOT_FATAL.contains(&code) }
    }

    #[cold]
    pub fn invalid(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(E_INVALID, text)
    }
}

/// A name as Go's `%q` shows it in nsqd's texts.
pub fn quoted(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len() + 2);
    out.push('"');
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                '\n' => out.push_str("\\n"),
                c if c.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_text_is_code_and_description() {
        assert_eq!(WireError::invalid("invalid command X").to_string(), "E_INVALID invalid command X");
        assert_eq!(WireError::new(E_BAD_PROTOCOL, "").to_string(), "E_BAD_PROTOCOL");
    }

    #[test]
    fn names_are_quoted_as_go_does() {
        assert_eq!(quoted(b"t$"), "\"t$\"");
        assert_eq!(quoted(b"a\"\\\x01\xff"), "\"a\\\"\\\\\\x01\\xff\"");
    }
}
