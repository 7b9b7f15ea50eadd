//! What Python may see of an engine, taken between turns (the shapes of docs/reference.md, "Snapshot").

use std::collections::BTreeMap;

use serde::Serialize;

use crate::clients::connection::Connection;
use crate::config::ClockSource;
use crate::engine::Engine;
use crate::engine::mqtt::inspection::{HeldView, LinkWayView};
use crate::keys::{ConnKey, TopicKey};
use crate::protocol::identify::Compression;
use crate::queueing::channel::Channel;
use crate::queueing::topic::{Limiter, Topic};
use crate::scheduling::service_time::ServiceTime;
use crate::telemetry::e2e_latency::{self, E2eView};
use crate::telemetry::latency::Summaries;
use crate::time::Nanos;

#[derive(Debug, Serialize)]
pub struct Snapshot {
    now_ns: Nanos,
    wall_ns: i64,
    memory_bytes: u64,
    max_memory_bytes: u64,
    connections: usize,
    http_connections: usize,
    accepted: u64,
    accept_failures: u64,
    limits_met: BTreeMap<&'static str, u64>,
    postponements: u64,
    unfinished_bytes: u64,
    unread_bytes: u64,
    timestamp_fallbacks: u64,
    timestamp_bias_max_ns: Nanos,
    publish_reads: u64,
    packet_fallbacks: u64,
    packets_lost: u64,
    clock_steps: u64,
    stamps_corrected: u64,
    merged_reads: u64,
    lab_service_time_ns: u64,
    accepting: bool,
    mqtt: MqttFigures,
    mqtt_topics: Vec<HeldView>, // those that are at other brokers alone too
    pub(crate) topics: Vec<TopicView>,
    pub(crate) links: Vec<LinkWayView>,
    producers: Vec<ClientView>,
    #[serde(skip)]
    publishing: Vec<ConnKey>, // those of `producers`
}

/// Of MQTT; counters since the start.
#[derive(Debug, Serialize)]
struct MqttFigures {
    sessions: usize,
    subscriptions: usize,
    retained: usize,
    published: u64,
    delivered: u64,
    dropped: u64,
    denied: u64,
    expired: u64,
    refused: u64,
    tells_topics: bool, // somebody may have subscribed to what is told of topics
}

#[derive(Debug, Serialize)]
pub struct TopicView {
    topic_name: String,
    paused: bool,
    held: bool,
    depth: usize,
    backend_depth: usize,
    dropped: u64,
    message_count: u64,
    message_bytes: u64,
    received: u64,
    released: u64,
    rejected: u64,
    mqtt_refused: [u64; 3], // by QoS
    mqtt_dropped: [u64; 3],
    channels: Vec<ChannelView>,
    bucket: Option<BucketView>,
    latency: Summaries,
    network_ns: Option<Nanos>,
    e2e: Option<E2eView>,
}

#[derive(Debug, Serialize)]
struct ChannelView {
    channel_name: String,
    paused: bool,
    depth: usize,
    backend_depth: usize,
    dropped: u64,
    in_flight_count: usize,
    deferred_count: usize,
    message_count: u64,
    requeue_count: u64,
    timeout_count: u64,
    zone_local_msg_count: u64,
    region_local_msg_count: u64,
    global_msg_count: u64,
    client_count: usize,
    clients: Vec<ClientView>,
    #[serde(skip)]
    consumers: Vec<ConnKey>, // those of `clients`
    e2e: Option<E2eView>,
}

#[derive(Debug, Serialize)]
struct BucketView {
    rate_micro: u64,
    burst_micro: u64,
    reject: bool,
    max_backlog: u64,
    max_backlog_bytes: u64,
    version: u64,
    fill: f64,
    received: u64,
    released: u64,
    delayed: u64,
    rejected: u64,
    undeclared: u64,
    backlog: usize,
    backlog_bytes: u64,
    largest_backlog: f64,
    lateness_max_ns: Nanos,
    timestamp_source: &'static str,
    lease_left_ns: Option<Nanos>,
    lapses: u64,
}

