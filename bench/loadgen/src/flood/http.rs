//! Requests on keep-alive connections (POST /pub, POST /mpub, GET /ping), the next one when the last was answered.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use crate::flood::FloodReport;
use crate::flood::field::{Field, Window};
use crate::flood::plan::Asks;
use crate::sys;

const LARGEST_ANSWER: usize = 1 << 16;

struct Client {
    stream: TcpStream,
    /// Of an answer that has not come whole.
    input: Vec<u8>,
}

impl Client {
    fn new(field: &Field<'_>, token: usize) -> io::Result<Client> {
        let stream = TcpStream::connect(field.address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        field.poller.add(&stream, token as u64, sys::READABLE)?;
        Ok(Client { stream, input: Vec::new() })
    }

    fn ask(&mut self, request: &[u8]) -> io::Result<()> {
        // One small request on an idle connection: its socket takes it whole.
        if self.stream.write(request)? < request.len() {
            return Err(io::Error::other("an idle connection took no request"));
        }
        Ok(())
    }

    /// True: the answer is there, and it is 200.
    fn answered(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        match self.stream.read(buffer) {
            Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "closed by the broker")),
            Ok(read) => self.input.extend_from_slice(&buffer[..read]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(false),
            Err(error) => return Err(error),
        }
        match answer_length(&self.input)? {
            Some(length) if length == self.input.len() => self.input.clear(),
            Some(_) => return Err(io::Error::other("an answer that nobody waits for")),
            None => return Ok(false),
        }
        Ok(true)
    }
}

/// The length of the answer that `bytes` begin with; None: it is not whole. Anything but a 200 with a Content-Length is
/// an error.
fn answer_length(bytes: &[u8]) -> io::Result<Option<usize>> {
    let Some(head) = bytes.windows(4).position(|end| end == b"\r\n\r\n") else {
        return if bytes.len() < LARGEST_ANSWER { Ok(None) } else { Err(io::Error::other("an answer without an end")) };
    };
    let text = String::from_utf8_lossy(&bytes[..head]);
    let mut lines = text.split("\r\n");
    let status = lines.next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(io::Error::other(format!("the broker answered {status}")));
    }
    let mut headers = lines.filter_map(|line| line.split_once(':'));
    let length = headers
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok());
    let length: usize = length.ok_or_else(|| io::Error::other("an answer without a length"))?;
    Ok((bytes.len() >= head + 4 + length).then_some(head + 4 + length))
}

/// One request for all that a connection asks.
fn request(asks: Asks, host: &str, topic: &str, message_size: usize) -> Vec<u8> {
    let message = vec![b'x'; message_size];
    let (line, body) = match asks {
        Asks::Ping => return format!("GET /ping HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes(),
        Asks::Pub => (format!("POST /pub?topic={topic}"), message),
        Asks::Mpub { batch } => (format!("POST /mpub?topic={topic}"), vec![message; batch as usize].join(&b'\n')),
    };
    let head = format!("{line} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.into_bytes(), body].concat()
}

pub fn run(
    field: &mut Field<'_>,
    (asks, topic, message_size): (Asks, &str, usize),
    connections: usize,
    times_s: (f64, f64),
) -> io::Result<FloodReport> {
    let request = request(asks, &field.address.to_string(), topic, message_size);
    let clients = (0..connections).map(|token| Client::new(field, token));
    let mut clients = clients.collect::<io::Result<Vec<Client>>>()?;
    let mut window = Window::new(times_s);
    clients.iter_mut().try_for_each(|client| client.ask(&request))?;
    let (mut answered, mut outstanding, mut over) = (0, connections, false);
    while outstanding > 0 {
        for (i, _) in field.wait()? {
            if clients[i].answered(&mut field.buffer)? {
                answered += 1;
                if over {
                    outstanding -= 1;
                } else {
                    clients[i].ask(&request)?;
                }
            }
        }
        over = window.look(answered);
    }
    window.report()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_only_when_its_last_byte_is_there() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nOK";
        for cut in 0..answer.len() {
            assert_eq!(answer_length(&answer[..cut]).expect("a 200"), None, "{cut} bytes");
        }
        assert_eq!(answer_length(&[&answer[..], b"more"].concat()).expect("a 200"), Some(answer.len()));
    }

    #[test]
    fn each_kind_of_request_is_whole_and_says_its_length() {
        let text = |asks| String::from_utf8(request(asks, "h:1", "t", 8)).expect("text");
        assert_eq!(text(Asks::Ping), "GET /ping HTTP/1.1\r\nHost: h:1\r\n\r\n");
        assert_eq!(text(Asks::Pub), "POST /pub?topic=t HTTP/1.1\r\nHost: h:1\r\nContent-Length: 8\r\n\r\nxxxxxxxx");
        let lines = "xxxxxxxx\nxxxxxxxx\nxxxxxxxx";
        assert_eq!(
            text(Asks::Mpub { batch: 3 }),
            format!("POST /mpub?topic=t HTTP/1.1\r\nHost: h:1\r\nContent-Length: 26\r\n\r\n{lines}")
        );
    }

    #[test]
    fn what_is_not_a_whole_200_is_an_error() {
        let text = |bytes: &[u8]| {
            answer_length(bytes).map_or_else(|error| error.to_string(), |length| format!("taken: {length:?}"))
        };
        assert_eq!(text(b"HTTP/1.1 413 Too Large\r\n\r\n"), "the broker answered HTTP/1.1 413 Too Large");
        assert_eq!(text(b"HTTP/1.1 200 OK\r\n\r\nOK"), "an answer without a length");
        assert_eq!(text(&[b'x'; LARGEST_ANSWER]), "an answer without an end");
    }
}
