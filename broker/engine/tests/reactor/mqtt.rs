//! The MQTT port on real sockets, beside the NSQ port.

use std::io::{Read, Write};
use std::net::TcpStream;

use srtm_engine::config::Config;
use srtm_engine::io::handle::Handle;

use crate::client::{Client, PATIENCE};

fn packet(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = [0; 2]; // short packets alone are read here
    stream.read_exact(&mut head).expect("a packet");
    let mut rest = vec![0; usize::from(head[1])];
    stream.read_exact(&mut rest).expect("all of it");
    [&head[..], &rest].concat()
}

#[test]
fn a_client_of_mqtt_and_one_of_nsq_exchange_messages() {
    let addresses = ("127.0.0.1:0".into(), "127.0.0.1:0".into());
    let config = Config { tcp_address: addresses.0, mqtt_address: addresses.1, ..Config::default() };
    let handle = Handle::new(config).expect("descriptors");
    let ports = handle.start().expect("free ports");
    let mut consumer = Client::subscribe(ports.tcp.expect("a port"), "t", "c", 10);
    let mut client = TcpStream::connect(("127.0.0.1", ports.mqtt.expect("a port"))).expect("the engine listens");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");

    client.write_all(b"\x10\x0d\0\x04MQTT\x04\x02\0\x3c\0\x01a").expect("the engine reads");
    assert_eq!(packet(&mut client), b"\x20\x02\0\0");
    client.write_all(b"\x82\x06\0\x01\0\x01t\0").expect("the engine reads");
    assert_eq!(packet(&mut client), b"\x90\x03\0\x01\0");
    client.write_all(b"\x32\x07\0\x01t\0\x02by").expect("the engine reads");
    assert_eq!(packet(&mut client), b"\x30\x05\0\x01tby", "its own message");
    assert_eq!(packet(&mut client), b"\x40\x02\0\x02");
    assert_eq!(consumer.message(), b"by");
    drop(client);
    assert!(handle.stop(PATIENCE));
}
