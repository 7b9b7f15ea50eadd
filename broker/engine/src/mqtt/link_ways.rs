//! How long messages of other brokers' topics took until they were sent to their subscribers here, for each way: from a
//! broker, of a topic. The promise of a topic is judged by each of them.
//!
//! A message's own broker says how long it had been on its way when it sent it. Here it counts as if it had come so much
//! earlier than it did. The link itself takes half of the smallest round trip that the kernel has seen on it.

use std::rc::Rc;

use crate::limiter::trace::NO_TRACE;
use crate::protocol::link_frames::SoFar;
use crate::storage::record::Times;
use crate::telemetry::latency::{Latency, Sample};
use crate::time::Nanos;

/// In `Times::trace`: the rest is the number of a way. No decision of a topic's own has so high a number.
const OF_LINK: u64 = 1 << 63;

#[derive(Debug)]
pub struct LinkWay {
    pub origin: Rc<str>, // a broker
    pub topic: Box<str>, // there
    pub latency: Latency,
    pub network: Option<Nanos>, // None: not known yet
}

/// They are kept when their links end: what came still counts.
#[derive(Debug, Default)]
pub struct LinkWays(Vec<LinkWay>);

impl LinkWays {
    /// The number of a way, which is new or known.
    pub fn number_of(&mut self, origin: &str, topic: &str) -> usize {
        let known = self.0.iter().position(|way| &*way.origin == origin && &*way.topic == topic);
        known.unwrap_or_else(|| {
            let (origin, topic) = (origin.into(), topic.into());
            self.0.push(LinkWay { origin, topic, latency: Latency::default(), network: None });
            self.0.len() - 1
        })
    }

    /// `most` of them, from number `from` on.
    pub fn some_mut(&mut self, from: usize, most: usize) -> impl Iterator<Item = &mut LinkWay> {
        self.0.iter_mut().skip(from).take(most)
    }

    pub fn note_network(&mut self, number: usize, delay: Nanos) {
        self.0.get_mut(number).into_iter().for_each(|way| way.network = Some(delay));
    }

    /// A message that went this way was sent to its subscriber.
    pub fn record(&mut self, number: usize, sample: Sample, now: Nanos) {
        self.0.get_mut(number).into_iter().for_each(|way| way.latency.record(sample, 1, 0, now));
    }
}

/// The times of a message that came by a link at `arrived`.
pub fn times_of(number: usize, so_far: SoFar, arrived: Nanos) -> Times {
    let due = arrived - so_far.processing;
    Times { arrival: due - so_far.access, due, queued: arrived, trace: OF_LINK | number as u64 }
}

/// The way that a message came. `None`: it was published here, or its own broker did not say how long it took.
pub fn way_of(trace: u64) -> Option<usize> {
    (trace != NO_TRACE && trace & OF_LINK != 0).then_some((trace & !OF_LINK) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_counts_as_if_it_had_come_so_much_earlier_and_knows_its_way() {
        let mut ways = LinkWays::default();
        let numbers =
            [("a", "t"), ("b", "t"), ("a", "t"), ("a", "u")].map(|(origin, topic)| ways.number_of(origin, topic));
        assert_eq!(numbers, [0, 1, 0, 2]);
        let times = times_of(2, SoFar { access: 5, processing: 30 }, 100);
        assert_eq!((times.arrival, times.due, times.queued), (65, 70, 100));
        assert_eq!((way_of(times.trace), way_of(NO_TRACE), way_of(7)), (Some(2), None, None));
    }
}
