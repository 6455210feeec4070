//! From flags to what the generator is to do.

use std::sync::Arc;
use std::time::Duration;

use jitney_load::{
    LoadMode, LoadPlan, LoadProtocol, LoadUrl, PayloadDraft, PoolPlan, RequestPayload, Target,
    TlsTrust, binary_body, client_config, infer_message, predictions_message,
};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};

use super::{bodies, schedule};
use crate::failure::{Failure, cannot};
use crate::flags::bench::{BenchFlags, ProtocolFlag};

const CONNECTIONS: usize = 16;
const POOL: usize = 1024;
const STREAMS_OPEN: usize = 100;
const CONNECTIONS_MAX: usize = 65_536;
const THREADS_MAX: usize = 256;
const TIMEOUT: Duration = Duration::from_secs(10);
const PREDICTIONS: &str = "/org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions";
const MODEL_INFER: &str = "/inference.GRPCInferenceService/ModelInfer";

/// What the generator is to do.
pub fn plan(flags: &BenchFlags, mut url: LoadUrl) -> Result<LoadPlan, Failure> {
    check(flags)?;
    url.protocol = match flags.protocol {
        None => url.protocol,
        Some(ProtocolFlag::Http1 | ProtocolFlag::OipBinary) => LoadProtocol::Http1,
        Some(ProtocolFlag::Http2) => LoadProtocol::Http2,
        Some(ProtocolFlag::Grpc) => LoadProtocol::Grpc,
    };
    let payloads = payloads(flags, &url)?;
    let shared = url.protocol != LoadProtocol::Http1;
    let phases = schedule::phases(flags)?;
    let streams = flags.streams.unwrap_or(if phases.is_some() { STREAMS_OPEN } else { 1 });
    let streams = if shared { streams } else { 1 };
    let connections = flags.connections.unwrap_or(CONNECTIONS);
    let mode = match phases {
        None => LoadMode::Closed {
            clients: connections * streams,
            think: flags.think.map(|think| think.0),
            warm_up: schedule::warm_up(flags),
            length: schedule::duration(flags),
            requests: flags.requests,
        },
        Some(phases) => {
            let limit = flags.pool.unwrap_or(if shared { 1 } else { POOL }) * streams;
            let pool = PoolPlan { pools: flags.pools, limit, order: flags.pool_order.into() };
            LoadMode::Open { phases, pool }
        }
    };
    let useful = match &mode {
        LoadMode::Closed { .. } => connections,
        LoadMode::Open { pool, .. } => pool.pools,
    };
    Ok(LoadPlan {
        target: target(flags, &url)?,
        payloads,
        mode,
        streams,
        timeout: flags.timeout.map_or(TIMEOUT, |timeout| timeout.0),
        objective: flags.objective.map(|objective| objective.0),
        seed: flags.seed,
        threads: flags.threads.min(useful),
    })
}

fn check(flags: &BenchFlags) -> Result<(), Failure> {
    for (name, value, most) in [
        ("--connections", flags.connections, CONNECTIONS_MAX),
        ("--pool", flags.pool, CONNECTIONS_MAX),
        ("--streams", flags.streams, CONNECTIONS_MAX),
        ("--pools", Some(flags.pools), CONNECTIONS_MAX),
        ("--threads", Some(flags.threads), THREADS_MAX),
    ] {
        if value.is_some_and(|value| !(1..=most).contains(&value)) {
            return Err(Failure::usage(format!("{name} must be between 1 and {most}")));
        }
    }
    if flags.timeout.is_some_and(|timeout| timeout.0.is_zero()) {
        return Err(Failure::usage("--timeout must be above 0"));
    }
    if flags.protocol == Some(ProtocolFlag::OipBinary) && flags.input.is_empty() {
        let hint = "for example --input x:FP32:1,3,224,224";
        return Err(Failure::usage("oip-binary needs --input").hint(hint));
    }
    Ok(())
}

