//! Requests of HTTP/1.1, or of 1.0 one a connection, that may be a check: their head, and where they end.
//!
//! What two servers could read in two ways is `Parsed::Foreign`: one server alone, behind this one, judges it.

use httparse::{EMPTY_HEADER, Header, Status};

/// The routes of clients.
pub(super) const CHECK: &str = "/limit/v1/check";
pub(super) const CHECK_MANY: &str = "/limit/v1/check-many";
const OTHERS: [&str; 3] = ["/json", "/limit/v1/correct", "/limit/v1/release"];

/// Bytes of a head: as much as the server behind takes.
const MAX_HEAD: usize = 16 << 10;
const MAX_HEADERS: usize = 64;

/// A whole request of a client's route.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub size: usize,
    pub method: &'a str, // GET or POST
    pub target: &'a str,
    pub path: &'a str,
    pub query: &'a str,
    pub headers: Vec<Header<'a>>,
    pub body: &'a [u8],
    /// Whether the connection ends after the answer.
    pub closes: bool,
}

impl Request<'_> {
    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.map(|header| header.value.trim_ascii())
    }

    /// Whether no browser sent it: of browsers' requests it matters which page made them.
    pub fn is_of_a_program(&self) -> bool {
        ["cookie", "origin", "sec-fetch-site"].iter().all(|name| self.header(name).is_none())
    }
}

#[derive(Debug)]
pub(super) enum Parsed<'a> {
    Request(Request<'a>),
    HeadMissing,
    BodyMissing,
    /// Not for here.
    Foreign,
}

/// The first request of `input`. A body of more than `most_body` bytes is not for here.
pub(super) fn parse(input: &[u8], most_body: usize) -> Parsed<'_> {
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    let begin = match head.parse(input) {
        Ok(Status::Complete(size)) if size <= MAX_HEAD && has_whole_line_ends(&input[..size]) => size,
        Ok(Status::Partial) if input.len() < MAX_HEAD => return Parsed::HeadMissing,
        _ => return Parsed::Foreign,
    };
    let (Some(method @ ("GET" | "POST")), Some(target), Some(version)) = (head.method, head.path, head.version) else {
        return Parsed::Foreign;
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let is_ours = [CHECK, CHECK_MANY].contains(&path) || OTHERS.contains(&path);
    if !is_ours || !target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Parsed::Foreign;
    }
    let Some((length, closes)) = framing(head.headers, version) else { return Parsed::Foreign };
    if length > if method == "GET" { 0 } else { most_body } {
        return Parsed::Foreign;
    }
    let Some(body) = input.get(begin..begin + length) else { return Parsed::BodyMissing };
    let (size, headers) = (begin + length, head.headers.to_vec());
    Parsed::Request(Request { size, method, target, path, query, headers, body, closes })
}

/// Whether each line ends with CR LF: some servers take LF alone.
fn has_whole_line_ends(head: &[u8]) -> bool {
    head.iter().enumerate().all(|(at, byte)| *byte != b'\n' || at > 0 && head[at - 1] == b'\r')
}

/// The bytes of the body, and whether the connection ends after it. None: not plain enough.
fn framing(headers: &[Header<'_>], version: u8) -> Option<(usize, bool)> {
    let (mut hosts, mut length, mut closes) = (0, None, None);
    for Header { name, value } in headers {
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
        if is("host") {
            hosts += 1;
        } else if is("content-length") {
            let digits =
                std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
            if length.replace(digits.parse().ok()?).is_some() {
                return None;
            }
        } else if is("connection") {
            let ends = value.eq_ignore_ascii_case(b"close");
            if closes.replace(ends).is_some() || !ends && !value.eq_ignore_ascii_case(b"keep-alive") {
                return None;
            }
        } else if is("transfer-encoding") || is("expect") || is("upgrade") {
            return None;
        }
    }
    let is_old = version == 0; // then connections end unless both sides say otherwise, and a host may be left out
    let closes = closes.unwrap_or(is_old);
    (hosts <= 1 && if is_old { closes } else { hosts == 1 }).then_some((length.unwrap_or(0), closes))
}
