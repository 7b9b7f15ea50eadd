//! How long a server takes for a message: one of the times that were measured, each as likely as the others.

use srtm_engine::time::Nanos;

#[derive(Debug, Clone)]
pub struct Service {
    times: Vec<Nanos>,
    state: u64, // of the generator; never 0
}

impl Service {
    /// `None` without a time, or with one below 0.
    pub fn new(times: Vec<Nanos>, seed: u64) -> Option<Self> {
        let usable = !times.is_empty() && times.iter().all(|time| *time >= 0);
        usable.then(|| Self { times, state: mixed(seed) })
    }

    pub fn draw(&mut self) -> Nanos {
        if let [only] = self.times[..] {
            return only;
        }
        let chosen = (u128::from(self.next()) * self.times.len() as u128) >> 64;
        self.times[chosen as usize]
    }

    /// xorshift64* (Vigna 2016, "An experimental exploration of Marsaglia's xorshift generators, scrambled").
    fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

/// Seeds are small numbers in a row; a step of SplitMix64 sets their streams apart (Steele, Lea, Flood 2014).
fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_drawn_as_often_as_the_others() {
        let mut service = Service::new(vec![1, 2, 3, 4], 7).expect("times");
        let mut counts = [0usize; 5];
        for _ in 0..40_000 {
            counts[service.draw() as usize] += 1;
        }
        assert!(counts[1..].iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
    }

    #[test]
    fn the_same_seed_draws_the_same_and_another_does_not() {
        let draws = |seed| {
            let mut service = Service::new((0..1_000).collect(), seed).expect("times");
            (0..20).map(|_| service.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
    }

    #[test]
    fn without_a_time_or_with_a_negative_one_there_is_no_service() {
        assert!(Service::new(Vec::new(), 1).is_none());
        assert!(Service::new(vec![1, -1], 1).is_none());
    }
}
