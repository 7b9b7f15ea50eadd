//! Random sequences of publishes, kills, stops and full disks.

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Publish(usize),
    Begin(usize), // the same, and go on before it is answered
    Defer(u64),
    Answer(u8),
    Pass(i64),
    Space(Option<usize>),
    Stop,
    Kill,
}

/// How many messages memory takes, and bytes written in a turn where others wait.
fn steps() -> impl Strategy<Value = (usize, Option<u64>, Vec<Step>)> {
    let step = prop_oneof![
        6 => (1usize..6).prop_map(Step::Publish),
        1 => (1u64..3_000).prop_map(Step::Defer),
        4 => any::<u8>().prop_map(Step::Answer),
        3 => (1i64..1_500).prop_map(Step::Pass),
        1 => proptest::option::of(0usize..500).prop_map(Step::Space),
        1 => (1usize..6).prop_map(Step::Begin),
        1 => Just(Step::Stop),
        1 => Just(Step::Kill),
    ];
    (0usize..4, proptest::option::of(1u64..100), proptest::collection::vec(step, 1..60))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    /// Whatever happens: what was acknowledged comes, unless it was only in memory (or deferred) when the process was
    /// killed; and a stop in good order makes nothing come again that was finished.
    #[test]
    fn stops_kills_and_full_disks_lose_nothing_that_was_on_disk((mem_queue_size, portion, steps) in steps()) {
        let mut world = World::new(mem_queue_size);
        world.write_in(portion);
        world.channel("c");
        let mut next = 0;
        let mut acknowledged = HashMap::new(); // {body: it may be lost by a kill}
        let mut finished = std::collections::HashSet::new();
        let (mut killed, mut full) = (false, false);
        let mut consumer = world.pair.subscribe("t", "c", 3);
        for step in steps {
            match step {
                Step::Publish(count) => {
                    let bodies: Vec<String> = (next..next + count).map(|number| number.to_string()).collect();
                    next += count;
                    let publisher = world.pair.connect();
                    world.pair.send(publisher, mpub("t", &bodies.iter().map(String::as_str).collect::<Vec<_>>()));
                    world.pair.turn();
                    world.pair.advance(0);
                    let answer = world.pair.take(publisher);
                    if answer == [ok()] {
                        acknowledged.extend(bodies.into_iter().map(|body| (body, mem_queue_size > 0)));
                    }
                }
                Step::Begin(count) => {
                    let bodies: Vec<String> = (next..next + count).map(|number| number.to_string()).collect();
                    next += count;
                    let publisher = world.pair.connect();
                    world.pair.send(publisher, mpub("t", &bodies.iter().map(String::as_str).collect::<Vec<_>>()));
                    world.pair.turn();
                }
                Step::Defer(ms) => {
                    let publisher = world.pair.connect();
                    prop_assert_eq!(world.pair.ask(publisher, dpub("t", ms, &next.to_string())), [ok()]);
                    acknowledged.insert(next.to_string(), true);
                    next += 1;
                }
                Step::Answer(seed) => {
                    for (index, delivery) in world.pair.messages(consumer).into_iter().enumerate() {
                        match (usize::from(seed) + index) % 3 {
                            0 => {
                                world.pair.send(consumer, format!("FIN {}\n", delivery.id));
                                prop_assert!(killed || full || !finished.contains(&delivery.body), "{} came again", delivery.body);
                                finished.insert(delivery.body);
                            }
                            1 => world.pair.send(consumer, format!("REQ {} {}\n", delivery.id, seed)),
                            _ => {}
                        }
                    }
                    world.pair.turn();
                }
                Step::Pass(ms) => {
                    world.pair.advance(ms * MS);
                    world.pair.send(consumer, "NOP\n");
                    world.pair.turn();
                }
                Step::Space(space) => {
                    full |= space.is_some();
                    world.store.with(|disk| disk.space = space);
                }
                Step::Stop => {
                    world.store.with(|disk| disk.space = None);
                    world.restart();
                    world.channel("c");
                    world.release("t");
                    consumer = world.pair.subscribe("t", "c", 3);
                }
                Step::Kill => {
                    killed = true;
                    // A requeued message may be in memory only, while the disk is full.
                    acknowledged.retain(|_, volatile| !*volatile && !full);
                    full = false;
                    world.kill();
                    world.channel("c");
                    world.release("t");
                    consumer = world.pair.subscribe("t", "c", 3);
                }
            }
        }
        world.pair.close(consumer);
        world.store.with(|disk| disk.space = None);
        world.pair.advance(65 * S); // everything deferred is due
        let came = world.drain();
        let missing: Vec<_> = acknowledged.keys().filter(|body| !came.contains(body) && !finished.contains(*body)).collect();
        prop_assert!(missing.is_empty(), "{missing:?} of {came:?}");
        prop_assert_eq!(world.depths(), (0, 0));
    }
}
