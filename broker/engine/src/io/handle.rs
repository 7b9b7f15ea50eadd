//! An engine's handle for other threads: start and stop, commands between two turns, events.
//!
//! No lock of this file is on the message path.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::ServerConfig;
use serde::Serialize;
use srtm_limits::contract::Contract;
use srtm_limits::limiter::Refused;

use crate::config::{BadSetting, Config};
use crate::engine::Engine;
use crate::engine::control::TopicBins;
use crate::engine::mqtt::inspection::{RetainedView, SessionView};
use crate::engine::snapshot::Snapshot;
use crate::event::Event;
use crate::http::Handed;
use crate::io::clock::{ClockMap, monotonic};
use crate::io::errors::{HandleError, LinkError, NotRunning, RenewError, StartError};
use crate::io::files::Files;
use crate::io::host::heap;
use crate::io::listener::{self, Ports};
use crate::io::reactor::{self, Reactor};
use crate::io::shared::{NewLink, Shared, held};
use crate::io::socket;
use crate::keys::{TopicKey, VISITS_A_TURN};
use crate::limiter::contracts::ContractView;
use crate::limiter::trace::{Columns, Trace};
use crate::protocol::link_frames::Opening;
use crate::telemetry::arrival_bins;
use crate::telemetry::latency_buckets::TopicBuckets;
use crate::telemetry::measurement::{Measurement, Recording};
use crate::time::Nanos;
use crate::transport::tls::server_config;

/// What one turn may spend on a snapshot or a trace: some tenths of a millisecond.
const TOPICS_A_TURN: usize = 4;
const ENTRIES_A_TURN: u64 = 5_000;

/// What came to topics. `until`: the number of the first bin that is not over.
#[derive(Debug, Serialize)]
pub struct Histories {
    until: i64,
    bin_ns: Nanos,
    wall_offset_ns: i64,
    topics: Vec<TopicBins>,
}

/// A broker's data plane.
pub struct Handle {
    config: Config,
    tls: Option<Arc<ServerConfig>>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Handle {
    pub fn new(config: Config) -> Result<Self, HandleError> {
        config.check()?;
        let tls = server_config(&config)?;
        Ok(Self { config, tls, shared: Arc::new(Shared::new()?), thread: Mutex::new(None) })
    }

    /// Binds all ports, then starts; returns the bound ports.
    ///
    /// A second start is an error, also after `stop`; a start after a failed bind is not.
    pub fn start(&self) -> Result<Ports, StartError> {
        let mut running = held(self.thread.lock());
        if running.is_some() || held(self.shared.commands.lock()).ended || self.shared.stopping() {
            return Err(std::io::Error::other("the engine was started or stopped before").into());
        }
        socket::raise_descriptor_limit();
        heap::keep_freed_memory();
        let (listeners, ports) = listener::listen_all(&self.config)?;
        let (config, tls, shared) = (self.config.clone(), self.tls.clone(), Arc::clone(&self.shared));
        // The engine is made on its own thread: its messages are counted without atomics and never leave it.
        let (ready, started) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("srtm-engine".into()).spawn(move || {
            let opened = open_engine(config, tls, &shared).and_then(|mut engine| {
                engine.set_https_port(ports.https.unwrap_or_default());
                Ok(Reactor::new(engine, listeners, Arc::clone(&shared))?)
            });
            match opened {
                Ok(reactor) => {
                    let _ = ready.send(Ok(()));
                    reactor::run(reactor, &shared);
                }
                Err(error) => {
                    shared.ended();
                    let _ = ready.send(Err(error));
                }
            }
        })?;
        *running = Some(thread);
        drop(running);
        started.recv().map_err(std::io::Error::other)??;
        Ok(ports)
    }

    /// Stops the reactor, which saves all queues, and waits for its end. Idempotent.
    ///
    /// Returns false if no file operation ended within `patience`, or if the save was incomplete (an event says why).
    pub fn stop(&self, patience: Duration) -> bool {
        self.shared.ask_to_stop();
        if held(self.thread.lock()).is_none() {
            return !self.shared.unsaved.load(Ordering::Acquire);
        }
        let ended = self.shared.saving.wait_while_it_goes_on(|| self.shared.wait_for_end(patience));
        if ended && let Some(thread) = held(self.thread.lock()).take() {
            return thread.join().is_ok() && !self.shared.unsaved.load(Ordering::Acquire);
        }
        ended && !self.shared.unsaved.load(Ordering::Acquire)
    }

    /// Take other certificates: handshakes that begin from now on get them. If they are refused, those there are stay.
    pub fn renew_certificates(&self, cert_pem: String, key_pem: String, root_ca_pem: String) -> Result<(), RenewError> {
        let config = Config {
            tls_cert_pem: cert_pem,
            tls_key_pem: key_pem,
            tls_root_ca_pem: root_ca_pem,
            ..self.config.clone()
        };
        let none = || BadSetting::new("tls_cert_pem", "must hold a certificate in PEM");
        let tls = server_config(&config)?.ok_or_else(none)?;
        Ok(self.call(|engine, _| engine.renew_tls(tls))?)
    }

    /// Run `command` between two turns and wait for what it gives.
    pub fn call<T: Send + 'static>(
        &self,
        command: impl FnOnce(&mut Engine, Nanos) -> T + Send + 'static,
    ) -> Result<T, NotRunning> {
        let (sender, receiver) = mpsc::sync_channel(1);
        if held(self.thread.lock()).is_none() {
            return Err(NotRunning);
        }
        {
            let mut inbox = held(self.shared.commands.lock());
            if inbox.ended {
                return Err(NotRunning);
            }
            inbox.commands.push(Box::new(move |engine, now| {
                // The receiver waits below and cannot be gone.
                let _ = sender.send(command(engine, now));
            }));
        }
        self.shared.wake.wake();
        receiver.recv().map_err(|_| NotRunning)
    }

