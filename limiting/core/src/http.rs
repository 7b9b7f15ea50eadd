//! Checks by HTTP/1.1. Sans-IO: bytes in, bytes out.
//!
//! `Session::feed` takes what a connection received, and answers the checks that its limiter decides. Where others are
//! needed it stops, and `Waits` says who. What is unusual is always for others. So no refusal but that of a contract is
//! made here, and the rules of bad input stand in one place (`limiting/api`).

mod answer;
mod check;
mod headers;
mod request;

use std::hash::Hasher;
use std::time::{Duration, UNIX_EPOCH};

use httpdate::HttpDate;
use siphasher::sip::SipHasher24;

pub use self::answer::Answer;
use self::check::Asked;
pub use self::headers::Families;
use self::request::{Parsed, Request};
use crate::limiter::Limiter;
use crate::state::Now;

/// Bytes of answers that wait to be sent. Beyond them no request is read.
const MAX_WAITING: usize = 256 << 10;

/// Bytes of room that a connection keeps between requests.
const KEPT: usize = 4 << 10;

/// Bytes of the longest id of a request that is taken from it.
const MAX_ID: usize = 128;

/// What a session goes on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// Bytes of the next request.
    Bytes,
    /// The rest of a body.
    Body,
    /// `feed`, once the answers are sent: there is more to read.
    Room,
    /// `admit`, for the `authorization`.
    Admission,
    /// `answer`, for what is `asked`.
    Answer,
    /// Another server, which begins with the `rest`.
    Server,
    /// Nothing: the connection ends after the answers.
    End,
}

/// A whole request for others.
#[derive(Debug)]
pub struct AskedOthers {
    pub method: String,
    pub target: String,
    /// Names in small letters.
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    closes: bool,
}

/// What holds for all connections.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Whether a request needs a token.
    pub needs_token: bool,
    /// Headers of answers.
    pub families: Families,
    /// Bytes of a body; a larger one is for another server.
    pub most_body: usize,
}

/// One connection.
#[derive(Debug)]
pub struct Session {
    key: (u64, u64),
    settings: Settings,
    input: Vec<u8>,
    waits: Waits,
    requests: u64,
    authorization: Option<Box<[u8]>>,
    admitted: bool,
    asked: Option<AskedOthers>,
}

impl Session {
    /// `key`: secret, of the ids of requests that have none.
    pub fn new(key: (u64, u64), settings: Settings) -> Self {
        let (input, waits) = (Vec::new(), Waits::Bytes);
        Self { key, settings, input, waits, requests: 0, authorization: None, admitted: false, asked: None }
    }

    /// Takes what was received, appends answers to `out`, and says what comes next. `limiter`: None: others decide.
    ///
    /// An authorization is forgotten with each call that has received something: tokens may be withdrawn.
    pub fn feed(&mut self, received: &[u8], limiter: Option<&mut Limiter>, now: Now, out: &mut Vec<u8>) -> Waits {
        self.input.extend_from_slice(received);
        if !received.is_empty() {
            self.authorization = None;
        }
        if matches!(self.waits, Waits::Bytes | Waits::Body | Waits::Room | Waits::Admission) {
            let input = std::mem::take(&mut self.input);
            let read = self.read(&input, limiter, now, out);
            self.input = input;
            self.input.drain(..read);
            self.input.shrink_to(KEPT);
        }
        self.waits
    }

    /// Answers requests until others are needed. Returns the bytes that it took.
    fn read(&mut self, input: &[u8], mut limiter: Option<&mut Limiter>, now: Now, out: &mut Vec<u8>) -> usize {
        let mut begin = 0;
        self.waits = Waits::Room;
        while self.waits == Waits::Room && out.len() < MAX_WAITING {
            self.waits = match request::parse(&input[begin..], self.settings.most_body) {
                Parsed::HeadMissing => Waits::Bytes,
                Parsed::BodyMissing => Waits::Body,
                Parsed::Foreign => Waits::Server,
                Parsed::Request(request) => {
                    let waits = self.turn(&request, limiter.as_deref_mut(), now, out);
                    begin += if waits == Waits::Admission { 0 } else { request.size };
                    waits
                }
            };
        }
        begin
    }

