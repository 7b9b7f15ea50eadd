//! The whole engine on real loopback sockets. Every wait is bounded.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use srtm_engine::config::Config;
use srtm_engine::event::Event;
use srtm_engine::http::answer::Answer;
use srtm_engine::io::handle::{Handle, StartError};
use srtm_engine::io::listener::Ports;
use srtm_engine::topic::Limit;

const PATIENCE: Duration = Duration::from_secs(10);

fn start() -> (Handle, u16) {
    start_at("127.0.0.1:0").expect("a free port")
}

fn start_at(address: &str) -> Result<(Handle, u16), StartError> {
    let handle = Handle::new(Config { tcp_address: address.into(), ..Config::default() }).expect("valid");
    let port = handle.start()?.tcp.expect("a TCP address");
    Ok((handle, port))
}

struct Client(TcpStream);

impl Client {
    fn connect(port: u16) -> Self {
        Self::connect_to("127.0.0.1", port)
    }

    fn connect_to(host: &str, port: u16) -> Self {
        let stream = TcpStream::connect((host, port)).expect("the engine listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("an option");
        let mut client = Self(stream);
        client.send(b"  V2");
        client
    }

    fn subscribe(port: u16, topic: &str, channel: &str, ready: u32) -> Self {
        let mut client = Self::connect(port);
        client.send(format!("SUB {topic} {channel}\nRDY {ready}\n").as_bytes());
        assert_eq!(client.frame(), (0, b"OK".to_vec()));
        client
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the engine reads");
    }

    fn publish(&mut self, topic: &str, body: &[u8]) {
        self.send(&[format!("PUB {topic}\n").as_bytes(), &(body.len() as u32).to_be_bytes(), body].concat());
        assert_eq!(self.frame(), (0, b"OK".to_vec()));
    }

    fn frame(&mut self) -> (u32, Vec<u8>) {
        let mut head = [0; 8];
        self.0.read_exact(&mut head).expect("a frame");
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let mut data = vec![0; word(0) as usize - 4];
        self.0.read_exact(&mut data).expect("the rest of the frame");
        (word(4), data)
    }

    /// Body of the next message, which is finished.
    fn message(&mut self) -> Vec<u8> {
        let (kind, data) = self.frame();
        assert_eq!(kind, 2);
        self.send(&[b"FIN ", &data[10..26], b"\n"].concat());
        data[26..].to_vec()
    }

    /// Everything up to the end of the stream; a reset is an end too.
    fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest);
        rest
    }
}

