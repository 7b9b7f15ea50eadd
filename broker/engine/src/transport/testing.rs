//! Certificates of the tests, and a rustls client that judges no server: the other half of a sans-I/O pair.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use crate::config::Config;

macro_rules! certificate {
    ($name:literal) => {
        include_str!(concat!("../../../../tests/certificates/", $name))
    };
}

pub const SERVER_CERT: &str = certificate!("server.pem");
pub const SERVER_KEY: &str = certificate!("server.key");
pub const SERVER_KEY_PKCS1: &str = certificate!("server-pkcs1.key");
pub const AUTHORITY: &str = certificate!("authority.pem");
pub const CLIENT_CERT: &str = certificate!("client.pem");
pub const CLIENT_KEY: &str = certificate!("client.key");

pub fn der(pem: &str) -> Vec<u8> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate").to_vec()
}

/// A configuration with the certificate.
pub fn tls_config() -> Config {
    Config { tls_cert_pem: SERVER_CERT.into(), tls_key_pem: SERVER_KEY.into(), ..Config::default() }
}

#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            certificate,
            signature,
            &ring::default_provider().signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signature,
            &ring::default_provider().signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

pub const TLS12: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
pub const TLS13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// A TLS client in memory.
pub struct Client(pub ClientConnection);

impl Client {
    /// `identity`: certificate and key, in PEM.
    pub fn new(versions: &[&'static SupportedProtocolVersion], identity: Option<(&str, &str)>) -> Self {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .expect("versions of rustls")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer));
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
                builder.with_client_auth_cert(vec![CertificateDer::from(der(certificate))], key).expect("a pair")
            }
        };
        let name = ServerName::try_from("localhost").expect("a name");
        Self(ClientConnection::new(Arc::new(config), name).expect("a client"))
    }

    /// What it has to send, after encrypting `plain`.
    pub fn send(&mut self, plain: &[u8]) -> Vec<u8> {
        let (mut bytes, mut rest) = (Vec::new(), plain);
        loop {
            let taken = self.0.writer().write(rest).expect("memory");
            rest = &rest[taken..];
            while self.0.wants_write() {
                self.0.write_tls(&mut bytes).expect("memory");
            }
            if rest.is_empty() {
                return bytes;
            }
        }
    }

    /// Take in what the server sent; gives what it says.
    pub fn receive(&mut self, mut bytes: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let mut plain = Vec::new();
        while !bytes.is_empty() {
            self.0.read_tls(&mut bytes).expect("memory");
            let state = self.0.process_new_packets()?;
            let start = plain.len();
            plain.resize(start + state.plaintext_bytes_to_read(), 0);
            self.0.reader().read_exact(&mut plain[start..]).expect("there");
        }
        Ok(plain)
    }
}
