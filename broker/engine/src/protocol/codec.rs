//! NSQ protocol V2 in both directions, without I/O: bytes to `Command`, frames to bytes.
//!
//! A command is a line of words that ends in `\n`. Some commands have a 4-byte size and that many bytes behind it. A
//! frame is `size(4) type(4) data`; a message's data is `timestamp(8) attempts(2) id(16) body`. Numbers are big-endian.
//!
//! `parse` gives a whole command and its length, or `None` if bytes are missing, or the error that ends the connection.

use std::io::BufRead;

use crate::config::Config;
use crate::id::MessageId;
use crate::protocol::errors::{self, WireError, quoted};

pub const MAGIC: &[u8; 4] = b"  V2";

/// Bytes of the longest command line, newline included. nsqd, too, closes the connection beyond it without an answer.
const MAX_LINE: usize = 16_384;

/// Bytes of the longest secret of an AUTH. The secret is kept as long as the connection.
const MAX_SECRET: u32 = 64 << 10;

const MAX_NAME: usize = 64;
const EPHEMERAL: &[u8] = b"#ephemeral";

/// The type in a frame's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameType {
    Response = 0,
    Error = 1,
    Message = 2,
}

pub const OK: &[u8] = b"OK";
pub const CLOSE_WAIT: &[u8] = b"CLOSE_WAIT";
pub const HEARTBEAT: &[u8] = b"_heartbeat_";

/// The state of a connection; the numbers are those of nsqd's stats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Init = 0,
    Subscribed = 3,
    Closing = 4,
}

/// What the grammar depends on besides the bytes.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    pub state: State,
    pub heartbeats: bool,
    pub asks_left: bool, // LEFT was granted
    pub checked: bool,   // it begins with an MPUB that was parsed before, whole
    pub seen: Seen,      // of the MPUB that it begins with
    pub needs_tls: bool, // nothing but IDENTIFY is taken in clear
    pub config: &'a Config,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Command<'a> {
    Identify(&'a [u8]),
    Auth(&'a [u8]),
    Sub {
        topic: &'a str,
        channel: &'a str,
    },
    Pub {
        topic: &'a str,
        body: &'a [u8],
    },
    Mpub {
        topic: &'a str,
        bodies: Bodies<'a>,
    },
    Dpub {
        topic: &'a str,
        defer_ms: u64,
        body: &'a [u8],
    },
    Rdy(u32),
    Fin(Option<MessageId>, &'a [u8]),
    Req(Option<MessageId>, &'a [u8], u64),
    Touch(Option<MessageId>, &'a [u8]),
    Cls,
    Nop,
    /// Ours: asks to be told, with `number`, when all that the connection has published to `topic` has left.
    Left {
        topic: &'a str,
        number: u64,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub enum ParseError {
    /// Tell the client. A fatal error ends the connection; all errors of the grammar are fatal.
    Wire(WireError),
    /// The same, for an MPUB of more than `max_mpub_messages` messages.
    TooManyMessages(WireError),
    /// Close the connection without an answer.
    LineTooLong,
}

impl From<WireError> for ParseError {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

/// Remaining messages of an MPUB, already checked: `count` times size(4) and bytes, or `count` lines (HTTP).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bodies<'a> {
    pub count: u32,
    rest: &'a [u8],
    lines: bool, // those that are empty are none
}

impl<'a> Bodies<'a> {
    /// Bytes of all remaining messages, with what stands before and between them.
    pub fn bytes(&self) -> usize {
        self.rest.len()
    }

    /// The messages behind the first `count`, which take `bytes`.
    pub(crate) fn behind(self, count: u32, bytes: usize) -> Self {
        Self { count: self.count.saturating_sub(count), rest: self.rest.get(bytes..).unwrap_or_default(), ..self }
    }

    /// The `count` messages that `rest` begins with. They were checked.
    pub(crate) fn checked(count: u32, rest: &'a [u8]) -> Self {
        Self { count, rest, lines: false }
    }

    /// The first `count` lines of `body`, if there are as many.
    pub(crate) fn lines(count: u32, body: &'a [u8]) -> Self {
        Self { count, rest: body, lines: true }
    }

    fn next_line(&mut self) -> Option<&'a [u8]> {
        while !self.rest.is_empty() {
            let mut behind = self.rest;
            behind.skip_until(b'\n').ok()?; // the standard library's quick search; in memory it cannot fail
            let line = &self.rest[..self.rest.len() - behind.len()];
            self.rest = behind;
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            if !line.is_empty() {
                return Some(line);
            }
        }
        None
    }
}

impl<'a> Iterator for Bodies<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.count = self.count.checked_sub(1)?;
        if self.lines {
            return self.next_line();
        }
        let (size, rest) = self.rest.split_first_chunk::<4>()?;
        let (body, rest) = rest.split_at_checked(u32::from_be_bytes(*size) as usize)?;
        self.rest = rest;
        Some(body)
    }
}

/// How many messages of an MPUB are known to be well-formed, and the bytes that they take behind the count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    pub messages: u32,
    bytes: usize,
}

impl Seen {
    /// The part of `rest`, all that stands behind the count, that is not checked yet.
    pub fn behind(self, rest: &[u8]) -> &[u8] {
        rest.get(self.bytes..).unwrap_or_default()
    }

    /// Check up to `most` further messages, up to one that `config` does not allow, or that is not complete.
    pub fn look(self, rest: &[u8], most: u32, config: &Config) -> Self {
        let (mut seen, mut at) = (self, self.behind(rest));
        for _ in 0..most {
            let body = at.split_first_chunk::<4>().and_then(|(size, tail)| {
                let size = u32::from_be_bytes(*size);
                (1..=config.max_msg_size).contains(&size).then(|| tail.get(size as usize..))?
            });
            let Some(tail) = body else { break };
            seen = Self { messages: seen.messages + 1, bytes: seen.bytes + at.len() - tail.len() };
            at = tail;
        }
        seen
    }
}

/// The count of messages of the MPUB that `input` begins with, and what stands behind it. `None` if it is not complete.
pub fn whole_mpub(input: &[u8]) -> Option<(u32, &[u8])> {
    let (begin, len) = announced(input)?;
    let (count, rest) = input.get(begin..)?.get(..len)?.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*count), rest))
}

