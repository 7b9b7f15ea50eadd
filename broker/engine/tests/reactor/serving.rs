//! What is published is delivered, at its instant and with the kernel's stamp.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use srtm_engine::io::handle::Handle;
use srtm_engine::queueing::topic::Limit;

use crate::client::{Client, PATIENCE, connections, start, start_at, wait_until};

#[test]
fn what_is_published_is_delivered_with_the_kernels_stamp() {
    let (handle, port) = start();
    let mut consumer = Client::subscribe(port, "t", "c", 10);
    let mut publisher = Client::connect(port);
    for i in 0..100u8 {
        publisher.publish("t", &[i; 10]);
        assert_eq!(consumer.message(), [i; 10]);
    }
    let fallbacks = handle.call(|engine, _| engine.counters.timestamp_fallbacks).expect("running");
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
    let sharing = handle.call(|engine, _| engine.counters.sharing).expect("running");
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
    let in_flight =
        || handle.call(|engine, _| engine.channels.values().next().map_or(0, |channel| channel.in_flight.len()));
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
    for (address, hosts) in
        [("[::1]:0", &["::1"][..]), ("[::]:0", &["::1", "127.0.0.1"]), ("0.0.0.0:0", &["::1", "127.0.0.1"])]
    {
        let (handle, port) = start_at(address).expect("IPv6");
        for host in hosts {
            let mut client = Client::connect_to(host, port);
            client.publish("t", b"x");
            let told =
                handle.call(|engine, _| engine.conns.values().map(|conn| conn.remote.to_string()).collect::<Vec<_>>());
            let begin = if host.contains(':') { format!("[{host}]:") } else { format!("{host}:") };
            assert!(told.expect("running").iter().any(|remote| remote.starts_with(&begin)), "{address}: {host}");
        }
        let fallbacks = handle.call(|engine, _| engine.counters.timestamp_fallbacks).expect("running");
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
