//! Earliest possible arrival of a connection's unread bytes, which bounds the bias of the kernel's stamp.
//!
//! The kernel stamps each incoming segment; segments merged in a receive queue carry the stamp of the last. So a read
//! tells the arrival of its last byte alone. A publish that ended earlier in the read gets a stamp that is too late,
//! never too early. The error is at most the time from the first unread byte to that stamp. The first unread byte is
//! not older than either of these:
//!
//! * The instant just before the last wait that did not report the connection. A wait names every connection with
//!   unread bytes, unless its event buffer was too small or a signal interrupted it. A connection that was not read to
//!   its end is registered again, and named at once. Bytes that follow a read to the end are an edge that the next wait
//!   names. So an unnamed connection had no unread bytes when the wait began. (While reading is off, no wait tells
//!   anything about the connection.)
//! * The stamp of the previous read, if that read left nothing. Bytes come in order, and its last byte arrived at that
//!   stamp.
//!
//! "Unread" begins when a segment is queued on its socket, some microseconds after its stamp, or more if the soft
//! interrupt waited. The bound is exact but for that delay. A segment that fills a hole can carry the earlier stamp of
//! a segment behind it. After a long wait the bound is as long as the sleep: it is an upper bound, not an estimate.

use crate::time::Nanos;

/// The waits of a reactor, as far as they tell that nothing was there. Numbers grow from one.
#[derive(Debug, Default)]
pub struct Waits {
    number: u64, // of the latest wait
    entered: Nanos,
    told_all: bool,        // it named every connection with unread bytes
    telling: (u64, Nanos), // the latest such wait before it: number, instant before it was entered
}

impl Waits {
    /// A wait begins; `at` is not after it is entered.
    pub fn begin(&mut self, at: Nanos) {
        if self.told_all {
            self.telling = (self.number, self.entered);
        }
        (self.number, self.entered, self.told_all) = (self.number + 1, at, false);
    }

    /// The wait is over. Without events it may have been broken off: then it tells nothing.
    pub fn end(&mut self, events: usize, capacity: usize) {
        self.told_all = 0 < events && events < capacity;
    }
}

/// One connection, or a listener: what was unread there was not there before `since`.
#[derive(Debug, Clone, Copy)]
pub struct Unread {
    reported: u64, // the latest wait that named it, or that did not ask for it
    pub since: Nanos,
}

impl Unread {
    /// From now on it is asked for; `since` bounds what may be there already.
    pub fn new(waits: &Waits, since: Nanos) -> Self {
        Self { reported: waits.number, since }
    }

    /// The present wait named it.
    pub fn reported(&mut self, waits: &Waits) {
        let (number, entered) = waits.telling;
        if number > self.reported {
            self.since = self.since.max(entered);
        }
        self.reported = waits.number;
    }

    /// It was not asked for until now.
    pub fn asked_again(&mut self, waits: &Waits) {
        self.reported = waits.number;
    }

    /// A read left nothing behind; `stamp` is that of its last byte.
    pub fn drained(&mut self, stamp: Nanos) {
        self.since = self.since.max(stamp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 4;

    fn wait(waits: &mut Waits, at: Nanos, events: usize) {
        waits.begin(at);
        waits.end(events, ROOM);
    }

    #[test]
    fn what_is_unread_came_after_the_last_wait_that_did_not_name_the_connection() {
        let mut waits = Waits::default();
        let mut quiet = Unread::new(&waits, 5);
        wait(&mut waits, 10, 1);
        wait(&mut waits, 20, 1);
        wait(&mut waits, 30, 1);
        quiet.reported(&waits);
        assert_eq!(quiet.since, 20);
    }

    #[test]
    fn a_wait_that_named_the_connection_says_nothing_of_when_the_rest_came() {
        let mut waits = Waits::default();
        let mut busy = Unread::new(&waits, 5);
        for at in [10, 20, 30] {
            wait(&mut waits, at, 1);
            busy.reported(&waits);
        }
        assert_eq!(busy.since, 5);
        busy.drained(25);
        assert_eq!(busy.since, 25);
        busy.drained(24); // a stamp out of order proves no less
        assert_eq!(busy.since, 25);
    }

    #[test]
    fn a_full_event_buffer_and_a_wait_without_events_tell_nothing() {
        for events in [0, ROOM] {
            let mut waits = Waits::default();
            let mut quiet = Unread::new(&waits, 5);
            wait(&mut waits, 10, 1);
            wait(&mut waits, 20, events);
            wait(&mut waits, 30, 1);
            quiet.reported(&waits);
            assert_eq!(quiet.since, 10, "{events} events");
        }
    }

    #[test]
    fn a_wait_from_before_the_connection_was_asked_for_tells_nothing_of_it() {
        let mut waits = Waits::default();
        wait(&mut waits, 10, 1);
        let mut fresh = Unread::new(&waits, 7);
        wait(&mut waits, 20, 1);
        fresh.reported(&waits);
        assert_eq!(fresh.since, 7);
        wait(&mut waits, 30, 1);
        wait(&mut waits, 40, 1);
        fresh.asked_again(&waits);
        wait(&mut waits, 50, 1);
        fresh.reported(&waits);
        assert_eq!(fresh.since, 7);
    }
}
