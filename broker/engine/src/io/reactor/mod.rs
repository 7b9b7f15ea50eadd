//! The reactor: waits, reads all that is ready, lets the engine finish its turn, writes. One thread carries a message
//! from end to end.
//!
//! Imports everything. Begin with `Reactor::run`. Its children extend `Reactor`: `accept` lets connections in,
//! `consumer_reads` defers the answers of consumers, `paced_reads` reads clients that send little at a time, and
//! `drain_refused` drops what refused clients go on sending.
//!
//! System calls of a message: one `recvmsg`, one `send` for the acknowledgement, and shares of others. These are one
//! `epoll_wait`, one `send` to the subscriber, and one `recvmsg` of its FINs (`scheduling::deferred_reads`). Time
//! limits are an alarm that is seldom set, not part of each wait. Decisions are held back while the kernel may have
//! older messages on unread connections. That is as long as a wait fills the event buffer, and some messages go to a
//! topic with a limit.

mod accept;
mod consumer_reads;
mod drain_refused;
mod paced_reads;
mod port;

use std::any::Any;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use slotmap::{Key, KeyData, SecondaryMap};

use self::port::Port;
use crate::arrival::stamps::Stamps;
use crate::arrival::unread_since::{Unread, Waits};
use crate::config::ClockSource;
use crate::engine::Engine;
use crate::event::Event;
use crate::io::alarm::Alarm;
#[cfg(feature = "packet-clock")]
use crate::io::arrival_clock::packet_clock::PacketClock;
use crate::io::arrival_clock::{ArrivalClock, ReadClock};
use crate::io::clock::{self, ClockMap};
use crate::io::host::realtime;
use crate::io::listener::Listener;
use crate::io::shared::Shared;
use crate::io::socket::{self, Block, Epoll, Received};
use crate::io::worker::Worker;
use crate::keys::ConnKey;
use crate::scheduling::client_limits::TABLES;
use crate::scheduling::deferred_reads::DeferredReads;
use crate::scheduling::small_reads::{Rounds, SmallReads};
use crate::scheduling::work_budget::{CONNECTIONS_A_TURN, QUANTUM_BYTES};
use crate::time::Nanos;

const WAKE: u64 = u64::MAX;
const ALARM: u64 = u64::MAX - 1;

/// First token of the listeners, by index. The NSQ port comes first: the others may be removed, and its index stays.
const LISTENER: u64 = u64::MAX - 8;

/// What epoll says of a connection on which there are bytes, or room for some, and that is all.
const PLAIN: u32 = (libc::EPOLLIN | libc::EPOLLOUT) as u32;

/// Events of one wait, and so reads before anything is answered: 256 reads take about a millisecond.
const EVENTS: usize = 256;

/// Waits with a full event buffer that may hold decisions back: beyond 16 x 256 ready connections the latency promise
/// is lost.
const MAX_HOLDS: usize = 16;

/// Bytes that one read may bring: as many as a quantum copies. A longer command takes several reads.
const READ_BUFFER: usize = QUANTUM_BYTES;

struct Socket {
    fd: OwnedFd,
    writes: bool,   // EPOLLOUT is asked for
    reads: bool,    // EPOLLIN is asked for
    ended: bool,    // the peer has ended its stream
    dropping: bool, // in the list of `dropping`
    unread: Unread,
    defers_reads: bool, // in the list of `deferred_reads`: read from there unless `reads`
    small_reads: SmallReads,
    is_paced: bool, // waits for a round of small reads
    written: Nanos, // a consumer's last write
}

pub struct Reactor {
    engine: Engine,
    epoll: Epoll,
    alarm: Alarm,
    ports: Vec<Port>,
    sockets: SecondaryMap<ConnKey, Socket>,
    shared: Arc<Shared>,
    clock: ClockMap,
    waits: Waits,
    arrivals: Box<dyn ArrivalClock>,
    buffer: Vec<u8>,
    dirty: Vec<ConnKey>,
    room: Option<usize>,         // for connections
    leaving: VecDeque<Socket>,   // to be closed
    dropping: VecDeque<ConnKey>, // send what is for nobody
    drops_at: Nanos,             // when more of it is dropped
    deferred_reads: DeferredReads,
    rounds: Rounds,         // of small reads
    worker: Option<Worker>, // where clients may ask for TLS
}

