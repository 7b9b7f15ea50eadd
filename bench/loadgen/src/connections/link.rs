//! One connection to a broker, publisher's or subscriber's: connect, greet, what comes in by the unit of its protocol.
//! What it means is its owner's business.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};

use crate::protocol::codec::{self, Frame};
use crate::protocol::{Driver, Event};
use crate::sys::{self, Poller};

/// When bytes came: as this process read them, and as the kernel got the last of them (CLOCK_REALTIME), where it says
/// so.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    pub read_ns: i64,
    pub kernel_wall_ns: Option<i64>,
}

/// Down -> (open) Connecting -> (established) Greeting -> Ready, and from anywhere (close) Down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Down,
    Connecting,
    /// What is said first is on its way.
    Greeting,
    Ready,
}

pub struct Link {
    address: SocketAddr,
    token: u64,
    stream: Option<TcpStream>,
    /// What the poller watches this connection for.
    interest: u32,
    pub state: State,
    /// The beginning of a unit whose end has not come.
    partial: Vec<u8>,
}

impl Link {
    pub fn new(address: SocketAddr, token: u64) -> Link {
        Link { address, token, stream: None, interest: 0, state: State::Down, partial: Vec::new() }
    }

    pub fn open(&mut self, poller: &Poller) -> io::Result<()> {
        let stream = sys::connect(self.address)?;
        self.interest = sys::WRITABLE;
        poller.add(&stream, self.token, self.interest)?;
        self.stream = Some(stream);
        self.partial.clear();
        self.state = State::Connecting;
        Ok(())
    }

    /// The connection was decided: greet the broker, or say why there is none.
    pub fn established(&mut self, poller: &Poller, hello: &[u8]) -> io::Result<()> {
        if let Some(error) = self.stream()?.take_error()? {
            return Err(error);
        }
        // A fresh socket's buffer takes a greeting whole.
        if self.send(hello)? < hello.len() {
            return Err(io::Error::other("a fresh connection took no greeting"));
        }
        self.watch(poller, sys::READABLE)?;
        self.state = State::Greeting;
        Ok(())
    }

    /// Wake for `interest` from now on, and when the broker closes.
    pub fn watch(&mut self, poller: &Poller, interest: u32) -> io::Result<()> {
        let interest = interest | sys::CLOSED;
        if interest != self.interest {
            poller.change(self.stream()?, self.token, interest)?;
            self.interest = interest;
        }
        Ok(())
    }

    pub fn close(&mut self) {
        self.stream = None;
        self.state = State::Down;
    }

    /// Bytes that the socket took: fewer than given if it is full.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.stream()?.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            other => other,
        }
    }

    /// `read`, of a connection that speaks NSQ: all whole frames.
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        mut handle: impl FnMut(Frame<'_>, Arrival) -> io::Result<()>,
    ) -> io::Result<bool> {
        let broken = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        self.read(buffer, |bytes, arrival| {
            let Some((frame, length)) = codec::next_frame(bytes).map_err(broken)? else { return Ok(None) };
            handle(frame, arrival)?;
            Ok(Some(length))
        })
    }

    /// `read`, of a connection that `driver` speaks for: all whole events. What is to be answered goes to `out`.
    pub fn events<'a>(
        &mut self,
        driver: &mut impl Driver<'a>,
        out: &mut Vec<u8>,
        buffer: &mut [u8],
        mut handle: impl FnMut(Event<'_>, Arrival) -> io::Result<()>,
    ) -> io::Result<bool> {
        self.read(buffer, |bytes, arrival| {
            let Some((event, length)) = driver.next(bytes, out)? else { return Ok(None) };
            handle(event, arrival)?;
            Ok(Some(length))
        })
    }

    /// Read once into `buffer` and have it taken unit by unit; `take` says how long the first one is, None if it is not
    /// whole. False: there was nothing to read. A close by the other side is an error.
    fn read(
        &mut self,
        buffer: &mut [u8],
        mut take: impl FnMut(&[u8], Arrival) -> io::Result<Option<usize>>,
    ) -> io::Result<bool> {
        let (read, kernel_wall_ns) = match sys::receive_stamped(self.stream()?, buffer) {
            Ok((0, _)) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the broker")),
            Ok(read) => read,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let arrival = Arrival { read_ns: sys::now_ns(), kernel_wall_ns };
        if self.partial.is_empty() {
            let used = each(&buffer[..read], arrival, &mut take)?;
            self.partial.extend_from_slice(&buffer[used..read]);
        } else {
            self.partial.extend_from_slice(&buffer[..read]);
            let used = each(&self.partial, arrival, &mut take)?;
            self.partial.drain(..used);
        }
        Ok(true)
    }

    fn stream(&self) -> io::Result<&TcpStream> {
        self.stream.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

/// Bytes used.
fn each(
    bytes: &[u8],
    arrival: Arrival,
    take: &mut impl FnMut(&[u8], Arrival) -> io::Result<Option<usize>>,
) -> io::Result<usize> {
    let mut used = 0;
    while let Some(length) = take(&bytes[used..], arrival)? {
        used += length;
    }
    Ok(used)
}
