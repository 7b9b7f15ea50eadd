//! System calls on sockets and epoll: listen, receive with the kernel's arrival stamp, send.
//!
//! All `unsafe` of the data path is here.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::{io, mem, ptr};

use crate::scheduling::client_limits::TABLES;
use crate::time::Nanos;

/// Length of the accept queue: a fleet that reconnects at once must not find it full.
const BACKLOG: libc::c_int = 4_096;

/// Descriptors that no connection gets: for listeners, files and what Python opens.
const OWN_DESCRIPTORS: usize = 64;

/// A peer that is silent for so long is asked whether it is there, and again as often (Go's defaults, and so nsqd's):
/// one that vanished without a word, and sends nothing by itself, would hold its connection for ever.
const KEEPALIVE_S: libc::c_int = 15;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn set_option<T>(fd: RawFd, level: libc::c_int, name: libc::c_int, value: T) -> io::Result<()> {
    // SAFETY: `value` lives through the call and its size is given.
    check(unsafe {
        libc::setsockopt(fd, level, name, (&raw const value).cast(), mem::size_of::<T>() as libc::socklen_t)
    })?;
    Ok(())
}

/// Listens at `HOST:PORT`; an empty host means all addresses of both families, as in Go.
///
/// Accepted sockets inherit the options set here, so their first segments are stamped, too.
pub fn listen(address: &str) -> io::Result<TcpListener> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, format!("{address}: no such address"));
    for address in address.to_socket_addrs()? {
        match listen_widely(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn listen_widely(address: SocketAddr) -> io::Result<TcpListener> {
    if !address.ip().is_unspecified() {
        return listen_at(address);
    }
    let both = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), address.port());
    match listen_at(both) {
        Err(error) if address.is_ipv4() && is_without_ipv6(&error) => listen_at(address),
        result => result,
    }
}

fn is_without_ipv6(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
}

/// What a connection inherits from its listener, or is given: nothing is held back, and what comes has the kernel's
/// stamp.
pub(crate) fn set_stream_options(fd: RawFd) -> io::Result<()> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    set_option(
        fd,
        libc::SOL_SOCKET,
        libc::SO_TIMESTAMPING,
        libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE,
    )?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, KEEPALIVE_S)?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, KEEPALIVE_S)
}

fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: no pointers; the result is checked before it is owned.
    let fd = check(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: `fd` was just opened and nobody else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    set_stream_options(fd)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
    }
    bind(fd, address)?;
    // SAFETY: no pointers.
    check(unsafe { libc::listen(fd, BACKLOG) })?;
    Ok(TcpListener::from(socket))
}

fn bind(fd: RawFd, address: SocketAddr) -> io::Result<()> {
    match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: `raw` is a valid sockaddr_in of the size given.
            check(unsafe { libc::bind(fd, (&raw const raw).cast(), mem::size_of_val(&raw) as libc::socklen_t) })?;
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: `raw` is a valid sockaddr_in6 of the size given.
            check(unsafe { libc::bind(fd, (&raw const raw).cast(), mem::size_of_val(&raw) as libc::socklen_t) })?;
        }
    }
    Ok(())
}

/// What one read brought.
#[derive(Debug)]
pub enum Received {
    /// That many bytes, and when the last of them arrived (CLOCK_REALTIME), if the kernel told.
    Bytes(usize, Option<Nanos>),
    Nothing,
    End,
    Broken,
}

#[repr(C, align(8))]
struct ControlBuffer([u8; 128]);

/// One `recvmsg` into `buffer`, as a raw system call, like `send`. The C library's function is a cancellation point,
/// which doubles the cost.
pub fn receive(fd: RawFd, buffer: &mut [u8]) -> Received {
    let mut control = mem::MaybeUninit::<ControlBuffer>::uninit();
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = mem::size_of::<ControlBuffer>() as _;
    // SAFETY: `message` points to a buffer and a control buffer of the sizes given, which outlive the call.
    let len = unsafe { libc::syscall(libc::SYS_recvmsg, fd, &raw mut message, libc::MSG_DONTWAIT) };
    received(len, || stamp(&message))
}

