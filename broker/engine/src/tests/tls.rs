use super::*;
use crate::transport::testing::*;

fn refused(config: &Config) -> (&'static str, String) {
    let error = server_config(config).map(|_| ()).expect_err("refused");
    (error.field, error.rule)
}

/// Shake hands in memory; what the server has at the end, or why not.
fn handshake(config: &Config, client: &mut Client) -> Result<Tls, Broken> {
    let mut server = Tls::new(server_config(config).expect("usable").expect("a certificate")).expect("a connection");
    let (mut to_client, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let mut queue = Queue::default();
        queue.push(&client.send(b""));
        server.decode(&mut queue, &mut plain, usize::MAX)?;
        server.drain(&mut to_client)?;
        client.receive(&std::mem::take(&mut to_client)).expect("a server that makes sense");
    }
    assert!(!server.is_handshaking());
    Ok(server)
}

#[test]
fn an_expired_self_signed_certificate_serves_with_keys_of_both_forms() {
    for key in [SERVER_KEY, SERVER_KEY_PKCS1] {
        for (versions, name) in [(TLS12, "TLS1.2"), (TLS13, "TLS1.3")] {
            let config = Config { tls_key_pem: key.into(), ..tls_config() };
            let session =
                handshake(&config, &mut Client::new(versions, None)).expect("a handshake").session().expect("over");
            assert_eq!((session.version, session.peer_name), (name, None));
            assert!(session.cipher_suite.starts_with("TLS_"), "{}", session.cipher_suite);
        }
    }
}

#[test]
fn no_certificate_means_no_tls_and_cannot_be_required() {
    assert!(server_config(&Config::default()).expect("usable").is_none());
    for required in [TlsRequired::True, TlsRequired::TcpHttps] {
        let config = Config { tls_required: required, ..Config::default() };
        assert_eq!(refused(&config), ("tls_required", "needs a certificate and a key (tls_cert, tls_key)".into()));
    }
}

#[test]
fn a_bad_certificate_key_or_pair_is_refused_by_name() {
    let no_certificate = Config { tls_cert_pem: "nothing".into(), ..tls_config() };
    assert_eq!(refused(&no_certificate), ("tls_cert_pem", "must hold a certificate in PEM".into()));
    let no_x509 = Config {
        tls_cert_pem: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into(),
        ..tls_config()
    };
    assert_eq!(refused(&no_x509).0, "tls_cert_pem");
    for key in ["", "nothing", SERVER_CERT] {
        let no_key = Config { tls_key_pem: key.into(), ..tls_config() };
        assert_eq!(refused(&no_key).0, "tls_key_pem");
    }
    let cut =
        Config { tls_key_pem: "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n".into(), ..tls_config() };
    assert!(refused(&cut).1.starts_with("must be an RSA key of 2048"));
    let other = Config { tls_key_pem: CLIENT_KEY.into(), ..tls_config() };
    assert_eq!(refused(&other), ("tls_key_pem", "must be the key of the certificate".into()));
    let no_root = Config { tls_client_auth_policy: ClientAuth::RequireVerify, ..tls_config() };
    assert_eq!(refused(&no_root), ("tls_root_ca_pem", "must be given under the policy require-verify".into()));
    let bad_root = Config { tls_root_ca_pem: "nothing".into(), ..no_root };
    assert_eq!(refused(&bad_root), ("tls_root_ca_pem", "must hold a certificate in PEM".into()));
}

#[test]
fn the_oldest_version_is_1_2_unless_1_3_is_asked_for() {
    for version in [TlsVersion::V1_0, TlsVersion::V1_1, TlsVersion::V1_2] {
        let config = Config { tls_min_version: version, ..tls_config() };
        assert!(handshake(&config, &mut Client::new(TLS12, None)).is_ok());
    }
    let config = Config { tls_min_version: TlsVersion::V1_3, ..tls_config() };
    assert!(handshake(&config, &mut Client::new(TLS13, None)).is_ok());
    assert!(handshake(&config, &mut Client::new(TLS12, None)).is_err());
}

#[test]
fn require_takes_any_certificate_and_none_is_refused() {
    let config = Config { tls_client_auth_policy: ClientAuth::Require, ..tls_config() };
    for versions in [TLS12, TLS13] {
        let expired =
            handshake(&config, &mut Client::new(versions, Some((SERVER_CERT, SERVER_KEY)))).expect("any certificate");
        assert_eq!(expired.session().expect("over").peer_name.as_deref(), Some("localhost"));
        let none = handshake(&config, &mut Client::new(versions, None)).map(|_| ()).expect_err("no certificate");
        assert_eq!(none.to_string(), "TLS: peer sent no certificates");
    }
}

#[test]
fn require_verify_takes_only_certificates_of_the_root() {
    let policy = ClientAuth::RequireVerify;
    let config = Config { tls_client_auth_policy: policy, tls_root_ca_pem: AUTHORITY.into(), ..tls_config() };
    for versions in [TLS12, TLS13] {
        let good =
            handshake(&config, &mut Client::new(versions, Some((CLIENT_CERT, CLIENT_KEY)))).expect("one of the root's");
        assert_eq!(good.session().expect("over").peer_name.as_deref(), Some("client"));
        assert!(handshake(&config, &mut Client::new(versions, Some((SERVER_CERT, SERVER_KEY)))).is_err());
        assert!(handshake(&config, &mut Client::new(versions, None)).is_err());
    }
}
