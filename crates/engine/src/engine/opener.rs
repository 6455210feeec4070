//! From what a caller asks for to a model whose files were read and checked: found, fetched, verified, opened, named.
//!
//! Everything here may fail and leaves nothing behind then. It enters nothing into the registry and starts no
//! worker; a model without Python may be loaded once, in a process that ends when it has told what it takes. Of one
//! that is loaded on demand only the file is read.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jitney_settings::model::{
    DEVICE_IDS, ISOLATION, LOAD, LoadTime, MAX_BATCH_SIZE, MAX_CONCURRENT_BATCHES, MEMORY_LIMIT,
    ONNX_ENGINE, ONNX_LIBRARY, ONNX_PROVIDERS, ONNX_THREADS, STARTUP_TIMEOUT, TASK, TRUST,
};
use jitney_settings::{Isolation, SettingSource, Values};

use crate::error::RegisterError;
use crate::local::declared::check_as_is;
use crate::local::declared_model::DeclaredModel;
use crate::local::process::{LocalLoad, LocalProcesses};
use crate::local::{LoadedModel, LocalModel, LocalRuntime, LocalSession};
use crate::model::ModelIdentity;
use crate::model::endpoint_tensors::signature;
use crate::outcome::LaunchError;
use crate::python::{FilePacking, OpenConfig, PythonWorkers};
use crate::resolve;
use crate::settings::{ModelDefaults, ModelSettings, RegisterOptions};
use crate::store::{
    Api, DeclaredTensors, DownloadRequest, FetchedFile, ModelDir, ModelSource, Package,
    PythonBackend, Sha256, ShownUrl, Store, StoreError, is_loadable,
};

/// Batches of an ensemble that one worker has under way.
const ENSEMBLE_BATCHES: u64 = 100;

/// A model whose files were read, under the name that was settled.
pub(super) struct OpenedModel {
    pub(super) identity: ModelIdentity,
    pub(super) files: OpenedFiles,
}

pub(super) enum OpenedFiles {
    /// It needs no Python.
    Local(Arc<dyn LocalModel>, LocalHome, Option<FetchedFile>),
    /// It runs in Python workers.
    Package(Box<Package>),
}

/// Where the workers of a model without Python run.
pub(super) enum LocalHome {
    /// In threads of this process.
    Threads(Arc<dyn LocalSession>),
    /// In processes that load this file with these options. The last says whether one has done so: else what is
    /// known of the model is what its file declares.
    Processes(Arc<LocalProcesses>, PathBuf, serde_json::Value, bool),
}

impl OpenedModel {
    /// Leaves what was fetched in the store.
    pub(super) fn keep_file(&self) {
        let fetched = match &self.files {
            OpenedFiles::Local(_, _, fetched) => fetched.as_ref(),
            OpenedFiles::Package(package) => package.downloaded.as_ref(),
        };
        fetched.into_iter().for_each(FetchedFile::keep);
    }

    /// An archive that was read.
    pub(super) fn of_package(
        package: Package,
        options: &RegisterOptions,
    ) -> Result<Self, RegisterError> {
        let own = (package.manifest.model_name.as_deref(), package.manifest.version());
        let identity = ModelIdentity::settled(own, options)?;
        Ok(Self { identity, files: OpenedFiles::Package(Box::new(package)) })
    }

    /// A model that was loaded into this process.
    pub(super) fn of_loaded(
        loaded: LoadedModel,
        options: &RegisterOptions,
    ) -> Result<Self, RegisterError> {
        Self::of_local(loaded.model, LocalHome::Threads(loaded.session), None, options)
    }

    fn of_local(
        model: Arc<dyn LocalModel>,
        home: LocalHome,
        fetched: Option<FetchedFile>,
        options: &RegisterOptions,
    ) -> Result<Self, RegisterError> {
        let identity = ModelIdentity::settled((Some(model.name()), model.version()), options)?;
        Ok(Self { identity, files: OpenedFiles::Local(model, home, fetched) })
    }

