//! TorchServe's three tokens, checked before a request's body is read.
//!
//! The inference key opens predictions and health, the management key opens models and workers, and
//! the API key, which never expires, renews the other two. All protocols use them.
//! The cli saves the keys, behind [`KeyStore`]; no key is ever logged. Which key an endpoint needs stands in
//! its row. Where one listener offers both APIs each key opens the endpoints of its own API; TorchServe asks
//! for both there, which no request can bring.

mod browser;
mod key;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use serde::Serialize;

pub(crate) use self::browser::BrowserRule;
pub use self::key::KeyStrength;
pub(crate) use self::key::bearer;
use self::key::{AuthKey, AuthKeys, KeyExpiry};
use crate::errors::{ErrorCode, Problem};
use crate::route::Apis;

/// Which key an endpoint needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Anyone may pass.
    Open,
    /// The inference key opens it.
    Inference,
    /// The management key opens it.
    Management,
    /// Either of the two opens it.
    Either,
    /// Only the API key opens it.
    Renewal,
    /// Anyone may pass where keys have no names; else the scope `metrics` opens it.
    Metrics,
}

impl Gate {
    /// The gate of what belongs to no API: unknown paths, and over gRPC health and reflection.
    pub(crate) fn of_listener(apis: Apis) -> Self {
        match (apis.inference, apis.management) {
            (true, true) => Self::Either,
            (true, false) => Self::Inference,
            (false, true) => Self::Management,
            (false, false) => Self::Open,
        }
    }

    /// The name of the key that opens it, where only one does.
    pub(crate) fn key_name(self) -> Option<&'static str> {
        match self {
            Self::Inference => Some("inference"),
            Self::Management => Some("management"),
            Self::Renewal => Some("API"),
            Self::Open | Self::Either | Self::Metrics => None,
        }
    }

    /// The error for a request that does not pass, in TorchServe's words.
    pub(crate) fn closed(self) -> Problem {
        let what = if self == Self::Renewal { "Authentication" } else { "Authorization" };
        let why = "Token either incorrect, expired, or not provided correctly";
        Problem::new(ErrorCode::InvalidKey, format!("Token {what} failed. {why}"))
    }
}

/// What can be done with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GuardedOperation {
    /// A prediction.
    Predict,
    /// An explanation.
    Explain,
    /// A request through a workflow.
    RunWorkflow,
    /// A connection of Python calls; each of them is a prediction then.
    Connect,
    /// The server's health and readiness.
    Health,
    /// A model's readiness.
    Ready,
    /// What the server or a model is.
    Metadata,
    /// All models.
    List,
    /// A new model.
    Register,
    /// A model's settings, workers, batching and statistics.
    Describe,
    /// Other workers or settings of a model.
    Scale,
    /// Another default version.
    SetDefault,
    /// The end of a model or version.
    Unregister,
    /// All workflows.
    ListWorkflows,
    /// A new workflow.
    RegisterWorkflow,
    /// What a workflow is made of.
    DescribeWorkflow,
    /// The end of a workflow.
    UnregisterWorkflow,
    /// A new key in place of an old one.
    RenewToken,
    /// Memory that clients share with the server: what is registered, more of it, less of it.
    ShareMemory,
    /// Jobs of one's own: which there are, how far they are, their results, their ends.
    Job,
    /// The lines of the log, and what is logged.
    ReadLog,
    /// Something else is to be logged.
    SetLogLevel,
    /// A path that a plugin answers.
    Endpoint,
    /// The descriptions of gRPC's services.
    Reflect,
    /// Nothing that the server knows.
    Unknown,
    /// Reading what everybody may read: plugins are not asked.
    Public,
}

impl GuardedOperation {
    /// Whether it changes the server.
    pub(crate) fn changes(self) -> bool {
        matches!(
            self,
            Self::Register
                | Self::Scale
                | Self::SetDefault
                | Self::Unregister
                | Self::RegisterWorkflow
                | Self::UnregisterWorkflow
                | Self::RenewToken
                | Self::SetLogLevel
        )
    }

    /// Whether it runs a model, for which shares may choose the version.
    pub(crate) fn predicts(self) -> bool {
        matches!(self, Self::Predict | Self::Explain)
    }

    /// Whether it asks for health or readiness, which may need no key.
    pub(crate) fn tells_health(self) -> bool {
        matches!(self, Self::Health | Self::Ready)
    }
}

/// Where the keys are written down for those who may read them.
pub trait KeyStore: Send + Sync {
    /// Replaces what is written there.
    ///
    /// # Errors
    /// The keys could not be saved; those that were saved last stay in force.
    fn save(&self, text: &str) -> io::Result<()>;
}

