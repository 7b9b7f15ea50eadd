//! Requests of a connection: which are answered here, which go to Python, and what ends a connection.

use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::rc::Rc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::arrival::stamps::Stamps;
use crate::clients::connection::{Connection, Phase};
use crate::clients::pending_input::{InputEvent, WaitFor};
use crate::clients::reply::Reply;
use crate::engine::Engine;
use crate::engine::commands::authorization::split_secret;
use crate::engine::http::publish_routes::{Refusal, Request};
use crate::http::answer::{self, Answer, Exchange, JSON, NSQ_HEADER, TEXT};
use crate::http::chunked::{Chunked, Fault};
use crate::http::date::Date;
use crate::http::line_body::LineBody;
use crate::http::query::arguments;
use crate::http::request::{self, Afterwards, Framing, Head, MAX_HEADERS, Malformed};
use crate::http::{Chunks, Http, Stage};
use crate::keys::ConnKey;
use crate::memory::LARGE_BYTES;
use crate::mqtt::reporting::denials::Action;
use crate::protocol::access::{Object, Permission};
use crate::protocol::grants::Auth;
use crate::protocol::identify::Identity;
use crate::scheduling::work_budget::REQUEST_UNITS;
use crate::time::{Nanos, SHORT_PATIENCE_NS};
use crate::transport::Layers;

/// Of a chunked request that waits for the next turn, the last byte stays in the input, and its arrival with it.
const LAST: usize = 1;

/// Without it, some clients do not show the password that they have.
const ASKS: (&str, &str) = ("WWW-Authenticate", "Basic realm=\"topics\"");

const UNAUTHORIZED: Refusal = (401, Cow::Borrowed("UNAUTHORIZED"));

/// What a request shows of who it is; empty: nothing.
fn authorization<'h>(head: &Head<'h, '_>) -> &'h [u8] {
    head.header("authorization").unwrap_or_default()
}

/// What it shows as a secret of AUTH: a token, or `NAME:PASSWORD`.
fn secret_of(authorization: &[u8]) -> Option<Cow<'_, [u8]>> {
    match authorization.strip_prefix(BASIC) {
        Some(encoded) => BASE64_STANDARD.decode(encoded.trim_ascii()).ok().map(Cow::Owned),
        None => authorization.strip_prefix(b"Bearer ").map(Cow::Borrowed),
    }
}

const BASIC: &[u8] = b"Basic ";

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Whether an answer depends on the request's body: so for these routes, here and in Python (`broker/admin`).
fn reads_body(head: &Head<'_, '_>) -> bool {
    match (head.method, head.path) {
        ("POST", "/pub" | "/mpub" | "/v1/gdrl/exchange") => true,
        ("PUT", path) => path.starts_with("/config/") || (path.starts_with("/v1/topics/") && path.ends_with("/bucket")),
        _ => false,
    }
}

impl Engine {
    /// A connection of the HTTP port.
    pub fn handle_accept_http(&mut self, remote: &str, now: Nanos) -> ConnKey {
        self.accept_http(remote, None, now)
    }

    /// A connection of the HTTPS port: TLS from its first byte on.
    pub fn handle_accept_https(&mut self, remote: &str, now: Nanos) -> ConnKey {
        let layers = self.tls.config.clone().and_then(|tls| Layers::tls_server(tls, now + SHORT_PATIENCE_NS).ok());
        let has_tls = layers.is_some();
        let key = self.accept_http(remote, layers, now);
        if has_tls {
            self.charge_layers(key);
        } else {
            self.close(key);
        }
        key
    }

    fn accept_http(&mut self, remote: &str, layers: Option<Layers>, now: Nanos) -> ConnKey {
        self.http.connections += 1;
        let mut identity = Identity::unknown(&self.config);
        identity.heartbeat_ms = None;
        let mut connection = Connection::new(identity, remote, self.clock.wall(now), now);
        connection.phase = Phase::Open;
        connection.http =
            Some(Box::new(Http::new(layers.is_some(), self.config.http_idle_timeout_ms as Nanos * 1_000_000, now)));
        connection.layers = layers.map(Box::new);
        self.limits.count_in(connection.remote_host());
        let key = self.conns.insert(connection);
        self.arm_connection(key);
        key
    }

