//! Whole runs against a tiny NSQ server of threads, with faults injected: what the generator counts is what happened.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};
use srtm_loadgen::{LoadGen, Plan};

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Every tenth publish is refused.
    Refuse,
    /// Every tenth message is not delivered.
    Lose,
    /// Every tenth message is delivered twice.
    Repeat,
    /// The connection closes after its fifth publish, once.
    HangUp,
    /// All subscribers' connections close at the tenth publish.
    Desert,
    /// The tenth answer is no frame.
    Babble,
    /// Every answer waits until the server has been idle for that long.
    Stall(Duration),
}

struct Server {
    fault: Fault,
    subscribers: Mutex<Vec<TcpStream>>,
    published: AtomicU64,
    finished: AtomicU64,
    hung_up: AtomicU64,
    max_rdy_count: u64,
}

impl Server {
    fn start(fault: Fault) -> (Arc<Server>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address").to_string();
        let server = Arc::new(Server {
            fault,
            subscribers: Mutex::new(Vec::new()),
            published: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            hung_up: AtomicU64::new(0),
            max_rdy_count: 2500,
        });
        let accepting = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = accepting.clone();
                // A connection ends with an error when the generator closes it: the end of its thread and of nothing
                // else.
                thread::spawn(move || server.serve(stream).ok());
            }
        });
        (server, address)
    }

    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        let mut input = BufReader::new(stream.try_clone()?);
        let mut magic = [0; 4];
        input.read_exact(&mut magic)?;
        assert_eq!(&magic, b"  V2");
        let mut of_connection = 0;
        loop {
            let mut line = String::new();
            if input.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let words: Vec<&str> = line.trim_end().split(' ').collect();
            match words[0] {
                "IDENTIFY" => self.identify(&stream, &sized(&mut input)?)?,
                "SUB" => {
                    send(&stream, 0, b"OK")?;
                    self.subscribers.lock().expect("lock").push(stream.try_clone()?);
                }
                "FIN" => drop(self.finished.fetch_add(1, Ordering::SeqCst)),
                "PUB" => {
                    of_connection += 1;
                    let body = sized(&mut input)?;
                    self.publish(&stream, &[&body])?;
                }
                "MPUB" => {
                    let many = sized(&mut input)?;
                    let size = 4 + u32::from_be_bytes(many[4..8].try_into().expect("4 bytes")) as usize;
                    let bodies: Vec<&[u8]> = many[4..].chunks(size).map(|chunk| &chunk[4..]).collect();
                    assert_eq!(bodies.len(), u32::from_be_bytes(many[..4].try_into().expect("4 bytes")) as usize);
                    self.publish(&stream, &bodies)?;
                }
                "RDY" | "NOP" => {}
                other => panic!("command {other}"),
            }
            let closing = self.fault == Fault::HangUp && of_connection == 5;
            if closing && self.hung_up.fetch_add(1, Ordering::SeqCst) == 0 {
                return stream.shutdown(std::net::Shutdown::Both);
            }
        }
    }

    fn identify(&self, stream: &TcpStream, json: &[u8]) -> io::Result<()> {
        let identity: Value = serde_json::from_slice(json).expect("JSON");
        assert_eq!(identity["feature_negotiation"], true);
        assert!(identity["client_id"].is_string());
        send(stream, 0, json!({"max_rdy_count": self.max_rdy_count}).to_string().as_bytes())?;
        send(stream, 0, b"_heartbeat_")
    }

    fn publish(&self, stream: &TcpStream, bodies: &[&[u8]]) -> io::Result<()> {
        let n = self.published.fetch_add(1, Ordering::SeqCst);
        if self.fault == Fault::Refuse && n.is_multiple_of(10) {
            return send(stream, 1, b"E_RATE_LIMITED PUB retry after 3 ms");
        }
        if let Fault::Stall(pause) = self.fault {
            thread::sleep(pause);
        }
        if self.fault == Fault::Desert && n == 10 {
            let subscribers = std::mem::take(&mut *self.subscribers.lock().expect("lock"));
            subscribers.iter().try_for_each(|subscriber| subscriber.shutdown(std::net::Shutdown::Both))?;
        }
        if self.fault == Fault::Babble && n == 10 {
            return stream.try_clone()?.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
        send(stream, 0, b"OK")?;
        let copies = match self.fault {
            Fault::Lose if n.is_multiple_of(10) => 0,
            Fault::Repeat if n.is_multiple_of(10) => 2,
            _ => 1,
        };
        let mut subscribers = self.subscribers.lock().expect("lock");
        for body in std::iter::repeat_n(bodies, copies).flatten() {
            let message = [&[0; 10][..], format!("{n:016x}").as_bytes(), body].concat();
            // those of earlier runs have gone
            subscribers.retain(|subscriber| send(subscriber, 2, &message).is_ok());
        }
        Ok(())
    }
}

