//! `jitney onnx install`: a wheel is a zip file with the library in it, so that no Python is needed.

use std::fs::Permissions;
use std::io::{Cursor, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jitney_engine::store::Sha256;
use jitney_onnx::{library_in, library_version};
use reqwest::{Client, Url};
use zip::ZipArchive;

use super::index::{self, IndexFile, IndexPage};
use crate::console;
use crate::env::Env;
use crate::failure::{Failure, cannot};
use crate::fetch::client;
use crate::flags::onnx::InstallFlags;
use crate::onnx_library;
use crate::run::runtime;
use crate::url_rule::UrlRule;

/// A wheel is not larger than this.
const WHEEL_BYTES_MAX: u64 = 1 << 30;

/// Fetches the library, unless the wanted one is there.
pub fn install(flags: &InstallFlags, env: &Env) -> Result<u8, Failure> {
    if onnx_library::IS_STATIC {
        let reason = "the static build cannot load ONNX Runtime";
        return Err(Failure::failed(reason).hint("use the wheel or the container image"));
    }
    let directory = flags.to.clone().or_else(|| onnx_library::cache(env));
    let directory = directory.ok_or_else(|| {
        Failure::usage("there is no home directory to install to").hint("name one with --to DIR")
    })?;
    runtime("install ONNX Runtime")?.block_on(fetched(flags, &directory, env))
}

async fn fetched(flags: &InstallFlags, directory: &Path, env: &Env) -> Result<u8, Failure> {
    let failed = |reason: String| Failure::failed(format!("cannot install ONNX Runtime: {reason}"));
    let page = index::page(&index::base(env), "onnxruntime").map_err(failed)?;
    let client = client::make(Arc::new(UrlRule::named([page.as_str()])));
    let client = client.map_err(|error| failed(error.to_string()))?;
    let listing =
        get(&client, page.clone(), "application/vnd.pypi.simple.v1+json, text/html;q=0.1").await;
    let listing = IndexPage::read(&listing.map_err(failed)?)
        .map_err(|error| failed(format!("{page} is no page of a package index: {error}")))?;
    let machine = std::env::consts::ARCH;
    let wheel = listing.wheel(machine, flags.version.as_deref());
    let wheel =
        wheel.ok_or_else(|| failed(format!("{page} has no such wheel for Linux on {machine}")))?;
    let version = index::version_of(&wheel.filename).unwrap_or_default();
    let there = library_in(directory)
        .filter(|library| library_version(library).as_deref() == Some(version));
    if let Some(library) = there {
        console::out(format!("ONNX Runtime {version} is there: {}", library.display()));
        return Ok(0);
    }
    console::err(format!("fetching {}", wheel.filename));
    let url = page.join(&wheel.url).map_err(|error| failed(error.to_string()))?;
    let bytes = get(&client, url, "*/*").await.map_err(failed)?;
    checked(wheel, &bytes).map_err(failed)?;
    let library = unpacked(&bytes, directory)?;
    console::out(format!("ONNX Runtime {version} is installed: {}", library.display()));
    Ok(0)
}

async fn get(client: &Client, url: Url, accept: &str) -> Result<Vec<u8>, String> {
    let shown = url.to_string();
    let said =
        |error: reqwest::Error| format!("{shown}: {}", client::error_chain(&error.without_url()));
    let response = client.get(url).header("accept", accept).send().await.map_err(said)?;
    let mut response = response.error_for_status().map_err(said)?;
    let total = response.content_length();
    let (mut bytes, mut shown_at) = (Vec::new(), 0);
    while let Some(piece) = response.chunk().await.map_err(said)? {
        bytes.extend_from_slice(&piece);
        if bytes.len() as u64 > WHEEL_BYTES_MAX {
            return Err(format!("{shown} is larger than {WHEEL_BYTES_MAX} bytes"));
        }
        let megabytes = bytes.len() >> 20;
        if megabytes >= shown_at + 5 {
            shown_at = megabytes;
            let of = total.map(|total| format!(" of {}", total >> 20)).unwrap_or_default();
            console::err(format!("{megabytes}{of} MiB"));
        }
    }
    Ok(bytes)
}

/// Whether the bytes have the sum that the index states.
fn checked(wheel: &IndexFile, bytes: &[u8]) -> Result<(), String> {
    let stated = wheel.hashes.get("sha256").ok_or("the index states no sha256 for the wheel")?;
    let sum = Sha256::of(bytes).to_string();
    if sum.eq_ignore_ascii_case(stated) {
        Ok(())
    } else {
        Err(format!("{} has the sha256 {sum}, but the index states {stated}", wheel.filename))
    }
}

/// Writes the library into the directory, whole or not at all.
fn unpacked(wheel: &[u8], directory: &Path) -> Result<PathBuf, Failure> {
    let what = "unpack ONNX Runtime";
    let mut archive = ZipArchive::new(Cursor::new(wheel)).map_err(cannot(what))?;
    let is_library = |name: &String| {
        let name = name.strip_prefix("onnxruntime/capi/");
        name.is_some_and(|name| name.starts_with("libonnxruntime.so"))
    };
    let names = archive.file_names().flatten().map(std::borrow::Cow::into_owned);
    let name = names.into_iter().find(is_library);
    let name = name.ok_or_else(|| Failure::failed("the wheel has no libonnxruntime.so"))?;
    let mut content = Vec::new();
    archive
        .by_name(&name)
        .map_err(cannot(what))?
        .read_to_end(&mut content)
        .map_err(cannot(what))?;
    std::fs::create_dir_all(directory).map_err(cannot(what))?;
    let file = Path::new(&name).file_name().map(|name| directory.join(name));
    let file = file.ok_or_else(|| Failure::failed("the wheel has no libonnxruntime.so"))?;
    let mut partial = tempfile::NamedTempFile::new_in(directory).map_err(cannot(what))?;
    std::io::Write::write_all(&mut partial, &content).map_err(cannot(what))?;
    // Servers of other users may load it; a temporary file is its owner's alone.
    partial.as_file().set_permissions(Permissions::from_mode(0o644)).map_err(cannot(what))?;
    partial.persist(&file).map_err(cannot(what))?;
    Ok(file)
}