    /// Hands a connection to another broker over to the engine. It tells of its end as `LinkEnded`.
    pub fn open_link(&self, number: u64, fd: OwnedFd, opening: Opening, remote: String) -> Result<(), LinkError> {
        match socket::set_stream_options(fd.as_raw_fd()) {
            // One end of a pair, whose other end goes on inside TLS.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            done => done?,
        }
        let mut inbox = held(self.shared.commands.lock());
        if inbox.ended {
            return Err(NotRunning.into());
        }
        inbox.links.push(NewLink { number, fd, opening, remote });
        drop(inbox);
        self.shared.wake.wake();
        Ok(())
    }

    /// A snapshot of `topic` and `channel` ("" = all). It is taken over several turns, a few topics or some hundred
    /// clients each, so that no message waits long.
    pub fn snapshot(&self, topic: String, channel: &str, clients: bool) -> Result<Snapshot, NotRunning> {
        let is_whole = topic.is_empty();
        let (mut snapshot, keys) = self.call(move |engine, now| {
            engine.ask_network_delay(now);
            engine.overview(&topic, clients, now)
        })?;
        for keys in keys.chunks(TOPICS_A_TURN) {
            let (keys, channel) = (keys.to_vec(), channel.to_owned());
            snapshot.topics.extend(self.call(move |engine, now| engine.topic_views(&keys, &channel, clients, now))?);
        }
        let mut has_more = is_whole;
        while has_more {
            let from = snapshot.links.len();
            let ways = self.call(move |engine, now| engine.link_way_views(from, TOPICS_A_TURN, now))?;
            has_more = !ways.is_empty();
            snapshot.links.extend(ways);
        }
        let mut views = Vec::new();
        for keys in snapshot.client_keys().chunks(VISITS_A_TURN) {
            let keys = keys.to_vec();
            views.extend(self.call(move |engine, _| engine.client_views(&keys))?);
        }
        snapshot.complete(views);
        Ok(snapshot)
    }

    /// Puts contracts in force, some hundred a turn; gives the refusal of each.
    pub fn set_contracts(
        &self,
        contracts: Vec<(Contract, bool)>,
        rejoins: bool,
    ) -> Result<Vec<Option<Refused>>, NotRunning> {
        let mut refused = Vec::new();
        for some in contracts.chunks(VISITS_A_TURN) {
            let some = some.to_vec();
            refused.extend(self.call(move |engine, now| engine.set_contracts(some, rejoins, now))?);
        }
        Ok(refused)
    }

    /// What was asked of each contract, some hundred a turn.
    pub fn contract_views(&self) -> Result<Vec<ContractView>, NotRunning> {
        let (mut views, mut last) = (Vec::new(), 0);
        loop {
            let found = self.call(move |engine, _| engine.contracts.views(last, VISITS_A_TURN))?;
            let Some((number, _)) = found.last() else { return Ok(views) };
            last = *number;
            views.extend(found.into_iter().map(|(_, view)| view));
        }
    }

