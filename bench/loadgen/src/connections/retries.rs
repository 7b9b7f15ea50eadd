//! Connections that were lost, until it is time to open them again.

use std::collections::VecDeque;

pub const RECONNECT_NS: i64 = 200_000_000;

#[derive(Default)]
pub struct Retries {
    /// Oldest first: when, and which.
    waiting: VecDeque<(i64, usize)>,
}

impl Retries {
    /// Connection `i` was lost at `now_ns`.
    pub fn add(&mut self, i: usize, now_ns: i64) {
        self.waiting.push_back((now_ns + RECONNECT_NS, i));
    }

    /// The next connection whose time has come.
    pub fn due(&mut self, now_ns: i64) -> Option<usize> {
        self.waiting.front().filter(|(at_ns, _)| *at_ns <= now_ns)?;
        self.waiting.pop_front().map(|(_, i)| i)
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_due_once_after_its_time_in_the_order_in_which_they_were_lost() {
        let mut retries = Retries::default();
        retries.add(7, 1_000);
        retries.add(3, 2_000);
        assert_eq!(retries.due(999 + RECONNECT_NS), None);
        assert_eq!(retries.due(1_000 + RECONNECT_NS), Some(7));
        assert_eq!(retries.due(1_999 + RECONNECT_NS), None);
        retries.add(7, 2_500);
        assert_eq!([0; 3].map(|_| retries.due(2_499 + RECONNECT_NS)), [Some(3), None, None]);
        assert!(!retries.is_empty());
        assert_eq!(retries.due(i64::MAX), Some(7));
        assert!(retries.is_empty());
    }
}
