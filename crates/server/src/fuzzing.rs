//! What `fuzz/` calls.

pub use crate::grpc::fuzzing::infer_request;
pub use crate::handles::fuzzing::handle_frames;
pub use crate::keys::fuzzing::keys_yaml;
pub use crate::open_inference::fuzzing::open_inference_bodies;
pub use crate::rest::fuzzing::forms;
