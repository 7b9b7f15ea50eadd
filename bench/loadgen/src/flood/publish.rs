//! As many MPUBs as the broker takes, one outstanding on each connection (nsqd's own benchmark does so).

use std::io;

use crate::connections::link::Link;
use crate::flood::FloodReport;
use crate::flood::batch::Batch;
use crate::flood::field::{Field, Meter, unexpected};
use crate::protocol::codec::{self, Frame};
use crate::sys;

pub struct Writer {
    link: Link,
    batch: Batch,
}

impl Writer {
    pub fn new(link: Link, batch: Batch) -> Writer {
        Writer { link, batch }
    }

    /// Send the next batch, its messages numbered from `sequence` on. The one before must have been answered.
    pub fn send(&mut self, field: &Field<'_>, sequence: u64) -> io::Result<()> {
        self.batch.number(sequence);
        self.write(field)
    }

    /// Something happened on the connection; true: the batch was answered OK.
    pub fn step(&mut self, field: &mut Field<'_>, readiness: u32) -> io::Result<bool> {
        if readiness & sys::WRITABLE != 0 {
            self.write(field)?;
        }
        let mut answered = false;
        if readiness & !sys::WRITABLE != 0 {
            self.link.receive(&mut field.buffer, |frame, _| match frame {
                Frame::Response(b"OK") => {
                    answered = true;
                    Ok(())
                }
                // the batches are answer enough
                Frame::Response(b"_heartbeat_") => Ok(()),
                other => Err(unexpected(&other)),
            })?;
        }
        Ok(answered)
    }

    fn write(&mut self, field: &Field<'_>) -> io::Result<()> {
        let written = self.link.send(self.batch.unwritten())?;
        self.batch.wrote(written);
        let room = if self.batch.unwritten().is_empty() { 0 } else { sys::WRITABLE };
        self.link.watch(&field.poller, sys::READABLE | room)
    }
}

pub fn run(
    field: &mut Field<'_>,
    topic: &str,
    connections: usize,
    messages: u64,
    batch: u32,
    message_size: usize,
) -> io::Result<FloodReport> {
    let links = field.greet(connections, connections, |i| codec::hello(&format!("flood-{i}"), false), |_| Ok(()))?;
    let mut writers: Vec<Writer> =
        links.into_iter().map(|link| Writer::new(link, Batch::new(topic, batch, message_size))).collect();
    let (mut sent, mut answered) = (0, 0);
    let meter = Meter::start(0);
    for writer in &mut writers {
        if sent < messages {
            writer.send(field, sent)?;
            sent += u64::from(batch);
        }
    }
    while answered < messages {
        for (i, readiness) in field.wait()? {
            if writers[i].step(field, readiness)? {
                answered += u64::from(batch);
                if sent < messages {
                    writers[i].send(field, sent)?;
                    sent += u64::from(batch);
                }
            }
        }
    }
    Ok(meter.stop(answered))
}
