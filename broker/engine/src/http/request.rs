//! The head of a request: bytes to method, target, headers, and how its body is framed. What could be read in two ways
//! is refused (RFC 9112, 6.3).

use std::mem::MaybeUninit;

use httparse::{Error, Header, Status};

/// Bytes of the longest head, request line included.
pub const MAX_HEAD: usize = 64 << 10;

pub const MAX_HEADERS: usize = 100;

/// Room for the headers of one head.
pub type Room<'b> = [MaybeUninit<Header<'b>>; MAX_HEADERS];

/// Why bytes are no request: the answer's status, and the rule that they break. The connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    pub status: u16,
    pub rule: &'static str,
}

const fn bad(rule: &'static str) -> Malformed {
    Malformed { status: 400, rule }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Length(u64),
    Chunked,
}

/// What happens to the connection after the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Afterwards {
    KeptAlive,
    /// HTTP/1.0 closes unless both sides say otherwise.
    KeptAliveIfSaid,
    Closed,
}

#[derive(Debug)]
pub struct Head<'h, 'b> {
    pub method: &'b str,
    pub path: &'b str,
    pub query: &'b str,
    pub headers: &'h [Header<'b>],
    pub framing: Framing,
    pub expects_continue: bool,
    pub afterwards: Afterwards,
    pub len: usize,
}

impl<'b> Head<'_, 'b> {
    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&'b [u8]> {
        self.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
    }
}

/// The head at the start of `bytes`; `None`: bytes are missing.
pub fn parse<'h, 'b>(bytes: &'b [u8], room: &'h mut Room<'b>) -> Result<Option<Head<'h, 'b>>, Malformed> {
    let mut request = httparse::Request::new(&mut []);
    let len = match request.parse_with_uninit_headers(bytes, room) {
        Ok(Status::Complete(len)) if len <= MAX_HEAD => len,
        Ok(Status::Partial) if bytes.len() < MAX_HEAD => return Ok(None),
        Ok(_) => return Err(Malformed { status: 431, rule: "the head must be at most 65536 bytes" }),
        Err(Error::TooManyHeaders) => return Err(Malformed { status: 431, rule: "must have at most 100 headers" }),
        Err(Error::Version) => return Err(Malformed { status: 505, rule: "must be HTTP/1.0 or HTTP/1.1" }),
        Err(_) => return Err(bad("this is not HTTP")),
    };
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Err(bad("this is not HTTP"));
    };
    let (path, query) = split_target(target).ok_or(bad("the target must be a path"))?;
    let fields = Fields::read(request.headers)?;
    if version == 1 && !fields.host {
        return Err(bad("HTTP/1.1 must have a Host header"));
    }
    Ok(Some(Head {
        method,
        path,
        query,
        headers: request.headers,
        framing: fields.framing(version)?,
        expects_continue: fields.expects_continue && version == 1,
        afterwards: fields.afterwards(version),
        len,
    }))
}

/// Path and query of a target: `/path?query`, `http://host/path?query` or `*`.
fn split_target(target: &str) -> Option<(&str, &str)> {
    let path = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => rest.find('/').map_or("/", |at| &rest[at..]),
        _ => target,
    };
    let path = path.split_once('#').map_or(path, |(path, _)| path);
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    (path.starts_with('/') || path == "*").then_some((path, query))
}

/// The headers that tell how to read the rest.
#[derive(Default)]
struct Fields {
    host: bool,
    length: Option<u64>,
    chunked: bool,
    expects_continue: bool,
    closes: bool,
    keeps_alive: bool,
}

impl Fields {
    fn read(headers: &[Header<'_>]) -> Result<Self, Malformed> {
        let mut fields = Self::default();
        for Header { name, value } in headers {
            match name.len() {
                4 if name.eq_ignore_ascii_case("host") => {
                    if fields.host {
                        return Err(bad("Host must be said once"));
                    }
                    fields.host = true;
                }
                6 if name.eq_ignore_ascii_case("expect") => {
                    if !value.eq_ignore_ascii_case(b"100-continue") {
                        return Err(Malformed { status: 417, rule: "nothing but 100-continue can be expected" });
                    }
                    fields.expects_continue = true;
                }
                10 if name.eq_ignore_ascii_case("connection") => fields.read_connection(value),
                14 if name.eq_ignore_ascii_case("content-length") => {
                    let length = length(value).ok_or(bad("Content-Length must be a number"))?;
                    if fields.length.is_some_and(|other| other != length) {
                        return Err(bad("Content-Length must be said once"));
                    }
                    fields.length = Some(length);
                }
                17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                    if fields.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                        return Err(Malformed { status: 501, rule: "Transfer-Encoding must be chunked" });
                    }
                    fields.chunked = true;
                }
                _ => {}
            }
        }
        Ok(fields)
    }

    fn read_connection(&mut self, value: &[u8]) {
        for word in value.split(|&c| c == b',').map(<[u8]>::trim_ascii) {
            self.closes |= word.eq_ignore_ascii_case(b"close");
            self.keeps_alive |= word.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn framing(&self, version: u8) -> Result<Framing, Malformed> {
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(bad("must not have both Content-Length and Transfer-Encoding")),
            (true, None) if version == 0 => Err(bad("HTTP/1.0 has no Transfer-Encoding")),
            (true, None) => Ok(Framing::Chunked),
            (false, length) => Ok(Framing::Length(length.unwrap_or(0))),
        }
    }

    fn afterwards(&self, version: u8) -> Afterwards {
        match version {
            _ if self.closes => Afterwards::Closed,
            1 => Afterwards::KeptAlive,
            _ if self.keeps_alive => Afterwards::KeptAliveIfSaid,
            _ => Afterwards::Closed,
        }
    }
}

