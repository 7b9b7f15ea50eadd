//! One client connection: its phase, settings, credit, and its two byte streams.
//!
//! It knows topics by their keys alone, and no sockets.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::clients::link_client::LinkClient;
use crate::clients::mpub_progress::Progress;
use crate::clients::mqtt_client::MqttClient;
use crate::clients::partial_message::Building;
use crate::clients::pending_input::{InputEvent, InputState, KeptReads};
use crate::clients::publisher_topics::PublishedTopics;
use crate::clients::reply::Held;
use crate::http::Http;
use crate::id::MessageId;
use crate::keys::{ChannelKey, TopicKey};
use crate::limiter::topic_contracts::Subject;
use crate::memory::Charge;
use crate::protocol::codec::{self, Seen, State};
use crate::protocol::grants::Auth;
use crate::protocol::identify::{Identity, Terms};
use crate::protocol::link_frames::{SoFar, encode_linked};
use crate::queueing::message::Message;
use crate::queueing::zone_preference::Nearness;
use crate::scheduling::client_limits::UNFINISHED_NS;
use crate::scheduling::work_budget::Deficit;
use crate::time::{Nanos, PATIENCE_NS};
use crate::timer::Armed;
use crate::transport::buffer::KEEP_BUFFER;
use crate::transport::types::{Broken, Step};
use crate::transport::{HIGH_WATER, Layers};

/// Answers that a client may leave unread before what it sends waits until it has read them: a buffer that grew with
/// them would be copied while all wait.
const MAX_UNREAD_ANSWERS: usize = 256 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The first four bytes have not arrived.
    Magic,
    Open,
    /// Input has ended; the output buffer is still sent, then the stream ends.
    Flushing,
    /// The broker's side has ended; the peer still has to read its output and close.
    Lingering,
}

/// A delivery in the output stream, sent once the stream has reached `end`.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    pub end: u64, // offset in the connection's output stream
    pub topic: TopicKey,
    pub arrival: Nanos,
    pub due: Nanos,
    pub consumer_wait: Nanos,
    pub trace: u64,
}

impl Mark {
    /// Of a message that is delivered for the first time now, as its topic's latency counts it.
    pub fn of(topic: TopicKey, message: &Message, now: Nanos) -> Self {
        let times = message.times;
        let consumer_wait = now - times.queued;
        Self { end: 0, topic, arrival: times.arrival, due: times.due, consumer_wait, trace: times.trace }
    }
}

/// What its contract lets a consumer of NSQ or a subscriber of MQTT have.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    pub held_to: Option<Rc<Subject>>,
    pub is_over: bool, // until `armed`
    pub armed: Armed,
}

#[derive(Debug)]
pub struct Subscription {
    pub channel: ChannelKey,
    pub ready: u32,
    pub in_flight: u32,
    pub listed: bool,                            // in the channel's ring of ready consumers
    pub deadlines: VecDeque<(Nanos, MessageId)>, // ascending; some are stale (answered since)
    pub armed: Armed,
    pub has_due: bool, // in the engine's list of those with more that is due than a turn takes
    pub(crate) unanswered: bool, // the answer to its SUB waits for the disk
    pub nearness: Nearness,
    pub messages: u64,
    pub finished: u64,
    pub requeued: u64,
}

#[derive(Debug)]
#[repr(C)] // hot fields first: they share few cache lines
pub struct Connection {
    pub phase: Phase,
    pub state: State,
    pub input_state: InputState,
    pub eof: bool,   // the peer has ended its stream
    pub dirty: bool, // in the engine's list of connections with something to write
    pub terms: Terms,
    pub(crate) deficit: Deficit,
    pub http: Option<Box<Http>>,                // a connection of the HTTP port
    pub mqtt: Option<Box<MqttClient>>,          // a connection of the MQTT port
    pub link: Option<Box<LinkClient>>,          // a connection to another broker
    pub layers: Option<Box<Layers>>,            // TLS, compression: between the socket and everything here
    pub sliced: Option<Box<Progress>>,          // of the MPUB that `input` begins with
    pub(crate) seen: Seen,                      // of the same, before its first slice
    pub(crate) building: Option<Box<Building>>, // the large message that is next in `input`
    pub subscription: Option<Box<Subscription>>,
    pub(crate) allowance: Allowance,
    pub input: Vec<u8>, // the unfinished command, or what came while it waits; empty nearly always
    pub published: PublishedTopics,
    pub last_command: Nanos,
    output: Vec<u8>,
    output_at: usize,   // bytes of `output` that have been written
    stream_offset: u64, // of output[0]
    pub marks: VecDeque<Mark>,
    pub blocked_since: Option<Nanos>, // the socket takes nothing
    #[expect(clippy::box_collection, reason = "thousands of idle connections hold nothing")]
    pub(crate) held: Option<Box<VecDeque<Held>>>, // answers that wait for the disk
    pub armed: Armed,
    pub next_heartbeat: Nanos,
    pub auth: Option<Box<Auth>>,
    identity: Box<Identity>,
    pub remote: Box<str>,
    pub connected_wall_ns: i64,
    pub(crate) kept_reads: KeptReads,                  // of `input`, while it waits
    pub(crate) input_charge: Option<(Charge, Charge)>, // for what is in `input`, and for its room besides
    pub unfinished_since: Option<Nanos>,               // start of the command in `input`, without heartbeats
    pub(crate) unread_charge: Option<Charge>,          // for the output then
    pub linger_until: Nanos,                           // while lingering
}