impl Reactor {
    pub fn new(mut engine: Engine, listeners: Vec<Listener>, shared: Arc<Shared>) -> std::io::Result<Self> {
        if engine.config.realtime {
            realtime::take_priority()?;
        }
        let epoll = Epoll::new(EVENTS)?;
        let alarm = Alarm::new()?;
        epoll.add_edges(alarm.as_raw_fd(), ALARM)?;
        let waits = Waits::default();
        let arrivals: Box<dyn ArrivalClock> = match engine.config.arrival_clock {
            ClockSource::Kernel => Box::new(ReadClock),
            #[cfg(feature = "packet-clock")]
            ClockSource::Packet => Box::new(PacketClock::open(&listeners)?),
            #[cfg(not(feature = "packet-clock"))]
            ClockSource::Packet => return Err(crate::io::arrival_clock::needs_feature()),
        };
        let ports = port::listened_to(listeners, &epoll, Unread::new(&waits, clock::monotonic()))?;
        epoll.add(shared.wake.as_raw_fd(), WAKE)?;
        let worker = engine.tls.is_offered().then(|| Worker::start(Arc::clone(&shared))).transpose()?;
        let room = socket::room_for_connections();
        engine.set_room(room);
        socket::grow_descriptor_table(shared.wake.as_raw_fd());
        Ok(Self {
            engine,
            epoll,
            alarm,
            ports,
            sockets: SecondaryMap::with_capacity(room.unwrap_or(TABLES).min(TABLES)),
            shared,
            clock: ClockMap::sample(),
            waits,
            arrivals,
            buffer: vec![0; READ_BUFFER],
            dirty: Vec::new(),
            room,
            leaving: VecDeque::new(),
            dropping: VecDeque::new(),
            drops_at: 0,
            deferred_reads: DeferredReads::default(),
            rounds: Rounds::default(),
            worker,
        })
    }

    /// Runs until the handle stops it. It is the broker's main loop, meant to be read in one piece.
    pub fn run(mut self) -> std::io::Result<()> {
        self.engine.clock.set_offset(self.clock.offset());
        let mut now = self.clock.resample();
        while !self.shared.stopping() {
            let mut ready = self.wait_for_work(now)?;
            now = self.clock.resample();
            self.engine.clock.set_offset(self.clock.offset());
            self.note_suspension(false, now);
            (self.engine.counters.clock_steps, self.engine.counters.stamps_corrected) =
                (self.clock.steps, self.clock.corrected);
            self.arrivals.begin_turn(&mut self.clock, &mut self.engine.counters);
            let mut commands = false;
            for hold in 0.. {
                for index in 0..ready {
                    let (token, readiness) = self.epoll.event(index);
                    match token {
                        WAKE => commands = true,
                        ALARM => self.alarm.rang(),
                        LISTENER.. => self.accept((token - LISTENER) as usize, now),
                        _ => self.handle_ready(ConnKey::from(KeyData::from_ffi(token)), readiness, now),
                    }
                }
                // Whoever was stopped just behind the wait learns of what came meanwhile by another one: it may be
                // earlier than what was read.
                let missed = self.arrivals.missed() && hold == 0;
                let all = ready < self.epoll.capacity() && !missed;
                let holds = !all && hold < MAX_HOLDS && self.engine.decides_in_order();
                if !holds || self.engine.memory_is_full() || self.engine.has_enough_to_do() {
                    break;
                }
                ready = self.wait(Block::No, now)?;
            }
            now = clock::monotonic(); // all bytes read arrived before this
            self.note_suspension(commands, now);
            if commands {
                self.shared.wake.clear();
                self.engine.decide_publishes(now); // what came before a change of parameters is decided before it
                self.shared.run_commands(&mut self.engine, now);
                self.take_links(now);
                self.take_handshakes(now)?;
                self.set_http_ports()?;
            }
            self.end_rests(now)?;
            if self.engine.answer_turn(now) {
                self.write_all(now);
            }
            self.engine.deliver_turn(now);
            self.read_on();
            self.write_all(now);
            self.give_handshakes()?;
            self.read_deferred(now);
            self.read_paced(now);
            self.measure_network_delay();
            self.drop_some();
            self.close_some();
            self.publish_events();
            now = clock::monotonic();
        }
        self.save(now);
        Ok(())
    }