/// A number of decimal digits, without sign or list.
fn length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 18 {
        return None;
    }
    value.iter().try_fold(0, |sum, &c| c.is_ascii_digit().then(|| sum * 10 + u64::from(c - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(bytes: &[u8], look: impl FnOnce(Result<Option<Head<'_, '_>>, Malformed>) -> T) -> T {
        look(parse(bytes, &mut [const { MaybeUninit::uninit() }; MAX_HEADERS]))
    }

    fn status(bytes: &[u8]) -> u16 {
        with(bytes, |parsed| parsed.err().map_or(0, |malformed| malformed.status))
    }

    #[test]
    fn a_head_says_where_to_and_how_long_its_body_is() {
        with(b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\ncontent-LENGTH: 5\r\n\r\nhello", |parsed| {
            let head = parsed.expect("well-formed").expect("whole");
            assert_eq!((head.method, head.path, head.query), ("POST", "/pub", "topic=t"));
            assert_eq!((head.framing, head.afterwards, head.len), (Framing::Length(5), Afterwards::KeptAlive, 58));
            assert_eq!(head.header("HOST"), Some(&b"x"[..]));
        });
    }

    #[test]
    fn every_prefix_of_a_head_asks_for_more() {
        let head = b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        for end in 0..head.len() {
            assert!(with(&head[..end], |parsed| matches!(parsed, Ok(None))), "{end}");
        }
    }

    #[test]
    fn a_target_may_name_the_server() {
        assert_eq!(split_target("http://h:1/a?b=://c"), Some(("/a", "b=://c")));
        assert_eq!(split_target("http://h"), Some(("/", "")));
        assert_eq!(split_target("/a?u=http://h/b"), Some(("/a", "u=http://h/b")));
        assert_eq!(split_target("/a://b"), Some(("/a://b", "")));
        assert_eq!(split_target("*"), Some(("*", "")));
        assert_eq!(split_target("host:443"), None);
    }

    #[test]
    fn who_keeps_a_connection_alive_depends_on_version_and_header() {
        let afterwards = |line: &str| {
            with(format!("GET / {line}\r\n\r\n").as_bytes(), |p| p.ok().flatten().map(|head| head.afterwards))
        };
        assert_eq!(afterwards("HTTP/1.0"), Some(Afterwards::Closed));
        assert_eq!(afterwards("HTTP/1.0\r\nConnection: Keep-Alive"), Some(Afterwards::KeptAliveIfSaid));
        assert_eq!(afterwards("HTTP/1.1\r\nHost: x"), Some(Afterwards::KeptAlive));
        assert_eq!(afterwards("HTTP/1.1\r\nHost: x\r\nConnection: foo, CLOSE"), Some(Afterwards::Closed));
    }

    #[test]
    fn what_is_not_http_is_known_by_its_first_bytes() {
        for garbage in [
            "  V2IDENTIFY\n\0\0\0\x02{}",
            "PUB topic\n\0\0\0\x01x",
            "hello\n",
            "\x16\x03\x01\x02",
            "GET  / HTTP/1.1\r\n",
        ] {
            assert_eq!(status(garbage.as_bytes()), 400, "{garbage:?}");
        }
        assert_eq!(status(b"GET / HTTP/9.0\r\n\r\n"), 505);
        assert_eq!(status(b"GET host:1 HTTP/1.1\r\nHost: x\r\n\r\n"), 400);
    }

    #[test]
    fn what_could_be_framed_in_two_ways_is_refused() {
        for (headers, expected) in [
            ("Content-Length: 5\r\nContent-Length: 6", 400),
            ("Content-Length: 5, 5", 400),
            ("Content-Length: +5", 400),
            ("Content-Length: ", 400),
            ("Content-Length: 5\r\nTransfer-Encoding: chunked", 400),
            ("Transfer-Encoding: gzip, chunked", 501),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 501),
            ("Expect: the-unexpected", 417),
            ("Content-Length : 5", 400),
            ("Content-Length: 5\r\nContent-Length: 5", 0),
        ] {
            assert_eq!(
                status(format!("POST / HTTP/1.1\r\nHost: x\r\n{headers}\r\n\r\n").as_bytes()),
                expected,
                "{headers}"
            );
        }
        assert_eq!(status(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
        assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), 400, "no Host");
        assert_eq!(status(b"GET / HTTP/1.1\r\nHost: x\r\nhost: x\r\n\r\n"), 400, "two of them");
    }

    #[test]
    fn an_endless_head_is_refused() {
        assert_eq!(status(&[b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; MAX_HEAD]].concat()), 431);
        assert_eq!(status(format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(101)).as_bytes()), 431);
    }
}
