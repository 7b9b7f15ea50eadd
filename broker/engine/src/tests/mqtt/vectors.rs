//! The byte vectors of Mosquitto's suite (`test/broker/data/*.json` of its repository, EPL-2.0 or EDL-1.0), which are
//! not part of this one: `SRTM_MQTT_VECTORS` names the folder.
//!
//! A vector sends packets and says what must come back, and whether the connection ends. What must come back is found
//! anywhere in what did, for deliveries and answers are in no order to each other. Of a CONNACK the flags and the code
//! count, for its properties are the broker's choice; of a DISCONNECT the code.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::config::Config;
use crate::harness::pair::Pair;
use crate::protocol::mqtt::version::Version;
use crate::tests::mqtt::client::Client;

#[derive(Debug)]
pub struct Vector {
    pub name: String,
    pub version: Version,
    pub connects: bool, // before its first step
    pub ends: bool,
    pub steps: Vec<Step>,
}

#[derive(Debug)]
pub enum Step {
    Send(Vec<u8>),
    Receive(Vec<u8>),
    /// Another client publishes.
    Publish {
        topic: String,
        qos: u8,
        payload: Vec<u8>,
    },
}

/// All vectors of the folder.
pub fn load() -> Vec<Vector> {
    let folder = std::env::var("SRTM_MQTT_VECTORS").expect("SRTM_MQTT_VECTORS names the folder of the vectors");
    let mut files: Vec<_> =
        fs::read_dir(Path::new(&folder)).expect("the folder").map(|file| file.expect("a file").path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "json"));
    files.sort();
    files.iter().flat_map(|file| vectors(&fs::read_to_string(file).expect("its text"))).collect()
}

fn vectors(text: &str) -> Vec<Vector> {
    let groups: Value = serde_json::from_str(text).expect("JSON");
    let groups = groups.as_array().expect("groups").clone();
    groups
        .iter()
        .flat_map(|group| group["tests"].as_array().expect("tests").iter().map(|test| vector(group, test)))
        .collect()
}

fn vector(group: &Value, test: &Value) -> Vector {
    let or_group = |key: &str| test.get(key).or(group.get(key)).cloned();
    let version = match or_group("ver").and_then(|number| number.as_u64()) {
        Some(3) => Version::V3_1,
        Some(5) => Version::V5,
        _ => Version::V3_1_1,
    };
    let name = format!(
        "{}: {}",
        group["group"].as_str().unwrap_or_default().trim(),
        test["name"].as_str().unwrap_or_default()
    );
    Vector {
        name,
        version,
        connects: or_group("connect").and_then(|connects| connects.as_bool()).unwrap_or(true),
        ends: or_group("expect_disconnect").and_then(|ends| ends.as_bool()).unwrap_or(true),
        steps: test["msgs"].as_array().expect("messages").iter().map(step).collect(),
    }
}

fn step(message: &Value) -> Step {
    let payload = message["payload"].as_str().expect("a payload");
    match message["type"].as_str() {
        Some("send") => Step::Send(bytes(payload)),
        Some("recv") => Step::Receive(bytes(payload)),
        _ => Step::Publish {
            topic: message["topic"].as_str().expect("a topic").into(),
            qos: message["qos"].as_u64().expect("a QoS") as u8,
            payload: payload.as_bytes().to_vec(),
        },
    }
}

/// Bytes of a line such as `30 r14 s5 'topic' 'payload'`: hexadecimal digits, texts in quotes, and numbers after a
/// letter that says how they are written.
fn bytes(line: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), line.trim_start());
    while let Some(first) = rest.chars().next() {
        let end = if first == '\'' { rest[1..].find('\'').map(|at| at + 2) } else { rest.find([' ', '\'']) };
        let (word, behind) = rest.split_at(end.unwrap_or(rest.len()));
        let number = || word[1..].parse::<u32>().expect("a number");
        match first {
            '\'' => out.extend_from_slice(word.trim_matches('\'').as_bytes()),
            'i' => out.push(number() as u8),
            'H' | 'k' | 'm' | 's' => out.extend_from_slice(&(number() as u16).to_be_bytes()),
            'L' => out.extend_from_slice(&number().to_be_bytes()),
            'v' | 'r' => variable(&mut out, number()),
            _ => out.extend(
                (0..word.len() / 2).map(|at| u8::from_str_radix(&word[2 * at..2 * at + 2], 16).expect("digits")),
            ),
        }
        rest = behind.trim_start();
    }
    out
}

/// Five digits too, which no packet may have.
fn variable(out: &mut Vec<u8>, mut value: u32) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// One vector against a broker of its own; the error says what is wrong.
fn play(vector: &Vector) -> Result<(), String> {
    let mut pair = Pair::with(Config { mqtt_topic: "mqtt".into(), ..Config::default() });
    let mut client = Client::accept(&mut pair);
    if vector.connects {
        client.connect(&mut pair, vector.version, "vectors");
    }
    for step in &vector.steps {
        match step {
            Step::Send(bytes) => client.send(&mut pair, bytes),
            Step::Publish { topic, qos, payload } => {
                let mut other = Client::accept(&mut pair);
                other.connect(&mut pair, Version::V3_1_1, "other");
                other.publish(&mut pair, topic, *qos, payload);
            }
            Step::Receive(wanted) => {
                client.read(&mut pair);
                let at = client.packets.iter().position(|packet| is_alike(packet, wanted));
                let Some(at) = at else { return Err(format!("{wanted:02x?} is not in {:02x?}", client.packets)) };
                client.packets.remove(at);
            }
        }
    }
    client.read(&mut pair);
    if client.has_ended(&pair) != vector.ends {
        return Err(format!("ends: {}; {:02x?}", client.has_ended(&pair), client.packets));
    }
    let surplus = client.packets.iter().find(|packet| !matches!(packet[0], 0x20 | 0xe0));
    surplus.map_or(Ok(()), |packet| Err(format!("{packet:02x?} came, too")))
}

fn is_alike(packet: &[u8], wanted: &[u8]) -> bool {
    let counts: &[usize] = match wanted[0] {
        0x20 => &[0],
        0xe0 => &[0, 2],
        0x40..=0x7f => &[0, 2, 3],
        _ => return packet == wanted,
    };
    if wanted[0] == 0x20 {
        let code = |bytes: &[u8]| bytes[2..4].to_vec();
        return packet[0] == 0x20 && packet.len() >= 4 && wanted.len() >= 4 && (code(packet) == code(wanted));
    }
    let code = |bytes: &[u8]| bytes.get(4).copied().unwrap_or(0);
    counts.iter().all(|at| packet.get(*at) == wanted.get(*at)) && (wanted[0] == 0xe0 || code(packet) == code(wanted))
}

#[test]
#[ignore = "needs Mosquitto's test vectors: SRTM_MQTT_VECTORS names their folder (CONTRIBUTING.md)"]
fn mosquittos_vectors_get_their_answers() {
    let vectors = load();
    assert!(vectors.len() >= 1_825, "{} vectors", vectors.len());
    let wrong: Vec<String> =
        vectors.iter().filter_map(|vector| play(vector).err().map(|why| format!("{}: {why}", vector.name))).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), vectors.len(), wrong.join("\n"));
}

#[test]
fn a_line_of_a_vector_is_read_as_its_format_says() {
    assert_eq!(bytes("30 r14 s5 'to' 'a b'"), [0x30, 14, 0, 5, b't', b'o', b'a', b' ', b'b']);
    assert_eq!(bytes("i7 H258 L1 v300 3611"), [7, 1, 2, 0, 0, 0, 1, 0xac, 2, 0x36, 0x11]);
}
