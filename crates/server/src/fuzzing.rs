//! What `fuzz/` calls.

pub use crate::handles::fuzzing::handle_frames;
