//! NATS, core publish and subscribe (client protocol of nats-server 2): lines, and behind PUB and MSG a body.
//!
//! `verbose` is off, as in NATS's own clients: a publish has no answer of its own, and what a server in trouble does
//! with it is not told. A greeting ends with the PONG to our PING, which comes behind everything said before it, so a
//! subscription stands by then.

use std::io::{self, Write};

use super::line::{block, line};
use super::{Driver, Event, Role, broken, size};
use crate::plan::Plan;
use crate::protocol::body::{BodyFormat, Stamp};

/// The number of the one subscription of a connection.
const SUBSCRIPTION: &str = "1";

pub struct Nats<'a> {
    topic: &'a str,
    role: Role<'a>,
    ready: bool,
}

impl<'a> Driver<'a> for Nats<'a> {
    const BATCHES: bool = false;

    fn new(plan: &'a Plan, target: usize, role: Role<'a>) -> Nats<'a> {
        Nats { topic: plan.topic_at(target), role, ready: false }
    }

    fn greet(&mut self, out: &mut Vec<u8>) {
        self.ready = false;
        let options = serde_json::json!({
            "verbose": false, "pedantic": false, "protocol": 1, "lang": "srtm-loadgen", "version": env!("CARGO_PKG_VERSION"), "name": self.role.name(),
        });
        out.extend_from_slice(format!("CONNECT {options}\r\n").as_bytes());
        if matches!(self.role, Role::Subscriber { .. }) {
            out.extend_from_slice(format!("SUB {} {SUBSCRIPTION}\r\n", self.topic).as_bytes());
        }
        out.extend_from_slice(b"PING\r\n");
    }

    fn answered(&self) -> bool {
        false
    }

    fn publish(&mut self, format: &BodyFormat, first: Stamp, _one: u32, out: &mut Vec<u8>) {
        // Writing into a vector cannot fail.
        let _ = write!(out, "PUB {} {}\r\n", self.topic, format.size());
        format.write(first, out);
        out.extend_from_slice(b"\r\n");
    }

    fn next<'b>(&mut self, bytes: &'b [u8], out: &mut Vec<u8>) -> io::Result<Option<(Event<'b>, usize)>> {
        let Some((line, length)) = line(bytes)? else { return Ok(None) };
        let event = match line.split(|byte| *byte == b' ').next().unwrap_or_default() {
            b"MSG" => return message(line, bytes, length),
            b"PING" => {
                out.extend_from_slice(b"PONG\r\n");
                Event::Nothing
            }
            b"PONG" if !self.ready => {
                self.ready = true;
                Event::Ready
            }
            b"-ERR" => Event::Refused(line),
            b"INFO" | b"PONG" | b"+OK" => Event::Nothing,
            other => {
                return Err(broken(format!(
                    "a line that begins with {:?}",
                    String::from_utf8_lossy(&other[..other.len().min(40)])
                )));
            }
        };
        Ok(Some((event, length)))
    }
}

/// `MSG subject subscription [reply-to] size`, then the body.
fn message<'b>(line: &'b [u8], bytes: &'b [u8], at: usize) -> io::Result<Option<(Event<'b>, usize)>> {
    let words = line.split(|byte| *byte == b' ').count();
    match line.rsplit(|byte| *byte == b' ').next() {
        Some(digits) if (4..=5).contains(&words) => {
            Ok(block(bytes, at, size(digits)?)?.map(|(body, end)| (Event::Message(body), end)))
        }
        _ => Err(broken(format!("a MSG of {words} words"))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{all_of, body, plan, published, publisher, subscriber, torn};
    use super::*;

    #[test]
    fn a_subscriber_is_ready_with_the_pong_behind_its_subscription() {
        let plan = plan("nats", 0);
        let (mut driver, mut out) = (subscriber::<Nats>(&plan), Vec::new());
        driver.greet(&mut out);
        let said = String::from_utf8(out).expect("text");
        assert!(said.starts_with(r#"CONNECT {"lang":"srtm-loadgen","name":"srtm-loadgen-subscriber-0""#), "{said}");
        assert!(said.contains(r#""verbose":false"#) && said.ends_with("}\r\nSUB t 1\r\nPING\r\n"), "{said}");
        let bytes = b"INFO {\"max_payload\":1048576}\r\nPONG\r\nPING\r\nMSG t 1 4\r\nbody\r\nMSG t 1 reply.to 6\r\n\r\nMSG \r\nMSG t 1 0\r\n\r\nPONG\r\n";
        let (events, said) = torn(driver, bytes);
        assert_eq!(events, ["Nothing", "Ready", "Nothing", "Message body", "Message \r\nMSG ", "Message ", "Nothing"]);
        assert_eq!(said, b"PONG\r\n");
    }

    #[test]
    fn a_publisher_subscribes_to_nothing_and_its_publishes_have_no_answers() {
        let plan = plan("nats", 0);
        let (mut driver, mut out) = (publisher::<Nats>(&plan), Vec::new());
        driver.greet(&mut out);
        assert!(out.ends_with(b"}\r\nPING\r\n"));
        assert!(!driver.answered());
        let first = body();
        assert_eq!(published(&mut driver), [&b"PUB t 40\r\n"[..], &first, b"\r\n"].concat());
        let (events, _) =
            all_of(&mut driver, b"PONG\r\n+OK\r\n-ERR 'Maximum Payload Violation'\r\n").expect("the protocol");
        assert_eq!(events, ["Ready", "Nothing", "Refused -ERR 'Maximum Payload Violation'"]);
    }

    #[test]
    fn what_is_not_the_protocol_is_an_error() {
        let plan = plan("nats", 0);
        for bytes in [
            &b"HTTP/1.1 400\r\n"[..],
            b"MSG t 1\r\n",
            b"MSG\r\n",
            b"MSG t 1 -4\r\n",
            b"MSG t 1 99999999999\r\n",
            b"MSG t 1 2\r\nbody\r\n",
            b"PING\n",
        ] {
            assert!(all_of(&mut subscriber::<Nats>(&plan), bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }
}