#[derive(Debug, Serialize)]
pub struct ClientView {
    client_id: String,
    hostname: String,
    user_agent: String,
    remote_address: String,
    state: u8,
    ready_count: u32,
    in_flight_count: u32,
    message_count: u64,
    finish_count: u64,
    requeue_count: u64,
    connect_ts: i64,
    sample_rate: u8,
    aware: bool,
    authed: bool,
    auth_identity: String,
    auth_identity_url: String,
    topology_region: String,
    topology_zone: String,
    deflate: bool,
    snappy: bool,
    tls: bool,
    tls_version: &'static str,
    tls_cipher_suite: String,
    tls_negotiated_protocol: String,
    tls_negotiated_protocol_is_mutual: bool,
    pub_counts: Vec<PubCount>,
}

#[derive(Debug, Serialize)]
struct PubCount {
    topic: String,
    count: u64,
}

impl Snapshot {
    /// Connections whose views are to be asked for, as `complete` takes them.
    pub fn client_keys(&self) -> Vec<ConnKey> {
        let channels = self.topics.iter().flat_map(|topic| &topic.channels);
        self.publishing.iter().chain(channels.flat_map(|channel| &channel.consumers)).copied().collect()
    }

    /// Assigns the clients of `client_keys` to their topics, and sorts all by name. Sorting runs outside the reactor's
    /// thread.
    pub fn complete(&mut self, clients: Vec<Option<ClientView>>) {
        let mut clients = clients.into_iter();
        self.producers = clients.by_ref().take(self.publishing.len()).flatten().collect();
        for channel in self.topics.iter_mut().flat_map(|topic| &mut topic.channels) {
            channel.clients = clients.by_ref().take(channel.consumers.len()).flatten().collect();
        }
        self.topics.sort_by(|a, b| a.topic_name.cmp(&b.topic_name));
        for topic in &mut self.topics {
            topic.channels.sort_by(|a, b| a.channel_name.cmp(&b.channel_name));
        }
    }
}

impl Engine {
    /// The snapshot without topics and clients, and the keys of the requested topics ("" = all). `clients`: include
    /// connections.
    pub fn overview(&mut self, topic: &str, clients: bool, now: Nanos) -> (Snapshot, Vec<TopicKey>) {
        let keys =
            if topic.is_empty() { self.topics.keys().collect() } else { self.topic_key(topic).into_iter().collect() };
        self.count_restored();
        let publishes = |conn: &Connection| clients && conn.http.is_none() && !conn.published.is_empty();
        let publishing = self.conns.iter().filter(|(_, conn)| publishes(conn)).map(|(key, _)| key).collect();
        let overview = Snapshot {
            now_ns: now,
            wall_ns: self.clock.wall(now),
            memory_bytes: self.memory_used(),
            max_memory_bytes: self.config.max_memory_bytes,
            connections: self.conns.len() - self.http.connections,
            http_connections: self.http.connections,
            accepted: self.counters.accepted,
            accept_failures: self.counters.accept_failures,
            limits_met: self.limits.counts().collect(),
            postponements: self.work.postponements,
            unfinished_bytes: self.limits.unfinished.used(),
            unread_bytes: self.limits.unread.used(),
            timestamp_fallbacks: self.counters.timestamp_fallbacks,
            timestamp_bias_max_ns: self.counters.sharing.bias_max,
            publish_reads: self.counters.sharing.reads,
            packet_fallbacks: self.counters.packet_fallbacks,
            packets_lost: self.counters.packets_lost,
            clock_steps: self.counters.clock_steps,
            stamps_corrected: self.counters.stamps_corrected,
            merged_reads: self.counters.sharing.merged,
            lab_service_time_ns: self.config.lab_service_time_ns,
            accepting: self.refusal.is_none(),
            mqtt: self.mqtt_figures(),
            mqtt_topics: self.held_views(topic),
            topics: Vec::new(),
            links: Vec::new(),
            producers: Vec::new(),
            publishing,
        };
        (overview, keys)
    }

