//! The thread itself: on a real engine, and dropped. Every wait is bounded.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use super::Worker;
use crate::config::Config;
use crate::harness::pair::{Pair, decode, identify, ok, pub_};
use crate::io::handle::Handle;
use crate::io::shared::Shared;
use crate::scheduling::handshake_queue::MAX_AWAY;
use crate::transport::testing::{Client, TLS12, TLS13, tls_config};

const PATIENCE: Duration = Duration::from_secs(10);

/// Of each thread of that name.
fn nice_values(name: &str) -> Vec<i32> {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux").map(|task| task.expect("a thread").path());
    let stats = tasks.filter_map(|task| fs::read_to_string(task.join("stat")).ok()); // it may have ended
    let fields = stats.filter_map(|stat| stat.split_once(&format!("({name}) ")).map(|(_, fields)| fields.to_owned()));
    fields.map(|fields| fields.split(' ').nth(16).expect("proc(5)").parse().expect("a nice value")).collect()
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("the engine listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

fn read(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = vec![0; 64 << 10];
    let len = stream.read(&mut bytes).expect("the engine answers");
    assert!(len > 0, "the stream goes on");
    bytes.truncate(len);
    bytes
}

/// Say `plain` behind the handshake, and hear so many bytes.
fn ask(stream: &mut TcpStream, client: &mut Client, plain: &[u8], len: usize) -> Vec<u8> {
    let mut said = Vec::new();
    while client.0.is_handshaking() {
        stream.write_all(&client.send(b"")).expect("the engine reads");
        if client.0.is_handshaking() {
            said.extend(client.receive(&read(stream)).expect("TLS"));
        }
    }
    stream.write_all(&client.send(plain)).expect("the engine reads");
    while said.len() < len {
        said.extend(client.receive(&read(stream)).expect("TLS"));
    }
    said
}

#[test]
fn a_nicer_thread_takes_the_steps_on_both_ports_and_lets_the_reactor_end() {
    let config = Config { tcp_address: "127.0.0.1:0".into(), https_address: "127.0.0.1:0".into(), ..tls_config() };
    let handle = Handle::new(config).expect("valid");
    let ports = handle.start().expect("free ports");
    handle.call(|engine, _| engine.open_http()).expect("running");
    let [reactor] = nice_values("srtm-engine")[..] else { panic!("one reactor") };
    assert!(nice_values("srtm-handshakes").contains(&(reactor + 10).min(19)));

    for versions in [TLS12, TLS13] {
        let mut stream = connect(ports.tcp.expect("a TCP address"));
        stream
            .write_all(&[b"  V2", &identify(r#"{"feature_negotiation":true,"tls_v1":true}"#)[..]].concat())
            .expect("the engine reads");
        read(&mut stream);
        let said = ask(&mut stream, &mut Client::new(versions, None), &pub_("t", "x"), 20);
        assert_eq!(decode(&said), [ok(), ok()]);
        let said = ask(
            &mut connect(ports.https.expect("an HTTPS port")),
            &mut Client::new(versions, None),
            b"GET /ping HTTP/1.1\r\nHost: a\r\n\r\n",
            20,
        );
        assert!(said.starts_with(b"HTTP/1.1 200 OK\r\n"));
    }

    let mut begun: Vec<TcpStream> = (0..20).map(|_| connect(ports.https.expect("an HTTPS port"))).collect();
    for stream in &mut begun {
        stream.write_all(&Client::new(TLS13, None).send(b"")).expect("the engine reads");
    }
    assert!(handle.stop(PATIENCE), "also while handshakes wait");
}

#[test]
fn it_is_over_when_it_is_dropped_whatever_is_out() {
    let mut pair = Pair::with(tls_config());
    for _ in 0..MAX_AWAY {
        let key = pair.engine.handle_accept_https("192.0.2.1:5000", pair.now);
        pair.send(key, Client::new(TLS13, None).send(b""));
    }
    let shared = Arc::new(Shared::new().expect("descriptors"));
    let worker = Worker::start(Arc::clone(&shared)).expect("a thread");
    for _ in 0..MAX_AWAY {
        worker.give(pair.engine.poll_handshake().expect("a step")).expect("it takes them");
    }
    assert!(Arc::strong_count(&shared) > 1, "it holds what it wakes");
    drop(worker);
    assert_eq!(Arc::strong_count(&shared), 1);
}