    /// MQTT's sessions, at most `most` of them, and how many there are; several turns, as a snapshot.
    pub fn mqtt_sessions(&self, most: usize) -> Result<(Vec<SessionView>, usize), NotRunning> {
        let keys = self.call(|engine, _| engine.mqtt_session_keys())?;
        let mut views = Vec::new();
        for part in keys.get(..most).unwrap_or(&keys).chunks(VISITS_A_TURN) {
            let part = part.to_vec();
            views.extend(self.call(move |engine, now| engine.mqtt_session_views(&part, false, now))?);
        }
        Ok((views, keys.len()))
    }

    /// The session of a client, with its filters.
    pub fn mqtt_session(&self, client_id: String) -> Result<Option<SessionView>, NotRunning> {
        self.call(move |engine, now| {
            let key = engine.mqtt_session_key(&client_id);
            engine.mqtt_session_views(key.as_slice(), true, now).pop()
        })
    }

    /// What is retained under a filter, at most `most`, in portions. `clear`: it is removed.
    pub fn mqtt_retained(&self, filter: &str, most: usize, clear: bool) -> Result<Vec<RetainedView>, NotRunning> {
        let (mut replay, mut views) = (Some(Engine::retained_under(filter)), Vec::new());
        while let Some(mut at) = replay.take().filter(|_| views.len() < most) {
            let (part, at, is_over) = self.call(move |engine, now| {
                let (part, is_over) = engine.mqtt_retained(&mut at, VISITS_A_TURN, clear, now);
                (part, at, is_over)
            })?;
            views.extend(part);
            replay = Some(at).filter(|_| !is_over);
        }
        Ok(views)
    }

    /// The recorded decisions of a limited topic; also in pieces. `None`: no such topic, or it has no limit.
    pub fn trace(&self, topic: String) -> Result<Option<Columns>, NotRunning> {
        loop {
            let identity = self.trace_identity(&topic)?;
            let columns = self.columns(&topic)?;
            if self.trace_identity(&topic)? == identity {
                return Ok(columns);
            } // else its limit went meanwhile, and names may be of another trace than entries
        }
    }

    fn trace_identity(&self, topic: &str) -> Result<Option<(TopicKey, u64)>, NotRunning> {
        let name = topic.to_owned();
        self.call(move |engine, _| engine.trace_identity(&name))
    }

    fn columns(&self, topic: &str) -> Result<Option<Columns>, NotRunning> {
        let name = topic.to_owned();
        let Some(range) = self.call(move |engine, _| engine.trace(&name).map(Trace::range))? else { return Ok(None) };
        let mut columns = Columns::default();
        for start in range.clone().step_by(ENTRIES_A_TURN as usize) {
            let (name, part) = (topic.to_owned(), start..(start + ENTRIES_A_TURN).min(range.end));
            let entries = self.call(move |engine, _| engine.trace(&name).map(|trace| trace.entries(part)))?;
            columns.extend(&entries.unwrap_or_default());
        }
        columns.publishers = self.publishers(topic)?;
        Ok(Some(columns))
    }

    /// Names by the index that a topic's trace has for them: all that its entries so far need.
    fn publishers(&self, topic: &str) -> Result<Vec<String>, NotRunning> {
        let mut names = Vec::new();
        loop {
            let (name, first) = (topic.to_owned(), names.len());
            let more = self.call(move |engine, _| {
                engine.trace(&name).map(|trace| trace.publishers(first, ENTRIES_A_TURN as usize))
            })?;
            match more.filter(|more| !more.is_empty()) {
                Some(more) => names.extend(more),
                None => return Ok(names),
            }
        }
    }

    /// What came to these topics from bin `since` on (0: as long as is kept), all up to one instant.
    pub fn histories(&self, topics: &[String], since: i64) -> Result<Histories, NotRunning> {
        let (until, wall_offset_ns) = self.call(|engine, now| (arrival_bins::open_at(now), engine.clock.offset()))?;
        let mut histories = Histories { until, bin_ns: arrival_bins::BIN_NS, wall_offset_ns, topics: Vec::new() };
        for topics in topics.chunks(VISITS_A_TURN) {
            let topics = topics.to_vec();
            histories.topics.extend(self.call(move |engine, now| engine.histories(&topics, since, until, now))?);
        }
        Ok(histories)
    }

