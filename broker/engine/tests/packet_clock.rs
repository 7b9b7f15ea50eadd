//! The packet clock on real sockets: needs CAP_NET_RAW; without it only the refusal is tested.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use srtm_engine::config::{ClockSource, Config};
use srtm_engine::io::clock::monotonic;
use srtm_engine::io::handle::Handle;
use srtm_engine::io::listener::Ports;
use srtm_engine::queueing::topic::Limit;

const PATIENCE: Duration = Duration::from_secs(20);
const MS: i64 = 1_000_000;
const APART: Duration = Duration::from_millis(10);
const CAP_NET_RAW: u32 = 13;

fn may_open_rings() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("proc");
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("capabilities");
    let may = u64::from_str_radix(line.trim(), 16).expect("a number") >> CAP_NET_RAW & 1 == 1;
    if !may {
        eprintln!("skipped: needs CAP_NET_RAW");
    }
    may
}

fn open(address: &str) -> std::io::Result<(Handle, Ports)> {
    let http_address = "127.0.0.1:0".into();
    let config =
        Config { tcp_address: address.into(), http_address, arrival_clock: ClockSource::Packet, ..Config::default() };
    let handle = Handle::new(config)?;
    let ports = handle.start().map_err(|refused| refused.error)?;
    Ok((handle, ports))
}

/// An engine whose topic "t" is limited far above what tests send, so that it keeps a trace.
fn start(address: &str) -> (Handle, u16) {
    let (handle, ports) = open(address).expect("a free port");
    limit(&handle);
    (handle, ports.tcp.expect("a TCP address"))
}

fn limit(handle: &Handle) {
    let limit = Limit {
        rate_micro: 1_000_000_000_000,
        burst_micro: 1_000_000_000_000,
        reject: false,
        max_backlog: 10,
        max_backlog_bytes: 1_000,
        version: 1,
        full: true,
        expires: i64::MAX,
    };
    assert!(handle.call(move |engine, now| engine.set_bucket("t", limit, now)).expect("running"));
}

struct Client(TcpStream);

impl Client {
    fn connect(host: &str, port: u16) -> Self {
        let stream = TcpStream::connect((host, port)).expect("the engine listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("an option");
        let mut client = Self(stream);
        client.send(b"  V2");
        client
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the engine takes it");
    }

    /// The instant just before the message was sent.
    fn publish(&mut self) -> i64 {
        let at = monotonic();
        self.send(b"PUB t\n\0\0\0\x01x");
        at
    }

    fn expect_ok(&mut self) {
        let mut answer = [0; 10];
        self.0.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"\0\0\0\x06\0\0\0\0OK");
    }
}

fn expect_oks_by_http(client: &mut TcpStream, count: usize) {
    let (mut answers, mut part) = (Vec::new(), [0; 4_096]);
    while answers.windows(6).filter(|window| window == b"\r\n\r\nOK").count() < count {
        let len = client.read(&mut part).expect("answers");
        assert!(len > 0, "the connection was closed");
        answers.extend_from_slice(&part[..len]);
    }
}

fn pause(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::thread::yield_now();
    }
}

/// Hold the engine up while `meanwhile` runs.
fn while_held_up<T>(handle: &Handle, meanwhile: impl FnOnce() -> T) -> T {
    let (holds, held) = mpsc::sync_channel(1);
    let (go_on, told) = mpsc::sync_channel::<()>(1);
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            handle.call(move |_, _| {
                holds.send(()).expect("the test waits");
                told.recv_timeout(PATIENCE).expect("the test goes on");
            })
        });
        held.recv_timeout(PATIENCE).expect("the engine is held up");
        let result = meanwhile();
        go_on.send(()).expect("the engine waits");
        caller.join().expect("no panic").expect("running");
        result
    })
}

fn arrivals(handle: &Handle) -> Vec<i64> {
    let columns = handle.trace("t".into()).expect("running").expect("limited");
    columns.arrival_ns.chunks(8).map(|at| i64::from_le_bytes(at.try_into().expect("8 bytes"))).collect()
}

fn fallbacks(handle: &Handle) -> (u64, u64) {
    handle.call(|engine, _| (engine.counters.packet_fallbacks, engine.counters.packets_lost)).expect("running")
}

/// Each arrival is behind its sending and before the next one: more than a shared stamp could tell.
fn assert_each_has_its_own(arrivals: &[i64], sent: &[i64]) {
    assert_eq!(arrivals.len(), sent.len());
    for (arrival, sent) in arrivals.iter().zip(sent) {
        let late = arrival - sent;
        assert!((0..APART.as_nanos() as i64).contains(&late), "{late} ns after it was sent");
    }
}

#[test]
fn messages_that_lie_unread_on_one_connection_keep_their_own_arrivals() {
    if !may_open_rings() {
        return;
    }
    for (address, host) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")] {
        let (handle, port) = start(address);
        let mut client = Client::connect(host, port);
        client.publish();
        client.expect_ok();
        let sent = while_held_up(&handle, || {
            let mut sent = Vec::new();
            for _ in 0..5 {
                sent.push(client.publish());
                pause(APART);
            }
            sent
        });
        for _ in &sent {
            client.expect_ok();
        }
        assert_each_has_its_own(&arrivals(&handle)[1..], &sent);
        assert_eq!(fallbacks(&handle), (0, 0), "{address}");
        let sharing = handle.call(|engine, _| engine.counters.sharing).expect("running");
        assert_eq!((sharing.reads, sharing.merged, sharing.bias_max), (2, 0, 0));
        assert!(handle.stop(PATIENCE));
    }
}