fn connections(handle: &Handle) -> usize {
    handle.call(|engine, _| engine.conns.len()).expect("running")
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

#[test]
fn what_is_published_is_delivered_with_the_kernels_stamp() {
    let (handle, port) = start();
    let mut consumer = Client::subscribe(port, "t", "c", 10);
    let mut publisher = Client::connect(port);
    for i in 0..100u8 {
        publisher.publish("t", &[i; 10]);
        assert_eq!(consumer.message(), [i; 10]);
    }
    let fallbacks = handle.call(|engine, _| engine.timestamp_fallbacks).expect("running");
    assert_eq!(fallbacks, 0);
    assert!(handle.stop(PATIENCE));
}

/// Hold the engine up while `meanwhile` runs.
fn while_held_up<T>(handle: &Arc<Handle>, meanwhile: impl FnOnce() -> T) -> T {
    let (holds, held) = mpsc::sync_channel(1);
    let (go_on, told) = mpsc::sync_channel::<()>(1);
    let held_up = Arc::clone(handle);
    let caller = std::thread::spawn(move || {
        held_up.call(move |_, _| {
            holds.send(()).expect("the test waits");
            told.recv_timeout(PATIENCE).expect("the test goes on");
        })
    });
    held.recv_timeout(PATIENCE).expect("the engine is held up");
    let result = meanwhile();
    go_on.send(()).expect("the engine waits");
    caller.join().expect("no panic").expect("running");
    result
}

#[test]
fn the_bound_of_a_shared_stamp_is_not_below_the_time_between_what_shares_it() {
    let (handle, port) = start();
    let handle = Arc::new(handle);
    let mut publisher = Client::connect(port);
    publisher.publish("t", b"x");
    let apart = while_held_up(&handle, || {
        publisher.send(b"PUB t\n\0\0\0\x01x");
        let first = Instant::now();
        while first.elapsed() < Duration::from_millis(5) {
            std::thread::yield_now();
        }
        let apart = first.elapsed();
        publisher.send(b"PUB t\n\0\0\0\x01x");
        apart
    });
    assert_eq!([publisher.frame().1, publisher.frame().1], [b"OK", b"OK"]);
    let sharing = handle.call(|engine, _| engine.sharing).expect("running");
    assert_eq!((sharing.reads, sharing.merged), (2, 1));
    assert!(sharing.bias_max >= apart.as_nanos() as i64, "{} ns for messages {apart:?} apart", sharing.bias_max);
    assert!(handle.stop(PATIENCE));
}

#[test]
fn two_hundred_connections_are_served_at_once() {
    let (handle, port) = start();
    let mut consumer = Client::subscribe(port, "t", "c", 2_500);
    let mut publishers: Vec<Client> = (0..200).map(|_| Client::connect(port)).collect();
    for publisher in &mut publishers {
        publisher.send(b"PUB t\n\0\0\0\x01x");
    }
    for publisher in &mut publishers {
        assert_eq!(publisher.frame(), (0, b"OK".to_vec()));
    }
    for _ in 0..200 {
        assert_eq!(consumer.message(), b"x");
    }
    assert_eq!(connections(&handle), 201);
    drop(publishers);
    wait_until("the engine sees them go", || connections(&handle) == 1);
    assert!(handle.stop(PATIENCE));
}

/// A steady flow: the broker leaves the consumer's answers in the kernel for a while.
#[test]
fn what_a_consumer_with_credit_to_spare_says_counts_within_a_moment() {
    let (handle, port) = start();
    let mut consumer = Client::subscribe(port, "t", "c", 2_500);
    let mut publisher = Client::connect(port);
    for i in 0..500u16 {
        publisher.publish("t", &i.to_be_bytes());
        assert_eq!(consumer.message(), i.to_be_bytes());
    }
    let in_flight = || handle.call(|engine, _| engine.channels.values().next().map_or(0, |channel| channel.in_flight.len()));
    wait_until("every FIN is read", || in_flight().expect("running") == 0);

    publisher.publish("t", b"again");
    let (_, data) = consumer.frame();
    consumer.send(&[b"REQ ", &data[10..26], b" 0\n"].concat());
    assert_eq!(consumer.message(), b"again");

    publisher.publish("t", b"left behind");
    drop(consumer);
    wait_until("its end is seen", || connections(&handle) == 1);
    assert_eq!(Client::subscribe(port, "t", "c", 1).message(), b"left behind");
    assert!(handle.stop(PATIENCE));
}

#[test]
fn ipv6_addresses_are_listened_on_alone_or_together_with_ipv4() {
    for (address, hosts) in [("[::1]:0", &["::1"][..]), ("[::]:0", &["::1", "127.0.0.1"]), ("0.0.0.0:0", &["::1", "127.0.0.1"])] {
        let (handle, port) = start_at(address).expect("IPv6");
        for host in hosts {
            let mut client = Client::connect_to(host, port);
            client.publish("t", b"x");
            let told = handle.call(|engine, _| engine.conns.values().map(|conn| conn.remote.to_string()).collect::<Vec<_>>());
            let begin = if host.contains(':') { format!("[{host}]:") } else { format!("{host}:") };
            assert!(told.expect("running").iter().any(|remote| remote.starts_with(&begin)), "{address}: {host}");
        }
        let fallbacks = handle.call(|engine, _| engine.timestamp_fallbacks).expect("running");
        assert_eq!(fallbacks, 0, "{address}");
        assert!(handle.stop(PATIENCE));
    }
    let (handle, port) = start_at("[::1]:0").expect("IPv6");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "loopback of IPv6 is not that of IPv4");
    assert!(handle.stop(PATIENCE));
}

#[test]
fn what_waits_for_a_token_comes_at_its_instant_without_other_traffic() {
    let (handle, port) = start();
    let limit = Limit {
        rate_micro: 50_000_000,
        burst_micro: 1_000_000,
        reject: false,
        max_backlog: 10,
        max_backlog_bytes: 1_000,
        version: 1,
        full: true,
        expires: i64::MAX,
    };
    assert!(handle.call(move |engine, now| engine.set_bucket("t", limit, now)).expect("running"));
    let mut consumer = Client::subscribe(port, "t", "c", 10);
    let mut publisher = Client::connect(port);
    let begin = Instant::now();
    publisher.publish("t", b"now");
    publisher.publish("t", b"waits");
    assert_eq!((consumer.message(), consumer.message()), (b"now".to_vec(), b"waits".to_vec()));
    assert!(begin.elapsed() >= Duration::from_millis(19), "{:?}", begin.elapsed());
    assert!(handle.stop(PATIENCE));
}

