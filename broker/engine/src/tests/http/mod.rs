//! HTTP connections of an engine: what is answered here, what goes to Python, and what ends a connection.

mod https;
mod large;
mod limits;
mod publishing;
mod serving;

use super::pair::*;
use crate::config::{Config, TlsRequired};
use crate::http::Handed;
use crate::http::answer::Answer;
use crate::keys::ConnKey;
use crate::queueing::topic::Limit;
use crate::time::Nanos;
use crate::transport::testing::{Client, TLS12, tls_config};
use crate::transport::tls::server_config;

fn post(target: &str, body: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n")
}

/// Status, head and body of every answer in `text`.
fn answers(mut text: &str) -> Vec<(u16, String, String)> {
    let mut all = Vec::new();
    while !text.is_empty() {
        let (head, rest) = text.split_once("\r\n\r\n").expect("a whole head");
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
        let len = head
            .split_once("Content-Length: ")
            .map_or(0, |(_, rest)| rest.split("\r\n").next().unwrap_or("").parse().expect("a length"));
        let (body, rest) = rest.split_at(len);
        all.push((status, head.into(), body.into()));
        text = rest;
    }
    all
}

/// Send, finish the turn, and give status and body of what came.
fn ask(pair: &mut Pair, key: ConnKey, bytes: impl AsRef<[u8]>) -> Vec<(u16, String)> {
    pair.send(key, bytes);
    pair.turn();
    taken(pair, key)
}

fn taken(pair: &mut Pair, key: ConnKey) -> Vec<(u16, String)> {
    answers(&pair.take_text(key)).into_iter().map(|(status, _, body)| (status, body)).collect()
}

fn one(pair: &mut Pair, bytes: impl AsRef<[u8]>) -> (u16, String) {
    let key = pair.connect_http();
    let answers = ask(pair, key, bytes);
    assert_eq!(answers.len(), 1, "{answers:?}");
    answers[0].clone()
}

fn refused(status: u16, code: &str) -> (u16, String) {
    (status, format!(r#"{{"message":"{code}"}}"#))
}

fn published() -> (u16, String) {
    (200, "OK".into())
}

fn handed(pair: &mut Pair) -> Handed {
    let mut all = pair.engine.poll_handed();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn respond(pair: &mut Pair, id: u64, body: &str) -> bool {
    let answer = Answer { status: 200, content_type: "", headers: &[("X-Test", "1")], body: body.as_bytes() };
    let waited = pair.engine.respond(id, &answer, pair.now);
    pair.turn();
    waited
}
