//! TLS, the server's side: what the certificates and policies of a configuration mean (`server_config`), and one
//! connection (`Tls`).
//!
//! rustls does the protocol, without I/O. The server's certificate is matched with its key, not judged: test suites of
//! NSQ's clients use self-signed, expired ones, and the client decides whether to trust it. Versions are 1.2 and 1.3.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{self, CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    DigitallySignedStruct, DistinguishedName, ProtocolVersion, RootCertStore, ServerConfig, ServerConnection,
    SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};

use crate::config::{BadSetting, ClientAuth, Config, TlsRequired, TlsVersion};
use crate::transport::buffer::Queue;
use crate::transport::common_name::{common_name, public_key};
use crate::transport::types::Broken;

/// What all TLS connections share. `None`: no certificate is configured.
pub fn server_config(config: &Config) -> Result<Option<Arc<ServerConfig>>, BadSetting> {
    if config.tls_cert_pem.is_empty() && config.tls_key_pem.is_empty() {
        let needless = config.tls_required == TlsRequired::False;
        return if needless {
            Ok(None)
        } else {
            Err(BadSetting::new("tls_required", "needs a certificate and a key (tls_cert, tls_key)"))
        };
    }
    let provider = Arc::new(crypto::ring::default_provider());
    let certified = certified_key(config, &provider)?;
    let versions: &[&rustls::SupportedProtocolVersion] = match config.tls_min_version {
        TlsVersion::V1_3 => &[&rustls::version::TLS13],
        TlsVersion::V1_0 | TlsVersion::V1_1 | TlsVersion::V1_2 => &[&rustls::version::TLS12, &rustls::version::TLS13],
    };
    let verifier = client_verifier(config, &provider)?;
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|error| BadSetting::new("tls_min_version", error.to_string()))?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(OwnCertificate(certified)));
    Ok(Some(Arc::new(server)))
}

