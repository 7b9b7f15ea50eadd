//! Progress of the disk: a slow disk gets its time, a hanging one does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what was written, read, synced and removed. Shared by who works and who waits for it.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Something was done.
    pub fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Calls `wait` again as long as the disk made progress meanwhile. Returns whether `wait` reported the end.
    pub fn wait_while_it_goes_on(&self, mut wait: impl FnMut() -> bool) -> bool {
        loop {
            let before = self.count();
            if wait() {
                return true;
            }
            if self.count() == before {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_is_waited_for_however_long_it_takes() {
        let progress = Progress::default();
        let mut waits = 0;
        let ended = progress.wait_while_it_goes_on(|| {
            progress.note();
            waits += 1;
            waits == 1_000
        });
        assert_eq!((ended, waits), (true, 1_000));
    }

    #[test]
    fn what_does_nothing_for_one_wait_is_given_up() {
        let progress = Progress::default();
        progress.note();
        let mut waits = 0;
        let ended = progress.wait_while_it_goes_on(|| {
            waits += 1;
            if waits < 3 {
                progress.note();
            }
            false
        });
        assert_eq!((ended, waits), (false, 3));
    }
}
