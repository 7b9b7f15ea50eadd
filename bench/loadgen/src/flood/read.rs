//! One consumer takes what waits for it, from its RDY to the last message.

use std::io;

use crate::flood::FloodReport;
use crate::flood::consumer::Consumer;
use crate::flood::field::{Field, Meter};
use crate::protocol::codec;

pub fn run(
    field: &mut Field<'_>,
    topic: &str,
    channel: &str,
    messages: u64,
    rdy: u32,
    buffered: bool,
) -> io::Result<FloodReport> {
    let links =
        field.greet(1, 1, |_| codec::hello("flood", !buffered), |answer| codec::check_ready_count(answer, rdy))?;
    let meter = Meter::start(0);
    let consumers = links.into_iter().map(|link| Consumer::subscribe(field, link, topic, channel, rdy));
    let mut consumers = consumers.collect::<io::Result<Vec<Consumer>>>()?;
    let mut received = 0;
    while received < messages {
        for (i, readiness) in field.wait()? {
            received += consumers[i].step(field, readiness)?;
        }
    }
    Ok(FloodReport { intact: consumers.iter().all(|consumer| consumer.intact(messages)), ..meter.stop(received) })
}
