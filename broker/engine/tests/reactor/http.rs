//! The HTTP port, and Unix sockets for both.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};

use srtm_engine::config::Config;
use srtm_engine::http::answer::Answer;
use srtm_engine::io::handle::Handle;
use srtm_engine::io::listener::Ports;

use crate::client::{Client, PATIENCE, wait_until};

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
    let len = head
        .split("Content-Length: ")
        .nth(1)
        .and_then(|rest| rest.lines().next())
        .expect("a length")
        .parse()
        .expect("a number");
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
    let (fallbacks, accepted) =
        handle.call(|engine, _| (engine.counters.timestamp_fallbacks, engine.counters.accepted)).expect("running");
    assert_eq!((fallbacks, accepted), (0, 1));
    assert!(handle.stop(PATIENCE));
}

#[test]
fn what_is_not_answered_here_comes_out_of_the_handle_and_is_answered_through_it() {
    let (handle, _, http) = http_engine();
    let mut client = http_client(http);
    client
        .write_all(b"GET /stats?topic=a HTTP/1.1\r\nHost: x\r\n\r\nGET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
        .expect("the engine reads");
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
    assert_eq!(
        handle.start().expect("free paths"),
        Ports { tcp: None, http: None, https: None, mqtt: None, mqtts: None, mqtt_ws: None, mqtt_wss: None }
    );
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
    let config =
        Config { tcp_address: "127.0.0.1:0".into(), http_address: format!("127.0.0.1:{http}"), ..Config::default() };
    let refused = Handle::new(config).expect("descriptors").start().expect_err("in use");
    assert_eq!((refused.field, refused.error.kind()), (Some("http_address"), std::io::ErrorKind::AddrInUse));
    assert!(handle.stop(PATIENCE));
}
