//! Workers that are Python processes: started here they connect over a Unix socket, and over TLS from the nodes of
//! a Ray cluster.
//!
//! The server passes an address and a one-time token to the process it starts; from then on they speak the
//! frames of `frames`. This folder never looks into a request's values.

mod completion;
mod environment;
mod launcher;
mod load_command;
mod packages;
mod packing;
mod placed_model;
mod placement;
mod preload;
mod remote_process;
mod secure_listener;
mod side_car;
mod worker;
mod workers;

pub(crate) use self::completion::OpenConfig;
pub(crate) use self::environment::Environment;
pub(crate) use self::launcher::PythonLauncher;
pub(crate) use self::load_command::LoadCommand;
pub use self::packages::unpack_packages;
pub(crate) use self::packing::FilePacking;
pub use self::placement::RayConfig;
pub use self::workers::PythonConfig;
pub(crate) use self::workers::PythonWorkers;
