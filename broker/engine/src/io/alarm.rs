//! A timer that wakes a wait, armed far less often than the reactor waits.
//!
//! The kernel programs a time limit of each wait into the clock hardware and removes it at every wake-up. On a virtual
//! machine that alone can cost more than carrying a message. This descriptor is armed once for an instant, however many
//! events come before it.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::{io, ptr};

use crate::time::Nanos;

#[derive(Debug)]
pub struct Alarm {
    fd: OwnedFd,
    armed: Nanos, // `Nanos::MAX`: not
}

impl Alarm {
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked before it is owned.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just opened and nobody else owns it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) }, armed: Nanos::MAX })
    }

    /// Ring at `at` (CLOCK_MONOTONIC) at the latest. It may ring before: whoever set it looks at the clock.
    pub fn no_later_than(&mut self, at: Nanos) -> io::Result<()> {
        if at >= self.armed {
            return Ok(());
        }
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::timespec { tv_sec: at / 1_000_000_000, tv_nsec: at % 1_000_000_000 };
        let setting = libc::itimerspec { it_interval: none, it_value: value };
        // SAFETY: `setting` is valid through the call; the old setting is not asked for.
        if unsafe {
            libc::timerfd_settime(self.fd.as_raw_fd(), libc::TFD_TIMER_ABSTIME, &raw const setting, ptr::null_mut())
        } < 0
        {
            return Err(io::Error::last_os_error());
        }
        self.armed = at;
        Ok(())
    }

    /// It has rung. (Watched by edges, it needs no read to fall silent.)
    pub fn rang(&mut self) {
        self.armed = Nanos::MAX;
    }
}

impl AsRawFd for Alarm {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
