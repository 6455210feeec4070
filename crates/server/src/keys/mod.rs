//! Keys with names: who may do what, for which tenant, how much and until when.
//!
//! The operator writes them into `keys.yaml`, which holds the SHA-256 of each key and never the key itself; the
//! cli reads the file, and reads it again when it changes. A request names its key in its `Authorization` header. Nothing
//! here logs a header or what the file says.

mod caller;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod list;
mod named_key;
mod scope;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use jitney_engine::admission::AdmissionLimits;
use jitney_engine::store::Sha256;
use jitney_net::Networks;
use jitney_net::connection::Peer;
use tokio::time::Instant;

pub(crate) use self::caller::Caller;
use self::caller::CallerMemo;
pub use self::list::{KEY_BYTES, KeyRow, fresh_key, read};
use self::named_key::{KeyTerms, NamedKey};
pub use self::scope::{Right, Scope};
use crate::auth::bearer;
use crate::changes::{Changeable, FieldChanges};

/// The keys in force. Readers never wait.
pub struct NamedKeys {
    list: ArcSwap<KeyList>,
    /// What one of several keys may take of the server is a share of this.
    limits: AdmissionLimits,
    /// Whose claims about tenants count.
    proxies: Networks,
}

/// Every key by its sum.
type KeyList = HashMap<Sha256, Arc<NamedKey>>;

