//! How an engine starts, and how it ends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use srtm_engine::config::Config;
use srtm_engine::event::Event;
use srtm_engine::io::handle::Handle;

use crate::client::{Client, PATIENCE, start, start_at, wait_until};

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
fn a_stop_gives_the_answers_that_wait_for_the_disk() {
    let path = std::env::temp_dir().join(format!("srtm-reactor-{}", std::process::id()));
    std::fs::create_dir(&path).expect("a new directory");
    let on_disk = || {
        let data_path = path.to_str().expect("text").to_owned();
        let config = Config { tcp_address: "127.0.0.1:0".into(), data_path, mem_queue_size: 0, ..Config::default() };
        let handle = Handle::new(config).expect("valid");
        let port = handle.start().expect("a free port").tcp.expect("a TCP address");
        (handle, port)
    };
    let kept = |handle: &Handle| {
        handle.call(|engine, _| engine.topics.values().map(|topic| topic.queue.len()).sum::<usize>()).expect("running")
    };
    let (handle, port) = on_disk();
    let mut publisher = Client::connect(port);
    publisher.publish("u#ephemeral", b"x");
    publisher.publish("v#ephemeral", b"x"); // two flows: what overflows is written in portions
    let publish = [&b"PUB t\n"[..], &60_000u32.to_be_bytes(), &[b'x'; 60_000]].concat();
    let mut sends = publisher.0.try_clone().expect("a descriptor");
    let sender = std::thread::spawn(move || while sends.write_all(&publish).is_ok() {});
    let mut answers = publisher.0.try_clone().expect("a descriptor");
    let reader = std::thread::spawn(move || {
        let mut read = Vec::new();
        let _ = answers.read_to_end(&mut read); // a reset is an end too
        read
    });
    wait_until("something is to be written", || {
        handle.call(|engine, _| engine.topics.values().any(|topic| topic.queue.is_to_be_written())).expect("running")
    });
    assert!(handle.stop(PATIENCE));
    let ok = [&6u32.to_be_bytes()[..], &0u32.to_be_bytes(), b"OK"].concat();
    sender.join().expect("no panic");
    let answers = reader.join().expect("no panic");
    assert_eq!(answers, ok.repeat(answers.len() / ok.len()));
    let (again, _) = on_disk();
    assert_eq!(kept(&again), answers.len() / ok.len(), "each was promised, and nothing else is there");
    assert!(again.stop(PATIENCE));
    std::fs::remove_dir_all(&path).expect("ours");
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
    let handle = Handle::new(Config { tcp_address: "127.0.0.1:0".into(), realtime: true, ..Config::default() })
        .expect("descriptors");
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
            assert_eq!(
                handle.call(move |_, _| policy()).expect("running"),
                libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK
            );
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
        handle
            .drain_events()
            .iter()
            .any(|event| matches!(event, Event::Failed { reason } if reason.contains("on purpose")))
    });
    assert!(handle.stop(PATIENCE));
}

#[cfg(not(feature = "packet-clock"))]
#[test]
fn a_packet_clock_needs_a_build_with_its_feature() {
    let arrival_clock = srtm_engine::config::ClockSource::Packet;
    let handle = Handle::new(Config { tcp_address: "127.0.0.1:0".into(), arrival_clock, ..Config::default() })
        .expect("a handle");
    let refused = handle.start().map(drop).expect_err("no such feature").error;
    assert_eq!(refused.to_string(), "arrival_clock: packet needs a build with the cargo feature packet-clock");
}
