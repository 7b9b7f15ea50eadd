//! Sessions follow their clients: a CONNECT brings its session from the broker that has it, with what it is owed, and
//! ends the connection there. `mqtt::elsewhere::moves` has the steps.
//!
//! Imports what `engine::mqtt` imports. Begin with `arriving_sessions`, then `leaving_sessions`; `broker_news` has the
//! words between the two, `link_flushes` when nothing is under way any more.

mod arriving_sessions;
mod broker_news;
mod leaving_sessions;
mod link_flushes;
