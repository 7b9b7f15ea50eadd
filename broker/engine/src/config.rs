//! Settings of the engine, read once from Python's JSON. Fields and defaults are those of `broker.config.EngineConfig`.

use serde::Deserialize;

use crate::time::Nanos;

/// Whose word counts for when a message arrived (`io::arrival_clock`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockSource {
    /// The kernel's stamp of a read: one for all that is merged in it.
    Kernel,
    /// The stamp of each segment, from a ring of packets.
    Packet,
}

/// A setting that cannot be used: its field, and what it must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {rule}")]
pub struct BadSetting {
    pub field: &'static str,
    pub rule: String,
}

impl BadSetting {
    pub fn new(field: &'static str, rule: impl Into<String>) -> Self {
        Self { field, rule: rule.into() }
    }
}

/// Who must use TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TlsRequired {
    False,
    /// Clients of the TCP port.
    TcpHttps,
    /// These, and clients of the HTTP port.
    True,
}

/// What a rule of the access file says of the names of its pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessAction {
    Read,
    Write,
    ReadWrite,
    Deny,
}

/// How identity and pattern of a row are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowForm {
    /// `*` stands for any characters; the pattern is of topics, and of MQTT names that belong to none.
    Stars,
    /// Exactly this identity, "" for who has no name; the pattern is a filter of MQTT.
    Filter,
    /// Everybody; the pattern is such a filter, in which `%c` and `%u` stand for client id and name.
    Template,
}

/// A row of who may do what (`protocol::access`).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessRow {
    pub identity: String,
    pub action: AccessAction,
    pub pattern: String,
    pub form: RowForm,
}

/// A token by whose name rows judge.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenHolder {
    pub sha256: String, // in base64
    pub name: String,
    pub operator: bool, // it may do everything
}

/// Who is let in and may do what, by NSQ, HTTP and MQTT.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessRules {
    pub rows: Option<Vec<AccessRow>>,     // None: who is let in may do everything
    pub users: Option<Vec<User>>,         // None: no passwords are asked for
    pub tokens: Option<Vec<TokenHolder>>, // None: no tokens are
}

/// A user and the hash of his password.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    pub name: String,
    pub iterations: u32, // of PBKDF2 with SHA-512; 0: one SHA-512 of password and salt
    pub salt: String,    // in base64, as the hash
    pub hash: String,
}

/// By what a publisher of MQTT is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MqttIdentity {
    ClientId,
    Username,
    /// The common name of its certificate.
    CertCn,
}

/// What becomes of a PUBLISH for which a session that outlives its connection, or the group of such a one, has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FullSession {
    /// That session or group does not get it.
    Drop,
    /// Nobody gets it, and the publisher is told so.
    Refuse,
}

/// What becomes of MQTT names that no topic has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unmanaged {
    /// They belong to `mqtt_topic`.
    Accept,
    /// Nobody may publish under them, nor subscribe to one of them.
    Refuse,
}

/// Which certificate a TLS client must show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientAuth {
    #[serde(rename = "")]
    None,
    /// Any one.
    Require,
    /// One of `tls_root_ca_pem`'s.
    RequireVerify,
}

