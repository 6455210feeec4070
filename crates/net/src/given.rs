//! Sockets that listen already, because somebody else bound them: the service manager, or the server that this
//! one replaces. Connections that wait in their backlogs are not lost on the way.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use socket2::{SockAddr, Socket, Type};

use crate::listen::{self, Bind, ListenSocket};

/// Sockets that nobody has taken yet.
#[derive(Debug, Default)]
pub struct GivenSockets(Vec<GivenSocket>);

#[derive(Debug)]
struct GivenSocket {
    socket: Socket,
    address: SockAddr,
    /// What the service manager calls it; it keeps the socket when this server ends.
    name: Option<String>,
}

/// The sockets of one listener.
#[derive(Debug)]
pub struct BoundSockets {
    /// The address, with the port that was free.
    pub address: Bind,
    /// One per thread, or more where more were given.
    pub sockets: Vec<ListenSocket>,
    /// Whether the service manager keeps them when this server ends.
    pub lent: bool,
}

impl GivenSockets {
    /// Adds a socket, with its name where the service manager lends it.
    ///
    /// # Errors
    /// It does not listen for streams.
    pub fn add(&mut self, descriptor: OwnedFd, name: Option<String>) -> io::Result<()> {
        let socket = Socket::from(descriptor);
        if !socket.is_listener()? || socket.r#type()? != Type::STREAM {
            return Err(io::Error::other("it is no stream socket that listens"));
        }
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        self.0.push(GivenSocket { socket, address, name });
        Ok(())
    }

    /// Whether the service manager lends any.
    pub fn any_lent(&self) -> bool {
        self.0.iter().any(|given| given.name.is_some())
    }

    /// The addresses of those that nobody has taken.
    pub fn left(&self) -> Vec<String> {
        let text = |address: &SockAddr| match (address.as_socket(), address.as_pathname()) {
            (Some(address), _) => address.to_string(),
            (None, path) => format!("unix:{}", path.unwrap_or(Path::new("")).display()),
        };
        self.0.iter().map(|given| text(&given.address)).collect()
    }

    /// The sockets of the listener with this name: those that were given for it or for its address, or new ones,
    /// `count` of them. Threads for which there is none accept from the same queue as another.
    ///
    /// # Errors
    /// The system's error, with the address in the text.
    pub fn bind(&mut self, bind: &Bind, name: &str, count: usize) -> io::Result<BoundSockets> {
        let fits = |given: &mut GivenSocket| {
            given.name.as_deref() == Some(name) || is_at(&given.address, bind)
        };
        let given: Vec<GivenSocket> = self.0.extract_if(.., fits).collect();
        let Some(first) = given.first() else {
            let (address, sockets) = listen::bind(bind, count)?;
            return Ok(BoundSockets { address, sockets, lent: false });
        };
        let address = address(&first.address, bind)?;
        let sockets = given.iter().cycle().take(count.max(given.len()));
        let sockets = sockets.map(|given| Ok(listening(given.socket.try_clone()?, &address)));
        let sockets = sockets.collect::<io::Result<_>>()?;
        Ok(BoundSockets { sockets, address, lent: first.name.is_some() })
    }
}

/// Any address of the machine is the same in both versions of IP: a socket of the one takes the other in, too.
fn is_at(address: &SockAddr, bind: &Bind) -> bool {
    match (bind, address.as_socket()) {
        (Bind::Tcp(wanted) | Bind::Tls(wanted), Some(address)) => {
            let any = wanted.ip().is_unspecified() && address.ip().is_unspecified();
            *wanted == address || (any && wanted.port() == address.port())
        }
        (Bind::Unix(path), None) => address.as_pathname() == Some(path),
        (Bind::Tcp(_) | Bind::Tls(_), None) | (Bind::Unix(_), Some(_)) => false,
    }
}

