//! Bytes that refused clients go on sending: a few connections are drained in each turn. Left unread, they would reset
//! the stream as it is closed, and the client would not learn the reason (RFC 2525, section 2.17).

use std::os::fd::AsRawFd;

use super::Reactor;
use crate::io::socket::{self, Received};
use crate::keys::ConnKey;
use crate::scheduling::work_budget::CONNECTIONS_A_TURN;

impl Reactor {
    /// There are bytes on a connection, and they are for nobody.
    pub(super) fn drop_later(&mut self, key: ConnKey) {
        let Some(socket) = self.sockets.get_mut(key) else { return };
        if !std::mem::replace(&mut socket.dropping, true) {
            self.dropping.push_back(key);
            self.arrivals.forget(key); // or it would count as missed in each turn
        }
    }

    pub(super) fn drop_some(&mut self) {
        for _ in 0..CONNECTIONS_A_TURN.min(self.dropping.len()) {
            let Some(key) = self.dropping.pop_front() else { return };
            let Some(socket) = self.sockets.get_mut(key) else { continue };
            let received = socket::receive(socket.fd.as_raw_fd(), &mut self.buffer);
            socket.dropping = matches!(received, Received::Bytes(..));
            match received {
                Received::Bytes(..) => self.dropping.push_back(key), // the end may follow without an edge
                Received::Nothing => {}                              // more of it is an edge
                Received::End => {
                    self.engine.handle_eof(key);
                    self.set_interest(key, |socket| (socket.reads, socket.ended) = (false, true));
                }
                Received::Broken => self.engine.handle_broken(key),
            }
        }
    }
}
