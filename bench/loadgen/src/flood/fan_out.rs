//! One publisher, many channels with one consumer each: what is published goes out as often as there are channels.

use std::io;

use crate::flood::FloodReport;
use crate::flood::batch::Batch;
use crate::flood::consumer::Consumer;
use crate::flood::field::{Field, Window};
use crate::flood::publish::Writer;
use crate::protocol::codec;

pub struct Asked<'a> {
    pub topic: &'a str,
    pub channels: usize,
    pub window: u32,
    pub rdy: u32,
}

pub fn run(
    field: &mut Field<'_>,
    asked: &Asked<'_>,
    batch: u32,
    message_size: usize,
    times_s: (f64, f64),
) -> io::Result<FloodReport> {
    let channels = asked.channels as u64;
    let accept = |answer: &[u8]| codec::check_ready_count(answer, asked.rdy);
    let mut links =
        field.greet(asked.channels + 1, asked.channels + 1, |i| codec::hello(&format!("flood-{i}"), false), accept)?;
    // the last connection publishes, so that consumers have the numbers of their channels
    let publisher = links.pop().ok_or_else(|| io::Error::other("no connections"))?;
    let mut writer = Writer::new(publisher, Batch::new(asked.topic, batch, message_size));
    let consumers = links.into_iter().enumerate();
    let consumers =
        consumers.map(|(i, link)| Consumer::subscribe(field, link, asked.topic, &format!("channel-{i}"), asked.rdy));
    let mut consumers = consumers.collect::<io::Result<Vec<Consumer>>>()?;
    while !consumers.iter().all(Consumer::subscribed) {
        for (i, readiness) in field.wait()? {
            consumers[i].step(field, readiness)?;
        }
    }
    let (mut sent, mut delivered, mut answered, mut over) = (0, 0, true, false);
    let mut window = Window::new(times_s);
    while !over || !answered || delivered < sent * channels {
        if !over && answered && sent * channels <= delivered + u64::from(asked.window) * channels {
            writer.send(field, sent)?;
            sent += u64::from(batch);
            answered = false;
        }
        for (i, readiness) in field.wait()? {
            match consumers.get_mut(i) {
                Some(consumer) => delivered += consumer.step(field, readiness)?,
                None => answered |= writer.step(field, readiness)?,
            }
        }
        over = window.look(delivered);
    }
    Ok(FloodReport { intact: consumers.iter().all(|consumer| consumer.intact(sent)), ..window.report()? })
}
