//! Table of TCP flows: the connection of each segment and the state of its stream.

use std::collections::{HashMap, VecDeque};

use slotmap::SecondaryMap;

use crate::arrival::packet_filter::{Flow, Segment};
use crate::arrival::tcp_sequence::Sequence;
use crate::keys::ConnKey;
use crate::time::Nanos;

/// Opened connections, not accepted yet, of which the table keeps state: more than the accept queue holds.
///
/// Beyond that the table drops the oldest, which bounds the cost of a SYN flood. A dropped connection takes the
/// kernel's stamps.
const MAX_OPENED: usize = 8_192;

#[derive(Debug, Default)]
pub struct Flows {
    opened: HashMap<Flow, (u64, Sequence)>, // not accepted yet, with its number
    order: VecDeque<(u64, Flow)>,           // of opening; some are accepted since
    number: u64,
    accepted: HashMap<Flow, ConnKey>,
    streams: SecondaryMap<ConnKey, Stream>,
    round: u64,   // see `missed`
    fresh: usize, // streams whose `noted` is this round
}

/// The stream of an accepted connection.
#[derive(Debug)]
struct Stream {
    flow: Flow,
    bytes: Sequence,
    noted: Option<u64>, // the round in which bytes came of which none were taken since
}

impl Flows {
    /// A segment came in.
    pub fn note(&mut self, segment: &Segment, at: Nanos) {
        if segment.opens {
            return self.open(segment.flow, segment.sequence);
        }
        if let Some(key) = self.accepted.get(&segment.flow).copied()
            && let Some(stream) = self.streams.get_mut(key)
            && stream.bytes.expects(segment.sequence)
        {
            stream.bytes.note(segment.sequence, segment.len, at);
            self.fresh += usize::from(stream.noted != Some(self.round));
            stream.noted = Some(self.round);
            if segment.urgent {
                self.forget(key);
            }
        } else if let Some((_, stream)) = self.opened.get_mut(&segment.flow) {
            stream.note(segment.sequence, segment.len, at);
            if segment.urgent {
                self.opened.remove(&segment.flow);
            }
        }
    }

    fn open(&mut self, flow: Flow, syn: u32) {
        if self.opened.get(&flow).is_some_and(|(_, stream)| stream.is_opened_by(syn)) {
            return; // sent again
        }
        self.number += 1;
        self.opened.insert(flow, (self.number, Sequence::opened(syn)));
        self.order.push_back((self.number, flow));
        if self.order.len() > MAX_OPENED
            && let Some((number, oldest)) = self.order.pop_front()
            && self.opened.get(&oldest).is_some_and(|(other, _)| *other == number)
        {
            self.opened.remove(&oldest);
        }
    }

    /// Whether the opening of a connection was seen that is not accepted yet.
    pub fn is_opened(&self, flow: &Flow) -> bool {
        self.opened.contains_key(flow)
    }

    /// That connection is accepted. One whose opening was not seen stays unknown.
    pub fn accept(&mut self, key: ConnKey, flow: Flow) {
        if let Some((_, bytes)) = self.opened.remove(&flow) {
            self.accepted.insert(flow, key);
            self.streams.insert(key, Stream { flow, bytes, noted: None });
        }
    }

    /// Forgets a connection that has closed, or whose bytes cannot be counted any more.
    pub fn forget(&mut self, key: ConnKey) {
        let Some(stream) = self.streams.remove(key) else { return };
        self.fresh -= usize::from(stream.noted == Some(self.round));
        if self.accepted.get(&stream.flow) == Some(&key) {
            self.accepted.remove(&stream.flow);
        }
    }

    /// Whether bytes were noted since the last call of connections of which nothing was taken after that.
    pub fn missed(&mut self) -> bool {
        self.round += 1;
        std::mem::take(&mut self.fresh) > 0
    }

    /// Whether the stream of a connection is followed.
    pub fn knows(&self, key: ConnKey) -> bool {
        self.streams.contains_key(key)
    }

    /// The arrivals of the next `len` bytes are known.
    pub fn covers(&self, key: ConnKey, len: usize) -> bool {
        self.streams.get(key).is_some_and(|stream| stream.bytes.covers(len))
    }

