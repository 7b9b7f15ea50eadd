//! `srtm._native.Engine`: a broker's data plane, as Python holds it.

use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use srtm_engine::clients::mqtt_client::MqttAddresses;
use srtm_engine::engine;
use srtm_engine::engine::leases::Renewal;
use srtm_engine::http::answer::Answer;
use srtm_engine::io::errors::{HandleError, LinkError, RenewError};
use srtm_engine::io::handle::Handle;
use srtm_engine::limiter::contracts::Taken;
use srtm_engine::limiter::topic_contracts::Terms;
use srtm_engine::mqtt::managed_names::V3Excess;
use srtm_engine::protocol::codec;
use srtm_engine::protocol::link_frames::Opening;
use srtm_engine::protocol::mqtt::topic_filter::Filter;
use srtm_engine::queueing::link_interest::LinkInterest;
use srtm_engine::queueing::topic::Limit;
use srtm_engine::time::Nanos;
use srtm_limits::contract::Contract;

use crate::errors::{bad_value, not_running, os_error, start_error};

/// Publisher names, then the columns of a trace.
type Trace<'py> = (
    Vec<String>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
);

/// Ports of TCP, HTTP, HTTPS, MQTT, MQTT in TLS, in WebSocket, and in WebSocket in TLS, of those that have one.
type Ports = (Option<u16>, Option<u16>, Option<u16>, Option<u16>, Option<u16>, Option<u16>, Option<u16>);

/// Id, method, target, headers, body, and whether it came over TLS.
type Request<'py> = (u64, String, String, Vec<(String, String)>, Bound<'py, PyBytes>, String);

#[pyclass(frozen, module = "srtm._native")]
pub struct Engine(Handle);

impl Engine {
    pub fn handle(&self) -> &Handle {
        &self.0
    }

    fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        command: impl FnOnce(&mut engine::Engine, Nanos) -> T + Send + 'static,
    ) -> PyResult<T> {
        py.detach(|| self.0.call(command)).map_err(not_running)
    }
}

/// As Python has them.
fn named(taken: Vec<Taken>) -> Vec<(String, String, u64)> {
    taken.into_iter().map(|(namespace, subject, cost)| (namespace.into(), subject.into(), cost)).collect()
}

/// A valid topic or channel name, owned.
fn name(kind: &str, text: &str) -> PyResult<String> {
    codec::name(text.as_bytes())
        .map(str::to_owned)
        .ok_or_else(|| bad_value(format!("{kind} name {text:?} is not valid")))
}

#[pymethods]
impl Engine {
    #[new]
    fn new(config: &[u8]) -> PyResult<Self> {
        let config = serde_json::from_slice(config).map_err(bad_value)?;
        Handle::new(config).map(Self).map_err(|error| match error {
            HandleError::Setting(error) => bad_value(error),
            HandleError::Io(error) => os_error(error),
        })
    }

    fn start(&self, py: Python<'_>) -> PyResult<Ports> {
        let ports = py.detach(|| self.0.start()).map_err(start_error)?;
        Ok((ports.tcp, ports.http, ports.https, ports.mqtt, ports.mqtts, ports.mqtt_ws, ports.mqtt_wss))
    }

    fn renew_certificates(&self, py: Python<'_>, cert: String, key: String, root_ca: String) -> PyResult<()> {
        py.detach(|| self.0.renew_certificates(cert, key, root_ca)).map_err(|error| match error {
            RenewError::Setting(error) => bad_value(error),
            RenewError::NotRunning(error) => not_running(error),
        })
    }

    fn stop(&self, py: Python<'_>, patience_ms: u64) -> bool {
        py.detach(|| self.0.stop(Duration::from_millis(patience_ms)))
    }

    fn fileno(&self) -> i32 {
        self.0.event_fd()
    }

