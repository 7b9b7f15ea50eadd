//! A message in the engine: a frame shared by all channels and consumers, and the state of one queue entry. Frames of
//! one publish share an allocation.

use std::ops::Deref;
use std::rc::Rc;

use crate::id::MessageId;
use crate::limiter::trace::NO_TRACE;
use crate::memory::{LARGE_BYTES, Meter};
use crate::protocol::codec;
use crate::storage::disk_queue::Read;
use crate::storage::receipts::Receipt;
use crate::storage::record::{Record, Times};
use crate::time::Nanos;

/// Bytes charged for a queue entry besides its frame: the entry, its part of the queue, the allocator's overhead.
pub(crate) const ENTRY_OVERHEAD: u64 = 128;

/// Bytes of a block that messages of one publish share at most. A consumer that keeps one message keeps its whole
/// block.
const BLOCK: usize = 8 << 10;

/// Bytes charged for `count` messages with `len` bytes of bodies in total, in `channels` channels each.
pub fn cost_of(count: u64, len: u64, channels: u64) -> u64 {
    count * (channels * ENTRY_OVERHEAD + codec::MESSAGE_HEADER as u64) + len
}

/// A message as consumers receive it, in a block shared with others of its publish.
///
/// The meter is charged once for the block, until its last frame is dropped, and once for each copy of the frame.
#[derive(Debug)]
pub struct Frame {
    block: Block,
    start: u32,
    end: u32,
    meter: Meter,
}

/// Storage of frames.
#[derive(Debug, Clone)]
enum Block {
    Shared(Rc<[u8]>),
    /// One frame in the buffer that built it: copying a large one is expensive.
    Large(Rc<Vec<u8>>),
}

impl Block {
    fn is_the_last(&self) -> bool {
        match self {
            Self::Shared(bytes) => Rc::strong_count(bytes) == 1,
            Self::Large(bytes) => Rc::strong_count(bytes) == 1,
        }
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Shared(bytes) => bytes,
            Self::Large(bytes) => bytes,
        }
    }
}

impl Frame {
    fn new(block: &Block, start: u32, end: u32, meter: &Meter) -> Self {
        meter.add(ENTRY_OVERHEAD);
        Self { block: block.clone(), start, end, meter: meter.clone() }
    }

    /// What stands in front of a frame that has attributes: these, and their length in 4 bytes.
    fn prefix(&self) -> &[u8] {
        let before = &self.block[..self.start as usize];
        let Some((rest, len)) = before.split_last_chunk::<4>() else { return &[] };
        let len = u32::from_be_bytes(*len) as usize;
        rest.len().checked_sub(len).map_or(&[], |from| &before[from..])
    }

    /// Address and size in bytes of its block.
    #[cfg(any(test, feature = "harness"))]
    pub fn block(&self) -> (*const u8, u64) {
        (self.block.as_ptr(), self.block.len() as u64)
    }
}

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.block[self.start as usize..self.end as usize]
    }
}

impl Clone for Frame {
    fn clone(&self) -> Self {
        self.meter.add(ENTRY_OVERHEAD);
        Self { block: self.block.clone(), meter: self.meter.clone(), ..*self }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let block = if self.block.is_the_last() { self.block.len() as u64 } else { 0 };
        self.meter.subtract(ENTRY_OVERHEAD + block);
    }
}

/// An entry of a queue: the shared frame, and this channel's count of attempts.
#[derive(Debug, Clone)]
pub struct Message {
    pub id: MessageId,
    pub frame: Frame, // from `codec::build_message`
    pub attempts: u16,
    pub defer_ms: u32, // DPUB: deferral in each channel, from its arrival there
    pub foreign: bool, // of an earlier incarnation: its times do not compare with ours
    attributed: bool,  // attributes stand in front of its frame
    pub times: Times,
    pub(crate) stored: Option<Rc<Receipt>>, // read from disk; the record stays until the last copy is dropped
}

impl Message {
    fn new(id: MessageId, frame: Frame, arrival: Nanos, defer_ms: u32) -> Self {
        let times = Times { arrival, due: arrival, queued: arrival, trace: NO_TRACE };
        Self { id, frame, attempts: 0, defer_ms, foreign: false, attributed: false, times, stored: None }
    }

    /// What another protocol than NSQ says of it besides its body (`protocol::mqtt::attributes`). Empty: nothing.
    pub fn attributes(&self) -> &[u8] {
        if !self.attributed {
            return &[];
        }
        let prefix = self.frame.prefix();
        &prefix[..prefix.len().saturating_sub(ATTRIBUTES_LEN)]
    }