    /// Leases alone count the time for which the host is suspended, and any of the `commands` may bring the first one.
    fn note_suspension(&mut self, commands: bool, now: Nanos) {
        if commands || self.engine.has_leases() {
            self.engine.clock.set_suspended(clock::boottime() - now);
        }
    }

    /// Wait for news from outside, or until something is due.
    fn wait_for_work(&mut self, now: Nanos) -> std::io::Result<usize> {
        let rests = self.ports.iter().filter_map(|port| port.rests_until);
        let at_once = (!self.leaving.is_empty()).then_some(now);
        let due = self
            .engine
            .poll_timeout()
            .into_iter()
            .chain(at_once)
            .chain(self.drops_at())
            .chain(rests)
            .chain(self.deferred_reads.deadline())
            .chain(self.rounds.deadline())
            .min();
        match due {
            Some(at) if at <= now => return self.wait(Block::No, now),
            Some(at) => self.alarm.no_later_than(at)?,
            None => {}
        }
        self.wait(Block::Yes, now)
    }

    /// Ends the engine: answers publishes that wait for the disk, and saves the queues.
    ///
    /// Sockets are closed before the save, so that no client sends what the broker will not read.
    fn save(&mut self, now: Nanos) {
        self.engine.answer_held(now);
        self.write_all(now);
        self.sockets.clear();
        self.leaving.clear();
        if let Err(reason) = self.engine.save() {
            self.shared.note_unsaved();
            self.shared.push_events(vec![Event::DiskFailed { reason }]);
        }
        self.publish_events();
    }

    /// `now` is some instant not after the wait is entered.
    fn wait(&mut self, block: Block, now: Nanos) -> std::io::Result<usize> {
        self.waits.begin(now);
        let ready = self.epoll.wait(block)?;
        self.waits.end(ready, self.epoll.capacity());
        Ok(ready)
    }