fn certified_key(config: &Config, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, BadSetting> {
    let chain = certificates("tls_cert_pem", &config.tls_cert_pem)?;
    let Some(public) = chain.first().and_then(|first| public_key(first)) else {
        return Err(BadSetting::new("tls_cert_pem", "the first certificate must be an X.509 one"));
    };
    let key = PrivateKeyDer::from_pem_slice(config.tls_key_pem.as_bytes()).map_err(|_| {
        BadSetting::new("tls_key_pem", "must hold a private key in PEM (PKCS#8, PKCS#1 or SEC1, not encrypted)")
    })?;
    let key = provider.key_provider.load_private_key(key).map_err(|_| {
        BadSetting::new(
            "tls_key_pem",
            "must be an RSA key of 2048 to 4096 bits, or an ECDSA (P-256, P-384) or Ed25519 one",
        )
    })?;
    if key.public_key().is_some_and(|of_key| of_key.as_ref() != public) {
        return Err(BadSetting::new("tls_key_pem", "must be the key of the certificate"));
    }
    Ok(Arc::new(CertifiedKey::new(chain, key)))
}

fn certificates(field: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, BadSetting> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(|| BadSetting::new(field, "must hold a certificate in PEM"))
}

fn client_verifier(config: &Config, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, BadSetting> {
    let mut roots = RootCertStore::empty();
    if !config.tls_root_ca_pem.is_empty() {
        for root in certificates("tls_root_ca_pem", &config.tls_root_ca_pem)? {
            roots.add(root).map_err(|error| {
                BadSetting::new("tls_root_ca_pem", format!("must hold X.509 certificates ({error})"))
            })?;
        }
    }
    match config.tls_client_auth_policy {
        ClientAuth::None => Ok(WebPkiClientVerifier::no_client_auth()),
        ClientAuth::Require => Ok(Arc::new(AnyCertificate(provider.signature_verification_algorithms))),
        ClientAuth::RequireVerify => WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
            .build()
            .map_err(|_| BadSetting::new("tls_root_ca_pem", "must be given under the policy require-verify")),
    }
}

/// The server's one certificate, whatever a client asks for.
#[derive(Debug)]
struct OwnCertificate(Arc<CertifiedKey>);

impl ResolvesServerCert for OwnCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// The policy `require`: any certificate, with its key.
#[derive(Debug)]
struct AnyCertificate(WebPkiSupportedAlgorithms);

impl ClientCertVerifier for AnyCertificate {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crypto::verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crypto::verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// A connection's TLS as people see it, in the words of Go's library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub version: &'static str,
    pub cipher_suite: String,
    pub protocol: String,
    pub peer_name: Option<Box<str>>, // common name of the client's certificate
}

/// One connection.
#[derive(Debug)]
pub struct Tls {
    connection: ServerConnection,
    untaken: bool, // it may hold bytes from behind the handshake
}

impl Tls {
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, Broken> {
        ServerConnection::new(config)
            .map(|connection| Self { connection, untaken: false })
            .map_err(|error| Broken::tls(&error))
    }

    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether there is something to send besides plain bytes: messages of a handshake, an alert.
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Take a part of `bytes` for the handshake; gives how much.
    pub fn shake(&mut self, mut bytes: &[u8]) -> Result<usize, Broken> {
        let used = self.connection.read_tls(&mut bytes).map_err(|error| Broken::tls(&error))?;
        self.untaken = true;
        self.connection.process_new_packets().map_err(|error| Broken::tls(&error))?;
        if used == 0 { Err(Broken::new("TLS: no record is read")) } else { Ok(used) }
    }

    /// Decrypt complete records of `sealed` into `plain`, until that holds `limit` bytes (or up to a record more).
    ///
    /// True: the client has ended its stream.
    pub fn decode(&mut self, sealed: &mut Queue, plain: &mut Vec<u8>, limit: usize) -> Result<bool, Broken> {
        let mut ended = std::mem::take(&mut self.untaken) && self.take_plain(plain)?;
        while !sealed.is_empty() && !ended && plain.len() < limit {
            let used = self.connection.read_tls(&mut sealed.waiting()).map_err(|error| Broken::tls(&error))?;
            sealed.take(used);
            ended = self.take_plain(plain)? || used == 0;
        }
        Ok(ended)
    }

    /// Take what was decrypted. True: the client has ended its stream.
    fn take_plain(&mut self, plain: &mut Vec<u8>) -> Result<bool, Broken> {
        let state = self.connection.process_new_packets().map_err(|error| Broken::tls(&error))?;
        let start = plain.len();
        plain.resize(start + state.plaintext_bytes_to_read(), 0);
        self.connection.reader().read_exact(&mut plain[start..]).map_err(|error| Broken::tls(&error))?;
        Ok(state.peer_has_closed())
    }

    /// Append `plain` as records, after all else that there is to send.
    pub fn encode(&mut self, mut plain: &[u8], sealed: &mut Vec<u8>) -> Result<(), Broken> {
        self.drain(sealed)?;
        while !plain.is_empty() {
            let taken = self.connection.writer().write(plain).map_err(|error| Broken::tls(&error))?;
            if taken == 0 {
                return Err(Broken::new("TLS: no record is taken"));
            }
            plain = &plain[taken..];
            self.drain(sealed)?;
        }
        Ok(())
    }

    /// Append the notice that nothing more comes (close_notify).
    pub fn close(&mut self, sealed: &mut Vec<u8>) -> Result<(), Broken> {
        self.connection.send_close_notify();
        self.drain(sealed)
    }

    /// Append what TLS itself has to send.
    pub fn drain(&mut self, sealed: &mut Vec<u8>) -> Result<(), Broken> {
        while self.connection.wants_write() {
            self.connection.write_tls(sealed).map_err(|error| Broken::tls(&error))?;
        }
        Ok(())
    }

    /// The session; `None` until the handshake is over.
    pub fn session(&self) -> Option<Session> {
        let suite = self.connection.negotiated_cipher_suite().filter(|_| !self.is_handshaking())?;
        let suite = suite.suite().as_str().unwrap_or("");
        let peer = self.connection.peer_certificates().and_then(|chain| chain.first());
        Some(Session {
            version: if self.connection.protocol_version() == Some(ProtocolVersion::TLSv1_3) {
                "TLS1.3"
            } else {
                "TLS1.2"
            },
            cipher_suite: suite.replace("TLS13_", "TLS_"),
            protocol: String::from_utf8_lossy(self.connection.alpn_protocol().unwrap_or_default()).into_owned(),
            peer_name: peer.and_then(|der| common_name(der)).map(String::into_boxed_str),
        })
    }
}

#[cfg(test)]
#[path = "../tests/tls.rs"]
mod tests;
