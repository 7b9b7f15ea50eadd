//! Real-time priority of the reactor's thread.

use std::io;

use crate::io::host::denied::Refused;

/// Give the calling thread a real-time priority (SCHED_FIFO), one more than it has: the lowest, so that what is
/// ordinary on its core waits while it works, or the one above that of the rest of its process, if that was started so
/// (`chrt`). Threads that it starts are ordinary.
pub fn take_priority() -> io::Result<()> {
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: `parameters` is valid for the call to fill; 0 is the calling thread. If it fails, it fills nothing.
    unsafe { libc::sched_getparam(0, &raw mut parameters) };
    // 99 is the highest: sched(7).
    parameters.sched_priority = (parameters.sched_priority + 1).min(99);
    // SAFETY: `parameters` is valid through the call; 0 is the calling thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameters) } == 0
    {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    let why = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "needs the capability CAP_SYS_NICE, which this process does not have".to_owned()
        }
        _ => format!("needs a real-time priority, which the kernel refuses ({error})"),
    };
    Err(io::Error::new(error.kind(), Refused { field: "realtime", why }))
}
