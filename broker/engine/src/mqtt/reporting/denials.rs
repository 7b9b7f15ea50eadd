//! What clients were denied, as an operator's log is to have it: the first of each kind, and how many more.

use crate::event::Event;
use crate::time::{NS_PER_S, Nanos};

/// At most one event of each kind in this time.
const TELL_AGAIN_NS: Nanos = 10 * NS_PER_S;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Connect,
    Publish,
    Subscribe,
    TakeOver,
    PublishUnmanaged,   // a name that no topic has
    SubscribeUnmanaged, // likewise
}

impl Action {
    const ALL: [Self; 6] = [
        Self::Connect,
        Self::Publish,
        Self::Subscribe,
        Self::TakeOver,
        Self::PublishUnmanaged,
        Self::SubscribeUnmanaged,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
            Self::TakeOver => "take over",
            Self::PublishUnmanaged => "publish to no topic",
            Self::SubscribeUnmanaged => "subscribe to no topic",
        }
    }
}

#[derive(Debug, Default)]
struct Kind {
    first: Option<(Box<str>, Box<str>)>, // client and name
    times: u64,                          // since the last event
    told_at: Option<Nanos>,
}

#[derive(Debug, Default)]
pub struct Denials {
    kinds: [Kind; Action::ALL.len()],
    is_untold: bool,
}

impl Denials {
    /// `name`: of a message or a filter, or of a user.
    pub fn note(&mut self, action: Action, client: &str, name: &str) {
        let kind = &mut self.kinds[action as usize];
        kind.first.get_or_insert_with(|| (client.into(), name.into()));
        kind.times += 1;
        self.is_untold = true;
    }

    pub fn tell(&mut self, now: Nanos, events: &mut Vec<Event>) {
        if !std::mem::take(&mut self.is_untold) {
            return;
        }
        for action in Action::ALL {
            let kind = &mut self.kinds[action as usize];
            if kind.told_at.is_some_and(|at| now < at + TELL_AGAIN_NS) {
                self.is_untold |= kind.times > 0;
                continue;
            }
            let Some((client, name)) = kind.first.take() else { continue };
            let times = std::mem::take(&mut kind.times);
            kind.told_at = Some(now);
            events.push(Event::Denied { action: action.name(), client: client.into(), name: name.into(), times });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_told_at_once_and_then_at_most_every_10_s_with_its_number() {
        let (mut denials, mut events) = (Denials::default(), Vec::new());
        denials.note(Action::Publish, "a", "x");
        denials.note(Action::Publish, "b", "y");
        denials.note(Action::Connect, "c", "eve");
        denials.tell(0, &mut events);
        let denied = |action, client: &str, name: &str, times| Event::Denied {
            action,
            client: client.into(),
            name: name.into(),
            times,
        };
        assert_eq!(events, [denied("connect", "c", "eve", 1), denied("publish", "a", "x", 2)]);
        events.clear();
        denials.note(Action::Publish, "d", "z");
        denials.tell(TELL_AGAIN_NS - 1, &mut events);
        assert!(events.is_empty());
        denials.note(Action::Publish, "e", "z");
        denials.tell(TELL_AGAIN_NS, &mut events);
        assert_eq!(events, [denied("publish", "d", "z", 2)]);
    }
}
