//! What a connection to another broker has besides its two streams: this broker is the client there.

use std::rc::Rc;

use crate::protocol::link_frames::HEARTBEAT_MS;
use crate::time::{Nanos, PATIENCE_NS};

#[derive(Debug)]
pub struct LinkClient {
    pub number: u64,            // under which Python knows it
    pub source: Rc<str>,        // broker and topic, for messages that come twice
    pub topic: Box<str>,        // at the other broker
    pub way: usize,             // among those of `link_peers`
    pub reason: Option<String>, // why it ends
}

impl LinkClient {
    /// The instant at which the other broker counts as gone. `waits`: it is not read just now.
    pub fn deadline(&self, heard: Nanos, blocked_since: Option<Nanos>, waits: bool) -> Option<Nanos> {
        let silent = (!waits).then_some(heard + 2 * HEARTBEAT_MS as Nanos * 1_000_000);
        blocked_since.map(|since| since + PATIENCE_NS).into_iter().chain(silent).min()
    }
}
