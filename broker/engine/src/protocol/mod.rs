//! NSQ protocol V2: bytes to commands and back, IDENTIFY, what an auth server grants, the errors of the wire.
//!
//! Pure: imports `config`, `id` and `time`. Begin with `codec`. MQTT's bytes are in the folder `mqtt`, HTTP's in
//! `http`. A protocol has its port in `io::listener` and `io::reactor`; what its commands do is in a folder of
//! `engine`.

pub mod access;
pub mod codec;
pub mod errors;
pub mod grants;
pub mod identify;
pub mod link_frames;
pub mod mqtt;
pub mod verb;
