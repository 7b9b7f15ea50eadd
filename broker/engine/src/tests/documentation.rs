//! `docs/protocol.md` tells clients every error: it must name those that there are, and what becomes of the connection.

use std::collections::BTreeMap;

use super::pair::*;
use crate::protocol::errors::{self, NOT_FATAL};

const PAGE: &str = include_str!("../../../../docs/protocol.md");

/// {code: whether the connection closes}, from the rows of the page's table.
fn documented() -> BTreeMap<&'static str, bool> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `E_"));
    rows.map(|row| {
        let code = row.split('`').nth(1).expect("a code");
        (code, row.ends_with("| closes |"))
    })
    .collect()
}

/// The same from the table of the source.
fn emitted() -> BTreeMap<&'static str, bool> {
    let source = include_str!("../protocol/errors.rs");
    let constants = source.lines().filter_map(|line| line.strip_prefix("pub const E_")?.split_once(": &str = \""));
    constants.map(|(_, value)| value.trim_end_matches("\";")).map(|code| (code, !NOT_FATAL.contains(&code))).collect()
}

#[test]
fn the_page_names_every_error_code_and_no_other() {
    assert!(emitted().contains_key(errors::E_RATE_LIMITED), "the source's table is read");
    assert_eq!(documented(), emitted());
}

#[test]
fn what_the_page_says_of_the_connection_is_what_happens() {
    let cases: [(&[u8], &str); 4] = [
        (b"NONSENSE\n", errors::E_INVALID),
        (b"PUB t$\n", errors::E_BAD_TOPIC),
        (b"FIN 0123456789abcdef\n", errors::E_FIN_FAILED),
        (b"TOUCH 0123456789abcdef\n", errors::E_TOUCH_FAILED),
    ];
    for (bytes, code) in cases {
        let mut pair = Pair::new();
        let key = pair.subscribe("t", "c", 0);
        let frames = pair.ask(key, bytes);
        assert!(matches!(&frames[..], [Frame::Error(text)] if text.starts_with(code)), "{frames:?}");
        assert_eq!(pair.ended.contains(&key), documented()[code], "{code}");
    }
}

#[test]
fn an_mpub_with_bytes_behind_its_messages_is_refused() {
    let mut pair = Pair::new();
    let key = pair.connect();
    let mut bytes = mpub("t", &["a"]);
    bytes.push(b'x');
    bytes[10] += 1;
    assert_eq!(pair.ask(key, bytes), [error("E_BAD_BODY MPUB invalid body size 10")]);
}
