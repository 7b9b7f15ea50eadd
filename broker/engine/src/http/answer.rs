//! Answers: status, headers and body to bytes. The bodies of nsqd's routes are `{"message":"CODE"}`. What is not a
//! request is answered with problem+json.

use std::io::Write;

use crate::http::date::Date;
use crate::http::request::{Afterwards, Malformed};

pub const NSQ_HEADER: (&str, &str) = ("X-NSQ-Content-Type", "nsq; version=1.0");
pub const TEXT: &str = "text/plain; charset=utf-8";
pub const JSON: &str = "application/json; charset=utf-8";

/// What an answer depends on of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    pub afterwards: Afterwards,
    /// HEAD: everything but the body.
    pub head_only: bool,
}

impl Exchange {
    /// For bytes that could not be read as a request.
    pub const LAST: Self = Self { afterwards: Afterwards::Closed, head_only: false };

    pub fn closes(self) -> bool {
        self.afterwards == Afterwards::Closed
    }
}

/// An answer before it is bytes.
#[derive(Debug, Clone)]
pub struct Answer<'a> {
    pub status: u16,
    pub content_type: &'a str,
    pub headers: &'a [(&'a str, &'a str)],
    pub body: &'a [u8],
}

impl Answer<'_> {
    pub fn write(&self, out: &mut Vec<u8>, exchange: Exchange, date: &Date) {
        out.reserve(256 + if exchange.head_only { 0 } else { self.body.len() });
        let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| out.extend_from_slice(part));
        put(&[b"HTTP/1.1 ", self.status.to_string().as_bytes(), b" ", reason(self.status).as_bytes()]);
        put(&[b"\r\nContent-Length: ", self.body.len().to_string().as_bytes(), b"\r\nDate: ", date.text()]);
        if !self.content_type.is_empty() {
            put(&[b"\r\nContent-Type: ", self.content_type.as_bytes()]);
        }
        for (name, value) in self.headers {
            put(&[b"\r\n", name.as_bytes(), b": ", value.as_bytes()]);
        }
        match exchange.afterwards {
            Afterwards::KeptAlive => {}
            Afterwards::KeptAliveIfSaid => put(&[b"\r\nConnection: keep-alive"]),
            Afterwards::Closed => put(&[b"\r\nConnection: close"]),
        }
        put(&[b"\r\n\r\n", if exchange.head_only { b"" } else { self.body }]);
    }
}

/// Answer that one of nsqd's actions was done.
pub fn write_ok(out: &mut Vec<u8>, exchange: Exchange, date: &Date) {
    Answer { status: 200, content_type: TEXT, headers: &[NSQ_HEADER], body: b"OK" }.write(out, exchange, date);
}

/// Refuse in nsqd's form.
#[cold]
pub fn write_refusal(
    out: &mut Vec<u8>,
    status: u16,
    code: &str,
    headers: &[(&str, &str)],
    exchange: Exchange,
    date: &Date,
) {
    let mut body = Vec::new();
    // Writing JSON into memory cannot fail.
    let _ = write!(body, r#"{{"message":{}}}"#, serde_json::Value::from(code));
    let headers = [headers, &[NSQ_HEADER]].concat();
    Answer { status, content_type: JSON, headers: &headers, body: &body }.write(out, exchange, date);
}

/// Refuse bytes that are not a request.
#[cold]
pub fn write_malformed(out: &mut Vec<u8>, malformed: Malformed, date: &Date) {
    let Malformed { status, rule } = malformed;
    let (title, value) = (reason(status).to_ascii_lowercase(), "(not shown)");
    let body = serde_json::json!({
        "title": title, "status": status, "detail": format!("request: {value}: {rule}"),
        "field": "request", "value": value, "rule": rule,
    });
    let body = body.to_string();
    Answer { status, content_type: "application/problem+json", headers: &[], body: body.as_bytes() }.write(
        out,
        Exchange::LAST,
        date,
    );
}

/// The phrase of a status; empty for those that nobody here gives.
pub fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Request Entity Too Large",
        417 => "Expectation Failed",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("text")
    }

    const KEPT: Exchange = Exchange { afterwards: Afterwards::KeptAlive, head_only: false };

    #[test]
    fn an_answer_says_its_length_and_what_becomes_of_the_connection() {
        let date = Date::at(784_111_777);
        assert_eq!(
            text(|out| write_ok(out, KEPT, &date)),
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
             Content-Type: text/plain; charset=utf-8\r\nX-NSQ-Content-Type: nsq; version=1.0\r\n\r\nOK"
        );
        let said = Exchange { afterwards: Afterwards::KeptAliveIfSaid, head_only: true };
        let answer = text(|out| write_ok(out, said, &date));
        assert!(
            answer.contains("\r\nContent-Length: 2\r\n") && answer.ends_with("\r\nConnection: keep-alive\r\n\r\n"),
            "{answer}"
        );
    }

    #[test]
    fn a_refusal_is_json_whatever_is_in_it() {
        let answer =
            text(|out| write_refusal(out, 503, "a \"b\"\n", &[("Retry-After", "2")], Exchange::LAST, &Date::at(0)));
        assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer}");
        assert!(answer.ends_with("\r\nConnection: close\r\n\r\n{\"message\":\"a \\\"b\\\"\\n\"}"), "{answer}");
        assert!(answer.contains("\r\nRetry-After: 2\r\nX-NSQ-Content-Type: nsq; version=1.0\r\n"), "{answer}");
    }

    #[test]
    fn what_is_no_request_is_told_the_rule() {
        let answer =
            text(|out| write_malformed(out, Malformed { status: 400, rule: "this is not HTTP" }, &Date::at(0)));
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n") && head.ends_with("Connection: close"), "{head}");
        let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
        assert_eq!((body["field"].as_str(), body["rule"].as_str()), (Some("request"), Some("this is not HTTP")));
    }
}
