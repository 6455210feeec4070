//! Tells the service manager, such as systemd, when the server is ready, when it ends and that it is
//! alive: one datagram per fact, to the socket that the variable `NOTIFY_SOCKET` names (`Type=notify`).
//!
//! Without that variable nothing happens. A manager that does not listen is no failure of the server.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::MissedTickBehavior;

use crate::env::Env;

/// The manager that started this process, if it wants to be told.
#[derive(Debug, Default)]
pub struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// How often the manager wants to hear from a server that is alive.
    alive_every: Option<Duration>,
}

impl ServiceManager {
    /// Reads the variables that the manager has set for this process.
    pub fn find(env: &Env) -> Self {
        let Some(address) = env.text("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self::default();
        };
        let socket = connect(address).inspect_err(
            |error| tracing::warn!(%error, address, "the service manager cannot be told anything"),
        );
        Self { socket: socket.ok(), alive_every: alive_every(env, std::process::id()) }
    }

    /// The ports are open.
    pub fn ready(&self, address: &str) {
        self.tell(&format!("READY=1\nSTATUS=listening on {address}"));
    }

    /// The server drains and then ends.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=draining");
    }

    /// Says at intervals that every one of these runtimes still runs its tasks; the manager restarts a
    /// server that it does not hear from. Ends at once if the manager does not ask for it.
    pub async fn keep_alive(self: Arc<Self>, planes: Vec<Handle>) {
        let Some(every) = self.alive_every.filter(|_| self.socket.is_some()) else { return };
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            for plane in &planes {
                if plane.spawn(async {}).await.is_err() {
                    return;
                }
            }
            self.tell("WATCHDOG=1");
        }
    }

    fn tell(&self, text: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = socket.send(text.as_bytes()) {
            tracing::warn!(%error, "the service manager was not told: {text:?}");
        }
    }
}

/// A name that begins with `@` is of Linux's abstract namespace, all others are paths.
fn connect(address: &str) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not stop the server.
    socket.set_nonblocking(true)?;
    match address.strip_prefix('@') {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(address)?,
    }
    Ok(socket)
}

/// Half of what the manager waits for, if it waits for this process.
fn alive_every(env: &Env, own_id: u32) -> Option<Duration> {
    let for_us = env.text("WATCHDOG_PID").is_none_or(|id| id.parse() == Ok(own_id));
    let micros: u64 = env.text("WATCHDOG_USEC").filter(|_| for_us)?.parse().ok()?;
    Some(Duration::from_micros(micros / 2)).filter(|every| !every.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(listener: &UnixDatagram) -> String {
        let mut room = [0; 256];
        let bytes = listener.recv(&mut room).expect("a datagram");
        String::from_utf8_lossy(&room[..bytes]).into_owned()
    }

    #[test]
    fn facts_reach_a_path_and_an_abstract_name() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("notify");
        let name = format!("jitney-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("an address");
        let listeners = [
            (path.display().to_string(), UnixDatagram::bind(&path).expect("bound")),
            (format!("@{name}"), UnixDatagram::bind_addr(&address).expect("bound")),
        ];
        for (name, listener) in listeners {
            let manager = ServiceManager::find(&Env::from([("NOTIFY_SOCKET", name.as_str())]));
            manager.ready("http://127.0.0.1:8080");
            manager.stopping();
            assert_eq!(received(&listener), "READY=1\nSTATUS=listening on http://127.0.0.1:8080");
            assert_eq!(received(&listener), "STOPPING=1\nSTATUS=draining");
        }
    }

    #[test]
    fn the_watchdog_of_another_process_is_not_answered() {
        let env = Env::from([("WATCHDOG_USEC", "3000000"), ("WATCHDOG_PID", "7")]);
        assert_eq!(alive_every(&env, 7), Some(Duration::from_millis(1500)));
        assert_eq!(alive_every(&env, 8), None);
        assert_eq!(alive_every(&Env::from([("WATCHDOG_USEC", "0")]), 8), None);
        assert_eq!(alive_every(&Env::default(), 8), None);
    }

    #[tokio::test]
    async fn a_living_server_says_so_again_and_again() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("notify");
        let listener = tokio::net::UnixDatagram::bind(&path).expect("bound");
        let path = path.display().to_string();
        let env = Env::from([("NOTIFY_SOCKET", path.as_str()), ("WATCHDOG_USEC", "2000")]);
        let manager = Arc::new(ServiceManager::find(&env));
        let listening = async {
            for _ in 0..3 {
                let mut room = [0; 16];
                let bytes = listener.recv(&mut room).await.expect("a datagram");
                assert_eq!(&room[..bytes], b"WATCHDOG=1");
            }
        };
        tokio::select! {
            () = manager.keep_alive(vec![Handle::current()]) => panic!("it ended"),
            () = listening => {}
        }
    }

    #[tokio::test]
    async fn without_a_manager_nothing_is_said() {
        let manager = Arc::new(ServiceManager::find(&Env::default()));
        manager.ready("http://127.0.0.1:8080");
        manager.keep_alive(vec![Handle::current()]).await;
    }
}