/// Drop as many bytes as `room` is long, or fewer. A stream's bytes are not copied (tcp(7), MSG_TRUNC), and `room`
/// holds nothing of use after the call.
pub fn drop_bytes(fd: RawFd, room: &mut [u8]) -> Received {
    // SAFETY: `room` is valid for its length.
    let len = unsafe {
        let (flags, none) = (libc::MSG_DONTWAIT | libc::MSG_TRUNC, ptr::null_mut::<libc::sockaddr>());
        libc::syscall(libc::SYS_recvfrom, fd, room.as_mut_ptr(), room.len(), flags, none, none)
    };
    received(len, || None)
}

/// What a system call that reads has returned.
fn received(len: libc::c_long, stamp: impl FnOnce() -> Option<Nanos>) -> Received {
    match len {
        0 => Received::End,
        1.. => Received::Bytes(len as usize, stamp()),
        _ => match io::Error::last_os_error().kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Received::Nothing,
            _ => Received::Broken,
        },
    }
}

/// The software receive stamp among the control messages: the first of three timespecs.
fn stamp(message: &libc::msghdr) -> Option<Nanos> {
    // SAFETY: `message` was filled by recvmsg; the CMSG macros walk only the control bytes that it says are there.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_TIMESTAMPING {
                let at: libc::timespec = ptr::read_unaligned(libc::CMSG_DATA(header).cast());
                let ns = at.tv_sec * 1_000_000_000 + at.tv_nsec;
                return (ns != 0).then_some(ns);
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    None
}

/// Send what the socket takes now; `Ok(0)`: nothing.
pub fn send(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: `bytes` is valid for its length.
    let len = unsafe {
        let (none, flags) = (ptr::null::<libc::sockaddr>(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        libc::syscall(libc::SYS_sendto, fd, bytes.as_ptr(), bytes.len(), flags, none, 0 as libc::socklen_t)
    };
    if len >= 0 {
        return Ok(len as usize);
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
        _ => Err(error),
    }
}

/// Index of `tcpi_min_rtt` in the kernel's `struct tcp_info`, in 32-bit words. Its unit is us; all ones: unknown.
const MIN_RTT: usize = 37;

/// The smallest round trip that the kernel lately measured on a connection. `None`: unknown, or not a TCP socket.
pub fn min_round_trip(fd: RawFd) -> Option<Nanos> {
    let mut info = [0u32; MIN_RTT + 1];
    let mut len = mem::size_of_val(&info) as libc::socklen_t;
    // SAFETY: `info` and `len` outlive the call, and `len` is the size of `info`; the kernel writes no more.
    check(unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut len) })
        .ok()?;
    let known = len as usize == mem::size_of_val(&info) && info[MIN_RTT] != u32::MAX;
    known.then(|| Nanos::from(info[MIN_RTT]) * 1_000)
}

/// End our side of the stream; what was sent before still arrives.
pub fn shut_down_sending(fd: RawFd) -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::shutdown(fd, libc::SHUT_WR) })?;
    Ok(())
}

/// Connections that there may be, so that files can still be opened: `None` if nobody knows.
pub fn room_for_connections() -> Option<usize> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit that outlives the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }).ok()?;
    let all = usize::try_from(limit.rlim_cur).ok()?;
    Some(all - OWN_DESCRIPTORS.min(all / 2))
}

/// As many descriptors as the hard limit allows: each connection needs one.
pub fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit; a failure leaves the limit as it is.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Make the process's table of descriptors as large as they may become, or `TABLES`: in a process of several threads
/// the kernel stops the one that makes it grow for ten milliseconds and more, which would be in the middle of accepting
/// a crowd.
pub fn grow_descriptor_table(any: RawFd) {
    let highest = room_for_connections().map_or(TABLES, |room| (room + OWN_DESCRIPTORS).min(TABLES)) - 1;
    // SAFETY: plain numbers; what was opened is owned by nobody else and closed at once. A failure leaves the table as
    // it is.
    unsafe {
        let fd = libc::fcntl(any, libc::F_DUPFD_CLOEXEC, highest as libc::c_int);
        if fd >= 0 {
            libc::close(fd);
        }
    }
}

