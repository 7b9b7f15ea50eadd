//! The Redis protocol (RESP2), as far as a client of `CL.THROTTLE` needs it. Sans-IO: bytes in, bytes out.
//!
//! `Session::feed` takes what a connection received, and writes the answers. It stops at `AUTH`, whose token its owner
//! judges (`Session::authenticate`).

use crate::Nanos;
use crate::throttle::{Given, Throttle};

/// Arguments of a command, with its name.
const MAX_ARGUMENTS: usize = 16;

/// Bytes of an argument: what is longer is no key, and ends the connection.
const MAX_ARGUMENT: usize = 1_024;

/// Bytes of a line: an inline command, or the head of an array.
const MAX_LINE: usize = 4_096;

/// Bytes of answers that wait to be sent. Beyond them no command is read.
const MAX_WAITING: usize = 256 << 10;

/// One connection.
#[derive(Debug)]
pub struct Session {
    input: Vec<u8>,
    needs_token: bool,
    token: Option<Box<str>>,
    closed: bool,
}

/// The rest of a command, or why there is none.
enum Parsed {
    Command(usize, Vec<Vec<u8>>), // bytes that it took, and its words
    Missing,
    Broken(&'static str),
}

impl Session {
    pub fn new(needs_token: bool) -> Self {
        Self { input: Vec::new(), needs_token, token: None, closed: false }
    }

    /// Whether the connection ends after the answers.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// The token of an `AUTH` that waits for `authenticate`.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Takes what was received, and appends the answers to `out`.
    pub fn feed(&mut self, received: &[u8], throttle: &mut Throttle, now: Nanos, out: &mut Vec<u8>) {
        self.input.extend_from_slice(received);
        let mut begin = 0;
        while !self.closed && self.token.is_none() && out.len() < MAX_WAITING {
            match parse(&self.input[begin..]) {
                Parsed::Command(length, words) => {
                    begin += length;
                    self.answer(&words, throttle, now, out);
                }
                Parsed::Missing => break,
                Parsed::Broken(rule) => {
                    error(out, &format!("ERR Protocol error: {rule}"));
                    self.closed = true;
                }
            }
        }
        self.input.drain(..begin);
    }

    /// Whether commands wait that `feed` did not come to.
    pub fn has_more(&self) -> bool {
        !self.closed && matches!(parse(&self.input), Parsed::Command(..))
    }

    /// Answers the `AUTH` that waits. Go on with `feed`.
    pub fn authenticate(&mut self, is_known: bool, out: &mut Vec<u8>) {
        if self.token.take().is_none() {
            return;
        }
        if is_known {
            self.needs_token = false;
            out.extend_from_slice(b"+OK\r\n");
        } else {
            error(out, "WRONGPASS the token is not one of this service");
        }
    }

