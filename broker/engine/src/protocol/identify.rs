//! IDENTIFY: what a client asks for, checked in nsqd's order, and the answer.

use std::rc::Rc;

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::protocol::errors::{self, WireError};

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
    sample_rate: Option<i32>,
    msg_timeout: Option<i64>,
    tls_v1: Option<bool>,
    snappy: Option<bool>,
    deflate: Option<bool>,
    deflate_level: Option<i64>,
    topology_region: Option<String>,
    topology_zone: Option<String>,
    srtm: Option<Srtm>,
}

/// Ours: `{"v": 1, "receipts": true, "left": true}` makes the connection an aware one, `link` that of a broker.
#[derive(Debug, Default, Deserialize)]
struct Srtm {
    v: Option<i64>,
    receipts: Option<bool>,
    left: Option<bool>,
    link: Option<LinkClaim>,
}

/// Which broker the client says it is, and the key that shows it (`engine/mqtt/links.rs`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LinkClaim {
    pub broker: String,
    pub key: String,
    #[serde(default)]
    pub timed: bool, // it wants to know each message's delay so far; an earlier version does not
}

/// What the connection gets of the features that it asked for; nothing without feature negotiation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    pub tls: bool,
    pub compression: Option<Compression>,
}

impl Features {
    pub fn any(self) -> bool {
        self.tls || self.compression.is_some()
    }
}

/// The settings of one connection after IDENTIFY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub client_id: Option<Rc<str>>,
    about: Option<Box<About>>,
    pub heartbeat_ms: Option<u64>, // None: off
    pub msg_timeout_ms: u64,
    pub output_buffer_size: u32,
    pub output_buffer_timeout_ms: u32,
    pub sample_rate: u8,
    pub aware: bool,
    pub receipts: bool,
    pub left: bool, // it may ask whether what it has published has left
    pub features: Features,
    pub link: Option<Box<LinkClaim>>,
    negotiated: bool,
}

/// What a client says of itself and its place, if it does: thousands say nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct About {
    hostname: Option<Box<str>>,
    user_agent: Box<str>,
    topology_region: Box<str>,
    topology_zone: Box<str>,
}

/// The parts of an identity that every command or its answer depends on.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    pub heartbeats: bool,
    pub receipts: bool,
    pub left: bool,   // as in `Identity`
    pub linked: bool, // it gets attributes with each message
    pub timed: bool,  // and its delay so far
}

/// Level of deflate for a client that names none.
const DEFLATE_LEVEL: u8 = 6;

/// Bytes of `client_id`, `hostname`, `user_agent`, `topology_region` or `topology_zone` at most.
pub const LONGEST_TEXT: usize = 256;

const FAILED: &str = "IDENTIFY failed to decode JSON body";

/// Decode and validate a body.
pub fn parse(body: &[u8], config: &Config) -> Result<Identity, WireError> {
    let text = String::from_utf8_lossy(body); // a host name may be in any encoding
    let request: Option<Request> =
        serde_json::from_str(&text).map_err(|_| WireError::new(errors::E_BAD_BODY, FAILED))?;
    let request = request.unwrap_or_default();
    let heartbeat_ms = heartbeat_ms(request.heartbeat_interval.unwrap_or(0), config)?;
    let timeout = buffer_timeout_ms(request.output_buffer_timeout.unwrap_or(0), config)?;
    let (size, timeout) = buffer_size(request.output_buffer_size.unwrap_or(0), timeout, config)?;
    let sample_rate = match request.sample_rate.unwrap_or(0) {
        rate @ 0..=99 => rate as u8,
        rate => return Err(bad("sample rate", rate.into())),
    };
    let msg_timeout_ms = match request.msg_timeout.unwrap_or(0) {
        0 => config.msg_timeout_ms,
        ms if ms >= 1_000 && ms as u64 <= config.max_msg_timeout_ms => ms as u64,
        ms => return Err(bad("msg timeout", ms)),
    };
    let texts =
        [&request.client_id, &request.hostname, &request.user_agent, &request.topology_region, &request.topology_zone];
    for text in texts.into_iter().flatten() {
        check_length(text)?;
    }
    let features = features(&request, config)?;
    let srtm = request.srtm.unwrap_or_default();
    for text in srtm.link.iter().flat_map(|link| [&link.broker, &link.key]) {
        check_length(text)?;
    }
    let aware = srtm.v == Some(1);
    let about = About {
        hostname: request.hostname.map(Into::into),
        user_agent: request.user_agent.unwrap_or_default().into(),
        topology_region: request.topology_region.unwrap_or_default().into(),
        topology_zone: request.topology_zone.unwrap_or_default().into(),
    };
    Ok(Identity {
        client_id: request.client_id.filter(|id| !id.is_empty()).map(Into::into),
        about: (about != About::default()).then(|| Box::new(about)),
        heartbeat_ms,
        msg_timeout_ms,
        output_buffer_size: size,
        output_buffer_timeout_ms: short(timeout),
        sample_rate,
        aware,
        receipts: aware && srtm.receipts.unwrap_or(false),
        left: aware && srtm.left.unwrap_or(false),
        features,
        link: srtm.link.map(Box::new),
        negotiated: request.feature_negotiation.unwrap_or(false),
    })
}