#[test]
fn messages_by_http_that_lie_unread_keep_their_own_arrivals_and_other_requests_are_no_fallback() {
    if !may_open_rings() {
        return;
    }
    let (handle, ports) = open("127.0.0.1:0").expect("free ports");
    limit(&handle);
    handle.call(|engine, _| engine.open_http()).expect("running");
    let mut client = TcpStream::connect(("127.0.0.1", ports.http.expect("an HTTP port"))).expect("the engine listens");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client.set_nodelay(true).expect("an option");
    client.write_all(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n").expect("the engine takes it");
    expect_oks_by_http(&mut client, 1);
    let sent = while_held_up(&handle, || {
        let mut sent = Vec::new();
        for _ in 0..5 {
            sent.push(monotonic());
            client
                .write_all(b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
                .expect("the engine takes it");
            pause(APART);
        }
        sent
    });
    expect_oks_by_http(&mut client, sent.len());
    assert_each_has_its_own(&arrivals(&handle), &sent);
    assert_eq!(fallbacks(&handle), (0, 0));
    let sharing = handle.call(|engine, _| engine.counters.sharing).expect("running");
    assert_eq!((sharing.merged, sharing.bias_max), (0, 0));
    assert!(handle.stop(PATIENCE));
}

#[test]
fn a_message_in_several_segments_arrives_with_its_last_byte() {
    if !may_open_rings() {
        return;
    }
    let (handle, port) = start("127.0.0.1:0");
    let mut client = Client::connect("127.0.0.1", port);
    let sent = while_held_up(&handle, || {
        client.send(b"PUB t\n\0\0");
        pause(APART);
        let first = monotonic();
        client.send(b"\0\x01xPUB t\n\0\0\0\x01");
        pause(APART);
        let second = monotonic();
        client.send(b"y");
        [first, second]
    });
    client.expect_ok();
    client.expect_ok();
    assert_each_has_its_own(&arrivals(&handle), &sent);
    assert!(handle.stop(PATIENCE));
}

#[test]
fn a_connection_that_comes_while_nobody_accepts_has_its_own_arrivals_too() {
    if !may_open_rings() {
        return;
    }
    let (handle, port) = start("127.0.0.1:0");
    let (mut clients, sent) = while_held_up(&handle, || {
        let mut clients: Vec<Client> = (0..3).map(|_| Client::connect("127.0.0.1", port)).collect();
        let mut sent = Vec::new();
        for client in &mut clients {
            sent.push(client.publish());
            pause(APART);
        }
        (clients, sent)
    });
    for client in &mut clients {
        client.expect_ok();
    }
    assert_each_has_its_own(&arrivals(&handle), &sent);
    assert_eq!(fallbacks(&handle), (0, 0));
    assert!(handle.stop(PATIENCE));
}

#[test]
fn a_ring_that_overflows_is_counted_and_the_kernels_stamp_stands_in() {
    if !may_open_rings() {
        return;
    }
    let (handle, port) = start("127.0.0.1:0");
    let mut victim = Client::connect("127.0.0.1", port);
    victim.publish();
    victim.expect_ok();
    let sent = while_held_up(&handle, || {
        send_segments_of_no_connection(port, 40_000);
        victim.publish()
    });
    victim.expect_ok();
    let (fell_back, lost) = fallbacks(&handle);
    assert!(fell_back >= 1 && lost >= 1, "{fell_back} reads, {lost} packets");
    let late = arrivals(&handle)[1] - sent;
    assert!((0..1_000 * MS).contains(&late), "{late} ns after it was sent");
    for _ in 0..3 {
        victim.publish();
        victim.expect_ok();
    }
    assert_eq!(fallbacks(&handle), (fell_back, lost), "what comes later is known again");
    assert!(handle.stop(PATIENCE));
}

#[test]
fn without_the_capability_the_start_is_refused_by_its_name() {
    let refusal = std::thread::spawn(|| {
        drop_capabilities();
        open("127.0.0.1:0").err().expect("refused")
    });
    let refusal = refusal.join().expect("no panic");
    assert_eq!(refusal.kind(), std::io::ErrorKind::PermissionDenied);
    assert!(refusal.to_string().contains("CAP_NET_RAW"), "{refusal}");
}

/// One byte each, from a port where nobody is.
fn send_segments_of_no_connection(port: u16, count: usize) {
    let mut segment = [0u8; 21];
    segment[1] = 9;
    segment[2..4].copy_from_slice(&port.to_be_bytes());
    (segment[12], segment[13]) = (0x50, 0x10);
    let to = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    };
    // SAFETY: no pointers; the result is checked before it is owned.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_TCP) };
    assert!(fd >= 0, "a raw socket");
    // SAFETY: `fd` was just opened and nobody else owns it.
    let owner = unsafe { OwnedFd::from_raw_fd(fd) };
    for _ in 0..count {
        let size = std::mem::size_of_val(&to) as libc::socklen_t;
        // SAFETY: the segment and the address are valid for their sizes.
        let sent = unsafe {
            libc::sendto(owner.as_raw_fd(), segment.as_ptr().cast(), segment.len(), 0, (&raw const to).cast(), size)
        };
        assert_eq!(sent, segment.len() as isize);
    }
}

/// Of this thread, and of those that it starts.
fn drop_capabilities() {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let header = Header { version: VERSION_3, pid: 0 };
    let none = [[0u32; 3]; 2];
    // SAFETY: both structures are those of version 3 and live through the call.
    assert_eq!(unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) }, 0);
}
