//! Which paths models may have for themselves.

use super::{Apis, ModelRef};

/// A request that goes to an endpoint as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountedRoute<'a> {
    /// The model.
    pub target: ModelRef<'a>,
    /// Its endpoint.
    pub endpoint: &'a str,
    /// What the path begins with; empty for a mount of all paths.
    pub prefix: &'a str,
}

/// Whether a decoded path stays the server's own, whatever models want. The page of the API, its document and
/// the bare names of models do not.
pub fn is_fixed(apis: Apis, path: &str) -> bool {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    match segments.next().unwrap_or("") {
        "ping" | "predictions" | "explanations" | "invocations" | ".jitney" | "v2"
        | "api-description" => true,
        "v1" => matches!(segments.next(), Some("models" | "embeddings")),
        "models" => apis.management || segments.nth(1) == Some("invoke"),
        "metrics" => apis.metrics,
        "execution-parameters" => apis.sagemaker,
        "workflows" | "overview" | "logs" | "log-level" | "dashboard" | "token" => apis.management,
        first => first.eq_ignore_ascii_case("wfpredict"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_needs_stays_its_own() {
        let apis = Apis { inference: true, natural: true, oip: true, ..Apis::default() };
        for path in ["/ping", "/predictions/m", "/v1/models/m:predict", "/v2", "/.jitney/handle"] {
            assert!(is_fixed(apis, path), "{path}");
        }
        for path in ["/", "/docs", "/openapi.json", "/m", "/m/predict", "/v1/chat", "/models/x"] {
            assert!(!is_fixed(apis, path), "{path}");
        }
        assert!(!is_fixed(apis, "/metrics") && !is_fixed(apis, "/token"));
        let all = Apis { management: true, metrics: true, ..apis };
        assert!(is_fixed(all, "/metrics") && is_fixed(all, "/token") && is_fixed(all, "/models"));
    }
}
