//! What the reactor's thread shares with the threads of Python: commands in, events and requests out.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, LockResult, Mutex, PoisonError};
use std::time::Duration;

use crate::engine::Engine;
use crate::event::Event;
use crate::http::Handed;
use crate::io::progress::Progress;
use crate::io::wake::Wake;
use crate::protocol::link_frames::Opening;
use crate::time::Nanos;

/// A connection to another broker, made by Python. It is closed unless the reactor takes it.
pub(crate) struct NewLink {
    pub number: u64,
    pub fd: OwnedFd,
    pub opening: Opening,
    pub remote: String,
}

pub(crate) type Command = Box<dyn FnOnce(&mut Engine, Nanos) + Send>;

/// What the reactor's thread shares with the others.
pub struct Shared {
    pub(crate) wake: Wake,
    pub(crate) told: Wake, // readable while there are events, or requests for Python
    pub(crate) stop: AtomicBool,
    pub(crate) unsaved: AtomicBool, // what was queued could not be written at the end
    pub(crate) commands: Mutex<Inbox>,
    pub(crate) saving: Progress,
    pub(crate) over: Condvar, // with `commands`: `Inbox::ended` has become true
    pub(crate) events: Mutex<Vec<Event>>,
    pub(crate) requests: Mutex<Vec<Handed>>,
}

#[derive(Default)]
pub(crate) struct Inbox {
    pub(crate) commands: Vec<Command>,
    pub(crate) links: Vec<NewLink>,
    pub(crate) ended: bool, // the reactor is gone: nobody would run them
}

/// A lock, whatever a panic left. The data is a plain list: it cannot be half changed.
pub(crate) fn held<T>(lock: LockResult<T>) -> T {
    lock.unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            wake: Wake::new()?,
            told: Wake::new()?,
            stop: AtomicBool::new(false),
            unsaved: AtomicBool::new(false),
            commands: Mutex::default(),
            saving: Progress::default(),
            over: Condvar::new(),
            events: Mutex::default(),
            requests: Mutex::default(),
        })
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(crate) fn run_commands(&self, engine: &mut Engine, now: Nanos) {
        let commands = std::mem::take(&mut held(self.commands.lock()).commands);
        for command in commands {
            command(engine, now);
        }
    }

    pub(crate) fn take_links(&self) -> Vec<NewLink> {
        std::mem::take(&mut held(self.commands.lock()).links)
    }

    pub(crate) fn push_events(&self, events: Vec<Event>) {
        held(self.events.lock()).extend(events);
        self.told.wake();
    }

    pub(crate) fn push_requests(&self, requests: Vec<Handed>) {
        held(self.requests.lock()).extend(requests);
        self.told.wake();
    }

    /// Whoever waits for an answer gets none any more (its sender is dropped here).
    pub(crate) fn ended(&self) {
        let mut inbox = held(self.commands.lock());
        inbox.ended = true;
        inbox.commands.clear();
        inbox.links.clear();
        self.over.notify_all();
    }

    pub(crate) fn note_unsaved(&self) {
        self.unsaved.store(true, Ordering::Release);
    }

    /// Whether the reactor is gone, before `patience` is over.
    pub(crate) fn wait_for_end(&self, patience: Duration) -> bool {
        let inbox = held(self.commands.lock());
        let (inbox, _) = held(self.over.wait_timeout_while(inbox, patience, |inbox| !inbox.ended));
        inbox.ended
    }

    pub(crate) fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake.wake();
    }
}