    fn turn(&mut self, request: &Request<'_>, limiter: Option<&mut Limiter>, now: Now, out: &mut Vec<u8>) -> Waits {
        if let Some(limiter) = limiter
            && request.is_of_a_program()
        {
            let given = request.header("authorization");
            if self.settings.needs_token && given.is_some() && given != self.authorization.as_deref() {
                (self.authorization, self.admitted) = (given.map(Into::into), false);
                return Waits::Admission;
            }
            if !self.settings.needs_token || given.is_some() && self.admitted {
                let families = self.settings.families;
                let asked = Asked::read(request);
                if let Some(mut answer) = asked.and_then(|asked| answer::decided(&asked, limiter, families, now)) {
                    answer.headers.push((b"x-request-id".to_vec(), self.id(request)));
                    return write(&answer, request.closes, now, out);
                }
            }
        }
        let each = request.headers.iter();
        self.asked = Some(AskedOthers {
            method: request.method.into(),
            target: request.target.into(),
            headers: each.map(|each| (each.name.to_ascii_lowercase(), each.value.trim_ascii().into())).collect(),
            body: request.body.into(),
            closes: request.closes,
        });
        Waits::Answer
    }

    /// What waits for `admit`.
    pub fn authorization(&self) -> Option<&[u8]> {
        self.authorization.as_deref().filter(|_| self.waits == Waits::Admission)
    }

    /// Says whether the `authorization` may check. Go on with `feed`.
    pub fn admit(&mut self, is_admitted: bool) {
        if self.waits == Waits::Admission {
            (self.admitted, self.waits) = (is_admitted, Waits::Room);
        }
    }

    /// What waits for `answer`.
    pub fn asked(&self) -> Option<&AskedOthers> {
        self.asked.as_ref()
    }

    /// Answers what is `asked`. Go on with `feed`.
    pub fn answer(&mut self, answer: &Answer, now: Now, out: &mut Vec<u8>) -> Waits {
        if let Some(asked) = self.asked.take() {
            self.waits = write(answer, asked.closes, now, out);
        }
        self.waits
    }

    /// The bytes that no request here has taken.
    pub fn rest(&self) -> &[u8] {
        &self.input
    }

    /// The id that a request gives itself, if it is short and plain enough for logs and headers; else a new one.
    fn id(&mut self, request: &Request<'_>) -> Vec<u8> {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._:/+=@-".contains(byte);
        let given = request.header("x-request-id").filter(|id| (1..=MAX_ID).contains(&id.len()));
        if let Some(id) = given.filter(|id| id.iter().all(is_plain)) {
            return id.into();
        }
        self.requests += 1;
        let mut hash = SipHasher24::new_with_keys(self.key.0, self.key.1);
        hash.write_u64(self.requests);
        format!("{:016x}", hash.finish()).into_bytes()
    }
}

/// Appends an answer, and says what comes next.
fn write(answer: &Answer, closes: bool, now: Now, out: &mut Vec<u8>) -> Waits {
    let Answer { status, headers, body } = answer;
    out.extend_from_slice(format!("HTTP/1.1 {status} \r\n").as_bytes());
    for (name, value) in headers {
        field(out, name, value);
    }
    let has_length = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"content-length"));
    if !has_length && !matches!(status, 204 | 304) {
        field(out, b"content-length", body.len().to_string().as_bytes());
    }
    let second = Duration::from_nanos(u64::try_from(now.wall).unwrap_or(0));
    field(out, b"date", HttpDate::from(UNIX_EPOCH + second).to_string().as_bytes());
    if closes {
        field(out, b"connection", b"close");
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    if closes { Waits::End } else { Waits::Room }
}

fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend(name.iter().map(u8::to_ascii_lowercase)); // as all of Python's servers write it
    for part in [b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::contract::Contract;
    use crate::policy::{Policy, Rule};

    const NOW: Now = Now { mono: 0, wall: 0 };
    const BODY: &str = r#"{"namespace": "api", "subject": "user:1"}"#;

    fn limiter() -> Limiter {
        let mut limiter = Limiter::new((1, 2), 100);
        let rule = Rule::Bucket { rate_micro: 1_000_000, burst_micro: 2_000_000, max_debt_micro: 0 };
        let (namespace, policies) = ("api".into(), vec![Policy { name: "burst".into(), rule }]);
        let contract = Contract { namespace, subject: "user:*".into(), policies, shadow: false, starts_full: true };
        limiter.put_contract(contract, NOW).expect("a good contract");
        limiter
    }

    fn session(needs_token: bool) -> Session {
        let families = Families { ratelimit: true, x_ratelimit: true, retry_after: true };
        Session::new((3, 4), Settings { needs_token, families, most_body: 1_000 })
    }

    fn post(path: &str, headers: &str, body: &str) -> String {
        format!("POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
    }

    fn check() -> String {
        post("/limit/v1/check", "", BODY)
    }

    fn get(query: &str) -> String {
        format!("GET /limit/v1/check?namespace=api&{query} HTTP/1.1\r\nhost: x\r\nx-user: 7\r\n\r\n")
    }

    /// Feeds parts to one session, and tells it that the application has refused what it was asked.
    fn talk(parts: &[&[u8]]) -> (String, Session) {
        let (mut session, mut limiter, mut out) = (session(false), limiter(), Vec::new());
        for part in parts {
            let mut waits = session.feed(part, Some(&mut limiter), NOW, &mut out);
            while matches!(waits, Waits::Answer | Waits::Room) {
                let answer = Answer { status: 400, headers: Vec::new(), body: b"no".into() };
                session.answer(&answer, NOW, &mut out);
                waits = session.feed(b"", Some(&mut limiter), NOW, &mut out);
            }
        }
        (String::from_utf8(out).expect("answers are text"), session)
    }

    fn statuses(said: &str) -> Vec<&str> {
        said.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect()
    }

    fn said(request: &str) -> String {
        talk(&[request.as_bytes()]).0
    }

    #[test]
    fn a_check_is_decided_from_its_bytes() {
        let (said, session) = talk(&[check().repeat(3).as_bytes()]);
        assert_eq!(statuses(&said), ["200"; 3]);
        assert_eq!(session.waits, Waits::Bytes);
        assert!(said.contains("date: Thu, 01 Jan 1970 00:00:00 GMT\r\n"), "{said}");
        for part in [
            r#"{"allowed":true,"mode":"local","degraded":false,"wait_s":0.0,"violated":[],"grant":""#,
            r#"{"allowed":false,"mode":"local","degraded":false,"wait_s":1.0,"violated":["burst"],"grant":null,"#,
            r#""policy_header":"\"burst\";q=2;w=2","ratelimit_header":"\"burst\";r=1;t=1"}"#,
        ] {
            assert!(said.contains(part), "{part} in {said}");
        }
    }

    #[test]
    fn a_gateway_is_told_by_status_and_headers() {
        let said = said(&get("subject=user:%7Bx-user%7D&status=429").repeat(3));
        assert_eq!(statuses(&said), ["200", "200", "429"]);
        assert!(
            said.contains("\r\nratelimit: \"burst\";r=1;t=1\r\n") && said.contains("\r\nretry-after: 1\r\n"),
            "{said}"
        );
        assert!(said.contains(r#""detail":"the limit burst of api is reached; come again in 1 s""#), "{said}");
    }

    #[test]
    fn what_is_not_right_in_every_part_is_for_the_application_and_takes_nothing() {
        let many = post("/limit/v1/check-many", "", r#"{"checks": [{"namespace": "api", "subject": "user:1"}, {}]}"#);
        for request in [
            post("/limit/v1/check", "", r#"["api", "user:1"]"#),
            post("/limit/v1/check", "", r#"{"namespace": "api", "subject": "user:1", "price": 1}"#),
            post("/limit/v1/check", "", r#"{"namespace": "api", "subject": "user:1", "subject": "user:1"}"#),
            post("/limit/v1/check", "", r#"{"namespace": "api", "subject": "user:1", "cost": -1}"#),
            post("/limit/v1/check", "", r#"{"namespace": "api", "subjects": ["user:1", "user:1"]}"#),
            post("/limit/v1/check", "", r#"{"namespace": "api", "subjects": ["user:1", "none"]}"#),
            post("/limit/v1/check", "", r#"{"namespace": "api", "subject": "{plan}/user:1"}"#),
            post("/limit/v1/check", "", r#"{"namespace": "api", "subject": "\ud800"}"#),
            post("/limit/v1/check", "", &format!(r#"{{"namespace": "api", "subject": "{}"}}"#, "u".repeat(900))),
            post("/limit/v1/check", "", "{"),
            post("/limit/v1/check?status=404", "", BODY),
            post("/limit/v1/check?status=429&status=429", "", BODY),
            post("/limit/v1/check", "cookie: srtm_token=a\r\n", BODY),
            post("/limit/v1/check", "origin: http://other\r\n", BODY),
            post("/limit/v1/correct", "", BODY),
            many,
            get("subject=user:1&cost=x"),
            get("subject=user:{x-none}"),
            get("subject=user:%zz"),
            get("subject=user:1&other=1"),
        ] {
            let (said, session) = talk(&[request.as_bytes(), check().as_bytes()]);
            assert_eq!(statuses(&said), ["400", "200"], "{request}");
            assert!(said.contains(r#""remaining":1"#), "{request}: {said}");
            assert_eq!((session.waits, session.rest()), (Waits::Bytes, &b""[..]));
        }
    }

    #[test]
    fn what_two_servers_could_read_in_two_ways_is_for_another_server() {
        let plain = check();
        for request in [
            plain.replace("content-length", "transfer-encoding: chunked\r\ncontent-length"),
            plain.replace("content-length: 41", "content-length: 41\r\ncontent-length: 41"),
            plain.replace("content-length: 41", "content-length: +41"),
            plain.replace("content-length: 41", "content-length: 99999999999999999999"),
            plain.replace("content-length: 41", "content-length: 1001"),
            plain.replace("host: x\r\n", "host: x\n"),
            plain.replace("host: x\r\n", ""),
            plain.replace("host: x\r\n", "host: x\r\nhost: x\r\n"),
            plain.replace("host: x\r\n", "host: x\r\nexpect: 100-continue\r\n"),
            plain.replace("host: x\r\n", "host: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n"),
            plain.replace("host: x\r\n", "host: x\r\na: \0\r\n"),
            plain.replace("host: x\r\n", "host: x\r\na: b\r\n c\r\n"),
            plain.replace("host: x\r\n", &format!("host: x\r\na: {}\r\n", "a".repeat(64 << 10))),
            plain.replace("HTTP/1.1", "HTTP/1.0").replace("host: x\r\n", "connection: keep-alive\r\n"),
            plain.replace("HTTP/1.1", "HTTP/1.0").replace("host: x\r\n", "host: x\r\nhost: x\r\n"),
            plain.replace("POST", "PUT"),
            plain.replace("/limit/v1/check", "/limit/v1/usage"),
            plain.replace("/limit/v1/check", "/limit/v1/check%2F"),
            plain.replace("/limit/v1/check", "/limit/v1/check#a"),
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(),
            "\u{16}\u{3}\u{1}hello".into(),
            "x".repeat(17 << 10),
        ] {
            let (said, session) = talk(&[(plain.clone() + &request).as_bytes(), b"more"]);
            assert_eq!(statuses(&said), ["200"], "{request}");
            assert_eq!((session.waits, session.rest()), (Waits::Server, (request.clone() + "more").as_bytes()));
        }
    }

    #[test]
    fn an_unfinished_request_waits() {
        let (head, all) = (check().len() - BODY.len(), check());
        for size in 0..all.len() {
            let waits = if size < head { Waits::Bytes } else { Waits::Body };
            assert_eq!(talk(&[&all.as_bytes()[..size]]).1.waits, waits, "{size}");
        }
    }

    #[test]
    fn a_token_is_admitted_until_more_is_received() {
        let (mut session, mut limiter, mut out) = (session(true), limiter(), Vec::new());
        let request = check().replace("host", "authorization: Bearer a\r\nhost");
        assert_eq!(session.feed(check().as_bytes(), Some(&mut limiter), NOW, &mut out), Waits::Answer);
        session.answer(&Answer { status: 401, headers: Vec::new(), body: Vec::new() }, NOW, &mut out);
        for is_known in [true, false] {
            let both = request.repeat(2);
            assert_eq!(session.feed(both.as_bytes(), Some(&mut limiter), NOW, &mut out), Waits::Admission);
            assert_eq!(session.authorization(), Some(&b"Bearer a"[..]));
            session.admit(is_known);
            let waits = session.feed(b"", Some(&mut limiter), NOW, &mut out);
            assert_eq!(waits, if is_known { Waits::Bytes } else { Waits::Answer });
        }
        assert_eq!(statuses(&String::from_utf8(out).expect("text")), ["401", "200", "200"]);
    }

    #[test]
    fn without_a_limiter_the_application_decides() {
        let (mut session, mut out) = (session(false), Vec::new());
        assert_eq!(session.feed(check().as_bytes(), None, NOW, &mut out), Waits::Answer);
        let asked = session.asked().expect("it waits for an answer");
        assert_eq!((&*asked.method, &*asked.target, &*asked.body), ("POST", "/limit/v1/check", BODY.as_bytes()));
        assert_eq!(asked.headers[0], ("host".into(), b"x".to_vec()));
    }

    #[test]
    fn a_request_that_ends_the_connection_is_the_last() {
        let old = check().replace("HTTP/1.1", "HTTP/1.0");
        for closing in [
            check().replace("host: x\r\n", "host: x\r\nConnection: close\r\n"),
            old.replace("host: x\r\n", "host: x\r\nConnection: close\r\n"),
            old.replace("host: x\r\n", ""),
            old,
        ] {
            let (said, session) = talk(&[(closing + &check()).as_bytes()]);
            assert_eq!((statuses(&said), session.waits), (vec!["200"], Waits::End));
            assert!(said.contains("\r\nconnection: close\r\n"));
        }
    }

    #[test]
    fn a_request_keeps_its_plain_id_and_gets_one_else() {
        let with = |id: &str| said(&check().replace("host", &format!("X-Request-Id: {id}\r\nhost")));
        assert!(with("a/1").contains("\r\nx-request-id: a/1\r\n"));
        for id in ["", "a b", &"a".repeat(129)] {
            let said = with(id);
            let (_, given) = said.split_once("x-request-id: ").expect("an id");
            assert!(given[..16].bytes().all(|byte| byte.is_ascii_hexdigit()), "{said}");
        }
    }

    proptest! {
        #[test]
        fn how_bytes_arrive_changes_no_answer(
            picks in prop::collection::vec(0usize..5, 1..6), cuts in prop::collection::vec(0usize..900, 0..8),
        ) {
            let many = post("/limit/v1/check-many", "", &format!(r#"{{"checks": [{BODY}, {BODY}]}}"#));
            let each = [check(), get("subject=user:2&status=403"), many, post("/json", "", "{}"), get("subject=none")];
            let all: String = picks.iter().map(|pick| each[*pick].as_str()).collect();
            let mut places: Vec<_> = cuts.into_iter().map(|cut| cut.min(all.len())).chain([0, all.len()]).collect();
            places.sort_unstable();
            let parts: Vec<_> = places.windows(2).map(|pair| &all.as_bytes()[pair[0]..pair[1]]).collect();
            prop_assert_eq!(talk(&parts).0, talk(&[all.as_bytes()]).0);
        }

        #[test]
        fn no_bytes_panic(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..6)) {
            let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
            talk(&parts);
        }

        #[test]
        fn no_query_or_body_panics(query in "[ -~]{0,40}", body in "[ -~é]{0,40}") {
            said(&get(&query.replace(' ', "+")));
            said(&post("/limit/v1/check", "", &body));
            said(&post("/limit/v1/check-many", "", &body));
        }
    }
}
