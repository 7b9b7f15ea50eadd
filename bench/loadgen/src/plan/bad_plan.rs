//! What is wrong with a plan, of a run or of a flood.

/// What the plan says wrong: the field, its value, the rule.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {value}: {rule}")]
pub struct BadPlan {
    pub field: String,
    pub value: String,
    pub rule: String,
}

pub fn bad(field: impl Into<String>, value: impl std::fmt::Display, rule: &str) -> BadPlan {
    BadPlan { field: field.into(), value: value.to_string(), rule: rule.to_owned() }
}