#[test]
fn stop_closes_everything_and_may_be_called_again() {
    let (handle, port) = start();
    let mut client = Client::subscribe(port, "t", "c", 1);
    assert!(handle.stop(PATIENCE));
    assert!(handle.stop(PATIENCE));
    assert_eq!(client.rest(), b"");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(handle.call(|_, _| ()).is_err());
    assert!(handle.start().is_err(), "an engine starts once");
    let (again, _) = start_at(&format!("127.0.0.1:{port}")).expect("the port is free again");
    assert!(again.stop(PATIENCE));
}

#[test]
fn stop_from_several_threads_while_others_call_neither_hangs_nor_panics() {
    let (handle, _) = start();
    let handle = Arc::new(handle);
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let handle = Arc::clone(&handle);
            std::thread::spawn(move || while handle.call(|engine, _| engine.conns.len()).is_ok() {})
        })
        .collect();
    let stoppers: Vec<_> = (0..2)
        .map(|_| {
            let handle = Arc::clone(&handle);
            std::thread::spawn(move || handle.stop(PATIENCE))
        })
        .collect();
    assert!(stoppers.into_iter().all(|stopper| stopper.join().expect("no panic")));
    for caller in callers {
        caller.join().expect("no panic");
    }
}

#[test]
fn an_engine_does_not_outlive_its_handle() {
    let (handle, port) = start();
    let mut client = Client::connect(port);
    client.publish("t", b"x");
    drop(handle);
    assert_eq!(client.rest(), b"");
}

#[test]
fn a_port_in_use_is_an_error_and_leaves_nothing_running() {
    let (handle, port) = start();
    let refused = start_at(&format!("127.0.0.1:{port}")).err().expect("refused");
    assert_eq!((refused.field, refused.error.kind()), (Some("tcp_address"), std::io::ErrorKind::AddrInUse));
    assert!(start_at("no such address:1").is_err());
    assert!(handle.stop(PATIENCE));
}

#[test]
fn in_real_time_only_the_engines_thread_goes_before_ordinary_work() {
    let handle = Handle::new(Config { tcp_address: "127.0.0.1:0".into(), realtime: true, ..Config::default() }).expect("descriptors");
    // SAFETY: plain numbers; 0 is the calling thread.
    let policy = || unsafe { libc::sched_getscheduler(0) };
    let priority = || {
        let mut parameters = libc::sched_param { sched_priority: -1 };
        // SAFETY: `parameters` is valid for the call to fill; 0 is the calling thread.
        assert_eq!(unsafe { libc::sched_getparam(0, &raw mut parameters) }, 0);
        parameters.sched_priority
    };
    let (policy_here, priority_here) = (policy(), priority());
    match handle.start() {
        Ok(_) => {
            assert_eq!(handle.call(move |_, _| policy()).expect("running"), libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK);
            assert_eq!(handle.call(move |_, _| priority()).expect("running"), priority_here + 1);
            assert_eq!((policy(), priority()), (policy_here, priority_here));
        }
        Err(error) => {
            assert_eq!(error.error.kind(), std::io::ErrorKind::PermissionDenied);
            assert!(error.to_string().starts_with("realtime: needs the capability CAP_SYS_NICE"), "{error}");
        }
    }
    assert!(handle.stop(PATIENCE));
}

#[test]
fn an_engine_that_never_started_says_so() {
    let handle = Handle::new(Config::default()).expect("descriptors");
    assert!(handle.call(|_, _| ()).is_err());
    assert!(handle.stop(PATIENCE));
}

#[test]
fn a_panic_on_the_engines_thread_is_told_and_nobody_hangs() {
    let (handle, port) = start();
    let mut client = Client::connect(port);
    assert!(handle.call(|_, _| panic!("on purpose")).is_err());
    assert!(handle.call(|_, _| ()).is_err());
    assert_eq!(client.rest(), b"");
    wait_until("the event", || {
        handle.drain_events().iter().any(|event| matches!(event, Event::Failed { reason } if reason.contains("on purpose")))
    });
    assert!(handle.stop(PATIENCE));
}

