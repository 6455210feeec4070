//! Where TorchServe's APIs listen: the addresses that `config.properties` names, or TorchServe's own.

use std::time::Duration;

use jitney_net::ConnectionAge;
use jitney_server::GrpcBind;
use jitney_settings::server::{GRPC_MANAGEMENT_PORT, GRPC_PORT};
use jitney_settings::torchserve::{
    ENABLE_GRPC_SSL, GRPC_INFERENCE_ADDRESS, GRPC_INFERENCE_AGE, GRPC_INFERENCE_GRACE,
    GRPC_MANAGEMENT_ADDRESS, GRPC_MANAGEMENT_AGE, GRPC_MANAGEMENT_GRACE, INFERENCE_ADDRESS,
    MANAGEMENT_ADDRESS, METRICS_ADDRESS,
};
use jitney_settings::{Setting, Values};

use crate::address::{Address, Omitted};
use crate::failure::Failure;

/// The three listeners over HTTP.
pub(super) struct Addresses {
    pub(super) inference: Address,
    pub(super) management: Address,
    pub(super) metrics: Address,
}

impl Addresses {
    pub(super) fn read(values: &Values) -> Result<Self, Failure> {
        let read = |setting: &Setting, http: u16, https: u16| {
            let text: String = values.value(setting);
            Address::parse(setting.name, &text, Omitted { http, https })
        };
        Ok(Self {
            inference: read(&INFERENCE_ADDRESS, 80, 443)?,
            management: read(&MANAGEMENT_ADDRESS, 8081, 8444)?,
            metrics: read(&METRICS_ADDRESS, 8082, 8445)?,
        })
    }

    pub(super) fn all(&self) -> [&Address; 3] {
        [&self.inference, &self.management, &self.metrics]
    }
}

/// The two listeners over gRPC; each has a host and a port of its own.
pub(super) struct Grpc {
    pub(super) inference: (Address, ConnectionAge),
    pub(super) management: (Address, ConnectionAge),
}

impl Grpc {
    pub(super) fn read(values: &Values) -> Self {
        let secure = values.flag(&ENABLE_GRPC_SSL);
        let listener = |[host, port, max, grace]: [&Setting; 4]| {
            let host: String = values.value(host);
            let address = Address::tcp(host.trim(), values.value(port));
            let (max, grace): (Option<Duration>, _) = (values.read(max), values.read(grace));
            (address.secured(secure), ConnectionAge { max, grace })
        };
        Self {
            inference: listener([
                &GRPC_INFERENCE_ADDRESS,
                &GRPC_PORT,
                &GRPC_INFERENCE_AGE,
                &GRPC_INFERENCE_GRACE,
            ]),
            management: listener([
                &GRPC_MANAGEMENT_ADDRESS,
                &GRPC_MANAGEMENT_PORT,
                &GRPC_MANAGEMENT_AGE,
                &GRPC_MANAGEMENT_GRACE,
            ]),
        }
    }
}

/// Where one of them listens.
pub(super) fn grpc_bind((address, age): &(Address, ConnectionAge)) -> Result<GrpcBind, Failure> {
    Ok(GrpcBind { bind: address.bind()?, age: *age })
}