    /// Latencies of `topics` by buckets, a few topics a turn.
    pub fn latency_buckets(&self, topics: &[String]) -> Result<Vec<TopicBuckets>, NotRunning> {
        let mut buckets = Vec::with_capacity(topics.len());
        for topics in topics.chunks(TOPICS_A_TURN) {
            let topics = topics.to_vec();
            buckets.extend(self.call(move |engine, _| engine.latency_buckets(&topics))?);
        }
        Ok(buckets)
    }

    /// A measurement of what arrives at a limited topic from now on; `None`: no such topic, or it has no limit.
    pub fn measure(&self, topic: String, target: Nanos) -> Result<Option<Measurement>, NotRunning> {
        self.call(move |engine, now| {
            engine.ask_network_delay(now);
            engine.trace(&topic).map(|trace| Measurement::new(trace.range().end, target, now))
        })
    }

    /// Adds messages sent since the last call to a measurement, in pieces. Nothing changes while the topic has no
    /// limit.
    pub fn advance(&self, topic: &str, measurement: &mut Measurement) -> Result<(), NotRunning> {
        let name = topic.to_owned();
        measurement.network = self.call(move |engine, now| {
            engine.ask_network_delay(now);
            engine.network(&name)
        })?;
        loop {
            let (name, from) = (topic.to_owned(), measurement.cursor());
            let part = self.call(move |engine, now| {
                let trace = engine.trace(&name)?;
                Some((
                    trace.range().start.max(from),
                    trace.entries(from..from + ENTRIES_A_TURN),
                    trace.last_sent(),
                    now,
                ))
            })?;
            let Some((first, entries, last_sent, now)) = part else { return Ok(()) };
            if !measurement.take(first, &entries, last_sent, now) || entries.is_empty() {
                return Ok(());
            }
        }
    }

    /// Messages sent within a range of a topic's trace, the publishers' names, and the offset of an instant to the wall
    /// clock.
    pub fn recording(&self, topic: &str, range: Range<u64>) -> Result<(Recording, Vec<String>, i64), NotRunning> {
        let mut recording = Recording::default();
        for start in range.clone().step_by(ENTRIES_A_TURN as usize) {
            let (name, part) = (topic.to_owned(), start..(start + ENTRIES_A_TURN).min(range.end));
            let entries = self.call(move |engine, _| engine.trace(&name).map(|trace| trace.entries(part)))?;
            recording.extend(&entries.unwrap_or_default());
        }
        let offset = self.call(|engine, _| engine.clock.offset())?;
        Ok((recording, self.publishers(topic)?, offset))
    }

    pub fn drain_events(&self) -> Vec<Event> {
        self.shared.told.clear();
        std::mem::take(&mut *held(self.shared.events.lock()))
    }

    /// Requests that Python is to answer.
    pub fn drain_requests(&self) -> Vec<Handed> {
        std::mem::take(&mut *held(self.shared.requests.lock()))
    }

    /// The descriptor that is readable while `drain_events` or `drain_requests` has items. `drain_events` clears it:
    /// call it first.
    pub fn event_fd(&self) -> std::os::fd::RawFd {
        self.shared.told.as_raw_fd()
    }
}

/// An engine with its disk, if it is to have one, and what is there.
fn open_engine(config: Config, tls: Option<Arc<ServerConfig>>, shared: &Arc<Shared>) -> Result<Engine, StartError> {
    let engine = Engine::with_tls(config, tls);
    if engine.config.data_path.is_empty() {
        return Ok(engine);
    }
    let (path, shared) = (Path::new(&engine.config.data_path).join("queue"), Arc::clone(shared));
    let no_disk = |error| StartError { field: Some("data_path"), error };
    let files = Files::open(&path, shared.saving.clone(), move || shared.wake.wake()).map_err(no_disk)?;
    let clock = ClockMap::sample();
    // Drawn by the standard library from the system's randomness, once a process.
    let incarnation = RandomState::new().hash_one(clock.offset());
    engine.with_store(Box::new(files), incarnation, clock.offset(), monotonic()).map_err(no_disk)
}

/// An engine does not outlive its handle (it ends soon after: nobody waits for it here).
impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.ask_to_stop();
    }
}
