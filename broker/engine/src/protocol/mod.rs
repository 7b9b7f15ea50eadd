//! NSQ protocol V2: bytes to commands and back, IDENTIFY, what an auth server grants, the errors of the wire.
//!
//! Pure: imports `config`, `id` and `time`. Begin with `codec`.

pub mod codec;
pub mod errors;
pub mod grants;
pub mod identify;
pub mod verb;