    /// Run every whole request in `bytes`; gives how many bytes they took.
    pub(crate) fn run_requests(&mut self, key: ConnKey, bytes: &[u8], stamps: Stamps<'_>, now: Nanos) -> usize {
        let Some(conn) = self.conns.get_mut(key) else { return 0 };
        let (before, bound) = (self.work.units, self.work.begin(&mut conn.deficit));
        let mut at = 0;
        while self.conns.get(key).is_some_and(Connection::takes_commands) {
            if self.work.units >= bound && at < bytes.len() {
                self.defer_to_next_turn(key);
                break;
            }
            let publishes = self.turn.publishes.len();
            let Some(used) = self.run_request(key, &bytes[at..], |len| stamps.at(at + len), bound, now) else { break };
            self.work.note(REQUEST_UNITS);
            at += used;
            self.turn.shares_stamp |= at < bytes.len() && self.turn.publishes.len() > publishes;
        }
        self.note_unfinished(key, at < bytes.len(), now);
        if let Some(conn) = self.conns.get_mut(key) {
            self.work.end(&mut conn.deficit, before);
        }
        at
    }

    /// Runs one request. `None`: nothing to do before more bytes, an answer, or the next turn. `arrival`: of the last
    /// of these bytes.
    fn run_request(
        &mut self,
        key: ConnKey,
        bytes: &[u8],
        arrival: impl Fn(usize) -> Nanos,
        bound: u32,
        now: Nanos,
    ) -> Option<usize> {
        let conn = self.conns.get_mut(key)?;
        let untaken = conn.pending();
        let http = conn.http.as_deref_mut()?;
        if untaken > LARGE_BYTES {
            self.defer(key, WaitFor::Client);
            return None;
        }
        if http.chunks.is_some() {
            return self.run_chunks(key, bytes, arrival, bound, now);
        }
        let blank = bytes.iter().take_while(|c| matches!(c, b'\r' | b'\n')).count();
        if blank > 0 {
            return Some(blank); // before a request line it means nothing
        }
        if bytes.is_empty() || !http.is_worth_a_look(bytes) {
            return None;
        }
        let mut room = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        match request::parse(bytes, &mut room) {
            Ok(None) => None,
            Ok(Some(head)) => self.take_request(key, &head, bytes, arrival, bound, now),
            Err(malformed) => {
                self.refuse_malformed(key, malformed, now);
                None
            }
        }
    }

    /// The head is whole: so is the body, or it is waited for.
    fn take_request(
        &mut self,
        key: ConnKey,
        head: &Head<'_, '_>,
        bytes: &[u8],
        arrival: impl Fn(usize) -> Nanos,
        bound: u32,
        now: Nanos,
    ) -> Option<usize> {
        if head.expects_continue && !reads_body(head) {
            // The client is told before it sends a body; what it sends all the same is not a request.
            let last = Head { afterwards: Afterwards::Closed, ..*head };
            return self.answer_request(key, &last, &[], arrival(head.len), bound, now).then_some(head.len);
        }
        let Framing::Length(len) = head.framing else { return self.begin_chunks(key, head, &bytes[..head.len]) };
        if len > self.body_limit(head.path) as u64 {
            self.refuse_body(key, head.path, now);
            return None;
        }
        let end = head.len + len as usize;
        if let Some(body) = bytes.get(head.len..end) {
            return self.answer_request(key, head, body, arrival(end), bound, now).then_some(end);
        }
        if matches!(head.path, "/pub" | "/mpub") && !self.config.auth_servers {
            self.is_identified(key, head, now);
        }
        let coming = self.coming(key, head, len as usize);
        let lines = self.comes_in_lines(key, head).then(|| (head.len, LineBody::default()));
        let http = self.conns.get_mut(key)?.http.as_mut()?;
        (http.wanted, http.coming, http.lines) = (end, coming, lines);
        if bytes.len() == head.len && head.expects_continue {
            self.turn.replies.push((key, Reply::Raw(CONTINUE.to_vec())));
        }
        None
    }

