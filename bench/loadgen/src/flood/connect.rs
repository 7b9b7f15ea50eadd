//! A crowd: connections that greet, are answered, and stay.

use std::io;

use crate::connections::link::Link;
use crate::flood::FloodReport;
use crate::flood::field::{Field, Meter};
use crate::protocol::codec;
use crate::sys;

pub fn run(
    field: &mut Field<'_>,
    connections: usize,
    at_once: usize,
    yielding: bool,
) -> io::Result<(FloodReport, Vec<Link>)> {
    if yielding {
        sys::yield_to_others()?;
    }
    let meter = Meter::start(0);
    let links = field.greet(connections, at_once, |i| codec::silent_hello(&format!("crowd-{i}")), |_| Ok(()))?;
    Ok((meter.stop(links.len() as u64), links))
}