/// Length of the command that `input` begins with, as far as known: its line, and the body that its size announces.
pub fn announced_len(input: &[u8]) -> Option<usize> {
    announced(input).map(|(begin, len)| begin + len)
}

/// Offset and length of the body of the command that `input` begins with.
fn announced(input: &[u8]) -> Option<(usize, usize)> {
    let line = input[..input.len().min(MAX_LINE)].iter().position(|&c| c == b'\n')? + 1;
    let size = input.get(line..)?.first_chunk::<4>()?;
    Some((line + 4, u32::from_be_bytes(*size) as usize))
}

/// Of the PUB or DPUB that `input` begins with: its topic, what has come of its body, and the body's length.
pub fn announced_publish(input: &[u8]) -> Option<(&str, &[u8], usize)> {
    let (begin, len) = announced(input)?;
    let line = input.strip_prefix(b"D").unwrap_or(input).strip_prefix(b"PUB ")?;
    let topic = line.split(|&c| matches!(c, b' ' | b'\r' | b'\n')).next()?;
    let body = &input[begin..];
    Some((name(topic)?, &body[..body.len().min(len)], len))
}

type Parsed<'a> = Result<Option<(Command<'a>, usize)>, ParseError>;

/// The first command in `buf`, and how many bytes it takes.
pub fn parse<'a>(buf: &'a [u8], context: Context<'_>) -> Parsed<'a> {
    if let Some(finished) = usual_fin(buf, context) {
        return Ok(Some(finished));
    }
    let window = &buf[..buf.len().min(MAX_LINE)];
    let Some(end) = window.iter().position(|&c| c == b'\n') else {
        return if buf.len() >= MAX_LINE { Err(ParseError::LineTooLong) } else { Ok(None) };
    };
    let line = window[..end].strip_suffix(b"\r").unwrap_or(&window[..end]);
    let mut words = line.split(|&c| c == b' ');
    let word = words.next().unwrap_or_default();
    if context.needs_tls && word != b"IDENTIFY" {
        let word = String::from_utf8_lossy(word);
        return Err(WireError::invalid(format!("cannot {word} in current state (TLS required)")).into());
    }
    let rest = Rest { words, tail: &buf[end + 1..], line_len: end + 1, context };
    match word {
        b"PUB" => rest.publish("PUB"),
        b"MPUB" => rest.mpub(),
        b"FIN" => rest.message_id("FIN", |id, word, _| Command::Fin(id, word)),
        b"RDY" => rest.rdy(),
        b"NOP" => Ok(Some((Command::Nop, end + 1))),
        b"DPUB" => rest.publish("DPUB"),
        b"REQ" => rest.message_id("REQ", Command::Req),
        b"TOUCH" => rest.message_id("TOUCH", |id, word, _| Command::Touch(id, word)),
        b"SUB" => rest.sub(),
        b"CLS" => rest.cls(),
        b"IDENTIFY" => rest.identify(),
        b"AUTH" => rest.auth(),
        b"LEFT" if context.asks_left => rest.left(),
        _ => Err(WireError::invalid(format!("invalid command {}", String::from_utf8_lossy(word))).into()),
    }
}

