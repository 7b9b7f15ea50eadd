//! MQTT in WebSocket (RFC 6455; MQTT 5.0, section 6): the request that opens it, then binary frames.
//!
//! What a client sends is masked and may be cut into frames anywhere, whatever MQTT's packets are. The broker sends one
//! frame a write turn. There are no extensions.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use httparse::{EMPTY_HEADER, Header, Request, Status};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use crate::transport::types::Broken;

/// Bytes of the longest request that opens a connection, and how many headers it may have.
const LONGEST_HEAD: usize = 8 << 10;
const MOST_HEADERS: usize = 64;
/// Of section 1.3 of the RFC.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Names of the subprotocol that clients ask for: by the standard, and as older ones have it.
const SUBPROTOCOLS: [&str; 2] = ["mqtt", "mqttv3.1"];

const FIN: u8 = 0x80;
const MASKED: u8 = 0x80;
const CONTINUATION: u8 = 0;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
/// Bytes that a control frame may have (section 5.5).
const LONGEST_CONTROL: u64 = 125;

const BAD_REQUEST: &str = "400 Bad Request";
const FORBIDDEN: &str = "403 Forbidden";

const NORMAL: u16 = 1_000;
const PROTOCOL_ERROR: u16 = 1_002;
const UNACCEPTABLE: u16 = 1_003;

#[derive(Debug, Clone, Copy)]
struct Frame {
    opcode: u8,
    left: u64, // bytes of its payload that have not come
    mask: [u8; 4],
    at: usize, // in the mask
}

#[derive(Debug)]
enum State {
    Head,
    /// Between two frames.
    Open,
    In(Frame),
    Closed,
}

/// Both directions of one connection.
#[derive(Debug)]
pub struct WebSocket {
    state: State,
    is_within: bool,              // a message whose last frame has not come
    control: Vec<u8>,             // of a control frame, until it is whole
    answers: Vec<u8>,             // for the socket: the answer to the request, pongs, the end
    has_closed: bool,             // the end was said
    origins: Option<Vec<String>>, // None: pages of all may connect
}

impl Default for WebSocket {
    fn default() -> Self {
        Self::new(None)
    }
}

impl WebSocket {
    /// `origins`: whose pages may connect, as `https://HOST[:PORT]` or as a host of any port; `None`: all pages.
    pub fn new(origins: Option<Vec<String>>) -> Self {
        let (control, answers) = (Vec::new(), Vec::new());
        Self { state: State::Head, is_within: false, control, answers, has_closed: false, origins }
    }

    /// Decodes `input` into `out`, until it is used up or `out` holds `limit` bytes. Returns how many bytes were used,
    /// and whether the client has ended the connection.
    pub fn decode(&mut self, input: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<(usize, bool), Broken> {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            let taken = match self.state {
                State::Closed => return Ok((input.len(), true)),
                State::Head => self.open(rest)?,
                State::Open => self.begin(rest)?,
                State::In(frame) if out.len() < limit => self.take(frame, rest, out)?,
                State::In(_) => 0,
            };
            if taken == 0 && !matches!(self.state, State::Closed) {
                return Ok((used, false));
            }
            used += taken;
        }
    }

