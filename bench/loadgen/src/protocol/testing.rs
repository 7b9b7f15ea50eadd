//! What the drivers' tests share: a plan, and bytes fed whole or torn at every place.

use std::io;

use super::{Driver, Event, Role};
use crate::plan::{Plan, tests::PLAN};
use crate::protocol::body::{BodyFormat, Stamp};

const STAMP: Stamp = Stamp { publisher: 2, sequence: 3, intended_ns: 4, measured: true };

pub fn plan(protocol: &str, qos: u8) -> Plan {
    let text = PLAN.replacen(r#"{"topic""#, &format!(r#"{{"protocol": "{protocol}", "qos": {qos}, "topic""#), 1);
    Plan::parse(text.as_bytes()).expect("a valid plan")
}

pub fn publisher<'a, D: Driver<'a>>(plan: &'a Plan) -> D {
    D::new(plan, 0, Role::Publisher { id: &plan.publishers.ids[0] })
}

pub fn subscriber<'a, D: Driver<'a>>(plan: &'a Plan) -> D {
    D::new(plan, 0, Role::Subscriber { number: 0, spec: &plan.subscribers[0] })
}

fn format() -> BodyFormat {
    BodyFormat::new(1, 40)
}

/// One message as the driver writes it.
pub fn published<'a>(driver: &mut impl Driver<'a>) -> Vec<u8> {
    let mut out = Vec::new();
    driver.publish(&format(), STAMP, 1, &mut out);
    out
}

/// The body that `published` has.
pub fn body() -> Vec<u8> {
    let mut out = Vec::new();
    format().write(STAMP, &mut out);
    out
}

/// What `bytes` mean and what is answered to them; what is not whole at their end is left.
pub fn all_of<'a>(driver: &mut impl Driver<'a>, bytes: &[u8]) -> io::Result<(Vec<String>, Vec<u8>)> {
    let (mut events, mut out, mut used) = (Vec::new(), Vec::new(), 0);
    while let Some((event, length)) = driver.next(&bytes[used..], &mut out)? {
        assert!(length > 0, "an event of no bytes");
        events.push(shown(&event));
        used += length;
    }
    Ok((events, out))
}

/// The same of bytes that come one at a time, each event read only when its last byte is there.
pub fn torn<'a>(mut driver: impl Driver<'a>, bytes: &[u8]) -> (Vec<String>, Vec<u8>) {
    let (mut events, mut out, mut begun) = (Vec::new(), Vec::new(), 0);
    for end in 1..=bytes.len() {
        if let Some((event, length)) = driver.next(&bytes[begun..end], &mut out).expect("the protocol") {
            assert_eq!(begun + length, end, "read before its end: {event:?}");
            events.push(shown(&event));
            begun = end;
        }
    }
    assert_eq!(begun, bytes.len(), "the last event was not whole");
    (events, out)
}

fn shown(event: &Event<'_>) -> String {
    match event {
        Event::Message(body) => format!("Message {}", String::from_utf8_lossy(body)),
        Event::Refused(text) => format!("Refused {}", String::from_utf8_lossy(text)),
        other => format!("{other:?}"),
    }
}
