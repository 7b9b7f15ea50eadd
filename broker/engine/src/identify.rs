//! IDENTIFY: what a client asks for, checked in nsqd's order, and the answer. TLS and compression are declined here until the engine has them.

use serde::Deserialize;

use crate::config::Config;
use crate::error::{self, WireError};

/// The JSON of a client. Unknown keys are ignored, `null` counts as absent, a wrong type refuses the whole body.
#[derive(Debug, Default, Deserialize)]
struct Request {
    client_id: Option<String>,
    hostname: Option<String>,
    user_agent: Option<String>,
    feature_negotiation: Option<bool>,
    heartbeat_interval: Option<i64>,
    output_buffer_size: Option<i64>,
    output_buffer_timeout: Option<i64>,
    sample_rate: Option<i64>,
    msg_timeout: Option<i64>,
    srtm: Option<Srtm>,
}

/// Ours: `{"v": 1, "receipts": true}` makes the connection an aware one.
#[derive(Debug, Default, Deserialize)]
struct Srtm {
    v: Option<i64>,
    receipts: Option<bool>,
}

/// The settings of one connection after IDENTIFY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub client_id: Option<Box<str>>,
    pub hostname: Option<Box<str>>,
    pub user_agent: Box<str>,
    pub heartbeat_ms: Option<u64>, // None: off
    pub msg_timeout_ms: u64,
    pub output_buffer_size: u32,
    pub output_buffer_timeout_ms: u64,
    pub sample_rate: u8,
    pub aware: bool,
    pub receipts: bool,
    negotiated: bool,
}

/// Bytes of `client_id`, `hostname` and `user_agent`.
const LONGEST_TEXT: usize = 256;

const FAILED: &str = "IDENTIFY failed to decode JSON body";

/// Decode and validate a body.
pub fn parse(body: &[u8], config: &Config) -> Result<Identity, WireError> {
    let request: Option<Request> = serde_json::from_slice(body).map_err(|_| WireError::new(error::E_BAD_BODY, FAILED))?;
    let request = request.unwrap_or_default();
    let heartbeat_ms = heartbeat_ms(request.heartbeat_interval.unwrap_or(0), config)?;
    let timeout = buffer_timeout_ms(request.output_buffer_timeout.unwrap_or(0), config)?;
    let (size, timeout) = buffer_size(request.output_buffer_size.unwrap_or(0), timeout, config)?;
    let sample_rate = match request.sample_rate.unwrap_or(0) {
        rate @ 0..=99 => rate as u8,
        rate => return Err(bad("sample rate", rate)),
    };
    let msg_timeout_ms = match request.msg_timeout.unwrap_or(0) {
        0 => config.msg_timeout_ms,
        ms if ms >= 1_000 && ms as u64 <= config.max_msg_timeout_ms => ms as u64,
        ms => return Err(bad("msg timeout", ms)),
    };
    for text in [&request.client_id, &request.hostname, &request.user_agent].into_iter().flatten() {
        check_length(text)?;
    }
    let srtm = request.srtm.unwrap_or_default();
    let aware = srtm.v == Some(1);
    Ok(Identity {
        client_id: request.client_id.filter(|id| !id.is_empty()).map(Into::into),
        hostname: request.hostname.map(Into::into),
        user_agent: request.user_agent.unwrap_or_default().into(),
        heartbeat_ms,
        msg_timeout_ms,
        output_buffer_size: size,
        output_buffer_timeout_ms: timeout,
        sample_rate,
        aware,
        receipts: aware && srtm.receipts.unwrap_or(false),
        negotiated: request.feature_negotiation.unwrap_or(false),
    })
}

/// They are kept for as long as somebody may ask who published: not to be had for megabytes.
fn check_length(text: &str) -> Result<(), WireError> {
    if text.len() <= LONGEST_TEXT {
        return Ok(());
    }
    Err(WireError::new(error::E_BAD_BODY, format!("IDENTIFY text of {} bytes is longer than {LONGEST_TEXT}", text.len())))
}

fn heartbeat_ms(asked: i64, config: &Config) -> Result<Option<u64>, WireError> {
    match asked {
        -1 => Ok(None),
        0 => Ok(Some(config.heartbeat_interval_ms)),
        ms if ms >= 1_000 && ms as u64 <= config.max_heartbeat_interval_ms => Ok(Some(ms as u64)),
        ms => Err(bad("heartbeat interval", ms)),
    }
}

