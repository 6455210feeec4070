//! Reflection: lets grpcurl and its like speak to the server without its `.proto` files.
//!
//! Both versions of the protocol are offered, since clients of either are about; each tells of the
//! services that this listener has.

use tonic_reflection::server::{Builder, Error};

use super::Desk;

/// Adds both versions of the service. Without them only curious clients miss something.
pub(super) fn add(desk: &mut Desk, services: &[&'static str]) {
    if let Err(error) = try_add(desk, services) {
        tracing::error!(%error, "no gRPC reflection");
    }
}

fn try_add(desk: &mut Desk, services: &[&'static str]) -> Result<(), Error> {
    desk.add(builder(services).build_v1()?);
    desk.add(builder(services).build_v1alpha()?);
    Ok(())
}

fn builder(services: &[&'static str]) -> Builder<'static> {
    let builder = Builder::configure()
        .register_encoded_file_descriptor_set(jitney_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name("grpc.health.v1.Health");
    services.iter().fold(builder, |builder, name| builder.with_service_name(*name))
}