/// Epoll flags. They report ends of streams and urgent bytes apart, since a short read before one of them leaves bytes.
fn edges(read: bool, write: bool) -> libc::c_int {
    let reading = if read { libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLPRI } else { 0 };
    libc::EPOLLET | reading | if write { libc::EPOLLOUT } else { 0 }
}

/// Whether a wait sleeps until there is something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Block {
    Yes,
    No,
}

#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Epoll {
    pub fn new(capacity: usize) -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked before it is owned.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: `fd` was just opened and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, events: vec![libc::epoll_event { events: 0, u64: 0 }; capacity] })
    }

    pub fn add(&self, fd: RawFd, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, token)
    }

    /// Tell each time that something becomes readable, not as long as it is.
    pub fn add_edges(&self, fd: RawFd, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, edges(true, false), token)
    }

    /// The same of what is asked for from now on, and at once of what is there already.
    pub fn set_edges(&self, fd: RawFd, token: u64, read: bool, write: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, edges(read, write), token)
    }

    /// Whether to tell as long as something is readable, of what was `add`ed.
    pub fn set_interest(&self, fd: RawFd, token: u64, read: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, if read { libc::EPOLLIN } else { 0 }, token)
    }

    /// Tell nothing more of `fd`.
    pub fn remove(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    fn control(&self, operation: libc::c_int, fd: RawFd, bits: libc::c_int, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: bits as u32, u64: token };
        // SAFETY: `event` is valid through the call.
        check(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd, &raw mut event) })?;
        Ok(())
    }

    pub fn capacity(&self) -> usize {
        self.events.len()
    }

    /// Waits until something is ready; returns the number of `event`s.
    pub fn wait(&mut self, block: Block) -> io::Result<usize> {
        let (fd, events, len) = (self.fd.as_raw_fd(), self.events.as_mut_ptr(), self.events.len());
        let timeout_ms = if block == Block::Yes { -1 } else { 0 };
        // SAFETY: `events` has room for `len` entries.
        let count = unsafe { libc::epoll_wait(fd, events, len as libc::c_int, timeout_ms) };
        if count >= 0 {
            return Ok(count as usize);
        }
        let error = io::Error::last_os_error();
        if error.kind() == io::ErrorKind::Interrupted { Ok(0) } else { Err(error) }
    }

    /// Token and readiness of event `index` of the last wait.
    pub fn event(&self, index: usize) -> (u64, u32) {
        let event = self.events[index];
        (event.u64, event.events)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn of_a_socket_that_was_removed_nothing_is_told_though_its_peer_is_gone() {
        let mut epoll = Epoll::new(4).expect("an epoll set");
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        epoll.add(ours.as_raw_fd(), 1).expect("room");
        epoll.set_interest(ours.as_raw_fd(), 1, false).expect("it is there");
        drop(theirs);
        assert_eq!(epoll.wait(Block::No).expect("a wait"), 1, "no interest keeps a hang-up away");
        epoll.remove(ours.as_raw_fd()).expect("it is there");
        assert_eq!(epoll.wait(Block::No).expect("a wait"), 0);
    }

    fn option(fd: RawFd, level: libc::c_int, name: libc::c_int) -> libc::c_int {
        let (mut value, mut len) = (0, mem::size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: `value` and `len` live through the call, and `len` is the size of `value`.
        check(unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) })
            .expect("an option of every TCP socket");
        value
    }

    #[test]
    fn of_who_connects_the_kernel_finds_out_whether_it_is_still_there() {
        let listener = listen("127.0.0.1:0").expect("a free port");
        let _client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (accepted, _) = loop {
            match listener.accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                accepted => break accepted.expect("a connection"),
            }
        };
        let fd = accepted.as_raw_fd();
        assert_eq!(option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
        assert_eq!(option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE), KEEPALIVE_S);
        assert_eq!(option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL), KEEPALIVE_S);
    }

    #[test]
    fn a_port_that_is_taken_is_told_also_where_all_addresses_are_asked_for() {
        let taken = listen("0.0.0.0:0").expect("a free port");
        let port = taken.local_addr().expect("bound").port();
        assert_eq!(listen(&format!("0.0.0.0:{port}")).expect_err("it is taken").kind(), io::ErrorKind::AddrInUse);
    }
}
