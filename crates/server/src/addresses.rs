//! Where a server listens, and what it offers at each address. Nothing is bound here.

use std::io;

use jitney_net::{Bind, ConnectionAge};
use jitney_settings::Dialect;

use crate::config::{GrpcBind, ServerConfig};
use crate::route::Apis;

/// The addresses of a server, with the ports that were free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddresses {
    /// Predictions and health.
    pub inference: Bind,
    /// Models and workers.
    pub management: Bind,
    /// Prometheus text, if anywhere.
    pub metrics: Option<Bind>,
    /// Predictions and health over gRPC, if anywhere.
    pub grpc_inference: Option<Bind>,
    /// Models and workers over gRPC, if anywhere.
    pub grpc_management: Option<Bind>,
}

impl ServerAddresses {
    pub(crate) fn configured(config: &ServerConfig) -> Self {
        let bind = |grpc: &Option<GrpcBind>| grpc.as_ref().map(|grpc| grpc.bind.clone());
        Self {
            inference: config.inference.clone(),
            management: config.management.clone(),
            metrics: config.metrics.clone(),
            grpc_inference: bind(&config.grpc_inference),
            grpc_management: bind(&config.grpc_management),
        }
    }

    pub(crate) fn settle(&mut self, apis: Apis, grpc: bool, address: &Bind) {
        let addresses = if grpc {
            [
                (apis.inference, self.grpc_inference.as_mut()),
                (apis.management, self.grpc_management.as_mut()),
                (false, None),
            ]
        } else {
            [
                (apis.inference, Some(&mut self.inference)),
                (apis.management, Some(&mut self.management)),
                (apis.metrics, self.metrics.as_mut()),
            ]
        };
        for (offered, bound) in addresses {
            if let (true, Some(bound)) = (offered, bound) {
                *bound = address.clone();
            }
        }
    }
}

/// A listener that is to be bound.
pub(crate) struct ListenerPlan {
    pub(crate) bind: Bind,
    pub(crate) apis: Apis,
    /// Set where it speaks gRPC.
    pub(crate) grpc: Option<ConnectionAge>,
    /// Whether it is the second address of an API.
    pub(crate) is_second: bool,
}

impl ListenerPlan {
    /// Its name, by which the service manager may give it a socket.
    pub(crate) fn name(&self) -> &'static str {
        match (&self.grpc, self.apis) {
            (None, _) if self.is_second => "also_inference",
            (Some(_), _) if self.is_second => "also_grpc",
            (Some(_), Apis { inference: true, .. }) => "grpc_inference",
            (Some(_), _) => "grpc_management",
            (None, Apis { inference: true, .. }) => "inference",
            (None, Apis { management: true, .. }) => "management",
            (None, _) => "metrics",
        }
    }
}

/// Which listeners there are.
pub(crate) fn plans(config: &ServerConfig) -> Vec<ListenerPlan> {
    let rest = |(bind, apis)| ListenerPlan { bind, apis, grpc: None, is_second: false };
    let mut plans: Vec<_> = rest_plans(config).into_iter().map(rest).collect();
    let second = config.also_inference.iter().filter(|bind| !bind.is_same(&config.inference));
    let apis = Apis { management: false, metrics: false, ..plans[0].apis };
    plans.extend(second.map(|bind| ListenerPlan { is_second: true, ..rest((bind.clone(), apis)) }));
    plans.extend(grpc_plans(config));
    plans
}

fn grpc_plans(config: &ServerConfig) -> Vec<ListenerPlan> {
    let planned = |grpc: &GrpcBind, apis| ListenerPlan {
        bind: grpc.bind.clone(),
        apis,
        grpc: Some(grpc.age),
        is_second: false,
    };
    let open_health = config.dialect == Dialect::Jitney;
    let inference = Apis { inference: true, oip: config.oip, open_health, ..Apis::default() };
    let management = Apis { management: true, open_health, ..Apis::default() };
    let mut plans: Vec<_> = match (&config.grpc_inference, &config.grpc_management) {
        (Some(one), Some(other)) if one.bind.is_same(&other.bind) => {
            vec![planned(one, Apis { management: true, ..inference })]
        }
        (one, other) => {
            let one = one.iter().map(|grpc| planned(grpc, inference));
            one.chain(other.iter().map(|grpc| planned(grpc, management))).collect()
        }
    };
    let second = config.also_grpc.iter();
    let apis = Apis { oip: true, ..inference };
    plans.extend(second.map(|grpc| ListenerPlan { is_second: true, ..planned(grpc, apis) }));
    plans
}

/// The HTTP listeners. APIs with one address share one; where inference and management do, metrics
/// are offered too, as in TorchServe.
fn rest_plans(config: &ServerConfig) -> Vec<(Bind, Apis)> {
    let (oip, sagemaker) = (config.oip, config.sagemaker);
    let combined = config.one_port || config.inference.is_same(&config.management);
    let (natural, open_health) = (config.natural, config.dialect == Dialect::Jitney);
    let home = open_health;
    let inference =
        Apis { inference: true, oip, natural, sagemaker, open_health, home, ..Apis::default() };
    let mut plans = vec![(config.inference.clone(), inference)];
    let management = Apis { management: true, oip, open_health, home, ..Apis::default() };
    if combined {
        plans[0].1.management = true;
    } else {
        plans.push((config.management.clone(), management));
    }
    if let Some(metrics) = &config.metrics {
        plans[0].1.metrics = combined;
        match plans.iter_mut().find(|(bind, _)| bind.is_same(metrics)) {
            Some((_, apis)) => apis.metrics = true,
            None => plans.push((metrics.clone(), Apis { metrics: true, ..Apis::default() })),
        }
    }
    plans
}

/// An HTTPS listener needs a certificate.
pub(crate) fn check_tls(config: &ServerConfig, plans: &[ListenerPlan]) -> io::Result<()> {
    match plans.iter().map(|plan| &plan.bind).find(|bind| matches!(bind, Bind::Tls(_))) {
        Some(bind) if config.tls.is_none() => {
            Err(io::Error::other(format!("{bind} needs a certificate and a key")))
        }
        Some(_) | None => Ok(()),
    }
}
