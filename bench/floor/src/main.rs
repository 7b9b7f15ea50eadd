//! `srtm-floor HOST:PORT`: what no broker on this kernel can undercut. One thread, one epoll; a turn reads every ready
//! connection once, acknowledges and forwards messages, and writes each connection that has something to write once. No
//! channels, no topics, no timers, no limits: what a subscriber does not take waits in memory. Load generators can
//! speak to it, in NSQ's protocol or in MQTT 3.1.1, all alike; nothing else should.

mod command;
mod connection;
mod packet;
mod server;
mod sys;

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let address = match (words.next(), words.next()) {
        (Some(word), None) => {
            word.parse::<SocketAddr>().map_err(|_| format!("address: {word}: must be HOST:PORT with a numeric HOST"))
        }
        _ => Err("usage: srtm-floor HOST:PORT".to_owned()),
    };
    match address {
        Ok(address) => {
            serve(address).map_or_else(|error| failed(&format!("{address}: {error}"), 1), |()| ExitCode::SUCCESS)
        }
        Err(error) => failed(&error, 2),
    }
}

fn failed(text: &str, status: u8) -> ExitCode {
    eprintln!("srtm-floor: {text}");
    ExitCode::from(status)
}

fn serve(address: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    sys::widen_backlog(&listener)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let server = server::Server::new(listener)?;
    println!("{address}");
    io::stdout().flush()?;
    server.run()
}
