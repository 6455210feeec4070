//! Which models call which: the graph of the applications that are registered.
//!
//! Pure: models in, places in their list out. A model that is called by its name alone may be called in
//! any version.

use std::sync::Arc;

use crate::model::Model;
use crate::store::Dependency;

/// A model as this graph sees it.
trait Node {
    fn names(&self) -> (&str, &str);
    fn depends(&self) -> &[Dependency];

    fn calls(&self, other: &Self) -> bool {
        let (name, version) = other.names();
        self.names() != other.names() && self.depends().iter().any(|it| it.is(name, version))
    }
}

impl Node for Arc<Model> {
    fn names(&self) -> (&str, &str) {
        (self.name(), self.version())
    }

    fn depends(&self) -> &[Dependency] {
        self.depends_on()
    }
}

/// The models that call this one.
pub(crate) fn callers<'a>(
    models: &'a [Arc<Model>],
    model: &'a Arc<Model>,
) -> impl Iterator<Item = &'a Arc<Model>> {
    models.iter().filter(|other| other.calls(model))
}

/// The applications that a model is a part of: those that call it, directly or not, and are called by none.
pub(crate) fn roots(models: &[Arc<Model>], model: &Arc<Model>) -> Vec<Arc<Model>> {
    models.iter().position(|other| Arc::ptr_eq(other, model)).map_or_else(Vec::new, |at| {
        roots_of(models, at).into_iter().map(|root| Arc::clone(&models[root])).collect()
    })
}

fn roots_of<N: Node>(nodes: &[N], at: usize) -> Vec<usize> {
    let callers = |at: usize| (0..nodes.len()).filter(move |&other| nodes[other].calls(&nodes[at]));
    let (mut seen, mut next, mut roots) = (vec![at], callers(at).collect::<Vec<_>>(), Vec::new());
    while let Some(caller) = next.pop() {
        if seen.contains(&caller) {
            continue;
        }
        seen.push(caller);
        let further: Vec<usize> = callers(caller).collect();
        if further.is_empty() {
            roots.push(caller);
        }
        next.extend(further);
    }
    roots.sort_unstable();
    roots
}

/// The models in the order in which they can end: whoever calls others before them. Those of one group do
/// not call each other.
pub(crate) fn closing_order(mut models: Vec<Arc<Model>>) -> Vec<Vec<Arc<Model>>> {
    let mut groups = Vec::new();
    while !models.is_empty() {
        let group = uncalled(&models);
        let (ending, staying): (Vec<_>, Vec<_>) =
            models.into_iter().enumerate().partition(|(at, _)| group.contains(at));
        groups.push(ending.into_iter().map(|(_, model)| model).collect());
        models = staying.into_iter().map(|(_, model)| model).collect();
    }
    groups
}

/// Those that no other calls; all where every one is called, which packing does not allow.
fn uncalled<N: Node>(nodes: &[N]) -> Vec<usize> {
    let is_called = |at: usize| nodes.iter().any(|other| other.calls(&nodes[at]));
    let free: Vec<usize> = (0..nodes.len()).filter(|&at| !is_called(at)).collect();
    if free.is_empty() { (0..nodes.len()).collect() } else { free }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Named(&'static str, Vec<Dependency>);

    impl Node for Named {
        fn names(&self) -> (&str, &str) {
            (self.0, "1.0")
        }

        fn depends(&self) -> &[Dependency] {
            &self.1
        }
    }

    fn node(name: &'static str, calls: &[&str]) -> Named {
        let call = |model: &&str| {
            let version = (*model != "any").then(|| "1.0".to_owned());
            Dependency { slot: String::new(), model: (*model).to_owned(), version }
        };
        Named(name, calls.iter().map(call).collect())
    }

    #[test]
    fn an_application_ends_before_its_parts() {
        let nodes = [node("c", &[]), node("b", &["c"]), node("a", &["b", "c"]), node("x", &[])];
        assert_eq!(uncalled(&nodes), [2, 3]);
        assert_eq!(uncalled(&nodes[..2]), [1]);
        assert_eq!(
            uncalled(&[node("a", &["b"]), node("b", &["a"])]),
            [0, 1],
            "nobody waits forever"
        );
    }

    #[test]
    fn a_part_knows_its_applications() {
        let nodes = [
            node("c", &[]),
            node("b", &["c"]),
            node("a", &["b"]),
            node("z", &["c", "any"]),
            node("any", &[]),
        ];
        assert_eq!(roots_of(&nodes, 0), [2, 3]);
        assert_eq!(roots_of(&nodes, 1), [2]);
        assert_eq!(roots_of(&nodes, 4), [3]);
        assert!(roots_of(&nodes, 2).is_empty());
    }
}