fn features(request: &Request, config: &Config) -> Result<Features, WireError> {
    if !request.feature_negotiation.unwrap_or(false) {
        return Ok(Features::default());
    }
    let snappy = config.snappy && request.snappy.unwrap_or(false);
    let deflate = config.deflate && request.deflate.unwrap_or(false);
    if snappy && deflate {
        return Err(WireError::new(errors::E_IDENTIFY_FAILED, "cannot enable both deflate and snappy compression"));
    }
    let level = match request.deflate_level.unwrap_or(0) {
        level @ 1.. => u8::try_from(level).unwrap_or(u8::MAX),
        _ => DEFLATE_LEVEL,
    };
    let deflate = deflate.then_some(Compression::Deflate { level: level.min(config.max_deflate_level) });
    Ok(Features {
        tls: !config.tls_cert_pem.is_empty() && request.tls_v1.unwrap_or(false),
        compression: if snappy { Some(Compression::Snappy) } else { deflate },
    })
}

/// Refuse texts that are too long: they are kept as long as somebody may ask who published.
fn check_length(text: &str) -> Result<(), WireError> {
    if text.len() <= LONGEST_TEXT {
        return Ok(());
    }
    Err(WireError::new(
        errors::E_BAD_BODY,
        format!("IDENTIFY text of {} bytes is longer than {LONGEST_TEXT}", text.len()),
    ))
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
        ms if ms >= config.min_output_buffer_timeout_ms as i64 && ms as u64 <= config.max_output_buffer_timeout_ms => {
            Ok(ms as u64)
        }
        ms => Err(bad("output buffer timeout", ms)),
    }
}

/// Size (bytes) and timeout (ms) of the output buffer. "Unbuffered" (-1) shows as size 1 and no timeout.
fn buffer_size(asked: i64, timeout_ms: u64, config: &Config) -> Result<(u32, u64), WireError> {
    match asked {
        -1 => Ok((1, 0)),
        0 => Ok((config.output_buffer_size, timeout_ms)),
        size if size >= 64 && size <= i64::from(config.max_output_buffer_size) => Ok((size as u32, timeout_ms)),
        size => Err(bad("output buffer size", size)),
    }
}

/// Milliseconds in half the room: there is an identity for each of thousands of idle connections.
fn short(ms: u64) -> u32 {
    u32::try_from(ms).unwrap_or(u32::MAX)
}

#[cold]
fn bad(what: &str, value: i64) -> WireError {
    WireError::new(errors::E_BAD_BODY, format!("IDENTIFY {what} ({value}) is invalid"))
}

impl Identity {
    pub fn terms(&self) -> Terms {
        Terms {
            heartbeats: self.heartbeat_ms.is_some(),
            receipts: self.receipts,
            left: self.left,
            linked: self.link.is_some(),
            timed: self.link.as_ref().is_some_and(|link| link.timed),
        }
    }

    pub fn hostname(&self) -> Option<&str> {
        self.about.as_ref()?.hostname.as_deref()
    }

    pub fn user_agent(&self) -> &str {
        self.about.as_ref().map_or("", |about| &about.user_agent)
    }

    pub fn topology_region(&self) -> &str {
        self.about.as_ref().map_or("", |about| &about.topology_region)
    }

    pub fn topology_zone(&self) -> &str {
        self.about.as_ref().map_or("", |about| &about.topology_zone)
    }

