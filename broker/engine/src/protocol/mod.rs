//! NSQ protocol V2: bytes to commands and back, IDENTIFY, what an auth server grants, the errors of the wire.
//!
//! Pure: imports `config`, `id` and `time`. Begin with `codec`. Another protocol would be a folder beside this one, as
//! `http` is:
//! its port in `io::listener` and `io::reactor`, what its commands do in a folder of `engine`.

pub mod codec;
pub mod errors;
pub mod grants;
pub mod identify;
pub mod verb;