    /// Its effective settings.
    pub(super) fn settings(
        &self,
        options: &RegisterOptions,
        defaults: &ModelDefaults,
    ) -> Result<ModelSettings, RegisterError> {
        let ModelIdentity { name, version, .. } = &self.identity;
        match &self.files {
            OpenedFiles::Package(package) => {
                resolve::settings((name, version), package, options, defaults)
            }
            OpenedFiles::Local(model, home, _) => {
                let isolation = match home {
                    LocalHome::Threads(_) => Isolation::Thread,
                    LocalHome::Processes(..) => Isolation::Process,
                };
                resolve::local_settings((name, version), &**model, isolation, options, defaults)
            }
        }
    }
}

/// Opens models.
pub(super) struct ModelOpener {
    pub(super) store: Arc<Store>,
    pub(super) defaults: ModelDefaults,
    pub(super) local: Option<LocalRuntime>,
    /// What `local` is told when it loads a model, beside the model's own settings.
    pub(super) local_options: serde_json::Map<String, serde_json::Value>,
    /// What starts worker processes for `local`; without it its models run in threads.
    pub(super) local_processes: Option<Arc<LocalProcesses>>,
    pub(super) python: Arc<PythonWorkers>,
}

impl ModelOpener {
    /// Finds, fetches, verifies and opens a model.
    pub(super) async fn open(
        &self,
        options: &RegisterOptions,
    ) -> Result<OpenedModel, RegisterError> {
        resolve::check_runtime(options)?;
        let found = self.find(options).await?;
        if let Some(local) = self.local {
            let is_local = |file: &Path| file.extension().is_some_and(|it| it == local.extension);
            if let Some(path) = found.file().filter(|file| is_local(file)).map(Path::to_owned) {
                let (model, home) = self.open_local(local, path, options).await?;
                let threads = matches!(home, LocalHome::Threads(_));
                let model = match &options.declared {
                    None => model,
                    Some(declared) => DeclaredModel::around(model, declared, threads)
                        .map_err(RegisterError::NotLoadable)?,
                };
                return OpenedModel::of_local(model, home, found.fetched(), options);
            }
            if is_local(Path::new(&options.url)) {
                return Err(StoreError::NotFound(ShownUrl::of(&options.url)).into());
            }
        }
        self.open_package(found, options).await
    }

    async fn open_package(
        &self,
        found: ModelSource,
        options: &RegisterOptions,
    ) -> Result<OpenedModel, RegisterError> {
        let (store, url) = (Arc::clone(&self.store), options.url.clone());
        let file = found.file().map(Path::to_owned);
        let packed = self.packed(&found, options).await?;
        let (found, fetched) = match &packed {
            Some(dir) => (ModelSource::Directory(dir.path().to_owned()), found.fetched()),
            None => (found, None),
        };
        let turn = store.turn(&found).await;
        let opening = move || {
            let _turn = turn;
            store.open(&url, found)
        };
        let mut package = blocking(opening).await??;
        if let Some(dir) = packed {
            package.dir.attach(dir);
            package.downloaded = fetched;
            if let Some(declared) = &options.declared {
                check_declared(&package, declared)?;
            }
        }
        if let Some(python) = &options.python {
            package.api = Some(self.python_api(&mut package, python, options).await?);
            package.yaml_json = python.settings.clone();
            if python.ensemble {
                // It waits for others and does nothing itself.
                package.settings.set(
                    &MAX_CONCURRENT_BATCHES,
                    ENSEMBLE_BATCHES,
                    SettingSource::Default,
                );
            }
        }
        let opened = OpenedModel::of_package(package, options)?;
        let operators = resolve::operators_sha256(&opened.identity, &self.defaults)?;
        self.verify(&options.url, file.as_deref(), operators).await?;
        Ok(opened)
    }

