//! Simulated service time: a broker as slow as another machine's, without burning a processor.
//!
//! Every message passes one virtual server, first come, first served, from the instant that its bucket released it.
//! It leaves when that server would have been done with it. Only experiments use it (`--lab-service-time`), where one
//! broker would carry what the paper's brokers did not.
//!
//! Up to `TOGETHER` messages that are done shortly after one another leave together, with the last of them. A wake-up
//! costs a processor up to a third of such a service time, and the brokers of an experiment share two processors.

use std::collections::VecDeque;

use crate::keys::TopicKey;
use crate::queueing::message::Message;
use crate::scheduling::service_time::ServiceTime;
use crate::time::Nanos;
use crate::timer::{Armed, Timer, Timers};

/// Messages that leave together at most, the first of them at most `TOGETHER_NS` (200 us) late.
const TOGETHER: usize = 3;
const TOGETHER_NS: Nanos = 200_000;

#[derive(Debug)]
pub struct LabServer {
    service: Nanos, // 0: messages go straight on
    free_at: Nanos, // when it is done with all that came
    line: VecDeque<(Nanos, TopicKey, Message)>,
    armed: Armed,
}

impl LabServer {
    /// A message of `topic` comes at `at`; gives when it leaves.
    fn enter(&mut self, topic: TopicKey, message: Message, at: Nanos) -> Nanos {
        self.free_at = self.free_at.max(at).saturating_add(self.service);
        self.line.push_back((self.free_at, topic, message));
        self.free_at
    }

    /// The first of the line, if it is done by `now`.
    fn leave(&mut self, now: Nanos) -> Option<(TopicKey, Message)> {
        self.next().filter(|at| *at <= now)?;
        self.line.pop_front().map(|(_, topic, message)| (topic, message))
    }

    fn next(&self) -> Option<Nanos> {
        self.line.front().map(|(at, _, _)| *at)
    }

    /// When it is worth a wake-up: the first of the line leaves then, with those close behind it.
    fn wakes(&self) -> Option<Nanos> {
        let latest = self.next()?.saturating_add(TOGETHER_NS);
        self.line.iter().take(TOGETHER).map(|(at, _, _)| *at).take_while(|at| *at <= latest).last()
    }
}

impl ServiceTime for LabServer {
    fn new(service_ns: u64) -> Self {
        let service = Nanos::try_from(service_ns).unwrap_or(Nanos::MAX);
        Self { service, free_at: Nanos::MIN, line: VecDeque::new(), armed: Armed::default() }
    }

    fn is_none(&self) -> bool {
        self.service == 0
    }

    fn serve(&mut self, topic: TopicKey, message: Message, timers: &mut Timers) -> Option<Message> {
        if self.is_none() {
            return Some(message);
        }
        let released = message.times.due;
        let done = self.enter(topic, message, released);
        timers.arm(&mut self.armed, done, Timer::ServiceTime);
        None
    }

    fn served(&mut self, at: Nanos, now: Nanos, timers: &mut Timers) -> Vec<(TopicKey, Message)> {
        if !self.armed.fire(at) {
            return Vec::new();
        }
        let served = std::iter::from_fn(|| self.leave(now)).collect();
        if let Some(wakes) = self.wakes() {
            timers.arm(&mut self.armed, wakes, Timer::ServiceTime);
        }
        served
    }

    fn is_due_at(&self, at: Nanos) -> bool {
        self.armed.is_for(at)
    }

    fn first_of(&self, topic: TopicKey) -> Option<&Message> {
        self.line.iter().find(|(_, of, _)| *of == topic).map(|(_, _, message)| message)
    }

    fn waiting(&self, topic: TopicKey) -> usize {
        self.line.iter().filter(|(_, of, _)| *of == topic).count()
    }

    /// The time that the server spent on them stays spent.
    fn forget(&mut self, topic: TopicKey) {
        self.line.retain(|(_, of, _)| *of != topic);
    }

    fn drain(&mut self) -> Vec<(TopicKey, Message)> {
        self.line.drain(..).map(|(_, topic, message)| (topic, message)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Meter;
    use crate::queueing::message::{Alone, Builder};

    fn message(number: u64) -> Message {
        let message = Alone { id: crate::id::MessageId(number), wall_ns: 0, attributes: b"", body: b"x" };
        Builder::default().alone(&Meter::default(), message, 0, 0)
    }

    #[test]
    fn it_serves_one_at_a_time_in_order_and_rests_when_nobody_waits() {
        let mut server = LabServer::new(100);
        let topic = TopicKey::default();
        let leaves: Vec<Nanos> = [0, 0, 50, 1_000]
            .into_iter()
            .enumerate()
            .map(|(i, at)| server.enter(topic, message(i as u64), at))
            .collect();
        assert_eq!(leaves, [100, 200, 300, 1_100]);
        assert!(server.leave(99).is_none());
        assert_eq!(
            (server.leave(100).map(|(_, m)| m.id.0), server.next(), server.waiting(topic)),
            (Some(0), Some(200), 3)
        );
        server.forget(topic);
        assert_eq!((server.next(), server.enter(topic, message(9), 0)), (None, 1_200));
    }

    #[test]
    fn a_few_close_behind_one_another_leave_together_and_the_last_on_time() {
        let together = |service: u64, messages: u64| {
            let mut server = LabServer::new(service);
            for number in 0..messages {
                server.enter(TopicKey::default(), message(number), 0);
            }
            let wakes = std::iter::from_fn(|| {
                let at = server.wakes()?;
                Some((at, std::iter::from_fn(|| server.leave(at)).count()))
            });
            wakes.collect::<Vec<_>>()
        };
        assert_eq!(together(72_000, 5), [(216_000, 3), (360_000, 2)]);
        assert_eq!(together(150_000, 3), [(300_000, 2), (450_000, 1)]);
        assert_eq!(together(1_000_000, 2), [(1_000_000, 1), (2_000_000, 1)]);
    }

    #[test]
    fn without_a_service_time_messages_go_straight_on() {
        let (mut server, mut timers) = (LabServer::new(0), Timers::default());
        let given_back = server.serve(TopicKey::default(), message(7), &mut timers);
        assert_eq!((server.is_none(), given_back.map(|message| message.id.0), timers.entries()), (true, Some(7), 0));
    }
}