    fn answer(&mut self, words: &[Vec<u8>], throttle: &mut Throttle, now: Nanos, out: &mut Vec<u8>) {
        let Some((name, rest)) = words.split_first() else { return };
        let name = name.to_ascii_uppercase();
        match (&name[..], rest) {
            (b"AUTH", [token] | [_, token]) => match std::str::from_utf8(token) {
                Ok(token) if self.needs_token => self.token = Some(token.into()),
                Ok(_) => error(out, "ERR AUTH: this service needs no token, or you gave it before"),
                Err(_) => error(out, "WRONGPASS the token is not one of this service"),
            },
            (b"QUIT", _) => {
                out.extend_from_slice(b"+OK\r\n");
                self.closed = true;
            }
            (b"HELLO", [version, ..]) if &version[..] != b"2" => error(out, "NOPROTO only protocol version 2"),
            (b"HELLO", [_, _, ..]) => error(out, "ERR HELLO: send AUTH by itself"),
            _ if self.needs_token => error(out, "NOAUTH send AUTH and a token of this service first"),
            (b"CL.THROTTLE", rest) => throttled(rest, throttle, now, out),
            (b"HELLO", _) => hello(out),
            (b"PING", []) => out.extend_from_slice(b"+PONG\r\n"),
            (b"PING" | b"ECHO", [text]) => bulk(out, text),
            (b"SELECT", [database]) if &database[..] != b"0" => error(out, "ERR SELECT: there is only database 0"),
            (b"SELECT" | b"RESET", _) => out.extend_from_slice(b"+OK\r\n"),
            (b"CLIENT", [what, ..]) if what.eq_ignore_ascii_case(b"ID") => out.extend_from_slice(b":1\r\n"),
            (b"CLIENT", _) => out.extend_from_slice(b"+OK\r\n"),
            (b"COMMAND", _) => out.extend_from_slice(b"*0\r\n"),
            (b"INFO", _) => bulk(out, format!("# Keyspace\r\ndb0:keys={}\r\n", throttle.keys()).as_bytes()),
            _ => {
                let name: String =
                    String::from_utf8_lossy(&name).chars().filter(|c| !c.is_control()).take(40).collect();
                error(out, &format!("ERR {name}: this service limits requests by CL.THROTTLE, and stores nothing"));
            }
        }
    }
}

/// `CL.THROTTLE key max_burst count period [n]`.
fn throttled(rest: &[Vec<u8>], throttle: &mut Throttle, now: Nanos, out: &mut Vec<u8>) {
    let (key, numbers) = match rest {
        [key, numbers @ ..] if (3..=4).contains(&numbers.len()) => (key, numbers),
        _ => return error(out, "ERR CL.THROTTLE: must be CL.THROTTLE key max_burst count period [n]"),
    };
    let number =
        |at: usize| numbers.get(at).map_or(Some(1), |word| std::str::from_utf8(word).ok()?.parse::<u32>().ok());
    let (Some(max_burst), Some(count @ 1..), Some(period_s @ 1..), Some(cost)) =
        (number(0), number(1), number(2), number(3))
    else {
        return error(out, "ERR CL.THROTTLE: max_burst and n must be from 0, count and period from 1, to 4294967295");
    };
    let answer = throttle.take(key, Given { max_burst, count, period_s }, cost, now);
    out.extend_from_slice(b"*5\r\n");
    for value in [i64::from(answer.limited), answer.limit, answer.remaining, answer.retry_after_s, answer.reset_s] {
        integer(out, value);
    }
}

fn hello(out: &mut Vec<u8>) {
    out.extend_from_slice(b"*6\r\n");
    for text in ["server", "srtm", "version", env!("CARGO_PKG_VERSION"), "proto"] {
        bulk(out, text.as_bytes());
    }
    integer(out, 2);
}

fn integer(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(format!(":{value}\r\n").as_bytes());
}

fn bulk(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(format!("${}\r\n", text.len()).as_bytes());
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn error(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(format!("-{text}\r\n").as_bytes());
}

/// Reads an array of bulk strings, or a line of words.
fn parse(input: &[u8]) -> Parsed {
    let (line, mut at) = match line(input, 0) {
        Ok(Some(found)) => found,
        Ok(None) => return Parsed::Missing,
        Err(rule) => return Parsed::Broken(rule),
    };
    let Some(count) = line.strip_prefix(b"*") else {
        let words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        return Parsed::Command(at, words.map(<[u8]>::to_vec).collect());
    };
    let Some(count) = length(count, MAX_ARGUMENTS) else { return Parsed::Broken("at most 16 arguments") };
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let (head, begin) = match self::line(input, at) {
            Ok(Some(found)) => found,
            Ok(None) => return Parsed::Missing,
            Err(rule) => return Parsed::Broken(rule),
        };
        let Some(size) = head.strip_prefix(b"$").and_then(|size| length(size, MAX_ARGUMENT)) else {
            return Parsed::Broken("expected an argument of at most 1024 bytes");
        };
        let Some(word) = input.get(begin..begin + size) else { return Parsed::Missing };
        match input.get(begin + size..begin + size + 2) {
            None => return Parsed::Missing,
            Some(b"\r\n") => {}
            Some(_) => return Parsed::Broken("an argument is longer than it says"),
        }
        words.push(word.to_vec());
        at = begin + size + 2;
    }
    Parsed::Command(at, words)
}

/// The line at `begin`, without its end, and where the next begins. None: it is not complete.
fn line(input: &[u8], begin: usize) -> Result<Option<(&[u8], usize)>, &'static str> {
    let rest = &input[begin..];
    match rest.iter().take(MAX_LINE).position(|byte| *byte == b'\n') {
        Some(end) => Ok(Some((rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]), begin + end + 1))),
        None if rest.len() >= MAX_LINE => Err("a line is longer than 4096 bytes"),
        None => Ok(None),
    }
}