    /// The model directory of a file or folder that only Python's libraries read; none for what the store reads
    /// itself, or what a handler was named for. Whether its code may run is the operator's to say: no client and no
    /// archive can set that.
    async fn packed(
        &self,
        found: &ModelSource,
        options: &RegisterOptions,
    ) -> Result<Option<ModelDir>, RegisterError> {
        let Some(path) = found.path().map(Path::to_owned) else { return Ok(None) };
        if options.handler.is_some() || options.python.is_some() {
            return Ok(None);
        }
        let by_default = self.defaults.handler.is_some() && found.file().is_none();
        let handles = self.defaults.handles_folder;
        let looked = path.clone();
        let is_packed = move || is_loadable(&looked) && !(by_default && handles(&looked));
        if !blocking(is_packed).await? {
            return Ok(None);
        }
        // It costs what an archive costs, so that only so many run at a time.
        let _turn = self.store.turn(&ModelSource::Archive(path.clone())).await;
        let typed = resolve::typed(options, &self.defaults);
        if typed.flag(&TRUST) {
            self.verify_before_code(found, options).await?;
        }
        let packing = FilePacking {
            path: &path,
            trust: typed.flag(&TRUST),
            task: typed.read(&TASK),
            time: typed.value(&STARTUP_TIMEOUT),
        };
        let packed = packing.packed(&self.python, &self.store.models()).await;
        packed.map(Some).map_err(RegisterError::NotLoadable)
    }

    /// What a model of Triton's Python backend takes and gives: what its configuration says, and what it adds itself.
    async fn python_api(
        &self,
        package: &mut Package,
        backend: &PythonBackend,
        options: &RegisterOptions,
    ) -> Result<Api, RegisterError> {
        let here = self.python.placement.is_none();
        let Some(config) = backend.open_config().filter(|_| here) else {
            return Ok(backend.api.clone());
        };
        let open = OpenConfig {
            model: options.model_name.as_deref().unwrap_or_default(),
            dir: package.dir.path(),
            file: package.dir.path().join(&backend.file),
            config,
            time: resolve::typed(options, &self.defaults).value(&STARTUP_TIMEOUT),
        };
        let added = open.completed(&self.python, &self.store.models()).await;
        let Some(added) = added.map_err(RegisterError::NotLoadable)? else {
            return Ok(backend.api.clone());
        };
        let size = added.max_batch_size.max(1);
        package.settings.set(&MAX_BATCH_SIZE, size, SettingSource::Default);
        Ok(backend.completed(added))
    }

    /// Opens a model without Python: in a process that ends when it has told what the model takes and
    /// gives, or for good in this one. No file can harm the server that way, whatever is in it.
    async fn open_local(
        &self,
        local: LocalRuntime,
        path: PathBuf,
        options: &RegisterOptions,
    ) -> Result<(Arc<dyn LocalModel>, LocalHome), RegisterError> {
        let typed = resolve::typed(options, &self.defaults);
        let isolation: Isolation = typed.value(&ISOLATION);
        let processes = self.local_processes.clone().filter(|_| isolation == Isolation::Process);
        let Some(processes) = processes else {
            let told = self.local_options(&typed);
            let loaded = blocking(move || (local.load)(&path, &told)).await?;
            let loaded = loaded.map_err(RegisterError::NotLoadable)?;
            return Ok((loaded.model, LocalHome::Threads(loaded.session)));
        };
        let unreadable = |error: io::Error| RegisterError::NotLoadable(error.to_string());
        let file = std::path::absolute(path).map_err(unreadable)?;
        if typed.value::<LoadTime>(&LOAD) == LoadTime::OnDemand {
            let read = file.clone();
            let model = blocking(move || (local.declare)(&read)).await?;
            let model = model.map_err(RegisterError::NotLoadable)?;
            let told = self.local_options(&typed);
            return Ok((model, LocalHome::Processes(processes, file, told, false)));
        }
        let load = LocalLoad {
            file,
            name: options.model_name.clone().unwrap_or_default(),
            version: options.version.clone().unwrap_or_default(),
            memory_limit: typed.read(&MEMORY_LIMIT),
            options: self.local_options(&typed),
        };
        let time: std::time::Duration = typed.value(&STARTUP_TIMEOUT);
        let loaded = tokio::time::timeout(time, processes.load(&load, None, |_| ())).await;
        let loaded = loaded.unwrap_or(Err(LaunchError::TimedOut { seconds: time.as_secs() }));
        let loaded = loaded.map_err(not_loadable)?;
        tracing::info!(file = %load.file.display(), "runs in {}", loaded.engine);
        let (signature, file, told) = (loaded.signature, load.file.clone(), load.options.clone());
        let model = blocking(move || (local.describe)(&load.file, signature)).await?;
        let model = model.map_err(RegisterError::NotLoadable)?;
        Ok((model, LocalHome::Processes(processes, file, told, true)))
    }

