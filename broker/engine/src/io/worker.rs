//! The worker thread beside the reactor, for slow steps of TLS handshakes.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{Builder, JoinHandle};

use crate::io::shared::Shared;
use crate::scheduling::handshake_queue::MAX_AWAY;
use crate::transport::handshake::Handshake;

/// How much nicer it is than the rest of the process: where cores are short, messages go before handshakes.
const NICER: libc::c_int = 10;

pub struct Worker {
    ends: Option<(SyncSender<Handshake>, Receiver<Handshake>)>, // to, from; `MAX_AWAY` bounds both
    thread: Option<JoinHandle<()>>,
}

/// Wakes the reactor when the thread ends, however it does.
struct Wakes(Arc<Shared>);

impl Drop for Wakes {
    fn drop(&mut self) {
        self.0.wake.wake();
    }
}

impl Worker {
    /// It wakes the reactor whenever it has something to give back.
    pub fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let (to, given) = sync_channel::<Handshake>(MAX_AWAY);
        let (taken, from) = sync_channel(MAX_AWAY);
        let (ready, started) = sync_channel(1);
        let thread = Builder::new().name("srtm-handshakes".into()).spawn(move || {
            let wakes = Wakes(shared);
            let nicer = be_nicer();
            let is_nicer = nicer.is_ok();
            // Who started it waits below.
            let _ = ready.send(nicer);
            while is_nicer && let Ok(step) = given.recv() {
                if taken.send(step.run()).is_err() {
                    return;
                }
                wakes.0.wake.wake();
            }
        })?;
        started.recv().map_err(io::Error::other)??;
        Ok(Self { ends: Some((to, from)), thread: Some(thread) })
    }

    /// A step to take.
    pub fn give(&self, step: Handshake) -> io::Result<()> {
        let (to, _) = self.ends.as_ref().ok_or_else(gone)?;
        to.send(step).map_err(|_| gone())
    }

    /// A step that was taken, if there is one.
    pub fn take(&self) -> io::Result<Option<Handshake>> {
        let (_, from) = self.ends.as_ref().ok_or_else(gone)?;
        match from.try_recv() {
            Ok(step) => Ok(Some(step)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(gone()),
        }
    }
}

/// It ends after the step that it is at.
impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.ends.take());
        if let Some(thread) = self.thread.take() {
            // Had it panicked, the reactor would have told (`take`).
            let _ = thread.join();
        }
    }
}

#[cold]
fn gone() -> io::Error {
    io::Error::other("the thread of the TLS handshakes has ended")
}

/// Lower the calling thread's priority among ordinary ones.
fn be_nicer() -> io::Result<()> {
    // SAFETY: no pointers. 0 is the calling thread, which has its own nice value on Linux; the call cannot fail.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    // SAFETY: no pointers; the result is checked. The kernel takes what is beyond 19 for 19.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice + NICER) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
#[path = "../tests/worker.rs"]
mod tests;
