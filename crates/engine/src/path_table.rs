//! The paths that definitions answer beside those of their names: single ones, and everything below a mount. Apart
//! from the registry, which makes a new table with every change.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use crate::store::Api;

/// The endpoint that a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTarget {
    /// The model, in its default version.
    pub model: Box<str>,
    /// The endpoint.
    pub endpoint: Box<str>,
    /// The path, or what all paths below a mount begin with; without a slash at its end.
    pub path: Box<str>,
    /// The methods that it is for; none where the endpoint takes those of every prediction.
    pub methods: Vec<Box<str>>,
    /// Whether the endpoint gets requests as they came.
    pub raw: bool,
    /// What the server answers by itself, without a worker: `live` or `ready`, or of a task `submit`, `status`, `get`,
    /// `cancel` or `retry`.
    pub answers: Option<Box<str>>,
    /// Whether other models may have the path, too.
    pub shared: bool,
    /// Whether they do: then the body of a request says which model it is for.
    pub several: bool,
}

/// The paths of several models.
#[derive(Debug, Default)]
pub struct PathTable {
    /// Paths that each call one endpoint.
    routes: BTreeMap<Box<str>, Arc<PathTarget>>,
    /// Those that share such a path with one that came before them.
    sharers: Vec<Arc<PathTarget>>,
    /// Prefixes, the longest first.
    mounts: Vec<Arc<PathTarget>>,
}

