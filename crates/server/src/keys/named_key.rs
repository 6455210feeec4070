//! A key in force: its name, what it may do and its quota.

use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use jitney_engine::admission::AdmissionLimits;
use jitney_engine::quota::{Quota, QuotaLimits};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::list::KeyRow;
use super::scope::Scope;
use crate::auth::{Gate, GuardedOperation};
use crate::changes::ChangeableEntry;
use crate::errors::{ErrorCode, Problem};
/// Digits of a key's sum in the audit log.
const SUM_DIGITS: usize = 12;

/// A key. It is the same one while the file has it, and its terms are those of the last reading: whoever holds it sees
/// at once that they have changed, or that it is revoked.
#[derive(Default)]
pub(super) struct NamedKey(ArcSwapOption<KeyTerms>);

impl NamedKey {
    /// Its terms; none once it is revoked or has expired.
    pub(super) fn terms(&self, now: Instant) -> Option<Arc<KeyTerms>> {
        self.0.load_full().filter(|terms| terms.expires.is_none_or(|expires| now < expires))
    }

    /// Puts other terms in force, or none: then it is revoked.
    pub(super) fn set(&self, terms: Option<KeyTerms>) {
        self.0.store(terms.map(Arc::new));
    }

    /// What the file says of it.
    pub(super) fn changeable(&self) -> Option<(String, ChangeableEntry)> {
        let terms = self.0.load_full()?;
        let entry = ChangeableEntry { identity: 0, fields: terms.record.clone() };
        Some((format!("key {}", terms.name), entry))
    }

    /// What it has used and may use.
    pub(super) fn quota(&self) -> Option<Arc<Quota>> {
        self.0.load().as_ref().map(|terms| Arc::clone(&terms.quota))
    }
}

/// What the file says about a key.
pub(super) struct KeyTerms {
    pub(super) name: Box<str>,
    scopes: Vec<Scope>,
    pub(super) tenant: Option<Arc<str>>,
    /// By a clock that nobody can set.
    expires: Option<Instant>,
    subjects: Vec<String>,
    pub(super) quota: Arc<Quota>,
    /// The row as the audit log shows it.
    record: Map<String, Value>,
}

impl KeyTerms {
    /// The terms of a row. One of several keys has only a `share` of the server's limits. Where they stay the same it
    /// keeps the quota that it had.
    pub(super) fn new(
        row: KeyRow,
        share: Option<&AdmissionLimits>,
        had: Option<Arc<Quota>>,
        now: Instant,
        wall: SystemTime,
    ) -> Self {
        let (limits, record) = (limits(&row, share), record(&row));
        let kept = had.filter(|quota| *quota.limits() == limits);
        let left = |expires: SystemTime| expires.duration_since(wall).unwrap_or_default();
        Self {
            name: row.name.into(),
            scopes: row.scopes,
            tenant: row.tenant.map(Into::into),
            expires: row.expires.and_then(|expires| now.checked_add(left(expires))),
            subjects: row.subjects,
            quota: kept.unwrap_or_else(|| Quota::new(limits, now)),
            record,
        }
    }

    pub(super) fn is_subject(&self, subject: &str) -> bool {
        self.subjects.iter().any(|known| known == subject)
    }

    /// Checks that it may do this.
    ///
    /// # Errors
    /// None of its scopes allows it.
    pub(super) fn check(
        &self,
        gate: Gate,
        operation: GuardedOperation,
        model: Option<&str>,
    ) -> Result<(), Problem> {
        let mut scopes = self.scopes.iter();
        if gate == Gate::Open || scopes.any(|scope| scope.allows(gate, operation, model)) {
            return Ok(());
        }
        let about = model.map(|model| format!(" with {model:?}")).unwrap_or_default();
        let message = format!(
            "The key {:?} may not do this{about}: its scopes in keys.yaml do not allow it.",
            self.name
        );
        Err(Problem::new(ErrorCode::Denied, message))
    }
}

/// What a row says but for the key: of its sum only so much that another key is told from it.
fn record(row: &KeyRow) -> Map<String, Value> {
    let expires = row.expires.map(|it| humantime::format_rfc3339_seconds(it).to_string());
    let fields = [
        ("sha256", json!(&row.sha256.to_string()[..SUM_DIGITS])),
        ("scopes", row.scopes.iter().map(Scope::to_string).collect()),
        ("tenant", json!(row.tenant)),
        ("expires", json!(expires)),
        ("rate", json!(row.rate.map(|it| it.per_second()))),
        ("burst", json!(row.rate.map(|it| it.burst()))),
        ("concurrency", json!(row.concurrency)),
        ("subjects", json!(row.subjects)),
    ];
    let said = fields.into_iter().filter(|(_, value)| !value.is_null());
    said.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn limits(row: &KeyRow, share: Option<&AdmissionLimits>) -> QuotaLimits {
    let QuotaLimits { mut requests, mut items, mut bytes, .. } = QuotaLimits::NONE;
    if let Some(limits) = share {
        let part = |of: u64| ((of as f64 * limits.share) as u64).max(1);
        (requests, items, bytes) =
            (part(limits.requests), limits.request_items, part(limits.bytes));
    }
    let requests = row.concurrency.map_or(requests, |most| most.min(requests));
    QuotaLimits { rate: row.rate, requests, items, bytes }
}