    /// The identity of a connection before it says IDENTIFY.
    pub fn unknown(config: &Config) -> Self {
        Self {
            client_id: None,
            about: None,
            heartbeat_ms: Some(config.heartbeat_interval_ms),
            msg_timeout_ms: config.msg_timeout_ms,
            output_buffer_size: config.output_buffer_size,
            output_buffer_timeout_ms: short(config.output_buffer_timeout_ms),
            sample_rate: 0,
            aware: false,
            receipts: false,
            left: false,
            features: Features::default(),
            link: None,
            negotiated: false,
        }
    }

    /// Data of the response frame: JSON under feature negotiation, else `OK`.
    pub fn answer(&self, config: &Config) -> Vec<u8> {
        if !self.negotiated {
            return crate::protocol::codec::OK.to_vec();
        }
        let answer = Answer {
            max_rdy_count: config.max_rdy_count,
            version: &config.version,
            max_msg_timeout: config.max_msg_timeout_ms,
            msg_timeout: self.msg_timeout_ms,
            tls_v1: self.features.tls,
            deflate: matches!(self.features.compression, Some(Compression::Deflate { .. })),
            deflate_level: match self.features.compression {
                Some(Compression::Deflate { level }) => level,
                _ => DEFLATE_LEVEL.min(config.max_deflate_level),
            },
            max_deflate_level: config.max_deflate_level,
            snappy: self.features.compression == Some(Compression::Snappy),
            sample_rate: self.sample_rate,
            auth_required: config.auth_servers || !config.anonymous,
            output_buffer_size: self.output_buffer_size,
            output_buffer_timeout: self.output_buffer_timeout_ms.into(),
            topology_region: &config.topology_region,
            topology_zone: &config.topology_zone,
            srtm: self.aware.then_some(Version { v: 1, left: self.left.then_some(true) }),
        };
        // safe: numbers, flags and strings always make JSON
        serde_json::to_vec(&answer).expect("JSON")
    }
}

/// Fields and their order are nsqd's; times in ms.
#[derive(Serialize)]
struct Answer<'a> {
    max_rdy_count: u32,
    version: &'a str,
    max_msg_timeout: u64,
    msg_timeout: u64,
    tls_v1: bool,
    deflate: bool,
    deflate_level: u8,
    max_deflate_level: u8,
    snappy: bool,
    sample_rate: u8,
    auth_required: bool,
    output_buffer_size: u32,
    output_buffer_timeout: u64,
    topology_region: &'a str,
    topology_zone: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    srtm: Option<Version>,
}

#[derive(Serialize)]
struct Version {
    v: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    Snappy,
    Deflate { level: u8 },
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
        assert_eq!(text(r#"{"sample_rate":2147483648}"#), "E_BAD_BODY IDENTIFY failed to decode JSON body");
        assert_eq!(text(r#"{"msg_timeout":1}"#), "E_BAD_BODY IDENTIFY msg timeout (1) is invalid");
        assert_eq!(text(r#"{"msg_timeout":1000.0}"#), "E_BAD_BODY IDENTIFY failed to decode JSON body");
        assert_eq!(text(r#"[]x"#), "E_BAD_BODY IDENTIFY failed to decode JSON body");
    }

    #[test]
    fn a_text_of_another_encoding_is_no_reason_to_refuse_a_client() {
        let known = parse(b"{\"hostname\": \"b\xfcro\"}", &Config::default()).expect("accepted");
        assert_eq!(known.hostname(), Some("b\u{fffd}ro"));
    }

    #[test]
    fn the_answer_is_ok_without_negotiation_and_json_with_it() {
        let config = Config::default();
        let plain = parse(b"null", &config).expect("null is accepted");
        assert_eq!(plain.answer(&config), b"OK");
        let asked =
            parse(br#"{"feature_negotiation":true,"output_buffer_size":-1,"srtm":{"v":1,"receipts":true}}"#, &config)
                .expect("valid");
        let answer: serde_json::Value = serde_json::from_slice(&asked.answer(&config)).expect("JSON");
        assert_eq!(answer["output_buffer_size"], 1);
        assert_eq!(answer["output_buffer_timeout"], 0);
        assert_eq!(answer["srtm"]["v"], 1);
        assert!(asked.receipts);
    }
}
