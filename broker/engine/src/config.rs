//! Settings of the engine, compiled once from the JSON that Python hands down. Fields and defaults are those of `broker.config.EngineConfig`.

use serde::Deserialize;

use crate::bucket::Nanos;

/// Whose word counts for when a message arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrivalClock {
    /// The kernel's stamp of a read: one for all that is merged in it.
    Kernel,
    /// The stamp of each segment, from a ring of packets.
    Packet,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub tcp_address: String,
    pub arrival_clock: ArrivalClock,
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
    pub auth_required: bool,
    pub e2e_percentiles: Vec<f64>, // of publish to FIN, above 0 and at most 1; none: not measured
    pub e2e_window_ms: u64,
    pub max_memory_bytes: u64,
    pub trace_entries: usize,
    pub hold_new_topics: bool,
    pub accepting: bool,
    pub not_accepting_reason: String,
}

impl Config {
    pub fn e2e_window_ns(&self) -> Nanos {
        self.e2e_window_ms as Nanos * 1_000_000
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tcp_address: "127.0.0.1:4150".into(),
            arrival_clock: ArrivalClock::Kernel,
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
            auth_required: false,
            e2e_percentiles: Vec::new(),
            e2e_window_ms: 600_000,
            max_memory_bytes: 1 << 30,
            trace_entries: 1_000_000,
            hold_new_topics: false,
            accepting: true,
            not_accepting_reason: String::new(),
        }
    }
}