/// A FIN as clients usually write it: half of all commands of a busy broker, parsed without a search for words.
fn usual_fin<'a>(buf: &'a [u8], context: Context<'_>) -> Option<(Command<'a>, usize)> {
    let line = buf.first_chunk::<21>().filter(|line| line.starts_with(b"FIN ") && line[20] == b'\n')?;
    let word = &line[4..20];
    let id = MessageId::from_hex(word)
        .filter(|_| matches!(context.state, State::Subscribed | State::Closing) && !context.needs_tls)?;
    Some((Command::Fin(Some(id), word), line.len()))
}

/// What stands behind the command word.
struct Rest<'a, 'c, W> {
    words: W,
    tail: &'a [u8],
    line_len: usize,
    context: Context<'c>,
}

impl<'a, W: Iterator<Item = &'a [u8]>> Rest<'a, '_, W> {
    fn publish(mut self, command: &'static str) -> Parsed<'a> {
        let topic = self.topic(command)?;
        let deferred = command == "DPUB";
        let defer_ms = if deferred { self.defer_ms()? } else { 0 };
        let max = self.context.config.max_msg_size;
        let Some(size) = self.size() else { return Ok(None) };
        if size <= 0 {
            return Err(
                WireError::new(errors::E_BAD_MESSAGE, format!("{command} invalid message body size {size}")).into()
            );
        }
        if size as u32 > max {
            return Err(
                WireError::new(errors::E_BAD_MESSAGE, format!("{command} message too big {size} > {max}")).into()
            );
        }
        let Some((body, len)) = self.body(size as usize) else { return Ok(None) };
        Ok(Some((if deferred { Command::Dpub { topic, defer_ms, body } } else { Command::Pub { topic, body } }, len)))
    }

    fn mpub(mut self) -> Parsed<'a> {
        let topic = self.topic("MPUB")?;
        let max = self.context.config.max_body_size;
        let Some(size) = self.size() else { return Ok(None) };
        if size <= 0 {
            return Err(WireError::new(errors::E_BAD_BODY, format!("MPUB invalid body size {size}")).into());
        }
        if size as u32 > max {
            return Err(WireError::new(errors::E_BAD_BODY, format!("MPUB body too big {size} > {max}")).into());
        }
        if size >= 4 {
            self.few_enough()?; // a shorter body has no count: what lies there is the next command's
        }
        let Some((body, len)) = self.body(size as usize) else { return Ok(None) };
        let bodies = if self.context.checked {
            known_bodies(body)
        } else {
            check_bodies(body, self.context.seen, self.context.config)?
        };
        Ok(Some((Command::Mpub { topic, bodies }, len)))
    }

