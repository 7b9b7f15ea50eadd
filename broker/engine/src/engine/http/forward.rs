//! Requests that Python answers: their hand-over, their bounds, and the way back of the answers.

use crate::clients::pending_input::WaitFor;
use crate::engine::Engine;
use crate::http::answer::{self, Answer, Exchange};
use crate::http::request::{Afterwards, Head};
use crate::http::{Handed, Stage};
use crate::keys::ConnKey;
use crate::time::Nanos;

/// What Python has of requests, and its answers until they are taken, may be this part of `max_memory_bytes`.
const HELD_SHARE: u64 = 8;

impl Engine {
    /// Python answers this one; until then the connection waits.
    pub(crate) fn hand_over(&mut self, key: ConnKey, head: &Head<'_, '_>, body: &[u8], exchange: Exchange, now: Nanos) {
        let most = self.config.max_memory_bytes / HELD_SHARE;
        if self.http.held.used() > most {
            let reason = format!(
                "requests and their answers take the {most} bytes that they may (1/{HELD_SHARE} of max_memory_bytes)"
            );
            return self
                .answer(key, exchange, now, |out, date| answer::write_refusal(out, 503, &reason, &[], exchange, date));
        }
        let charge = self.http.held.charge((head.len + body.len()) as u64);
        let id = self.http.next_id;
        self.http.next_id += 1;
        let Some(conn) = self.conns.get_mut(key) else { return };
        let remote = conn.remote.to_string();
        let Some(http) = conn.http.as_mut() else { return };
        http.owed = Some((id, exchange));
        http.handed_charge = Some(charge);
        let over_tls = http.over_tls;
        self.http.asked.insert(id, key);
        let separator = if head.query.is_empty() { "" } else { "?" };
        self.http.handed.push(Handed {
            id,
            method: head.method.into(),
            target: format!("{}{separator}{}", head.path, head.query),
            headers: head
                .headers
                .iter()
                .map(|header| (header.name.to_ascii_lowercase(), latin_1(header.value)))
                .collect(),
            body: body.to_vec(),
            over_tls,
            remote,
        });
        self.defer(key, WaitFor::Python);
    }

    /// Python's answer to a request that it was handed. False: nobody waits for it any more.
    pub fn respond(&mut self, id: u64, answer: &Answer<'_>, now: Nanos) -> bool {
        let Some(key) = self.http.asked.remove(&id) else { return false };
        let charge = self.http.held.charge(answer.body.len() as u64);
        let Some(http) = self.conns.get_mut(key).and_then(|conn| conn.http.as_mut()) else { return false };
        let Some((_, mut exchange)) = http.owed.take() else { return false };
        http.idle_since = now;
        (http.handed_charge, http.answer_charge) = (None, Some(charge));
        if self.http.stage == Stage::Closing {
            exchange.afterwards = Afterwards::Closed;
        }
        self.answer(key, exchange, now, |out, date| answer.write(out, exchange, date));
        self.resume(key, now);
        true
    }

    /// Requests for Python.
    pub fn poll_handed(&mut self) -> Vec<Handed> {
        std::mem::take(&mut self.http.handed)
    }

    pub fn has_handed(&self) -> bool {
        !self.http.handed.is_empty()
    }
}

/// Header values are bytes; every byte is a character of Latin-1.
fn latin_1(value: &[u8]) -> String {
    value.iter().copied().map(char::from).collect()
}