fn sized(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut size = [0; 4];
    input.read_exact(&mut size)?;
    let mut body = vec![0; u32::from_be_bytes(size) as usize];
    input.read_exact(&mut body)?;
    Ok(body)
}

fn send(mut stream: &TcpStream, kind: u32, data: &[u8]) -> io::Result<()> {
    let size = data.len() as u32 + 4;
    stream.write_all(&[&size.to_be_bytes(), &kind.to_be_bytes(), data].concat())
}

fn plan(target: &str, publishers: usize, rate: f64, batch: u32) -> Value {
    json!({
        "topic": "load", "targets": [target], "subscribers": [{"target": 0}],
        "publishers": {
            "ids": (0..publishers).map(|i| format!("p{i}")).collect::<Vec<_>>(),
            "target": vec![0; publishers], "rate": vec![rate; publishers], "batch": vec![batch; publishers],
            "group": vec![-1; publishers], "process": vec!["poisson"; publishers],
        },
        "duration_s": 0.5, "warmup_s": 0.1, "drain_s": 2.0, "slo_ms": 50.0,
    })
}

fn started(plan: &Value) -> LoadGen {
    let generator = LoadGen::new(Plan::parse(plan.to_string().as_bytes()).expect("a valid plan")).expect("descriptors");
    generator.start().expect("start");
    generator
}

fn run(plan: &Value) -> Value {
    let generator = started(plan);
    assert!(generator.wait(Duration::from_secs(20)), "{:?}", generator.progress());
    serde_json::from_slice(&generator.result().expect("a result")).expect("JSON")
}

fn count(result: &Value, field: &str) -> u64 {
    result[field].as_u64().unwrap_or_else(|| panic!("{field} in {result}"))
}

