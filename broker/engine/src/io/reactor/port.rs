//! A port that is listened on: whether it accepts, and until when it rests.

use std::os::fd::AsRawFd;

use super::LISTENER;
use crate::arrival::unread_since::Unread;
use crate::io::listener::Listener;
use crate::io::socket::Epoll;
use crate::time::Nanos;

pub(super) struct Port {
    pub(super) listener: Listener,
    pub(super) accepts: bool,   // the HTTP ports do once the service around the engine is ready
    pub(super) waiting: Unread, // connections to accept
    pub(super) rests_until: Option<Nanos>, // no accept before: out of descriptors, or messages go first
    pub(super) fails: bool,     // out of descriptors since all that waited were in
}

/// In the order of their tokens. `waiting`: as things stand of those who are to come.
pub(super) fn listened_to(listeners: Vec<Listener>, epoll: &Epoll, waiting: Unread) -> std::io::Result<Vec<Port>> {
    let ports: Vec<Port> = listeners
        .into_iter()
        .map(|listener| Port {
            accepts: !listener.speaks.is_http(),
            listener,
            waiting,
            rests_until: None,
            fails: false,
        })
        .collect();
    for (port, token) in ports.iter().zip(LISTENER..) {
        epoll.add(port.listener.as_raw_fd(), token)?;
        if !port.accepts {
            epoll.set_interest(port.listener.as_raw_fd(), token, false)?;
        }
    }
    Ok(ports)
}
