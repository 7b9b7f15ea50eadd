//! `/pub` and `/mpub`: nsqd's checks in nsqd's order, then a publish like any other, answered at the end of the turn.

use std::borrow::Cow;

use crate::clients::connection::Connection;
use crate::clients::mpub_progress::{Batch, Sliced};
use crate::clients::reply::Reply;
use crate::config::Config;
use crate::engine::Engine;
use crate::http::Coming;
use crate::http::answer::{self, Exchange};
use crate::http::date::Date;
use crate::http::line_body::LineBody;
use crate::http::query::{Broken, arguments};
use crate::http::request::{Framing, Head};
use crate::keys::ConnKey;
use crate::memory::LARGE_BYTES;
use crate::protocol::codec::{self, Bodies, Seen};
use crate::protocol::identify::LONGEST_TEXT;
use crate::protocol::verb::Verb;
use crate::queueing::publish::{Asked, Outcome, Publish};
use crate::scheduling::client_limits::Limit;
use crate::time::Nanos;

/// What nsqd says of a publish that it does not take: status and code.
pub(crate) type Refusal = (u16, Cow<'static, str>);

const fn refusal(status: u16, code: &'static str) -> Refusal {
    (status, Cow::Borrowed(code))
}

impl From<Broken> for Refusal {
    fn from(_: Broken) -> Self {
        refusal(400, "INVALID_REQUEST")
    }
}

/// A whole request that publishes: when it came, and at which work of the turn its connection's quantum ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a, 'h, 'b> {
    pub key: ConnKey,
    pub head: &'a Head<'h, 'b>,
    pub body: &'a [u8],
    pub lines: LineBody, // what was seen of the body before
    pub stamp: Nanos,
    pub bound: u32,
    pub exchange: Exchange,
}

impl Engine {
    /// False: it is more than this turn has room for, and is to be taken again in the next one.
    pub(crate) fn http_pub(&mut self, request: Request<'_, '_, '_>) -> Result<bool, Refusal> {
        let Request { key, head, body, stamp, bound, exchange, .. } = request;
        if body.len() > self.config.max_msg_size as usize {
            return Err(refusal(413, "MSG_TOO_BIG"));
        }
        if body.is_empty() {
            return Err(refusal(400, "MSG_EMPTY"));
        }
        let [topic, defer, publisher] = arguments(head.query, ["topic", "defer", "publisher"])?;
        let topic = topic_argument(topic.as_deref())?;
        self.publish_for(key, publisher.as_deref())?;
        let defer_ms = defer_ms(defer.as_deref(), self.config.max_req_timeout_ms)?;
        // One for a bucket was built as it came in, unless nobody knew how long it would be.
        let has_limit = self.has_limit(topic);
        if body.len() >= LARGE_BYTES
            && self.refusal_of(topic).is_none()
            && (!has_limit || head.framing == Framing::Chunked)
        {
            if let Some(why) = self.refusal_to_build(key, topic, body.len()) {
                return Err((503, why.into()));
            }
            if !self.build(key, body, bound) {
                return Ok(false);
            }
        }
        self.http_publish(
            Asked { key, verb: Verb::Pub, topic, defer_ms, stamp, attributes: b"" },
            std::iter::once(body),
            exchange,
        )
    }

    /// What the head of a `/pub` that would be taken says of a large message, of which not all has come.
    pub(crate) fn coming(&self, key: ConnKey, head: &Head<'_, '_>, len: usize) -> Option<Coming> {
        let is_large = (LARGE_BYTES..=self.config.max_msg_size as usize).contains(&len);
        if head.path != "/pub" || !is_large || !self.is_taken(key, head) {
            return None;
        }
        let [topic] = arguments(head.query, ["topic"]).ok()?;
        Some(Coming { topic: topic_argument(topic.as_deref()).ok()?.into(), body_at: head.len, len })
    }

    /// Whether the body, if the request is taken, is of many messages, each a line.
    pub(crate) fn comes_in_lines(&self, key: ConnKey, head: &Head<'_, '_>) -> bool {
        let is_text = || arguments(head.query, ["binary"]).is_ok_and(|[binary]| !is_binary(binary.as_deref()));
        head.path == "/mpub" && is_text() && self.is_taken(key, head)
    }

    /// Whether a publish with this head is not refused whatever its body is.
    fn is_taken(&self, key: ConnKey, head: &Head<'_, '_>) -> bool {
        let is_safe_enough =
            |conn: &Connection| conn.http.as_ref().is_some_and(|http| http.is_safe_enough(self.config.tls_required));
        self.conns.get(key).is_some_and(is_safe_enough)
            && head.method == "POST"
            && self.refusal_of_publisher(key, head).is_none()
    }

    /// The same of many messages: a large one goes in by slices.
    pub(crate) fn http_mpub(&mut self, request: Request<'_, '_, '_>) -> Result<bool, Refusal> {
        let Request { key, head, body, lines, stamp, bound, exchange } = request;
        let [topic, binary, publisher] = arguments(head.query, ["topic", "binary", "publisher"])?;
        let topic = topic_argument(topic.as_deref())?;
        self.publish_for(key, publisher.as_deref())?;
        let begun = self.conns.get(key).and_then(|conn| conn.sliced.as_ref()).map(|progress| progress.count());
        let bodies = match (is_binary(binary.as_deref()), begun) {
            (true, Some(count)) => Bodies::checked(count, body.get(4..).unwrap_or_default()),
            (false, Some(count)) => Bodies::lines(count, body),
            (true, None) => {
                let (count, rest) = count_of(body, &self.config)?;
                self.check_count(key, count)?;
                if !self.has_looked_at_most(key, count, rest, bound) {
                    return Ok(false);
                }
                let seen = self.conns.get(key).map_or(Seen::default(), |conn| conn.seen);
                binary_bodies(count, rest, seen, &self.config)?
            }
            (false, None) => {
                let bodies = line_bodies(body, lines, &self.config)?;
                self.check_count(key, bodies.count)?;
                bodies
            }
        };
        let batch = Batch { key, topic, stamp, bound, exchange: Some(exchange) };
        match self.run_slice(batch, bodies).map_err(|why| (503, why.into()))? {
            Sliced::Whole => self.http_publish(
                Asked { key, verb: Verb::Mpub, topic, defer_ms: 0, stamp, attributes: b"" },
                bodies,
                exchange,
            ),
            sliced => Ok(sliced == Sliced::Done),
        }
    }

