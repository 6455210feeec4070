//! Which processors the workers of a model are kept to.
//!
//! `topology` reads what the machine has, `pinning` divides it among workers and is pure, `assignment` remembers who has
//! what and moves workers when their number changes. Models do not know of each other here: each divides all that it
//! may use among its own workers, as their threads always did.

mod assignment;
mod pinning;
mod topology;

pub(crate) use self::assignment::CpuAssignment;