impl NamedKeys {
    /// The keys of a file's text, for a server with these limits behind these proxies.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn new(text: &str, limits: AdmissionLimits, proxies: Networks) -> Result<Self, String> {
        let keys = Self { list: ArcSwap::default(), limits, proxies };
        keys.give(text)?;
        Ok(keys)
    }

    /// Puts the keys of another text in force, and says what changed. One whose limits stay keeps what it has used of
    /// them.
    ///
    /// # Errors
    /// What is wrong with the text; the keys before it stay in force.
    pub fn give(&self, text: &str) -> Result<FieldChanges, String> {
        let (rows, now, wall) = (read(text)?, Instant::now(), SystemTime::now());
        let was = self.changeable();
        let (before, share) = (self.list.load(), (rows.len() > 1).then_some(&self.limits));
        let mut list = KeyList::new();
        for row in rows {
            let (sum, key) =
                (row.sha256, before.get(&row.sha256).map(Arc::clone).unwrap_or_default());
            key.set(Some(KeyTerms::new(row, share, key.quota(), now, wall)));
            list.insert(sum, key);
        }
        let gone = before.iter().filter(|(sum, _)| !list.contains_key(*sum));
        gone.for_each(|(_, key)| key.set(None));
        self.list.store(Arc::new(list));
        Ok(was.changed(&self.changeable(), None))
    }

    /// What the file says of its keys, without the keys.
    fn changeable(&self) -> Changeable {
        self.list.load().values().filter_map(|key| key.changeable()).collect()
    }

    /// Who sends a request with these headers. The key of a connection is looked up once for all requests that bring
    /// it.
    pub(crate) fn caller(&self, peer: &Peer, headers: &HeaderMap, now: Instant) -> Caller {
        let memo = peer.memo.get_or_init(|| Box::new(CallerMemo::default()));
        let header = headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
        let find = || match header {
            Some(header) => self.find(&Sha256::of(bearer(header)?)),
            None => self.of_subject(peer.subject.get()?),
        };
        let memo = memo.downcast_ref::<CallerMemo>();
        let caller = memo.and_then(|memo| memo.caller(header.unwrap_or_default(), now, find));
        let caller = caller.unwrap_or(Caller::STRANGER);
        if self.is_proxy(&peer.address) { caller.through_proxy() } else { caller }
    }

    /// Whether a connection from here is one of a trusted proxy; the address is as the access log writes it.
    fn is_proxy(&self, address: &str) -> bool {
        let from = || address.trim_start_matches('/').parse::<SocketAddr>();
        !self.proxies.is_empty() && from().is_ok_and(|from| self.proxies.contain(from.ip()))
    }

    /// The holder of the key with this name, if it is in force; whoever needs none, without one.
    pub(crate) fn holder(&self, name: Option<&str>, now: Instant) -> Option<Caller> {
        let Some(name) = name else { return Some(Caller::STRANGER) };
        let list = self.list.load();
        let mut keys = list.values();
        let named = keys.find(|key| key.terms(now).is_some_and(|terms| *terms.name == *name))?;
        Caller::of_key(named, now)
    }

    fn find(&self, sum: &Sha256) -> Option<Arc<NamedKey>> {
        self.list.load().get(sum).map(Arc::clone)
    }

    /// The key of whoever proves with a certificate to be this subject.
    fn of_subject(&self, subject: &str) -> Option<Arc<NamedKey>> {
        let (list, now) = (self.list.load(), Instant::now());
        let mut keys = list.values();
        keys.find(|key| key.terms(now).is_some_and(|terms| terms.is_subject(subject)))
            .map(Arc::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(rows: &[(&str, &str, &str)]) -> String {
        let row = |(name, key, more): &(&str, &str, &str)| {
            format!(
                "- {{name: {name}, sha256: {}, scopes: [predict]{more}}}\n",
                Sha256::of(key.as_bytes())
            )
        };
        rows.iter().map(row).collect()
    }

    fn keys(text: &str, limits: AdmissionLimits) -> NamedKeys {
        NamedKeys::new(text, limits, Networks::default()).unwrap()
    }

    fn found(keys: &NamedKeys, key: &str) -> Option<Arc<KeyTerms>> {
        keys.find(&Sha256::of(key.as_bytes()))?.terms(Instant::now())
    }

    #[test]
    fn other_keys_come_into_force_and_a_wrong_text_changes_nothing() {
        let limits = AdmissionLimits::default();
        let keys = keys(&text(&[("a", "one", ""), ("b", "two", "")]), limits);
        assert!(found(&keys, "one").is_some() && found(&keys, "three").is_none());
        assert!(keys.give("- {name: a}").is_err());
        assert!(found(&keys, "one").is_some());
        keys.give(&text(&[("a", "three", "")])).unwrap();
        assert!(found(&keys, "one").is_none() && found(&keys, "three").is_some());
        keys.give("# nobody\n").unwrap();
        assert!(found(&keys, "three").is_none());
    }

    #[test]
    fn what_a_key_has_used_is_kept_while_its_limits_stay() {
        let both = |rate| [("a", "one", rate), ("b", "two", "")];
        let keys = keys(&text(&both(", rate: 1, burst: 2")), AdmissionLimits::default());
        let take = || found(&keys, "one").unwrap().quota.admit(Instant::now(), 1, 1).map(drop);
        assert_eq!((take(), take(), take().is_err()), (Ok(()), Ok(()), true));
        keys.give(&text(&both(", rate: 1, burst: 2, tenant: gold"))).unwrap();
        assert!(take().is_err(), "another tenant");
        keys.give(&text(&both(", rate: 1, burst: 3"))).unwrap();
        assert!(take().is_ok(), "another limit");
    }

    #[test]
    fn one_of_several_keys_has_a_share_of_the_server_and_a_single_one_all() {
        let limits =
            AdmissionLimits { requests: 8, request_items: 5, share: 0.25, ..Default::default() };
        let keys = keys(&text(&[("a", "one", "")]), limits);
        let quota = |key| *found(&keys, key).unwrap().quota.limits();
        assert_eq!((quota("one").requests, quota("one").items), (u64::MAX, u64::MAX));
        keys.give(&text(&[("a", "one", ""), ("b", "two", ", concurrency: 1")])).unwrap();
        assert_eq!((quota("one").requests, quota("one").items), (2, 5));
        assert_eq!((quota("two").requests, quota("two").items), (1, 5));
    }

    #[test]
    fn a_subject_finds_its_key() {
        let rows = text(&[("a", "one", ", subjects: ['CN=a,O=x', CN=b]"), ("b", "two", "")]);
        let keys = keys(&rows, AdmissionLimits::default());
        let terms = |subject| keys.of_subject(subject)?.terms(Instant::now());
        let name = |subject| terms(subject).map(|terms| terms.name.to_string());
        assert_eq!([name("CN=b"), name("CN=a,O=x")], [Some("a".to_owned()), Some("a".to_owned())]);
        assert_eq!((name("CN=a"), name("")), (None, None));
    }
}
