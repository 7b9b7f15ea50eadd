//! Connections in every half-finished state cost no processor time while nothing happens. A process of its own, for it
//! measures the whole process.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use srtm_engine::config::Config;
use srtm_engine::io::handle::Handle;

fn processor_time() -> Duration {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is a valid timespec that outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut at) };
    Duration::new(at.tv_sec as u64, at.tv_nsec as u32)
}

fn connect(port: u16, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the engine listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    stream.write_all(bytes).expect("the engine reads");
    stream
}

fn answer(stream: &mut TcpStream) {
    stream.read_exact(&mut [0; 10]).expect("OK");
}

#[test]
fn half_finished_connections_do_not_keep_the_reactor_busy() {
    let handle = Handle::new(Config { tcp_address: "127.0.0.1:0".into(), ..Config::default() }).expect("descriptors");
    let port = handle.start().expect("a free port").tcp.expect("a TCP address");
    let silent = connect(port, b"");
    let unfinished = connect(port, b"  V2PUB t\n\0\0\0\x09half");
    let lingering = connect(port, b"  V2NONSENSE\nmore that nobody reads");
    // Two consumers that read nothing of what fills their sockets; one of them has also ended its stream.
    let mut stuck = connect(port, b"  V2SUB t a\nRDY 2500\n");
    let mut stuck_and_ended = connect(port, b"  V2SUB t b\nRDY 2500\n");
    answer(&mut stuck);
    answer(&mut stuck_and_ended);
    let mut publisher = connect(port, b"  V2");
    let body = [&b"PUB t\n"[..], &1_000_000u32.to_be_bytes(), &vec![7; 1_000_000]].concat();
    for _ in 0..20 {
        publisher.write_all(&body).expect("the engine reads");
        answer(&mut publisher);
    }
    stuck_and_ended.shutdown(Shutdown::Write).expect("half closed");
    let consumers =
        move |engine: &mut srtm_engine::engine::Engine, _| engine.conns.values().filter(|conn| conn.eof).count();
    while handle.call(consumers).expect("running") == 0 {
        std::thread::yield_now();
    }
    let before = processor_time();
    std::thread::sleep(Duration::from_millis(300)); // time in which nothing must happen: there is no event to wait for
    let used = processor_time() - before;
    assert!(used < Duration::from_millis(30), "{used:?} of processor time in 300 ms of nothing");
    drop((silent, unfinished, lingering, stuck, stuck_and_ended));
    assert!(handle.stop(Duration::from_secs(10)));
}
