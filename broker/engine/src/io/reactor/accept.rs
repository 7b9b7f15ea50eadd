//! The ports: who comes is let in, a few in a turn, or told why not; a port may rest, or not have opened yet.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use slotmap::Key;

use super::{LISTENER, Reactor, Socket};
use crate::arrival::unread_since::Unread;
use crate::engine::Engine;
use crate::http::Stage;
use crate::io::listener::Speaks;
use crate::io::shared::NewLink;
use crate::io::socket;
use crate::scheduling::client_limits::Unwanted;
use crate::scheduling::small_reads::SmallReads;
use crate::time::Nanos;

/// How long accepting rests after the process ran out of descriptors or memory.
const ACCEPT_REST_NS: Nanos = 100_000_000;

impl Socket {
    fn new(fd: OwnedFd, unread: Unread) -> Self {
        Self {
            fd,
            writes: false,
            reads: true,
            ended: false,
            dropping: false,
            unread,
            defers_reads: false,
            small_reads: SmallReads::default(),
            is_paced: false,
            written: Nanos::MIN / 2,
        }
    }
}

impl Reactor {
    pub(super) fn accept(&mut self, index: usize, now: Nanos) {
        let Some(port) = self.ports.get_mut(index) else { return };
        port.waiting.reported(&self.waits);
        let room = self.room.map_or(usize::MAX, |room| room.saturating_sub(self.sockets.len() + self.leaving.len()));
        if room == 0 {
            return self.give_up(index, "the descriptors that are left are kept for files", now);
        }
        for taken in 0..room {
            if taken > 0 && self.engine.has_a_full_turn() {
                break;
            }
            match port.listener.accept() {
                Ok(Some((fd, peer))) => {
                    let remote = peer.map_or_else(|| "@".to_owned(), shown); // as Go shows who has no address
                    if let Err(unwanted) = self.engine.admit(&remote) {
                        refuse(&mut self.engine, &fd, port.listener.speaks, &unwanted, now);
                        continue;
                    }
                    let unread = Unread::new(&self.waits, port.waiting.since);
                    let key = match port.listener.speaks {
                        Speaks::Nsq => self.engine.handle_accept(&remote, now),
                        Speaks::Http => self.engine.handle_accept_http(&remote, now),
                        Speaks::Https => self.engine.handle_accept_https(&remote, now),
                        Speaks::Mqtt => self.engine.handle_accept_mqtt(&remote, now),
                        Speaks::Mqtts => self.engine.handle_accept_mqtts(&remote, now),
                        Speaks::MqttWs => self.engine.handle_accept_mqtt_ws(&remote, false, now),
                        Speaks::MqttWss => self.engine.handle_accept_mqtt_ws(&remote, true, now),
                    };
                    if self.epoll.add_edges(fd.as_raw_fd(), key.data().as_ffi()).is_err() {
                        self.engine.handle_broken(key);
                        continue;
                    }
                    self.arrivals.accept(key, port.listener.speaks, &fd, peer, &mut self.clock);
                    self.sockets.insert(key, Socket::new(fd, unread));
                }
                Ok(None) => {
                    port.fails = false;
                    break;
                }
                Err(error) if is_exhaustion(&error) => return self.give_up(index, &error.to_string(), now),
                Err(_) => {} // that connection was gone before we took it
            }
        }
    }

    /// Takes over connections to other brokers.
    pub(super) fn take_links(&mut self, now: Nanos) {
        for NewLink { number, fd, opening, remote } in self.shared.take_links() {
            let key = self.engine.open_link(number, &opening, &remote, now);
            if self.epoll.add_edges(fd.as_raw_fd(), key.data().as_ffi()).is_err() {
                self.engine.handle_broken(key);
                continue;
            }
            self.sockets.insert(key, Socket::new(fd, Unread::new(&self.waits, now)));
        }
    }

    /// There is no room for a connection that waits: look again a little later.
    fn give_up(&mut self, index: usize, reason: &str, now: Nanos) {
        let Some(port) = self.ports.get_mut(index) else { return };
        let first = !std::mem::replace(&mut port.fails, true);
        self.engine.handle_accept_failed(reason, first);
        self.rest(index, now + ACCEPT_REST_NS);
    }

    /// Accept nothing before that: level-triggered, who waits would wake us for ever.
    fn rest(&mut self, index: usize, until: Nanos) {
        let Some(port) = self.ports.get_mut(index) else { return };
        if self.epoll.set_interest(port.listener.as_raw_fd(), LISTENER + index as u64, false).is_ok() {
            port.rests_until = Some(until);
        }
    }

    /// The HTTP ports begin to accept, or goes, as the service says.
    pub(super) fn set_http_ports(&mut self) -> std::io::Result<()> {
        match self.engine.http_stage() {
            Stage::Bound => {}
            Stage::Closing => self.ports.retain(|port| !port.listener.speaks.is_http()),
            Stage::Open => {
                for (port, token) in self.ports.iter_mut().zip(LISTENER..).filter(|(port, _)| !port.accepts) {
                    port.accepts = true;
                    port.waiting.asked_again(&self.waits);
                    self.epoll.set_interest(port.listener.as_raw_fd(), token, true)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn end_rests(&mut self, now: Nanos) -> std::io::Result<()> {
        for (port, token) in self.ports.iter_mut().zip(LISTENER..) {
            if port.rests_until.is_some_and(|until| until <= now) {
                port.rests_until = None;
                port.waiting.asked_again(&self.waits);
                self.epoll.set_interest(port.listener.as_raw_fd(), token, true)?;
            }
        }
        Ok(())
    }
}

/// Tell a connection that is not wanted why, as far as its socket takes it at once.
fn refuse(engine: &mut Engine, fd: &OwnedFd, speaks: Speaks, unwanted: &Unwanted, now: Nanos) {
    let text = match speaks {
        Speaks::Nsq => unwanted.frame(),
        Speaks::Http => engine.unwanted_by_http(unwanted, now),
        // What they could read would take a handshake, or a CONNECT.
        Speaks::Https | Speaks::Mqtt | Speaks::Mqtts | Speaks::MqttWs | Speaks::MqttWss => return,
    };
    // It is closed next, whatever becomes of the text.
    let _ = socket::send(fd.as_raw_fd(), &text);
}

/// The accept errors that pass: out of descriptors or memory.
fn is_exhaustion(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// One of IPv4 has its own address, also where it came to a socket of both families.
fn shown(peer: SocketAddr) -> String {
    SocketAddr::new(peer.ip().to_canonical(), peer.port()).to_string()
}
