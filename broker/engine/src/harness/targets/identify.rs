//! Law: what IDENTIFY grants is within the limits, and its answer is `OK` or JSON that says the same.

use crate::config::Config;
use crate::harness::source::Source;
use crate::protocol::codec;
use crate::protocol::identify::parse;

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    let choice = source.byte();
    let (deflate, snappy) = (choice & 1 == 0, choice & 2 == 0);
    let certificate = if choice & 4 == 0 { "a certificate" } else { "" };
    let config = Config { deflate, snappy, tls_cert_pem: certificate.into(), ..Config::default() };
    let Ok(granted) = parse(source.rest(), &config) else { return };
    assert!(granted.heartbeat_ms.is_none_or(|ms| (1_000..=config.max_heartbeat_interval_ms).contains(&ms)));
    assert!((1_000..=config.max_msg_timeout_ms).contains(&granted.msg_timeout_ms));
    assert!((1..=config.max_output_buffer_size).contains(&granted.output_buffer_size));
    assert!(u64::from(granted.output_buffer_timeout_ms) <= config.max_output_buffer_timeout_ms);
    assert!(granted.sample_rate < 100);
    assert!(granted.aware || !(granted.receipts || granted.left));
    assert!(!granted.features.tls || !certificate.is_empty());
    let texts =
        [granted.client_id.as_deref(), granted.hostname(), Some(granted.user_agent()), Some(granted.topology_region())];
    assert!(texts.into_iter().flatten().all(|text| text.len() <= 256));
    let answer = granted.answer(&config);
    if answer != codec::OK {
        let answer: serde_json::Value = serde_json::from_slice(&answer).expect("JSON");
        assert_eq!(answer["msg_timeout"], granted.msg_timeout_ms);
        assert_eq!(answer["tls_v1"], granted.features.tls);
        assert!(!(answer["snappy"] == true && answer["deflate"] == true));
    }
}
