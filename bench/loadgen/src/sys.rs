//! All system calls that the standard library does not make. Nothing here decides anything.

use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::{self, MaybeUninit};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, c_void};

pub const READABLE: u32 = libc::EPOLLIN as u32;
pub const WRITABLE: u32 = libc::EPOLLOUT as u32;
/// The other side closed. Unlike READABLE it does not wake the poller for data.
pub const CLOSED: u32 = libc::EPOLLRDHUP as u32;
pub const BROKEN: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn clock_ns(clock: libc::clockid_t) -> i64 {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: `time` is a timespec that the call may write; all zeros is a valid one should it fail.
    let time = unsafe {
        libc::clock_gettime(clock, time.as_mut_ptr());
        time.assume_init()
    };
    time.tv_sec as i64 * 1_000_000_000 + time.tv_nsec as i64
}

/// CLOCK_MONOTONIC.
pub fn now_ns() -> i64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME: the clock of the kernel's receive stamps.
pub fn wall_ns() -> i64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// User and system time of the calling thread.
pub fn thread_cpu_ns() -> i64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Let the calling thread's timers fire at their instant; by default the kernel may be 50 us late to save wake-ups.
pub fn make_timers_exact() -> io::Result<()> {
    // SAFETY: PR_SET_TIMERSLACK takes an integer and touches no memory of ours.
    checked(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) }).map(drop)
}

/// Let every other thread go before the calling one, from now on (SCHED_IDLE). Where it has a real-time priority it
/// keeps the lowest of them, so that it lets all go first that were started like it, and what it does does not depend
/// on the machine's ordinary work.
pub fn yield_to_others() -> io::Result<()> {
    // SAFETY: a plain number; 0 is the calling thread.
    let before = checked(unsafe { libc::sched_getscheduler(0) })?;
    let (policy, sched_priority) = match before & !libc::SCHED_RESET_ON_FORK {
        libc::SCHED_FIFO | libc::SCHED_RR => (before, 1),
        _ => (libc::SCHED_IDLE | before & libc::SCHED_RESET_ON_FORK, 0),
    };
    let parameters = libc::sched_param { sched_priority };
    // SAFETY: `parameters` is valid through the call, which only reads it; 0 is the calling thread.
    checked(unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) }).map(drop)
}

/// Raise the soft limit of open files to the hard one; returns it.
pub fn raise_file_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit for the call to fill.
    checked(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is a valid rlimit that the call only reads.
    checked(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })?;
    Ok(limit.rlim_max)
}

/// Open file descriptors of this process.
pub fn open_files() -> io::Result<u64> {
    Ok(std::fs::read_dir("/proc/self/fd")?.count() as u64)
}

/// Most that one wait gives.
pub const EVENTS_A_WAIT: usize = 256;

/// The token of the `Wake` of a poller's thread.
const WAKE: u64 = u64::MAX;

pub struct Poller {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Poller {
    pub fn new() -> io::Result<Poller> {
        // SAFETY: no memory is passed; the descriptor is fresh and owned by nobody else.
        let epoll = unsafe { OwnedFd::from_raw_fd(checked(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) };
        Ok(Poller { epoll, events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_A_WAIT] })
    }

    pub fn add(&self, file: &impl AsRawFd, token: u64, interest: u32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, file.as_raw_fd(), token, interest)
    }

    /// Have `wake` end the waits.
    pub fn add_wake(&self, wake: &Wake) -> io::Result<()> {
        self.add(wake, WAKE, READABLE)
    }

    pub fn change(&self, file: &impl AsRawFd, token: u64, interest: u32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, file.as_raw_fd(), token, interest)
    }

    fn control(&self, operation: c_int, file: RawFd, token: u64, interest: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest, u64: token };
        // SAFETY: `event` is valid for the call, which copies it.
        checked(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, file, &mut event) }).map(drop)
    }

    /// Wait for events or `timeout_ns`, at nanosecond resolution; returns (token, readiness) of each.
    pub fn wait(&mut self, timeout_ns: i64) -> io::Result<impl Iterator<Item = (u64, u32)> + '_> {
        let timeout_ns = timeout_ns.max(0);
        let mut timeout = MaybeUninit::<libc::timespec>::zeroed();
        // SAFETY: all zeros is a valid timespec (it has padding on some targets, hence no literal).
        let timeout = unsafe { timeout.assume_init_mut() };
        timeout.tv_sec = (timeout_ns / 1_000_000_000) as libc::time_t;
        timeout.tv_nsec = (timeout_ns % 1_000_000_000) as _;
        // The system call by number: glibc has a wrapper only since 2.35.
        // SAFETY: `events` has room for as many entries as is said, `timeout` outlives the call, a null mask leaves
        // signals alone.
        let ready = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.events.len() as c_int,
                std::ptr::from_ref(timeout),
                std::ptr::null::<libc::sigset_t>(),
                mem::size_of::<u64>(),
            )
        };
        let ready = match usize::try_from(ready) {
            Ok(ready) => ready,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => 0,
                error => return Err(error),
            },
        };
        Ok(self.events[..ready].iter().map(|event| (event.u64, event.events)))
    }

    /// `wait`, into `ready` instead of what is there: without `wake`, which is set no longer.
    pub fn wait_into(&mut self, ready: &mut Vec<(u64, u32)>, timeout_ns: i64, wake: &Wake) -> io::Result<()> {
        ready.clear();
        for (token, readiness) in self.wait(timeout_ns)? {
            if token == WAKE {
                wake.reset();
            } else {
                ready.push((token, readiness));
            }
        }
        Ok(())
    }
}