impl Connection {
    pub fn new(identity: Identity, remote: &str, wall_ns: i64, now: Nanos) -> Self {
        Self {
            phase: Phase::Magic,
            eof: false,
            linger_until: Nanos::MAX,
            state: State::Init,
            input_state: InputState::Running,
            kept_reads: KeptReads::default(),
            terms: identity.terms(),
            identity: Box::new(identity),
            remote: remote.into(),
            connected_wall_ns: wall_ns,
            subscription: None,
            allowance: Allowance::default(),
            auth: None,
            published: PublishedTopics::default(),
            http: None,
            mqtt: None,
            link: None,
            input: Vec::new(),
            input_charge: None,
            unfinished_since: None,
            deficit: Deficit::default(),
            sliced: None,
            seen: Seen::default(),
            building: None,
            layers: None,
            output: Vec::new(),
            output_at: 0,
            stream_offset: 0,
            marks: VecDeque::new(),
            held: None,
            dirty: false,
            last_command: now,
            next_heartbeat: Nanos::MAX,
            blocked_since: None,
            unread_charge: None,
            armed: Armed::default(),
        }
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The client sent IDENTIFY, perhaps again: drops all that was looked up for its earlier identity.
    pub fn identify(&mut self, identity: Identity) {
        self.terms = identity.terms();
        *self.identity = identity;
        self.published.clear();
    }

    /// A request by HTTP says for whom it publishes: as `identify`, if that was another one.
    pub fn publish_for(&mut self, publisher: Option<&str>) {
        if self.identity.client_id.as_deref() != publisher {
            self.identity.client_id = publisher.map(Into::into);
            self.published.clear();
        }
    }

    /// The client id from IDENTIFY, or else its address, which serves statistics and contracts only.
    pub fn client_id(&self) -> &str {
        self.identity.client_id.as_deref().unwrap_or_else(|| self.remote_host())
    }

    /// The name under which its messages are traced.
    pub fn publisher(&self) -> &str {
        let unnamed = || if self.http.is_some() { "http" } else { self.remote_host() };
        self.identity.client_id.as_deref().unwrap_or_else(unnamed)
    }

    pub fn hostname(&self) -> &str {
        self.identity.hostname().unwrap_or_else(|| self.remote_host())
    }

    pub fn remote_host(&self) -> &str {
        self.remote.rsplit_once(':').map_or(&self.remote, |(host, _)| host)
    }

    /// The same without the brackets of IPv6.
    pub fn remote_ip(&self) -> &str {
        self.remote_host().trim_matches(['[', ']'])
    }

    pub fn reads(&self) -> bool {
        self.input_state != InputState::Closing
    }

    /// Whether its next bytes are commands that may run. False while its input waits, and just after an IDENTIFY that
    /// added layers.
    pub fn takes_commands(&self) -> bool {
        self.input_state == InputState::Running && self.layers.as_ref().is_none_or(|layers| layers.has_begun())
    }

    /// Moves its input to the next state; returns whether the state changed.
    pub(crate) fn note_input(&mut self, event: InputEvent) -> bool {
        let before = self.input_state;
        self.input_state = before.after(event);
        before != self.input_state
    }

    /// Ends its input; the output buffer is still sent. Returns whether the input was waiting.
    pub(crate) fn end_input(&mut self) -> bool {
        let waited = self.input_state.waits();
        self.phase = Phase::Flushing;
        self.note_input(InputEvent::Close);
        self.forget_begun();
        (self.input, self.kept_reads) = (Vec::new(), KeptReads::default());
        (self.input_charge, self.unfinished_since) = (None, None);
        waited
    }

    /// Whether its input waits and has reached the bound of kept bytes, so that reading must stop.
    pub fn keeps_enough(&self) -> bool {
        self.input_state.waits() && self.kept_reads.is_full()
    }

    /// Whether encrypted or compressed bytes could be decoded now.
    pub fn has_more_input(&self) -> bool {
        self.layers.as_ref().is_some_and(|layers| layers.has_more() || layers.is_shaking())
    }

    pub fn is_handshaking(&self) -> bool {
        self.layers.as_ref().is_some_and(|layers| layers.is_handshaking())
    }

    /// Whether it uses TLS, and so must not continue in clear.
    pub fn has_tls(&self) -> bool {
        self.layers.as_ref().is_some_and(|layers| layers.has_tls())
    }

    /// Whether it has credit for one more message. RDY is a level: messages in flight count against it.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Open
            && self.state == State::Subscribed
            && !self.input_state.awaits_client()
            && !self.allowance.is_over
            && self.pending() < HIGH_WATER
            && self.subscription.as_ref().is_some_and(|sub| sub.has_credit())
    }