#[test]
fn everything_that_is_sent_arrives_once_and_is_counted_once() {
    let (server, address) = Server::start(Fault::None);
    let result = run(&plan(&address, 20, 50.0, 1));
    let sent = count(&result, "sent");
    assert!((350..650).contains(&sent), "{sent} of about 500");
    for field in ["offered", "acknowledged", "received"] {
        assert_eq!(count(&result, field), sent, "{field}");
    }
    for field in ["lost", "duplicates", "refused", "foreign", "publisher_reconnects", "subscriber_reconnects"] {
        assert_eq!(count(&result, field), 0, "{field}");
    }
    let expected =
        ["p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms"].map(|field| result[field].as_f64().expect(field));
    assert!(expected[0] > 0.0 && expected.is_sorted(), "{expected:?}");
    assert!(result["ack_p50_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{}", result["ack_p50_ms"]);
    let warm = server.published.load(Ordering::SeqCst) - sent;
    assert!((50..150).contains(&warm), "{warm} of about 100");
    // the last acknowledgements may still be in the server's buffers
    let deadline = Instant::now() + Duration::from_secs(5);
    while server.finished.load(Ordering::SeqCst) < sent + warm {
        assert!(Instant::now() < deadline, "a message was not acknowledged");
        thread::yield_now();
    }
}

#[test]
fn the_same_seed_offers_the_same_and_another_seed_something_else() {
    let (_server, address) = Server::start(Fault::None);
    let mut plan = plan(&address, 5, 100.0, 1);
    let first = count(&run(&plan), "offered");
    assert_eq!(count(&run(&plan), "offered"), first);
    plan["seed"] = json!(2);
    assert_ne!(count(&run(&plan), "offered"), first);
}

#[test]
fn batches_go_as_one_mpub_or_as_pubs() {
    for mpub in [true, false] {
        let (server, address) = Server::start(Fault::None);
        let mut plan = plan(&address, 5, 100.0, 4);
        plan["mpub"] = json!(mpub);
        plan["warmup_s"] = json!(0);
        let result = run(&plan);
        let sent = count(&result, "sent");
        assert_eq!((count(&result, "received"), count(&result, "acknowledged")), (sent, sent));
        assert_eq!(server.published.load(Ordering::SeqCst), if mpub { sent / 4 } else { sent });
    }
}

#[test]
fn refusals_losses_and_repetitions_are_told_apart() {
    for fault in [Fault::Refuse, Fault::Lose, Fault::Repeat] {
        let (server, address) = Server::start(fault);
        let mut plan = plan(&address, 10, 50.0, 1);
        (plan["warmup_s"], plan["drain_s"]) = (json!(0), json!(0.2));
        let result = run(&plan);
        let tenth = server.published.load(Ordering::SeqCst).div_ceil(10);
        let of = |wanted: Fault| if fault == wanted { tenth } else { 0 };
        assert_eq!(count(&result, "refused"), of(Fault::Refuse));
        assert_eq!(count(&result, "lost"), of(Fault::Lose));
        assert_eq!(count(&result, "duplicates"), of(Fault::Repeat));
        assert_eq!(count(&result, "foreign"), 0);
        if fault == Fault::Refuse {
            assert_eq!(result["errors"], json!({"E_RATE_LIMITED": tenth}));
            assert_eq!(result["error_texts"][0], "E_RATE_LIMITED PUB retry after 3 ms");
        }
    }
}

#[test]
fn a_publisher_whose_connection_drops_comes_back_and_sends_what_waited() {
    let (server, address) = Server::start(Fault::HangUp);
    let mut plan = plan(&address, 2, 100.0, 1);
    (plan["warmup_s"], plan["drain_s"]) = (json!(0), json!(0.5));
    let result = run(&plan);
    assert_eq!((count(&result, "publisher_reconnects"), &result["errors"]), (1, &json!({"CONNECTION": 1})));
    assert_eq!(count(&result, "sent"), count(&result, "offered"));
    assert_eq!(count(&result, "sent") - count(&result, "lost"), count(&result, "received"));
    // What waited for the connection was sent late, and its latency says so: the reconnection takes 200 ms.
    assert!(result["max_ms"].as_f64().is_some_and(|ms| ms > 100.0), "{}", result["max_ms"]);
    assert_eq!(server.published.load(Ordering::SeqCst), count(&result, "received"));
}

#[test]
fn a_subscriber_whose_connection_drops_comes_back() {
    let (_server, address) = Server::start(Fault::Desert);
    let mut plan = plan(&address, 2, 100.0, 1);
    (plan["warmup_s"], plan["drain_s"]) = (json!(0), json!(0.2));
    let result = run(&plan);
    assert_eq!((count(&result, "subscriber_reconnects"), &result["errors"]), (1, &json!({"CONNECTION": 1})));
    // half a second at 200 msg/s; while nobody subscribes, this server delivers nothing
    assert!(count(&result, "received") > 20, "{}", result["received"]);
    assert_eq!(count(&result, "received") + count(&result, "lost"), count(&result, "sent"));
}

#[test]
fn a_broker_that_talks_nonsense_costs_a_connection_and_not_the_run() {
    let (_server, address) = Server::start(Fault::Babble);
    let mut plan = plan(&address, 2, 100.0, 1);
    (plan["warmup_s"], plan["drain_s"]) = (json!(0), json!(0.2));
    let result = run(&plan);
    assert_eq!((count(&result, "publisher_reconnects"), &result["errors"]), (1, &json!({"CONNECTION": 1})));
    assert!(
        result["error_texts"][0].as_str().is_some_and(|text| text.contains("a frame of")),
        "{}",
        result["error_texts"]
    );
    assert_eq!((count(&result, "sent"), count(&result, "lost")), (count(&result, "offered"), 1));
}

#[test]
fn a_slow_broker_shows_in_the_latency_and_not_in_the_lateness() {
    let (_server, address) = Server::start(Fault::Stall(Duration::from_millis(20)));
    let mut plan = plan(&address, 1, 100.0, 1);
    plan["drain_s"] = json!(5);
    let result = run(&plan);
    // 100 msg/s offered to a server of 50 msg/s: the queue grows for 0.6 s, so the last waits about 0.6 s. A closed
    // loop would report 20 ms.
    // The generator is late by what the machine makes it, which does not add up.
    let of = |name: &str| result[name].as_f64().expect("a number");
    assert!(of("p95_ms") > 300.0, "{}", of("p95_ms"));
    assert!(of("ack_p99_ms") > 300.0, "{}", of("ack_p99_ms"));
    assert!(of("lateness_p99_ms") < of("p95_ms") / 2.0, "{} of {}", of("lateness_p99_ms"), of("p95_ms"));
    assert_eq!(count(&result, "received"), count(&result, "offered"));
}

#[test]
fn two_channels_on_two_brokers_get_a_copy_each() {
    let brokers = [Server::start(Fault::None), Server::start(Fault::None)];
    let mut plan = plan(&brokers[0].1, 4, 50.0, 1);
    plan["targets"] = json!([brokers[0].1, brokers[1].1]);
    plan["publishers"]["target"] = json!([0, 1, 0, 1]);
    plan["publishers"]["group"] = json!([0, 0, 1, 1]);
    plan["subscribers"] = json!([{"target": 0}, {"target": 1}, {"target": 1, "channel": "other"}]);
    let result = run(&plan);
    let at = |i: usize, field: &str| count(&result["targets"][i], field);
    // each group has one member on each broker
    assert_eq!(at(0, "sent"), at(1, "sent"));
    assert_eq!((at(0, "received"), at(1, "received")), (at(0, "sent"), 2 * at(1, "sent")));
    assert_eq!((count(&result, "received"), count(&result, "lost")), (at(0, "received") + at(1, "received"), 0));
}

#[test]
fn a_stop_ends_the_run_at_once_with_what_was_measured() {
    let (server, address) = Server::start(Fault::None);
    let mut plan = plan(&address, 5, 100.0, 1);
    (plan["duration_s"], plan["warmup_s"]) = (json!(600), json!(0));
    let generator = started(&plan);
    while server.published.load(Ordering::SeqCst) < 10 {
        thread::yield_now();
    }
    generator.stop();
    assert!(generator.wait(Duration::from_secs(60)));
    let result: Value = serde_json::from_slice(&generator.result().expect("a result")).expect("JSON");
    assert!(count(&result, "sent") >= 10);
    assert_eq!((&result["stopped"], &result["valid"]), (&json!(true), &json!(false)));
}

#[test]
fn a_run_that_cannot_start_says_which_broker_and_why() {
    let gone =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").to_string();
    let generator = started(&plan(&gone, 2, 10.0, 1));
    assert!(generator.wait(Duration::from_secs(5)));
    let error = generator.result().expect_err("nobody listens").to_string();
    assert!(error.starts_with(&gone) && error.contains("refused"), "{error}");

    let (_server, address) = Server::start(Fault::None);
    let mut greedy = plan(&address, 2, 10.0, 1);
    greedy["subscribers"][0]["rdy"] = json!(2501);
    let generator = started(&greedy);
    assert!(generator.wait(Duration::from_secs(5)));
    let error = generator.result().expect_err("RDY too large").to_string();
    assert!(error.contains("rdy: 2501: must be at most"), "{error}");
}

#[test]
fn a_result_before_the_end_and_a_second_start_are_errors() {
    let (_server, address) = Server::start(Fault::None);
    let generator = started(&plan(&address, 1, 10.0, 1));
    assert_eq!(generator.result().expect_err("not over").to_string(), "the run has not ended");
    assert_eq!(generator.start().expect_err("started").to_string(), "the load generator was started already");
}

#[test]
fn each_message_is_kept_where_the_plan_asks_for_it() {
    let (_server, address) = Server::start(Fault::None);
    let mut plan = plan(&address, 5, 100.0, 1);
    assert_eq!(run(&plan)["each"], "");
    plan["keep_each"] = json!(true);
    let result = run(&plan);
    let bytes =
        base64::engine::general_purpose::STANDARD.decode(result["each"].as_str().expect("text")).expect("base64");
    assert_eq!(bytes.len() as u64, 16 * count(&result, "received"));
    let numbers: Vec<i64> =
        bytes.chunks_exact(8).map(|eight| i64::from_le_bytes(eight.try_into().expect("eight"))).collect();
    let longest_ms = numbers.iter().skip(1).step_by(2).max().map_or(0.0, |ns| *ns as f64 / 1e6);
    let reported_ms = result["max_ms"].as_f64().expect("a number");
    assert!((longest_ms - reported_ms).abs() < 0.002 * reported_ms, "{longest_ms} {reported_ms}");
}