    fn begin_chunks(&mut self, key: ConnKey, head: &Head<'_, '_>, bytes: &[u8]) -> Option<usize> {
        let charge = self.limits.unfinished.charge(bytes.len() as u64);
        // A message that is too long is refused when it is whole, and the connection goes on, as at nsqd.
        let limit = self.body_limit(if head.path == "/pub" { "/mpub" } else { head.path });
        let http = self.conns.get_mut(key)?.http.as_mut()?;
        http.chunks = Some(Chunks { head: bytes.to_vec(), body: Chunked::default(), limit, _charge: charge });
        if head.expects_continue {
            self.turn.replies.push((key, Reply::Raw(CONTINUE.to_vec())));
        }
        Some(head.len)
    }

    fn run_chunks(
        &mut self,
        key: ConnKey,
        bytes: &[u8],
        arrival: impl Fn(usize) -> Nanos,
        bound: u32,
        now: Nanos,
    ) -> Option<usize> {
        let http = self.conns.get_mut(key)?.http.as_mut()?;
        let mut chunks = http.chunks.take()?;
        let decoded = if chunks.body.is_over() { Ok(LAST) } else { chunks.body.decode(bytes, chunks.limit) };
        if decoded.is_ok() && !chunks.body.is_over() {
            let len = self.keep_chunks(key, chunks);
            if let Some(why) = self.keeps_too_much(key, len) {
                self.refuse_unfinished(key, &why, now);
                return None;
            }
            return decoded.ok().filter(|used| *used > 0);
        }
        let mut room = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let head = request::parse(&chunks.head, &mut room).ok().flatten()?;
        match decoded {
            Ok(used) => {
                if self.answer_request(key, &head, &chunks.body.body, arrival(used), bound, now) {
                    return Some(used);
                }
                self.keep_chunks(key, chunks);
                return used.checked_sub(LAST);
            }
            Err(Fault::TooBig) => self.refuse_body(key, head.path, now),
            Err(Fault::Malformed(malformed)) => self.refuse_malformed(key, malformed, now),
        }
        None
    }

    /// Keep what has come of a chunked request; gives how much memory that takes.
    fn keep_chunks(&mut self, key: ConnKey, mut chunks: Chunks) -> usize {
        let len = chunks.head.len() + chunks.body.body.capacity();
        chunks._charge = self.limits.unfinished.charge(len as u64);
        if let Some(http) = self.conns.get_mut(key).and_then(|conn| conn.http.as_mut()) {
            http.chunks = Some(chunks);
        }
        len
    }

    /// False: it is more than this turn has room for, and is to be taken in the next one.
    fn answer_request(
        &mut self,
        key: ConnKey,
        head: &Head<'_, '_>,
        body: &[u8],
        stamp: Nanos,
        bound: u32,
        now: Nanos,
    ) -> bool {
        let afterwards = if self.http.stage == Stage::Closing { Afterwards::Closed } else { head.afterwards };
        let exchange = Exchange { afterwards, head_only: head.method == "HEAD" };
        let Some(http) = self.conns.get_mut(key).and_then(|conn| conn.http.as_mut()) else { return true };
        let lines = http.lines.take().map(|(_, lines)| lines).unwrap_or_default();
        http.start_over(now);
        if !http.is_safe_enough(self.config.tls_required) {
            self.answer_tls_required(key, exchange, now);
            return true;
        }
        match (head.path, head.method) {
            ("/pub" | "/mpub", _) => {
                return self.publish_by_http(Request { key, head, body, lines, stamp, bound, exchange }, now);
            }
            ("/ping", "GET") => self.answer_ping(key, exchange, now),
            ("/ping", method) => self.answer_other_method(key, method, "GET", exchange, now),
            _ => self.hand_over(key, head, body, exchange, now),
        }
        true
    }

