//! What a run has found: who got what, how late, by interval, and the verdict.

pub mod histogram;
pub mod ledger;
pub mod report;
pub mod timeline;
