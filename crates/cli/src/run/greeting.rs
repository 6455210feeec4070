//! What the server prints when it is ready: its addresses and an example request. `jitney torchserve`
//! prints TorchServe's banner and the line that scripts wait for.

use std::collections::BTreeMap;

use jitney_engine::Engine;
use jitney_net::Bind;
use jitney_server::{Server, ServerAddresses, shell_example};
use jitney_settings::LogFormat;

use crate::console;
use crate::logs::{BANNER, LogTarget, StartedLog};
use crate::plan::{ServerKind, ServerPlan};

/// The line that scripts wait for.
const STARTED: &str = "Model server started.";

/// The header of an example request if the server needs a token; the key itself must not be logged.
const TOKEN: &str = "-H \"Authorization: Bearer <inference key of key_file.json>\" ";
/// The same for a key with a name.
const KEY: &str = "-H \"Authorization: Bearer <key>\" ";

/// Logged before models are loaded.
pub fn banner(plan: &ServerPlan) {
    if let ServerKind::TorchServe { banner } = &plan.kind {
        tracing::info!(target: BANNER, "{banner}");
    }
}

/// Printed after the ports have opened.
pub fn ready(plan: &ServerPlan, server: &Server, engine: &Engine, logs: &StartedLog) {
    let addresses = server.addresses();
    let token = match (&plan.keys, plan.tokens) {
        (Some(_), _) => KEY,
        (None, Some(_)) => TOKEN,
        (None, None) => "",
    };
    let example = example(&plan.kind, token, addresses, engine);
    match plan.kind {
        ServerKind::TorchServe { .. } => {
            for (name, address) in named(addresses) {
                tracing::info!("{name} API bind to: {address}");
            }
            tracing::info!("try: {example}");
            match plan.logs.format {
                LogFormat::Text => logs.writer.sender.send(LogTarget::Console, STARTED.to_owned()),
                LogFormat::Json => tracing::info!("{STARTED}"),
            }
        }
        ServerKind::Serve | ServerKind::Demo => {
            for (name, address) in named(addresses) {
                console::out(format!("{:<15} {address}", name));
            }
            let pages = [
                ("API", page(&addresses.inference, "/docs")),
                ("Dashboard", page(&addresses.management, "/dashboard")),
            ];
            for (name, page) in pages {
                if let Some(page) = page {
                    console::out(format!("{name:<15} {page}"));
                }
            }
            for (application, parts) in applications(engine) {
                console::out(format!("{:<15} {} of {application}", "Parts", parts.join(", ")));
            }
            console::out(format!("\nTry: {example}"));
        }
    }
}

/// The applications, with the names of their parts.
fn applications(engine: &Engine) -> BTreeMap<String, Vec<String>> {
    let mut applications: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for model in engine.models() {
        for root in engine.applications_of(&model) {
            applications.entry(root.name().to_owned()).or_default().push(model.name().to_owned());
        }
    }
    applications
}

fn named(addresses: &ServerAddresses) -> Vec<(&'static str, String)> {
    let mut named = vec![
        ("Inference", addresses.inference.to_string()),
        ("Management", addresses.management.to_string()),
    ];
    named.extend(addresses.metrics.as_ref().map(|metrics| ("Metrics", metrics.to_string())));
    let grpc = [
        ("gRPC inference", &addresses.grpc_inference),
        ("gRPC management", &addresses.grpc_management),
    ];
    named.extend(grpc.into_iter().filter_map(|(name, bind)| Some((name, dial(bind.as_ref()?)))));
    named
}

/// Where a browser on this machine finds a page; none reaches a Unix socket.
fn page(bind: &Bind, path: &str) -> Option<String> {
    let (socket, base) = reach(bind);
    socket.is_empty().then(|| format!("{base}{path}"))
}

/// An address as gRPC clients take it, without a scheme.
fn dial(bind: &Bind) -> String {
    bind.to_string().trim_start_matches("http://").trim_start_matches("https://").to_owned()
}

/// An example request that works when it is pasted into a shell.
fn example(kind: &ServerKind, token: &str, addresses: &ServerAddresses, engine: &Engine) -> String {
    let (socket, base) = reach(&addresses.inference);
    let socket = format!("{token}{socket}");
    let models = engine.models();
    // Whoever is nobody's part is what was asked for.
    let asked = models.iter().find(|model| engine.applications_of(model).is_empty());
    match (kind, asked.or(models.first())) {
        (ServerKind::Demo, _) => {
            let (text, file) = sample();
            format!("{text}curl {socket}-T {file} {base}/predictions/magika")
        }
        (_, Some(model)) => shell_example(model, &socket, &base),
        (_, None) => format!("curl {socket}{base}/ping"),
    }
}

/// What the demo's example sends: a file of the checkout, elsewhere a text that the line brings itself.
fn sample() -> (&'static str, &'static str) {
    let text = "echo 'SELECT name, fare FROM stops WHERE route = 7;' | ";
    if std::path::Path::new("Cargo.toml").exists() { ("", "Cargo.toml") } else { (text, "-") }
}

/// How curl on this machine reaches an address: an option, if it needs one, and the URL.
fn reach(bind: &Bind) -> (String, String) {
    match bind {
        Bind::Unix(path) => {
            (format!("--unix-socket {} ", path.display()), "http://localhost".to_owned())
        }
        Bind::Tcp(address) if address.ip().is_unspecified() => {
            (String::new(), format!("http://127.0.0.1:{}", address.port()))
        }
        Bind::Tls(address) if address.ip().is_unspecified() => {
            (String::new(), format!("https://127.0.0.1:{}", address.port()))
        }
        Bind::Tcp(_) | Bind::Tls(_) => (String::new(), bind.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_addresses_have_no_scheme() {
        for (bind, expected) in [
            ("http://127.0.0.1:7070", "127.0.0.1:7070"),
            ("https://127.0.0.1:7070", "127.0.0.1:7070"),
            ("unix:/x", "unix:/x"),
        ] {
            assert_eq!(dial(&bind.parse().expect("an address")), expected);
        }
    }

    #[test]
    fn browsers_are_told_an_address_that_they_reach() {
        for (bind, expected) in [
            ("http://0.0.0.0:8081", Some("http://127.0.0.1:8081/dashboard")),
            ("https://127.0.0.1:8081", Some("https://127.0.0.1:8081/dashboard")),
            ("unix:/x", None),
        ] {
            let page = page(&bind.parse().expect("an address"), "/dashboard");
            assert_eq!(page.as_deref(), expected);
        }
    }

    #[test]
    fn the_example_request_reaches_every_kind_of_address() {
        for (bind, socket, url) in [
            ("http://127.0.0.1:8080", "", "http://127.0.0.1:8080"),
            ("http://0.0.0.0:8080", "", "http://127.0.0.1:8080"),
            ("https://0.0.0.0:8443", "", "https://127.0.0.1:8443"),
            ("unix:/tmp/x.sock", "--unix-socket /tmp/x.sock ", "http://localhost"),
        ] {
            let bind: Bind = bind.parse().expect("an address");
            assert_eq!(reach(&bind), (socket.to_owned(), url.to_owned()), "{bind}");
        }
    }
}