    fn mqtt_figures(&self) -> MqttFigures {
        let (hub, counters) = (&self.mqtt, self.mqtt.counters);
        MqttFigures {
            sessions: hub.sessions.len(),
            subscriptions: hub.filters.len(),
            retained: hub.retained.len(),
            published: counters.published,
            delivered: counters.delivered,
            dropped: counters.dropped,
            denied: counters.denied,
            expired: counters.expired,
            refused: counters.refused,
            tells_topics: self.tells_topics(),
        }
    }

    /// Views of the topics of `keys` that still exist. A busy topic takes about 0.1 ms, so a caller with many asks for
    /// a few at a time. `channel`: only that one.
    pub fn topic_views(&mut self, keys: &[TopicKey], channel: &str, clients: bool, now: Nanos) -> Vec<TopicView> {
        let there: Vec<TopicKey> = keys.iter().copied().filter(|key| self.topics.contains_key(*key)).collect();
        there.into_iter().map(|key| self.topic_view(key, channel, clients, now)).collect()
    }

    /// Views of the connections of `keys` that still exist. A caller with many asks for some hundred at a time.
    pub fn client_views(&self, keys: &[ConnKey]) -> Vec<Option<ClientView>> {
        keys.iter().map(|key| self.conns.get(*key).map(client_view)).collect()
    }

    fn topic_view(&mut self, key: TopicKey, channel: &str, clients: bool, now: Nanos) -> TopicView {
        let source = match self.config.arrival_clock {
            ClockSource::Packet => "packet",
            ClockSource::Kernel if self.counters.timestamp_fallbacks == 0 => "kernel",
            ClockSource::Kernel => "read",
        };
        let topic = &mut self.topics[key];
        let latency = topic.latency.as_mut().map(|latency| latency.summaries(now)).unwrap_or_default();
        let topic = &self.topics[key];
        let channels = topic.channels.iter().filter_map(|key| self.channels.get(*key));
        let channels = channels.filter(|c| channel.is_empty() || &*c.name == channel);
        let e2e = self.e2e_view(topic.channels.iter().filter_map(|key| self.channels.get(*key)), now);
        TopicView {
            e2e,
            topic_name: topic.name.to_string(),
            paused: topic.paused,
            held: topic.held,
            depth: topic.queue.len() + topic.waiting() + self.server.waiting(key),
            backend_depth: topic.queue.backend_len(),
            dropped: topic.queue.dropped(),
            message_count: topic.counters.messages,
            message_bytes: topic.counters.bytes,
            received: topic.counters.received,
            released: topic.counters.released,
            rejected: topic.counters.rejected,
            mqtt_refused: topic.counters.mqtt_refused,
            mqtt_dropped: topic.counters.mqtt_dropped,
            channels: channels.map(|channel| self.channel_view(channel, clients, now)).collect(),
            bucket: topic
                .limiter
                .as_ref()
                .map(|limiter| bucket_view(topic, limiter, source, now, self.clock.suspended())),
            latency,
            network_ns: self.network_delay.known(key).map(|network| network.typical()),
        }
    }

    fn e2e_view<'a>(&self, channels: impl Iterator<Item = &'a Channel>, now: Nanos) -> Option<E2eView> {
        let shares = &self.config.e2e_percentiles;
        let kept = channels.filter_map(|channel| channel.e2e.as_deref());
        (!shares.is_empty()).then(|| e2e_latency::view(kept, shares, self.config.e2e_window_ns(), now))
    }

    fn channel_view(&self, channel: &Channel, clients: bool, now: Nanos) -> ChannelView {
        ChannelView {
            e2e: self.e2e_view(std::iter::once(channel), now),
            channel_name: channel.name.to_string(),
            paused: channel.paused,
            depth: channel.queue.len(),
            backend_depth: channel.queue.backend_len(),
            dropped: channel.queue.dropped(),
            in_flight_count: channel.in_flight.len(),
            deferred_count: channel.deferred.len(),
            message_count: channel.counters.messages,
            requeue_count: channel.counters.requeued,
            timeout_count: channel.counters.timed_out,
            zone_local_msg_count: channel.counters.deliveries.zone,
            region_local_msg_count: channel.counters.deliveries.region,
            global_msg_count: channel.counters.deliveries.far,
            client_count: channel.consumers.len(),
            clients: Vec::new(),
            consumers: if clients { channel.consumers.to_vec() } else { Vec::new() },
        }
    }
}

