//! Where ONNX Runtime's library is looked for. Nothing here reads the environment: whoever starts a
//! worker says what it says.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

/// Where the library may be, in the order in which it is looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibrarySearch {
    /// The library itself, or the directory that it is in, as a setting names it. Nothing else is looked
    /// at then.
    pub setting: Option<PathBuf>,
    /// The file that `ORT_DYLIB_PATH` names.
    pub variable: Option<PathBuf>,
    /// The prefix that this program is installed in.
    pub prefix: Option<PathBuf>,
    /// The interpreter of the Python workers.
    pub python: Option<PathBuf>,
    /// The directory that `jitney onnx install` fills.
    pub cache: Option<PathBuf>,
    /// Whether the program is static: it can load no library, so none is looked for.
    pub in_static_program: bool,
}

/// How to get ONNX Runtime.
const INSTALL: &str = "`jitney onnx install` fetches ONNX Runtime";

/// The same for a program that can load no library.
const STATIC_ONLY: &str = "this is the static build: the built-in engine only; \
                           the wheel and the container image can load ONNX Runtime";

/// The name of the library, before its version.
const NAME: &str = "libonnxruntime.so";

/// Where the system's own library is.
const SYSTEM: [&str; 5] = [
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
];

/// Where pip puts packages below a prefix.
const PACKAGES: [&str; 4] = [
    "lib/python3*/site-packages",
    "lib64/python3*/site-packages",
    "lib/python3*/dist-packages",
    "local/lib/python3*/dist-packages",
];

impl LibrarySearch {
    /// The library, if there is one; a sentence when there is none where the setting says.
    pub(crate) fn find(&self) -> Result<Option<PathBuf>, String> {
        if self.in_static_program {
            let named = self.setting.is_some();
            return if named {
                Err("a static program loads no library".to_owned())
            } else {
                Ok(None)
            };
        }
        if let Some(setting) = &self.setting {
            let library =
                if setting.is_dir() { in_directory(setting) } else { Some(setting.clone()) };
            let missing = || format!("there is no {NAME} at {}", setting.display());
            return library.filter(|file| file.is_file()).map(Some).ok_or_else(missing);
        }
        let prefix_of = |python: &PathBuf| Some(python.parent()?.parent()?.to_owned());
        let packaged = |prefix: Option<PathBuf>| prefix.as_deref().and_then(in_prefix);
        let variable = self.variable.clone().filter(|file| file.is_file());
        let found = variable
            .or_else(|| packaged(self.prefix.clone()))
            .or_else(|| packaged(self.python.as_ref().and_then(prefix_of)))
            .or_else(|| self.ask_python())
            .or_else(|| self.cache.as_deref().and_then(in_directory));
        Ok(found.or_else(|| SYSTEM.iter().find_map(|path| in_directory(Path::new(path)))))
    }

    /// Whether there is a library.
    pub fn is_there(&self) -> bool {
        matches!(self.find(), Ok(Some(_)))
    }

    /// How to get the library where it is missing.
    pub fn remedy(&self) -> &'static str {
        if self.in_static_program { STATIC_ONLY } else { INSTALL }
    }

    /// Asks the interpreter, for packages that lie elsewhere.
    fn ask_python(&self) -> Option<PathBuf> {
        const SCRIPT: &str = "import importlib.util as u; s = u.find_spec('onnxruntime'); \
                              print(s.submodule_search_locations[0] if s else '')";
        let mut command = Command::new(self.python.as_ref()?);
        let command = command.args(["-c", SCRIPT]).stdin(Stdio::null()).stderr(Stdio::null());
        let output = command.output().ok()?;
        let package = String::from_utf8(output.stdout).ok()?;
        let package = Some(package.trim()).filter(|package| !package.is_empty())?;
        in_directory(&Path::new(package).join("capi"))
    }
}

/// The library of a wheel that is installed below this prefix.
fn in_prefix(prefix: &Path) -> Option<PathBuf> {
    PACKAGES.iter().find_map(|packages| {
        let (before, after) = packages.split_once("python3*")?;
        let versions = prefix.join(before).read_dir().ok()?.flatten();
        let mut versions: Vec<PathBuf> = versions
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
            .map(|entry| entry.path())
            .collect();
        versions.sort();
        let capi = |version: &PathBuf| {
            in_directory(&version.join(after.trim_start_matches('/')).join("onnxruntime/capi"))
        };
        versions.iter().rev().find_map(capi)
    })
}

/// The library in a directory, of the highest name where there are several.
pub fn in_directory(directory: &Path) -> Option<PathBuf> {
    let files = directory.read_dir().ok()?.flatten().map(|entry| entry.path());
    let is_library = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(NAME))
    };
    files.filter(is_library).max()
}

/// The version in a library's name, such as `1.31.1`.
pub fn version_of(library: &Path) -> Option<String> {
    let library = library.canonicalize().unwrap_or_else(|_| library.to_owned());
    let name = library.file_name()?.to_str()?;
    let version = name.strip_prefix(NAME)?.strip_prefix('.')?;
    Some(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(directory: &Path, file: &str) -> PathBuf {
        let path = directory.join(file);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("created");
        std::fs::write(&path, b"").expect("written");
        path
    }

    #[test]
    fn the_library_is_looked_for_in_this_order() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        let capi = |prefix: &str, version: &str| {
            format!("{prefix}/lib/python3.{version}/site-packages/onnxruntime/capi/{NAME}.1.31.1")
        };
        let variable = place(root, "other/libonnxruntime.so");
        let own = place(root, &capi("own", "11"));
        let python = place(root, &capi("venv", "12"));
        let cached = place(root, "cache/libonnxruntime.so.1.30.0");
        let search = LibrarySearch {
            setting: None,
            variable: Some(variable.clone()),
            prefix: Some(root.join("own")),
            python: Some(root.join("venv/bin/python")),
            cache: Some(root.join("cache")),
            in_static_program: false,
        };
        for expected in [variable, own, python, cached] {
            assert_eq!(search.find(), Ok(Some(expected.clone())));
            std::fs::remove_file(expected).expect("removed");
        }
        assert_eq!(version_of(Path::new("/x/libonnxruntime.so.1.30.0")).as_deref(), Some("1.30.0"));
        assert_eq!(version_of(Path::new("/x/libonnxruntime.so")), None);
    }

    #[test]
    fn a_setting_is_the_only_place() {
        let directory = tempfile::tempdir().expect("a directory");
        let library = place(directory.path(), "libonnxruntime.so.1");
        let setting = Some(directory.path().to_owned());
        let search = LibrarySearch { setting, ..LibrarySearch::default() };
        assert_eq!(search.find(), Ok(Some(library)));
        let setting = Some(directory.path().join("nothing.so"));
        let missing = LibrarySearch { setting, ..LibrarySearch::default() };
        let words = missing.find().expect_err("no such file");
        assert!(words.starts_with("there is no libonnxruntime.so at "), "{words}");
    }

    #[test]
    fn a_static_program_looks_nowhere_and_refuses_what_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let variable = Some(place(directory.path(), "libonnxruntime.so"));
        let search =
            LibrarySearch { variable, in_static_program: true, ..LibrarySearch::default() };
        assert_eq!(search.find(), Ok(None));
        assert!(search.remedy().starts_with("this is the static build: the built-in engine only"));
        let setting = Some(directory.path().to_owned());
        let words = LibrarySearch { setting, ..search }.find().expect_err("nothing is loaded");
        assert_eq!(words, "a static program loads no library");
    }
}
