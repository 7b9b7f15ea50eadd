//! TLS, snappy and deflate under a connection: what IDENTIFY grants, the order of the switches, and what a hostile
//! client gets.

use super::memory_store::MemoryStore;
use super::pair::*;
use crate::clients::pending_input::WaitFor;
use crate::config::{ClientAuth, Config, TlsRequired};
use crate::event::Event;
use crate::keys::ConnKey;
use crate::protocol::identify::Compression;
use crate::transport::testing::{AUTHORITY, CLIENT_CERT, CLIENT_KEY, Client, TLS12, TLS13, tls_config};
use crate::transport::tls::server_config;
use crate::transport::{deflate, snappy};

const DEFLATE: Compression = Compression::Deflate { level: 6 };

fn ask_for(features: &str) -> Vec<u8> {
    identify(&format!(r#"{{"feature_negotiation":true,{features}}}"#))
}

/// The client's half of the layers, over the pair.
#[derive(Default)]
pub(super) struct Coat {
    tls: Option<Client>,
    snappy: Option<(snappy::Encoder, snappy::Decoder)>,
    deflate: Option<(deflate::Encoder, deflate::Decoder)>,
}

impl Coat {
    pub(super) fn of_tls(client: Client) -> Self {
        Self { tls: Some(client), ..Self::default() }
    }

    fn put_on(&mut self, compression: Compression) {
        match compression {
            Compression::Snappy => self.snappy = Some(Default::default()),
            Compression::Deflate { level } => self.deflate = Some((deflate::Encoder::new(level), Default::default())),
        }
    }

    pub(super) fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut packed = Vec::new();
        if let Some((encoder, _)) = &mut self.snappy {
            encoder.encode(plain, &mut packed).expect("packs");
        } else if let Some((encoder, _)) = &mut self.deflate {
            encoder.encode(plain, &mut packed).expect("packs");
        } else {
            packed = plain.to_vec();
        }
        self.tls.as_mut().map_or_else(|| packed.clone(), |tls| tls.send(&packed))
    }

    pub(super) fn open(&mut self, bytes: &[u8]) -> Vec<u8> {
        let packed = self.tls.as_mut().map_or_else(|| bytes.to_vec(), |tls| tls.receive(bytes).expect("makes sense"));
        let mut plain = Vec::new();
        if let Some((_, decoder)) = &mut self.snappy {
            let mut at = 0;
            while at < packed.len() {
                at += decoder.decode(&packed[at..], &mut plain).expect("whole chunks");
            }
        } else if let Some((_, decoder)) = &mut self.deflate {
            decoder.decode(&packed, &mut plain, usize::MAX).expect("unpacks");
        } else {
            plain = packed;
        }
        plain
    }
}

/// A connection with its coat on.
struct Coated {
    key: ConnKey,
    coat: Coat,
}

impl Coated {
    fn connect(pair: &mut Pair, client: Option<Client>, compression: Option<Compression>) -> Self {
        let key = pair.connect();
        let compressed = match compression {
            None => "",
            Some(Compression::Snappy) => r#","snappy":true"#,
            Some(Compression::Deflate { .. }) => r#","deflate":true"#,
        };
        let answer = pair.ask(key, ask_for(&format!(r#""tls_v1":{}{compressed}"#, client.is_some())));
        // Under compression alone the first OK is compressed already, and comes in the same turn as the answer in
        // clear.
        let mut coated = Self { key, coat: Coat { tls: client, ..Coat::default() } };
        if coated.coat.tls.is_some() {
            assert!(matches!(&answer[..], [Frame::Response(json)] if json.contains(r#""tls_v1":true"#)), "{answer:?}");
            let said = coated.shake_hands(pair);
            coated.expect_oks(said, compression);
        }
        coated
    }

    /// The plain bytes that come with the end of the handshake.
    fn shake_hands(&mut self, pair: &mut Pair) -> Vec<u8> {
        let mut said = Vec::new();
        while self.coat.tls.as_ref().is_some_and(|tls| tls.0.is_handshaking()) || said.is_empty() {
            let hello = self.coat.tls.as_mut().expect("TLS").send(b"");
            pair.send(self.key, hello);
            pair.turn();
            said.extend(self.coat.open(&pair.take_bytes(self.key)));
        }
        said
    }

    fn expect_oks(&mut self, said: Vec<u8>, compression: Option<Compression>) {
        let (first, rest) = said.split_at(10);
        assert_eq!(decode(first), [ok()]);
        let Some(compression) = compression else { return assert!(rest.is_empty()) };
        self.coat.put_on(compression);
        let tls = self.coat.tls.take();
        assert_eq!(decode(&self.coat.open(rest)), [ok()], "and one more, compressed");
        self.coat.tls = tls;
    }

    fn send(&mut self, pair: &mut Pair, plain: impl AsRef<[u8]>) {
        let bytes = self.coat.seal(plain.as_ref());
        pair.send(self.key, bytes);
    }

    fn ask(&mut self, pair: &mut Pair, plain: impl AsRef<[u8]>) -> Vec<Frame> {
        self.send(pair, plain);
        pair.turn();
        self.take(pair)
    }

    fn take(&mut self, pair: &mut Pair) -> Vec<Frame> {
        decode(&self.coat.open(&pair.take_bytes(self.key)))
    }
}

fn with_compression(pair: &mut Pair, compression: Compression) -> Coated {
    let key = pair.connect();
    let name = if compression == Compression::Snappy { "snappy" } else { "deflate" };
    pair.send(key, ask_for(&format!(r#""{name}":true"#)));
    pair.turn();
    let bytes = pair.take_bytes(key);
    let clear = 4 + u32::from_be_bytes(bytes[..4].try_into().expect("4 bytes")) as usize;
    assert!(
        matches!(&decode(&bytes[..clear])[..], [Frame::Response(json)] if json.contains(&format!(r#""{name}":true"#)))
    );
    let mut coated = Coated { key, coat: Coat::default() };
    coated.coat.put_on(compression);
    assert_eq!(decode(&coated.coat.open(&bytes[clear..])), [ok()]);
    coated
}

fn client(pair: &mut Pair) -> serde_json::Value {
    pair.channel()["clients"][0].clone()
}

#[test]
fn a_subscriber_and_a_publisher_meet_through_every_coat() {
    for compression in [None, Some(Compression::Snappy), Some(DEFLATE)] {
        for tls in [None, Some(TLS12), Some(TLS13)] {
            let mut pair = Pair::with(tls_config());
            let mut coated = match (tls, compression) {
                (None, None) => continue,
                (None, Some(compression)) => with_compression(&mut pair, compression),
                (Some(versions), _) => Coated::connect(&mut pair, Some(Client::new(versions, None)), compression),
            };
            assert_eq!(coated.ask(&mut pair, "SUB t c\n"), [ok()]);
            assert_eq!(
                coated.ask(&mut pair, ["RDY 10\n".as_bytes(), &pub_("t", "to myself")].concat()).len(),
                2,
                "OK and a message"
            );
            assert_eq!(pair.publish("t", &"x".repeat(100_000)), ok());
            let frames = coated.take(&mut pair);
            let [Frame::Message(delivery)] = &frames[..] else { panic!("{frames:?}") };
            assert_eq!(delivery.body.len(), 100_000);
            assert_eq!(coated.ask(&mut pair, format!("FIN {}\n", delivery.id)), []);
            assert_eq!(pair.channel()["in_flight_count"], 1);
            let seen = client(&mut pair);
            assert_eq!(seen["tls"], tls.is_some());
            assert_eq!(
                seen["tls_version"],
                if tls == Some(TLS13) {
                    "TLS1.3"
                } else if tls.is_some() {
                    "TLS1.2"
                } else {
                    ""
                }
            );
            assert_eq!(seen["tls_cipher_suite"].as_str().is_some_and(|suite| suite.starts_with("TLS_")), tls.is_some());
            assert_eq!(seen["snappy"], compression == Some(Compression::Snappy));
            assert_eq!(seen["deflate"], compression == Some(DEFLATE));
        }
    }
}

#[test]
fn what_follows_identify_in_the_same_read_goes_through_the_new_layers() {
    let mut pair = Pair::new();
    let key = pair.connect();
    let mut coat = Coat::default();
    coat.put_on(Compression::Snappy);
    let bytes = [ask_for(r#""snappy":true"#), coat.seal(&pub_("t", "early"))].concat();
    pair.send(key, bytes);
    pair.turn();
    let bytes = pair.take_bytes(key);
    let clear = 4 + u32::from_be_bytes(bytes[..4].try_into().expect("4 bytes")) as usize;
    assert_eq!(decode(&coat.open(&bytes[clear..])), [ok(), ok()], "of snappy, and of PUB");
    assert_eq!(pair.topic()["message_count"], 1);
}

#[test]
fn a_hello_in_the_same_read_as_identify_is_taken_and_the_answer_still_goes_in_clear() {
    let mut pair = Pair::with(tls_config());
    let key = pair.connect();
    let mut tls = Client::new(TLS13, None);
    pair.send(key, [ask_for(r#""tls_v1":true"#), tls.send(b"")].concat());
    pair.turn();
    let bytes = pair.take_bytes(key);
    let clear = 4 + u32::from_be_bytes(bytes[..4].try_into().expect("4 bytes")) as usize;
    assert!(matches!(&decode(&bytes[..clear])[..], [Frame::Response(_)]));
    tls.receive(&bytes[clear..]).expect("a server's hello");
    assert!(!tls.0.is_handshaking());
}

#[test]
fn both_compressions_are_refused_and_what_is_switched_off_is_not_granted() {
    let mut pair = Pair::new();
    let key = pair.connect();
    let both = r#""snappy":true,"deflate":true"#;
    assert_eq!(
        pair.ask(key, ask_for(both)),
        [error("E_IDENTIFY_FAILED cannot enable both deflate and snappy compression")]
    );
    let mut pair = Pair::with(Config { snappy: false, max_deflate_level: 3, ..Config::default() });
    let key = pair.connect();
    let answer = pair.ask(key, ask_for(r#""snappy":true,"tls_v1":true"#));
    let [Frame::Response(json)] = &answer[..] else { panic!("{answer:?}") };
    assert!(
        json.contains(r#""tls_v1":false,"deflate":false,"deflate_level":3,"max_deflate_level":3,"snappy":false"#),
        "{json}"
    );
    assert_eq!(
        pair.ask(key, "NOP\nPUB t$\n"),
        [error(r#"E_BAD_TOPIC PUB topic name "t$" is not valid"#)],
        "still in clear"
    );
}

#[test]
fn without_negotiation_nothing_is_switched_on() {
    let mut pair = Pair::with(tls_config());
    let key = pair.connect();
    assert_eq!(pair.ask(key, identify(r#"{"tls_v1":true,"snappy":true,"deflate":true}"#)), [ok()]);
    assert_eq!(pair.ask(key, pub_("t", "x")), [ok()]);
}

#[test]
fn layers_are_asked_for_once() {
    let mut pair = Pair::new();
    let mut coated = with_compression(&mut pair, Compression::Snappy);
    assert_eq!(coated.ask(&mut pair, identify("{}")), [ok()]);
    let refused = "E_IDENTIFY_FAILED IDENTIFY failed TLS and compression can be asked for once";
    assert_eq!(coated.ask(&mut pair, ask_for(r#""snappy":true"#)), [error(refused)]);
}

#[test]
fn under_tls_required_nothing_but_identify_is_taken_in_clear() {
    let mut pair = Pair::with(Config { tls_required: TlsRequired::TcpHttps, ..tls_config() });
    for (bytes, word) in [
        (pub_("t", "x"), "PUB"),
        (b"NOP\n".to_vec(), "NOP"),
        (b"FOO\n".to_vec(), "FOO"),
        (b"SUB t c\n".to_vec(), "SUB"),
    ] {
        let key = pair.connect();
        assert_eq!(
            pair.ask(key, bytes),
            [Frame::Error(format!("E_INVALID cannot {word} in current state (TLS required)"))]
        );
    }
    let key = pair.connect();
    assert_eq!(
        pair.ask(key, [identify("{}"), pub_("t", "x")].concat())[1],
        error("E_INVALID cannot PUB in current state (TLS required)")
    );
    let mut coated = Coated::connect(&mut pair, Some(Client::new(TLS13, None)), None);
    assert_eq!(coated.ask(&mut pair, pub_("t", "x")), [ok()]);
    let mut compressed = with_compression(&mut pair, Compression::Snappy);
    assert_eq!(
        compressed.ask(&mut pair, pub_("t", "x")),
        [error("E_INVALID cannot PUB in current state (TLS required)")]
    );
}

#[test]
fn a_failed_handshake_is_told_in_clear_and_ends_the_connection() {
    let mut pair = Pair::with(tls_config());
    let key = pair.connect();
    pair.ask(key, ask_for(r#""tls_v1":true"#));
    pair.send(key, b"PUB t\n\0\0\0\x01x");
    pair.turn();
    let bytes = pair.take_bytes(key);
    let at = bytes.windows(17).position(|window| window == b"E_IDENTIFY_FAILED").expect("an error in clear") - 8;
    let frames = decode(&bytes[at..]);
    assert!(
        matches!(&frames[..], [Frame::Error(text)] if text.starts_with("E_IDENTIFY_FAILED IDENTIFY failed TLS: ")),
        "{frames:?}"
    );
    assert!(pair.ended.contains(&key));
}

#[test]
fn an_auth_server_is_told_of_tls_and_whose_certificate_it_is_and_what_comes_behind_auth_waits_under_every_coat() {
    for compression in [None, Some(Compression::Snappy), Some(DEFLATE)] {
        let policy = ClientAuth::RequireVerify;
        let config = Config {
            tls_client_auth_policy: policy,
            tls_root_ca_pem: AUTHORITY.into(),
            auth_servers: true,
            ..tls_config()
        };
        let mut pair = Pair::with(config);
        let mut client =
            Coated::connect(&mut pair, Some(Client::new(TLS13, Some((CLIENT_CERT, CLIENT_KEY)))), compression);
        let commands = [&b"AUTH\n\0\0\0\x01s"[..], &pub_("t", "a"), &pub_("t", "b")].concat();
        assert_eq!(client.ask(&mut pair, commands), []);
        assert_eq!(client.ask(&mut pair, pub_("t", "c")), []);
        let events = pair.engine.poll_events();
        let [Event::AuthAsked { connection, tls: true, common_name, .. }] = &events[..] else { panic!("{events:?}") };
        assert_eq!(common_name, "client");
        let answer = br#"{"ttl":1,"authorizations":[{"topic":"t","channels":[""],"permissions":["publish"]}]}"#;
        assert_eq!(pair.engine.set_authorization(*connection, Some(answer), pair.now), Ok(()));
        pair.turn();
        let frames = client.take(&mut pair);
        assert_eq!(frames[1..], [ok(), ok(), ok()], "{compression:?}");
    }
}

#[test]
fn a_client_without_the_certificate_that_is_asked_for_is_refused() {
    let policy = ClientAuth::RequireVerify;
    let config = Config { tls_client_auth_policy: policy, tls_root_ca_pem: AUTHORITY.into(), ..tls_config() };
    let mut pair = Pair::with(config);
    let known = Coated::connect(&mut pair, Some(Client::new(TLS13, Some((CLIENT_CERT, CLIENT_KEY)))), None);
    assert_eq!(pair.engine.conns[known.key].layers.as_ref().and_then(|layers| layers.peer_name()), Some("client"));
    let key = pair.connect();
    pair.ask(key, ask_for(r#""tls_v1":true"#));
    let mut tls = Client::new(TLS12, None);
    for _ in 0..2 {
        pair.send(key, tls.send(b""));
        pair.turn();
        let bytes = pair.take_bytes(key);
        if tls.receive(&bytes).is_err() {
            break;
        }
    }
    assert!(pair.ended.contains(&key));
}

#[test]
fn a_handshake_has_five_seconds_and_gets_no_heartbeats() {
    let mut pair = Pair::with(tls_config());
    let key = pair.connect();
    pair.ask(key, ask_for(r#""tls_v1":true,"heartbeat_interval":1000"#));
    pair.advance(5 * S - 1);
    assert_eq!((pair.take(key), pair.ended.contains(&key)), (vec![], false));
    pair.advance(1);
    assert_eq!(pair.take(key), [error("E_IDENTIFY_FAILED IDENTIFY failed TLS: no handshake within 5 s")]);
    assert!(pair.ended.contains(&key));
    pair.advance(S);
    assert!(pair.closed.contains(&key));
}

#[test]
fn heartbeats_go_through_the_layers() {
    let mut pair = Pair::with(tls_config());
    let mut coated = Coated::connect(&mut pair, Some(Client::new(TLS13, None)), Some(Compression::Snappy));
    pair.advance(30 * S);
    assert_eq!(coated.take(&mut pair), [response("_heartbeat_")]);
}

#[test]
fn a_command_in_clear_inside_a_compressed_stream_ends_it_after_the_answers() {
    for compression in [Compression::Snappy, DEFLATE] {
        let mut pair = Pair::new();
        let mut coated = with_compression(&mut pair, compression);
        coated.send(&mut pair, pub_("t", "x"));
        pair.send(coated.key, b"CLS\n");
        pair.turn();
        assert_eq!(coated.take(&mut pair), [ok()]);
        // What is no deflate may take some bytes to show.
        if compression == Compression::Snappy {
            assert!(pair.closed.contains(&coated.key));
        }
    }
}

#[test]
fn a_bomb_takes_a_bounded_part_of_each_turn_and_is_run_to_its_end() {
    let mut pair = Pair::new();
    let mut coated = with_compression(&mut pair, DEFLATE);
    let nops = b"NOP\n".repeat(1 << 20);
    coated.send(&mut pair, [&nops[..], &pub_("t", "the end")].concat());
    assert!(!pair.engine.wants_input(coated.key), "nothing more is read meanwhile");
    let mut turns = 0;
    while pair.engine.poll_timeout() == Some(0) {
        pair.turn();
        turns += 1;
    }
    assert!((1_000..=1_050).contains(&turns), "a million commands take {turns} turns");
    assert_eq!(coated.take(&mut pair), [ok()]);
    assert!(pair.engine.wants_input(coated.key));
    assert!(pair.read_on.contains(&coated.key), "it is read on");
}

#[test]
fn a_chunk_of_snappy_as_large_as_may_be_is_read_to_its_end() {
    let head = [&b"PUB t\n"[..], &65_526u32.to_be_bytes()].concat();
    let noise = (0..65_526u32).map(|i| (i.wrapping_mul(i).wrapping_mul(0x9e37_79b9) >> 24) as u8); // does not shrink
    let publish: Vec<u8> = head.into_iter().chain(noise).collect();
    for missing in 1..8 {
        let mut pair = Pair::new();
        let mut coated = with_compression(&mut pair, Compression::Snappy);
        let sealed = coated.coat.seal(&publish);
        assert!(sealed.len() > 65_536 + 8, "one chunk, not compressed");
        let (begun, rest) = sealed.split_at(sealed.len() - missing);
        pair.send(coated.key, begun);
        pair.turn();
        assert!(pair.engine.wants_input(coated.key), "{missing} bytes are missing");
        pair.send(coated.key, rest);
        pair.turn();
        assert_eq!(coated.take(&mut pair), [ok()]);
    }
}

#[test]
fn a_stream_that_ends_behind_a_bomb_is_answered_first() {
    let mut pair = Pair::new();
    let mut coated = with_compression(&mut pair, DEFLATE);
    coated.send(&mut pair, [&b"NOP\n".repeat(1 << 18)[..], &pub_("t", "the end")].concat());
    pair.engine.handle_eof(coated.key);
    pair.advance(0);
    assert_eq!(coated.take(&mut pair), [ok()]);
    assert!(pair.closed.contains(&coated.key));
}

#[test]
fn a_notice_of_the_end_gets_the_answers_and_ours() {
    let mut pair = Pair::with(tls_config());
    let mut coated = Coated::connect(&mut pair, Some(Client::new(TLS13, None)), None);
    let mut bytes = coated.coat.seal(&pub_("t", "x"));
    let tls = coated.coat.tls.as_mut().expect("TLS");
    tls.0.send_close_notify();
    bytes.extend(tls.send(b""));
    pair.send(coated.key, bytes);
    pair.turn();
    assert_eq!(coated.take(&mut pair), [ok()]);
    assert!(coated.coat.tls.as_mut().expect("TLS").0.process_new_packets().expect("makes sense").peer_has_closed());
    assert!(pair.closed.contains(&coated.key));
}

#[test]
fn a_command_deferred_in_the_middle_goes_on_through_the_layers() {
    let mut pair = Pair::new();
    let mut coated = with_compression(&mut pair, DEFLATE);
    pair.engine.defer(coated.key, WaitFor::Python);
    coated.send(&mut pair, b"NOP\n".repeat(200_000));
    coated.send(&mut pair, pub_("t", "x"));
    pair.turn();
    assert!(!pair.engine.wants_input(coated.key));
    assert!(pair.engine.memory.layers.used() < 1 << 20, "{}", pair.engine.memory.layers.used());
    assert!(pair.engine.resume(coated.key, pair.now));
    pair.advance(0);
    assert_eq!(coated.take(&mut pair), [ok()]);
}

#[test]
fn identify_kept_while_deferred_puts_the_rest_under_its_layers() {
    let mut pair = Pair::new();
    let key = pair.connect();
    pair.turn();
    pair.engine.defer(key, WaitFor::Python);
    let mut coat = Coat::default();
    coat.put_on(Compression::Snappy);
    pair.send(key, ask_for(r#""snappy":true"#));
    pair.send(key, coat.seal(&pub_("t", "x")));
    assert!(pair.engine.resume(key, pair.now));
    pair.turn();
    let bytes = pair.take_bytes(key);
    let clear = 4 + u32::from_be_bytes(bytes[..4].try_into().expect("4 bytes")) as usize;
    assert_eq!(decode(&coat.open(&bytes[clear..])), [ok(), ok()]);
}

#[test]
fn layers_are_charged_and_refused_beyond_their_part_of_the_memory() {
    let mut pair = Pair::with(Config { max_memory_bytes: 2_800_000, ..Config::default() });
    let first = with_compression(&mut pair, DEFLATE);
    let second = with_compression(&mut pair, DEFLATE);
    let key = pair.connect();
    let answer = pair.ask(key, ask_for(r#""deflate":true"#));
    assert_eq!(
        answer[1],
        error("E_IDENTIFY_FAILED IDENTIFY failed layers of all connections take the 700000 bytes that they may")
    );
    for key in [first.key, second.key, key] {
        pair.close(key);
    }
    assert_eq!(pair.engine.memory.layers.used(), 0);
}

#[test]
fn a_delivery_counts_as_sent_when_its_sealed_bytes_are() {
    let mut pair = Pair::new();
    let mut coated = with_compression(&mut pair, Compression::Snappy);
    coated.ask(&mut pair, "SUB t c\n");
    coated.ask(&mut pair, "RDY 1\n");
    pair.stick(coated.key);
    pair.publish("t", "x");
    assert_eq!(pair.topic()["latency"]["since_start"]["total"]["count"], 0);
    pair.stall(7 * MS);
    pair.unstick(coated.key);
    assert_eq!(pair.topic()["latency"]["since_start"]["total"]["count"], 1);
    assert_eq!(coated.take(&mut pair).len(), 1);
}

#[test]
fn answers_that_wait_for_the_disk_go_out_before_the_layers_close() {
    for compression in [DEFLATE, Compression::Snappy] {
        let store = MemoryStore::default();
        let mut pair = Pair::on_disk(Config { mem_queue_size: 0, ..Config::default() }, &store, 1, START);
        pair.engine.write_in_portions(100);
        let mut coated = with_compression(&mut pair, compression);
        coated.send(&mut pair, [pub_("t", "a"), pub_("t", &"x".repeat(1_000)), b"BAD\n".to_vec()].concat());
        for _ in 0..3 {
            pair.turn();
        }
        assert_eq!(coated.take(&mut pair), [ok()]);
        pair.advance(0);
        assert_eq!(coated.take(&mut pair), [ok(), error("E_INVALID invalid command BAD")]);
        pair.advance(2 * S);
        assert!(pair.ended.contains(&coated.key) || pair.closed.contains(&coated.key));
    }
}

#[test]
fn a_handshake_has_all_its_time_from_the_answer_on_that_begins_it() {
    let store = MemoryStore::default();
    let mut pair = Pair::on_disk(Config { mem_queue_size: 0, ..tls_config() }, &store, 1, START);
    pair.engine.tls.config = server_config(&tls_config()).expect("a usable certificate");
    pair.engine.write_in_portions(100);
    let key = pair.connect();
    pair.send(key, [pub_("t", &"x".repeat(1_000)), identify(r#"{"feature_negotiation":true,"tls_v1":true}"#)].concat());
    pair.turn();
    pair.stall(6 * S);
    pair.turn();
    assert_eq!((pair.take(key), pair.ended.contains(&key)), (vec![], false));
    while pair.take(key).is_empty() {
        pair.turn();
    }
    pair.advance(5 * S - 1);
    assert!(!pair.ended.contains(&key));
    pair.advance(1);
    assert!(pair.ended.contains(&key));
}