/// The oldest version allowed. There is none older than 1.2: the first two mean that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum TlsVersion {
    #[serde(rename = "tls1.0")]
    V1_0,
    #[serde(rename = "tls1.1")]
    V1_1,
    #[serde(rename = "tls1.2")]
    V1_2,
    #[serde(rename = "tls1.3")]
    V1_3,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub tcp_address: String,
    pub arrival_clock: ClockSource,
    pub http_address: String,
    pub https_address: String,
    pub mqtt_address: String,
    pub mqtts_address: String,                // the same inside TLS
    pub mqtt_ws_address: String,              // in WebSocket
    pub mqtt_wss_address: String,             // in WebSocket inside TLS
    pub mqtt_ws_origins: Option<Vec<String>>, // whose pages may use WebSocket; None: all
    pub mqtt_identity: MqttIdentity,
    pub mqtt_topic: String,             // of names that no topic owns
    pub mqtt_unmanaged: Unmanaged,      // whether there are such names
    pub mqtt_max_keep_alive_s: u16,     // that 5.0's clients are told; 0: as they wish
    pub mqtt_receive_maximum: u16,      // publishes of QoS 2 that a client may leave unreleased
    pub mqtt_max_in_flight: u16,        // deliveries of QoS 1 and 2 that a client may leave unacknowledged
    pub mqtt_max_queued: usize,         // messages that wait for a session
    pub mqtt_full_session: FullSession, // where a session that outlives its connection has no room
    pub mqtt_max_retained: usize,       // messages
    pub mqtt_max_sessions: usize,       // that outlive their connections
    pub mqtt_max_subscriptions: usize,  // of a session
    pub mqtt_max_session_expiry_s: u32,
    pub http_idle_timeout_ms: u64,
    pub http_token: String,
    pub access: AccessRules,
    pub anonymous: bool, // clients that do not say who they are may come in, by whatever protocol
    pub realtime: bool,
    pub node_id: u16,
    pub version: String,
    pub max_rdy_count: u32,
    pub msg_timeout_ms: u64,
    pub max_msg_timeout_ms: u64,
    pub max_req_timeout_ms: u64,
    pub max_msg_size: u32,
    pub max_body_size: u32,
    pub heartbeat_interval_ms: u64,
    pub max_heartbeat_interval_ms: u64,
    pub output_buffer_size: u32,
    pub max_output_buffer_size: u32,
    pub output_buffer_timeout_ms: u64,
    pub min_output_buffer_timeout_ms: u64,
    pub max_output_buffer_timeout_ms: u64,
    pub max_channel_consumers: u32,
    pub auth_servers: bool,        // they are asked who clients are
    pub auth_by_http: bool,        // also who publishes by HTTP
    pub e2e_percentiles: Vec<f64>, // of publish to FIN, above 0 and at most 1; none: not measured
    pub e2e_window_ms: u64,
    pub max_memory_bytes: u64,
    pub max_connections: u32,             // 0: as many as there are descriptors
    pub max_connections_per_address: u32, // 0: seven eighths of these
    pub max_topics: u32,                  // that clients make; 0: no limit, also of the next
    pub max_channels_per_topic: u32,
    pub max_mpub_messages: u32,
    pub max_unfinished_bytes: u64, // of commands, all connections together
    pub max_unread_bytes: u64,     // of output
    pub data_path: String,         // "": no disk, queues are bounded by memory alone
    pub mem_queue_size: usize,
    pub max_bytes_per_file: u64,
    pub sync_every: u64,
    pub sync_timeout_ms: u64,
    pub trace_entries: usize,
    pub lab_service_time_ns: u64, // simulated service time of a message in ns; 0: off
    pub hold_new_topics: bool,
    pub accepting: bool,
    pub not_accepting_reason: String,
    pub tls_cert_pem: String,    // "" = none
    pub tls_key_pem: String,     // "" = none
    pub tls_root_ca_pem: String, // "" = none
    pub tls_client_auth_policy: ClientAuth,
    pub tls_required: TlsRequired,
    pub tls_min_version: TlsVersion,
    pub deflate: bool,
    pub max_deflate_level: u8,
    pub snappy: bool,
    pub topology_region: String,
    pub topology_zone: String,
    pub topology_aware: bool, // prefer consumers that are near
}

/// Upper bound of all durations, small enough that an instant so far ahead fits into nanoseconds.
const LONGEST_MS: u64 = 3_155_760_000_000;

impl Config {
    /// Whether any listener is for MQTT.
    pub fn speaks_mqtt(&self) -> bool {
        let all = [&self.mqtt_address, &self.mqtts_address, &self.mqtt_ws_address, &self.mqtt_wss_address];
        all.iter().any(|address| !address.is_empty())
    }

    /// Checks the rules that types cannot express.
    pub fn check(&self) -> Result<(), BadSetting> {
        if !cfg!(feature = "lab") && self.lab_service_time_ns > 0 {
            return Err(BadSetting::new("lab_service_time_ns", "needs a build with the cargo feature lab"));
        }
        if !self.https_address.is_empty() && self.tls_cert_pem.is_empty() {
            return Err(BadSetting::new("https_address", "needs a certificate and a key (tls_cert, tls_key)"));
        }
        let encrypted = [("mqtts_address", &self.mqtts_address), ("mqtt_wss_address", &self.mqtt_wss_address)];
        if let Some((name, _)) = encrypted.iter().find(|one| !one.1.is_empty() && self.tls_cert_pem.is_empty()) {
            return Err(BadSetting::new(name, "needs a certificate and a key (tls_cert, tls_key)"));
        }
        if u32::try_from(self.max_req_timeout_ms).is_err() {
            return Err(BadSetting::new("max_req_timeout_ms", "must be at most 4294967295 ms (49 days)"));
        }
        let spans = [
            ("msg_timeout_ms", self.msg_timeout_ms),
            ("max_msg_timeout_ms", self.max_msg_timeout_ms),
            ("http_idle_timeout_ms", self.http_idle_timeout_ms),
            ("e2e_window_ms", self.e2e_window_ms),
            ("heartbeat_interval_ms", self.heartbeat_interval_ms),
            ("max_heartbeat_interval_ms", self.max_heartbeat_interval_ms),
        ];
        for (name, ms) in spans {
            if ms > LONGEST_MS {
                return Err(BadSetting::new(name, "must be at most 3155760000000 ms (100 years)"));
            }
        }
        if (1..=9).contains(&self.max_deflate_level) {
            Ok(())
        } else {
            Err(BadSetting::new("max_deflate_level", "must be 1 to 9"))
        }
    }