/// Tells the time; tests bring their own.
pub struct TokenClock {
    /// The time of day, for whoever reads when a key ends.
    pub wall: Box<dyn Fn() -> SystemTime + Send + Sync>,
    /// The time since a moment in the past, which nobody can set. It decides.
    pub steady: Box<dyn Fn() -> Duration + Send + Sync>,
}

impl TokenClock {
    fn after(&self, lifetime: Duration) -> KeyExpiry {
        KeyExpiry { wall: (self.wall)() + lifetime, steady: (self.steady)() + lifetime }
    }
}

/// A key that can be renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Opens predictions and health.
    Inference,
    /// Opens models and workers.
    Management,
}

/// The keys in force. Readers never wait; renewals come one after the other.
pub struct Tokens {
    keys: ArcSwap<AuthKeys>,
    strength: KeyStrength,
    lifetime: Duration,
    clock: TokenClock,
    /// None for keys that an operator gives: they are never replaced here.
    store: Option<Mutex<Box<dyn KeyStore>>>,
}

impl Tokens {
    /// Random keys, to be replaced by [`Tokens::issue`], which saves them.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn new(
        strength: KeyStrength,
        lifetime: Duration,
        store: Box<dyn KeyStore>,
        clock: TokenClock,
    ) -> io::Result<Self> {
        let keys = ArcSwap::from_pointee(AuthKeys::fresh(strength, clock.after(lifetime))?);
        Ok(Self { keys, strength, lifetime, clock, store: Some(Mutex::new(store)) })
    }

    /// Keys that an operator gives, for example the same to several servers.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn given(text: &str, clock: TokenClock) -> Result<Self, String> {
        let strength = KeyStrength::Strong;
        let keys = ArcSwap::from_pointee(AuthKeys::given(text, strength)?);
        Ok(Self { keys, strength, lifetime: Duration::ZERO, clock, store: None })
    }

    /// Puts other keys in force that the operator gives.
    ///
    /// # Errors
    /// What is wrong with the text; the keys before it stay in force.
    pub fn give(&self, text: &str) -> Result<(), String> {
        self.keys.store(Arc::new(AuthKeys::given(text, self.strength)?));
        Ok(())
    }

    /// Replaces every key and writes them down; the server calls it once, when it opens.
    ///
    /// # Errors
    /// The system gives no randomness, or the keys cannot be written down.
    pub fn issue(&self) -> io::Result<()> {
        if self.store.is_none() {
            return Ok(());
        }
        self.replace(|_, expires| AuthKeys::fresh(self.strength, expires))
    }

    /// Replaces one key and writes all of them down.
    ///
    /// # Errors
    /// The system gives no randomness, or the keys cannot be written down.
    pub fn renew(&self, role: Role) -> io::Result<()> {
        self.replace(|keys, expires| {
            let key = AuthKey::fresh(self.strength, Some(expires))?;
            Ok(match role {
                Role::Inference => AuthKeys { inference: key, ..keys.clone() },
                Role::Management => AuthKeys { management: key, ..keys.clone() },
            })
        })
    }

    /// What was not written down never comes into force.
    fn replace(
        &self,
        next: impl Fn(&AuthKeys, KeyExpiry) -> io::Result<AuthKeys>,
    ) -> io::Result<()> {
        let given = || io::Error::other("the keys are given by the operator's file");
        let store = self.store.as_ref().ok_or_else(given)?;
        let store = store.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = next(&self.keys.load(), self.clock.after(self.lifetime))?;
        store.save(&keys.text())?;
        self.keys.store(Arc::new(keys));
        Ok(())
    }

    /// Lets a request through a gate, given the value of its `authorization` header or metadata.
    ///
    /// # Errors
    /// The token is missing, malformed, expired, or opens another gate.
    pub fn admit(&self, gate: Gate, authorization: Option<&[u8]>) -> Result<(), Problem> {
        if matches!(gate, Gate::Open | Gate::Metrics)
            || authorization.and_then(bearer).is_some_and(|t| self.opens(gate, t))
        {
            return Ok(());
        }
        Err(gate.closed())
    }

    fn opens(&self, gate: Gate, token: &[u8]) -> bool {
        let (keys, now) = (self.keys.load(), (self.clock.steady)());
        match gate {
            Gate::Open | Gate::Metrics => true,
            Gate::Inference => keys.inference.is(token, now),
            Gate::Management => keys.management.is(token, now),
            // Both are looked at, so that the time taken does not tell which one was close.
            Gate::Either => keys.inference.is(token, now) | keys.management.is(token, now),
            Gate::Renewal => keys.api.is(token, now),
        }
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("lifetime", &self.lifetime).finish_non_exhaustive()
    }
}
