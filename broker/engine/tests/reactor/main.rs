//! The whole engine on real loopback sockets. Every wait is bounded.

mod client;
mod http;
mod lifetime;
mod mqtt;
mod serving;
mod unruly;
