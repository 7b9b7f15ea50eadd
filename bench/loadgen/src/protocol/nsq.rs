//! NSQ V2. A subscriber: IDENTIFY, answered, SUB, answered, RDY; from then on a FIN for each message. A publish is
//! answered OK or with an error.

use std::io;

use super::{Driver, Event, Role, broken};
use crate::plan::Plan;
use crate::protocol::body::{BodyFormat, Stamp};
use crate::protocol::codec::{self, Frame};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// IDENTIFY is on its way.
    Greeting,
    /// SUB is on its way.
    Subscribing,
    Ready,
}

pub struct Nsq<'a> {
    topic: &'a str,
    role: Role<'a>,
    stage: Stage,
}

impl<'a> Driver<'a> for Nsq<'a> {
    const BATCHES: bool = true;

    fn new(plan: &'a Plan, target: usize, role: Role<'a>) -> Nsq<'a> {
        Nsq { topic: plan.topic_at(target), role, stage: Stage::Greeting }
    }

    fn greet(&mut self, out: &mut Vec<u8>) {
        self.stage = Stage::Greeting;
        let unbuffered = matches!(self.role, Role::Subscriber { .. });
        out.extend_from_slice(&codec::hello(&self.role.name(), unbuffered));
    }

    fn answered(&self) -> bool {
        true
    }

    fn publish(&mut self, format: &BodyFormat, first: Stamp, count: u32, out: &mut Vec<u8>) {
        if count == 1 {
            codec::publish(self.topic, format, first, out);
        } else {
            codec::publish_many(self.topic, format, first, count, out);
        }
    }

    fn next<'b>(&mut self, bytes: &'b [u8], out: &mut Vec<u8>) -> io::Result<Option<(Event<'b>, usize)>> {
        let Some((frame, length)) = codec::next_frame(bytes).map_err(broken)? else { return Ok(None) };
        let event = match frame {
            Frame::Message { id, body } => {
                codec::finish(id, out);
                Event::Message(body)
            }
            Frame::Response(b"_heartbeat_") => {
                out.extend_from_slice(codec::NOP);
                Event::Nothing
            }
            Frame::Response(answer) => self.answer(answer, out)?,
            Frame::Error(text) => Event::Refused(text),
        };
        Ok(Some((event, length)))
    }
}

impl Nsq<'_> {
    fn answer(&mut self, answer: &[u8], out: &mut Vec<u8>) -> io::Result<Event<'static>> {
        match (self.stage, self.role) {
            (Stage::Greeting, Role::Subscriber { spec, .. }) => {
                codec::check_ready_count(answer, spec.rdy)?;
                codec::subscribe(self.topic, &spec.channel, out);
                self.stage = Stage::Subscribing;
                Ok(Event::Nothing)
            }
            (Stage::Subscribing, Role::Subscriber { spec, .. }) => {
                codec::ready(spec.rdy, out);
                self.stage = Stage::Ready;
                Ok(Event::Ready)
            }
            (Stage::Ready, _) => Ok(Event::Taken),
            (Stage::Greeting | Stage::Subscribing, Role::Publisher { .. }) => {
                self.stage = Stage::Ready;
                Ok(Event::Ready)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{all_of, plan, publisher, subscriber, torn};
    use super::*;

    fn frame(kind: u8, data: &[u8]) -> Vec<u8> {
        [&[0, 0, 0, data.len() as u8 + 4, 0, 0, 0, kind], data].concat()
    }

    #[test]
    fn a_subscriber_identifies_itself_subscribes_and_asks_for_messages() {
        let plan = plan("nsq", 0);
        let (mut driver, mut out) = (subscriber::<Nsq>(&plan), Vec::new());
        driver.greet(&mut out);
        assert!(out.starts_with(b"  V2IDENTIFY\n") && out.ends_with(b"}"));
        let message = [&[0; 10][..], b"0123456789abcdef", b"body"].concat();
        let bytes =
            [frame(0, br#"{"max_rdy_count":2500}"#), frame(0, b"OK"), frame(0, b"_heartbeat_"), frame(2, &message)]
                .concat();
        let (events, said) = torn(driver, &bytes);
        assert_eq!(events, ["Nothing", "Ready", "Nothing", "Message body"]);
        assert_eq!(said, b"SUB t bench\nRDY 2500\nNOP\nFIN 0123456789abcdef\n");
    }

    #[test]
    fn a_publisher_is_ready_with_the_first_answer_and_told_of_each_publish() {
        let plan = plan("nsq", 0);
        let mut driver = publisher::<Nsq>(&plan);
        driver.greet(&mut Vec::new());
        assert!(driver.answered());
        let bytes = [frame(0, b"{}"), frame(0, b"OK"), frame(1, b"E_BAD_TOPIC no")].concat();
        let (events, said) = all_of(&mut driver, &bytes).expect("the protocol");
        assert_eq!(events, ["Ready", "Taken", "Refused E_BAD_TOPIC no"]);
        assert_eq!(said, b"");
        assert!(all_of(&mut driver, b"HTTP/1.1").is_err());
    }
}
