//! `jitney archive` and `jitney archive-workflow`: what TorchServe's archivers make, from the same
//! command lines. The work is in three steps, each in a file of its own: gather the [`members`],
//! describe them in a [`manifest`], write the [`output`]. Nothing is left behind when a step fails.

mod handler;
mod manifest;
mod members;
mod output;
mod pack;
mod pattern;

use std::path::Path;
use std::time::SystemTime;

use regex::Regex;

use crate::console;
use crate::failure::Failure;
use crate::flags::archive::{ArchiveFlags, ArchiveFormat, ArchiveWorkflowFlags};
use handler::Handler;
use manifest::Files;
use members::Members;
use output::{Output, Place};

/// What a name may be made of.
const NAME: &str = r"^[A-Za-z0-9][A-Za-z0-9_\-.]*$";

/// Writes a model's archive and returns the exit code.
pub fn model(flags: &ArchiveFlags) -> u8 {
    conclude(archive_model(flags, SystemTime::now()))
}

/// Writes a workflow's archive and returns the exit code.
pub fn workflow(flags: &ArchiveWorkflowFlags) -> u8 {
    conclude(archive_workflow(flags, SystemTime::now()))
}

fn conclude(written: Result<String, Failure>) -> u8 {
    match written {
        Ok(sentence) => {
            console::err(sentence);
            0
        }
        Err(failure) => {
            console::err(format!("error: {failure}"));
            failure.code
        }
    }
}

fn archive_model(flags: &ArchiveFlags, now: SystemTime) -> Result<String, Failure> {
    check_name("model", &flags.model_name)?;
    let place = Place::MadeIfAbsent(&flags.export_path);
    let output = Output::new(&place, &flags.model_name, flags.archive_format.into(), flags.force)?;
    let handler = Handler::read(&flags.handler, flags.runtime);
    let mut members = Members::default();
    let files = Files {
        model: members.add(flags.model_file.as_deref(), "--model-file")?,
        serialized: members.add(flags.serialized_file.as_deref(), "--serialized-file")?,
        requirements: members.add(flags.requirements_file.as_deref(), "--requirements-file")?,
        config: members.add(flags.config_file.as_deref(), "--config-file")?,
    };
    members.add(handler.file.as_deref(), "--handler")?;
    members.add_list(flags.extra_files.as_deref().unwrap_or_default())?;
    members.set("MAR-INF/MANIFEST.json", manifest::model(flags, &handler.word, &files, now));
    finish(&output, &members)
}

fn archive_workflow(flags: &ArchiveWorkflowFlags, now: SystemTime) -> Result<String, Failure> {
    check_name("workflow", &flags.workflow_name)?;
    let place = Place::Existing(&flags.export_path);
    let output = Output::new(&place, &flags.workflow_name, output::Kind::Workflow, flags.force)?;
    let mut members = Members::default();
    let spec = members.add(Some(&flags.spec_file), "--spec-file")?;
    let handler = members.add(flags.handler.as_deref().map(Path::new), "--handler")?;
    members.add_list(flags.extra_files.as_deref().unwrap_or_default())?;
    let text = manifest::workflow(&flags.workflow_name, spec, handler, now);
    members.set("WAR-INF/MANIFEST.json", text);
    finish(&output, &members)
}

fn finish(output: &Output, members: &Members) -> Result<String, Failure> {
    members.remarks().for_each(console::err);
    output.write(members)?;
    Ok(format!("wrote {} ({} files)", output.path().display(), members.len()))
}

fn check_name(what: &str, name: &str) -> Result<(), Failure> {
    if Regex::new(NAME).is_ok_and(|rule| rule.is_match(name)) {
        return Ok(());
    }
    Err(Failure::failed(format!("{name:?} cannot be a {what} name; it must match {NAME}")))
}

impl From<ArchiveFormat> for output::Kind {
    fn from(format: ArchiveFormat) -> Self {
        match format {
            ArchiveFormat::Default => Self::Deflated,
            ArchiveFormat::ZipStore => Self::Stored,
            ArchiveFormat::Tgz => Self::Tgz,
            ArchiveFormat::NoArchive => Self::Directory,
        }
    }
}

#[cfg(test)]
mod tests;
