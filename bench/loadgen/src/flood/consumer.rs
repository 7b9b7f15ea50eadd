//! A subscriber that acknowledges everything, counts it and adds it up.

use std::io;

use crate::connections::link::Link;
use crate::flood::field::{Field, unexpected};
use crate::flood::plan::SEQUENCE;
use crate::protocol::codec::{self, Frame};
use crate::sys;

pub struct Consumer {
    link: Link,
    rdy: u32,
    subscribed: bool,
    /// Commands that the socket has not taken.
    out: Vec<u8>,
    pub received: u64,
    /// Of the sequence numbers, wrapping.
    sum: u64,
}

impl Consumer {
    /// On a greeted connection: ask for `channel`. Ready when the broker has agreed.
    pub fn subscribe(field: &Field<'_>, link: Link, topic: &str, channel: &str, rdy: u32) -> io::Result<Consumer> {
        let mut consumer = Consumer { link, rdy, subscribed: false, out: Vec::new(), received: 0, sum: 0 };
        codec::subscribe(topic, channel, &mut consumer.out);
        consumer.write(field)?;
        Ok(consumer)
    }

    pub fn subscribed(&self) -> bool {
        self.subscribed
    }

    /// Something happened on the connection; how many messages came.
    pub fn step(&mut self, field: &mut Field<'_>, readiness: u32) -> io::Result<u64> {
        let before = self.received;
        if readiness & !sys::WRITABLE != 0 {
            let Consumer { link, rdy, subscribed, out, received, sum } = self;
            link.receive(&mut field.buffer, |frame, _| {
                match frame {
                    Frame::Message { id, body } => {
                        *received += 1;
                        *sum = sum.wrapping_add(sequence(body)?);
                        codec::finish(id, out);
                    }
                    Frame::Response(b"_heartbeat_") => out.extend_from_slice(codec::NOP),
                    Frame::Response(b"OK") if !*subscribed => {
                        *subscribed = true;
                        codec::ready(*rdy, out);
                    }
                    other => return Err(unexpected(&other)),
                }
                Ok(())
            })?;
        }
        self.write(field)?;
        Ok(self.received - before)
    }

    /// The messages 0 to `messages` came, each once.
    pub fn intact(&self, messages: u64) -> bool {
        self.received == messages
            && u128::from(self.sum)
                == (u128::from(messages) * u128::from(messages.saturating_sub(1)) / 2) & u128::from(u64::MAX)
    }

    fn write(&mut self, field: &Field<'_>) -> io::Result<()> {
        if !self.out.is_empty() {
            let written = self.link.send(&self.out)?;
            self.out.drain(..written);
        }
        let room = if self.out.is_empty() { 0 } else { sys::WRITABLE };
        self.link.watch(&field.poller, sys::READABLE | room)
    }
}

fn sequence(body: &[u8]) -> io::Result<u64> {
    let number =
        body.first_chunk::<SEQUENCE>().ok_or_else(|| io::Error::other("a message that is not of this flood"))?;
    Ok(u64::from_be_bytes(*number))
}