    /// The request that opens the connection, once it is whole (section 4.2).
    fn open(&mut self, input: &[u8]) -> Result<usize, Broken> {
        let mut headers = [EMPTY_HEADER; MOST_HEADERS];
        let mut request = Request::new(&mut headers);
        let len = match request.parse(input) {
            Ok(Status::Complete(len)) if len <= LONGEST_HEAD => len,
            Ok(Status::Partial) if input.len() < LONGEST_HEAD => return Ok(0),
            _ => return Err(self.refuse(BAD_REQUEST, "this is no request for a WebSocket")),
        };
        let is_get = request.method == Some("GET") && request.version == Some(1);
        let (Some(key), true) = (opening_key(request.headers), is_get) else {
            return Err(self.refuse(BAD_REQUEST, "this port takes WebSocket connections alone (RFC 6455, version 13)"));
        };
        if self.origins.take().is_some_and(|allowed| !is_allowed(request.headers, &allowed)) {
            return Err(self.refuse(FORBIDDEN, "pages of this origin may not connect (see --mqtt-ws-origin)"));
        }
        let Some(protocol) = subprotocol(request.headers) else {
            return Err(self.refuse(BAD_REQUEST, "Sec-WebSocket-Protocol must name mqtt [MQTT-6.0.0-3]"));
        };
        let accept = STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes()));
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
        );
        self.answers.extend_from_slice(answer.as_bytes());
        self.state = State::Open;
        Ok(len)
    }

    #[cold]
    fn refuse(&mut self, status: &str, rule: &str) -> Broken {
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\
             Sec-WebSocket-Version: 13\r\n\r\n{rule}",
            rule.len()
        );
        self.answers.extend_from_slice(answer.as_bytes());
        (self.state, self.has_closed) = (State::Closed, true);
        Broken::new(rule)
    }

    /// The head of a frame, once it is whole (section 5.2).
    fn begin(&mut self, input: &[u8]) -> Result<usize, Broken> {
        let &[first, second, ref rest @ ..] = input else { return Ok(0) };
        let opcode = first & 0x0f;
        let (left, len) = match (second & 0x7f, rest) {
            (126, [a, b, ..]) => (u64::from(u16::from_be_bytes([*a, *b])), 4),
            (127, rest) if rest.len() >= 8 => (rest[..8].iter().fold(0, |left, byte| left << 8 | u64::from(*byte)), 10),
            (126 | 127, _) => return Ok(0),
            (short, _) => (u64::from(short), 2),
        };
        let is_control = opcode & 8 != 0;
        let is_fit = match opcode {
            BINARY => !self.is_within,
            CONTINUATION => self.is_within,
            CLOSE | PING | PONG => first & FIN != 0 && left <= LONGEST_CONTROL,
            _ => return Err(self.fail(UNACCEPTABLE, "MQTT goes in binary frames [MQTT-6.0.0-1]")),
        };
        if !is_fit || first & 0x70 != 0 || second & MASKED == 0 || left >> 63 != 0 {
            return Err(self.fail(PROTOCOL_ERROR, "a frame breaks section 5.2 of RFC 6455"));
        }
        let Some(&[a, b, c, d]) = input.get(len..len + 4) else { return Ok(0) };
        if !is_control {
            self.is_within = first & FIN == 0;
        }
        self.state = State::In(Frame { opcode, left, mask: [a, b, c, d], at: 0 });
        if left == 0 {
            self.end(opcode)?;
        }
        Ok(len + 4)
    }

    /// Bytes of a frame's payload.
    fn take(&mut self, mut frame: Frame, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Broken> {
        let len = input.len().min(usize::try_from(frame.left).unwrap_or(usize::MAX));
        let into = if frame.opcode & 8 != 0 { &mut self.control } else { out };
        let (mask, at) = (frame.mask, frame.at);
        into.extend(input[..len].iter().enumerate().map(|(i, byte)| byte ^ mask[(at + i) & 3]));
        frame.left -= len as u64;
        frame.at = (at + len) & 3;
        self.state = State::In(frame);
        if frame.left == 0 {
            self.end(frame.opcode)?;
        }
        Ok(len)
    }

    /// A frame is whole.
    fn end(&mut self, opcode: u8) -> Result<(), Broken> {
        self.state = State::Open;
        let control = std::mem::take(&mut self.control);
        match opcode {
            PING => write_frame(&mut self.answers, PONG, &control),
            CLOSE => {
                self.close(NORMAL);
                self.state = State::Closed;
            }
            _ => {}
        }
        Ok(())
    }

    #[cold]
    fn fail(&mut self, code: u16, rule: &str) -> Broken {
        self.close(code);
        self.state = State::Closed;
        Broken::new(rule)
    }

    /// Says the end, once.
    pub fn close(&mut self, code: u16) {
        if !std::mem::replace(&mut self.has_closed, true) {
            write_frame(&mut self.answers, CLOSE, &code.to_be_bytes());
        }
    }

    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Appends what is for the socket: answers, and `plain` as one frame. `last`: nothing comes after it.
    pub fn encode(&mut self, plain: &[u8], last: bool, out: &mut Vec<u8>) {
        let is_open = !matches!(self.state, State::Head);
        if !self.has_closed && !plain.is_empty() && is_open {
            write_frame(&mut self.answers, BINARY, plain);
        }
        if last && is_open {
            self.close(NORMAL);
        }
        out.append(&mut self.answers);
    }
}