    /// The publisher that the request names; `None`: nobody, and contracts go by the client's address.
    fn publish_for(&mut self, key: ConnKey, publisher: Option<&str>) -> Result<(), Refusal> {
        if publisher.is_some_and(|id| !(1..=LONGEST_TEXT).contains(&id.len())) {
            return Err(refusal(400, "INVALID_PUBLISHER"));
        }
        if let Some(conn) = self.conns.get_mut(key) {
            conn.publish_for(publisher);
        }
        Ok(())
    }

    fn check_count(&mut self, key: ConnKey, count: u32) -> Result<(), Refusal> {
        let most = self.config.max_mpub_messages;
        if most == 0 || count <= most {
            return Ok(());
        }
        self.note_limit(Limit::MpubMessages, key);
        Err((413, format!("TOO_MANY_MESSAGES: {count} > {most}").into()))
    }

    fn http_publish<'a>(
        &mut self,
        asked: Asked<'_>,
        bodies: impl Iterator<Item = &'a [u8]>,
        exchange: Exchange,
    ) -> Result<bool, Refusal> {
        if let Some(reason) = self.refusal_of(asked.topic) {
            return Err((503, reason.clone().into()));
        }
        let index = self.collect(asked, bodies).map_err(|why| (503, why.into()))?;
        self.turn.replies.push((asked.key, Reply::Published(index, exchange)));
        Ok(true)
    }
}

/// The answer to a publish that was decided.
pub(crate) fn write_outcome(out: &mut Vec<u8>, publish: &Publish, exchange: Exchange, date: &Date, now: Nanos) {
    match &publish.outcome {
        Outcome::Done { .. } => answer::write_ok(out, exchange, date),
        Outcome::Limited { retry_at, contract } => {
            let retry_ms = Outcome::retry_ms(*retry_at, now);
            // Whole seconds are all that Retry-After can say; the milliseconds are in a header of ours.
            let (seconds, ms) = ((retry_ms as u64).div_ceil(1_000).to_string(), retry_ms.to_string());
            let mut headers = vec![("Retry-After", seconds.as_str()), ("X-SRTM-Retry-After-Ms", ms.as_str())];
            headers.extend(contract.iter().map(|of| ("X-SRTM-Contract", &*of.namespace)));
            answer::write_refusal(out, 429, "RATE_LIMITED", &headers, exchange, date);
        }
        // No retry helps: it never fits.
        refused @ Outcome::TooLarge { .. } => {
            answer::write_refusal(out, 413, &refused.error(publish, now).text, &[], exchange, date);
        }
        Outcome::Failed(reason) => answer::write_refusal(out, 503, reason, &[], exchange, date),
        refused => answer::write_refusal(out, 503, &refused.error(publish, now).text, &[], exchange, date),
    }
}

fn is_binary(argument: Option<&str>) -> bool {
    argument.is_some_and(|value| !matches!(value, "false" | "0"))
}

fn topic_argument(topic: Option<&str>) -> Result<&str, Refusal> {
    let topic = topic.ok_or(refusal(400, "MISSING_ARG_TOPIC"))?;
    codec::topic(topic.as_bytes()).ok_or(refusal(400, "INVALID_TOPIC"))
}

/// As Go parses a number: digits, with a sign if need be.
fn defer_ms(text: Option<&str>, max_ms: u64) -> Result<u32, Refusal> {
    let Some(text) = text else { return Ok(0) };
    let ms = text.parse::<i64>().ok().and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms <= max_ms);
    ms.and_then(|ms| u32::try_from(ms).ok()).ok_or(refusal(400, "INVALID_DEFER"))
}

fn line_bodies<'a>(body: &'a [u8], lines: LineBody, config: &Config) -> Result<Bodies<'a>, Refusal> {
    let (count, longest) = lines.whole(body);
    if longest > config.max_msg_size as usize {
        Err(refusal(413, "MSG_TOO_BIG"))
    } else {
        Ok(Bodies::lines(count, body))
    }
}

/// A body by sizes begins with how many messages it has.
fn count_of<'a>(body: &'a [u8], config: &Config) -> Result<(u32, &'a [u8]), Refusal> {
    let (count, rest) = body.split_first_chunk::<4>().ok_or(refusal(413, "BAD_BODY"))?;
    let count = i32::from_be_bytes(*count);
    if count <= 0 || i64::from(count) > (i64::from(config.max_body_size) - 4) / 5 {
        return Err(refusal(413, "BAD_BODY"));
    }
    Ok((count as u32, rest))
}

/// `count` times `size(4)` and bytes, of which some were `seen`. Bytes after the last message are ignored, as nsqd
/// does.
fn binary_bodies<'a>(count: u32, rest: &'a [u8], seen: Seen, config: &Config) -> Result<Bodies<'a>, Refusal> {
    let all = seen.look(rest, count.saturating_sub(seen.messages), config);
    if all.messages < count {
        return Err(refusal(413, "BAD_MESSAGE"));
    }
    Ok(Bodies::checked(count, &rest[..rest.len() - all.behind(rest).len()]))
}
