//! One client: what of its bytes is not used yet, and what it has not taken yet.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

/// Of what waits to be written, as much as may lie written before it is moved away.
const WRITTEN_KEPT: usize = 1 << 20;

#[derive(Clone, Copy)]
pub enum Protocol {
    Nsq,
    Mqtt,
}

pub struct Connection {
    stream: TcpStream,
    /// The beginning of a command whose end has not come.
    pub partial: Vec<u8>,
    out: Vec<u8>,
    written: usize,
    /// What it speaks, once it has said so.
    pub protocol: Option<Protocol>,
    /// On the list of those to be written to at the end of the turn.
    pub touched: bool,
    /// The poller waits for room to write.
    pub blocked: bool,
}

impl Connection {
    pub fn new(stream: TcpStream) -> Connection {
        Connection {
            stream,
            partial: Vec::new(),
            out: Vec::new(),
            written: 0,
            protocol: None,
            touched: false,
            blocked: false,
        }
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Bytes read; None: there were none. An end is an error.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.stream.read(buffer) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => Ok(Some(read)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn push(&mut self, parts: &[&[u8]]) {
        parts.iter().for_each(|part| self.out.extend_from_slice(part));
    }

    /// One write; true: nothing is left.
    pub fn write(&mut self) -> io::Result<bool> {
        match self.stream.write(&self.out[self.written..]) {
            Ok(written) => self.written += written,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        } else if self.written > WRITTEN_KEPT && self.written > self.out.len() / 2 {
            self.out.drain(..self.written);
            self.written = 0;
        }
        Ok(self.out.is_empty())
    }
}