    /// See `Sequence::take`; false also of a connection that is not known.
    ///
    /// None of these bytes arrived before `since`, when nothing of the connection was there: a segment from before that
    /// which seems to bring one of them was thrown away by the kernel.
    pub fn take(&mut self, key: ConnKey, len: usize, since: Nanos, spans: &mut Vec<(usize, Nanos)>) -> bool {
        let Some(stream) = self.streams.get_mut(key) else { return false };
        self.fresh -= usize::from(stream.noted.take() == Some(self.round));
        let is_known = stream.bytes.take(len, spans);
        spans.iter_mut().for_each(|(_, at)| *at = since.max(*at));
        is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotmap::SlotMap;

    const SYN: u32 = 1_000;

    fn flow(port: u16) -> Flow {
        Flow { from: ([192, 0, 2, 1].into(), port), to: ([192, 0, 2, 2].into(), 4_150) }
    }

    fn syn(port: u16, sequence: u32) -> Segment {
        Segment { flow: flow(port), sequence, len: 0, opens: true, urgent: false }
    }

    fn bytes(port: u16, sequence: u32, len: u32) -> Segment {
        Segment { flow: flow(port), sequence, len, opens: false, urgent: false }
    }

    fn keys(count: usize) -> Vec<ConnKey> {
        let mut all = SlotMap::with_key();
        (0..count).map(|_| all.insert(())).collect()
    }

    fn take(flows: &mut Flows, key: ConnKey, len: usize) -> Option<Vec<(usize, Nanos)>> {
        let mut spans = Vec::new();
        flows.take(key, len, Nanos::MIN, &mut spans).then_some(spans)
    }

    #[test]
    fn bytes_that_come_before_the_connection_is_accepted_count() {
        let (mut flows, key) = (Flows::default(), keys(1)[0]);
        flows.note(&syn(5_000, SYN), 1);
        flows.note(&bytes(5_000, SYN + 1, 4), 2);
        flows.note(&syn(5_000, SYN), 3); // sent again
        flows.accept(key, flow(5_000));
        flows.note(&bytes(5_000, SYN + 5, 4), 4);
        assert_eq!(take(&mut flows, key, 8), Some(vec![(4, 2), (8, 4)]));
    }

    #[test]
    fn a_connection_whose_opening_was_not_seen_is_unknown() {
        let (mut flows, key) = (Flows::default(), keys(1)[0]);
        flows.accept(key, flow(5_000));
        flows.note(&bytes(5_000, SYN + 1, 4), 2);
        assert!(!flows.covers(key, 4));
        assert_eq!(take(&mut flows, key, 4), None);
    }

    #[test]
    fn an_address_that_is_used_again_is_another_stream_at_once() {
        let mut flows = Flows::default();
        let [old, new] = keys(2)[..] else { panic!("two keys") };
        flows.note(&syn(5_000, SYN), 1);
        flows.accept(old, flow(5_000));
        flows.note(&syn(5_000, SYN + (1 << 30)), 2);
        flows.note(&bytes(5_000, SYN + (1 << 30) + 1, 4), 3);
        assert!(!flows.covers(old, 1));
        flows.accept(new, flow(5_000));
        flows.forget(old);
        flows.note(&bytes(5_000, SYN + (1 << 30) + 5, 4), 4);
        assert_eq!(take(&mut flows, new, 8), Some(vec![(4, 3), (8, 4)]));
    }

    #[test]
    fn urgent_data_ends_the_counting() {
        let mut flows = Flows::default();
        let [early, late] = keys(2)[..] else { panic!("two keys") };
        flows.note(&syn(1, SYN), 1);
        flows.note(&Segment { urgent: true, ..bytes(1, SYN + 1, 4) }, 2);
        flows.accept(early, flow(1));
        flows.note(&syn(2, SYN), 1);
        flows.accept(late, flow(2));
        flows.note(&Segment { urgent: true, ..bytes(2, SYN + 1, 4) }, 2);
        assert_eq!((take(&mut flows, early, 4), take(&mut flows, late, 4)), (None, None));
    }

    #[test]
    fn a_flood_of_openings_is_bounded_and_harms_no_accepted_connection() {
        let (mut flows, key) = (Flows::default(), keys(1)[0]);
        flows.note(&syn(5_000, SYN), 1);
        flows.accept(key, flow(5_000));
        for i in 0..3 * MAX_OPENED as u32 {
            let from = (std::net::Ipv4Addr::from_bits(i).into(), 5_000);
            flows.note(&Segment { flow: Flow { from, ..flow(5_000) }, ..syn(5_000, i) }, 2);
        }
        assert_eq!((flows.opened.len(), flows.order.len()), (MAX_OPENED, MAX_OPENED));
        flows.note(&syn(5_000, 77), 3); // somebody pretends to be the accepted one
        flows.note(&bytes(5_000, SYN + 1, 4), 4);
        assert_eq!(take(&mut flows, key, 4), Some(vec![(4, 4)]));
    }

    #[test]
    fn no_byte_arrives_before_nothing_was_there_to_read_whatever_a_segment_says() {
        let (mut flows, key) = (Flows::default(), keys(1)[0]);
        flows.note(&syn(5_000, SYN), 1);
        flows.accept(key, flow(5_000));
        flows.note(&bytes(5_000, SYN + 1, 4), 2); // the kernel throws it away
        flows.note(&bytes(5_000, SYN + 1, 4), 3_000);
        flows.note(&bytes(5_000, SYN + 5, 4), 3_500);
        let mut spans = Vec::new();
        assert!(flows.take(key, 8, 2_990, &mut spans));
        assert_eq!(spans, [(4, 2_990), (8, 3_500)]);
    }

    #[test]
    fn a_connection_is_missed_once_whose_bytes_nobody_took() {
        let mut flows = Flows::default();
        let [read, unread] = keys(2)[..] else { panic!("two keys") };
        for (port, key) in [(1, read), (2, unread)] {
            flows.note(&syn(port, SYN), 1);
            flows.accept(key, flow(port));
        }
        assert!(!flows.missed());
        flows.note(&bytes(1, SYN + 1, 4), 2);
        flows.note(&bytes(2, SYN + 1, 4), 2);
        flows.note(&bytes(2, SYN + 5, 4), 3);
        take(&mut flows, read, 4);
        assert!(flows.missed());
        assert!(!flows.missed());
        flows.note(&bytes(1, SYN + 5, 4), 4);
        take(&mut flows, read, 4);
        take(&mut flows, unread, 8);
        assert!(!flows.missed());
        flows.note(&bytes(2, SYN + 9, 4), 5);
        flows.forget(unread);
        assert!(!flows.missed());
    }

    #[test]
    fn what_is_forgotten_leaves_nothing_behind() {
        let mut flows = Flows::default();
        for (port, key) in keys(100).into_iter().enumerate() {
            flows.note(&syn(port as u16, SYN), 1);
            flows.accept(key, flow(port as u16));
            flows.forget(key);
        }
        assert_eq!((flows.opened.len(), flows.accepted.len(), flows.streams.len()), (0, 0, 0));
    }
}
