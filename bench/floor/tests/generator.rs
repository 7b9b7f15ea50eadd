//! The floor as a process of its own: the load generator takes it for a broker.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use srtm_loadgen::{Flood, FloodPlan, LoadGen, Plan};

struct Floor {
    process: Child,
    address: String,
}

impl Floor {
    fn start() -> Floor {
        let mut process = Command::new(env!("CARGO_BIN_EXE_srtm-floor"))
            .arg("127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("start");
        let mut address = String::new();
        let output = process.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut address).expect("its address");
        Floor { process, address: address.trim().to_owned() }
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn everything_that_the_generator_sends_is_answered_and_forwarded_once() {
    for (protocol, qos, batch) in [("nsq", 0, 1), ("nsq", 0, 10), ("mqtt", 0, 1), ("mqtt", 1, 1), ("mqtt", 1, 10)] {
        let floor = Floor::start();
        let plan = json!({
            "protocol": protocol, "qos": qos, "topic": "load", "targets": [floor.address], "subscribers": [{"target": 0}],
            "publishers": {
                "ids": (0..20).map(|i| format!("p{i}")).collect::<Vec<_>>(), "target": vec![0; 20], "rate": vec![100.0; 20],
                "batch": vec![batch; 20], "group": vec![-1; 20], "process": vec!["poisson"; 20],
            },
            "duration_s": 0.5, "warmup_s": 0.1, "drain_s": 5.0, "slo_ms": 50.0,
        });
        let generator =
            LoadGen::new(Plan::parse(plan.to_string().as_bytes()).expect("a valid plan")).expect("descriptors");
        generator.start().expect("start");
        assert!(generator.wait(Duration::from_secs(20)), "{:?}", generator.progress());
        let result: Value = serde_json::from_slice(&generator.result().expect("a result")).expect("JSON");
        let sent = result["sent"].as_u64().expect("a number");
        assert!(sent > 500, "{sent} of about 1,000");
        let answered = if (protocol, qos) == ("mqtt", 0) { &json!(0) } else { &json!(sent) };
        assert_eq!((&result["acknowledged"], &result["received"]), (answered, &json!(sent)), "{protocol} {qos}");
        for field in ["lost", "duplicates", "foreign", "publisher_reconnects", "subscriber_reconnects"] {
            assert_eq!(result[field], 0, "{field}");
        }
    }
}

fn flood(floor: &Floor, task: Value) -> (Flood, Value) {
    let plan = json!({"target": floor.address, "limit_s": 20, "task": task});
    let flood = Flood::new(FloodPlan::parse(plan.to_string().as_bytes()).expect("a valid plan"));
    flood.start().expect("start");
    assert!(flood.wait(Duration::from_secs(30)));
    let result = serde_json::from_slice(&flood.result().expect("a result")).expect("JSON");
    (flood, result)
}

#[test]
fn a_flood_is_published_and_read_back_whole() {
    let floor = Floor::start();
    let publish = json!({"kind": "publish", "topic": "t", "connections": 3, "messages": 20_000, "batch": 200, "message_size": 200});
    let (_, result) = flood(&floor, publish);
    assert_eq!(result["count"], 20_000);
    let (_, result) = flood(
        &floor,
        json!({"kind": "read", "topic": "t", "channel": "c", "messages": 20_000, "rdy": 2500, "buffered": true}),
    );
    assert_eq!((&result["count"], &result["intact"]), (&json!(20_000), &json!(true)));
    assert!(result["elapsed_s"].as_f64().is_some_and(|s| s > 0.0), "{result}");
}

#[test]
fn a_reader_that_gets_others_messages_says_so() {
    let floor = Floor::start();
    let publish =
        json!({"kind": "publish", "topic": "t", "connections": 1, "messages": 10, "batch": 5, "message_size": 8});
    flood(&floor, publish.clone());
    flood(&floor, publish);
    // twenty wait, 0 to 9 twice
    let (_, result) = flood(
        &floor,
        json!({"kind": "read", "topic": "t", "channel": "c", "messages": 20, "rdy": 1, "buffered": false}),
    );
    assert_eq!(result["intact"], false);
}

#[test]
fn a_fan_out_brings_every_message_to_every_channel() {
    let floor = Floor::start();
    let task = json!({
        "kind": "fan_out", "topic": "t", "channels": 10, "batch": 20, "window": 40, "message_size": 100, "rdy": 2500, "warmup_s": 0.1, "duration_s": 0.3,
    });
    let (_, result) = flood(&floor, task);
    assert!(result["count"].as_u64().is_some_and(|count| count > 1_000), "{result}");
    assert_eq!(result["intact"], true);
}

#[test]
fn a_crowd_stays_until_it_is_told_to_go() {
    let floor = Floor::start();
    let files = || std::fs::read_dir(format!("/proc/{}/fd", floor.process.id())).expect("the floor runs").count();
    let alone = files();
    let (flood, result) =
        flood(&floor, json!({"kind": "connect", "connections": 100, "at_once": 10, "yielding": true}));
    assert_eq!(result["count"], 100);
    assert_eq!(files(), alone + 100);
    flood.stop();
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while files() > alone {
        assert!(std::time::Instant::now() < deadline, "the crowd has not gone");
        std::thread::yield_now();
    }
}

#[test]
fn a_flood_that_does_not_end_in_time_fails() {
    let floor = Floor::start();
    let plan = json!({"target": floor.address, "limit_s": 0.2, "task": {"kind": "read", "topic": "t", "channel": "c", "messages": 1, "rdy": 1, "buffered": true}});
    let flood = Flood::new(FloodPlan::parse(plan.to_string().as_bytes()).expect("a valid plan"));
    flood.start().expect("start");
    assert!(flood.wait(Duration::from_secs(20)));
    let error = flood.result().expect_err("nothing comes").to_string();
    assert!(error.starts_with(&floor.address) && error.contains("time limit"), "{error}");
}

#[test]
fn what_comes_before_the_subscriber_waits_for_it() {
    let floor = Floor::start();
    let mut connection = TcpStream::connect(&floor.address).expect("connect");
    connection.set_read_timeout(Some(Duration::from_secs(10))).expect("a time limit");
    connection.write_all(b"  V2PUB t\n\0\0\0\x05early").expect("write");
    let mut answer = [0; 10];
    connection.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"\0\0\0\x06\0\0\0\0OK");
    connection.write_all(b"SUB t c\nRDY 1\n").expect("write");
    let mut rest = [0; 10 + 34 + 5];
    connection.read_exact(&mut rest).expect("what waited");
    assert!(rest.ends_with(b"0000000000000001early"), "{rest:?}");
}

#[test]
fn an_address_that_is_none_is_refused_by_name() {
    let output = Command::new(env!("CARGO_BIN_EXE_srtm-floor")).arg("here").output().expect("run");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("address: here: must be HOST:PORT"));
}
