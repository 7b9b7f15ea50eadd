//! An engine that runs, and a client of it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use srtm_engine::config::Config;
use srtm_engine::io::errors::StartError;
use srtm_engine::io::handle::Handle;

pub const PATIENCE: Duration = Duration::from_secs(10);

pub fn start() -> (Handle, u16) {
    start_at("127.0.0.1:0").expect("a free port")
}

pub fn start_at(address: &str) -> Result<(Handle, u16), StartError> {
    let handle = Handle::new(Config { tcp_address: address.into(), ..Config::default() }).expect("valid");
    let port = handle.start()?.tcp.expect("a TCP address");
    Ok((handle, port))
}

pub struct Client(pub TcpStream);

impl Client {
    pub fn connect(port: u16) -> Self {
        Self::connect_to("127.0.0.1", port)
    }

    pub fn connect_to(host: &str, port: u16) -> Self {
        let stream = TcpStream::connect((host, port)).expect("the engine listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("an option");
        let mut client = Self(stream);
        client.send(b"  V2");
        client
    }

    pub fn subscribe(port: u16, topic: &str, channel: &str, ready: u32) -> Self {
        let mut client = Self::connect(port);
        client.send(format!("SUB {topic} {channel}\nRDY {ready}\n").as_bytes());
        assert_eq!(client.frame(), (0, b"OK".to_vec()));
        client
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the engine reads");
    }

    pub fn publish(&mut self, topic: &str, body: &[u8]) {
        self.send(&[format!("PUB {topic}\n").as_bytes(), &(body.len() as u32).to_be_bytes(), body].concat());
        assert_eq!(self.frame(), (0, b"OK".to_vec()));
    }

    pub fn frame(&mut self) -> (u32, Vec<u8>) {
        let mut head = [0; 8];
        self.0.read_exact(&mut head).expect("a frame");
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let mut data = vec![0; word(0) as usize - 4];
        self.0.read_exact(&mut data).expect("the rest of the frame");
        (word(4), data)
    }

    /// Body of the next message, which is finished.
    pub fn message(&mut self) -> Vec<u8> {
        let (kind, data) = self.frame();
        assert_eq!(kind, 2);
        self.send(&[b"FIN ", &data[10..26], b"\n"].concat());
        data[26..].to_vec()
    }

    /// Everything up to the end of the stream; a reset is an end too.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest);
        rest
    }
}

pub fn connections(handle: &Handle) -> usize {
    handle.call(|engine, _| engine.conns.len()).expect("running")
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}