#[test]
fn a_client_that_never_reads_blocks_nobody_else() {
    let (handle, port) = start();
    let slow = Client::subscribe(port, "t", "slow", 2_500);
    let mut quick = Client::subscribe(port, "t", "quick", 2_500);
    let mut publisher = Client::connect(port);
    let body = vec![7; 100_000];
    for _ in 0..100 {
        publisher.publish("t", &body);
        assert_eq!(quick.message(), body);
    }
    drop(slow);
    assert!(handle.stop(PATIENCE));
}

#[test]
fn a_slow_reader_gets_everything_once_it_reads() {
    let (handle, port) = start();
    let mut slow = Client::subscribe(port, "t", "c", 2_500);
    let mut publisher = Client::connect(port);
    let body = vec![7; 100_000];
    for _ in 0..150 {
        publisher.publish("t", &body);
    }
    for _ in 0..150 {
        assert_eq!(slow.message(), body);
    }
    assert!(handle.stop(PATIENCE));
}

#[test]
fn hostile_bytes_cost_their_sender_its_connection_and_nobody_else_anything() {
    let (handle, port) = start();
    let mut bystander = Client::subscribe(port, "t", "c", 10);
    let attacks: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"PUB t\n\xff\xff\xff\xff",
        b"MPUB t\n\x7f\xff\xff\xff",
        &[0; 40_000],
        b"IDENTIFY\n\0\0\0\x02[[",
        b"\n",
    ];
    for attack in attacks {
        let mut attacker = Client::connect(port);
        // The engine may have gone away in the middle of it: that is the point.
        let _ = attacker.0.write_all(attack);
        let _ = attacker.0.shutdown(Shutdown::Write);
        let answer = attacker.rest();
        assert!(answer.is_empty() || answer[8..].starts_with(b"E_"), "{answer:?}");
    }
    Client::connect(port).publish("t", b"still here");
    assert_eq!(bystander.message(), b"still here");
    wait_until("the attackers are gone", || connections(&handle) <= 2);
    assert!(handle.stop(PATIENCE));
}

#[test]
fn however_much_clients_send_behind_what_is_refused_they_can_read_why() {
    let (handle, port) = start();
    let mut refused: Vec<_> = (0..12).map(|_| Client::connect(port)).collect();
    let much = [&b"PUB t\n\xff\xff\xff\xff"[..], &vec![b'x'; 1 << 20]].concat();
    for client in &mut refused {
        client.0.write_all(&much).expect("it is taken");
    }
    for mut client in refused {
        client.0.shutdown(Shutdown::Write).expect("it is there");
        assert!(client.rest()[8..].starts_with(b"E_BAD_MESSAGE"));
    }
    wait_until("they are gone", || connections(&handle) == 0);
    assert!(handle.stop(PATIENCE));
}

#[test]
fn so_can_they_on_a_unix_socket() {
    let path = std::env::temp_dir().join(format!("srtm-engine-refused-{}.sock", std::process::id()));
    let handle = Handle::new(Config { tcp_address: path.to_str().expect("UTF-8").into(), ..Config::default() }).expect("descriptors");
    handle.start().expect("a free path");
    let mut client = UnixStream::connect(&path).expect("the engine listens");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client.write_all(&[&b"  V2PUB t\n\xff\xff\xff\xff"[..], &vec![b'x'; 1 << 20]].concat()).expect("it is taken");
    client.shutdown(Shutdown::Write).expect("it is there");
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).expect("an end, no reset");
    assert!(rest[8..].starts_with(b"E_BAD_MESSAGE"));
    wait_until("it is gone", || connections(&handle) == 0);
    assert!(handle.stop(PATIENCE));
}

#[test]
fn a_half_closed_client_gets_its_answers_and_then_the_end() {
    let (handle, port) = start();
    let mut client = Client::connect(port);
    client.send(b"PUB t\n\0\0\0\x01x");
    client.0.shutdown(Shutdown::Write).expect("half closed");
    assert_eq!(client.rest(), b"\0\0\0\x06\0\0\0\0OK");
    assert!(handle.stop(PATIENCE));
}

