//! Laws: a stream of MQTT gives the same packets, or the same fault, however it is cut into reads; what is read of a
//! packet is what was checked; and a PUBLISH or an acknowledgement that is written again is read as the same.

use crate::harness::source::Source;
use crate::protocol::mqtt::decode::{decode, header};
use crate::protocol::mqtt::encode::{self, PublishHead, Written};
use crate::protocol::mqtt::packet::Packet;
use crate::protocol::mqtt::reason::Fault;
use crate::protocol::mqtt::topic_filter::matches;
use crate::protocol::mqtt::version::Version;

/// Bytes that a packet may have here.
const LONGEST: usize = 600;

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    let version = [Version::V3_1, Version::V3_1_1, Version::V5][source.below(3)];
    let mut pieces = source;
    let stream = {
        source.number();
        source.rest()
    };
    let mut whole = Reader::default();
    whole.read(stream, stream.len(), version);
    let (mut cut, mut end) = (Reader::default(), 0);
    for piece in pieces.pieces() {
        end += piece.len();
        cut.read(stream, end, version);
    }
    assert_eq!((cut.packets, cut.fault), (whole.packets, whole.fault), "the cuts make a difference");
}

#[derive(Default)]
struct Reader<'a> {
    packets: Vec<Packet<'a>>,
    fault: Option<Fault>,
    at: usize,
}

impl<'a> Reader<'a> {
    /// Read what is whole of `stream[..end]`.
    fn read(&mut self, stream: &'a [u8], end: usize, version: Version) {
        while self.fault.is_none() {
            let bytes = &stream[self.at..end];
            let header = match header(bytes, Some(version), LONGEST) {
                Ok(Some(header)) if header.len <= bytes.len() => header,
                Ok(_) => return,
                Err(fault) => {
                    self.fault = Some(fault);
                    return;
                }
            };
            match decode(bytes, header, version) {
                Ok(packet) => {
                    check(&packet, version);
                    self.packets.push(packet);
                    self.at += header.len;
                }
                Err(fault) => self.fault = Some(fault),
            }
        }
    }
}

/// What the engine relies on without looking again.
fn check(packet: &Packet<'_>, version: Version) {
    let mut bytes = Vec::new();
    match packet {
        Packet::Publish(publish) => {
            assert!(!publish.topic.contains(['+', '#', '\0']) && (publish.id == 0) == (publish.qos as u8 == 0));
            let head = PublishHead {
                dup: publish.dup,
                qos: publish.qos,
                retain: publish.retain,
                topic: publish.topic,
                id: publish.id,
                properties: publish.properties.bytes(),
            };
            encode::publish(&mut bytes, version, head, publish.payload);
        }
        Packet::Ack(ack) => {
            let mut properties = Written::default();
            properties.raw(ack.properties.bytes());
            encode::ack(&mut bytes, version, ack.kind, ack.id, ack.reason, &properties);
        }
        Packet::Subscribe(subscribe) => {
            assert!(subscribe.id > 0 && subscribe.filters().count() > 0);
            for wanted in subscribe.filters() {
                let name = wanted.filter.pattern.replace(['+', '#'], "x");
                assert!(matches(wanted.filter.pattern, &name), "{:?}", wanted.filter);
            }
            return;
        }
        Packet::Unsubscribe(unsubscribe) => return assert!(unsubscribe.id > 0 && unsubscribe.filters().count() > 0),
        _ => return,
    }
    let header = header(&bytes, Some(version), usize::MAX).expect("a front").expect("a whole one");
    assert_eq!(decode(&bytes, header, version).as_ref(), Ok(packet));
}
