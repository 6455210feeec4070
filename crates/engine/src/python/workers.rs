//! What all Python workers share: how they are started, the socket that they connect to, our own Python
//! packages, and whose turn it is to get a GPU.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use jitney_settings::Values;
use jitney_settings::server::{
    GarbageCollection, IMAGE_FORMATS, MAX_EXPANDED_SIZE, MAX_IMAGE_PIXELS,
};
use tokio::process::Command;
use tokio::runtime::Handle;

use super::packages::{kept_packages, unpack_packages};
use super::placement::{Placement, RayConfig};
use super::preload::Preload;
use super::side_car::SideCar;
use crate::frames::WorkerListener;
use crate::gpu_assignment::{GpuAssignment, SharedGpus};
use crate::process::ProcessThread;

/// How Python workers are started.
#[derive(Clone, Debug)]
pub struct PythonConfig {
    /// The interpreter.
    pub interpreter: PathBuf,
    /// The workers' whole environment; nothing of the server's own is added but what they need.
    pub env: Vec<(OsString, OsString)>,
    /// Decode JSON and text bodies for the handler, as TorchServe does by default.
    pub decode_input: bool,
    /// Keep PIL's limit on image sizes.
    pub limit_max_image_pixels: bool,
    /// Pixels of one image, where that limit is kept.
    pub image_pixels_max: u64,
    /// Formats of images that clients may send, with commas between them.
    pub image_formats: String,
    /// Bytes to which a client's file may expand.
    pub expanded_bytes_max: u64,
    /// Whether callers that use handles get tracebacks.
    pub debug_errors: bool,
    /// Whether NaN and infinities in a handler's answers become `null`, as JSON has no others.
    pub strict_json: bool,
    /// Who decides when the workers' garbage is collected.
    pub garbage_collection: GarbageCollection,
    /// A request envelope for every model.
    pub envelope: Option<String>,
    /// Install what a model's requirements file asks for before its first worker starts.
    pub install_requirements: bool,
    /// Bytes of one answer; a larger one fails its request.
    pub response_bytes_max: Option<u64>,
    /// GPUs that workers are spread over.
    pub gpus: u32,
    /// The NUMA node of each of them, where it is known.
    pub gpu_nodes: Vec<Option<u32>>,
    /// The cluster that places workers; without one they are processes of this machine.
    pub ray: Option<RayConfig>,
    /// How many files a worker may have open, where that is less than what the server may.
    pub open_files: Option<u64>,
    /// Modules that one process imports, from which workers are forked.
    pub preload: Vec<String>,
    /// A folder in which our packages stay, with their byte code.
    pub package_cache: Option<PathBuf>,
}

impl PythonConfig {
    /// An interpreter and nothing else.
    pub fn bare(interpreter: PathBuf) -> Self {
        Self {
            interpreter,
            env: Vec::new(),
            decode_input: true,
            limit_max_image_pixels: true,
            image_pixels_max: MAX_IMAGE_PIXELS.default_value(),
            image_formats: IMAGE_FORMATS.default_value(),
            expanded_bytes_max: MAX_EXPANDED_SIZE.default_value(),
            debug_errors: false,
            strict_json: true,
            garbage_collection: GarbageCollection::default(),
            envelope: None,
            install_requirements: false,
            response_bytes_max: None,
            gpus: 0,
            gpu_nodes: Vec::new(),
            ray: None,
            open_files: None,
            preload: Vec::new(),
            package_cache: None,
        }
    }

    /// Where our packages lie: in the folder that stays, or else unpacked under `scratch`.
    fn packages(&self, scratch: &Path) -> io::Result<PathBuf> {
        let Some(folder) = &self.package_cache else { return unpack_packages(scratch) };
        kept_packages(folder).or_else(|error| {
            let folder = folder.display();
            tracing::warn!(%error, "package_cache {folder} is not used; the Python packages are unpacked for this start alone");
            unpack_packages(scratch)
        })
    }

    /// Where every interpreter finds modules: our packages, and the operator's path.
    pub(super) fn python_path(&self, packages: &Path) -> OsString {
        let operators = self.env.iter().find(|(name, _)| name == "PYTHONPATH");
        let parts = [Some(packages.as_os_str()), operators.map(|(_, path)| path.as_os_str())];
        parts.into_iter().flatten().collect::<Vec<_>>().join(OsStr::new(":"))
    }