    /// False: it is to be taken again, in the next turn or once an auth server has answered.
    fn publish_by_http(&mut self, request: Request<'_, '_, '_>, now: Nanos) -> bool {
        let Request { key, head, exchange, .. } = request;
        let is_begun = self.conns.get(key).is_some_and(|conn| conn.sliced.is_some());
        if !self.is_identified(key, head, now) {
            return false;
        }
        let taken = if let Some(denied) = self.refusal_of_publisher(key, head) {
            let is_known = denied.0 == 403;
            let topic = arguments(head.query, ["topic"]).ok().and_then(|[topic]| topic).filter(|_| is_known);
            let action = if is_known { Action::Publish } else { Action::Connect };
            self.note_denial(key, action, &topic.unwrap_or_default());
            Err(denied)
        } else if head.method != "POST" {
            self.answer_other_method(key, head.method, "POST", exchange, now);
            return true;
        } else if head.path == "/pub" {
            self.http_pub(request)
        } else {
            self.http_mpub(request)
        };
        match taken {
            Ok(false) => {
                self.defer_to_next_turn(key);
                return false;
            }
            Ok(true) if exchange.closes() => self.end_requests(key),
            Ok(true) => {}
            Err((status, code)) => {
                if let Some(conn) = self.conns.get_mut(key) {
                    conn.forget_begun();
                    conn.auth.take_if(|_| status == 401); // the next request is asked about again
                }
                let exchange = if is_begun { Exchange::LAST } else { exchange }; // partly published
                let asks: &[_] =
                    if status == 401 && self.judges_publishers() && !self.is_open() { &[ASKS] } else { &[] };
                self.answer(key, exchange, now, |out, date| {
                    answer::write_refusal(out, status, &code, asks, exchange, date)
                });
            }
        }
        true
    }

