//! The order of a workflow's nodes. A pure value, valid by construction: one start, no
//! circle, no node unknown, no more nodes than a request should wait for.

use std::fmt;

/// Nodes of one workflow; each costs a worker process or more.
const NODES_MAX: usize = 100;

/// Why nodes and edges are no workflow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DagError {
    /// There is no `dag`, or nothing in it.
    #[error("Invalid workflow: dag names no node")]
    Empty,
    /// Too many nodes for one request.
    #[error("Invalid workflow: dag has more than {} nodes", NODES_MAX)]
    TooLarge,
    /// A request starts at exactly one node.
    #[error("Invalid workflow: dag needs exactly one start node, it has {}", list(.found))]
    Starts {
        /// The nodes without predecessors.
        found: Vec<String>,
    },
    /// These nodes wait for each other.
    #[error("Invalid workflow: dag has a cycle through {}", list(.nodes))]
    Cycle {
        /// The nodes on the circle and those behind it.
        nodes: Vec<String>,
    },
    /// A part of the specification that cannot be read.
    #[error("Invalid workflow: {0}")]
    Malformed(String),
}

fn list(nodes: &[String]) -> String {
    if nodes.is_empty() { "none".to_owned() } else { nodes.join(", ") }
}

/// A directed acyclic graph with one start. Nodes are known by their position in [`Dag::nodes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dag {
    /// All nodes, in the order in which the specification first names them.
    pub(crate) nodes: Vec<String>,
    /// The nodes that each node feeds.
    pub(super) successors: Vec<Vec<usize>>,
    /// The nodes that each node waits for.
    pub(super) predecessors: Vec<Vec<usize>>,
    /// The nodes that the specification gives a list, in its order.
    listed: Vec<usize>,
    /// The node that gets the request.
    pub(super) start: usize,
}

impl Dag {
    /// Checks the edges of a specification, node by node with its successors.
    pub fn new(edges: &[(String, Vec<String>)]) -> Result<Self, DagError> {
        let mut dag = Self::unchecked(edges)?;
        let starts: Vec<usize> =
            (0..dag.nodes.len()).filter(|node| dag.predecessors[*node].is_empty()).collect();
        let circle = dag.circle();
        if !circle.is_empty() {
            return Err(DagError::Cycle { nodes: dag.names(&circle) });
        }
        match starts[..] {
            [start] => dag.start = start,
            _ => return Err(DagError::Starts { found: dag.names(&starts) }),
        }
        Ok(dag)
    }

    fn unchecked(edges: &[(String, Vec<String>)]) -> Result<Self, DagError> {
        let mut dag = Self::default();
        for (name, successors) in edges {
            let from = dag.node(name)?;
            dag.listed.push(from);
            for successor in successors {
                let to = dag.node(successor)?;
                dag.connect(from, to);
            }
        }
        if dag.nodes.is_empty() { Err(DagError::Empty) } else { Ok(dag) }
    }

    fn node(&mut self, name: &str) -> Result<usize, DagError> {
        if let Some(known) = self.nodes.iter().position(|node| node == name) {
            return Ok(known);
        }
        if self.nodes.len() == NODES_MAX {
            return Err(DagError::TooLarge);
        }
        self.nodes.push(name.to_owned());
        self.successors.push(Vec::new());
        self.predecessors.push(Vec::new());
        Ok(self.nodes.len() - 1)
    }

    /// An edge that is written twice is one edge.
    fn connect(&mut self, from: usize, to: usize) {
        if !self.successors[from].contains(&to) {
            self.successors[from].push(to);
            self.predecessors[to].push(from);
        }
    }

    /// What is left when nodes without predecessors are removed again and again.
    fn circle(&self) -> Vec<usize> {
        let mut missing: Vec<usize> = self.predecessors.iter().map(Vec::len).collect();
        let mut free: Vec<usize> =
            (0..self.nodes.len()).filter(|node| missing[*node] == 0).collect();
        while let Some(node) = free.pop() {
            for &next in &self.successors[node] {
                missing[next] -= 1;
                if missing[next] == 0 {
                    free.push(next);
                }
            }
        }
        (0..self.nodes.len()).filter(|node| missing[*node] > 0).collect()
    }

    fn names(&self, nodes: &[usize]) -> Vec<String> {
        nodes.iter().map(|node| self.nodes[*node].clone()).collect()
    }

    /// The nodes whose outputs are the answer.
    pub fn last_nodes(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|node| self.successors[*node].is_empty())
    }
}

/// As Java writes a map, which is what TorchServe's clients read: `{a=[b, c], b=[d]}`.
impl fmt::Display for Dag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |node: &usize| {
            let successors = self.names(&self.successors[*node]).join(", ");
            format!("{}=[{successors}]", self.nodes[*node])
        };
        let lines: Vec<String> = self.listed.iter().map(line).collect();
        write!(formatter, "{{{}}}", lines.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a:b,c d:` is an edge from a to b, one from a to c, and d.
    fn dag(text: &str) -> Result<Dag, DagError> {
        let line = |line: &str| {
            let (node, successors) = line.split_once(':').unwrap();
            let successors = successors.split(',').filter(|name| !name.is_empty());
            (node.to_owned(), successors.map(str::to_owned).collect())
        };
        Dag::new(&text.split(' ').filter(|line| !line.is_empty()).map(line).collect::<Vec<_>>())
    }

    #[test]
    fn a_diamond_knows_its_start_its_leaves_and_who_waits_for_whom() {
        let dag = dag("a:b,c b:d c:d,d").unwrap();
        assert_eq!(dag.nodes, ["a", "b", "c", "d"]);
        assert_eq!((dag.start, dag.last_nodes().collect::<Vec<_>>()), (0, vec![3]));
        assert_eq!((&dag.successors[0], &dag.predecessors[3]), (&vec![1, 2], &vec![1, 2]));
        assert_eq!(dag.to_string(), "{a=[b, c], b=[d], c=[d]}");
    }

    #[test]
    fn one_node_is_enough_and_the_start_may_be_named_last() {
        assert_eq!(dag("only:").unwrap().to_string(), "{only=[]}");
        assert_eq!(dag("b:c a:b").unwrap().start, 2);
    }

    #[test]
    fn what_is_no_workflow_is_rejected_with_the_nodes_in_question() {
        for (text, message) in [
            ("", "dag names no node"),
            ("a:c b:c", "dag needs exactly one start node, it has a, b"),
            ("a:b b:a", "dag has a cycle through a, b"),
            ("a:a", "dag has a cycle through a"),
            ("s:a a:b b:a,z", "dag has a cycle through a, b, z"),
        ] {
            let error = dag(text).unwrap_err().to_string();
            assert_eq!(error, format!("Invalid workflow: {message}"), "{text}");
        }
    }

    #[test]
    fn there_is_a_limit_to_the_number_of_nodes() {
        let edges = |count: usize| {
            (0..count - 1)
                .map(|at| (at.to_string(), vec![(at + 1).to_string()]))
                .collect::<Vec<_>>()
        };
        assert!(Dag::new(&edges(NODES_MAX)).is_ok());
        assert_eq!(Dag::new(&edges(NODES_MAX + 1)), Err(DagError::TooLarge));
    }
}
