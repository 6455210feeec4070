//! Which of a server's addresses a command asks, and in which words it says so.

use jitney_settings::Setting;
use jitney_settings::server::{INFERENCE_PORT, MANAGEMENT_PORT};

use crate::env::Env;

/// One of a server's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerApi {
    /// Where models are managed.
    Management,
    /// Where predictions are answered.
    Inference,
}

impl ServerApi {
    /// Its word, which is also the name of its key in `key_file.json`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Management => "management",
            Self::Inference => "inference",
        }
    }

    /// The variable with the address.
    pub fn variable(self) -> &'static str {
        match self {
            Self::Management => "JITNEY_URL",
            Self::Inference => "JITNEY_INFERENCE_URL",
        }
    }

    fn port(self) -> (u16, &'static str, &'static str) {
        let default = |setting: &Setting| setting.default_value();
        match self {
            Self::Management => {
                (default(&MANAGEMENT_PORT), "JITNEY_MANAGEMENT_PORT", "--management-port")
            }
            Self::Inference => (default(&INFERENCE_PORT), "JITNEY_PORT", "--port"),
        }
    }

    /// This machine, at the port that a server with this environment would have.
    pub fn usual(self, env: &Env) -> String {
        let (default, variable, _) = self.port();
        let port = env.text(variable).and_then(|port| port.parse().ok());
        let port = port.filter(|port| *port != 0).unwrap_or(default);
        format!("http://127.0.0.1:{port}")
    }

    /// For who has no key, or one that may not do this.
    pub fn key_hint(self) -> &'static str {
        match self {
            Self::Management => {
                "give a key that may do this: --token KEY or JITNEY_TOKEN with one that has the scope manage \
                 (`jitney keys list` shows the scopes), or --key-file FILE with the server's key_file.json"
            }
            Self::Inference => {
                "give a key that may do this: --token KEY or JITNEY_TOKEN with one that has the scope predict \
                 (`jitney keys list` shows the scopes), or --key-file FILE with the server's key_file.json"
            }
        }
    }

    /// For who finds nothing, or something else, at the address.
    pub fn port_hint(self) -> String {
        let ((port, _, flag), word) = (self.port(), self.word());
        format!("the {word} port is {port} unless {flag} says otherwise")
    }
}
