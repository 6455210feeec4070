//! Reflection: lets grpcurl and its like speak to the server without its `.proto` files.
//!
//! Both versions of the protocol are offered, since clients of either are about; each tells of the
//! services that this listener has.

use tonic_reflection::server::{Builder, Error};

use super::GrpcServices;

/// Adds both versions of the service. Without them only curious clients miss something.
pub(super) fn add(services: &mut GrpcServices, names: &[&'static str]) {
    if let Err(error) = try_add(services, names) {
        tracing::error!(%error, "no gRPC reflection");
    }
}

fn try_add(services: &mut GrpcServices, names: &[&'static str]) -> Result<(), Error> {
    services.add(builder(names).build_v1()?);
    services.add(builder(names).build_v1alpha()?);
    Ok(())
}

fn builder(names: &[&'static str]) -> Builder<'static> {
    let builder = Builder::configure()
        .register_encoded_file_descriptor_set(jitney_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name("grpc.health.v1.Health");
    names.iter().fold(builder, |builder, name| builder.with_service_name(*name))
}
