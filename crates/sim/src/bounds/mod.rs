//! What no policy can exceed: the clairvoyant optimum and the limits of a fluid.
//!
//! Bounds know the whole future and the true curve. They are computed for deterministic service
//! times; with noise they are those of the curve itself.

mod clairvoyant;
pub mod fluid;
mod pair;

pub use clairvoyant::clairvoyant;
pub use pair::clairvoyant_pair;