    pub fn e2e_window_ns(&self) -> Nanos {
        self.e2e_window_ms as Nanos * 1_000_000
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tcp_address: "127.0.0.1:4150".into(),
            arrival_clock: ClockSource::Kernel,
            http_address: String::new(),
            https_address: String::new(),
            mqtt_address: String::new(),
            mqtts_address: String::new(),
            mqtt_ws_address: String::new(),
            mqtt_wss_address: String::new(),
            mqtt_ws_origins: None,
            mqtt_identity: MqttIdentity::ClientId,
            mqtt_topic: "default".into(),
            mqtt_unmanaged: Unmanaged::Accept,
            mqtt_max_keep_alive_s: 0,
            mqtt_receive_maximum: 256,
            mqtt_max_in_flight: 64,
            mqtt_max_queued: 10_000,
            mqtt_full_session: FullSession::Drop,
            mqtt_max_retained: 100_000,
            mqtt_max_sessions: 100_000,
            mqtt_max_subscriptions: 10_000,
            mqtt_max_session_expiry_s: 604_800,
            http_idle_timeout_ms: 0,
            http_token: String::new(),
            access: AccessRules::default(),
            anonymous: true,
            realtime: false,
            node_id: 0,
            version: "1.3.0".into(),
            max_rdy_count: 2_500,
            msg_timeout_ms: 60_000,
            max_msg_timeout_ms: 900_000,
            max_req_timeout_ms: 3_600_000,
            max_msg_size: 1_048_576,
            max_body_size: 5_242_880,
            heartbeat_interval_ms: 30_000,
            max_heartbeat_interval_ms: 60_000,
            output_buffer_size: 16_384,
            max_output_buffer_size: 65_536,
            output_buffer_timeout_ms: 250,
            min_output_buffer_timeout_ms: 25,
            max_output_buffer_timeout_ms: 30_000,
            max_channel_consumers: 0,
            auth_servers: false,
            auth_by_http: false,
            e2e_percentiles: Vec::new(),
            e2e_window_ms: 600_000,
            max_memory_bytes: 1 << 30,
            max_connections: 0,
            max_connections_per_address: 0,
            max_topics: 10_000,
            max_channels_per_topic: 1_000,
            max_mpub_messages: 65_536,
            max_unfinished_bytes: 128 << 20,
            max_unread_bytes: 256 << 20,
            data_path: String::new(),
            mem_queue_size: 10_000,
            max_bytes_per_file: 104_857_600,
            sync_every: 2_500,
            sync_timeout_ms: 2_000,
            trace_entries: 1_000_000,
            lab_service_time_ns: 0,
            hold_new_topics: false,
            accepting: true,
            not_accepting_reason: String::new(),
            tls_cert_pem: String::new(),
            tls_key_pem: String::new(),
            tls_root_ca_pem: String::new(),
            tls_client_auth_policy: ClientAuth::None,
            tls_required: TlsRequired::False,
            tls_min_version: TlsVersion::V1_0,
            deflate: true,
            max_deflate_level: 6,
            snappy: true,
            topology_region: String::new(),
            topology_zone: String::new(),
            topology_aware: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(feature = "lab"))]
    #[test]
    fn a_service_time_needs_a_build_with_its_feature() {
        let refused = Config { lab_service_time_ns: 1, ..Config::default() }.check().expect_err("no such feature");
        assert_eq!(refused.to_string(), "lab_service_time_ns: needs a build with the cargo feature lab");
    }

    #[test]
    fn no_span_is_so_long_that_its_end_cannot_be_counted_in_nanoseconds() {
        type Setter = fn(&mut Config, u64);
        let set: [(&str, Setter); 6] = [
            ("msg_timeout_ms", |config, ms| config.msg_timeout_ms = ms),
            ("max_msg_timeout_ms", |config, ms| config.max_msg_timeout_ms = ms),
            ("http_idle_timeout_ms", |config, ms| config.http_idle_timeout_ms = ms),
            ("e2e_window_ms", |config, ms| config.e2e_window_ms = ms),
            ("heartbeat_interval_ms", |config, ms| config.heartbeat_interval_ms = ms),
            ("max_heartbeat_interval_ms", |config, ms| config.max_heartbeat_interval_ms = ms),
        ];
        for (name, set) in set {
            let mut config = Config::default();
            set(&mut config, LONGEST_MS);
            assert_eq!(config.check().map_err(|bad| bad.to_string()), Ok(()), "{name}");
            set(&mut config, LONGEST_MS + 1);
            let refused = config.check().expect_err(name).to_string();
            assert!(refused.contains(name) && refused.contains("at most 3155760000000 ms"), "{refused}");
        }
    }
}
