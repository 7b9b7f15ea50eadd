//! Who publishes, when and how much: columns of equal length, one entry a publisher.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;

use crate::plan::bad_plan::{BadPlan, bad};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Process {
    Poisson,
    /// At a random phase.
    Periodic,
    /// Periodic, all who are so in turn, evenly.
    Staggered,
    /// At the instants of `Publishers::instants_ns`.
    Trace,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publishers {
    pub ids: Vec<String>,
    pub target: Vec<usize>,
    pub rate: Vec<f64>,
    pub batch: Vec<u32>,
    pub group: Vec<i64>,
    pub process: Vec<Process>,
    /// How much later than its process (or its group's) a publisher sends; empty: nobody does.
    #[serde(default)]
    pub offset_ns: Vec<u64>,
    /// Of those that replay a trace, from the start of the run, in order; empty: there are none.
    #[serde(default)]
    pub instants_ns: Vec<Vec<u64>>,
}

/// nsqd's default limit of one MPUB.
const LARGEST_BATCH_BYTES: usize = 5 << 20;
/// One sender thread reaches about 100,000 sends a second; a rate beyond this is a slip of the pen.
const HIGHEST_RATE: f64 = 1e6;
/// A day: as long as a run may be.
const LARGEST_OFFSET_NS: u64 = 86_400_000_000_000;

impl Publishers {
    /// How often publisher `i` sends, per second: a batch goes at once.
    pub fn firing_rate(&self, i: usize) -> f64 {
        self.rate[i] / f64::from(self.batch[i])
    }

    pub fn offset_ns(&self, i: usize) -> u64 {
        self.offset_ns.get(i).copied().unwrap_or(0)
    }

    /// When publisher `i` sends, where it replays a trace.
    pub fn instants_ns(&self, i: usize) -> &[u64] {
        self.instants_ns.get(i).map_or(&[], Vec::as_slice)
    }

    pub fn check(&self, targets: usize, message_size: usize) -> Result<(), BadPlan> {
        self.check_columns()?;
        for i in 0..self.ids.len() {
            self.check_publisher(i, targets, message_size)?;
            self.check_instants(i)?;
        }
        self.check_ids()?;
        self.check_groups()
    }

    fn check_columns(&self) -> Result<(), BadPlan> {
        let columns = [
            ("target", self.target.len()),
            ("rate", self.rate.len()),
            ("batch", self.batch.len()),
            ("group", self.group.len()),
            ("process", self.process.len()),
        ];
        let optional = [("offset_ns", self.offset_ns.len()), ("instants_ns", self.instants_ns.len())];
        if self.ids.is_empty() {
            return Err(bad("publishers.ids", "[]", "must name at least one publisher"));
        }
        let mut all = columns.iter().chain(optional.iter().filter(|(_, len)| *len > 0));
        match all.find(|(_, len)| *len != self.ids.len()) {
            Some((column, len)) => {
                Err(bad(format!("publishers.{column}"), format!("{len} entries"), "must be as long as publishers.ids"))
            }
            None => Ok(()),
        }
    }

    fn check_publisher(&self, i: usize, targets: usize, message_size: usize) -> Result<(), BadPlan> {
        let field = |column: &str| format!("publishers.{column}[{i}]");
        if self.target[i] >= targets {
            return Err(bad(field("target"), self.target[i], "must be an index into targets"));
        }
        if !(self.rate[i] > 0.0 && self.rate[i] <= HIGHEST_RATE) {
            return Err(bad(field("rate"), self.rate[i], "must be above 0 and at most 1,000,000 msg/s"));
        }
        if self.batch[i] == 0 || self.batch[i] as usize * (message_size + 4) > LARGEST_BATCH_BYTES {
            return Err(bad(field("batch"), self.batch[i], "must be at least 1 and hold at most 5 MiB"));
        }
        if self.offset_ns(i) > LARGEST_OFFSET_NS {
            return Err(bad(field("offset_ns"), self.offset_ns(i), "must be at most a day"));
        }
        Ok(())
    }

    fn check_instants(&self, i: usize) -> Result<(), BadPlan> {
        let (instants_ns, replays) = (self.instants_ns(i), self.process[i] == Process::Trace);
        let field = format!("publishers.instants_ns[{i}]");
        if replays == instants_ns.is_empty() {
            return Err(bad(
                field,
                format!("{} entries", instants_ns.len()),
                "must be there for the process trace, and for no other",
            ));
        }
        match instants_ns.windows(2).find(|pair| pair[0] > pair[1]) {
            Some(pair) => Err(bad(field, pair[1], "must be in order of time")),
            None => Ok(()),
        }
    }

    fn check_ids(&self) -> Result<(), BadPlan> {
        let mut seen = HashSet::new();
        match self.ids.iter().position(|id| !seen.insert(id)) {
            Some(i) => Err(bad(format!("publishers.ids[{i}]"), &self.ids[i], "must not be listed twice")),
            None => Ok(()),
        }
    }

    /// Members of a group share their process, so they must fire alike.
    fn check_groups(&self) -> Result<(), BadPlan> {
        let mut first = HashMap::new();
        for (i, group) in self.group.iter().enumerate().filter(|(_, group)| **group >= 0) {
            let k: usize = *first.entry(*group).or_insert(i);
            if self.firing_rate(k) != self.firing_rate(i) || self.process[k] != self.process[i] {
                let rule = "must have one process and one rate / batch for all its members, which fire together";
                return Err(bad(format!("publishers.group[{i}]"), group, rule));
            }
            if self.process[i] == Process::Trace {
                return Err(bad(
                    format!("publishers.group[{i}]"),
                    group,
                    "must be -1 for the process trace, which says by itself who sends when",
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::tests::refused;

    #[test]
    fn refusals_name_column_entry_value_and_rule() {
        let cases = [
            (r#""rate": [10, 10]"#, r#""rate": [10, -1]"#, "publishers.rate[1]: -1: must"),
            (r#""rate": [10, 10]"#, r#""rate": [10]"#, "publishers.rate: 1 entries: must"),
            (r#""batch": [1, 1]"#, r#""batch": [0, 1]"#, "publishers.batch[0]: 0: must"),
            (r#""target": [0, 0]"#, r#""target": [0, 1]"#, "publishers.target[1]: 1: must"),
            (r#""ids": ["a", "b"]"#, r#""ids": ["a", "a"]"#, "publishers.ids[1]: a: must not be listed twice"),
            (r#""group": [-1, -1]"#, r#""group": [0, 0]"#, "publishers.group[1]: 0: must have one process"),
            (r#""poisson""#, r#""pareto""#, "unknown variant `pareto`"),
            (r#""rate": ["#, r#""offset_ns": [1], "rate": ["#, "publishers.offset_ns: 1 entries: must"),
            (
                r#""rate": ["#,
                r#""offset_ns": [86400000000001, 0], "rate": ["#,
                "publishers.offset_ns[0]: 86400000000001: must",
            ),
            (
                r#""rate": ["#,
                r#""instants_ns": [[5], []], "rate": ["#,
                "publishers.instants_ns[0]: 1 entries: must be there for the process",
            ),
            (r#""poisson""#, r#""trace""#, "publishers.instants_ns[0]: 0 entries: must be there for the process trace"),
        ];
        for (from, to, expected) in cases {
            let error = refused(from, to);
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_trace_must_be_in_order_of_time_and_belongs_to_no_group() {
        let process = r#""group": [-1, -1], "process": ["poisson", "periodic"]"#;
        let traced = |group: &str, instants: &str| {
            refused(
                process,
                &format!(r#""group": {group}, "process": ["trace", "periodic"], "instants_ns": [{instants}, []]"#),
            )
        };
        assert!(traced("[-1, -1]", "[5, 4]").contains("publishers.instants_ns[0]: 4: must be in order of time"));
        assert!(traced("[3, -1]", "[5]").contains("publishers.group[0]: 3: must be -1 for the process trace"));
    }
}
