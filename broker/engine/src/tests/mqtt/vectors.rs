//! The byte vectors of Mosquitto's suite (`test/broker/data/*.json` of its repository, EPL-2.0 or EDL-1.0), which are
//! not part of this one: `SRTM_MQTT_VECTORS` names the folder.
//!
//! A vector sends packets and says what must come back, and whether the connection ends. Here the codec alone judges:
//! what must not end a connection is read without a fault, and a fault has the reason code that the vector expects.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::protocol::mqtt::decode::{decode, header};
use crate::protocol::mqtt::reason::Reason;
use crate::protocol::mqtt::version::Version;

/// Bytes that a broker takes of one packet.
const LONGEST: usize = 1 << 20;

#[derive(Debug)]
pub struct Vector {
    pub name: String,
    pub version: Version,
    pub ends: bool,
    pub steps: Vec<Step>,
}

#[derive(Debug)]
pub enum Step {
    Send(Vec<u8>),
    Receive(Vec<u8>),
    /// Another client publishes.
    Publish,
}

/// All vectors of a folder. `None`, after saying so: it is not there.
pub fn load() -> Option<Vec<Vector>> {
    let Ok(folder) = std::env::var("SRTM_MQTT_VECTORS") else {
        eprintln!("skipped: SRTM_MQTT_VECTORS does not name the folder of Mosquitto's test vectors");
        return None;
    };
    let mut files: Vec<_> =
        fs::read_dir(Path::new(&folder)).expect("the folder").map(|file| file.expect("a file").path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "json"));
    files.sort();
    Some(files.iter().flat_map(|file| vectors(&fs::read_to_string(file).expect("its text"))).collect())
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
        ends: or_group("expect_disconnect").and_then(|ends| ends.as_bool()).unwrap_or(true),
        steps: test["msgs"].as_array().expect("messages").iter().map(step).collect(),
    }
}

fn step(message: &Value) -> Step {
    let payload = message["payload"].as_str().expect("a payload");
    match message["type"].as_str() {
        Some("send") => Step::Send(bytes(payload)),
        Some("recv") => Step::Receive(bytes(payload)),
        _ => Step::Publish,
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

/// The reason code of the first fault in what is sent. `None`: all of it is read, or more bytes are missing.
fn fault(vector: &Vector) -> Option<Reason> {
    let sent: Vec<u8> = vector
        .steps
        .iter()
        .filter_map(|step| if let Step::Send(bytes) = step { Some(bytes.clone()) } else { None })
        .flatten()
        .collect();
    let mut rest = sent.as_slice();
    loop {
        match header(rest, Some(vector.version), LONGEST) {
            Err(fault) => return Some(fault.reason),
            Ok(None) => return None,
            Ok(Some(header)) if rest.len() < header.len => return None,
            Ok(Some(header)) => {
                if let Err(fault) = decode(rest, header, vector.version) {
                    return Some(fault.reason);
                }
                rest = &rest[header.len..];
            }
        }
    }
}

#[test]
fn the_codec_refuses_what_mosquittos_vectors_refuse_and_nothing_else() {
    let Some(vectors) = load() else { return };
    assert!(vectors.len() >= 1_825, "{} vectors", vectors.len());
    for vector in &vectors {
        let found = fault(vector);
        if !vector.ends {
            assert_eq!(found, None, "{}: {:02x?}", vector.name, vector.steps);
        }
        let disconnect = vector.steps.iter().rev().find_map(|step| match step {
            Step::Receive(bytes) if bytes[0] == 0xe0 => Some(Reason(bytes[2])),
            _ => None,
        });
        if let (Some(expected), Some(found)) = (disconnect, found) {
            assert_eq!(found, expected, "{}: {:02x?}", vector.name, vector.steps);
        }
    }
}

#[test]
fn a_line_of_a_vector_is_read_as_its_format_says() {
    assert_eq!(bytes("30 r14 s5 'to' 'a b'"), [0x30, 14, 0, 5, b't', b'o', b'a', b' ', b'b']);
    assert_eq!(bytes("i7 H258 L1 v300 3611"), [7, 1, 2, 0, 0, 0, 1, 0xac, 2, 0x36, 0x11]);
}
