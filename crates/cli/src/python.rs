//! The Python interpreter: which one runs the workers, and how this program runs its own Python
//! modules. A missing interpreter matters only when Python is needed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::env::{Env, Hidden};
use crate::failure::{Failure, cannot};
use crate::flags::CheckFlags;

/// Runs the Python modules that come with this program. They are unpacked on first use, and removed
/// with this value.
pub struct PythonHelper {
    interpreter: Option<PathBuf>,
    env: Env,
    unpacked: OnceLock<(TempDir, PathBuf)>,
}

impl PythonHelper {
    /// Nothing is unpacked yet; without an interpreter the usual one is taken.
    pub fn new(interpreter: Option<PathBuf>, env: &Env) -> Self {
        Self { interpreter, env: env.clone(), unpacked: OnceLock::new() }
    }

    /// `python -m module`, with our packages.
    pub fn command(&self, module: &str) -> Result<Command, Failure> {
        let found = find(self.interpreter.as_deref(), &self.env);
        if let Some(remark) = found.remark {
            return Err(Failure::failed(remark));
        }
        let packages = self.packages().map_err(cannot("run Python"))?;
        let env = Hidden::default().filter(&self.env);
        Ok(module_command(&found.interpreter, module, packages, &env))
    }

    fn packages(&self) -> std::io::Result<&PathBuf> {
        if let Some((_, packages)) = self.unpacked.get() {
            return Ok(packages);
        }
        let directory = tempfile::tempdir_in(self.env.temp_dir())?;
        let packages = jitney_engine::python::unpack_packages(directory.path())?;
        Ok(&self.unpacked.get_or_init(|| (directory, packages)).1)
    }
}

/// `python -m module` with this environment; our packages come first, then the operator's path.
pub fn module_command(
    python: &Path,
    module: &str,
    packages: &Path,
    env: &[(OsString, OsString)],
) -> Command {
    let mut path = packages.as_os_str().to_owned();
    if let Some((_, given)) = env.iter().find(|(name, _)| name == "PYTHONPATH") {
        path.push(":");
        path.push(given);
    }
    let mut command = Command::new(python);
    command.args(["-m", module]).env_clear();
    command.envs(env.iter().map(|(name, value)| (name, value))).env("PYTHONPATH", path);
    command
}

/// `jitney check module:object`: runs `python -m jitney check`, which may import the user's code, and
/// passes its output and exit code on.
pub fn check(flags: CheckFlags, env: &Env) -> Result<u8, Failure> {
    let python = PythonHelper::new(flags.python, env);
    let status = python
        .command("jitney")?
        .args(["check", &flags.object])
        .args(flags.sample.iter().flat_map(|sample| ["--sample", sample]))
        .args(flags.endpoint.iter().flat_map(|name| ["--endpoint", name]))
        .args(flags.json.then_some("--json"))
        .status()
        .map_err(cannot("run Python"))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// The interpreter, and a remark for the log if there is none.
pub struct Python {
    /// An absolute path if it was found.
    pub interpreter: PathBuf,
    /// Why this one.
    pub why: &'static str,
    /// Why Python models will not start.
    pub remark: Option<String>,
}

/// Finds the interpreter: the one asked for, the one beside this program in a virtual environment,
/// the active virtual environment's, `python3` on the path.
pub fn find(asked: Option<&Path>, env: &Env) -> Python {
    let because = |why: &'static str| move |found: PathBuf| (found, why);
    let found = match asked {
        Some(asked) => resolve(asked, env).map(because("it was asked for")),
        None => beside(std::env::current_exe().ok().as_deref())
            .map(because("it is beside this program"))
            .or_else(|| active(env).map(because("its virtual environment is active")))
            .or_else(|| {
                on_path(Path::new("python3"), env).map(because("it is the first on the PATH"))
            }),
    };
    let wanted = asked.unwrap_or(Path::new("python3"));
    let remark = found.is_none().then(|| {
        format!("no Python at {}; Python models cannot be loaded (see --python)", wanted.display())
    });
    let (interpreter, why) = found.unwrap_or_else(|| (wanted.to_owned(), "there is no other"));
    Python { interpreter, why, remark }
}

/// A bare name is looked up on the path; anything with a slash is a file.
fn resolve(asked: &Path, env: &Env) -> Option<PathBuf> {
    if asked.components().count() == 1 && asked.is_relative() {
        return on_path(asked, env);
    }
    asked.is_file().then(|| std::path::absolute(asked).ok()).flatten()
}

/// A wheel installs this program beside its interpreter.
fn beside(program: Option<&Path>) -> Option<PathBuf> {
    let bin = program?.parent()?;
    let python = bin.join("python3");
    (bin.parent()?.join("pyvenv.cfg").is_file() && python.is_file()).then_some(python)
}

fn active(env: &Env) -> Option<PathBuf> {
    let python = env.path("VIRTUAL_ENV")?.join("bin/python");
    python.is_file().then_some(python)
}

/// A program on the path.
pub fn on_path(name: &Path, env: &Env) -> Option<PathBuf> {
    let path = env.path("PATH")?;
    let found =
        std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())?;
    std::path::absolute(found).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        std::fs::create_dir_all(path.parent().expect("parent")).expect("directory");
        std::fs::write(path, "").expect("file");
    }

    #[test]
    fn the_active_environment_wins_over_the_path_and_a_flag_over_both() {
        let dir = tempfile::tempdir().expect("directory");
        let at = |name: &str| dir.path().join(name);
        [at("venv/bin/python"), at("path/python3"), at("mine")].iter().for_each(|file| touch(file));
        let (venv, path) = (at("venv"), at("path"));
        let venv = venv.to_str().expect("text");
        let path = path.to_str().expect("text");
        let both = Env::from([("VIRTUAL_ENV", venv), ("PATH", path)]);
        assert_eq!(find(None, &both).interpreter, at("venv/bin/python"));
        assert_eq!(find(None, &Env::from([("PATH", path)])).interpreter, at("path/python3"));
        assert_eq!(find(Some(&at("mine")), &both).interpreter, at("mine"));
        assert_eq!(find(Some(Path::new("python3")), &both).interpreter, at("path/python3"));
    }

    #[test]
    fn a_program_in_a_virtual_environment_uses_the_interpreter_beside_it() {
        let dir = tempfile::tempdir().expect("directory");
        let bin = dir.path().join("bin");
        touch(&bin.join("python3"));
        assert_eq!(beside(Some(&bin.join("jitney"))), None);
        touch(&dir.path().join("pyvenv.cfg"));
        assert_eq!(beside(Some(&bin.join("jitney"))), Some(bin.join("python3")));
    }

    #[test]
    fn a_missing_interpreter_is_a_remark_not_an_error() {
        let python = find(Some(Path::new("/no/such/python")), &Env::default());
        assert!(python.remark.is_some_and(|remark| remark.contains("/no/such/python")));
    }
}
