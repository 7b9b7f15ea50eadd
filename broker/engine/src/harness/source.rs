//! The bytes that a fuzzer invents, taken from the front as choices. What is used up gives zeros, so every input is a
//! valid one.

#[derive(Debug, Clone, Copy)]
pub struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Below `end`, which is above 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    pub fn number(&mut self) -> u64 {
        self.bytes(8).iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    /// The next `len` bytes, or as many as there are.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// As many bytes as the next byte says.
    pub fn text(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte());
        self.bytes(len)
    }

    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// The rest, cut into pieces at places that a number (its first eight bytes) decides.
    pub fn pieces(&mut self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (mut seed, mut left) = (self.number() | 1, self.rest());
        std::iter::from_fn(move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let longest = if seed & 1 == 0 { 4 } else { 400 };
            let (piece, rest) = left.split_at((1 + (seed >> 32) as usize % longest).min(left.len()));
            left = rest;
            (!piece.is_empty()).then_some(piece)
        })
    }
}
