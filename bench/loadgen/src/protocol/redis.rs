//! Redis Pub/Sub, RESP2: PUBLISH is answered with the number of subscribers that it went to, messages come as arrays of
//! three.

use std::io::{self, Write};

use super::line::{block, line};
use super::{Driver, Event, Role, broken, size};
use crate::plan::Plan;
use crate::protocol::body::{BodyFormat, Stamp};

pub struct Redis<'a> {
    topic: &'a str,
    role: Role<'a>,
}

impl<'a> Driver<'a> for Redis<'a> {
    const BATCHES: bool = false;

    fn new(plan: &'a Plan, target: usize, role: Role<'a>) -> Redis<'a> {
        Redis { topic: plan.topic_at(target), role }
    }

    fn greet(&mut self, out: &mut Vec<u8>) {
        match self.role {
            // A server that is still loading, or wants a password, says so now and not in the run.
            Role::Publisher { .. } => out.extend_from_slice(b"*1\r\n$4\r\nPING\r\n"),
            Role::Subscriber { .. } => {
                out.extend_from_slice(
                    format!("*2\r\n$9\r\nSUBSCRIBE\r\n${}\r\n{}\r\n", self.topic.len(), self.topic).as_bytes(),
                );
            }
        }
    }

    fn answered(&self) -> bool {
        true
    }

    fn publish(&mut self, format: &BodyFormat, first: Stamp, _one: u32, out: &mut Vec<u8>) {
        // Writing into a vector cannot fail.
        let _ = write!(out, "*3\r\n$7\r\nPUBLISH\r\n${}\r\n{}\r\n${}\r\n", self.topic.len(), self.topic, format.size());
        format.write(first, out);
        out.extend_from_slice(b"\r\n");
    }

    fn next<'b>(&mut self, bytes: &'b [u8], _out: &mut Vec<u8>) -> io::Result<Option<(Event<'b>, usize)>> {
        let Some((head, length)) = line(bytes)? else { return Ok(None) };
        let event = match head.split_first() {
            Some((b':', _)) => Event::Taken,
            Some((b'+', _)) => Event::Ready,
            Some((b'-', text)) => Event::Refused(text),
            Some((b'*', b"3")) => return pushed(bytes, length),
            _ => {
                return Err(broken(format!(
                    "a reply that begins with {:?}",
                    String::from_utf8_lossy(&head[..head.len().min(40)])
                )));
            }
        };
        Ok(Some((event, length)))
    }
}

/// `message | subscribe`, the channel, then the body or a number, from `at` on.
fn pushed(bytes: &[u8], at: usize) -> io::Result<Option<(Event<'_>, usize)>> {
    let Some((kind, at)) = bulk(bytes, at)? else { return Ok(None) };
    let Some((_channel, at)) = bulk(bytes, at)? else { return Ok(None) };
    match kind {
        b"message" => Ok(bulk(bytes, at)?.map(|(body, end)| (Event::Message(body), end))),
        b"subscribe" => Ok(line(&bytes[at..])?.map(|(_count, length)| (Event::Ready, at + length))),
        other => Err(broken(format!("a push of {:?}", String::from_utf8_lossy(&other[..other.len().min(40)])))),
    }
}

/// `$size`, then so many bytes; with where they end.
fn bulk(bytes: &[u8], at: usize) -> io::Result<Option<(&[u8], usize)>> {
    let Some((head, length)) = line(&bytes[at..])? else { return Ok(None) };
    let digits = head.strip_prefix(b"$").ok_or_else(|| broken("an array whose entries are no strings"))?;
    block(bytes, at + length, size(digits)?)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{all_of, body, plan, published, publisher, subscriber, torn};
    use super::*;

    #[test]
    fn a_subscriber_is_ready_when_its_subscription_is_confirmed() {
        let plan = plan("redis", 0);
        let (mut driver, mut out) = (subscriber::<Redis>(&plan), Vec::new());
        driver.greet(&mut out);
        assert_eq!(out, b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nt\r\n");
        let bytes = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nt\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\nt\r\n$6\r\nbo\r\ndy\r\n*3\r\n$7\r\nmessage\r\n$1\r\nt\r\n$0\r\n\r\n";
        let (events, said) = torn(driver, bytes);
        assert_eq!(events, ["Ready", "Message bo\r\ndy", "Message "]);
        assert_eq!(said, b"");
    }

    #[test]
    fn a_publish_is_answered_with_a_number_or_an_error() {
        let plan = plan("redis", 0);
        let (mut driver, mut out) = (publisher::<Redis>(&plan), Vec::new());
        driver.greet(&mut out);
        assert_eq!(out, b"*1\r\n$4\r\nPING\r\n");
        let first = body();
        assert_eq!(
            published(&mut driver),
            [&b"*3\r\n$7\r\nPUBLISH\r\n$1\r\nt\r\n$40\r\n"[..], &first, b"\r\n"].concat()
        );
        let (events, _) =
            all_of(&mut driver, b"+PONG\r\n:1\r\n-OOM command not allowed\r\n:0\r\n").expect("the protocol");
        assert_eq!(events, ["Ready", "Taken", "Refused OOM command not allowed", "Taken"]);
    }

    #[test]
    fn what_is_not_the_protocol_is_an_error() {
        let plan = plan("redis", 0);
        let pushes = [
            "*3\r\n:1\r\n",
            "*3\r\n$-1\r\n",
            "*3\r\n$99999999\r\n",
            "*3\r\n$1\r\nxyz",
            "*3\r\n$4\r\npong\r\n$1\r\nt\r\n",
        ];
        for text in ["HTTP/1.1 400\r\n", "\r\n", "*2\r\n", "*3\n", "$4\r\nbody\r\n"].into_iter().chain(pushes) {
            assert!(all_of(&mut subscriber::<Redis>(&plan), text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
