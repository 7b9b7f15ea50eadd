//! The system calls that the standard library does not make.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use libc::c_int;

pub const READABLE: u32 = libc::EPOLLIN as u32;
pub const WRITABLE: u32 = libc::EPOLLOUT as u32;
const EVENTS: usize = 1024;
/// The standard library's 128 would make a storm of connections wait for retries.
const BACKLOG: c_int = 4096;

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Listening again changes the backlog of a listener.
pub fn widen_backlog(listener: &TcpListener) -> io::Result<()> {
    // SAFETY: no memory is passed.
    checked(unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) }).map(drop)
}

pub struct Poller {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Poller {
    pub fn new() -> io::Result<Poller> {
        // SAFETY: no memory is passed; the descriptor is fresh and owned by nobody else.
        let epoll = unsafe { OwnedFd::from_raw_fd(checked(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) };
        Ok(Poller { epoll, events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS] })
    }

    pub fn add(&self, descriptor: RawFd, interest: u32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, descriptor, interest)
    }

    pub fn change(&self, descriptor: RawFd, interest: u32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, descriptor, interest)
    }

    fn control(&self, operation: c_int, descriptor: RawFd, interest: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest, u64: descriptor as u64 };
        // SAFETY: `event` is valid for the call, which copies it.
        checked(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, descriptor, &mut event) }).map(drop)
    }

    /// Wait without end; (descriptor, readiness) of each go into `ready`.
    pub fn wait(&mut self, ready: &mut Vec<(RawFd, u32)>) -> io::Result<()> {
        // SAFETY: `events` has room for as many entries as is said.
        let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), self.events.as_mut_ptr(), EVENTS as c_int, -1) };
        let count = match checked(count) {
            Ok(count) => count as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        ready.extend(self.events[..count].iter().map(|event| (event.u64 as RawFd, event.events)));
        Ok(())
    }
}
