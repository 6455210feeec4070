//! `--ray` and `--worker-host`: which cluster places workers, and where those connect.

use std::net::{IpAddr, SocketAddr};

use jitney_engine::python::RayConfig;
use jitney_settings::Values;
use jitney_settings::server::{RAY, WORKER_HOST};

use crate::failure::Failure;

/// The cluster, if one is to place workers.
pub fn read(values: &Values) -> Result<Option<RayConfig>, Failure> {
    let Some(address) = values.read::<String>(&RAY).filter(|it| !it.is_empty()) else {
        return Ok(None);
    };
    if address.starts_with("ray://") {
        let hint = "start a node on this machine with `ray start --address=HOST:6379 --num-cpus=0`, \
                    then --ray auto";
        let what = format!("--ray {address}: Ray's client protocol cannot place workers");
        return Err(Failure::usage(what).hint(hint));
    }
    let asked = values.read::<String>(&WORKER_HOST);
    let (worker_host, worker_port) = asked
        .map(|text| host(&text))
        .transpose()?
        .map_or((None, 0), |it| (Some(it.ip()), it.port()));
    Ok(Some(RayConfig { address, worker_host, worker_port }))
}

/// An address, with or without a port.
fn host(text: &str) -> Result<SocketAddr, Failure> {
    let bare = text.trim_matches(['[', ']']).parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0));
    bare.or_else(|_| text.parse()).map_err(|_| {
        Failure::usage(format!(
            "--worker-host must be an IP address of this machine, with or without a port, not {text:?}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use jitney_settings::SettingSource;

    use super::*;

    fn config(address: &str, host: Option<&str>) -> Result<Option<RayConfig>, String> {
        let source = || SettingSource::Default;
        let mut values = Values::default().with(&RAY, address.to_owned(), source());
        if let Some(host) = host {
            values.set(&WORKER_HOST, host.to_owned(), source());
        }
        read(&values).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_cluster_and_where_its_workers_connect_are_read() {
        let found = |host| config("auto", host).expect("readable").expect("a cluster");
        assert_eq!((found(None).worker_host, found(None).worker_port), (None, 0));
        let ten = Some("10.0.0.1".parse().expect("an address"));
        assert_eq!((found(Some("10.0.0.1")).worker_host, 0), (ten, 0));
        assert_eq!((found(Some("10.0.0.1:7000")).worker_host, 7000), (ten, 7000));
        assert_eq!(found(Some("[::1]:7000")).worker_port, 7000);
        assert_eq!(config("", None), Ok(None));
        assert!(config("auto", Some("gateway")).is_err_and(|why| why.contains("IP address")));
        assert!(config("ray://head:10001", None).is_err_and(|why| why.contains("client protocol")));
    }
}