fn buffer_timeout_ms(asked: i64, config: &Config) -> Result<u64, WireError> {
    match asked {
        -1 => Ok(0),
        0 => Ok(config.output_buffer_timeout_ms),
        ms if ms >= config.min_output_buffer_timeout_ms as i64 && ms as u64 <= config.max_output_buffer_timeout_ms => Ok(ms as u64),
        ms => Err(bad("output buffer timeout", ms)),
    }
}

/// Size and timeout: "unbuffered" (-1) shows as size 1 and no timeout.
fn buffer_size(asked: i64, timeout_ms: u64, config: &Config) -> Result<(u32, u64), WireError> {
    match asked {
        -1 => Ok((1, 0)),
        0 => Ok((config.output_buffer_size, timeout_ms)),
        size if size >= 64 && size <= i64::from(config.max_output_buffer_size) => Ok((size as u32, timeout_ms)),
        size => Err(bad("output buffer size", size)),
    }
}

#[cold]
fn bad(what: &str, value: i64) -> WireError {
    WireError::new(error::E_BAD_BODY, format!("IDENTIFY {what} ({value}) is invalid"))
}

impl Identity {
    /// What a connection is before it says IDENTIFY.
    pub fn unknown(config: &Config) -> Self {
        Self {
            client_id: None,
            hostname: None,
            user_agent: "".into(),
            heartbeat_ms: Some(config.heartbeat_interval_ms),
            msg_timeout_ms: config.msg_timeout_ms,
            output_buffer_size: config.output_buffer_size,
            output_buffer_timeout_ms: config.output_buffer_timeout_ms,
            sample_rate: 0,
            aware: false,
            receipts: false,
            negotiated: false,
        }
    }

    /// Data of the response frame: JSON under feature negotiation, else `OK`.
    pub fn answer(&self, config: &Config) -> Vec<u8> {
        if !self.negotiated {
            return crate::wire::OK.to_vec();
        }
        let version = serde_json::Value::from(config.version.as_str());
        let srtm = if self.aware { r#","srtm":{"v":1}"# } else { "" };
        format!(
            concat!(
                r#"{{"max_rdy_count":{},"version":{},"max_msg_timeout":{},"msg_timeout":{},"tls_v1":false,"deflate":false,"#,
                r#""deflate_level":6,"max_deflate_level":6,"snappy":false,"sample_rate":{},"auth_required":{},"#,
                r#""output_buffer_size":{},"output_buffer_timeout":{},"topology_region":"","topology_zone":""{}}}"#
            ),
            config.max_rdy_count,
            version,
            config.max_msg_timeout_ms,
            self.msg_timeout_ms,
            self.sample_rate,
            config.auth_required,
            self.output_buffer_size,
            self.output_buffer_timeout_ms,
            srtm
        )
        .into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(body: &str) -> String {
        parse(body.as_bytes(), &Config::default()).expect_err("refused").to_string()
    }

    #[test]
    fn each_limit_refuses_with_its_value() {
        assert_eq!(text(r#"{"heartbeat_interval":100}"#), "E_BAD_BODY IDENTIFY heartbeat interval (100) is invalid");
        assert_eq!(text(r#"{"output_buffer_timeout":1}"#), "E_BAD_BODY IDENTIFY output buffer timeout (1) is invalid");
        assert_eq!(text(r#"{"output_buffer_size":10}"#), "E_BAD_BODY IDENTIFY output buffer size (10) is invalid");
        assert_eq!(text(r#"{"sample_rate":100}"#), "E_BAD_BODY IDENTIFY sample rate (100) is invalid");
        assert_eq!(text(r#"{"msg_timeout":1}"#), "E_BAD_BODY IDENTIFY msg timeout (1) is invalid");
        assert_eq!(text(r#"{"msg_timeout":1000.0}"#), "E_BAD_BODY IDENTIFY failed to decode JSON body");
        assert_eq!(text(r#"[]x"#), "E_BAD_BODY IDENTIFY failed to decode JSON body");
    }

    #[test]
    fn the_answer_is_ok_without_negotiation_and_json_with_it() {
        let config = Config::default();
        let plain = parse(b"null", &config).expect("null is accepted");
        assert_eq!(plain.answer(&config), b"OK");
        let asked =
            parse(br#"{"feature_negotiation":true,"output_buffer_size":-1,"srtm":{"v":1,"receipts":true}}"#, &config).expect("valid");
        let answer: serde_json::Value = serde_json::from_slice(&asked.answer(&config)).expect("JSON");
        assert_eq!(answer["output_buffer_size"], 1);
        assert_eq!(answer["output_buffer_timeout"], 0);
        assert_eq!(answer["srtm"]["v"], 1);
        assert!(asked.receipts);
    }
}
