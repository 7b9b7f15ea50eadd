//! What other brokers want, have sent, and hand over: subscriptions, links, sessions that follow their clients.
//!
//! Imports what `mqtt` imports. Begin with `interest`; `link_peers` has what came over links, `moves` the steps of a
//! session to another broker.

pub mod interest;
pub mod link_peers;
pub mod moves;
