//! Addresses and the sockets that listen on them.
//!
//! Binding happens once, before any runtime exists, so that a taken port is an error of the command line
//! and not of a thread.

use std::io::{self, Error, ErrorKind};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use socket2::{Domain, Socket, Type};

const BACKLOG: i32 = 1024;

/// Where to listen. Written as `host:port`, `http://host:port`, `https://host:port` or
/// `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    /// A TCP address; port 0 takes a free one.
    Tcp(SocketAddr),
    /// A TCP address that speaks TLS.
    Tls(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Bind {
    /// Whether both stand for one listener. Two free ports are two listeners.
    pub fn is_same(&self, other: &Self) -> bool {
        let any_port =
            matches!(self, Self::Tcp(address) | Self::Tls(address) if address.port() == 0);
        self == other && !any_port
    }
}

impl FromStr for Bind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let (kind, rest, port): (fn(SocketAddr) -> Self, &str, u16) =
            match text.strip_prefix("https://") {
                Some(rest) => (Self::Tls, rest, 443),
                None => (Self::Tcp, text.strip_prefix("http://").unwrap_or(text), 80),
            };
        let bare = rest.trim_end_matches('/');
        let with_port = if bare.ends_with(']') || !bare.contains(':') {
            format!("{bare}:{port}")
        } else {
            bare.into()
        };
        let mut found = with_port.to_socket_addrs().map_err(|error| format!("{text}: {error}"))?;
        found.next().map(kind).ok_or_else(|| format!("{text}: no such address"))
    }
}

impl std::fmt::Display for Bind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}"),
            Self::Tls(address) => write!(f, "https://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A socket that listens and belongs to no runtime yet.
#[derive(Debug)]
pub enum ListenSocket {
    /// TCP.
    Tcp(TcpListener),
    /// TCP that speaks TLS.
    Tls(TcpListener),
    /// Unix.
    Unix(UnixListener),
}

impl ListenSocket {
    /// Another descriptor of the same socket.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Tcp(listener) | Self::Tls(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
        .try_clone_to_owned()
    }
}

/// Listens `count` times on one address, so that each of `count` threads has a listener of its own.
/// Returns the address as it came out, with the port that was free.
///
/// # Errors
/// The system's error, with the address in the text.
pub fn bind(bind: &Bind, count: usize) -> io::Result<(Bind, Vec<ListenSocket>)> {
    let bound = match bind {
        Bind::Tcp(address) => bind_tcp(*address, count).map(|(address, sockets)| {
            (Bind::Tcp(address), sockets.into_iter().map(ListenSocket::Tcp).collect())
        }),
        Bind::Tls(address) => bind_tcp(*address, count).map(|(address, sockets)| {
            (Bind::Tls(address), sockets.into_iter().map(ListenSocket::Tls).collect())
        }),
        Bind::Unix(path) => bind_unix(path, count),
    };
    bound.map_err(|error| Error::new(error.kind(), format!("cannot listen on {bind}: {error}")))
}

/// Threads share a port by SO_REUSEPORT. Since that would also let a second server in silently, a
/// socket without it asks first whether the port is free.
fn bind_tcp(address: SocketAddr, count: usize) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
    if count > 1 && address.port() != 0 {
        drop(tcp(address, false)?);
    }
    let first = tcp(address, count > 1)?;
    let address = first.local_addr()?;
    let mut sockets = vec![first];
    for _ in 1..count {
        sockets.push(tcp(address, true)?);
    }
    Ok((address, sockets))
}

fn tcp(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Threads share a Unix socket by accepting from the same queue.
fn bind_unix(path: &Path, count: usize) -> io::Result<(Bind, Vec<ListenSocket>)> {
    remove_stale(path)?;
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    let mut sockets = Vec::with_capacity(count);
    for _ in 1..count {
        sockets.push(ListenSocket::Unix(listener.try_clone()?));
    }
    sockets.push(ListenSocket::Unix(listener));
    Ok((Bind::Unix(path.to_owned()), sockets))
}

/// A socket file without a listener is left over from a server that was killed.
fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let stale = metadata.file_type().is_socket()
        && UnixStream::connect(path)
            .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    if stale { std::fs::remove_file(path) } else { Err(ErrorKind::AddrInUse.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_torchserve_writes_them() {
        for (text, expected) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
            ("0.0.0.0:1", "http://0.0.0.0:1"),
            ("http://127.0.0.1", "http://127.0.0.1:80"),
            ("[::1]:9", "http://[::1]:9"),
            ("http://[::1]", "http://[::1]:80"),
            ("https://127.0.0.1:8443/", "https://127.0.0.1:8443"),
            ("https://127.0.0.1", "https://127.0.0.1:443"),
            ("unix:/tmp/a.sock", "unix:/tmp/a.sock"),
        ] {
            assert_eq!(text.parse::<Bind>().map(|bind| bind.to_string()).as_deref(), Ok(expected));
        }
        assert!("127.0.0.1:port".parse::<Bind>().is_err());
    }

    #[test]
    fn threads_share_a_port_but_servers_do_not() {
        let any = Bind::Tcp(([127, 0, 0, 1], 0).into());
        let (address, sockets) = bind(&any, 3).unwrap();
        assert_eq!(sockets.len(), 3);
        assert!(address.is_same(&address) && !any.is_same(&any));
        for count in [1, 2] {
            let error = bind(&address, count).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AddrInUse);
            assert!(error.to_string().starts_with("cannot listen on http://127.0.0.1:"));
        }
    }
}