    pub fn has_attributes(&self) -> bool {
        self.attributed
    }

    pub fn body(&self) -> &[u8] {
        &self.frame[codec::MESSAGE_HEADER..]
    }

    /// The same for long storage, in a block of its own if it would keep a much larger one alive.
    pub fn detached(self) -> Self {
        let prefix = if self.attributed { self.frame.prefix() } else { &[] };
        if self.frame.block.len() <= 2 * (prefix.len() + self.frame.len()) {
            return self;
        }
        let (start, bytes) = (prefix.len() as u32, [prefix, &self.frame].concat());
        let block = Block::Shared(Rc::from(bytes));
        self.frame.meter.add(block.len() as u64);
        let frame = Frame::new(&block, start, block.len() as u32, &self.frame.meter);
        Self { frame, ..self }
    }

    /// What it takes in one queue, in bytes.
    pub fn cost(&self) -> u64 {
        let attributes = if self.attributed { self.frame.prefix().len() } else { 0 };
        cost_of(1, (attributes + self.body_len()) as u64, 1)
    }

    /// Wall-clock instant of its publish.
    pub fn wall_ns(&self) -> i64 {
        codec::message_wall_ns(&self.frame)
    }

    /// A message read from disk at `now`.
    pub fn from_disk(builder: &mut Builder, meter: &Meter, read: Read<'_>, now: Nanos) -> Self {
        let Read { record, receipt, foreign } = read;
        let frame = Alone { id: record.id, wall_ns: record.wall_ns, attributes: record.attributes, body: record.body };
        let message = builder.alone(meter, frame, now, record.defer_ms);
        let times = if foreign { message.times } else { record.times };
        Self { attempts: record.attempts, foreign, times, stored: Some(receipt), ..message }
    }

    /// Its record on disk. `until_wall_ns`: wall clock until which it is deferred; 0: not deferred.
    #[inline]
    pub fn record(&self, until_wall_ns: i64) -> Record<'_> {
        Record {
            id: self.id,
            wall_ns: self.wall_ns(),
            attempts: self.attempts,
            defer_ms: self.defer_ms,
            times: self.times,
            until_wall_ns,
            attributes: self.attributes(),
            body: self.body(),
        }
    }

    pub fn body_len(&self) -> usize {
        self.frame.len() - codec::MESSAGE_HEADER
    }
}

/// Bytes of the length of attributes.
const ATTRIBUTES_LEN: usize = 4;

/// Bytes of a frame and of what stands in front of it.
fn room(attributes: &[u8], body: &[u8]) -> usize {
    let prefix = if attributes.is_empty() { 0 } else { attributes.len() + ATTRIBUTES_LEN };
    prefix + codec::MESSAGE_HEADER + body.len()
}

/// A message to build in a block of its own.
#[derive(Debug, Clone, Copy)]
pub struct Alone<'a> {
    pub id: MessageId,
    pub wall_ns: i64,
    pub attributes: &'a [u8],
    pub body: &'a [u8],
}

/// A frame in the block under construction.
#[derive(Debug, Clone, Copy)]
struct Span {
    id: MessageId,
    start: u32,
    end: u32,
    attributed: bool,
}

/// Builds messages, those of one publish in shared blocks; reuses its buffers.
#[derive(Debug, Default)]
pub struct Builder {
    bytes: Vec<u8>,         // consecutive frames, each behind its attributes
    large: Option<Vec<u8>>, // one frame that becomes a block without a copy
    spans: Vec<Span>,
}

impl Builder {
    /// Whether a body of `len` bytes fits into the present block; if not, the caller must `take` it first.
    pub fn has_room(&self, len: usize) -> bool {
        self.spans.is_empty() || self.large.is_none() && self.bytes.len() + codec::MESSAGE_HEADER + len <= BLOCK
    }

    /// Adds a message. False: it is large, and the system refused the memory.
    pub fn add(&mut self, id: MessageId, wall_ns: i64, body: &[u8]) -> bool {
        self.add_with(&[], id, wall_ns, body)
    }

    /// Adds a message that has attributes, unless they are empty.
    pub fn add_with(&mut self, attributes: &[u8], id: MessageId, wall_ns: i64, body: &[u8]) -> bool {
        let mut frame = Vec::new();
        let there = body.len() < LARGE_BYTES || frame.try_reserve_exact(room(attributes, body)).is_ok();
        if there {
            self.add_in(frame, Alone { id, wall_ns, attributes, body });
        }
        there
    }

