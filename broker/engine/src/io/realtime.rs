//! A thread before all ordinary work of the machine.

use std::io;

use crate::io::refused::Refused;

/// Give the calling thread the lowest real-time priority (SCHED_FIFO): what is ordinary on its core waits while it works. Threads that it starts are ordinary.
pub fn take_priority() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: `parameters` is valid through the call; 0 is the calling thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameters) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    let why = match error.kind() {
        io::ErrorKind::PermissionDenied => "needs the capability CAP_SYS_NICE, which this process does not have".to_owned(),
        _ => format!("needs a real-time priority, which the kernel refuses ({error})"),
    };
    Err(io::Error::new(error.kind(), Refused { field: "realtime", why }))
}
