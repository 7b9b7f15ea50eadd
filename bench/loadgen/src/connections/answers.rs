//! Errors that brokers and sockets gave: counted by code, the first texts kept.

use std::collections::BTreeMap;

/// Texts kept of each code: enough to see what it is about.
const TEXTS: usize = 3;
/// A hostile peer could invent codes without end.
const CODES: usize = 64;

/// The code under which a broken connection is counted.
pub const CONNECTION: &str = "CONNECTION";

#[derive(Debug, Default)]
pub struct ErrorLog(BTreeMap<String, Kind>);

#[derive(Debug, Default)]
struct Kind {
    count: u64,
    texts: Vec<String>,
}

impl ErrorLog {
    /// An error frame: the code is its first word.
    pub fn note_frame(&mut self, data: &[u8]) {
        let text = String::from_utf8_lossy(&data[..data.len().min(200)]).into_owned();
        let code = text.split(' ').next().unwrap_or_default().to_owned();
        self.note(&code, text);
    }

    pub fn note(&mut self, code: &str, text: String) {
        self.add(code, 1, [text]);
    }

    pub fn merge(&mut self, other: ErrorLog) {
        for (code, kind) in other.0 {
            self.add(&code, kind.count, kind.texts);
        }
    }

    fn add(&mut self, code: &str, count: u64, texts: impl IntoIterator<Item = String>) {
        let code = if self.0.contains_key(code) || self.0.len() < CODES { code } else { "OTHER" };
        let kind = self.0.entry(code.to_owned()).or_default();
        kind.count += count;
        let free = TEXTS.saturating_sub(kind.texts.len());
        kind.texts.extend(texts.into_iter().take(free));
    }

    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.0.iter().map(|(code, kind)| (code.clone(), kind.count)).collect()
    }

    pub fn texts(&self) -> Vec<String> {
        self.0.values().flat_map(|kind| kind.texts.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_count_by_code_and_keep_their_first_texts() {
        let mut log = ErrorLog::default();
        (0..5).for_each(|n| log.note_frame(format!("E_RATE_LIMITED PUB retry after {n} ms").as_bytes()));
        let mut other = ErrorLog::default();
        other.note(CONNECTION, "reset".to_owned());
        log.merge(other);
        assert_eq!(log.counts(), BTreeMap::from([("CONNECTION".to_owned(), 1), ("E_RATE_LIMITED".to_owned(), 5)]));
        assert_eq!(log.texts().len(), 1 + TEXTS);
        assert_eq!(log.texts()[1], "E_RATE_LIMITED PUB retry after 0 ms");
    }

    #[test]
    fn invented_codes_do_not_grow_without_end() {
        let mut log = ErrorLog::default();
        (0..1000).for_each(|n| log.note_frame(format!("E_{n}").as_bytes()));
        assert_eq!(log.counts().len(), CODES + 1);
        assert_eq!(log.counts()["OTHER"], 1000 - CODES as u64);
    }
}