    fn answer_tls_required(&mut self, key: ConnKey, exchange: Exchange, now: Nanos) {
        let body = format!(r#"{{"message": "TLS_REQUIRED", "https_port": {}}}"#, self.http.https_port);
        let answer = Answer { status: 403, content_type: JSON, headers: &[NSQ_HEADER], body: body.as_bytes() };
        self.answer(key, exchange, now, |out, date| answer.write(out, exchange, date));
    }

    fn answer_ping(&mut self, key: ConnKey, exchange: Exchange, now: Nanos) {
        let body = self.http.health.clone();
        let status = if body == "OK" { 200 } else { 500 };
        let answer = Answer { status, content_type: TEXT, headers: &[], body: body.as_bytes() };
        self.answer(key, exchange, now, |out, date| answer.write(out, exchange, date));
    }

    fn answer_other_method(&mut self, key: ConnKey, method: &str, allowed: &str, exchange: Exchange, now: Nanos) {
        let allow = if allowed == "GET" { "GET, OPTIONS" } else { "OPTIONS, POST" };
        let headers = [("Allow", allow)];
        self.answer(key, exchange, now, |out, date| {
            if method == "OPTIONS" {
                Answer { status: 200, content_type: "", headers: &headers, body: b"" }.write(out, exchange, date);
            } else {
                answer::write_refusal(out, 405, "METHOD_NOT_ALLOWED", &headers, exchange, date);
            }
        });
    }

    /// Whether clients are asked anything before they publish.
    fn judges_publishers(&self) -> bool {
        if self.config.auth_servers { self.config.auth_by_http } else { self.judges_clients() }
    }

    /// Whether the broker's own token is shown.
    fn shows_own_token(&self, head: &Head<'_, '_>) -> bool {
        let wanted = self.config.http_token.as_bytes();
        let given = authorization(head).strip_prefix(b"Bearer ").unwrap_or_default();
        // In constant time.
        let is_wanted =
            given.len() == wanted.len() && given.iter().zip(wanted).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0;
        is_wanted && !wanted.is_empty()
    }

    /// Finds out who publishes, unless that is known of this connection, by the same Authorization. False: an auth
    /// server is asked, and the connection waits.
    fn is_identified(&mut self, key: ConnKey, head: &Head<'_, '_>, now: Nanos) -> bool {
        if !self.judges_publishers() {
            return true;
        }
        let shown = authorization(head);
        if shown.is_empty() || self.shows_own_token(head) {
            return true;
        }
        let Some(conn) = self.conns.get_mut(key) else { return true };
        let known = conn.auth.as_ref().filter(|auth| *auth.shown == *shown).and_then(|auth| auth.grant.as_ref());
        if known.is_some_and(|grant| grant.expires >= now) {
            return true;
        }
        conn.auth = None;
        let Some(secret) = secret_of(shown) else { return true };
        let mut auth = Auth { shown: shown.into(), ..Auth::default() };
        if self.config.auth_servers {
            let is_basic = shown.starts_with(BASIC);
            let (name, secret) = if is_basic { split_secret(&secret).unwrap_or_default() } else { ("", &*secret) };
            (auth.username, auth.secret) = (name.into(), secret.into());
        } else {
            auth.grant = self.grant_of_secret(&secret).map(Rc::new);
        }
        if let Some(conn) = self.conns.get_mut(key) {
            conn.auth = Some(Box::new(auth));
        }
        if self.config.auth_servers {
            self.ask_for_authorization(key);
        }
        !self.config.auth_servers
    }

    /// Why a request may not publish, if so: it does not show who it is, or that one may not.
    pub(crate) fn refusal_of_publisher(&self, key: ConnKey, head: &Head<'_, '_>) -> Option<Refusal> {
        let (needs_token, judges) = (!self.config.http_token.is_empty(), self.judges_publishers());
        if !needs_token && !judges || self.shows_own_token(head) {
            return None;
        }
        if !judges {
            return Some(UNAUTHORIZED);
        }
        let shown = authorization(head);
        let auth = self.conns.get(key).and_then(|conn| conn.auth.as_ref()).filter(|auth| *auth.shown == *shown);
        let shows_nothing = shown.is_empty() || !self.access.asks();
        let nobody = || Some(&self.nobody).filter(|_| self.is_open() && !needs_token && shows_nothing);
        let grant = auth.and_then(|auth| auth.grant.as_ref()).or_else(nobody);
        let Some(grant) = grant.filter(|grant| !grant.is_refused()) else { return Some(UNAUTHORIZED) };
        // Without a valid topic it is refused for that, later.
        let [topic] = arguments(head.query, ["topic"]).ok()?;
        let is_allowed = grant.allows(Permission::Publish, Object::topic(topic.as_deref()?), "");
        (!is_allowed).then_some((403, Cow::Borrowed("FORBIDDEN")))
    }

    /// The token that publishes must show from now on; "": none.
    pub fn set_http_token(&mut self, token: String) {
        self.config.http_token = token;
    }

    /// What `GET /ping` says: "OK", or why not.
    pub fn set_health(&mut self, health: &str) {
        self.http.health = health.into();
    }

    /// The port that clients are sent to who must use TLS.
    pub fn set_https_port(&mut self, port: u16) {
        self.http.https_port = port;
    }

    /// Accept connections of the HTTP port: whoever gets an answer of it finds everything in place.
    pub fn open_http(&mut self) {
        self.http.stage = Stage::Open;
    }

    /// No request is begun any more: connections that are idle end, the others with their next answer.
    pub fn close_http(&mut self) {
        self.http.stage = Stage::Closing;
        let idle = |conn: &Connection| {
            let has_begun_none = conn.input.is_empty() && conn.http.as_ref().is_some_and(|http| http.chunks.is_none());
            has_begun_none && conn.reads() && !conn.input_state.waits_for_more_than_the_disk()
        };
        let idle: Vec<ConnKey> = self.conns.iter().filter(|(_, conn)| idle(conn)).map(|(key, _)| key).collect();
        for key in idle {
            self.end_requests(key);
            self.mark_dirty(key);
        }
    }

    pub fn http_stage(&self) -> Stage {
        self.http.stage
    }

    pub(crate) fn answer(
        &mut self,
        key: ConnKey,
        exchange: Exchange,
        now: Nanos,
        write: impl FnOnce(&mut Vec<u8>, &Date),
    ) {
        self.http.date.set(self.clock.wall(now).div_euclid(1_000_000_000));
        let mut out = Vec::new();
        write(&mut out, &self.http.date);
        self.turn.replies.push((key, Reply::Raw(out)));
        if exchange.closes() {
            self.end_requests(key);
        }
    }

    /// Nothing more is read; what is answered still goes out.
    pub(crate) fn end_requests(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if conn.end_input() {
            self.schedule.resumed.push(key); // read to its end, or the close would reset it
        }
        if let Some(http) = &mut conn.http {
            (http.chunks, http.begun) = (None, None);
        }
    }

    fn refuse_malformed(&mut self, key: ConnKey, malformed: Malformed, now: Nanos) {
        self.answer(key, Exchange::LAST, now, |out, date| answer::write_malformed(out, malformed, date));
    }

    fn body_limit(&self, path: &str) -> usize {
        match path {
            "/pub" => self.config.max_msg_size as usize,
            "/mpub" => self.config.max_body_size as usize,
            _ => LARGE_BYTES, // of a request that Python answers
        }
    }

    /// The body is over its route's limit: it is not read. The codes are nsqd's.
    fn refuse_body(&mut self, key: ConnKey, path: &str, now: Nanos) {
        let code = match path {
            "/pub" => "MSG_TOO_BIG",
            _ if path.starts_with("/config/") => "INVALID_VALUE",
            _ => "BODY_TOO_BIG",
        };
        self.answer(key, Exchange::LAST, now, |out, date| {
            answer::write_refusal(out, 413, code, &[], Exchange::LAST, date)
        });
    }

    /// More is kept of unfinished requests than there may be.
    pub(crate) fn refuse_unfinished(&mut self, key: ConnKey, why: &str, now: Nanos) {
        let reason = format!("unfinished request: {why}");
        self.answer(key, Exchange::LAST, now, |out, date| {
            answer::write_refusal(out, 503, &reason, &[], Exchange::LAST, date)
        });
    }

    /// A request that has begun must come in: the clock of its deadline runs.
    pub(crate) fn note_unfinished(&mut self, key: ConnKey, more: bool, now: Nanos) {
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.reads() && !conn.input_state.waits()) else {
            return;
        };
        let Some(http) = &mut conn.http else { return };
        if (more || http.chunks.is_some()) && http.begun.is_none() {
            http.begun = Some(now);
            self.arm_connection(key);
        }
    }

    /// True: the request under way did not come in time, and is refused.
    pub(crate) fn refuse_late(&mut self, key: ConnKey, now: Nanos) -> bool {
        let late = self
            .conns
            .get(key)
            .filter(|conn| conn.reads())
            .and_then(|conn| conn.http.as_ref())
            .is_some_and(|http| http.is_late(now));
        if late {
            self.refuse_malformed(key, Malformed { status: 408, rule: "must come within 30 s" }, now);
        }
        late
    }

    /// All answers are taken.
    pub(crate) fn handle_answers_taken(&mut self, key: ConnKey, now: Nanos) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let goes_on = conn.note_input(InputEvent::Taken);
        let Some(http) = &mut conn.http else { return };
        http.answer_charge = None;
        if goes_on {
            http.idle_since = now;
            self.work.defer(key);
        }
    }
}