fn write_frame(out: &mut Vec<u8>, opcode: u8, payload: &[u8]) {
    out.push(FIN | opcode);
    match payload.len() {
        len @ 0..126 => out.push(len as u8),
        len if len <= usize::from(u16::MAX) => {
            out.push(126);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            out.push(127);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
}

/// The words of all headers of that name, which commas separate.
fn words<'h>(headers: &'h [Header<'h>], name: &'h str) -> impl Iterator<Item = &'h str> {
    let named = headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
    named.filter_map(|header| std::str::from_utf8(header.value).ok()).flat_map(|text| text.split(',')).map(str::trim)
}

/// The key of a request that is one for a WebSocket.
fn opening_key<'h>(headers: &'h [Header<'h>]) -> Option<&'h str> {
    let has = |name, word: &str| words(headers, name).any(|other| other.eq_ignore_ascii_case(word));
    let is_asked = has("upgrade", "websocket") && has("connection", "upgrade") && has("sec-websocket-version", "13");
    let key = words(headers, "sec-websocket-key").next().filter(|_| is_asked)?;
    STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16).then_some(key)
}

/// Whether the page that opens the connection may do so (section 4.2.2). Who names no origin is no page.
fn is_allowed(headers: &[Header<'_>], allowed: &[String]) -> bool {
    words(headers, "origin").all(|origin| {
        let authority = origin.split_once("://").map_or(origin, |(_, authority)| authority);
        let port = authority.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
        let host = port.map_or(authority, |(host, _)| host);
        allowed.iter().any(|one| one.eq_ignore_ascii_case(origin) || one.eq_ignore_ascii_case(host))
    })
}

fn subprotocol(headers: &[Header<'_>]) -> Option<&'static str> {
    words(headers, "sec-websocket-protocol").find_map(|word| SUBPROTOCOLS.into_iter().find(|known| *known == word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The request of section 1.3 of the RFC, with its answer.
    const REQUEST: &str = "GET /mqtt HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Protocol: mqttv3.1, mqtt\r\n\r\n";
    const ACCEPT: &str = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";

    fn opened() -> WebSocket {
        let (mut socket, mut out) = (WebSocket::default(), Vec::new());
        assert_eq!(socket.decode(REQUEST.as_bytes(), &mut out, 100), Ok((REQUEST.len(), false)));
        socket.encode(&[], false, &mut out);
        let answer = String::from_utf8(out).expect("text");
        assert!(answer.contains(ACCEPT) && answer.contains("Sec-WebSocket-Protocol: mqttv3.1\r\n"), "{answer}");
        socket
    }

    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write_frame(&mut out, 0, payload);
        let head = out.len() - payload.len();
        (out[0], out[1]) = (first, out[1] | MASKED);
        let mask = [1, 2, 3, 4];
        let sent: Vec<u8> = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
        [&out[..head], &mask, &sent].concat()
    }

    fn said(socket: &mut WebSocket) -> Vec<u8> {
        let mut out = Vec::new();
        socket.encode(&[], false, &mut out);
        out
    }

    #[test]
    fn a_ping_between_the_frames_of_a_message_is_answered_and_the_end_is_said_back() {
        let mut socket = opened();
        let input =
            [masked(BINARY, b"ab"), masked(FIN | PING, b"?"), masked(FIN, b"c"), masked(FIN | CLOSE, b"")].concat();
        let mut out = Vec::new();
        assert_eq!(socket.decode(&input, &mut out, 100), Ok((input.len(), true)));
        assert_eq!(out, b"abc");
        assert_eq!(said(&mut socket), [FIN | PONG, 1, b'?', FIN | CLOSE, 2, 3, 0xe8]);
    }

    #[test]
    fn what_breaks_the_rules_is_told_by_a_code_and_ends() {
        let cases = [
            (masked(FIN | 1, b"text"), UNACCEPTABLE),
            (masked(FIN, b"no message has begun"), PROTOCOL_ERROR),
            (masked(FIN | 0x40 | BINARY, b"compressed"), PROTOCOL_ERROR),
            (masked(PING, b"in parts"), PROTOCOL_ERROR),
            (masked(FIN | PING, &[0; 126]), PROTOCOL_ERROR),
            (vec![FIN | BINARY, 1, b'x'], PROTOCOL_ERROR),
            ([masked(BINARY, b"x"), masked(FIN | BINARY, b"y")].concat(), PROTOCOL_ERROR),
        ];
        for (input, code) in cases {
            let mut socket = opened();
            assert!(socket.decode(&input, &mut Vec::new(), 100).is_err(), "{input:?}");
            assert!(said(&mut socket).ends_with(&code.to_be_bytes()), "{input:?}");
        }
    }

    #[test]
    fn a_request_for_anything_else_is_refused() {
        for (word, other) in [
            ("GET", "POST"),
            ("HTTP/1.1", "HTTP/1.0"),
            ("Upgrade: websocket", "Upgrade: h2c"),
            ("keep-alive, Upgrade", "keep-alive"),
            ("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ="),
            ("13", "8"),
            ("mqttv3.1, mqtt", "chat"),
            ("GET /mqtt", "\u{16}\u{3}\u{1}"),
        ] {
            let mut socket = WebSocket::default();
            let request = REQUEST.replacen(word, other, 1);
            assert!(socket.decode(request.as_bytes(), &mut Vec::new(), 100).is_err(), "{other}");
            assert!(said(&mut socket).starts_with(b"HTTP/1.1 400 "), "{other}");
        }
        let endless = [b"GET / HTTP/1.1\r\nA: ", &vec![b'x'; LONGEST_HEAD][..]].concat();
        assert!(WebSocket::default().decode(&endless, &mut Vec::new(), 100).is_err());
    }

    #[test]
    fn a_page_of_another_origin_is_refused_and_who_names_none_is_no_page() {
        let allowed = ["localhost", "https://plant.example:8443", "[::1]"].map(str::to_owned);
        for (origin, is_let_in) in [
            ("", true),
            ("Origin: http://localhost:8080\r\n", true),
            ("Origin: http://LOCALHOST\r\n", true),
            ("Origin: https://plant.example:8443\r\n", true),
            ("Origin: http://[::1]:80\r\n", true),
            ("Origin: https://plant.example\r\n", false),
            ("Origin: http://localhost.evil.example\r\n", false),
            ("Origin: http://evil.example\r\nOrigin: http://localhost\r\n", false),
            ("Origin: null\r\n", false),
            ("Origin: \r\n", false),
        ] {
            let request = REQUEST.replacen("Host: h\r\n", &format!("Host: h\r\n{origin}"), 1);
            let mut socket = WebSocket::new(Some(allowed.to_vec()));
            assert_eq!(socket.decode(request.as_bytes(), &mut Vec::new(), 100).is_ok(), is_let_in, "{origin}");
            let answer = if is_let_in { "HTTP/1.1 101 " } else { "HTTP/1.1 403 " };
            assert!(said(&mut socket).starts_with(answer.as_bytes()), "{origin}");
        }
    }

    proptest! {
        #[test]
        fn the_same_bytes_come_out_however_they_are_cut(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..6),
            cuts in prop::collection::vec(1..200_usize, 1..8), limit in 1..64_usize,
        ) {
            let mut sent = Vec::new();
            for (i, part) in parts.iter().enumerate() {
                let (first, last) = (i == 0, i + 1 == parts.len());
                sent.extend(masked(if last { FIN } else { 0 } | if first { BINARY } else { CONTINUATION }, part));
            }
            let (mut socket, mut waiting, mut out) = (opened(), Vec::new(), Vec::new());
            let mut cut = cuts.iter().cycle();
            while !sent.is_empty() || !waiting.is_empty() {
                let len = (*cut.next().expect("a cycle")).min(sent.len());
                waiting.extend(sent.drain(..len));
                let mut plain = Vec::new();
                let (used, ended) = socket.decode(&waiting, &mut plain, limit).expect("frames");
                prop_assert!(!ended && (used > 0 || len > 0), "it goes on");
                waiting.drain(..used);
                out.extend(plain);
            }
            prop_assert_eq!(out, parts.concat());
        }

        #[test]
        fn what_is_written_is_one_frame_of_the_right_length(
            len in prop::sample::select(vec![0, 1, 125, 126, 65_535, 65_536]),
        ) {
            let mut out = Vec::new();
            opened().encode(&vec![7; len], false, &mut out);
            let head = match len { 0 => 0, 1..126 => 2, 126..65_536 => 4, _ => 10 };
            prop_assert_eq!(out.len(), head + len);
        }

        #[test]
        fn whatever_comes_ends_in_bytes_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut out = Vec::new();
            _ = opened().decode(&bytes, &mut out, 50);
            _ = WebSocket::default().decode(&bytes, &mut out, 50);
        }
    }
}
