//! Names of topics and filters of them (section 4.7), and shared subscriptions (section 4.8.2).

/// Levels of a name or filter. A longer one would cost a step at every level of each match.
pub const MAX_LEVELS: usize = 128;

/// A filter of a subscription, and the group that shares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filter<'a> {
    pub group: Option<&'a str>, // of `$share/GROUP/PATTERN`
    pub pattern: &'a str,
}

impl<'a> Filter<'a> {
    /// `None`: it breaks a rule of sections 4.7.1 or 4.8.2.
    pub fn parse(text: &'a str) -> Option<Self> {
        let Some(shared) = text.strip_prefix("$share/") else {
            return is_pattern(text).then_some(Self { group: None, pattern: text });
        };
        let (group, pattern) = shared.split_once('/')?;
        let is_group = !group.is_empty() && !group.contains(['+', '#']);
        (is_group && is_pattern(pattern)).then_some(Self { group: Some(group), pattern })
    }

    pub fn has_wildcards(&self) -> bool {
        self.pattern.contains(['+', '#'])
    }
}

/// Whether a topic may have this name [MQTT-4.7.0-1], [MQTT-3.3.2-2].
pub fn is_name(text: &str) -> bool {
    let count = |wanted: &[u8]| text.bytes().fold(0, |count, byte| count + usize::from(wanted.contains(&byte)));
    !text.is_empty() && count(b"+#") == 0 && count(b"/") < MAX_LEVELS
}

/// Whether each wildcard takes a level of its own, and `#` the last one [MQTT-4.7.1-1], [MQTT-4.7.1-2].
fn is_pattern(text: &str) -> bool {
    let mut ended = false;
    let is_level = |level: &str| {
        let fits = !ended && (level.len() == 1 || !level.contains(['+', '#']));
        ended = level == "#";
        fits
    };
    !text.is_empty() && levels(text).all(is_level) && levels(text).count() <= MAX_LEVELS
}

pub fn levels(text: &str) -> impl Iterator<Item = &str> {
    text.split('/')
}

/// Whether a name begins with `$`: no wildcard at the front of a pattern matches it [MQTT-4.7.2-1].
pub fn is_reserved(name: &str) -> bool {
    name.starts_with('$')
}

/// Whether a pattern matches a name, level by level (section 4.7): the rule that the tries are tested against.
pub fn matches(pattern: &str, name: &str) -> bool {
    if is_reserved(name) && pattern.starts_with(['+', '#']) {
        return false;
    }
    let (mut wanted, mut given) = (levels(pattern), levels(name));
    loop {
        match (wanted.next(), given.next()) {
            (Some("#"), _) => return true,
            (Some("+"), Some(_)) => {}
            (Some(level), Some(other)) if level == other => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

/// Whether a pattern matches every name that another one matches.
pub fn covers(wide: &str, narrow: &str) -> bool {
    let names_an_end = |(wide, narrow): (&str, &str)| narrow != "#" || wide == "#";
    matches(wide, narrow) && levels(wide).zip(levels(narrow)).all(names_an_end)
}

/// Whether there is a name that both patterns match.
pub fn overlap(one: &str, other: &str) -> bool {
    let wild = |pattern: &str| pattern.starts_with(['+', '#']);
    if wild(one) && is_reserved(other) || wild(other) && is_reserved(one) {
        return false;
    }
    let (mut left, mut right) = (levels(one), levels(other));
    loop {
        match (left.next(), right.next()) {
            (Some("#"), _) | (_, Some("#")) | (None, None) => return true,
            (Some(a), Some(b)) if a == b || a == "+" || b == "+" => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_take_whole_levels_and_the_last_one_takes_all() {
        for good in ["a", "/", "a//b", "+", "#", "a/+/b", "+/+", "a/#", "/#", " ", "$SYS/#"] {
            assert!(Filter::parse(good).is_some(), "{good}");
        }
        for bad in ["", "a+", "+a", "a#", "#/a", "a/#/b", "ab/+e", "##", "++"] {
            assert!(Filter::parse(bad).is_none(), "{bad}");
        }
        assert!(Filter::parse(&"a/".repeat(MAX_LEVELS)).is_none());
    }

    #[test]
    fn a_shared_filter_has_a_group_and_a_pattern() {
        assert_eq!(Filter::parse("$share/g/a/#"), Some(Filter { group: Some("g"), pattern: "a/#" }));
        assert_eq!(Filter::parse("$share/g//a"), Some(Filter { group: Some("g"), pattern: "/a" }));
        for bad in ["$share/", "$share/g", "$share//a", "$share/g/", "$share/+/a", "$share/#/a"] {
            assert!(Filter::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_pattern_covers_another_one_if_it_matches_all_of_its_names() {
        for (wide, narrow) in [("#", "#"), ("#", "+/a"), ("a/#", "a"), ("a/+", "a/+"), ("a/#", "a/+/#"), ("+/b", "a/b")]
        {
            assert!(covers(wide, narrow), "{wide} {narrow}");
        }
        for (wide, narrow) in [("+", "#"), ("a/+", "a/#"), ("a", "+"), ("a/b", "a/+"), ("#", "$SYS/#"), ("a/#", "#")] {
            assert!(!covers(wide, narrow), "{wide} {narrow}");
        }
    }

    #[test]
    fn patterns_overlap_where_a_name_matches_both() {
        for (one, other, do_overlap) in [
            ("a/+", "+/b", true),
            ("a/#", "a", true),
            ("a/+/c", "a/b", false),
            ("#", "$SYS/a", false),
            ("$SYS/#", "$SYS/+/b", true),
            ("a/b", "a/c", false),
        ] {
            assert_eq!((overlap(one, other), overlap(other, one)), (do_overlap, do_overlap), "{one} {other}");
        }
    }

    #[test]
    fn patterns_match_as_the_standards_examples_say() {
        let player = "sport/tennis/player1";
        for (pattern, name, does) in [
            ("sport/tennis/player1/#", player, true),
            ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", true),
            ("sport/#", "sport", true),
            ("#", player, true),
            ("sport/tennis/+", player, true),
            ("sport/tennis/+", "sport/tennis/player1/ranking", false),
            ("sport/+", "sport", false),
            ("sport/+", "sport/", true),
            ("+/+", "/finance", true),
            ("/+", "/finance", true),
            ("+", "/finance", false),
            ("#", "$SYS/a", false),
            ("+/monitor/Clients", "$SYS/monitor/Clients", false),
            ("$SYS/#", "$SYS/a", true),
            ("a", "A", false),
        ] {
            assert_eq!(matches(pattern, name), does, "{pattern} {name}");
        }
    }
}
