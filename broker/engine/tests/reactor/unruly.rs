//! Clients that are slow, hostile, half closed, or come and go in a crowd.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use srtm_engine::config::Config;
use srtm_engine::io::handle::Handle;

use crate::client::{Client, PATIENCE, connections, start, wait_until};

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
    let handle = Handle::new(Config { tcp_address: path.to_str().expect("UTF-8").into(), ..Config::default() })
        .expect("descriptors");
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

#[test]
fn who_sends_byte_by_byte_is_served_in_the_end_and_its_leaving_is_noticed() {
    let (handle, port) = start();
    let mut consumer = Client::subscribe(port, "t", "c", 100);
    let mut slow: Vec<Client> = (0..20).map(|_| Client::connect(port)).collect();
    for byte in b"PUB t\n\0\0\0\x0babcdefghijkPUB t\n\0" {
        slow.iter_mut().for_each(|client| client.send(&[*byte]));
    }
    for client in &mut slow {
        assert_eq!(client.frame(), (0, b"OK".to_vec()));
    }
    (0..20).for_each(|_| assert_eq!(consumer.message(), b"abcdefghijk"));
    for client in &mut slow {
        client.send(b"\0\0\x01x"); // the rest, in one piece
        assert_eq!(client.frame(), (0, b"OK".to_vec()));
    }
    (0..20).for_each(|_| assert_eq!(consumer.message(), b"x"));
    for byte in b"PUB t\n" {
        slow.iter_mut().for_each(|client| client.send(&[*byte]));
    }
    drop(slow);
    wait_until("all have left", || connections(&handle) == 1);
    assert!(handle.stop(PATIENCE));
}