/// Where a socket listens; whether it speaks TLS is said by the configuration.
fn address(address: &SockAddr, configured: &Bind) -> io::Result<Bind> {
    match (address.as_socket(), configured) {
        (Some(address), Bind::Tls(_)) => Ok(Bind::Tls(address)),
        (Some(address), Bind::Tcp(_) | Bind::Unix(_)) => Ok(Bind::Tcp(address)),
        (None, _) => {
            let path = address.as_pathname().ok_or_else(|| io::Error::other("it has no address"));
            path.map(|path| Bind::Unix(path.to_owned()))
        }
    }
}

fn listening(socket: Socket, address: &Bind) -> ListenSocket {
    match address {
        Bind::Tcp(_) => ListenSocket::Tcp(socket.into()),
        Bind::Tls(_) => ListenSocket::Tls(socket.into()),
        Bind::Unix(_) => ListenSocket::Unix(socket.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    fn port() -> (SocketAddr, OwnedFd) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        (listener.local_addr().unwrap(), listener.into())
    }

    #[test]
    fn a_socket_is_taken_by_its_address_or_by_its_name() {
        let ((here, one), (there, other)) = (port(), port());
        let mut given = GivenSockets::default();
        given.add(one, None).unwrap();
        given.add(other, Some("metrics".to_owned())).unwrap();
        assert!(given.any_lent());
        let bound = given.bind(&Bind::Tls(here), "inference", 1).unwrap();
        assert_eq!((&bound.address, bound.lent), (&Bind::Tls(here), false));
        assert!(matches!(bound.sockets[..], [ListenSocket::Tls(_)]));
        assert_eq!(given.left(), [there.to_string()]);
        let any = Bind::Tcp(([127, 0, 0, 1], 0).into());
        let bound = given.bind(&any, "metrics", 1).unwrap();
        assert_eq!((&bound.address, bound.lent), (&Bind::Tcp(there), true));
        let bound = given.bind(&any, "management", 1).unwrap();
        assert!(![Bind::Tcp(here), Bind::Tcp(there)].contains(&bound.address));
    }

    #[test]
    fn any_address_of_the_machine_is_one_address() {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut given = GivenSockets::default();
        given.add(listener.into(), None).unwrap();
        let bound = given.bind(&format!("[::]:{port}").parse().unwrap(), "inference", 1).unwrap();
        assert_eq!(bound.address, Bind::Tcp(([0, 0, 0, 0], port).into()));
    }

    #[test]
    fn every_thread_accepts_and_every_socket_is_accepted_from() {
        for (threads, sockets) in [(3, 1), (1, 1), (1, 3)] {
            let (address, shared) = listen::bind(&"127.0.0.1:0".parse().unwrap(), sockets).unwrap();
            let mut given = GivenSockets::default();
            for socket in shared {
                given.add(socket.duplicate().unwrap(), None).unwrap();
            }
            let bound = given.bind(&address, "inference", threads).unwrap();
            assert_eq!(bound.sockets.len(), threads.max(sockets));
            assert!(given.left().is_empty());
        }
    }

    #[test]
    fn clients_that_wait_are_handed_over_with_the_socket() {
        let directory = std::env::temp_dir().join(format!("jitney-given-{}", std::process::id()));
        let listener = UnixListener::bind(&directory).unwrap();
        let _client = UnixStream::connect(&directory).unwrap();
        let mut given = GivenSockets::default();
        given.add(listener.into(), None).unwrap();
        let bound = given.bind(&Bind::Unix(directory.clone()), "inference", 1).unwrap();
        let [ListenSocket::Unix(listener)] = &bound.sockets[..] else { panic!("{bound:?}") };
        assert!(listener.accept().is_ok());
        std::fs::remove_file(directory).unwrap();
    }

    #[test]
    fn what_does_not_listen_is_not_taken() {
        let (address, listener) = port();
        let client = TcpStream::connect(address).unwrap();
        assert!(GivenSockets::default().add(client.into(), None).is_err());
        assert!(GivenSockets::default().add(listener, None).is_ok());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(GivenSockets::default().add(file.into(), None).is_err());
    }
}
