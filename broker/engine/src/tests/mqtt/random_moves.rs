//! A client moves, sensors publish, brokers are cut off and killed, as a seed draws it: nothing acknowledged is lost.

use crate::harness::pair::S;
use crate::tests::mqtt::client::Client;
use crate::tests::mqtt::linked_brokers::{Cluster, Dice};

/// Of each kind: as many as take some seconds.
const SEEDS: u64 = 100;

/// One client moves, sensors publish, and one broker at a time is cut off, or killed, that of the client too, and comes
/// back. The seed draws what happens; the links carry only some of what is under way.
fn shake(seed: u64, with_kills: bool) {
    let mut dice = Dice(seed * 7_919 + 1);
    let (mut cluster, mut client) = Cluster::subscribed(3);
    cluster.carry();
    let (mut home, mut away, mut said, mut sent) = (0, None, Vec::new(), Vec::new());
    let anew = |cluster: &mut Cluster, broker: usize| Client::new(&mut cluster.brokers[broker], "sensor");
    for step in 0..20 + dice.below(60) {
        match (dice.below(10), away) {
            (0, None) => {
                let mut other = (home + 1 + dice.below(2)) % 3;
                if with_kills && dice.below(2) == 0 {
                    let is_home = dice.below(2) == 0;
                    if is_home {
                        std::mem::swap(&mut other, &mut home); // its client begins at another one
                    }
                    cluster.kill(other);
                    if is_home {
                        cluster.advance(20 * S);
                        client = cluster.begin(home, false);
                    }
                } else {
                    cluster.cut(other);
                }
                away = Some(other);
            }
            (1 | 2, Some(other)) => {
                cluster.join(other);
                away = None;
            }
            (3..=5, _) => {
                let to = dice.below(3);
                if to != home && Some(to) != away {
                    cluster.advance(20 * S); // else it would be one of too many takeovers
                    client = cluster.begin(to, false);
                    home = to;
                }
            }
            (6, _) => said.extend(cluster.said(home, &mut client)),
            (7, _) => cluster.carry(),
            _ => {
                let broker = dice.below(3);
                let mut sensor = anew(&mut cluster, broker);
                let payload = format!("{broker} {step}");
                cluster.say(broker, &mut sensor, &payload);
                cluster.brokers[broker].close(sensor.key);
                sent.push(payload);
            }
        }
        for _ in 0..dice.below(30) {
            let link = dice.below(cluster.links.len());
            cluster.carry_one(link);
        }
    }
    away.into_iter().for_each(|other| cluster.join(other));
    cluster.advance(2 * S);
    said.extend(cluster.said(home, &mut client));
    cluster.advance(2 * S);
    said.extend(cluster.said(home, &mut client));
    let missing: Vec<&String> = sent.iter().filter(|one| !said.contains(one)).collect();
    assert!(missing.is_empty(), "seed {seed}: {missing:?}");
    assert_eq!(cluster.sessions(), [home], "seed {seed}");
    cluster.check();
}

#[test]
fn what_was_acknowledged_comes_however_brokers_are_cut_off_while_sessions_move() {
    (0..SEEDS).for_each(|seed| shake(seed, false));
}

#[test]
fn what_was_acknowledged_comes_however_brokers_are_killed_while_sessions_move() {
    (0..SEEDS).for_each(|seed| shake(seed, true));
}
