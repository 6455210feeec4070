//! Where TorchServe's doors stand: the addresses that `config.properties` names, or TorchServe's own.

use std::time::Duration;

use jitney_server::{ConnectionAge, GrpcBind};

use super::values::Values;
use crate::address::{Address, Omitted};
use crate::failure::Failure;

/// The three doors.
pub(super) struct Addresses {
    pub(super) inference: Address,
    pub(super) management: Address,
    pub(super) metrics: Address,
}

impl Addresses {
    pub(super) fn read(values: &Values) -> Result<Self, Failure> {
        let read = |key: &str, port: u16, http: u16, https: u16| match values.text(key) {
            Some(text) => Address::parse(key, text, Omitted { http, https }),
            None => Ok(Address::tcp("127.0.0.1", port)),
        };
        Ok(Self {
            inference: read("inference_address", 8080, 80, 443)?,
            management: read("management_address", 8081, 8081, 8444)?,
            metrics: read("metrics_address", 8082, 8082, 8445)?,
        })
    }

    pub(super) fn all(&self) -> [&Address; 3] {
        [&self.inference, &self.management, &self.metrics]
    }
}

/// The two doors for gRPC; each has a host and a port of its own.
pub(super) struct Grpc {
    pub(super) inference: (Address, ConnectionAge),
    pub(super) management: (Address, ConnectionAge),
}

impl Grpc {
    pub(super) fn read(values: &Values) -> Result<Self, Failure> {
        let secure = values.truth("enable_grpc_ssl", false);
        let door = |name: &str, port: u16| {
            let key = |part: &str| format!("grpc_{name}_{part}");
            let millis = |part: &str| -> Result<Option<Duration>, Failure> {
                Ok(values.read(&key(part))?.map(Duration::from_millis))
            };
            let host = values.text(&key("address")).unwrap_or("127.0.0.1").trim();
            let address = Address::tcp(host, values.number(&key("port"), port)?).secured(secure);
            let (max, grace) =
                (millis("max_connection_age_ms")?, millis("max_connection_age_grace_ms")?);
            Ok::<_, Failure>((address, ConnectionAge { max, grace }))
        };
        Ok(Self { inference: door("inference", 7070)?, management: door("management", 7071)? })
    }
}

/// Where one of them listens.
pub(super) fn grpc_bind((address, age): &(Address, ConnectionAge)) -> Result<GrpcBind, Failure> {
    Ok(GrpcBind { bind: address.bind()?, age: *age })
}
