//! MQTT on the engine: packets of a connection, sessions, subscriptions, and the way of a message to its subscribers.
//!
//! Imports everything below the engine, and the engine. Begin with `packets`: what each packet does. A PUBLISH becomes
//! a publish of the turn like any other (`publishing`); what is released goes to subscribers at once (`routing`), or
//! into the queue of a session, from which acknowledgements let it go (`windows`), or of a group (`shared_groups`).
//! What other brokers' publishers send comes over `links`, and a session that was at another broker by `session_moves`.

pub mod connecting;
pub mod inspection;
pub mod links;
pub mod packets;
pub mod publishing;
pub mod retained_elsewhere;
pub mod routing;
pub mod saving;
pub mod session_moves;
pub mod shared_groups;
pub mod subscribed_elsewhere;
pub mod subscribing;
pub mod system_topics;
pub mod windows;