fn length(digits: &[u8], most: usize) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|length| *length <= most)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answers(parts: &[&[u8]], needs_token: bool) -> (Vec<u8>, Session) {
        let (mut session, mut throttle, mut out) = (Session::new(needs_token), Throttle::new((1, 2), 100), Vec::new());
        for part in parts {
            session.feed(part, &mut throttle, 0, &mut out);
            while session.token.is_some() {
                let is_known = session.token() == Some("good");
                session.authenticate(is_known, &mut out);
                session.feed(b"", &mut throttle, 0, &mut out);
            }
        }
        (out, session)
    }

    fn text(parts: &[&[u8]]) -> String {
        String::from_utf8(answers(parts, false).0).expect("answers are text here")
    }

    #[test]
    fn throttle_answers_as_redis_cell() {
        let command = b"*5\r\n$11\r\nCL.THROTTLE\r\n$2\r\nu1\r\n$1\r\n1\r\n$2\r\n10\r\n$2\r\n60\r\n";
        let said = text(&[command, command, command]);
        let expected = "*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:6\r\n*5\r\n:0\r\n:2\r\n:0\r\n:-1\r\n:12\r\n\
                        *5\r\n:1\r\n:2\r\n:0\r\n:6\r\n:12\r\n";
        assert_eq!(said, expected);
        assert_eq!(text(&[b"cl.throttle u1 1 10 60 2\r\n"]), "*5\r\n:0\r\n:2\r\n:0\r\n:-1\r\n:12\r\n");
    }

    #[test]
    fn what_clients_send_first_is_answered() {
        assert_eq!(
            text(&[b"PING\r\nPING hi\r\nSELECT 0\r\nCLIENT SETNAME x\r\nCOMMAND DOCS\r\n"]),
            "+PONG\r\n$2\r\nhi\r\n+OK\r\n+OK\r\n*0\r\n"
        );
        assert!(text(&[b"HELLO 2\r\n"]).starts_with("*6\r\n$6\r\nserver\r\n"));
        for (command, begin) in [
            ("HELLO 3", "-NOPROTO"),
            ("INCR x", "-ERR INCR"),
            ("EXPIRE x 1", "-ERR EXPIRE"),
            ("SELECT 1", "-ERR SELECT"),
            ("CL.THROTTLE k 1 0 1", "-ERR CL.THROTTLE"),
            ("CL.THROTTLE k", "-ERR CL.THROTTLE"),
            ("CL.THROTTLE k -1 1 1", "-ERR CL.THROTTLE"),
        ] {
            let said = text(&[command.as_bytes(), b"\r\n"]);
            assert!(said.starts_with(begin) && said.ends_with("\r\n"), "{command}: {said}");
        }
    }

    #[test]
    fn without_a_known_token_nothing_is_answered() {
        let (out, _) = answers(&[b"PING\r\nAUTH bad\r\nPING\r\nAUTH user good\r\nPING\r\n"], true);
        let lines: Vec<_> =
            out.split(|byte| *byte == b'\n').map(|line| line.iter().take(5).copied().collect::<Vec<_>>()).collect();
        assert_eq!(
            lines,
            [b"-NOAU".to_vec(), b"-WRON".to_vec(), b"-NOAU".to_vec(), b"+OK\r".to_vec(), b"+PONG".to_vec(), vec![]]
        );
    }

    #[test]
    fn what_breaks_the_protocol_ends_the_connection() {
        for broken in
            [&b"*17\r\n"[..], b"*1\r\n$1025\r\n", b"*1\r\n:1\r\n", b"*1\r\n$1\r\nabc\r\n", &[b'x'; 5_000], b"*-1\r\n"]
        {
            let (out, session) = answers(&[broken, b"PING\r\n"], false);
            assert!(session.is_closed() && out.starts_with(b"-ERR Protocol error"), "{broken:?}");
        }
        assert!(answers(&[b"QUIT\r\nPING\r\n"], false).0 == b"+OK\r\n");
    }

    proptest! {
        #[test]
        fn how_bytes_arrive_changes_no_answer(
            keys in prop::collection::vec("[a-c]{0,3}", 1..8), cuts in prop::collection::vec(0usize..400, 0..8),
        ) {
            let mut all = Vec::new();
            for key in keys {
                let name = format!("${}\r\n{key}\r\n", key.len());
                let command = format!("*5\r\n$11\r\nCL.THROTTLE\r\n{name}$1\r\n2\r\n$1\r\n1\r\n$1\r\n9\r\nPING\r\n");
                all.extend_from_slice(command.as_bytes());
            }
            let mut places: Vec<_> = cuts.into_iter().map(|cut| cut.min(all.len())).chain([0, all.len()]).collect();
            places.sort_unstable();
            let parts: Vec<_> = places.windows(2).map(|pair| &all[pair[0]..pair[1]]).collect();
            prop_assert_eq!(answers(&parts, false).0, answers(&[&all], false).0);
        }

        #[test]
        fn no_bytes_panic(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..6)) {
            let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
            answers(&parts, false);
        }
    }
}
