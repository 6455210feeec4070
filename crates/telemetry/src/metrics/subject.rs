//! What a metric's value is about: the machine, a GPU, a model or a worker. It decides the labels.

use std::sync::Arc;

use jitney_engine::ModelTag;

/// What a value is about.
#[derive(Debug)]
pub(super) enum MetricSubject {
    Host,
    Gpu { index: u32 },
    Model(ModelSubject),
    Worker { model: Arc<ModelTag>, worker: u32 },
}

/// A model, as its callers named it.
#[derive(Clone, Debug)]
pub(super) struct ModelSubject {
    pub(super) model: Arc<ModelTag>,
    pub(super) version_named: bool,
}

impl PartialEq for ModelSubject {
    fn eq(&self, other: &Self) -> bool {
        self.version_named == other.version_named && Arc::ptr_eq(&self.model, &other.model)
    }
}

impl MetricSubject {
    /// The values of the labels but the host's name.
    pub(super) fn labels(&self) -> Vec<String> {
        match self {
            Self::Host => vec!["Host".to_owned()],
            Self::Gpu { index } => vec!["Host".to_owned(), index.to_string()],
            Self::Model(ModelSubject { model, version_named }) => {
                let version = if *version_named { &model.version } else { "default" };
                vec![model.name.clone(), version.to_owned()]
            }
            Self::Worker { model, worker } => {
                let ModelTag { name, version, .. } = &**model;
                vec![format!("W-{worker}-{name}_{version}"), "Host".to_owned()]
            }
        }
    }
}