    /// Whether it has too many unread answers to run more commands. Unread output of a consumer may be messages.
    pub fn leaves_answers(&self, max_msg_size: usize) -> bool {
        let messages = if self.subscription.is_some() || self.mqtt.is_some() { HIGH_WATER + max_msg_size } else { 0 };
        self.pending() > MAX_UNREAD_ANSWERS + messages
    }

    pub fn respond(&mut self, data: &[u8]) {
        codec::encode_frame(&mut self.output, codec::FrameType::Response, data);
    }

    pub fn fail(&mut self, text: &str) {
        codec::encode_frame(&mut self.output, codec::FrameType::Error, text.as_bytes());
    }

    /// Appends a delivery to the output buffer. `mark` (first deliveries only) gets its end.
    pub fn deliver(&mut self, message: &Message, mark: Option<Mark>) {
        codec::encode_message(&mut self.output, &message.frame, message.attempts);
        self.note_end(mark);
    }

    /// The same on a link to another broker, which gets the attributes too, and the delay until `now`.
    pub fn deliver_linked(&mut self, message: &Message, attributes: &[u8], mark: Option<Mark>, now: Nanos) {
        let is_known = self.terms.timed && !message.foreign && message.defer_ms == 0;
        let times = message.times;
        let delays = || SoFar { access: times.due - times.arrival, processing: (now - times.due).max(0) };
        let so_far = is_known.then(delays);
        encode_linked(&mut self.output, &message.frame, message.attempts, attributes, so_far);
        self.note_end(mark);
    }

    fn note_end(&mut self, mark: Option<Mark>) {
        if let Some(mark) = mark {
            let end = self.stream_offset + self.output.len() as u64;
            self.marks.push_back(Mark { end, ..mark });
        }
    }

    /// Appends a delivery as it goes out, under its own packet identifier: where that is, and which.
    pub fn deliver_bytes(&mut self, bytes: &[u8], id: Option<(usize, u16)>, mark: Option<Mark>) {
        let start = self.output.len();
        self.output.extend_from_slice(bytes);
        if let Some((at, id)) = id {
            self.output[start + at..start + at + 2].copy_from_slice(&id.to_be_bytes());
        }
        self.note_end(mark);
    }

    /// Whether answers wait for the disk.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Whether deliveries may be written. What a client leaves unread is bounded; answers have a bound of their own.
    pub fn takes_deliveries(&self) -> bool {
        self.phase == Phase::Open && self.pending() < HIGH_WATER
    }

    /// The publish that its input begins with is refused.
    pub(crate) fn forget_begun(&mut self) {
        (self.building, self.sliced, self.seen) = (None, None, Seen::default());
    }

    /// An answer by HTTP, as it goes out.
    pub fn append(&mut self, answer: Vec<u8>) {
        if self.output.is_empty() {
            self.output = answer;
        } else {
            self.output.extend_from_slice(&answer);
        }
    }

    pub(crate) fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Bytes to write to the socket; under layers, the output of the last `seal`.
    pub fn unsent(&self) -> &[u8] {
        match &self.layers {
            None => &self.output[self.output_at..],
            Some(layers) => layers.unsent(),
        }
    }

    /// Bytes that have not been sent yet, sealed or not.
    pub fn pending(&self) -> usize {
        self.output.len() - self.output_at + self.layers.as_ref().map_or(0, |layers| layers.unsent().len())
    }

