//! Notes in the audit log who changed the server, and who was denied. REST and gRPC call it where they answer,
//! whatever the operation is; no endpoint knows of it. Who follows files and folders tells what those changed.
//!
//! What an operation changed is found by comparing the server before and after it. Nothing of a request is noted
//! but who sent it and which model it names, so that no key can slip in.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use jitney_engine::Model;
use jitney_net::connection::Peer;
use jitney_settings::model::{MAX_WORKERS, WORKERS};
use jitney_settings::{SettingSource, to_record};
use jitney_telemetry::{AuditLog, AuditOutcome, AuditRecord};
use serde_json::{Map, Value, json};

use crate::auth::{Gate, GuardedOperation};
use crate::changes::{Changeable, ChangeableEntry};
use crate::keys::Caller;
use crate::route::PathNames;
use crate::state::ServerState;

/// A model and perhaps its version, as a message of gRPC names them.
pub(crate) type NamedModel = OnceLock<(String, Option<String>)>;

/// Who attempts something, and what it takes.
pub(crate) struct AuditedCaller<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) request_id: &'a str,
    /// Who holds a key, which may not suffice.
    pub(crate) caller: &'a Caller,
    /// What has to be opened.
    pub(crate) gate: Gate,
}

/// An attempt that is under way. It is noted when it ends, also when its caller goes away before.
pub(crate) struct AuditedAttempt<'a> {
    state: &'a ServerState,
    operation: GuardedOperation,
    by: AuditedCaller<'a>,
    /// What its path names.
    names: PathNames<'a>,
    /// What its message names.
    pub(crate) named: Arc<NamedModel>,
    /// What can change; nothing for an operation that changes nothing.
    pub(crate) before: Option<Changeable>,
    /// HTTP's status or gRPC's code, and how it ended.
    pub(crate) ended: Option<(u16, AuditOutcome)>,
}

impl<'a> AuditedAttempt<'a> {
    /// One that begins; on the heap, since few requests have one.
    #[cold]
    pub(crate) fn begin(
        state: &'a ServerState,
        operation: GuardedOperation,
        by: AuditedCaller<'a>,
        names: PathNames<'a>,
    ) -> Box<Self> {
        let before = operation.changes().then(|| changeable(state));
        Box::new(Self { state, operation, by, names, named: Arc::default(), before, ended: None })
    }

    /// The name of the key, or of the token that lets its bearers in.
    fn who(&self, denied: bool) -> Option<&str> {
        let AuditedCaller { caller, gate, .. } = &self.by;
        let token = || gate.key_name().filter(|_| !denied && self.state.parts.tokens.is_some());
        caller.name().or_else(token)
    }

    /// Notes how it ended. Of a flood of denied ones most are only counted.
    fn note(&self, log: &AuditLog) {
        let (status, outcome) = self.ended.unwrap_or((0, AuditOutcome::Abandoned));
        let denied = outcome == AuditOutcome::Denied;
        let AuditedCaller { peer, request_id, gate, .. } = self.by;
        let manages = matches!(gate, Gate::Management | Gate::Renewal);
        let passed = if denied { log.pass_denied(manages) } else { Some(0) };
        let Some(suppressed) = passed.filter(|_| denied || self.before.is_some()) else { return };
        let (model, version) = match self.named.get() {
            Some((model, version)) => (Some(model.as_str()), version.as_deref()),
            None => (self.names.model, self.names.version),
        };
        let changed = self.before.as_ref().map(|it| it.changed(&changeable(self.state), model));
        let (before, after) = changed.unwrap_or_default();
        // Whoever registers a model may leave its name to the archive.
        let made = after.keys().next().cloned();
        let made = made.as_deref().and_then(|name| name.rsplit_once('/'));
        let operation = serde_json::to_value(self.operation).unwrap_or_default();
        log.write(&AuditRecord {
            time: SystemTime::now(),
            operation: operation.as_str().unwrap_or_default(),
            outcome,
            who: self.who(denied),
            certificate: peer.subject.get().map(String::as_str),
            address: peer.address.trim_start_matches('/'),
            model: model.or(made.map(|(model, _)| model)),
            version: version.or(made.map(|(_, version)| version)),
            workflow: self.names.workflow,
            status,
            request_id,
            suppressed,
            before,
            after,
        });
    }
}

