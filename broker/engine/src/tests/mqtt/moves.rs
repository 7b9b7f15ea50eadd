//! A client finds its session at whichever broker it connects to, with all that it is owed.

use crate::event::Event;
use crate::harness::pair::{Pair, S};
use crate::protocol::link_frames::RETAINED_TOPIC;
use crate::protocol::mqtt::version::Version;
use crate::tests::mqtt::client::{Client, connect, packet, publish_5, text};
use crate::tests::mqtt::inspection::view;
use crate::tests::mqtt::linked_brokers::{Cluster, Dice, KEPT, packet_id};

fn has_been_told(client: &mut Client, pair: &mut Pair, reason: u8) -> bool {
    client.take(pair).last().is_some_and(|last| last[0] == 0xe0 && last[2] == reason)
}

#[test]
fn a_session_follows_its_client_with_what_is_in_flight_and_what_waits_in_order() {
    let mut cluster = Cluster::new(3);
    let (mut before, present) = cluster.connect(0, false);
    assert!(!present, "nobody has one");
    before.subscribe(&mut cluster.brokers[0], "n", 1);
    let mut sensor = Client::new(&mut cluster.brokers[2], "sensor");
    cluster.say(2, &mut sensor, "1");
    cluster.carry();
    let in_flight = before.take(&mut cluster.brokers[0]).remove(0);
    for number in 2..=200 {
        cluster.say(2, &mut sensor, &number.to_string());
        cluster.carry();
    }
    before.take(&mut cluster.brokers[0]); // and acknowledges nothing
    let (mut after, present) = cluster.connect(1, false);
    assert!(present);
    assert!(has_been_told(&mut before, &mut cluster.brokers[0], 0x8e) && before.has_ended(&cluster.brokers[0]));
    let first = after.packets[0].clone();
    assert_eq!((first[0], packet_id(&first)), (0x3a, packet_id(&in_flight)), "it comes again as itself");
    let shown = view(&cluster.brokers[1], "client");
    assert_eq!((&shown["queued"], &shown["in_flight"]), (&136.into(), &64.into()), "what is in flight waits no more");
    after.packets.clear();
    after.send(&mut cluster.brokers[1], &packet(0x40, &packet_id(&first)));
    cluster.brokers[1].close(after.key);
    let (mut after, present) = cluster.connect(1, false);
    assert!(present);
    let said = cluster.said(1, &mut after);
    assert_eq!(said, (2..=200).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(cluster.sessions(), [1]);
    cluster.say(2, &mut sensor, "later");
    assert_eq!(cluster.said(1, &mut after), ["later"]);
    cluster.check();
}

#[test]
fn a_client_without_a_session_anywhere_is_let_in_as_soon_as_all_have_said_so() {
    let mut cluster = Cluster::new(3);
    let mut client = cluster.begin(1, false);
    assert!(client.packets.is_empty(), "it waits");
    cluster.carry();
    assert_eq!(client.take(&mut cluster.brokers[1])[0][2..4], [0, 0]);
    cluster.check();
}

/// How many clients the broker says it let in without a session that another may have.
fn early(pair: &mut Pair) -> u64 {
    let times = |event: &Event| if let Event::ConnectedEarly { times } = event { *times } else { 0 };
    pair.engine.poll_events().iter().map(times).sum()
}

#[test]
fn who_finds_no_session_while_a_broker_is_away_is_told_of_within_a_second() {
    for size in [2, 3] {
        let (mut cluster, _before) = Cluster::subscribed(size);
        cluster.cut(0);
        let mut after = cluster.begin(1, false);
        cluster.carry();
        assert_eq!(after.take(&mut cluster.brokers[1])[0][2..4], [0, 0], "at once, with or without others to ask");
        let other = Client::with(&mut cluster.brokers[1], "clean", true, &[]).0;
        cluster.carry();
        assert_eq!(early(&mut cluster.brokers[1]), 0);
        cluster.advance(S);
        assert_eq!(early(&mut cluster.brokers[1]), 1, "of {size}; who starts clean wants none");
        cluster.brokers[1].close(other.key);
        cluster.advance(S);
        assert_eq!(early(&mut cluster.brokers[1]), 0);
    }
}

#[test]
fn a_clean_start_waits_for_nobody_and_ends_what_is_elsewhere() {
    let (mut cluster, mut before) = Cluster::subscribed(2);
    let after = cluster.begin(1, true);
    assert_eq!(after.packets[0][2..4], [0, 0], "at once");
    cluster.carry();
    assert!(has_been_told(&mut before, &mut cluster.brokers[0], 0x8e));
    assert_eq!(cluster.sessions(), [1]);
    cluster.check();
}

#[test]
fn what_is_published_anywhere_during_a_move_comes_once_and_in_order() {
    for seed in 0..60 {
        let mut cluster = Cluster::new(3);
        let mut dice = Dice(seed + 1);
        let (mut before, _) = cluster.connect(0, false);
        before.subscribe(&mut cluster.brokers[0], "n", 1);
        let mut sensors: Vec<Client> =
            (0..3).map(|broker| Client::new(&mut cluster.brokers[broker], &format!("sensor {broker}"))).collect();
        let mut numbers = [0; 3];
        let mut publish_some = |cluster: &mut Cluster, dice: &mut Dice| {
            let broker = dice.below(3);
            numbers[broker] += 1;
            cluster.say(broker, &mut sensors[broker], &format!("{broker} {}", numbers[broker]));
        };
        for _ in 0..dice.below(80) {
            publish_some(&mut cluster, &mut dice);
        }
        let mut after = cluster.begin(1, false);
        for _ in 0..200 {
            if dice.below(3) == 0 {
                publish_some(&mut cluster, &mut dice);
            }
            let link = dice.below(cluster.links.len());
            cluster.carry_one(link);
        }
        cluster.carry();
        let said = cluster.said(1, &mut after);
        for (broker, sent) in numbers.iter().enumerate() {
            let own: Vec<&String> = said.iter().filter(|one| one.starts_with(&broker.to_string())).collect();
            let expected: Vec<String> = (1..=*sent).map(|number| format!("{broker} {number}")).collect();
            assert_eq!(own, expected.iter().collect::<Vec<_>>(), "seed {seed}");
        }
        let tally = &cluster.brokers[1].engine.mqtt.tally;
        let given = tally.all().map(|held| held.messages).sum::<u64>();
        assert_eq!(given, said.len() as u64, "seed {seed}: each is counted once");
        assert_eq!(cluster.sessions(), [1], "seed {seed}");
        cluster.check();
    }
}

#[test]
fn what_is_held_for_a_session_that_arrives_has_an_eighth_of_the_memory() {
    let (mut cluster, _before) = Cluster::subscribed(2);
    cluster.brokers[1].engine.config.max_memory_bytes = 1 << 20;
    let mut sensor = Client::new(&mut cluster.brokers[1], "sensor");
    let _after = cluster.begin(1, false);
    let is_held = |cluster: &Cluster| {
        let moves = &cluster.brokers[1].engine.mqtt.moves;
        moves.arrivals.get("client").is_some_and(|arrival| arrival.session.is_some() && moves.is_for(arrival))
    };
    let links = cluster.links.len();
    let mut steps = (0..links).cycle().take(100);
    assert!(steps.any(|link| cluster.carry_one(link) && is_held(&cluster)), "it collects");
    for _ in 0..4 {
        cluster.say(1, &mut sensor, &"x".repeat(50_000));
    }
    let held = &cluster.brokers[1].engine.mqtt.moves.arrivals["client"].held;
    assert_eq!(held.len(), 2, "of 128 KiB");
    cluster.brokers[1].turn();
    cluster.carry();
    cluster.check();
}

/// The client at broker 1 has all numbers up to the last, and broker 0 has given up what moved. `case`: for the reader.
fn check_after_kill(cluster: &mut Cluster, victim: usize, after: Client, last: i32, case: &str) {
    let said = cluster.said_after_kill(victim, after);
    let missing: Vec<i32> = (1..=last).filter(|number| !said.contains(&number.to_string())).collect();
    assert!(missing.is_empty(), "{case}: {missing:?} of {last}, {said:?}");
    assert_eq!(cluster.sessions(), [1], "{case}");
    cluster.check();
    let left: Vec<String> = cluster.disks[0].names().into_iter().filter(|name| name.contains("queue")).collect();
    assert!(left.is_empty(), "{case}: files of what is gone, {left:?}");
}

#[test]
fn a_broker_killed_at_any_point_of_a_move_loses_nothing_that_was_acknowledged() {
    for seed in 0..60 {
        let mut cluster = Cluster::new(3);
        let mut dice = Dice(seed + 1);
        let (mut before, _) = cluster.connect(0, false);
        before.subscribe(&mut cluster.brokers[0], "n", 1);
        let mut sensor = Client::new(&mut cluster.brokers[2], "sensor");
        for number in 1..=100 {
            cluster.say(2, &mut sensor, &number.to_string());
            if number < 90 {
                cluster.carry();
            }
        }
        let victim = dice.below(2);
        let after = cluster.begin(1, false);
        for _ in 0..dice.below(120) {
            let link = dice.below(cluster.links.len());
            cluster.carry_one(link);
        }
        check_after_kill(&mut cluster, victim, after, 100, &format!("seed {seed}, victim {victim}"));
    }
}

#[test]
fn an_old_home_that_does_not_answer_is_waited_for_1_s_and_what_it_has_comes_late() {
    let (mut cluster, before) = Cluster::subscribed(2);
    let mut sensor = Client::new(&mut cluster.brokers[0], "sensor");
    cluster.brokers[0].close(before.key);
    cluster.say(0, &mut sensor, "late");
    cluster.carry();
    let mut after = cluster.begin(1, false);
    cluster.brokers[1].advance(S - 1);
    after.read(&mut cluster.brokers[1]);
    assert!(after.packets.is_empty());
    cluster.brokers[1].advance(1);
    after.read(&mut cluster.brokers[1]);
    assert_eq!(after.packets.remove(0)[2..4], [0, 0], "no session present");
    assert!(cluster.brokers[1].engine.poll_events().contains(&Event::ConnectedEarly { times: 1 }));
    assert_eq!(cluster.said(1, &mut after), ["late"]);
    assert_eq!(cluster.sessions(), [1]);
    cluster.check();
}

#[test]
fn a_broker_that_is_away_holds_up_no_move_and_what_it_has_for_the_session_comes_when_it_is_back() {
    let (mut cluster, _) = Cluster::subscribed(3);
    let mut sensor = Client::new(&mut cluster.brokers[2], "sensor");
    cluster.say(2, &mut sensor, "on its way");
    cluster.kill(2);
    let (mut after, present) = cluster.connect(1, false);
    assert!(present, "at once");
    let mut sensor = Client::new(&mut cluster.brokers[1], "sensor");
    cluster.say(1, &mut sensor, "meanwhile");
    assert_eq!(cluster.said(1, &mut after), ["meanwhile"]);
    cluster.join(2);
    assert_eq!(cluster.said(1, &mut after), ["on its way"]);
    assert_eq!(cluster.sessions(), [1]);
    cluster.check();
}

#[test]
fn however_often_sessions_move_while_a_broker_is_away_little_waits_for_it() {
    let (mut cluster, mut client) = Cluster::subscribed(3);
    let mut sensors: Vec<Client> =
        (0..3).map(|broker| Client::new(&mut cluster.brokers[broker], &format!("sensor {broker}"))).collect();
    cluster.cut(2);
    for round in 0..20 {
        let here = 1 - round % 2;
        cluster.say(2, &mut sensors[2], &format!("away {round}"));
        cluster.advance(20 * S);
        client = cluster.connect(here, false).0;
        for broker in [0, 1] {
            sensors[broker] = Client::new(&mut cluster.brokers[broker], &format!("sensor {broker}"));
            cluster.say(broker, &mut sensors[broker], &format!("{broker} {round}"));
        }
        let mut said = cluster.said(here, &mut client);
        said.sort();
        assert_eq!(said, [format!("0 {round}"), format!("1 {round}")]);
        for broker in &cluster.brokers[..2] {
            let flushes = &broker.engine.mqtt.moves.flushes;
            let waits = flushes.iter().map(|flush| flush.sessions.len()).sum::<usize>();
            assert!(flushes.len() <= 1 && waits <= 2, "round {round}: {flushes:?}");
        }
    }
    cluster.join(2);
    assert_eq!(cluster.said(0, &mut client), (0..20).map(|round| format!("away {round}")).collect::<Vec<_>>());
    assert_eq!(cluster.sessions(), [0]);
    cluster.check();
}

/// Two brokers. The first has the client's session, and "kept" for it; the second has started anew, without links.
fn kept_at_the_first() -> Cluster {
    let (mut cluster, before) = Cluster::subscribed(2);
    cluster.brokers[0].close(before.key);
    let mut sensor = Client::new(&mut cluster.brokers[0], "sensor");
    cluster.say(0, &mut sensor, "kept");
    cluster.kill(1);
    cluster
}

#[test]
fn who_comes_before_the_brokers_are_linked_gets_what_is_elsewhere_once_they_are() {
    for clean in [false, true] {
        let mut cluster = kept_at_the_first();
        let (mut after, present) = cluster.connect(1, clean);
        assert!(!present);
        cluster.join(1);
        assert_eq!(cluster.said(1, &mut after), ["kept"; 1][usize::from(clean)..]);
        assert_eq!(cluster.sessions(), [1]);
        cluster.check();
    }
}

#[test]
fn who_comes_where_others_hear_a_broker_that_does_not_hear_them_yet_gets_what_is_elsewhere_once_it_does() {
    for comes_first in [false, true] {
        let mut cluster = kept_at_the_first();
        let early = comes_first.then(|| cluster.connect(1, false));
        cluster.link(1, 0, RETAINED_TOPIC); // the first one hears the second
        cluster.link(1, 0, "default");
        cluster.carry();
        let (mut after, present) = early.unwrap_or_else(|| cluster.connect(1, false));
        assert!(!present);
        cluster.join(1);
        assert_eq!(cluster.said(1, &mut after), ["kept"], "it came first: {comes_first}");
        assert_eq!(cluster.sessions(), [1]);
        cluster.check();
    }
}

/// As Python does at the start, once all limits are in place.
fn begin_to_accept(cluster: &mut Cluster, broker: usize) {
    let pair = &mut cluster.brokers[broker];
    pair.engine.set_accepting(false, "it starts", pair.now);
    pair.engine.set_accepting(true, "", pair.now);
}

#[test]
fn who_comes_to_a_broker_that_has_just_started_waits_until_it_is_linked_again_and_finds_its_session() {
    for version in [Version::V3_1_1, Version::V5] {
        let mut cluster = kept_at_the_first();
        begin_to_accept(&mut cluster, 1);
        let mut after = Client::accept(&mut cluster.brokers[1]);
        let properties = if version == Version::V5 { KEPT } else { &[] };
        cluster.brokers[1].send(after.key, connect(version, "client", false, properties));
        cluster.advance(S - 10);
        after.read(&mut cluster.brokers[1]);
        assert!(after.packets.is_empty(), "{version:?}: it waits");
        cluster.link(1, 0, RETAINED_TOPIC); // the first one hears the second, which does not hear it yet
        cluster.link(1, 0, "default");
        cluster.carry();
        after.read(&mut cluster.brokers[1]);
        assert!(after.packets.is_empty(), "{version:?}: it waits");
        cluster.join(1);
        cluster.carry();
        after.read(&mut cluster.brokers[1]);
        assert_eq!(after.packets[0][..4], [0x20, after.packets[0].len() as u8 - 2, 1, 0], "{version:?}: present");
        assert!(after.packets[1].ends_with(b"kept"), "{version:?}: {:02x?}", after.packets);
        assert_eq!((cluster.sessions(), early(&mut cluster.brokers[1])), (vec![1], 0));
    }
}

#[test]
fn who_comes_to_a_broker_that_has_just_started_waits_for_others_no_longer_than_a_second() {
    let mut cluster = kept_at_the_first(); // and is away for long
    begin_to_accept(&mut cluster, 1);
    let mut client = cluster.begin(1, false);
    cluster.brokers[1].advance(S - 1);
    client.read(&mut cluster.brokers[1]);
    assert!(client.packets.is_empty());
    cluster.brokers[1].advance(1);
    client.read(&mut cluster.brokers[1]);
    assert_eq!(client.packets[0][2..4], [0, 0], "no session present");
    assert_eq!(early(&mut cluster.brokers[1]), 1);
    let mut other = Client::accept(&mut cluster.brokers[1]);
    other.send(&mut cluster.brokers[1], &connect(Version::V5, "other", false, KEPT));
    other.read(&mut cluster.brokers[1]);
    assert_eq!(other.packets[0][2..4], [0, 0], "at once: the broker has not just started");
}

#[test]
fn of_two_connects_at_once_at_two_brokers_one_has_the_session() {
    for seed in 0..30 {
        let mut cluster = Cluster::new(3);
        let mut dice = Dice(seed + 1);
        let (mut before, _) = cluster.connect(0, false);
        before.subscribe(&mut cluster.brokers[0], "n", 1);
        let mut sensor = Client::new(&mut cluster.brokers[2], "sensor");
        for number in 1..=80 {
            cluster.say(2, &mut sensor, &number.to_string());
        }
        let mut clients = [cluster.begin(1, false), cluster.begin(2, false)];
        for _ in 0..100 {
            let link = dice.below(cluster.links.len());
            cluster.carry_one(link);
        }
        cluster.advance(2 * S);
        let ended = [1, 2].map(|broker| clients[broker - 1].has_ended(&cluster.brokers[broker]));
        assert_ne!(ended[0], ended[1], "seed {seed}: one is there");
        let winner = if ended[0] { 2 } else { 1 };
        assert_eq!(cluster.sessions(), [winner], "seed {seed}");
        let said = cluster.said(winner, &mut clients[winner - 1]);
        let missing: Vec<i32> = (1..=80).filter(|number| !said.contains(&number.to_string())).collect();
        assert!(missing.is_empty(), "seed {seed}: {missing:?}");
        cluster.check();
    }
}

#[test]
fn two_clients_of_one_id_at_two_brokers_take_turns_of_a_second() {
    let mut cluster = Cluster::new(2);
    for broker in [0, 1, 0, 1] {
        cluster.connect(broker, true);
    }
    for (broker, code) in [(0, 0x89), (1, 0)] {
        let mut client = cluster.begin(broker, true);
        let answer = client.packets.pop().unwrap_or_else(|| client.take(&mut cluster.brokers[broker]).remove(0));
        assert_eq!(answer[3], if broker == 0 { code } else { 0x89 });
    }
    cluster.advance(S);
    cluster.connect(0, true);
}

#[test]
fn a_publish_of_qos_2_that_comes_again_at_the_new_broker_is_taken_once() {
    let mut cluster = Cluster::new(2);
    let (mut before, _) = cluster.connect(0, false);
    before.send(&mut cluster.brokers[0], &publish_5("n", 2, 5, "once"));
    let mut heard = Client::new(&mut cluster.brokers[1], "subscriber");
    heard.subscribe(&mut cluster.brokers[1], "n", 0);
    let (mut after, present) = cluster.connect(1, false);
    assert!(present);
    let again = packet(0x3c, &[&text("n")[..], &[0, 5, 0], b"once"].concat());
    assert_eq!(after.ask(&mut cluster.brokers[1], &again)[..4], [0x50, 2, 0, 5]);
    cluster.carry();
    assert_eq!(heard.messages(&mut cluster.brokers[1]), [("n".into(), "once".into())]);
}

#[test]
fn a_group_whose_last_member_moves_moves_with_what_waits() {
    let mut cluster = Cluster::new(2);
    let (mut before, _) = cluster.connect(0, false);
    before.subscribe(&mut cluster.brokers[0], "$share/g/n", 1);
    cluster.brokers[0].close(before.key);
    let mut sensor = Client::new(&mut cluster.brokers[0], "sensor");
    cluster.say(0, &mut sensor, "waits");
    let (mut after, present) = cluster.connect(1, false);
    assert!(present);
    assert_eq!(cluster.said(1, &mut after), ["waits"]);
    assert!(cluster.brokers[0].engine.mqtt.groups.is_empty());
    cluster.check();
}

#[test]
fn a_broker_killed_while_a_group_moves_with_its_last_member_loses_nothing_that_was_acknowledged() {
    for seed in 0..60 {
        let mut cluster = Cluster::new(2);
        let mut dice = Dice(seed + 1);
        let (mut before, _) = cluster.connect(0, false);
        before.subscribe(&mut cluster.brokers[0], "$share/g/n", 1);
        cluster.brokers[0].close(before.key);
        let mut sensor = Client::new(&mut cluster.brokers[0], "sensor");
        let mut sent = 0;
        let mut publish = |cluster: &mut Cluster| {
            sent += 1;
            cluster.say(0, &mut sensor, &sent.to_string());
            sent
        };
        (0..40).for_each(|_| _ = publish(&mut cluster));
        let (victim, mut last) = (dice.below(2), 40);
        let after = cluster.begin(1, false);
        for _ in 0..dice.below(60) {
            if dice.below(3) == 0 && !cluster.brokers[0].engine.mqtt.groups.is_empty() {
                last = publish(&mut cluster);
            }
            let link = dice.below(cluster.links.len());
            cluster.carry_one(link);
        }
        check_after_kill(&mut cluster, victim, after, last, &format!("seed {seed}, victim {victim}"));
    }
}

#[test]
fn what_comes_for_a_group_while_its_last_member_moves_comes_once_and_in_order() {
    for seed in 0..40 {
        let mut cluster = Cluster::new(2);
        let mut dice = Dice(seed + 1);
        let (mut before, _) = cluster.connect(0, false);
        before.subscribe(&mut cluster.brokers[0], "$share/g/n", 1);
        cluster.brokers[0].close(before.key);
        let mut sensor = Client::new(&mut cluster.brokers[0], "sensor");
        let (mut after, mut sent) = (cluster.begin(1, false), Vec::new());
        for _ in 0..200 {
            if dice.below(2) == 0 && !cluster.brokers[0].engine.mqtt.groups.is_empty() {
                sent.push(sent.len().to_string());
                cluster.say(0, &mut sensor, sent.last().expect("just now"));
            }
            let link = dice.below(cluster.links.len());
            cluster.carry_one(link);
        }
        assert_eq!(cluster.said(1, &mut after), sent, "seed {seed}");
        assert_eq!(cluster.sessions(), [1], "seed {seed}");
        cluster.check();
    }
}

#[test]
fn a_broker_that_ends_hands_all_sessions_over_that_outlive_their_connections() {
    let (mut cluster, mut client) = Cluster::subscribed(3);
    let mut sensor = Client::new(&mut cluster.brokers[2], "sensor");
    let now = cluster.brokers[0].now;
    assert_eq!(cluster.brokers[0].engine.hand_over_sessions(now), 1);
    cluster.carry();
    assert!(has_been_told(&mut client, &mut cluster.brokers[0], 0x8b));
    assert_eq!(cluster.brokers[0].engine.hand_over_sessions(now), 0);
    let [home] = cluster.sessions()[..] else { panic!("one has it") };
    cluster.say(2, &mut sensor, "kept");
    cluster.carry();
    cluster.cut(0);
    let elsewhere = 3 - home;
    let (mut client, present) = cluster.connect(elsewhere, false);
    assert!(present);
    assert_eq!(cluster.said(elsewhere, &mut client), ["kept"]);
}

#[test]
fn what_a_broker_that_was_away_has_comes_also_after_a_kill_of_the_old_home() {
    let (mut cluster, _) = Cluster::subscribed(3);
    cluster.cut(2);
    let mut sensor = Client::new(&mut cluster.brokers[2], "sensor");
    cluster.say(2, &mut sensor, "late");
    let (mut client, present) = cluster.connect(1, false);
    assert!(present);
    cluster.join(2);
    for number in 0..cluster.links.len() {
        let link = &cluster.links[number];
        if (link.from, link.to) == (2, 0) {
            while cluster.carry_one(number) {} // the old home has it now, and the new one leaves it to that
        }
    }
    cluster.kill(0);
    cluster.carry();
    cluster.join(0);
    assert_eq!(cluster.said(1, &mut client), ["late"]);
    cluster.advance(2 * S);
    assert_eq!(cluster.sessions(), [1]);
    cluster.check();
}

#[test]
fn of_two_homes_that_were_killed_with_a_session_the_later_one_keeps_it() {
    let (mut cluster, _) = Cluster::subscribed(3);
    cluster.cut(2);
    let (_, present) = cluster.connect(1, false);
    assert!(present);
    for broker in [0, 1] {
        cluster.kill(broker); // none of them knows any more that a move is under way
    }
    assert_eq!(cluster.sessions(), [0, 1], "as it is on disk");
    let mut sensor = Client::new(&mut cluster.brokers[2], "sensor");
    cluster.say(2, &mut sensor, "meanwhile");
    for broker in 0..3 {
        cluster.join(broker);
    }
    cluster.advance(2 * S);
    assert_eq!(cluster.sessions(), [1]);
    let (mut client, present) = cluster.connect(1, false);
    assert!(present);
    assert_eq!(cluster.said(1, &mut client), ["meanwhile"]);
    cluster.check();
}
