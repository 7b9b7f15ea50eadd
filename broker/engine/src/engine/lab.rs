//! Simulated service time at work: what the server is done with goes on to its channels.

use crate::engine::Engine;
use crate::time::Nanos;
use crate::timer::Timer;

impl Engine {
    /// What the server is done with goes on to its channels.
    pub(crate) fn handle_lab(&mut self, at: Nanos, now: Nanos) {
        if !self.lab.as_mut().is_some_and(|server| server.armed.fire(at)) {
            return;
        }
        while let Some((key, message)) = self.lab.as_mut().and_then(|server| server.leave(now)) {
            self.enqueue(key, message, now);
        }
        if let Some(server) = &mut self.lab
            && let Some(wakes) = server.wakes()
        {
            self.timers.arm(&mut server.armed, wakes, Timer::Lab);
        }
    }
}