impl Drop for AuditedAttempt<'_> {
    fn drop(&mut self) {
        if let Some(log) = &self.state.parts.audit {
            self.note(log);
        }
    }
}

/// A file or a folder that is followed: it changes the server, and no request does.
#[derive(Clone)]
pub struct FollowedFiles {
    pub(crate) state: Arc<ServerState>,
    /// The setting that names it.
    pub(crate) setting: &'static str,
    /// Where it is.
    pub(crate) location: Arc<str>,
}

impl FollowedFiles {
    /// What the server is before something changes; nothing where no log is kept.
    pub fn look(&self) -> Option<Changeable> {
        self.state.parts.audit.as_ref().map(|_| changeable(&self.state))
    }

    /// Notes what has changed since then, of this model where one is named; a look at what stays is no line.
    pub fn note(&self, before: Option<Changeable>, model: Option<&str>) {
        let (Some(log), Some(before)) = (&self.state.parts.audit, before) else { return };
        let changes = before.changed(&changeable(&self.state), model);
        if !changes.0.is_empty() {
            log.write_followed(self.setting, &self.location, AuditOutcome::Done, changes);
        }
    }
}

/// The operation of a line about a version that the server itself sent back.
const TRAFFIC_RETURN: &str = "traffic_return";

/// How often a version was sent back, and its share, by its name. One that is registered again counts anew.
type ReturnCounts = HashMap<String, (usize, u64, Option<u32>)>;

/// Notes versions whose share the server itself takes away, with the sentence that says why.
pub(crate) async fn note_returns(state: Arc<ServerState>) {
    let Some(log) = &state.parts.audit else { return };
    let mut changes = state.engine.changes().subscribe();
    let mut known = ReturnCounts::new();
    loop {
        let mut now = ReturnCounts::new();
        for (model, _) in state.engine.listed_versions() {
            let name = format!("{}/{}", model.name(), model.version());
            let (identity, returns) = (Arc::as_ptr(&model).addr(), model.returns());
            let before = known.get(&name).filter(|(other, ..)| *other == identity);
            let (_, returns_before, share) = before.copied().unwrap_or_default();
            if returns > returns_before {
                let why = model.why_returned().map(|why| why.to_string());
                let one = |fields| Map::from_iter([(name.clone(), fields)]);
                let before = one(json!({ "share": share_shown(share) }));
                let after = one(json!({ "share": share_shown(model.share()), "returned": why }));
                log.write_followed(TRAFFIC_RETURN, "", AuditOutcome::Done, (before, after));
            }
            now.insert(name, (identity, returns, model.share()));
        }
        known = now;
        // It is told of no more changes when the engine ends.
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn share_shown(millionths: Option<u32>) -> Option<f64> {
    millionths.map(|it| f64::from(it) / 1e6)
}

/// What operations can change, as it is now.
fn changeable(state: &ServerState) -> Changeable {
    let versions = state.engine.listed_versions().into_iter().map(|(model, is_default)| {
        let (identity, fields) = (Arc::as_ptr(&model).addr(), version(&model, is_default));
        let name = format!("{}/{}", model.name(), model.version());
        (name, ChangeableEntry { identity, fields })
    });
    let workflows = state.engine.workflows().all();
    let workflows =
        workflows.iter().map(|it| (format!("workflow {}", it.name()), ChangeableEntry::default()));
    let level = state.parts.log_book.iter().map(|book| {
        let level = ("level".to_owned(), Value::String(book.level()));
        let fields = Map::from_iter([level]);
        ("log".to_owned(), ChangeableEntry { identity: 0, fields })
    });
    versions.chain(workflows).chain(level).collect()
}

/// A version with the settings that snapshots keep.
fn version(model: &Model, is_default: bool) -> Map<String, Value> {
    let (min, max) = model.worker_target();
    let mut values = model.settings().values.clone();
    values.set(&WORKERS, min, SettingSource::Live);
    values.set(&MAX_WORKERS, max, SettingSource::Live);
    let mut fields = to_record(&values);
    fields.insert("defaultVersion".to_owned(), is_default.into());
    fields.extend(share_shown(model.share()).map(|it| ("share".to_owned(), it.into())));
    fields
}
