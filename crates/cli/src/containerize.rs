//! `jitney containerize MODEL`: a Dockerfile for what `jitney serve MODEL` serves in the current folder, and the image
//! where buildah is. The program in the image is a copy of this one, so that no registry has to have it.

use std::fs;
use std::path::{Component, Path};
use std::process::Command;

use crate::console;
use crate::definition::is_definition;
use crate::env::Env;
use crate::failure::{Failure, cannot};
use crate::flags::containerize::ContainerizeFlags;
use crate::python::on_path;

const DOCKERFILE: &str = "Dockerfile";
/// The copy of this program, in the folder that is sent to the builder.
const PROGRAM: &str = "jitney.program";
const IGNORED: &str = ".git\n.venv\nvenv\n__pycache__\n*.pyc\nlogs\n";
const REQUIREMENTS: &str = "requirements.txt";

/// Writes the files, and builds the image if that is possible and wanted.
pub fn containerize(flags: &ContainerizeFlags, env: &Env) -> Result<u8, Failure> {
    let here = std::env::current_dir().map_err(cannot("find the current folder"))?;
    for model in &flags.models {
        check_inside(&here, model)?;
    }
    if here.join(DOCKERFILE).exists() && !flags.force {
        return Err(Failure::failed("there is a Dockerfile already").hint("--force replaces it"));
    }
    let given = flags.requirements.as_deref().map(|file| file.display().to_string());
    let usual = || here.join(REQUIREMENTS).is_file().then(|| REQUIREMENTS.to_owned());
    let requirements = given.or_else(usual);
    if let Some(file) = &requirements {
        check_inside(&here, file)?;
    }
    let write = |name: &str, text: String| {
        let path = here.join(name);
        fs::write(&path, text).map_err(|error| Failure::file("write", &path, &error))
    };
    write(DOCKERFILE, dockerfile(flags, requirements.as_deref()))?;
    if !here.join(".dockerignore").exists() {
        write(".dockerignore", IGNORED.to_owned())?;
    }
    let program = std::env::current_exe().map_err(cannot("find this program"))?;
    fs::copy(program, here.join(PROGRAM)).map_err(cannot("copy this program"))?;
    console::err(format!("wrote {DOCKERFILE} and {PROGRAM}"));
    let folder = here.file_name().map_or_else(String::new, |name| name.to_string_lossy().into());
    build(flags, &flags.tag.clone().unwrap_or_else(|| image_name(&folder)), env)
}

fn build(flags: &ContainerizeFlags, tag: &str, env: &Env) -> Result<u8, Failure> {
    let buildah = on_path(Path::new("buildah"), env).filter(|_| !flags.no_build);
    let Some(buildah) = buildah else {
        console::err(format!("build it with: docker build -t {tag} ."));
        return Ok(0);
    };
    // Docker's format, since OCI's has no health check.
    let words = ["bud", "--format", "docker", "--tag", tag, "."];
    let status = Command::new(buildah).args(words).status().map_err(cannot("run buildah"))?;
    if !status.success() {
        return Err(Failure::failed(format!("buildah failed ({status}); what it said is above")));
    }
    console::err(format!("built {tag}"));
    Ok(0)
}

/// The image gets this folder and nothing else, so what it serves has to be in it.
fn check_inside(here: &Path, model: &str) -> Result<(), Failure> {
    let named = model.split_once('=').map_or(model, |(_, path)| path);
    let file = named.split(':').next().unwrap_or(named);
    let path = Path::new(file);
    let inside =
        path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !inside {
        let hint = "go to a folder that has all files, and name them from there";
        return Err(Failure::usage(format!("{file} is not below this folder")).hint(hint));
    }
    let module = here.join(file.replace('.', "/"));
    let is_module =
        is_definition(named) && (module.is_dir() || module.with_extension("py").is_file());
    if here.join(path).exists() || is_module {
        return Ok(());
    }
    Err(Failure::usage(format!("no such file: {file}")))
}

/// The text of the Dockerfile.
fn dockerfile(flags: &ContainerizeFlags, requirements: Option<&str>) -> String {
    let install = requirements.map_or_else(String::new, |file| {
        let file = serde_json::json!([file, "/tmp/requirements.txt"]);
        format!("COPY {file}\nRUN pip install --no-cache-dir -r /tmp/requirements.txt\n")
    });
    let models = flags.models.iter().map(String::as_str);
    let words: Vec<_> =
        models.chain(["--host", "0.0.0.0", "--management-host", "127.0.0.1"]).collect();
    let health =
        "import urllib.request as web; web.urlopen('http://127.0.0.1:8080/v2/health/ready')";
    format!(
        "# Written by jitney containerize {version}; change it as you like.\n\
         # Management stays inside: docker exec CONTAINER jitney status.\n\
         FROM {base}\n\
         RUN useradd --uid 1000 --create-home model-server\n\
         {install}\
         COPY --chmod=755 {PROGRAM} /usr/local/bin/jitney\n\
         WORKDIR /home/model-server/app\n\
         COPY --chown=1000:1000 . .\n\
         RUN rm -f {PROGRAM} {DOCKERFILE}\n\
         USER 1000:1000\n\
         EXPOSE 8080 8082 7070\n\
         HEALTHCHECK --interval=30s --timeout=10s --start-period=300s CMD [\"python3\", \"-c\", \"{health}\"]\n\
         ENTRYPOINT [\"jitney\", \"serve\"]\n\
         CMD {words}\n",
        version = env!("CARGO_PKG_VERSION"),
        base = flags.base,
        words = serde_json::json!(words),
    )
}

/// A folder's name as an image may have it.
fn image_name(folder: &str) -> String {
    let kept = folder.to_lowercase().replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
    let name = kept.trim_matches('-');
    if name.is_empty() { "model".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_folders_become_names_of_images() {
        for (folder, image) in [("My App", "my-app"), ("x", "x"), ("__", "model"), ("", "model")] {
            assert_eq!(image_name(folder), image);
        }
    }

    #[test]
    fn what_is_served_lies_below_the_folder() {
        let dir = tempfile::tempdir().expect("directory");
        fs::write(dir.path().join("app.py"), "").expect("file");
        for good in ["app.py:X", "app:X", "name=app.py:X", "./app.py"] {
            assert!(check_inside(dir.path(), good).is_ok(), "{good}");
        }
        for bad in ["../app.py:X", "/app.py:X", "other.py:X", "other:X", "model.onnx"] {
            assert!(check_inside(dir.path(), bad).is_err(), "{bad}");
        }
    }
}