#[test]
fn what_comes_behind_an_urgent_byte_needs_nothing_else_to_be_heard() {
    let (handle, port) = start();
    let mut client = Client::connect(port);
    client.send(b"PUB t\n\0\0\0\x03a");
    // SAFETY: one byte is sent, from memory that outlives the call.
    let sent = unsafe { libc::send(client.0.as_raw_fd(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) };
    assert_eq!(sent, 1);
    client.send(b"bc");
    assert_eq!(client.frame(), (0, b"OK".to_vec()));
    assert!(handle.stop(PATIENCE));
}

#[test]
fn of_a_crowd_that_leaves_together_every_socket_is_closed_and_who_stays_is_served() {
    let (handle, port) = start();
    let mut crowd: Vec<Client> = (0..200).map(|_| Client::connect(port)).collect();
    let mut stays = Client::connect(port);
    wait_until("all are there", || connections(&handle) == 201);
    crowd.iter().for_each(|client| client.0.shutdown(Shutdown::Write).expect("an end"));
    stays.publish("t", b"x");
    for client in &mut crowd {
        assert_eq!(client.0.read(&mut [0]).expect("the end, not silence"), 0);
    }
    assert_eq!(connections(&handle), 1);
    assert!(handle.stop(PATIENCE));
}

/// They rest behind each other, and when the last of them come there is nothing but their instant to end that.
#[test]
fn a_crowd_that_comes_beside_messages_is_let_in_also_when_no_more_of_them_follow() {
    let (handle, port) = start();
    let mut publisher = Client::connect(port);
    publisher.publish("t", b"x");
    let mut crowd: Vec<Client> = (0..200).map(|_| Client::connect(port)).collect();
    crowd.iter_mut().for_each(|client| client.send(b"PUB t\n\0\0\0\x01x"));
    for client in &mut crowd {
        assert_eq!(client.frame(), (0, b"OK".to_vec()));
    }
    assert_eq!(connections(&handle), 201);
    assert!(handle.stop(PATIENCE));
}

#[test]
fn a_client_that_goes_on_sending_after_a_fatal_error_does_not_keep_the_engine_busy() {
    let (handle, port) = start();
    let mut client = Client::connect(port);
    client.send(b"NONSENSE\n");
    assert_eq!(client.frame().0, 1);
    let noise = [b'x'; 1_000];
    wait_until("the connection is cut", || client.0.write_all(&noise).is_err());
    assert_eq!(connections(&handle), 0);
    assert!(handle.stop(PATIENCE));
}

fn http_engine() -> (Handle, u16, u16) {
    let config = Config { tcp_address: "127.0.0.1:0".into(), http_address: "127.0.0.1:0".into(), ..Config::default() };
    let handle = Handle::new(config).expect("descriptors");
    let ports = handle.start().expect("free ports");
    handle.call(|engine, _| engine.open_http()).expect("running");
    (handle, ports.tcp.expect("a TCP address"), ports.http.expect("a TCP address"))
}

fn http_client(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("the engine listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// The answer's head and body.
fn http_ask(stream: &mut (impl Read + Write), request: &str) -> (String, String) {
    stream.write_all(request.as_bytes()).expect("the engine reads");
    http_answer(stream)
}

fn http_answer(stream: &mut impl Read) -> (String, String) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("an answer");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("text");
    let len = head.split("Content-Length: ").nth(1).and_then(|rest| rest.lines().next()).expect("a length").parse().expect("a number");
    let mut body = vec![0; len];
    stream.read_exact(&mut body).expect("the body");
    (head, String::from_utf8(body).expect("text"))
}

const PUB: &str = "POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx";

#[test]
fn a_publish_by_http_has_the_kernels_stamp_and_its_connection_is_kept() {
    let (handle, tcp, http) = http_engine();
    let mut consumer = Client::subscribe(tcp, "t", "c", 10);
    let mut publisher = http_client(http);
    for _ in 0..300 {
        assert_eq!(http_ask(&mut publisher, PUB).1, "OK");
        assert_eq!(consumer.message(), b"x");
    }
    let (fallbacks, accepted) = handle.call(|engine, _| (engine.timestamp_fallbacks, engine.accepted)).expect("running");
    assert_eq!((fallbacks, accepted), (0, 1));
    assert!(handle.stop(PATIENCE));
}

#[test]
fn what_is_not_answered_here_comes_out_of_the_handle_and_is_answered_through_it() {
    let (handle, _, http) = http_engine();
    let mut client = http_client(http);
    client.write_all(b"GET /stats?topic=a HTTP/1.1\r\nHost: x\r\n\r\nGET /ping HTTP/1.1\r\nHost: x\r\n\r\n").expect("the engine reads");
    let mut requests = Vec::new();
    wait_until("a request", || {
        requests.extend(handle.drain_requests());
        !requests.is_empty()
    });
    assert_eq!(requests[0].target, "/stats?topic=a");
    let id = requests[0].id;
    let body = "b".repeat(3_000_000); // more than a socket takes at once
    let sent = body.clone();
    let respond = move |engine: &mut srtm_engine::engine::Engine, now| {
        engine.respond(id, &Answer { status: 200, content_type: "", headers: &[], body: sent.as_bytes() }, now)
    };
    assert!(handle.call(respond).expect("running"));
    assert!(http_answer(&mut client).1 == body);
    assert_eq!(http_answer(&mut client).1, "OK");
    assert!(handle.stop(PATIENCE));
}

#[test]
fn nobody_gets_an_answer_by_http_before_the_service_is_ready() {
    let config = Config { tcp_address: "127.0.0.1:0".into(), http_address: "127.0.0.1:0".into(), ..Config::default() };
    let handle = Handle::new(config).expect("descriptors");
    let port = handle.start().expect("free ports").http.expect("a TCP address");
    let mut early = http_client(port);
    early.write_all(PUB.as_bytes()).expect("the kernel takes it");
    let connections = || handle.call(|engine, now| engine.overview("", false, now).0).expect("running");
    assert!(serde_json::to_value(connections()).expect("JSON")["http_connections"] == 0);
    handle.call(|engine, _| engine.open_http()).expect("running");
    assert_eq!(http_answer(&mut early).1, "OK");
    assert!(handle.stop(PATIENCE));
}

#[test]
fn closing_http_leaves_the_other_port_alone() {
    let (handle, tcp, http) = http_engine();
    let mut idle = http_client(http);
    assert_eq!(http_ask(&mut idle, PUB).1, "OK");
    let mut publisher = Client::connect(tcp);
    publisher.publish("t", b"x");
    handle.call(|engine, _| engine.close_http()).expect("running");
    assert_eq!(idle.read(&mut [0]).expect("the end"), 0);
    assert!(TcpStream::connect(("127.0.0.1", http)).is_err());
    publisher.publish("t", b"x");
    Client::connect(tcp).publish("t", b"x");
    assert!(handle.stop(PATIENCE));
}

#[test]
fn unix_sockets_serve_both_protocols_and_go_with_the_engine() {
    let folder = std::env::temp_dir().join(format!("srtm-engine-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (tcp, http) = (folder.join("nsq.sock"), folder.join("http.sock"));
    drop(UnixListener::bind(&tcp).expect("a dead socket's file")); // as a killed process leaves it
    let text = |path: &std::path::Path| path.to_str().expect("UTF-8").to_owned();
    let config = Config { tcp_address: text(&tcp), http_address: text(&http), ..Config::default() };
    let handle = Handle::new(config.clone()).expect("descriptors");
    assert_eq!(handle.start().expect("free paths"), Ports { tcp: None, http: None, https: None });
    handle.call(|engine, _| engine.open_http()).expect("running");
    let mut client = UnixStream::connect(&http).expect("the engine listens");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert_eq!(http_ask(&mut client, PUB).1, "OK");
    let mut publisher = UnixStream::connect(&tcp).expect("the engine listens");
    publisher.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    publisher.write_all(b"  V2PUB t\n\0\0\0\x01x").expect("the engine reads");
    publisher.read_exact(&mut [0; 10]).expect("OK");
    let refused = Handle::new(config).expect("descriptors").start().expect_err("in use");
    assert_eq!((refused.field, refused.error.kind()), (Some("tcp_address"), std::io::ErrorKind::AddrInUse));
    assert!(handle.stop(PATIENCE));
    assert!(!tcp.exists() && !http.exists());
    std::fs::remove_dir_all(&folder).expect("ours");
}

#[test]
fn an_http_address_that_cannot_be_had_leaves_nothing_bound() {
    let (handle, _, http) = http_engine();
    let config = Config { tcp_address: "127.0.0.1:0".into(), http_address: format!("127.0.0.1:{http}"), ..Config::default() };
    let refused = Handle::new(config).expect("descriptors").start().expect_err("in use");
    assert_eq!((refused.field, refused.error.kind()), (Some("http_address"), std::io::ErrorKind::AddrInUse));
    assert!(handle.stop(PATIENCE));
}