    /// A process of this interpreter, with the workers' environment. The process group of its own that
    /// it gets keeps it out of a terminal's Ctrl-C, so that a drain can still answer what it was given.
    pub(super) fn command(&self, interpreter: &Path, dir: &Path) -> Command {
        let mut command = Command::new(interpreter);
        command
            .env_clear()
            .envs(MEMORY_KEPT)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

/// What glibc's allocator keeps for itself: blocks up to 32 MiB lie on the heap, of which up to 64 MiB stay with the
/// process when they are freed. By default a worker gives the memory of every large batch back to the system,
/// and to get it again, page by page, costs more than to fill it. What the operator sets counts instead.
const MEMORY_KEPT: [(&str, &str); 2] =
    [("MALLOC_MMAP_THRESHOLD_", "33554432"), ("MALLOC_TRIM_THRESHOLD_", "67108864")];

/// What all Python workers share.
pub(crate) struct PythonWorkers {
    pub(crate) config: PythonConfig,
    pub(crate) listener: Arc<WorkerListener>,
    /// Where they are started.
    pub(crate) processes: Arc<ProcessThread>,
    /// Where our own Python packages lie.
    pub(crate) packages: PathBuf,
    /// From which workers are forked, where modules are imported once.
    pub(super) preload: Option<Preload>,
    /// Where a cluster places workers.
    pub(crate) placement: Option<Arc<Placement>>,
    /// The server's directory, which leaves with it.
    scratch: PathBuf,
    shared_gpus: Arc<SharedGpus>,
}

impl PythonWorkers {
    /// Unpacks the packages and opens the socket, both below `scratch`.
    pub(crate) fn start(
        config: PythonConfig,
        processes: Arc<ProcessThread>,
        scratch: &Path,
        runtime: &Handle,
    ) -> io::Result<Arc<Self>> {
        let listener = WorkerListener::listen(scratch.join("workers.sock"), runtime)?;
        let packages = config.packages(scratch)?;
        let placement = config.ray.clone().map(|ray| {
            let (placement, orders) = Placement::new(&listener, processes.runtime().clone());
            let side_car = SideCar {
                command: Box::new(side_car_command(&config, &ray, &packages, scratch)),
                config: ray,
                processes: Arc::downgrade(&processes),
                placement: Arc::clone(&placement),
                orders,
                data: runtime.clone(),
                listener: None,
            };
            processes.runtime().spawn(side_car.run());
            placement
        });
        let preload = (!config.preload.is_empty())
            .then(|| Preload::new(&processes, fork_server_command(&config, &packages)));
        Ok(Arc::new(Self {
            preload,
            config,
            processes,
            listener,
            packages,
            placement,
            scratch: std::path::absolute(scratch)?,
            shared_gpus: Arc::default(),
        }))
    }

    /// The file that a worker locks while its model runs on this GPU, if it takes turns.
    pub(crate) fn turn_file(&self, gpu: u32) -> PathBuf {
        self.scratch.join(format!("gpu-{gpu}.lock"))
    }

    /// The GPUs of a model's workers, out of so many; none where they run on the processor.
    pub(crate) fn gpus(&self, gpus: u32, settings: &Values) -> Option<GpuAssignment> {
        GpuAssignment::of(gpus, settings, &self.shared_gpus)
    }
}

/// What starts the process that imports modules and forks workers.
fn fork_server_command(
    config: &PythonConfig,
    packages: &Path,
) -> impl Fn() -> Command + Send + Sync + use<> {
    let (config, packages) = (config.clone(), packages.to_owned());
    move || {
        let mut command = config.command(&config.interpreter, &packages);
        command.args(["-u", "-m", "jitney.worker.fork_server"]).args(&config.preload);
        command.env("PYTHONPATH", config.python_path(&packages));
        command
    }
}

/// What starts the side-car.
fn side_car_command(
    config: &PythonConfig,
    ray: &RayConfig,
    packages: &Path,
    directory: &Path,
) -> impl Fn() -> Command + Send + Sync + use<> {
    let (config, address) = (config.clone(), ray.address.clone());
    let path = config.python_path(packages);
    let directory = directory.to_owned();
    move || {
        let mut command = config.command(&config.interpreter, &directory);
        command.args(["-u", "-m", "jitney.cluster.ray_placement", &address]);
        command.env("PYTHONPATH", &path).env("RAY_USAGE_STATS_ENABLED", "0");
        command
    }
}