fn payloads(flags: &BenchFlags, url: &LoadUrl) -> Result<Vec<RequestPayload>, Failure> {
    let render = |draft: PayloadDraft, path: &str| draft.render(url, path).map_err(Failure::usage);
    let tensors = bodies::tensors(&flags.input, flags.seed)?;
    let draft = PayloadDraft {
        method: flags.method.clone().unwrap_or_else(|| "POST".to_owned()),
        headers: flags.header.clone(),
        content_type: flags.content_type.clone(),
        body: bytes::Bytes::new(),
    };
    if url.protocol == LoadProtocol::Grpc {
        let model = model(url)?;
        let (path, messages) = match tensors.is_empty() {
            false => (MODEL_INFER, vec![infer_message(model, &tensors)]),
            true => {
                let bodies = bodies::read(flags)?;
                (PREDICTIONS, bodies.iter().map(|body| predictions_message(model, body)).collect())
            }
        };
        let content_type = Some("application/grpc".to_owned());
        let draft = PayloadDraft { method: "POST".to_owned(), content_type, ..draft };
        return messages
            .into_iter()
            .map(|body| render(PayloadDraft { body, ..draft.clone() }, path))
            .collect();
    }
    if !tensors.is_empty() {
        let (head, body) = binary_body(&tensors);
        let mut draft = PayloadDraft { body, ..draft };
        draft.content_type.get_or_insert_with(|| "application/octet-stream".to_owned());
        draft.headers.push(format!("Inference-Header-Content-Length: {head}"));
        return Ok(vec![render(draft, &url.path)?]);
    }
    let with_body = |body: bytes::Bytes| {
        let mut draft = PayloadDraft { body, ..draft.clone() };
        if draft.body.is_empty() {
            draft.method = flags.method.clone().unwrap_or_else(|| "GET".to_owned());
        } else {
            let kind = match draft.body.trim_ascii_start().first() {
                Some(b'{' | b'[' | b'"') => "application/json",
                _ => "application/octet-stream",
            };
            draft.content_type.get_or_insert_with(|| kind.to_owned());
        }
        render(draft, &url.path)
    };
    bodies::read(flags)?.into_iter().map(with_body).collect()
}

/// The model in the path of a gRPC URL.
fn model(url: &LoadUrl) -> Result<&str, Failure> {
    let model = url.path.trim_matches('/');
    if model.is_empty() || model.contains(['/', '?']) {
        let message = format!("{:?} names no model", url.path);
        return Err(Failure::usage(message).hint("write the URL like grpc://127.0.0.1:7070/MODEL"));
    }
    Ok(model)
}

fn target(flags: &BenchFlags, url: &LoadUrl) -> Result<Target, Failure> {
    let addresses = url.resolve().map_err(|error| {
        Failure::failed(format!("the address of {:?} is not known: {error}", url.host))
    })?;
    let tls = match url.is_secure() {
        false => None,
        true => {
            let config = client_config(trust(flags)?).map_err(cannot("set up TLS"))?;
            let name = ServerName::try_from(url.host.clone()).map_err(|_| {
                Failure::usage(format!("{:?} cannot be the name of a certificate", url.host))
            })?;
            Some((Arc::new(config), name))
        }
    };
    Ok(Target { addresses, protocol: url.protocol, tls })
}

fn trust(flags: &BenchFlags) -> Result<TlsTrust, Failure> {
    if flags.insecure {
        return Ok(TlsTrust::Anybody);
    }
    let mut roots = RootCertStore::empty();
    match &flags.ca {
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Some(path) => {
            let pem = std::fs::read(path).map_err(|error| Failure::file("read", path, &error))?;
            let found = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok);
            let (trusted, _) = roots.add_parsable_certificates(found);
            if trusted == 0 {
                return Err(Failure::usage(format!("{} has no certificate (PEM)", path.display())));
            }
        }
    }
    Ok(TlsTrust::Roots(roots))
}
