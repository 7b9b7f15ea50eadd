//! What a queue hears of its job, which runs elsewhere, and what is kept until then.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::storage::receipts::Receipt;
use crate::storage::store::Outcome;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// All of it was done, or there was none yet.
    #[default]
    Done,
    UnderWay,
    /// What was to be synced is on the device; something of the rest was not done.
    Synced,
    Failed,
}

#[derive(Debug, Default)]
pub struct Errand {
    state: Cell<State>,
    receipts: RefCell<Vec<Rc<Receipt>>>, // for records elsewhere whose copies are being synced
}

impl Errand {
    pub fn state(&self) -> State {
        self.state.get()
    }

    pub fn begin(&self, receipts: Vec<Rc<Receipt>>) {
        self.state.set(State::UnderWay);
        self.receipts.replace(receipts);
    }

    /// Whether records elsewhere are needed no more.
    pub fn end(&self, outcome: &Outcome) -> bool {
        self.state.set(match outcome {
            Outcome { result: Ok(()), .. } => State::Done,
            Outcome { synced: true, .. } => State::Synced,
            Outcome { synced: false, .. } => State::Failed,
        });
        outcome.synced && !self.receipts.take().is_empty()
    }

    /// Those of a job that failed.
    pub fn take_receipts(&self) -> Vec<Rc<Receipt>> {
        self.receipts.take()
    }
}
