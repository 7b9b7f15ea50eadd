//! The loop. Connections are numbered by their descriptors, which the kernel keeps small.

use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::time::SystemTime;

use crate::command::{self, Command, Garbage};
use crate::connection::{Connection, Protocol};
use crate::packet::{self, Packet};
use crate::sys::{self, Poller};

const OK: &[u8] = b"\0\0\0\x06\0\0\0\0OK";
const READ_AT_ONCE: usize = 1 << 18;

pub struct Server {
    listener: TcpListener,
    poller: Poller,
    connections: Vec<Option<Connection>>,
    /// Each gets every message.
    subscribers: Vec<usize>,
    /// Those who have something to be written.
    touched: Vec<usize>,
    /// Of NSQ what came while nobody subscribed; the first subscriber gets it.
    unheard: Vec<u8>,
    buffer: Vec<u8>,
    next_id: u64,
    now_ns: u64,
}

impl Server {
    pub fn new(listener: TcpListener) -> io::Result<Server> {
        let poller = Poller::new()?;
        poller.add(listener.as_raw_fd(), sys::READABLE)?;
        Ok(Server {
            listener,
            poller,
            connections: Vec::new(),
            subscribers: Vec::new(),
            touched: Vec::new(),
            unheard: Vec::new(),
            buffer: vec![0; READ_AT_ONCE],
            next_id: 0,
            now_ns: 0,
        })
    }

    /// Never ends but by an error of the poller or the listener.
    pub fn run(mut self) -> io::Result<()> {
        let listener = self.listener.as_raw_fd();
        let mut ready = Vec::new();
        loop {
            self.poller.wait(&mut ready)?;
            self.now_ns = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
            for (descriptor, readiness) in ready.drain(..) {
                if descriptor == listener {
                    self.accept()?;
                } else {
                    self.handle(descriptor as usize, readiness);
                }
            }
            self.write_touched();
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => continue,
                Err(error) => return Err(error),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let i = stream.as_raw_fd() as usize;
            self.poller.add(stream.as_raw_fd(), sys::READABLE)?;
            if self.connections.len() <= i {
                self.connections.resize_with(i + 1, || None);
            }
            self.connections[i] = Some(Connection::new(stream));
        }
    }

    fn handle(&mut self, i: usize, readiness: u32) {
        if readiness & sys::WRITABLE != 0 {
            self.touch(i);
        }
        if readiness & !sys::WRITABLE != 0 && self.read(i).is_err() {
            self.close(i);
        }
    }

