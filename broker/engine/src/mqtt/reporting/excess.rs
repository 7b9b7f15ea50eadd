//! Publishers whose messages are not taken, and sessions and groups that lose theirs, as an operator's log is to have
//! them.

use crate::event::Event;
use crate::mqtt::reporting::once_a_minute::OnceAMinute;
use crate::time::Nanos;

/// What became of a PUBLISH that was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Its client was told so.
    Refused,
    /// Its connection was ended: the client sends it again.
    Closed,
    /// Nobody was told.
    Dropped,
}

/// Of one publisher.
#[derive(Debug, Default)]
struct Untaken {
    first: Option<(Box<str>, Box<str>)>, // topic, why
    fates: [u64; 3],
}

/// Of one topic.
#[derive(Debug, Default)]
struct Unkept {
    first: Option<Box<str>>, // client or group
    dropped: u64,
    refused: u64,
    ended: u64,
}

#[derive(Debug, Default)]
pub struct Excess {
    by_publisher: OnceAMinute<Untaken>,
    by_topic: OnceAMinute<Unkept>,
}

impl Excess {
    /// A PUBLISH was not taken. `topic`: "" if it is not known.
    pub fn note(&mut self, publisher: &str, topic: &str, why: &str, fate: Fate) {
        self.note_many(publisher, topic, why, fate, 1);
    }

    pub fn note_many(&mut self, publisher: &str, topic: &str, why: &str, fate: Fate, times: u64) {
        let untaken = self.by_publisher.of(publisher);
        untaken.first.get_or_insert_with(|| (topic.into(), why.into()));
        untaken.fates[fate as usize] += times;
    }

    /// A session or a group had no room for a message of the topic. `is_refused`: so its publisher was refused.
    pub fn note_full(&mut self, topic: &str, holder: &str, is_refused: bool) {
        let unkept = self.by_topic.of(topic);
        unkept.first.get_or_insert_with(|| holder.into());
        *(if is_refused { &mut unkept.refused } else { &mut unkept.dropped }) += 1;
    }

    /// A shared group has ended for which `count` messages of the topic waited, at the group or at a client of it.
    pub fn note_ended(&mut self, topic: &str, holder: &str, count: u64) {
        let unkept = self.by_topic.of(topic);
        unkept.first.get_or_insert_with(|| holder.into());
        unkept.ended += count;
    }

    pub fn tell(&mut self, now: Nanos, events: &mut Vec<Event>) {
        for (publisher, untaken) in self.by_publisher.take(now) {
            let ((topic, why), [refused, closed, dropped]) = (untaken.first.unwrap_or_default(), untaken.fates);
            let (publisher, topic, why) = (publisher.into(), topic.into(), why.into());
            events.push(Event::MqttExcess { publisher, topic, why, refused, closed, dropped });
        }
        for (topic, unkept) in self.by_topic.take(now) {
            let Unkept { first, dropped, refused, ended } = unkept;
            let (topic, first) = (topic.into(), first.unwrap_or_default().into());
            events.push(Event::MqttUnkept { topic, first, dropped, refused, ended });
        }
    }
}