    /// What the runtime of models without Python is told when it loads this one.
    fn local_options(&self, typed: &Values) -> serde_json::Value {
        let mut told = self.local_options.clone();
        for setting in [&ONNX_ENGINE, &ONNX_LIBRARY, &ONNX_THREADS, &ONNX_PROVIDERS] {
            told.extend(typed.show(setting).map(|value| (setting.name.to_owned(), value.into())));
        }
        // The GPU of a process that only tries the model, and of threads; workers are told theirs.
        let first = typed.read(&DEVICE_IDS).and_then(|ids: Vec<u32>| ids.first().copied());
        told.extend(first.map(|gpu| ("gpu_id".to_owned(), gpu.into())));
        told.into()
    }

    /// Finds the model and, if it is on another machine, fetches it. A caller who goes away ends the
    /// download, and nothing is left of it.
    async fn find(&self, options: &RegisterOptions) -> Result<ModelSource, RegisterError> {
        let (store, url) = (Arc::clone(&self.store), options.url.clone());
        let (at_startup, apart) = (options.at_startup, options.apart);
        if let Some(path) = options.path.clone() {
            let is_directory = path.is_dir();
            let source = if is_directory { ModelSource::Directory } else { ModelSource::Archive };
            return Ok(source(path));
        }
        let find =
            move || if apart { store.find_apart(&url) } else { store.find(&url, at_startup) };
        let found = blocking(find).await??;
        let request =
            DownloadRequest { url: &options.url, signed: options.s3_sse_kms, resume: None };
        let found = self.store.fetch(request, found).await?;
        self.verify(&options.url, found.file(), options.sha256).await?;
        Ok(found)
    }

    /// Compares the sum of the file with the expected one, if there is one.
    async fn verify(
        &self,
        url: &str,
        file: Option<&Path>,
        sha256: Option<Sha256>,
    ) -> Result<(), RegisterError> {
        let Some(sha256) = sha256 else { return Ok(()) };
        let (store, url, file) =
            (Arc::clone(&self.store), url.to_owned(), file.map(Path::to_owned));
        Ok(blocking(move || store.verify(&url, file.as_deref(), sha256)).await??)
    }

    /// The same before code of the file runs, with the operator's sums.
    async fn verify_before_code(
        &self,
        found: &ModelSource,
        options: &RegisterOptions,
    ) -> Result<(), RegisterError> {
        let mut verified = Ok(());
        for sum in resolve::sums_before_code(options, &self.defaults)? {
            verified = self.verify(&options.url, found.file(), Some(sum)).await;
            if verified.is_ok() {
                break;
            }
        }
        verified
    }

    /// Where what compiling the model makes is kept, for a model that may be compiled.
    pub(super) async fn compile_cache(
        &self,
        package: Package,
    ) -> Result<(Package, Option<PathBuf>), RegisterError> {
        if !package.may_compile() {
            return Ok((package, None));
        }
        let store = Arc::clone(&self.store);
        blocking(move || {
            let cache = store.compile_cache(&package);
            (package, cache)
        })
        .await
    }
}

/// Compares what a configuration declares with what a packed model takes and gives.
fn check_declared(package: &Package, declared: &DeclaredTensors) -> Result<(), RegisterError> {
    let tensors = package.api.iter().flat_map(|api| api.tensors.values());
    let Some(own) = tensors.into_iter().next().and_then(signature) else { return Ok(()) };
    check_as_is(declared, &own).map_err(RegisterError::NotLoadable)
}

/// Why the file of a model without Python is not served, in the loader's words where it has some.
fn not_loadable(error: LaunchError) -> RegisterError {
    RegisterError::NotLoadable(match error {
        LaunchError::Load(fault) => fault.message,
        other @ (LaunchError::Spawn(_)
        | LaunchError::Ended { .. }
        | LaunchError::TimedOut { .. }
        | LaunchError::Memory(_)
        | LaunchError::NoRoom { .. }
        | LaunchError::Unwanted) => other.to_string(),
    })
}

/// Runs blocking work off the caller's runtime.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RegisterError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|panic| RegisterError::BadSettings(format!("reading the model failed: {panic}")))
}
