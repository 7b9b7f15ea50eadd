//! Leases of shares: at its expiry a bucket becomes void, whether or not any thread is awake.
//!
//! The expiry is an instant of CLOCK_BOOTTIME: a suspended host must not resume with a share that another broker got
//! meanwhile. `suspended` is the lead of that clock over the monotonic one. Expiry is checked before any release. So a
//! process that stopped for longer than its lease releases nothing afterwards. That includes messages due before the
//! stop: they would be as late as the stop was long.

use crate::engine::Engine;
use crate::event::Event;
use crate::keys::TopicKey;
use crate::time::Nanos;

/// A share that is extended: topic, version, new instant of expiry.
pub type Renewal = (String, u64, Nanos);

impl Engine {
    /// Whether any share was ever given for a time.
    pub fn has_leases(&self) -> bool {
        self.has_leases
    }

    /// Extend the shares that are in force under these versions. One that is void already begins again, empty.
    pub fn renew_leases(&mut self, renewals: &[Renewal], now: Nanos) {
        for (topic, version, expires) in renewals {
            let Some(key) = self.topic_key(topic) else { continue };
            self.release_due(key, now); // and what has ended by now ends
            let Some(limiter) = self.topics.get_mut(key).and_then(|topic| topic.limiter.as_mut()) else { continue };
            let lasts = *expires > limiter.limit.expires.max(self.clock.boot(now));
            if lasts && limiter.limit.version == *version {
                limiter.renew(*expires, now);
                self.arm_release(key);
            }
        }
    }

    /// The share is void if its instant has come. What waits keeps waiting.
    #[cold]
    pub(crate) fn lapse(&mut self, key: TopicKey, now: Nanos) {
        let Some(topic) = self.topics.get_mut(key) else { return };
        let waiting = topic.waiting();
        let Some(limiter) = topic.limiter.as_mut() else { return };
        if limiter.lapse(self.clock.boot(now), self.clock.suspended()) {
            self.events.push(Event::Lapsed { topic: topic.name.to_string(), waiting });
        }
    }
}
