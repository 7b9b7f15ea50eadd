//! Arrivals of the bytes of one read, and the error bound of a stamp that several publishes share.

use crate::time::Nanos;

/// Arrivals of the bytes of one read: of the last byte only, or span by span.
#[derive(Debug, Clone, Copy)]
pub struct Stamps<'a> {
    last: Nanos,
    since: Nanos,                // no byte came before this
    spans: &'a [(usize, Nanos)], // (end offset in the read, arrival), ascending; empty: only `last` is known
    before: usize,               // bytes of earlier reads in front of this one
}

impl<'a> Stamps<'a> {
    /// Only the arrival of the last byte is known, and that none came before `since`.
    pub fn shared(last: Nanos, since: Nanos) -> Self {
        Self { last, since: since.min(last), spans: &[], before: 0 }
    }

    /// The arrivals of all bytes are known, up to the end of the last of `spans`.
    pub fn exact(spans: &'a [(usize, Nanos)]) -> Option<Self> {
        let (_, last) = *spans.last()?;
        Some(Self { last, since: last, spans, before: 0 })
    }

    /// The same read behind `len` bytes that were kept of earlier ones.
    pub(crate) fn behind(self, len: usize) -> Self {
        Self { before: len, ..self }
    }

    /// When no byte of the read was there yet.
    #[cfg(feature = "packet-clock")]
    pub(crate) fn since(&self) -> Nanos {
        self.since
    }

    /// Arrival of a command that ends at offset `end`: that of its last byte.
    pub(crate) fn at(&self, end: usize) -> Nanos {
        if self.spans.is_empty() {
            return self.last;
        }
        let end = end.saturating_sub(self.before);
        self.spans.get(self.spans.partition_point(|(span_end, _)| *span_end < end)).map_or(self.last, |(_, at)| *at)
    }

    /// Up to which offset bytes came when, counted as `at` counts, without the first `used`.
    pub(crate) fn rest(self, used: usize, len: usize) -> impl Iterator<Item = (usize, Nanos)> + 'a {
        let spans = self
            .spans
            .iter()
            .map(move |(end, at)| (end + self.before, *at))
            .filter(move |(end, _)| *end > used && *end < len);
        spans.chain([(len, self.last)]).map(move |(end, at)| (end - used, at))
    }

    /// How late the stamp of a publish can be whose last byte was not the read's last one.
    fn bias_bound(&self) -> Nanos {
        if self.spans.is_empty() { self.last - self.since } else { 0 }
    }
}

/// A read of which only the last byte's arrival is known, and nothing of how long it had been there.
impl From<Nanos> for Stamps<'_> {
    fn from(last: Nanos) -> Self {
        Self::shared(last, last)
    }
}

/// What publishes lost in precision by sharing stamps.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    pub reads: u64,      // that brought publishes
    pub merged: u64,     // of those: a publish ended before the read did, and so took the stamp of later bytes
    pub bias_max: Nanos, // largest bound of what such a stamp was too late
}

impl Sharing {
    /// Records a read with publishes. `merged`: one of them ended before the read did.
    pub(crate) fn note(&mut self, stamps: &Stamps<'_>, merged: bool) {
        self.reads += 1;
        if merged && stamps.spans.is_empty() {
            self.merged += 1;
            self.bias_max = self.bias_max.max(stamps.bias_bound());
        }
    }
}