    fn handle_ready(&mut self, key: ConnKey, readiness: u32, now: Nanos) {
        if readiness & (libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
            && !self.read(key, readiness & !PLAIN == 0, now)
        {
            self.look_again(key);
        }
        if readiness & libc::EPOLLOUT as u32 != 0 {
            self.engine.handle_writable(key);
        }
    }

    /// Reads once; passes the bytes to the engine with the arrival of the last one.
    ///
    /// Returns false if bytes may be left without a further edge. `plain`: epoll reported bytes and nothing else.
    fn read(&mut self, key: ConnKey, plain: bool, now: Nanos) -> bool {
        let Some(socket) = self.sockets.get_mut(key) else { return true };
        if !self.engine.is_read(key) {
            self.drop_later(key);
            return true;
        }
        socket.unread.reported(&self.waits);
        let since = socket.unread.since;
        match socket::receive(socket.fd.as_raw_fd(), &mut self.buffer) {
            Received::Bytes(len, stamp) => {
                let (is_stamped, publish_reads) = (stamp.is_some(), self.engine.counters.sharing.reads);
                let drained = len < READ_BUFFER && is_stamped; // without a stamp it is no TCP stream
                let stamp = match stamp {
                    Some(stamp) => {
                        let now = if self.clock.is_before(stamp, now) { now } else { clock::monotonic() };
                        let stamp = self.clock.monotonic_of(stamp, since, now);
                        if drained {
                            socket.unread.drained(stamp);
                        }
                        stamp
                    }
                    None => clock::monotonic(),
                };
                let stamps = self.arrivals.stamps(key, len, Stamps::shared(stamp, since), &mut self.clock);
                let before = self.engine.work_so_far();
                self.engine.handle_bytes(key, &self.buffer[..len], stamps, now);
                if !is_stamped && self.engine.counters.sharing.reads > publish_reads {
                    self.engine.counters.timestamp_fallbacks += 1;
                }
                if !self.engine.wants_input(key) {
                    self.set_interest(key, |socket| socket.reads = false);
                }
                self.note_small_read(key, len, self.engine.work_so_far() - before, now);
                drained && plain
            }
            Received::Nothing => false,
            Received::End => {
                self.engine.handle_eof(key);
                self.set_interest(key, |socket| (socket.reads, socket.ended) = (false, true));
                true
            }
            Received::Broken => {
                self.engine.handle_broken(key);
                true
            }
        }
    }

    fn give_handshakes(&mut self) -> std::io::Result<()> {
        let Some(worker) = &self.worker else { return Ok(()) };
        std::iter::from_fn(|| self.engine.poll_handshake()).try_for_each(|step| worker.give(step))
    }

    fn take_handshakes(&mut self, now: Nanos) -> std::io::Result<()> {
        let Some(worker) = &self.worker else { return Ok(()) };
        while let Some(step) = worker.take()? {
            self.engine.handle_handshake(step, now);
        }
        Ok(())
    }

    fn write_all(&mut self, now: Nanos) {
        let mut dirty = std::mem::take(&mut self.dirty);
        loop {
            self.engine.poll_dirty(&mut dirty);
            if dirty.is_empty() {
                break;
            }
            for &key in &dirty {
                self.write(key, now);
            }
        }
        self.dirty = dirty;
    }

    /// Write what the connection has, until it is out or the socket is full.
    fn write(&mut self, key: ConnKey, now: Nanos) {
        let Some(socket) = self.sockets.get(key) else { return };
        let fd = socket.fd.as_raw_fd();
        let (timed, mut now) = (self.engine.is_timed(key), now);
        let blocked = loop {
            let unsent = self.engine.unsent(key);
            if unsent.is_empty() {
                break false;
            }
            let sent = socket::send(fd, unsent);
            if timed {
                now = clock::monotonic();
            }
            match sent {
                Ok(0) => break true,
                Ok(len) => self.engine.handle_sent(key, len, now),
                Err(_) => return self.engine.handle_broken(key),
            }
        };
        self.set_interest(key, |socket| socket.writes = blocked);
        if blocked {
            self.engine.handle_blocked(key, now);
            return;
        }
        self.pace(key, now);
        if self.engine.handle_flushed(key, now) && socket::shut_down_sending(fd).is_err() {
            self.engine.handle_broken(key);
        }
    }

    fn set_interest(&mut self, key: ConnKey, change: impl FnOnce(&mut Socket)) {
        let Some(socket) = self.sockets.get_mut(key) else { return };
        let before = (socket.reads, socket.writes);
        change(socket);
        if before != (socket.reads, socket.writes) {
            self.look_again(key);
        }
    }

    /// Have the next wait name a connection if there is what it is waited for, whatever waits have said of that.
    fn look_again(&mut self, key: ConnKey) {
        let Some(Socket { fd, reads, writes, .. }) = self.sockets.get(key) else { return };
        if self.epoll.set_edges(fd.as_raw_fd(), key.data().as_ffi(), *reads, *writes).is_err() {
            self.engine.handle_broken(key);
        }
    }

    fn measure_network_delay(&mut self) {
        for key in self.engine.poll_network_delay() {
            if let Some(round_trip) =
                self.sockets.get(key).and_then(|socket| socket::min_round_trip(socket.fd.as_raw_fd()))
            {
                self.engine.handle_round_trip(key, round_trip);
            }
        }
        self.engine.end_network_delay();
    }

    /// Dropping a socket closes it and takes it out of the epoll set, so many in a turn: a crowd that leaves together
    /// must not stop those that stay.
    fn close_some(&mut self) {
        for key in self.engine.poll_closed() {
            if let Some(socket) = self.sockets.remove(key) {
                // Those that must wait would be told of at every wait once their peers are gone. (If that fails they
                // are, and closed soon all the same.)
                if self.leaving.len() >= CONNECTIONS_A_TURN {
                    let _ = self.epoll.remove(socket.fd.as_raw_fd());
                }
                self.leaving.push_back(socket);
            }
            self.arrivals.forget(key);
        }
        self.leaving.drain(..CONNECTIONS_A_TURN.min(self.leaving.len()));
    }

    fn publish_events(&mut self) {
        if self.engine.has_events() {
            self.shared.push_events(self.engine.poll_events());
        }
        if self.engine.has_handed() {
            self.shared.push_requests(self.engine.poll_handed());
        }
    }
}

/// Run a reactor on this thread; its failure, a panic included, becomes an event, and nobody waits for it any more.
pub fn run(reactor: Reactor, shared: &Shared) {
    // Unwind safety: the reactor is gone afterwards, and what is shared is plain lists.
    let reason = match catch_unwind(AssertUnwindSafe(|| reactor.run())) {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("the event loop failed: {error}")),
        Err(panic) => Some(format!("the event loop panicked: {}", panic_text(&*panic))),
    };
    if let Some(reason) = reason {
        shared.push_events(vec![Event::Failed { reason }]);
    }
    shared.ended();
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}