    /// Refuse an MPUB of too many messages as soon as its count is there, without waiting for the rest.
    fn few_enough(&self) -> Result<(), ParseError> {
        let most = self.context.config.max_mpub_messages;
        let count =
            self.tail.get(4..).and_then(|rest| rest.first_chunk::<4>()).map_or(0, |count| u32::from_be_bytes(*count));
        if most == 0 || count <= most || count > i32::MAX as u32 {
            return Ok(());
        }
        Err(ParseError::TooManyMessages(WireError::new(
            errors::E_BAD_BODY,
            format!("MPUB too many messages {count} > {most}"),
        )))
    }

    fn sub(mut self) -> Parsed<'a> {
        self.allowed("SUB", &[State::Init])?;
        if !self.context.heartbeats {
            return Err(WireError::invalid("cannot SUB with heartbeats disabled").into());
        }
        let (Some(topic), Some(channel)) = (self.words.next(), self.words.next()) else {
            return Err(WireError::invalid("SUB insufficient number of parameters").into());
        };
        let topic = topic_name("SUB", topic)?;
        let channel = name(channel).ok_or_else(|| {
            WireError::new(errors::E_BAD_CHANNEL, format!("SUB channel name {} is not valid", quoted(channel)))
        })?;
        Ok(Some((Command::Sub { topic, channel }, self.line_len)))
    }

    fn rdy(mut self) -> Parsed<'a> {
        self.allowed("RDY", &[State::Subscribed, State::Closing])?;
        if self.context.state == State::Closing {
            return Ok(Some((Command::Nop, self.line_len))); // whatever it says: as nsqd has it
        }
        let max = self.context.config.max_rdy_count;
        let count = match self.words.next() {
            None => 1,
            Some(word) => number(word).ok_or_else(|| {
                WireError::invalid(format!("RDY could not parse count {}", String::from_utf8_lossy(word)))
            })?,
        };
        match u32::try_from(count) {
            Ok(count) if count <= max => Ok(Some((Command::Rdy(count), self.line_len))),
            _ => Err(WireError::invalid(format!("RDY count {count} out of range 0-{max}")).into()),
        }
    }

    /// FIN, REQ and TOUCH: `make` gets the id (`None`: the engine made no such id), its bytes and, for REQ, the delay
    /// in ms.
    fn message_id(
        mut self,
        command: &'static str,
        make: fn(Option<MessageId>, &'a [u8], u64) -> Command<'a>,
    ) -> Parsed<'a> {
        self.allowed(command, &[State::Subscribed, State::Closing])?;
        let timed = command == "REQ";
        let word = self.words.next();
        let delay = if timed { self.words.next() } else { Some(&b"0"[..]) };
        let (Some(word), Some(delay)) = (word, delay) else {
            return Err(WireError::invalid(format!("{command} insufficient number of params")).into());
        };
        if word.len() != 16 {
            return Err(WireError::invalid("invalid message ID").into());
        }
        let delay_ms = number(delay).ok_or_else(|| {
            WireError::invalid(format!("REQ could not parse timeout {}", String::from_utf8_lossy(delay)))
        })?;
        Ok(Some((make(MessageId::from_hex(word), word, delay_ms), self.line_len)))
    }

    fn cls(self) -> Parsed<'a> {
        self.allowed("CLS", &[State::Subscribed])?;
        Ok(Some((Command::Cls, self.line_len)))
    }

    fn identify(self) -> Parsed<'a> {
        self.allowed("IDENTIFY", &[State::Init])?;
        let Some((body, len)) = self.control_body("IDENTIFY", self.context.config.max_body_size)? else {
            return Ok(None);
        };
        Ok(Some((Command::Identify(body), len)))
    }

    fn auth(mut self) -> Parsed<'a> {
        self.allowed("AUTH", &[State::Init])?;
        if self.words.next().is_some() {
            return Err(WireError::invalid("AUTH invalid number of parameters").into());
        }
        let Some((body, len)) = self.control_body("AUTH", self.context.config.max_body_size.min(MAX_SECRET))? else {
            return Ok(None);
        };
        Ok(Some((Command::Auth(body), len)))
    }

    fn left(mut self) -> Parsed<'a> {
        let topic = self.topic("LEFT")?;
        let word = self.words.next().ok_or_else(|| insufficient("LEFT"))?;
        let number = number(word).ok_or_else(|| {
            WireError::invalid(format!("LEFT could not parse number {}", String::from_utf8_lossy(word)))
        })?;
        Ok(Some((Command::Left { topic, number }, self.line_len)))
    }

    fn control_body(&self, command: &'static str, max: u32) -> Result<Option<(&'a [u8], usize)>, WireError> {
        let Some(size) = self.size() else { return Ok(None) };
        if size > 0 && size as u32 > max {
            return Err(WireError::new(errors::E_BAD_BODY, format!("{command} body too big {size} > {max}")));
        }
        if size <= 0 {
            return Err(WireError::new(errors::E_BAD_BODY, format!("{command} invalid body size {size}")));
        }
        Ok(self.body(size as usize))
    }

    fn topic(&mut self, command: &'static str) -> Result<&'a str, WireError> {
        let word = self.words.next().ok_or_else(|| insufficient(command))?;
        topic_name(command, word)
    }

    fn defer_ms(&mut self) -> Result<u64, WireError> {
        let word = self.words.next().ok_or_else(|| insufficient("DPUB"))?;
        let max = self.context.config.max_req_timeout_ms;
        let ms = number(word).ok_or_else(|| {
            WireError::invalid(format!("DPUB could not parse timeout {}", String::from_utf8_lossy(word)))
        })?;
        if ms > max {
            return Err(WireError::invalid(format!("DPUB timeout {ms} out of range 0-{max}")));
        }
        Ok(ms)
    }

    fn allowed(&self, command: &'static str, states: &[State]) -> Result<(), WireError> {
        if states.contains(&self.context.state) {
            return Ok(());
        }
        Err(WireError::invalid(format!("cannot {command} in current state")))
    }

    /// The signed size behind the line, if it is there.
    fn size(&self) -> Option<i32> {
        self.tail.first_chunk::<4>().map(|size| i32::from_be_bytes(*size))
    }

    /// The body behind the size, and the length of the whole command.
    fn body(&self, size: usize) -> Option<(&'a [u8], usize)> {
        self.tail.get(4..4 + size).map(|body| (body, self.line_len + 4 + size))
    }
}