/// Wakes another thread's `Poller`.
pub struct Wake(File);

impl Wake {
    pub fn new() -> io::Result<Wake> {
        // SAFETY: no memory is passed; the descriptor is fresh and owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(checked(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?) };
        Ok(Wake(File::from(fd)))
    }

    pub fn set(&self) {
        // A full counter (EAGAIN) is set already; nothing else can fail on an eventfd.
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }

    pub fn reset(&self) {
        // EAGAIN: it was not set.
        let _ = (&self.0).read(&mut [0; 8]);
    }
}

impl AsRawFd for Wake {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A socket whose connection to `address` is under way: WRITABLE or BROKEN when that is decided. No Nagle delay;
/// receive stamps on.
pub fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: no memory is passed; the descriptor is fresh and owned by nobody else.
    let fd = unsafe {
        OwnedFd::from_raw_fd(checked(libc::socket(
            family,
            libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            0,
        ))?)
    };
    let stream = TcpStream::from(fd);
    stream.set_nodelay(true)?;
    stamp_arrivals(&stream)?;
    match start_connecting(&stream, address) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(stream),
    }
}

fn start_connecting(stream: &TcpStream, address: SocketAddr) -> io::Result<c_int> {
    match address {
        SocketAddr::V4(v4) => {
            let name = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            connect_to(stream, &name)
        }
        SocketAddr::V6(v6) => {
            let name = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            connect_to(stream, &name)
        }
    }
}

/// `Name` is sockaddr_in or sockaddr_in6.
fn connect_to<Name>(stream: &TcpStream, name: &Name) -> io::Result<c_int> {
    let size = mem::size_of::<Name>() as libc::socklen_t;
    // SAFETY: `name` is a socket address of `size` bytes that outlives the call.
    checked(unsafe { libc::connect(stream.as_raw_fd(), std::ptr::from_ref(name).cast(), size) })
}

fn stamp_arrivals(stream: &TcpStream) -> io::Result<()> {
    let on: c_int = 1;
    let size = mem::size_of::<c_int>() as libc::socklen_t;
    // SAFETY: `on` is an int of `size` bytes that outlives the call.
    let done = unsafe {
        let value = std::ptr::from_ref(&on).cast::<c_void>();
        libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, value, size)
    };
    checked(done).map(drop)
}

