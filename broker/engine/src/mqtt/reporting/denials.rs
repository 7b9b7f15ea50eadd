//! What clients were denied, as an operator's log is to have it: who, what first, and how many more.

use crate::event::Event;
use crate::mqtt::reporting::once_a_minute::OnceAMinute;
use crate::time::Nanos;

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

/// Of one client.
#[derive(Debug, Default)]
struct Denied {
    first: Option<Box<str>>, // name
    times: u64,
}

#[derive(Debug, Default)]
pub struct Denials {
    by_client: [OnceAMinute<Denied>; Action::ALL.len()],
}

impl Denials {
    /// `name`: of a message or a filter, or of a user.
    pub fn note(&mut self, action: Action, client: &str, name: &str) {
        let denied = self.by_client[action as usize].of(client);
        denied.first.get_or_insert_with(|| name.into());
        denied.times += 1;
    }

    pub fn tell(&mut self, now: Nanos, events: &mut Vec<Event>) {
        for action in Action::ALL {
            for (client, Denied { first, times }) in self.by_client[action as usize].take(now) {
                let (client, name) = (client.into(), first.unwrap_or_default().into());
                events.push(Event::Denied { action: action.name(), client, name, times });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::reporting::once_a_minute::MOST_NAMES;
    use crate::time::NS_PER_S;

    fn denied(action: &'static str, client: &str, name: &str, times: u64) -> Event {
        Event::Denied { action, client: client.into(), name: name.into(), times }
    }

    #[test]
    fn each_client_is_told_at_once_for_each_action_and_then_at_most_once_a_minute() {
        let (mut denials, mut events) = (Denials::default(), Vec::new());
        for (action, client, name) in [
            (Action::Publish, "a", "x"),
            (Action::Publish, "a", "y"),
            (Action::Publish, "b", "y"),
            (Action::Connect, "c", "eve"),
        ] {
            denials.note(action, client, name);
        }
        denials.tell(0, &mut events);
        let all = [denied("connect", "c", "eve", 1), denied("publish", "a", "x", 2), denied("publish", "b", "y", 1)];
        assert_eq!(events, all);
        events.clear();
        denials.note(Action::Publish, "a", "z");
        denials.tell(60 * NS_PER_S - 1, &mut events);
        assert!(events.is_empty());
        denials.tell(60 * NS_PER_S, &mut events);
        assert_eq!(events, [denied("publish", "a", "z", 1)]);
    }

    #[test]
    fn of_more_clients_than_a_log_can_name_the_others_are_told_as_one() {
        let (mut denials, mut events) = (Denials::default(), Vec::new());
        (0..1_000).for_each(|client| denials.note(Action::Connect, &format!("{client:04}"), "eve"));
        denials.tell(0, &mut events);
        assert_eq!(events.len(), MOST_NAMES + 1);
        assert_eq!(events.last(), Some(&denied("connect", "", "eve", 1_000 - MOST_NAMES as u64)));
    }
}