#[cold]
fn insufficient(command: &'static str) -> WireError {
    WireError::invalid(format!("{command} insufficient number of parameters"))
}

fn topic_name<'a>(command: &'static str, word: &'a [u8]) -> Result<&'a str, WireError> {
    topic(word).ok_or_else(|| {
        WireError::new(errors::E_BAD_TOPIC, format!("{command} topic name {} is not valid", quoted(word)))
    })
}

/// A valid topic or channel name: 1 to 64 of `[.a-zA-Z0-9_-]`, `#ephemeral` at the end included.
pub fn name(word: &[u8]) -> Option<&str> {
    let stem = word.strip_suffix(EPHEMERAL).unwrap_or(word);
    let allowed = |&c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
    if stem.is_empty() || word.len() > MAX_NAME || !stem.iter().all(allowed) {
        return None;
    }
    std::str::from_utf8(word).ok()
}

/// A valid name of a topic that clients use. `.` and `..` end in another place wherever a path is shortened.
pub fn topic(word: &[u8]) -> Option<&str> {
    name(word).filter(|name| !matches!(*name, "." | ".."))
}

pub fn is_ephemeral(name: &str) -> bool {
    name.as_bytes().ends_with(EPHEMERAL)
}

/// A number of decimal digits. The empty word is 0, and an overflow wraps, as in nsqd.
fn number(word: &[u8]) -> Option<u64> {
    word.iter()
        .try_fold(0u64, |sum, &c| c.is_ascii_digit().then(|| sum.wrapping_mul(10).wrapping_add(u64::from(c - b'0'))))
}

