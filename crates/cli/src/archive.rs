//! `jitney archive` and `jitney archive-workflow`: write what TorchServe's archivers write, from the same
//! command lines. Three steps: collect the [`members`], describe them in a [`manifest`], write the
//! [`output`]. Nothing is left behind when a step fails.

mod handler;
mod manifest;
mod members;
mod output;
mod pack;
mod pattern;

use std::path::Path;
use std::time::SystemTime;

use clap::ValueEnum as _;
use clap::builder::PossibleValue;
use regex::Regex;
use zip::CompressionMethod;

use crate::console;
use crate::failure::Failure;
use crate::flags::archive::{ArchiveFlags, ArchiveWorkflowFlags, PackFormat};
use crate::torchserve::VERSION;
use handler::ArchivedHandler;
use members::ArchiveMembers;
use output::{ArchiveOutput, Packing};

/// The last release of TorchServe's workflow archiver.
const WORKFLOW_VERSION: &str = "0.2.15";

/// The rule for names of models and workflows.
const NAME: &str = r"^[A-Za-z0-9][A-Za-z0-9_\-.]*$";

/// Writes a model's archive and returns the exit code.
pub fn model(flags: &ArchiveFlags) -> Result<u8, Failure> {
    archive_model(flags, SystemTime::now()).map(|()| 0)
}

/// Writes a workflow's archive and returns the exit code.
pub fn workflow(flags: &ArchiveWorkflowFlags) -> Result<u8, Failure> {
    archive_workflow(flags, SystemTime::now()).map(|()| 0)
}

fn archive_model(flags: &ArchiveFlags, now: SystemTime) -> Result<(), Failure> {
    check_name("model", &flags.model_name)?;
    let (packing, ending) = match flags.archive_format {
        PackFormat::Default => (Packing::Zip(CompressionMethod::Deflated), ".mar"),
        PackFormat::ZipStore => (Packing::Zip(CompressionMethod::Stored), ".mar"),
        PackFormat::Tgz => (Packing::Tgz, ".tar.gz"),
        PackFormat::NoArchive => (Packing::Directory, ""),
    };
    let output = ArchiveOutput::new(&flags.export_path, &flags.model_name, ending, packing);
    output.check(flags.export_path.exists(), flags.force)?;
    let handler = ArchivedHandler::parse(&flags.handler, flags.runtime)?;
    let mut members = ArchiveMembers::default();
    let model = members.add(flags.model_file.as_deref(), "--model-file")?;
    let serialized = members.add(flags.serialized_file.as_deref(), "--serialized-file")?;
    let requirements = members.add(flags.requirements_file.as_deref(), "--requirements-file")?;
    let config = members.add(flags.config_file.as_deref(), "--config-file")?;
    members.add(handler.file.as_deref(), "--handler")?;
    members.add_list(flags.extra_files.as_deref().unwrap_or_default())?;
    let fields = [
        ("modelName", Some(flags.model_name.as_str().into())),
        ("serializedFile", serialized),
        ("handler", Some(handler.name.into())),
        ("modelFile", model),
        ("modelVersion", Some(flags.version.as_str().into())),
        ("requirementsFile", requirements),
        ("configFile", config),
    ];
    let runtime = flags.runtime.to_possible_value();
    let runtime = runtime.as_ref().map(PossibleValue::get_name);
    members.set("MAR-INF/MANIFEST.json", manifest::text(now, runtime, "model", VERSION, fields));
    write(&output, &members)
}

fn archive_workflow(flags: &ArchiveWorkflowFlags, now: SystemTime) -> Result<(), Failure> {
    check_name("workflow", &flags.workflow_name)?;
    let packing = Packing::Zip(CompressionMethod::Deflated);
    let output = ArchiveOutput::new(&flags.export_path, &flags.workflow_name, ".war", packing);
    output.check(true, flags.force)?;
    let mut members = ArchiveMembers::default();
    let spec = members.add(Some(&flags.spec_file), "--spec-file")?;
    let handler = members.add(flags.handler.as_deref().map(Path::new), "--handler")?;
    members.add_list(flags.extra_files.as_deref().unwrap_or_default())?;
    let name = Some(flags.workflow_name.as_str().into());
    let fields = [("workflowName", name), ("specFile", spec), ("handler", handler)];
    members.set(
        "WAR-INF/MANIFEST.json",
        manifest::text(now, None, "workflow", WORKFLOW_VERSION, fields),
    );
    write(&output, &members)
}

fn write(output: &ArchiveOutput, members: &ArchiveMembers) -> Result<(), Failure> {
    members.warnings.iter().for_each(console::err);
    output.write(members)?;
    console::err(format!("wrote {} ({} files)", output.path.display(), members.members.len()));
    Ok(())
}

fn check_name(what: &str, name: &str) -> Result<(), Failure> {
    if Regex::new(NAME).is_ok_and(|rule| rule.is_match(name)) {
        return Ok(());
    }
    Err(Failure::failed(format!("{name:?} is not a valid {what} name; it must match {NAME}")))
}

#[cfg(test)]
mod tests;