    fn read(&mut self, i: usize) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let outcome = self.read_into(i, &mut buffer);
        self.buffer = buffer;
        outcome
    }

    fn read_into(&mut self, i: usize, buffer: &mut [u8]) -> io::Result<()> {
        let Some(connection) = self.connections[i].as_mut() else { return Ok(()) };
        let Some(read) = connection.read(buffer)? else { return Ok(()) };
        let mut partial = std::mem::take(&mut connection.partial);
        if partial.is_empty() {
            let used = self.run_bytes(i, &buffer[..read])?;
            partial.extend_from_slice(&buffer[used..read]);
        } else {
            partial.extend_from_slice(&buffer[..read]);
            let used = self.run_bytes(i, &partial)?;
            partial.drain(..used);
        }
        if let Some(connection) = self.connections[i].as_mut() {
            connection.partial = partial;
        }
        Ok(())
    }

    /// Bytes used. The first ones say what the connection speaks.
    fn run_bytes(&mut self, i: usize, bytes: &[u8]) -> io::Result<usize> {
        let Some(connection) = self.connections[i].as_mut() else { return Ok(0) };
        let (protocol, greeting) = match connection.protocol {
            Some(protocol) => (protocol, 0),
            None if bytes[0] == packet::CONNECT => (Protocol::Mqtt, 0),
            None if bytes.starts_with(command::MAGIC) => (Protocol::Nsq, command::MAGIC.len()),
            None if bytes.len() < command::MAGIC.len() => return Ok(0),
            None => return Err(ErrorKind::InvalidData.into()),
        };
        connection.protocol = Some(protocol);
        let used = match protocol {
            Protocol::Nsq => self.run_commands(i, &bytes[greeting..]),
            Protocol::Mqtt => self.run_packets(i, bytes),
        };
        used.map(|used| greeting + used).map_err(|garbage| io::Error::new(ErrorKind::InvalidData, garbage.to_string()))
    }

    fn run_commands(&mut self, i: usize, bytes: &[u8]) -> Result<usize, Garbage> {
        let mut used = 0;
        while let Some((command, length)) = command::next_command(&bytes[used..])? {
            self.run_command(i, &command);
            used += length;
        }
        Ok(used)
    }

    fn run_packets(&mut self, i: usize, bytes: &[u8]) -> Result<usize, Garbage> {
        let mut used = 0;
        while let Some((packet, length)) = packet::next_packet(&bytes[used..])? {
            self.run_packet(i, &packet);
            used += length;
        }
        Ok(used)
    }

    fn run_packet(&mut self, i: usize, packet: &Packet<'_>) {
        match packet {
            Packet::Silent => {}
            Packet::Connect => self.push(i, &[packet::CONNACK]),
            Packet::Subscribe { id, qos } => {
                self.subscribers.push(i);
                self.push(i, &[packet::SUBACK, id, &[*qos]]);
            }
            Packet::Publish(whole) => self.push_to_subscribers(&[whole]),
            Packet::Numbered { before, id, after } => {
                self.next_id += 1;
                let number = (self.next_id % u64::from(u16::MAX)) as u16 + 1; // never 0 [2.3.1-1]
                self.push_to_subscribers(&[before, &number.to_be_bytes(), after]);
                self.push(i, &[packet::PUBACK, id]);
            }
        }
    }

    fn run_command(&mut self, i: usize, command: &Command<'_>) {
        match command {
            Command::Silent => return,
            Command::Identify => {}
            Command::Subscribe => {
                self.subscribers.push(i);
                let unheard = std::mem::take(&mut self.unheard);
                self.push(i, &[OK, &unheard]);
                return;
            }
            Command::Publish(body) => self.forward(body),
            Command::PublishMany(many) => command::bodies(many).for_each(|body| self.forward(body)),
        }
        self.push(i, &[OK]);
    }

    /// `int32 size | int32 type 2 | int64 time | uint16 attempts | 16 bytes id | body`
    fn forward(&mut self, body: &[u8]) {
        let mut head = [0; 34];
        head[..4].copy_from_slice(&(30 + body.len() as u32).to_be_bytes());
        head[7] = 2;
        head[8..16].copy_from_slice(&self.now_ns.to_be_bytes());
        head[17] = 1;
        self.next_id += 1;
        for (digit, place) in head[18..].iter_mut().zip((0..16).rev()) {
            *digit = b"0123456789abcdef"[(self.next_id >> (4 * place)) as usize & 15];
        }
        self.push_to_subscribers(&[&head, body]);
        if self.subscribers.is_empty() {
            self.unheard.extend_from_slice(&head);
            self.unheard.extend_from_slice(body);
        }
    }

    fn push_to_subscribers(&mut self, parts: &[&[u8]]) {
        for n in 0..self.subscribers.len() {
            self.push(self.subscribers[n], parts);
        }
    }

    fn push(&mut self, i: usize, parts: &[&[u8]]) {
        if let Some(connection) = self.connections[i].as_mut() {
            connection.push(parts);
            self.touch(i);
        }
    }

    fn touch(&mut self, i: usize) {
        let Some(connection) = self.connections[i].as_mut().filter(|connection| !connection.touched) else { return };
        connection.touched = true;
        self.touched.push(i);
    }

    fn write_touched(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for i in touched.drain(..) {
            if self.write(i).is_err() {
                self.close(i);
            }
        }
        self.touched = touched;
    }

    fn write(&mut self, i: usize) -> io::Result<()> {
        let Some(connection) = self.connections[i].as_mut() else { return Ok(()) };
        connection.touched = false;
        let blocked = !connection.write()?;
        if blocked != connection.blocked {
            connection.blocked = blocked;
            let interest = if blocked { sys::READABLE | sys::WRITABLE } else { sys::READABLE };
            self.poller.change(connection.stream().as_raw_fd(), interest)?;
        }
        Ok(())
    }

    /// The descriptor goes with the connection, and with it the poller's interest.
    fn close(&mut self, i: usize) {
        self.connections[i] = None;
        self.subscribers.retain(|subscriber| *subscriber != i);
    }
}