/// The messages of a body that was checked before.
fn known_bodies(body: &[u8]) -> Bodies<'_> {
    let (count, rest) = body.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
    Bodies::checked(u32::from_be_bytes(*count), rest)
}

/// Check all messages of an MPUB: one bad message refuses all.
fn check_bodies<'a>(body: &'a [u8], seen: Seen, config: &Config) -> Result<Bodies<'a>, WireError> {
    let Some((count, rest)) = body.split_first_chunk::<4>() else {
        return Err(WireError::new(errors::E_BAD_BODY, "MPUB failed to read message count"));
    };
    let count = i32::from_be_bytes(*count);
    if count <= 0 || i64::from(count) > (i64::from(config.max_body_size) - 4) / 5 {
        return Err(WireError::new(errors::E_BAD_BODY, format!("MPUB invalid message count {count}")));
    }
    let mut at = seen.behind(rest);
    for i in seen.messages as i32..count {
        let Some((size, tail)) = at.split_first_chunk::<4>() else {
            return Err(WireError::new(errors::E_BAD_MESSAGE, format!("MPUB failed to read message({i}) body size")));
        };
        let size = i32::from_be_bytes(*size);
        if size <= 0 {
            return Err(WireError::new(errors::E_BAD_MESSAGE, format!("MPUB invalid message({i}) body size {size}")));
        }
        if size as u32 > config.max_msg_size {
            return Err(WireError::new(
                errors::E_BAD_MESSAGE,
                format!("MPUB message too big {size} > {}", config.max_msg_size),
            ));
        }
        let Some(tail) = tail.get(size as usize..) else {
            return Err(WireError::new(errors::E_BAD_MESSAGE, "MPUB failed to read message body"));
        };
        at = tail;
    }
    if !at.is_empty() {
        return Err(WireError::new(errors::E_BAD_BODY, format!("MPUB invalid body size {}", body.len())));
    }
    Ok(Bodies::checked(count as u32, rest))
}

/// Append a response or error frame.
pub fn encode_frame(out: &mut Vec<u8>, frame_type: FrameType, data: &[u8]) {
    out.extend_from_slice(&(data.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(&(frame_type as u32).to_be_bytes());
    out.extend_from_slice(data);
}

/// Offset of the two bytes of `attempts` in a message frame: only these differ between deliveries.
const ATTEMPTS_AT: usize = 16;

/// Bytes of a message frame before its body.
pub const MESSAGE_HEADER: usize = 34;

/// The head of a message frame whose body has `len` bytes, with 0 attempts.
pub fn message_header(wall_ns: i64, id: MessageId, len: usize) -> [u8; MESSAGE_HEADER] {
    let mut header = [0; MESSAGE_HEADER];
    header[..4].copy_from_slice(&((MESSAGE_HEADER - 4 + len) as u32).to_be_bytes());
    header[4..8].copy_from_slice(&(FrameType::Message as u32).to_be_bytes());
    header[8..ATTEMPTS_AT].copy_from_slice(&wall_ns.to_be_bytes());
    header[ATTEMPTS_AT + 2..].copy_from_slice(&id.to_hex());
    header
}

/// Append a message frame with 0 attempts.
pub fn build_message(out: &mut Vec<u8>, wall_ns: i64, id: MessageId, body: &[u8]) {
    out.extend_from_slice(&message_header(wall_ns, id, body.len()));
    out.extend_from_slice(body);
}

/// The timestamp of a built message frame.
pub fn message_wall_ns(frame: &[u8]) -> i64 {
    frame.get(8..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| i64::from_be_bytes(*bytes))
}

/// Append a built message frame with its attempts filled in.
pub fn encode_message(out: &mut Vec<u8>, frame: &[u8], attempts: u16) {
    let start = out.len();
    out.extend_from_slice(frame);
    out[start + ATTEMPTS_AT..start + ATTEMPTS_AT + 2].copy_from_slice(&attempts.to_be_bytes());
}

#[cfg(test)]
#[path = "../tests/codec.rs"]
mod tests;
