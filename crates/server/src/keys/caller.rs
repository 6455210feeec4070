//! Who calls: the holder of a key, or anybody.

use std::sync::{Arc, Mutex, PoisonError};

use http::header::{AUTHORIZATION, HeaderName};
use jitney_engine::call::Claim;
use jitney_engine::quota::Quota;
use jitney_jobs::JobOwner;
use tokio::time::Instant;

use super::named_key::{KeyTerms, NamedKey};
use crate::auth::{Gate, GuardedOperation};
use crate::errors::Problem;
use crate::request_options::TENANT_NAME;

/// Who sent a request.
#[derive(Clone)]
pub(crate) struct Caller {
    /// The key, whose terms may change while its holder is connected.
    key: Option<Arc<NamedKey>>,
    /// Its terms when they were looked at last; none for anybody, and for who was locked out since.
    terms: Option<Arc<KeyTerms>>,
    /// The tenant that the operator's plugin named.
    named: Option<Arc<str>>,
    /// Whether the tenant that a request claims counts.
    believed: bool,
}

impl Caller {
    /// Somebody without a name, whose claims count: where keys have no names, and for parts of the server.
    pub(crate) const ANYBODY: Self = Self { key: None, terms: None, named: None, believed: true };

    /// Somebody without a key that is known.
    pub(super) const STRANGER: Self = Self { believed: false, ..Self::ANYBODY };

    /// The holder of a key, if it is in force.
    pub(super) fn of_key(key: &Arc<NamedKey>, now: Instant) -> Option<Self> {
        let terms = Some(key.terms(now)?);
        Some(Self { key: Some(Arc::clone(key)), terms, ..Self::STRANGER })
    }

    /// The same; the tenants that a proxy claims count.
    pub(super) fn through_proxy(self) -> Self {
        Self { believed: true, ..self }
    }

    /// The same, for a tenant that the operator's plugin names, whatever else is claimed.
    pub(crate) fn of_tenant(&self, tenant: &str) -> Self {
        Self { named: Some(tenant.into()), believed: false, ..self.clone() }
    }

    /// Whether nobody has revoked its key, and that has not expired.
    pub(crate) fn is_in_force(&self) -> bool {
        self.key.as_ref().is_none_or(|key| key.terms(Instant::now()).is_some())
    }

    /// The name of the key.
    pub(crate) fn name(&self) -> Option<&str> {
        self.terms.as_ref().map(|terms| &*terms.name)
    }

    /// Whose jobs it makes and sees.
    pub(crate) fn job_owner(&self) -> JobOwner {
        let tenant = self.named.as_ref().map(|tenant| tenant.to_string());
        JobOwner { key: self.name().map(str::to_owned), tenant }
    }

    /// What the holder may ask for.
    pub(crate) fn quota(&self) -> Option<&Arc<Quota>> {
        self.terms.as_ref().map(|terms| &terms.quota)
    }

    /// Writes down who pays for a request, whatever it claims unless that counts.
    pub(crate) fn settle(&self, claim: &mut Claim) {
        if !self.believed || claim.tenant.is_none() {
            let own = self.terms.as_ref().and_then(|terms| terms.tenant.as_ref());
            claim.tenant = self.named.as_ref().or(own).map(Arc::clone);
        }
    }

    /// Whether a model sees the headers of a request as they came.
    pub(crate) fn shows_all(&self) -> bool {
        self.terms.is_none() && self.believed
    }

    /// Whether a model does not see this header: a key is no affair of its, and who pays is told once more.
    pub(crate) fn hides(&self, header: &HeaderName) -> bool {
        header.as_str() == TENANT_NAME || self.terms.is_some() && *header == AUTHORIZATION
    }

    /// Checks what the holder of a key is about to do, by the key's terms when the request began.
    ///
    /// # Errors
    /// No scope allows it. Without a key there is nothing to check here.
    pub(crate) fn check(
        &self,
        gate: Gate,
        operation: GuardedOperation,
        model: Option<&str>,
    ) -> Result<(), Problem> {
        let Some(terms) = &self.terms else { return Ok(()) };
        terms.check(gate, operation, model)
    }

    /// The same for one of many requests of a connection or a stream, by the key's terms as they are now.
    ///
    /// # Errors
    /// No scope allows it, or the key is in force no more.
    pub(crate) fn check_again(
        &mut self,
        gate: Gate,
        operation: GuardedOperation,
        model: Option<&str>,
    ) -> Result<(), Problem> {
        let Some(key) = &self.key else { return Ok(()) };
        self.terms = key.terms(Instant::now());
        if self.terms.is_none() {
            return Err(Problem::unknown_key());
        }
        self.check(gate, operation, model)
    }
}

/// What a connection remembers: whose key its last request brought.
#[derive(Default)]
pub(super) struct CallerMemo(Mutex<Option<RememberedKey>>);

/// A header, and the key in it.
struct RememberedKey {
    header: Box<[u8]>,
    key: Arc<NamedKey>,
}

/// The longest header that is remembered.
const REMEMBERED_MAX: usize = 512;

impl CallerMemo {
    /// Who brings this header: as it is remembered, if the key is still in force, or else as it is found.
    pub(super) fn caller(
        &self,
        header: &[u8],
        now: Instant,
        find: impl FnOnce() -> Option<Arc<NamedKey>>,
    ) -> Option<Caller> {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = remembered.as_ref().filter(|last| *last.header == *header);
        if let Some(caller) = known.and_then(|last| Caller::of_key(&last.key, now)) {
            return Some(caller);
        }
        let found = find()?;
        if header.len() <= REMEMBERED_MAX {
            *remembered = Some(RememberedKey { header: header.into(), key: Arc::clone(&found) });
        }
        Caller::of_key(&found, now)
    }
}