impl PathTable {
    /// The paths of these models; of two that want the same the first has it.
    pub(crate) fn of<'a>(models: impl IntoIterator<Item = (&'a str, &'a Api)>) -> Self {
        let mut table = Self::default();
        models.into_iter().for_each(|(name, api)| table.add(name, api));
        table.mounts.sort_by_key(|mount| std::cmp::Reverse(mount.path.len()));
        table
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.routes.is_empty() && self.mounts.is_empty()
    }

    /// The endpoint that this very path calls.
    pub fn route(&self, path: &str) -> Option<&Arc<PathTarget>> {
        self.routes.get(path.trim_end_matches('/'))
    }

    /// The endpoints that share a path, of one model each.
    pub fn sharers(&self, path: &str) -> Vec<&Arc<PathTarget>> {
        let later = self.sharers.iter().filter(|target| *target.path == *path);
        self.routes.get(path).into_iter().chain(later).collect()
    }

    /// The mount that a path is below, the one with the longest prefix.
    pub fn mount(&self, path: &str) -> Option<&Arc<PathTarget>> {
        let below = |mount: &&Arc<PathTarget>| {
            path.strip_prefix(&*mount.path).is_some_and(|it| it.is_empty() || it.starts_with('/'))
        };
        self.mounts.iter().find(below)
    }

    /// A path that the other table has, too, and means something else by.
    pub(crate) fn shared_with(&self, other: &Self) -> Option<&str> {
        let differs = |own: &&Arc<PathTarget>| {
            let same = |it: &Arc<PathTarget>| {
                (it.endpoint.is_empty() && it.answers == own.answers) || (it.shared && own.shared)
            };
            other.routes.get(&own.path).is_some_and(|other| !same(other))
        };
        let route = self.routes.values().find(differs).map(|route| &route.path);
        let taken = |mount: &&Arc<PathTarget>| other.mounts.iter().any(|it| it.path == mount.path);
        let mount = || self.mounts.iter().find(taken).map(|mount| &mount.path);
        let shared = route.or_else(mount)?;
        Some(if shared.is_empty() { "/" } else { shared })
    }

    /// Raw endpoints of a model that is mounted nowhere are found under its name.
    fn add(&mut self, name: &str, api: &Api) {
        let raw = |endpoint: &str| api.http.raw.iter().any(|it| it == endpoint);
        let target = |endpoint: &str, path: &str| PathTarget {
            model: name.into(),
            endpoint: endpoint.into(),
            path: path.trim_end_matches('/').into(),
            methods: Vec::new(),
            raw: raw(endpoint),
            answers: None,
            shared: false,
            several: false,
        };
        for route in &api.http.routes {
            let methods = route.methods.iter().map(|method| method.as_str().into()).collect();
            let answers = route.answers.as_deref().map(Into::into);
            let named = target(&route.endpoint, &route.path);
            self.add_route(PathTarget { methods, answers, shared: route.shared, ..named });
        }
        if let Some(mount) = &api.http.mount {
            self.add_mount(target(&mount.endpoint, &mount.prefix));
            return;
        }
        for endpoint in &api.http.raw {
            self.add_mount(target(endpoint, &format!("/{name}/{endpoint}")));
            match &*api.endpoints {
                [_] => self.add_mount(target(endpoint, &format!("/{name}"))),
                _ if ["call", "predict"].contains(&endpoint.as_str()) => {
                    self.add_route(target(endpoint, &format!("/{name}")));
                }
                _ => {}
            }
        }
    }

    fn add_route(&mut self, target: PathTarget) {
        match self.routes.entry(target.path.clone()) {
            Entry::Vacant(free) => drop(free.insert(Arc::new(target))),
            Entry::Occupied(mut first) => {
                let shares = |it: &PathTarget| it.shared && it.raw;
                if shares(first.get()) && shares(&target) {
                    Arc::make_mut(first.get_mut()).several = true;
                    self.sharers.push(Arc::new(target));
                }
            }
        }
    }

    fn add_mount(&mut self, target: PathTarget) {
        if !self.mounts.iter().any(|mount| mount.path == target.path) {
            self.mounts.push(Arc::new(target));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(text: &str) -> Api {
        serde_json::from_str(text).expect("a description")
    }

    #[test]
    fn the_longest_prefix_has_a_path_and_exact_ones_stand_apart() {
        let all = api(r#"{"endpoints": ["http", "sum"], "http": {"raw": ["http"],
            "routes": [{"path": "/sum/", "methods": ["POST"], "endpoint": "sum"}],
            "mount": {"prefix": "/", "endpoint": "http"}}}"#);
        let some = api(r#"{"endpoints": ["http"], "http": {"raw": ["http"],
            "mount": {"prefix": "/api/", "endpoint": "http"}}}"#);
        let table = PathTable::of([("all", &all), ("some", &some)]);
        let mounted = |path| table.mount(path).map(|it| (&*it.model, &*it.path));
        assert_eq!(mounted("/api"), Some(("some", "/api")));
        assert_eq!(mounted("/api/x"), Some(("some", "/api")));
        assert_eq!(mounted("/apix"), Some(("all", "")));
        let sum = table.route("/sum").expect("a route");
        assert_eq!((&*sum.endpoint, sum.raw, sum.methods.len()), ("sum", false, 1));
        assert!(table.route("/sum/").is_some() && table.route("/su").is_none());
        assert_eq!(table.shared_with(&PathTable::of([("other", &some)])), Some("/api"));
        assert_eq!(table.shared_with(&PathTable::default()), None);
    }

    #[test]
    fn a_path_may_be_shared_by_those_who_both_say_so() {
        let one = |shared| {
            let route = format!(r#"{{"path": "/rerank", "endpoint": "r", "shared": {shared}}}"#);
            api(&format!(r#"{{"endpoints": ["r"], "http": {{"routes": [{route}]}}}}"#))
        };
        let (sharing, alone) = (one(true), one(false));
        let table = |model: &'static str, api: &Api| PathTable::of([(model, api)]);
        assert_eq!(table("a", &sharing).shared_with(&table("b", &sharing)), None);
        assert_eq!(table("a", &sharing).shared_with(&table("b", &alone)), Some("/rerank"));
        let both = PathTable::of([("a", &sharing), ("b", &sharing)]);
        assert_eq!(both.route("/rerank").map(|it| (&*it.model, it.several)), Some(("a", false)));
    }

    #[test]
    fn of_a_path_of_several_raw_endpoints_all_models_are_known() {
        let route = r#"{"path": "/rerank/", "endpoint": "r", "shared": true}"#;
        let raw = api(&format!(
            r#"{{"endpoints": ["r"], "http": {{"raw": ["r"], "routes": [{route}]}}}}"#
        ));
        let one = PathTable::of([("a", &raw)]);
        assert!(one.route("/rerank").is_some_and(|it| !it.several));
        let two = PathTable::of([("a", &raw), ("b", &raw)]);
        assert!(two.route("/rerank").is_some_and(|it| it.several));
        let models: Vec<_> = two.sharers("/rerank").iter().map(|it| &*it.model).collect();
        assert_eq!(models, ["a", "b"]);
        assert!(two.sharers("/score").is_empty());
    }

    #[test]
    fn a_raw_endpoint_that_is_mounted_nowhere_is_found_under_its_model() {
        let sole = api(r#"{"endpoints": ["call"], "http": {"raw": ["call"]}}"#);
        let several = api(r#"{"endpoints": ["call", "b"], "http": {"raw": ["call"]}}"#);
        let table = PathTable::of([("one", &sole), ("two", &several)]);
        assert!(table.mount("/one/anything").is_some() && table.mount("/two/b").is_none());
        assert!(table.route("/two").is_some_and(|it| it.raw) && table.mount("/two/call").is_some());
        assert!(PathTable::of([("plain", &api(r#"{"endpoints": ["a"]}"#))]).is_empty());
    }
}