    fn drain_events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let events = serde_json::to_vec(&self.0.drain_events()).map_err(bad_value)?;
        Ok(PyBytes::new(py, &events))
    }

    fn drain_requests<'py>(&self, py: Python<'py>) -> Vec<Request<'py>> {
        let requests = self.0.drain_requests().into_iter();
        let shown =
            |r: srtm_engine::http::Handed| (r.id, r.method, r.target, r.headers, PyBytes::new(py, &r.body), r.remote);
        requests.map(shown).collect()
    }

    fn respond(
        &self,
        py: Python<'_>,
        id: u64,
        status: u16,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    ) -> PyResult<bool> {
        if let Some((name, value)) =
            headers.iter().find(|(name, value)| [name, value].iter().any(|text| text.contains(char::is_control)))
        {
            return Err(bad_value(format!("header {name:?}: {value:?}: must not hold control characters")));
        }
        self.call(py, move |engine, now| {
            let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            engine.respond(id, &Answer { status, content_type: "", headers: &headers, body: &body }, now)
        })
    }

    fn set_health(&self, py: Python<'_>, health: String) -> PyResult<()> {
        self.call(py, move |engine, _| engine.set_health(&health))
    }

    fn open_http(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |engine, _| engine.open_http())
    }

    fn close_http(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |engine, _| engine.close_http())
    }

    fn finish_list(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |engine, _| engine.finish_list())
    }

    fn snapshot<'py>(
        &self,
        py: Python<'py>,
        topic: String,
        channel: String,
        clients: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let snapshot = py.detach(|| self.0.snapshot(topic, &channel, clients)).map_err(not_running)?;
        let json = py.detach(|| serde_json::to_vec(&snapshot)).map_err(bad_value)?;
        Ok(PyBytes::new(py, &json))
    }

    fn histories<'py>(&self, py: Python<'py>, topics: Vec<String>, since: i64) -> PyResult<Bound<'py, PyBytes>> {
        let histories = py.detach(|| self.0.histories(&topics, since)).map_err(not_running)?;
        let json = py.detach(|| serde_json::to_vec(&histories)).map_err(bad_value)?;
        Ok(PyBytes::new(py, &json))
    }

    fn latency_buckets<'py>(&self, py: Python<'py>, topics: Vec<String>) -> PyResult<Bound<'py, PyBytes>> {
        let buckets = py.detach(|| self.0.latency_buckets(&topics)).map_err(not_running)?;
        let json = py.detach(|| serde_json::to_vec(&buckets)).map_err(bad_value)?;
        Ok(PyBytes::new(py, &json))
    }

    fn set_promise(&self, py: Python<'_>, topic: String, latency_ns: Nanos) -> PyResult<()> {
        self.call(py, move |engine, _| engine.set_promise(&topic, latency_ns))
    }

    fn set_verdicts(&self, py: Python<'_>, verdicts: Vec<(String, String, Option<f64>)>) -> PyResult<()> {
        self.call(py, move |engine, _| engine.set_verdicts(verdicts))
    }

    fn watch(&self, py: Python<'_>, topics: Vec<String>, no_longer: Vec<String>) -> PyResult<()> {
        self.call(py, move |engine, now| engine.watch(topics, &no_longer, now))
    }

    fn create_topic(&self, py: Python<'_>, topic: &str) -> PyResult<()> {
        let topic = name("topic", topic)?;
        self.call(py, move |engine, _| engine.create_topic(&topic))
    }

    fn refusal_to_make(&self, py: Python<'_>, topic: String, channel: String) -> PyResult<Option<String>> {
        self.call(py, move |engine, _| engine.refusal_to_make(&topic, &channel, "HTTP"))
    }

    fn set_hold_new_topics(&self, py: Python<'_>, hold: bool) -> PyResult<()> {
        self.call(py, move |engine, _| engine.set_hold_new_topics(hold))
    }

    fn delete_topic(&self, py: Python<'_>, topic: String) -> PyResult<bool> {
        self.call(py, move |engine, _| engine.delete_topic(&topic))
    }

    fn delete_unused_topic(&self, py: Python<'_>, topic: String) -> PyResult<bool> {
        self.call(py, move |engine, _| engine.delete_unused_topic(&topic))
    }

    fn empty_topic(&self, py: Python<'_>, topic: String) -> PyResult<bool> {
        self.call(py, move |engine, _| engine.empty_topic(&topic))
    }

    fn pause_topic(&self, py: Python<'_>, topic: String, paused: bool) -> PyResult<bool> {
        self.call(py, move |engine, now| engine.pause_topic(&topic, paused, now))
    }

    fn release_topic(&self, py: Python<'_>, topic: String) -> PyResult<bool> {
        self.call(py, move |engine, now| engine.release_topic(&topic, now))
    }

    fn create_channel(&self, py: Python<'_>, topic: String, channel: &str) -> PyResult<bool> {
        let channel = name("channel", channel)?;
        self.call(py, move |engine, now| engine.create_channel(&topic, &channel, now))
    }

    fn delete_channel(&self, py: Python<'_>, topic: String, channel: String) -> PyResult<bool> {
        self.call(py, move |engine, _| engine.delete_channel(&topic, &channel))
    }

    fn empty_channel(&self, py: Python<'_>, topic: String, channel: String) -> PyResult<bool> {
        self.call(py, move |engine, _| engine.empty_channel(&topic, &channel))
    }

    fn pause_channel(&self, py: Python<'_>, topic: String, channel: String, paused: bool) -> PyResult<bool> {
        self.call(py, move |engine, _| engine.pause_channel(&topic, &channel, paused))
    }

    #[pyo3(signature = (
        topic, rate_micro, burst_micro, reject, max_backlog, max_backlog_bytes, version, full, expires_ns = None
    ))]
    #[allow(clippy::too_many_arguments)] // the keyword arguments of one Python call
    fn set_bucket(
        &self,
        py: Python<'_>,
        topic: &str,
        rate_micro: u64,
        burst_micro: u64,
        reject: bool,
        max_backlog: u64,
        max_backlog_bytes: u64,
        version: u64,
        full: bool,
        expires_ns: Option<Nanos>,
    ) -> PyResult<bool> {
        let topic = name("topic", topic)?;
        let expires = expires_ns.unwrap_or(Nanos::MAX);
        let limit = Limit { rate_micro, burst_micro, reject, max_backlog, max_backlog_bytes, version, full, expires };
        self.call(py, move |engine, now| engine.set_bucket(&topic, limit, now))
    }

    #[allow(clippy::too_many_arguments)] // as above
    fn keep_bucket(
        &self,
        py: Python<'_>,
        topic: &str,
        rate_micro: u64,
        burst_micro: u64,
        reject: bool,
        max_backlog: u64,
        max_backlog_bytes: u64,
    ) -> PyResult<bool> {
        let topic = name("topic", topic)?;
        let (version, full, expires) = (0, false, Nanos::MAX);
        let limit = Limit { rate_micro, burst_micro, reject, max_backlog, max_backlog_bytes, version, full, expires };
        self.call(py, move |engine, now| engine.keep_bucket(&topic, limit, now))
    }

    fn renew_leases(&self, py: Python<'_>, renewals: Vec<Renewal>) -> PyResult<()> {
        self.call(py, move |engine, now| engine.renew_leases(&renewals, now))
    }

    fn clear_bucket(&self, py: Python<'_>, topic: String) -> PyResult<bool> {
        self.call(py, move |engine, now| engine.clear_bucket(&topic, now))
    }

    fn set_publishers(&self, py: Python<'_>, topic: &str, publishers: Vec<String>, version: u64) -> PyResult<()> {
        let topic = name("topic", topic)?;
        self.call(py, move |engine, _| engine.set_publishers(&topic, publishers, version))
    }

    fn set_contracts(
        &self,
        py: Python<'_>,
        contracts: Vec<(Vec<u8>, bool)>,
        rejoins: bool,
    ) -> PyResult<Vec<Option<String>>> {
        py.detach(|| {
            let mut refused: Vec<Option<String>> = vec![None; contracts.len()];
            let (mut those, mut places) = (Vec::new(), Vec::new());
            for (place, (contract, is_replicated)) in contracts.iter().enumerate() {
                match serde_json::from_slice::<Contract>(contract) {
                    Ok(contract) => {
                        those.push((contract, *is_replicated));
                        places.push(place);
                    }
                    Err(error) => refused[place] = Some(error.to_string()),
                }
            }
            for (place, found) in places.into_iter().zip(self.0.set_contracts(those, rejoins).map_err(not_running)?) {
                refused[place] = found.map(|found| found.to_string());
            }
            Ok(refused)
        })
    }

    fn take_taken(&self, py: Python<'_>) -> PyResult<Vec<(String, String, u64)>> {
        Ok(named(self.call(py, |engine, now| engine.poll_taken(now))?))
    }

    fn charge_contracts(&self, py: Python<'_>, taken: Vec<(String, String, u64)>, late: bool) -> PyResult<()> {
        let owned = |(namespace, subject, cost): (String, String, u64)| (namespace.into(), subject.into(), cost);
        let taken: Vec<_> = taken.into_iter().map(owned).collect();
        self.call(py, move |engine, now| engine.charge_contracts(&taken, late, now))
    }

    fn overdrawn(&self, py: Python<'_>) -> PyResult<Vec<(String, String, u64)>> {
        Ok(named(self.call(py, |engine, now| engine.overdrawn(now))?))
    }

    fn join_contracts(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |engine, now| engine.join_contracts(now))
    }

    fn remove_contract(&self, py: Python<'_>, namespace: String, subject: String) -> PyResult<bool> {
        self.call(py, move |engine, _| engine.remove_contract(&namespace, &subject))
    }

    fn set_terms(&self, py: Python<'_>, topic: &str, terms: &[u8]) -> PyResult<()> {
        let (topic, terms): (_, Terms) = (name("topic", topic)?, serde_json::from_slice(terms).map_err(bad_value)?);
        self.call(py, move |engine, _| engine.set_terms(&topic, terms))
    }

    fn heaviest_subjects<'py>(&self, py: Python<'py>, namespace: String, most: usize) -> PyResult<Bound<'py, PyBytes>> {
        let found = self.call(py, move |engine, now| engine.heaviest_subjects(&namespace, most, now))?;
        Ok(PyBytes::new(py, &serde_json::to_vec(&found).map_err(bad_value)?))
    }

    fn contracts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let views = py.detach(|| self.0.contract_views()).map_err(not_running)?;
        Ok(PyBytes::new(py, &serde_json::to_vec(&views).map_err(bad_value)?))
    }

    fn set_mqtt_names(&self, py: Python<'_>, topic: &str, filters: Vec<String>, v3_excess: &str) -> PyResult<()> {
        let topic = name("topic", topic)?;
        let excess = V3Excess::parse(v3_excess).ok_or_else(|| PyValueError::new_err("v3_excess is unknown"))?;
        match self.call(py, move |engine, _| engine.set_mqtt_names(&topic, filters, excess))? {
            true => Ok(()),
            false => Err(PyValueError::new_err("filters: one is no topic filter of MQTT")),
        }
    }

    fn set_mqtt_name(&self, py: Python<'_>, topic: &str, said: String) -> PyResult<()> {
        let topic = name("topic", topic)?;
        match self.call(py, move |engine, _| engine.set_mqtt_name(&topic, &said))? {
            true => Ok(()),
            false => Err(PyValueError::new_err("said: no filter of the topic matches it")),
        }
    }

    fn set_mqtt_groups(&self, py: Python<'_>, topic: &str, groups: Vec<String>) -> PyResult<()> {
        let topic = name("topic", topic)?;
        match self.call(py, move |engine, now| engine.set_mqtt_groups(&topic, &groups, now))? {
            true => Ok(()),
            false => Err(PyValueError::new_err("groups: one is no shared subscription of MQTT")),
        }
    }

    fn forget_left_mqtt_groups(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, move |engine, _| engine.forget_left_groups())
    }

    fn share_mqtt_interest(&self, py: Python<'_>, is_shared: bool) -> PyResult<()> {
        self.call(py, move |engine, _| engine.share_interest(is_shared))
    }

    fn mqtt_interest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let interest = self.call(py, |engine, _| engine.interest())?;
        Ok(PyBytes::new(py, &serde_json::to_vec(&interest).map_err(bad_value)?))
    }

    fn settle_mqtt_interest(&self, py: Python<'_>, version: u64) -> PyResult<()> {
        self.call(py, move |engine, _| engine.settle_interest(version))
    }

    #[allow(clippy::too_many_arguments)] // of one Python call
    fn allow_links(
        &self,
        py: Python<'_>,
        broker: String,
        channel: &str,
        key: String,
        filters: Option<Vec<String>>,
        groups: Vec<String>,
        kept: Vec<String>,
        durable: bool,
    ) -> PyResult<()> {
        let channel = name("channel", channel)?;
        let is_sound = |text: &String| Filter::parse(text).is_some_and(|filter| filter.group.is_none());
        if !filters.iter().flatten().all(is_sound) {
            return Err(PyValueError::new_err("filters: one is no topic filter of MQTT"));
        }
        if !groups.iter().chain(&kept).all(|text| Filter::parse(text).is_some_and(|filter| filter.group.is_some())) {
            return Err(PyValueError::new_err("groups: one is no shared subscription of MQTT"));
        }
        let interest = LinkInterest { filters, groups, kept, durable };
        self.call(py, move |engine, _| engine.allow_links(&broker, &channel, &key, interest))
    }

    fn mark_link(&self, py: Python<'_>, channel: String, mark: String) -> PyResult<bool> {
        self.call(py, move |engine, now| engine.mark_link(&channel, &mark, now))
    }

    fn forbid_links(&self, py: Python<'_>, broker: String) -> PyResult<()> {
        self.call(py, move |engine, _| engine.forbid_links(&broker))
    }

    #[allow(clippy::too_many_arguments)] // of one Python call
    fn open_link(
        &self,
        py: Python<'_>,
        number: u64,
        fd: i32,
        remote: String,
        broker: String,
        origin: String,
        key: String,
        topic: &str,
        channel: &str,
        ready: u32,
    ) -> PyResult<()> {
        let (topic, channel) = (name("topic", topic)?, name("channel", channel)?);
        if fd < 0 {
            return Err(PyValueError::new_err("fd: must be an open socket"));
        }
        // SAFETY: the caller gives the descriptor up with this call.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let opening = Opening { broker, origin, key, topic, channel, ready };
        py.detach(|| self.0.open_link(number, fd, opening, remote)).map_err(|error| match error {
            LinkError::NotRunning(error) => not_running(error),
            LinkError::Io(error) => os_error(error),
        })
    }

    fn close_link(&self, py: Python<'_>, number: u64) -> PyResult<bool> {
        self.call(py, move |engine, _| engine.close_link(number))
    }

    fn mqtt_sessions<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Bound<'py, PyBytes>> {
        let (sessions, total) = py.detach(|| self.0.mqtt_sessions(most)).map_err(not_running)?;
        let answer = serde_json::json!({"sessions": sessions, "total": total});
        Ok(PyBytes::new(py, answer.to_string().as_bytes()))
    }

    fn mqtt_session<'py>(&self, py: Python<'py>, client_id: String) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let view = py.detach(|| self.0.mqtt_session(client_id)).map_err(not_running)?;
        let bytes = view.map(|view| serde_json::to_vec(&view)).transpose().map_err(bad_value)?;
        Ok(bytes.map(|bytes| PyBytes::new(py, &bytes)))
    }

    fn kick_mqtt(&self, py: Python<'_>, client_id: String) -> PyResult<bool> {
        self.call(py, move |engine, now| engine.kick_mqtt(&client_id, now))
    }

    fn hand_over_mqtt_sessions(&self, py: Python<'_>) -> PyResult<usize> {
        self.call(py, move |engine, now| engine.hand_over_sessions(now))
    }

    fn mqtt_retained<'py>(
        &self,
        py: Python<'py>,
        filter: &str,
        most: usize,
        clear: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        if Filter::parse(filter).is_none_or(|parsed| parsed.group.is_some()) {
            return Err(PyValueError::new_err("must be a topic filter of MQTT"));
        }
        let views = py.detach(|| self.0.mqtt_retained(filter, most, clear)).map_err(not_running)?;
        Ok(PyBytes::new(py, &serde_json::to_vec(&views).map_err(bad_value)?))
    }

    fn move_publisher(
        &self,
        py: Python<'_>,
        topic: String,
        publisher_id: String,
        address: String,
        mqtt: (String, String, String, String),
        version: u64,
    ) -> PyResult<usize> {
        let (clear, tls, websocket, websocket_tls) = mqtt;
        let mqtt = MqttAddresses { clear, tls, websocket, websocket_tls };
        self.call(py, move |engine, now| engine.move_publisher(&topic, &publisher_id, &address, &mqtt, version, now))
    }

    fn awaits_authorization(&self, py: Python<'_>, connection: u64) -> PyResult<bool> {
        self.call(py, move |engine, _| engine.awaits_authorization(connection))
    }

    fn set_authorization(&self, py: Python<'_>, connection: u64, answer: Option<Vec<u8>>) -> PyResult<Option<String>> {
        self.call(py, move |engine, now| engine.set_authorization(connection, answer.as_deref(), now).err())
    }

    fn set_access(&self, py: Python<'_>, rules: &[u8]) -> PyResult<()> {
        let rules = serde_json::from_slice(rules).map_err(bad_value)?;
        self.call(py, move |engine, _| engine.set_access(rules))
    }

    fn set_http_token(&self, py: Python<'_>, token: String) -> PyResult<()> {
        self.call(py, move |engine, _| engine.set_http_token(token))
    }

    fn set_accepting(&self, py: Python<'_>, accepting: bool, reason: String) -> PyResult<()> {
        self.call(py, move |engine, now| engine.set_accepting(accepting, &reason, now))
    }

    fn accept_limited(&self, py: Python<'_>, reason: String) -> PyResult<()> {
        self.call(py, move |engine, _| engine.accept_limited(&reason))
    }

    fn trace<'py>(&self, py: Python<'py>, topic: String) -> PyResult<Option<Trace<'py>>> {
        let columns = py.detach(|| self.0.trace(topic)).map_err(not_running)?;
        let bytes = |column: &[u8]| PyBytes::new(py, column);
        Ok(columns.map(|c| {
            let columns = (
                bytes(&c.publisher),
                bytes(&c.arrival_ns),
                bytes(&c.due_ns),
                bytes(&c.released_ns),
                bytes(&c.sent_ns),
                bytes(&c.share_version),
            );
            (c.publishers, columns.0, columns.1, columns.2, columns.3, columns.4, columns.5)
        }))
    }

    fn histogram<'py>(
        &self,
        py: Python<'py>,
        topic: String,
        kind: String,
        window: String,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let text = self.call(py, move |engine, now| engine.histogram(&topic, &kind, &window, now))?;
        Ok(text.map(|text| PyBytes::new(py, text.as_bytes())))
    }
}
