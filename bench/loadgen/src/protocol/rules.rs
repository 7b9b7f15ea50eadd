//! What a plan may not ask of a protocol.

use super::Protocol;
use crate::plan::Plan;
use crate::plan::bad_plan::{BadPlan, bad};

/// Of a string in an MQTT packet there may be 65,535 bytes; what makes a client identifier unique takes up to 32 of
/// them.
const LONGEST_MQTT_ID: usize = 65_535 - 32;

/// Refuses what `plan.protocol` cannot say.
pub fn check(plan: &Plan) -> Result<(), BadPlan> {
    let highest = if plan.protocol == Protocol::Mqtt { 2 } else { 0 };
    if plan.qos > highest {
        return Err(bad("qos", plan.qos, "must be 0 or, with protocol mqtt, 1 or 2"));
    }
    if plan.own_names && plan.protocol != Protocol::Mqtt {
        return Err(bad("own_names", plan.own_names, "must be false but with protocol mqtt"));
    }
    if plan.durable && plan.protocol != Protocol::Mqtt {
        return Err(bad("durable", plan.durable, "must be false but with protocol mqtt"));
    }
    match plan.protocol {
        Protocol::Nsq => Ok(()),
        Protocol::Nats => one_each(plan).and_then(|()| subject(plan)),
        Protocol::Mqtt => one_each(plan).and_then(|()| mqtt_names(plan)),
        Protocol::Redis => one_each(plan),
    }
}

/// Without NSQ's channels every subscriber gets every message.
fn one_each(plan: &Plan) -> Result<(), BadPlan> {
    let same = |a: usize, b: usize| {
        let (a, b) = (&plan.subscribers[a], &plan.subscribers[b]);
        a.target == b.target && a.channel == b.channel
    };
    match (0..plan.subscribers.len()).find(|i| (0..*i).any(|before| same(before, *i))) {
        Some(i) => Err(bad(
            format!("subscribers[{i}].channel"),
            &plan.subscribers[i].channel,
            "must be another at the same target: only NSQ shares messages out among the subscribers of a channel",
        )),
        None => Ok(()),
    }
}

/// A subject is words with dots between them.
fn subject(plan: &Plan) -> Result<(), BadPlan> {
    let legal = |topic: &str| !topic.contains('#') && topic.split('.').all(|word| !word.is_empty());
    each_topic(plan, legal, "must be words of [a-zA-Z0-9_-] with dots between them")
}

fn mqtt_names(plan: &Plan) -> Result<(), BadPlan> {
    each_topic(plan, |topic| !topic.contains('#'), "must not have a #, which is a wildcard")?;
    let is_name = |id: &String| !plan.own_names || !id.contains(['+', '#', '\0']);
    if let Some(i) = plan.publishers.ids.iter().position(|id| !is_name(id)) {
        return Err(bad(format!("publishers.ids[{i}]"), &plan.publishers.ids[i], "must have no + or #: it is a name"));
    }
    match plan.publishers.ids.iter().position(|id| id.is_empty() || id.len() > LONGEST_MQTT_ID) {
        Some(i) => Err(bad(format!("publishers.ids[{i}]"), &plan.publishers.ids[i], "must have 1 to 65,503 bytes")),
        None => Ok(()),
    }
}

fn each_topic(plan: &Plan, legal: impl Fn(&str) -> bool, rule: &str) -> Result<(), BadPlan> {
    match (0..plan.targets.len()).find(|target| !legal(plan.topic_at(*target))) {
        Some(_) if plan.topics.is_empty() => Err(bad("topic", &plan.topic, rule)),
        Some(target) => Err(bad(format!("topics[{target}]"), &plan.topics[target], rule)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::{Plan, tests::PLAN};

    fn refused(changes: &[(&str, &str)]) -> Option<String> {
        let text = changes.iter().fold(PLAN.to_owned(), |text, (from, to)| {
            assert!(text.contains(from), "{from} is not in the plan");
            text.replacen(from, to, 1)
        });
        Plan::parse(text.as_bytes()).err().map(|error| error.to_string())
    }

    #[test]
    fn what_a_protocol_cannot_say_is_refused_by_field_value_and_rule() {
        let topic = r#"{"topic": "t""#;
        let sharing = (r#"[{"target": 0}]"#, r#"[{"target": 0}, {"target": 0}]"#);
        let speaking = |protocol: &str, topic: &str| format!(r#"{{"protocol": "{protocol}", "topic": "{topic}""#);
        assert_eq!(refused(&[sharing]), None);
        for protocol in ["nats", "mqtt", "redis"] {
            assert_eq!(refused(&[(topic, &speaking(protocol, "a.b"))]), None);
            let error = refused(&[(topic, &speaking(protocol, "t")), sharing]).expect(protocol);
            assert!(error.starts_with("subscribers[1].channel: bench: must be another"), "{error}");
        }
        for (protocol, name) in [("nats", "a..b"), ("nats", ".a"), ("nats", "a#ephemeral"), ("mqtt", "a#ephemeral")] {
            let error = refused(&[(topic, &speaking(protocol, name))]).expect(name);
            assert!(error.starts_with(&format!("topic: {name}: must")), "{error}");
        }
        let error = refused(&[(topic, &format!(r#"{}, "topics": ["a..b"]"#, speaking("nats", "t")))]).expect("topics");
        assert!(error.starts_with("topics[0]: a..b: must be words"), "{error}");
        let error = refused(&[(topic, &speaking("mqtt", "t")), (r#""a""#, r#""""#)]).expect("no name");
        assert!(error.starts_with("publishers.ids[0]: : must have"), "{error}");
        let error = refused(&[(topic, &speaking("amqp", "t"))]).expect("unknown");
        assert!(error.contains("unknown variant `amqp`"), "{error}");
    }

    #[test]
    fn own_names_are_mqtts_and_a_name_has_no_wildcard() {
        let own = |protocol: &str| format!(r#"{{"protocol": "{protocol}", "own_names": true, "topic""#);
        assert_eq!(refused(&[(r#"{"topic""#, &own("mqtt"))]), None);
        let error = refused(&[(r#"{"topic""#, &own("nsq"))]).expect("nsq");
        assert!(error.starts_with("own_names: true: must be false"), "{error}");
        let error = refused(&[(r#"{"topic""#, &own("mqtt")), (r#""a""#, r#""a+""#)]).expect("a wildcard");
        assert!(error.starts_with("publishers.ids[0]: a+: must have no +"), "{error}");
    }

    #[test]
    fn sessions_that_are_kept_are_mqtts() {
        let durable = |protocol: &str| format!(r#"{{"protocol": "{protocol}", "durable": true, "topic""#);
        assert_eq!(refused(&[(r#"{"topic""#, &durable("mqtt"))]), None);
        let error = refused(&[(r#"{"topic""#, &durable("redis"))]).expect("redis");
        assert!(error.starts_with("durable: true: must be false"), "{error}");
    }

    #[test]
    fn a_quality_of_service_is_mqtts_and_at_most_2() {
        let with = |protocol: &str, qos: u8| {
            refused(&[(r#"{"topic""#, &format!(r#"{{"protocol": "{protocol}", "qos": {qos}, "topic""#))])
        };
        assert_eq!((with("mqtt", 0), with("mqtt", 2), with("redis", 0)), (None, None, None));
        for (protocol, qos) in [("mqtt", 3), ("nsq", 1), ("nats", 1)] {
            assert_eq!(with(protocol, qos), Some(format!("qos: {qos}: must be 0 or, with protocol mqtt, 1 or 2")));
        }
    }
}
