//! Message ids: 64 bits shown as 16 lower-case hex characters, growing with time, unique while a message lives (nsqd's
//! snowflake layout).

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u64);

const NODE_BITS: u32 = 10;
pub(crate) const SEQUENCE_BITS: u32 = 12;

impl MessageId {
    pub fn to_hex(self) -> [u8; 16] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        std::array::from_fn(|i| DIGITS[(self.0 >> (60 - 4 * i)) as usize & 15])
    }

    /// The id behind 16 bytes from a client; `None` where we never made such an id.
    pub fn from_hex(hex: &[u8]) -> Option<Self> {
        let mut id = 0u64;
        for &c in hex {
            let digit = match c {
                b'0'..=b'9' => c - b'0',
                b'a'..=b'f' => c - b'a' + 10,
                _ => return None,
            };
            id = id << 4 | u64::from(digit);
        }
        (hex.len() == 16).then_some(Self(id))
    }
}

/// Makes ids: wall time in 2^20 ns | node | sequence. A full sequence borrows from the next tick, so it never waits and
/// never repeats.
#[derive(Debug)]
pub struct IdMaker {
    node: u64,
    tick: u64,
    sequence: u64,
}

impl IdMaker {
    pub fn new(node_id: u16) -> Self {
        Self { node: u64::from(node_id) & ((1 << NODE_BITS) - 1), tick: 0, sequence: 0 }
    }

    /// From now on all ids are greater than this one: messages of an earlier incarnation live on, and the wall clock
    /// may have been set back.
    pub fn stay_above(&mut self, id: MessageId) {
        if id.0 >> (NODE_BITS + SEQUENCE_BITS) >= self.tick {
            (self.tick, self.sequence) = ((id.0 >> (NODE_BITS + SEQUENCE_BITS)) + 1, 0);
        }
    }

    pub fn next(&mut self, wall_ns: i64) -> MessageId {
        let tick = (wall_ns.max(0) as u64) >> 20;
        if tick > self.tick {
            (self.tick, self.sequence) = (tick, 0);
        } else if self.sequence + 1 < 1 << SEQUENCE_BITS {
            self.sequence += 1;
        } else {
            (self.tick, self.sequence) = (self.tick + 1, 0);
        }
        MessageId(self.tick << (NODE_BITS + SEQUENCE_BITS) | self.node << SEQUENCE_BITS | self.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_and_do_not_repeat_also_when_the_clock_goes_back() {
        let mut maker = IdMaker::new(7);
        let mut last = maker.next(1 << 40);
        for i in 0..10_000i64 {
            let id = maker.next((1 << 40) - i);
            assert!(id > last);
            last = id;
        }
    }

    #[test]
    fn ids_stay_above_those_of_an_earlier_incarnation_also_when_the_clock_was_set_back() {
        let mut earlier = IdMaker::new(1023);
        let last = (0..5_000).map(|_| earlier.next(1 << 50)).max().expect("some");
        let mut maker = IdMaker::new(0);
        maker.stay_above(last);
        assert!(maker.next(1 << 40) > last);
        assert!(maker.next(1 << 51) > MessageId(0));
        maker.stay_above(MessageId(5));
        assert!(maker.next(1 << 40) > last, "a smaller one changes nothing");
    }

    #[test]
    fn hex_goes_both_ways() {
        let id = MessageId(0x0123_4567_89ab_cdef);
        assert_eq!(&id.to_hex(), b"0123456789abcdef");
        assert_eq!(MessageId::from_hex(&id.to_hex()), Some(id));
        assert_eq!(MessageId::from_hex(b"0123456789ABCDEF"), None);
    }
}