/// Bytes read (0: closed by the other side) and when the kernel got the last of them (CLOCK_REALTIME), where it says
/// so.
pub fn receive_stamped(stream: &TcpStream, buffer: &mut [u8]) -> io::Result<(usize, Option<i64>)> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // u64: control messages must be aligned like their header
    let mut control = [0u64; 8];
    let mut header = MaybeUninit::<libc::msghdr>::zeroed();
    // SAFETY: all zeros is a valid msghdr.
    let header = unsafe { header.assume_init_mut() };
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = mem::size_of_val(&control) as _;
    // SAFETY: `header` points to `buffer` and `control`, which outlive the call, with their true sizes.
    let read = unsafe { libc::recvmsg(stream.as_raw_fd(), header, libc::MSG_DONTWAIT) };
    match usize::try_from(read) {
        Ok(read) => Ok((read, stamp_in(header))),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

fn stamp_in(header: &libc::msghdr) -> Option<i64> {
    // SAFETY: `header` was filled by recvmsg; CMSG_FIRSTHDR is null or points to a whole header within the control
    // buffer, which is aligned for it.
    let first = unsafe { libc::CMSG_FIRSTHDR(header).as_ref() }?;
    if first.cmsg_level != libc::SOL_SOCKET || first.cmsg_type != libc::SCM_TIMESTAMPNS {
        return None;
    }
    // SAFETY: a control message of this type carries one timespec; it may lie unaligned.
    let time = unsafe { libc::CMSG_DATA(first).cast::<libc::timespec>().read_unaligned() };
    Some(time.tv_sec as i64 * 1_000_000_000 + time.tv_nsec as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_wait_ends_at_its_instant_and_not_at_the_next_millisecond() {
        make_timers_exact().expect("prctl");
        let mut poller = Poller::new().expect("epoll");
        let mut over: Vec<i64> = (0..50)
            .map(|_| {
                let start = now_ns();
                assert_eq!(poller.wait(200_000).expect("wait").count(), 0);
                now_ns() - start - 200_000
            })
            .collect();
        over.sort_unstable();
        assert!(over[0] >= 0, "woke {} ns early", -over[0]);
        assert!(over[25] < 700_000, "median oversleep {} ns", over[25]);
    }

    /// The calling thread's policy and real-time priority.
    fn standing() -> (c_int, c_int) {
        let mut parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: `parameters` is valid for the call to fill; 0 is the calling thread.
        let policy = unsafe {
            libc::sched_getparam(0, &raw mut parameters);
            libc::sched_getscheduler(0)
        };
        (policy, parameters.sched_priority)
    }

    /// Whether the calling thread may take that policy and priority; if so it has.
    fn takes(policy: c_int, sched_priority: c_int) -> bool {
        let parameters = libc::sched_param { sched_priority };
        // SAFETY: `parameters` is valid through the call; 0 is the calling thread.
        unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
    }

    #[test]
    fn who_lets_others_go_first_takes_the_last_place_of_those_started_like_it_and_only_for_itself() {
        let before = standing();
        let ordinary = || {
            assert!(takes(libc::SCHED_OTHER, 0));
            yield_to_others().expect("anybody may");
            assert_eq!(standing(), (libc::SCHED_IDLE, 0));
        };
        std::thread::spawn(ordinary).join().expect("no panic");
        let in_real_time = || {
            let expected = if takes(libc::SCHED_RR, 2) { (libc::SCHED_RR, 1) } else { (libc::SCHED_IDLE, 0) };
            yield_to_others().expect("anybody may");
            assert_eq!(standing(), expected);
        };
        std::thread::spawn(in_real_time).join().expect("no panic");
        assert_eq!(standing(), before);
    }

    #[test]
    fn the_kernel_stamps_what_arrives_before_it_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let stream = connect(listener.local_addr().expect("address")).expect("connect");
        let (mut peer, _) = listener.accept().expect("accept");
        // The kernel turns stamping on a moment after it is asked for the first time: send until one comes.
        let mut buffer = [0; 16];
        for _ in 0..200 {
            let before = wall_ns();
            peer.write_all(b"x").expect("write");
            let written = wall_ns();
            std::thread::sleep(std::time::Duration::from_millis(5));
            let (read, stamp) = receive_stamped(&stream, &mut buffer).expect("read");
            assert_eq!(read, 1);
            if let Some(stamp) = stamp {
                assert!((before..=written + 1_000_000).contains(&stamp), "{before} {stamp} {written}");
                return;
            }
        }
        panic!("no stamp in 200 messages");
    }

    #[test]
    fn a_wake_from_another_thread_ends_a_wait() {
        let mut poller = Poller::new().expect("epoll");
        let wake = Wake::new().expect("eventfd");
        poller.add(&wake, 7, READABLE).expect("add");
        std::thread::scope(|scope| {
            scope.spawn(|| wake.set());
            assert_eq!(poller.wait(10_000_000_000).expect("wait").collect::<Vec<_>>(), [(7, READABLE)]);
        });
        wake.reset();
        assert_eq!(poller.wait(0).expect("wait").count(), 0);
    }

    #[test]
    fn a_wake_ends_a_wait_once_and_is_none_of_what_is_ready() {
        let mut poller = Poller::new().expect("epoll");
        let (wake, other) = (Wake::new().expect("eventfd"), Wake::new().expect("eventfd"));
        poller.add_wake(&wake).expect("add");
        poller.add(&other, 7, READABLE).expect("add");
        wake.set();
        let mut ready = vec![(1, 1)];
        poller.wait_into(&mut ready, 10_000_000_000, &wake).expect("wait");
        assert_eq!(ready, []);
        assert_eq!(poller.wait(0).expect("wait").count(), 0, "it is set no longer");
        wake.set();
        other.set();
        poller.wait_into(&mut ready, 10_000_000_000, &wake).expect("wait");
        assert_eq!(ready, [(7, READABLE)]);
    }
}
