//! A client of the MQTT port in memory: what it sends is bytes, what it gets is whole packets.

use crate::harness::pair::Pair;
use crate::keys::ConnKey;
use crate::protocol::mqtt::field_reader::variable;
use crate::protocol::mqtt::version::Version;

pub struct Client {
    pub key: ConnKey,
    pub packets: Vec<Vec<u8>>, // came, and nobody has looked at them
    unread: Vec<u8>,
}

impl Client {
    pub fn accept(pair: &mut Pair) -> Self {
        let key = pair.engine.handle_accept_mqtt("192.0.2.1:5000", pair.now);
        Self { key, packets: Vec::new(), unread: Vec::new() }
    }

    /// A client of 5.0 whose session ends with its connection.
    pub fn new(pair: &mut Pair, id: &str) -> Self {
        let mut client = Self::accept(pair);
        client.connect(pair, Version::V5, id);
        client
    }

    /// One with these properties, given as bytes, and perhaps a session that is there already.
    pub fn with(pair: &mut Pair, id: &str, clean: bool, properties: &[u8]) -> (Self, Vec<u8>) {
        let mut client = Self::accept(pair);
        let answer = client.ask(pair, &connect(Version::V5, id, clean, properties));
        (client, answer)
    }

    pub fn connect(&mut self, pair: &mut Pair, version: Version, id: &str) {
        let answer = self.ask(pair, &connect(version, id, true, &[]));
        assert_eq!((answer[0], answer[3]), (0x20, 0), "{answer:02x?}");
    }

    pub fn send(&mut self, pair: &mut Pair, bytes: &[u8]) {
        pair.send(self.key, bytes);
        pair.turn();
        while pair.engine.is_waiting(self.key) && !pair.closed.contains(&self.key) {
            pair.turn();
        }
    }

    pub fn read(&mut self, pair: &mut Pair) {
        self.unread.extend(pair.take_bytes(self.key));
        while let Some((remaining, digits)) = self.unread.get(1..).and_then(|rest| variable(rest).expect("a length")) {
            let len = 1 + digits + remaining as usize;
            if self.unread.len() < len {
                break;
            }
            self.packets.push(self.unread.drain(..len).collect());
        }
    }

    pub fn take(&mut self, pair: &mut Pair) -> Vec<Vec<u8>> {
        self.read(pair);
        std::mem::take(&mut self.packets)
    }

    /// Sends, and gives the answer; what else came stays to be read.
    pub fn ask(&mut self, pair: &mut Pair, bytes: &[u8]) -> Vec<u8> {
        self.send(pair, bytes);
        self.read(pair);
        let at = self.packets.iter().rposition(|packet| packet[0] >> 4 != 3);
        self.packets.remove(at.expect("an answer"))
    }

    /// Publishes as a client of 3.1.1, and reads the answers.
    pub fn publish(&mut self, pair: &mut Pair, topic: &str, qos: u8, payload: &[u8]) {
        let id: &[u8] = if qos > 0 { &[0, 77] } else { &[] };
        self.send(pair, &packet(0x30 | qos << 1, &[&text(topic), id, payload].concat()));
        if qos == 2 {
            self.send(pair, &[0x62, 2, 0, 77]);
        }
        self.take(pair);
    }

    /// Subscribes as a client of 5.0 with these options; gives the code of the answer.
    pub fn subscribe(&mut self, pair: &mut Pair, filter: &str, options: u8) -> u8 {
        let answer = self.ask(pair, &subscribe(filter, options));
        *answer.last().expect("a code")
    }

    /// Publishes as a client of 5.0; the answers stay to be read.
    pub fn publish_5(&mut self, pair: &mut Pair, topic: &str, qos: u8, id: u16, payload: &str) {
        self.send(pair, &publish_5(topic, qos, id, payload));
    }

    pub fn has_ended(&self, pair: &Pair) -> bool {
        pair.closed.contains(&self.key) || pair.ended.contains(&self.key)
    }

    /// The topics and payloads of the messages that came to a client of 5.0.
    pub fn messages(&mut self, pair: &mut Pair) -> Vec<(String, String)> {
        self.take(pair).iter().filter(|packet| packet[0] >> 4 == 3).map(|packet| message_5(packet)).collect()
    }
}

pub fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

pub fn packet(first: u8, rest: &[u8]) -> Vec<u8> {
    let (mut out, mut len) = (vec![first], rest.len());
    while len > 0x7f {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend_from_slice(rest);
    out
}

pub fn connect(version: Version, id: &str, clean: bool, properties: &[u8]) -> Vec<u8> {
    let name = if version == Version::V3_1 { "MQIsdp" } else { "MQTT" };
    let has_properties = version == Version::V5;
    let properties = if has_properties { [&[properties.len() as u8][..], properties].concat() } else { Vec::new() };
    packet(0x10, &[&text(name)[..], &[version as u8, u8::from(clean) << 1, 0, 60], &properties, &text(id)].concat())
}

pub fn subscribe(filter: &str, options: u8) -> Vec<u8> {
    packet(0x82, &[&[0, 9, 0][..], &text(filter), &[options]].concat())
}

pub fn publish_5(topic: &str, qos: u8, id: u16, payload: &str) -> Vec<u8> {
    let id = if qos > 0 { id.to_be_bytes().to_vec() } else { Vec::new() };
    packet(0x30 | qos << 1, &[&text(topic)[..], &id, &[0], payload.as_bytes()].concat())
}

/// Topic and payload of a PUBLISH of 5.0.
pub fn message_5(packet: &[u8]) -> (String, String) {
    let (_, digits) = variable(&packet[1..]).expect("a length").expect("a whole one");
    let body = &packet[1 + digits..];
    let len = usize::from(u16::from_be_bytes([body[0], body[1]]));
    let topic = String::from_utf8(body[2..2 + len].to_vec()).expect("a name");
    let behind = &body[2 + len + if packet[0] & 6 == 0 { 0 } else { 2 }..];
    let (properties, digits) = variable(behind).expect("a length").expect("a whole one");
    (topic, String::from_utf8_lossy(&behind[digits + properties as usize..]).into_owned())
}