fn bucket_view(
    topic: &Topic,
    limiter: &Limiter,
    timestamp_source: &'static str,
    now: Nanos,
    suspended: Nanos,
) -> BucketView {
    let (limit, counters) = (limiter.limit, &topic.counters);
    let is_void = limiter.is_over(now + suspended); // whether or not anything has come since
    BucketView {
        rate_micro: if is_void { 0 } else { limit.rate_micro },
        burst_micro: if is_void { 0 } else { limit.burst_micro },
        reject: limit.reject,
        max_backlog: limit.max_backlog,
        max_backlog_bytes: limit.max_backlog_bytes,
        version: limit.version,
        fill: if is_void { 0.0 } else { limiter.fill_tokens(now) },
        received: counters.received,
        released: counters.released,
        delayed: counters.delayed,
        rejected: counters.rejected,
        undeclared: counters.undeclared,
        backlog: limiter.backlog.len(),
        backlog_bytes: limiter.backlog_bytes,
        largest_backlog: limiter.largest_backlog(now),
        lateness_max_ns: limiter.lateness_max,
        timestamp_source,
        lease_left_ns: (limit.expires < Nanos::MAX).then(|| limit.expires - suspended - now),
        lapses: limiter.lapses,
    }
}

fn client_view(conn: &Connection) -> ClientView {
    let sub = conn.subscription.as_deref();
    let identity = conn.auth.as_ref().and_then(|auth| auth.identity());
    let (auth_identity, auth_identity_url) = identity.unwrap_or_default();
    let compression = conn.layers.as_ref().and_then(|layers| layers.compression());
    let session = conn.layers.as_ref().and_then(|layers| layers.session());
    ClientView {
        client_id: conn.client_id().into(),
        hostname: conn.hostname().into(),
        user_agent: conn.identity().user_agent().to_owned(),
        remote_address: conn.remote.to_string(),
        state: conn.state as u8,
        ready_count: sub.map_or(0, |sub| sub.ready),
        in_flight_count: sub.map_or(0, |sub| sub.in_flight),
        message_count: sub.map_or(0, |sub| sub.messages),
        finish_count: sub.map_or(0, |sub| sub.finished),
        requeue_count: sub.map_or(0, |sub| sub.requeued),
        connect_ts: conn.connected_wall_ns / 1_000_000_000,
        sample_rate: conn.identity().sample_rate,
        aware: conn.identity().aware,
        authed: identity.is_some(),
        auth_identity: auth_identity.into(),
        auth_identity_url: auth_identity_url.into(),
        topology_region: conn.identity().topology_region().to_owned(),
        topology_zone: conn.identity().topology_zone().to_owned(),
        deflate: matches!(compression, Some(Compression::Deflate { .. })),
        snappy: compression == Some(Compression::Snappy),
        tls: session.is_some(),
        tls_version: session.map_or("", |session| session.version),
        tls_cipher_suite: session.map_or_else(String::new, |session| session.cipher_suite.clone()),
        tls_negotiated_protocol: session.map_or_else(String::new, |session| session.protocol.clone()),
        tls_negotiated_protocol_is_mutual: session.is_some(), // Go's library says so of every connection
        pub_counts: conn.published.iter().map(|p| PubCount { topic: p.name.to_string(), count: p.count }).collect(),
    }
}