    /// Adds a message; builds a large one in `frame`.
    fn add_in(&mut self, mut frame: Vec<u8>, message: Alone<'_>) {
        let Alone { id, wall_ns, attributes, body } = message;
        let is_large = body.len() >= LARGE_BYTES;
        let bytes = if is_large { &mut frame } else { &mut self.bytes };
        let attributed = !attributes.is_empty();
        if is_large {
            bytes.reserve_exact(room(attributes, body));
        }
        if attributed {
            bytes.extend_from_slice(attributes);
            bytes.extend_from_slice(&(attributes.len() as u32).to_be_bytes());
        }
        let start = bytes.len() as u32;
        codec::build_message(bytes, wall_ns, id, body);
        self.spans.push(Span { id, start, end: bytes.len() as u32, attributed });
        if is_large {
            self.large = Some(frame);
        }
    }

    /// Adds a complete large frame built elsewhere. The builder must be empty.
    pub fn add_frame(&mut self, id: MessageId, frame: Vec<u8>) {
        self.spans.push(Span { id, start: 0, end: frame.len() as u32, attributed: false });
        self.large = Some(frame);
    }

    /// Moves all added messages, in order, into `into` in one block. Small messages need no other allocation.
    pub fn take(&mut self, into: &mut Vec<Option<Message>>, meter: &Meter, arrival: Nanos, defer_ms: u32) {
        if self.spans.is_empty() {
            return;
        }
        let block = self.block(meter);
        into.extend(self.spans.drain(..).map(|Span { id, start, end, attributed }| {
            let frame = Frame::new(&block, start, end, meter);
            Some(Message { attributed, ..Message::new(id, frame, arrival, defer_ms) })
        }));
    }

    /// One message in a block of its own.
    pub fn alone(&mut self, meter: &Meter, message: Alone<'_>, arrival: Nanos, defer_ms: u32) -> Message {
        self.add_in(Vec::new(), message);
        let block = self.block(meter);
        let (start, attributed) = self.spans.pop().map_or((0, false), |span| (span.start, span.attributed));
        self.spans.clear();
        let frame = Frame::new(&block, start, block.len() as u32, meter);
        Message { attributed, ..Message::new(message.id, frame, arrival, defer_ms) }
    }

