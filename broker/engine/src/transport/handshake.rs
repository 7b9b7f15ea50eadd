//! A step of a TLS handshake. A signature costs about 1 ms, so steps run beside the reactor; a step has all that it
//! needs, and shares nothing.

use crate::keys::ConnKey;
use crate::time::Nanos;
use crate::transport::Layers;
use crate::transport::buffer::Kept;
use crate::transport::tls::Tls;
use crate::transport::types::Broken;

/// A session, and the bytes that it has not seen yet.
#[derive(Debug)]
pub struct Handshake {
    pub(crate) key: ConnKey,
    tls: Box<Tls>,
    kept: Kept,
    stamp: Nanos, // of the last read that the session saw
    outcome: Result<(), Broken>,
}

impl Handshake {
    fn new(key: ConnKey, tls: Box<Tls>, kept: Kept, stamp: Nanos) -> Self {
        Self { key, tls, kept, stamp, outcome: Ok(()) }
    }

    /// Shake hands as far as the bytes go. Bytes behind the handshake stay as they are.
    #[must_use]
    pub fn run(mut self) -> Self {
        while self.outcome.is_ok()
            && self.tls.is_handshaking()
            && let Some((bytes, stamp)) = self.kept.first()
        {
            self.stamp = stamp;
            self.outcome = self.tls.shake(bytes).map(|used| self.kept.take(used));
        }
        self
    }

    /// Give back the session, and all bytes that it has not seen: first the rest, then what came `meanwhile`.
    fn end(mut self, meanwhile: Kept) -> (Box<Tls>, Kept, Nanos, Result<(), Broken>) {
        self.kept.append(meanwhile);
        (self.tls, self.kept, self.stamp, self.outcome)
    }
}

impl Layers {
    /// Keep bytes that the socket gave during the handshake.
    pub fn keep(&mut self, bytes: &[u8], stamp: Nanos) {
        self.begun = true;
        self.kept.push(bytes, stamp);
    }

    /// Whether there is something for the next step of the handshake.
    pub fn wants_handshake(&self) -> bool {
        self.away.is_none() && !self.kept.is_empty()
    }

    /// Whether the handshake goes on without further bytes from the socket.
    pub fn is_shaking(&self) -> bool {
        self.away.is_some() || self.wants_handshake()
    }

    /// Give the next step of the handshake, which is taken elsewhere.
    pub fn give_handshake(&mut self, key: ConnKey) -> Option<Handshake> {
        let tls = self.tls.take_if(|tls| tls.is_handshaking())?;
        self.away = Some(self.kept.len());
        Some(Handshake::new(key, tls, std::mem::take(&mut self.kept), self.stamp))
    }

    /// Take back a step that was taken. After the handshake, `receive_kept` gives the bytes behind it; after an error
    /// there are none.
    pub fn take_handshake(&mut self, step: Handshake) -> Result<(), Broken> {
        let (tls, kept, stamp, outcome) = step.end(std::mem::take(&mut self.kept));
        (self.away, self.tls, self.stamp) = (None, Some(tls), stamp);
        if outcome.is_ok() {
            self.kept = kept;
        }
        outcome
    }

    /// Receive the oldest read that the handshake has not seen. False: there is none.
    pub fn receive_kept(&mut self) -> bool {
        let Some((bytes, stamp)) = self.kept.first() else { return false };
        self.stamp = stamp;
        self.received.push(bytes);
        self.kept.take(bytes.len());
        true
    }
}
