//! How other servers batch, each rebuilt from the semantics of its source, one file each.
//!
//! They are given what they do not have in life: transport, Python and Java cost nothing here.
//! None of them may look at the world's curve; what they know they measured.

pub mod bentoml;
pub mod clipper;
pub(crate) mod pool;
pub mod ray;
pub mod torchserve;
pub mod triton;