    fn block(&mut self, meter: &Meter) -> Block {
        if let Some(large) = self.large.take() {
            debug_assert!(self.bytes.is_empty(), "a large frame is alone");
            meter.add(large.len() as u64);
            return Block::Large(Rc::new(large));
        }
        meter.add(self.bytes.len() as u64);
        let block = Block::Shared(Rc::from(self.bytes.as_slice()));
        self.bytes.clear();
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three(meter: &Meter, sizes: [usize; 3]) -> Vec<Option<Message>> {
        let (mut builder, mut messages) = (Builder::default(), Vec::new());
        for (number, size) in (1..).zip(sizes) {
            if !builder.has_room(size) {
                builder.take(&mut messages, meter, 0, 0);
            }
            builder.add(MessageId(number), 0, &vec![number as u8; size]);
        }
        builder.take(&mut messages, meter, 0, 0);
        messages
    }

    fn alone(meter: &Meter, attributes: &[u8]) -> Message {
        let message = Alone { id: MessageId(1), wall_ns: 0, attributes, body: b"body" };
        Builder::default().alone(meter, message, 0, 0)
    }

    #[test]
    fn attributes_stay_with_their_message_and_out_of_its_frame() {
        let meter = Meter::default();
        let plain = alone(&meter, b"");
        let message = alone(&meter, b"name");
        assert_eq!(message.cost(), plain.cost() + 4 + ATTRIBUTES_LEN as u64);
        assert_eq!((message.attributes(), message.body()), (&b"name"[..], &b"body"[..]));
        assert_eq!((&*message.frame, plain.attributes()), (&*plain.frame, &b""[..]));
        let (mut builder, mut messages) = (Builder::default(), Vec::new());
        for (id, attributes) in [(1, "a"), (2, ""), (3, "of the third")] {
            builder.add_with(attributes.as_bytes(), MessageId(id), 0, &[id as u8; 900]);
        }
        builder.add_with(&[7; 99], MessageId(4), 0, &[4; 10]);
        builder.take(&mut messages, &meter, 0, 0);
        let last = messages.pop().flatten().expect("the last").detached();
        drop(messages.drain(3..));
        let all: Vec<&[u8]> = messages.iter().flatten().map(Message::attributes).collect();
        assert_eq!(all, [b"a", &b""[..], b"of the third"]);
        assert_eq!((last.attributes(), last.body()), (&[7; 99][..], &[4; 10][..]), "in a block of its own");
        builder.add_with(b"large", MessageId(5), 0, &vec![5; LARGE_BYTES]);
        builder.take(&mut messages, &meter, 0, 0);
        let large = messages.pop().flatten().expect("the large one");
        assert_eq!((large.attributes(), large.body_len()), (&b"large"[..], LARGE_BYTES));
        drop((plain, message, last, large, messages));
        assert_eq!(meter.used(), 0);
    }

    #[test]
    fn the_meter_is_back_at_zero_when_every_copy_is_gone() {
        let meter = Meter::default();
        let message = alone(&meter, b"");
        assert_eq!(meter.used(), cost_of(1, 4, 1));
        let copy = message.clone();
        assert_eq!(meter.used(), cost_of(1, 4, 2), "their frame is one");
        drop((message, copy));
        assert_eq!(meter.used(), 0);
    }

    #[test]
    fn a_message_that_is_detached_is_charged_alone_and_keeps_nothing_of_the_others() {
        let meter = Meter::default();
        let mut messages = three(&meter, [10, 20, 30]).into_iter().flatten();
        let (first, rest) = (messages.next().expect("one"), messages);
        let kept = first.detached();
        assert_eq!(kept.body(), [1; 10]);
        drop(rest);
        assert_eq!(meter.used(), cost_of(1, 10, 1));
        let again = kept.detached();
        assert_eq!(meter.used(), cost_of(1, 10, 1), "it is alone already");
        drop(again);
        assert_eq!(meter.used(), 0);
    }

    #[test]
    fn messages_are_as_they_were_published_whatever_their_sizes_beside_one_another() {
        let sizes = [0, 10, BLOCK - codec::MESSAGE_HEADER, BLOCK, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1];
        for at in 0..sizes.len().pow(3) {
            let three_sizes = [at, at / sizes.len(), at / sizes.len().pow(2)].map(|at| sizes[at % sizes.len()]);
            let meter = Meter::default();
            let messages = three(&meter, three_sizes);
            for ((message, number), size) in messages.into_iter().flatten().zip(1..).zip(three_sizes) {
                let frame = &message.frame;
                assert!(frame[codec::MESSAGE_HEADER..] == vec![number; size], "{three_sizes:?}: {number}");
                assert_eq!(
                    frame[..codec::MESSAGE_HEADER],
                    codec::message_header(0, MessageId(number.into()), size),
                    "{three_sizes:?}"
                );
            }
            assert_eq!(meter.used(), 0);
        }
    }

    #[test]
    fn a_large_block_takes_no_more_than_it_is_charged_and_leaves_the_room_for_small_ones() {
        let (mut builder, mut messages, meter) = (Builder::default(), Vec::new(), Meter::default());
        builder.add(MessageId(1), 0, &[1; LARGE_BYTES - 1]);
        builder.take(&mut messages, &meter, 0, 0);
        let room = builder.bytes.capacity();
        builder.add(MessageId(2), 0, &[2; LARGE_BYTES + 1]);
        builder.take(&mut messages, &meter, 0, 0);
        assert_eq!(builder.bytes.capacity(), room);
        assert!(builder.has_room(1) && builder.large.is_none());
        let message = messages.pop().flatten().expect("the large one");
        let Block::Large(bytes) = &message.frame.block else { panic!("it is large") };
        assert_eq!(bytes.capacity(), bytes.len());
        assert_eq!(message.frame[codec::MESSAGE_HEADER..], [2; LARGE_BYTES + 1]);
    }

    #[test]
    fn a_block_is_charged_until_the_last_of_its_messages_is_gone() {
        let meter = Meter::default();
        let mut messages = three(&meter, [10, 20, 30]);
        assert_eq!(meter.used(), cost_of(3, 60, 1));
        let bodies: Vec<usize> = messages.iter().flatten().map(Message::body_len).collect();
        assert_eq!(bodies, [10, 20, 30]);
        let frames = meter.used() - 3 * ENTRY_OVERHEAD;
        messages.drain(..2);
        assert_eq!(meter.used(), ENTRY_OVERHEAD + frames, "it is still there");
        messages.clear();
        assert_eq!(meter.used(), 0);
    }

    #[test]
    fn what_a_kept_message_keeps_besides_is_bounded() {
        let meter = Meter::default();
        let messages = three(&meter, [BLOCK / 2, BLOCK / 2, BLOCK]);
        let blocks: Vec<_> = messages.iter().flatten().map(|message| message.frame.block()).collect();
        assert!(blocks[0].0 != blocks[1].0 && blocks[1].0 != blocks[2].0, "they do not fit together");
        let mut small = three(&meter, [10, 20, 30]);
        assert!(small.drain(..).flatten().all(|message| message.frame.block().1 <= BLOCK as u64));
    }
}