    /// Passes output through the layers, if any, and flushes once. `last`: no output follows.
    pub fn seal(&mut self, last: bool) -> Result<(), Broken> {
        let Some(layers) = &mut self.layers else { return Ok(()) };
        let plain = &self.output[self.output_at..];
        if !last && (layers.holds_output() || plain.is_empty() && !layers.wants_write()) {
            return Ok(());
        }
        let end = self.stream_offset + self.output.len() as u64;
        layers.seal(plain, end, last)?;
        self.output.clear();
        self.output.shrink_to(KEEP_BUFFER);
        (self.stream_offset, self.output_at) = (end, 0);
        Ok(())
    }

    /// Output so far passes the present layers; later output passes `step`.
    pub fn start(&mut self, step: Step) -> Result<(), Broken> {
        self.seal(false)?;
        self.layers.as_mut().map_or(Ok(()), |layers| layers.start(step))
    }

    /// Records that the socket took `len` bytes. Returns the offset up to which the stream has been sent, for `marks`.
    pub fn advance(&mut self, len: usize) -> u64 {
        if let Some(layers) = &mut self.layers {
            return layers.advance(len);
        }
        self.output_at += len;
        let sent = self.stream_offset + self.output_at as u64;
        if self.output_at == self.output.len() {
            self.output.clear();
            self.output.shrink_to(KEEP_BUFFER);
            self.stream_offset = sent;
            self.output_at = 0;
        } else if self.output_at > HIGH_WATER {
            self.output.drain(..self.output_at);
            self.stream_offset = sent;
            self.output_at = 0;
        }
        sent
    }

    pub fn heartbeat_ns(&self) -> Option<Nanos> {
        self.identity.heartbeat_ms.map(|ms| ms as Nanos * 1_000_000)
    }

    /// Deadline of an unfinished command on a connection without heartbeats.
    pub fn unfinished_deadline(&self) -> Option<Nanos> {
        self.unfinished_since.filter(|_| self.phase == Phase::Open).map(|since| since + UNFINISHED_NS)
    }

    /// The instant at which the connection counts as dead.
    ///
    /// With heartbeats: no whole command for two intervals, unless its input waits, or one interval with a blocked
    /// write. Without them: an unfinished command, or a blocked write after either side has ended its stream. A
    /// handshake has its own deadline.
    pub fn silence_deadline(&self) -> Option<Nanos> {
        if let Some(layers) = self.layers.as_ref().filter(|layers| self.reads() && layers.is_handshaking()) {
            return Some(layers.handshake_deadline).filter(|_| !self.is_held()); // the answer may wait for the disk
        }
        if let Some(http) = &self.http {
            return http.deadline(self.blocked_since, self.input_state.waits());
        }
        if let Some(mqtt) = self.mqtt.as_ref().filter(|_| self.phase == Phase::Open) {
            return mqtt.deadline(self.last_command, self.blocked_since, self.input_state.waits());
        }
        if let Some(link) = self.link.as_ref().filter(|_| self.phase == Phase::Open) {
            return link.deadline(self.last_command, self.blocked_since, self.input_state.waits());
        }
        let interval = self.heartbeat_ns();
        let ends = self.phase == Phase::Flushing || self.eof;
        let patience = interval.or_else(|| ends.then_some(PATIENCE_NS));
        let blocked = self.blocked_since.zip(patience).map(|(since, patience)| since + patience);
        let heard = interval.filter(|_| !self.input_state.waits()).map(|interval| self.last_command + 2 * interval);
        heard.into_iter().chain(blocked).chain(self.unfinished_deadline()).min()
    }
}

impl Subscription {
    pub fn new(channel: ChannelKey, nearness: Nearness) -> Self {
        Self {
            channel,
            nearness,
            ready: 0,
            in_flight: 0,
            listed: false,
            deadlines: VecDeque::new(),
            armed: Armed::default(),
            has_due: false,
            unanswered: false,
            messages: 0,
            finished: 0,
            requeued: 0,
        }
    }

    fn has_credit(&self) -> bool {
        self.in_flight < self.ready && !self.unanswered
    }

    /// Keep ascending order: a new deadline is the latest one, but for a TOUCH that met its limit.
    pub fn push_deadline(&mut self, deadline: Nanos, id: MessageId) {
        let at = self.deadlines.iter().rposition(|(other, _)| *other <= deadline).map_or(0, |i| i + 1);
        self.deadlines.insert(at, (deadline, id));
    }

    /// Answered messages leave their deadlines behind: time to drop them all?
    pub fn is_stale_heavy(&self) -> bool {
        self.deadlines.len() > 64 + 2 * self.in_flight as usize
    }
}
