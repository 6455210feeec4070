//! How a server gives its listening sockets to the one that replaces it, over a Unix socket that only their
//! user can open.
//!
//! The new server connects and is told how much memory the old one's workers use. It loads its models and then
//! asks for the sockets. Each comes as a byte with the descriptor attached (`SCM_RIGHTS`). Once the new server
//! accepts connections it says so, and only then does the old one stop accepting. If the connection ends at any
//! time before, the old server goes on as if nothing had been asked.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// The first byte that the old server sends.
const VERSION: u8 = 1;
/// The new server asks for the sockets.
const ASK: u8 = b'?';
/// A socket comes with this byte.
const SOCKET: u8 = b'+';
/// There are no more.
const DONE: u8 = b'.';
/// The new server accepts connections.
const TAKEN: u8 = b'!';
/// How long the other server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a server gives to the next one.
pub struct Handover {
    /// Its listening sockets.
    pub sockets: Vec<OwnedFd>,
    /// The memory of its workers, in bytes.
    pub worker_memory: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// Where a server waits for the next one. The file is removed with it, unless the next server has its place.
pub struct HandoverSocket {
    listener: UnixListener,
    path: PathBuf,
    handover: Arc<Handover>,
    given: bool,
}

impl HandoverSocket {
    /// Waits at the path, in the place of a server that waited there before.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn open(path: &Path, handover: Handover) -> io::Result<Self> {
        // Nobody finds it before it has its mode.
        let new = path.with_added_extension("new");
        let _ = fs::remove_file(&new);
        let listener = UnixListener::bind(&new)?;
        fs::set_permissions(&new, Permissions::from_mode(0o600))?;
        fs::rename(&new, path)?;
        Ok(Self { listener, path: path.to_owned(), handover: Arc::new(handover), given: false })
    }

    /// Resolves when another server has taken the sockets. May be dropped while it waits.
    pub async fn given(&mut self) {
        let mut peers = JoinSet::new();
        while !self.given {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((peer, _)) => drop(peers.spawn(give(peer, Arc::clone(&self.handover)))),
                    Err(error) => {
                        tracing::warn!(%error, "no other server can take the ports over");
                        tokio::time::sleep(PATIENCE).await;
                    }
                },
                Some(ended) = peers.join_next() => match ended {
                    Ok(Ok(())) => self.given = true,
                    Ok(Err(error)) => tracing::warn!(%error, "another server did not take the ports over"),
                    Err(panic) => tracing::error!(%panic, "the ports were not handed over"),
                },
            }
        }
    }
}

impl Drop for HandoverSocket {
    fn drop(&mut self) {
        if !self.given {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns once the peer has taken the sockets and accepts connections.
async fn give(mut peer: UnixStream, handover: Arc<Handover>) -> io::Result<()> {
    check_user(&peer)?;
    peer.write_u8(VERSION).await?;
    peer.write_u64((handover.worker_memory)()).await?;
    expect(&mut peer, ASK).await?;
    for socket in &handover.sockets {
        peer.async_io(Interest::WRITABLE, || send(&peer, socket)).await?;
    }
    peer.write_u8(DONE).await?;
    expect(&mut peer, TAKEN).await
}

/// The server that is to be replaced.
pub struct Predecessor {
    peer: UnixStream,
    /// The memory of its workers, in bytes.
    pub worker_memory: u64,
}

impl Predecessor {
    /// Finds the server that waits at the path, if there is one.
    ///
    /// # Errors
    /// Somebody listens there who is no server of this user.
    pub async fn find(path: &Path) -> io::Result<Option<Self>> {
        let absent = |error: &io::Error| {
            matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
        };
        let mut peer = match UnixStream::connect(path).await {
            Ok(peer) => peer,
            Err(error) if absent(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        check_user(&peer)?;
        let said = async {
            expect(&mut peer, VERSION).await?;
            peer.read_u64().await
        };
        let worker_memory = soon(said).await?;
        Ok(Some(Self { peer, worker_memory }))
    }

    /// Takes its listening sockets. Both servers hold them from now on.
    ///
    /// # Errors
    /// It has ended meanwhile.
    pub async fn take(&mut self) -> io::Result<Vec<OwnedFd>> {
        let taken = async {
            self.peer.write_u8(ASK).await?;
            let mut sockets = Vec::new();
            while let Some(socket) =
                self.peer.async_io(Interest::READABLE, || receive(&self.peer)).await?
            {
                sockets.push(socket);
            }
            Ok(sockets)
        };
        soon(taken).await
    }

    /// Tells it that this server accepts connections.
    ///
    /// # Errors
    /// It has ended meanwhile.
    pub async fn release(mut self) -> io::Result<()> {
        self.peer.write_u8(TAKEN).await
    }
}

/// Only the same user, or root, may take part: whoever has the sockets gets the requests.
fn check_user(peer: &UnixStream) -> io::Result<()> {
    let (theirs, ours) = (peer.peer_cred()?.uid(), rustix::process::geteuid().as_raw());
    if theirs == ours || theirs == 0 {
        return Ok(());
    }
    Err(io::Error::new(ErrorKind::PermissionDenied, format!("it belongs to user {theirs}")))
}

async fn expect(peer: &mut UnixStream, wanted: u8) -> io::Result<()> {
    match peer.read_u8().await? {
        byte if byte == wanted => Ok(()),
        _ => Err(io::Error::other("it speaks another protocol")),
    }
}

async fn soon<T>(answer: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|late| Err(late.into()))
}

fn send(peer: &UnixStream, socket: &OwnedFd) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut attached = SendAncillaryBuffer::new(&mut room);
    let sockets = [socket.as_fd()];
    attached.push(SendAncillaryMessage::ScmRights(&sockets));
    sendmsg(peer, &[IoSlice::new(&[SOCKET])], &mut attached, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next socket; none after the last.
fn receive(peer: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut attached = RecvAncillaryBuffer::new(&mut room);
    let mut byte = [0];
    // Workers must not inherit it.
    let flags = RecvFlags::CMSG_CLOEXEC;
    let read = recvmsg(peer, &mut [IoSliceMut::new(&mut byte)], &mut attached, flags)?;
    if read.bytes == 1 && byte == [DONE] {
        return Ok(None);
    }
    for message in attached.drain() {
        if let RecvAncillaryMessage::ScmRights(mut sockets) = message {
            return Ok(sockets.next());
        }
    }
    Err(ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A path of the test's own.
    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("jitney-{name}-{}", std::process::id()))
    }

    fn waiting(path: &Path, sockets: Vec<OwnedFd>) -> HandoverSocket {
        HandoverSocket::open(path, Handover { sockets, worker_memory: Box::new(|| 7) }).unwrap()
    }

    #[tokio::test]
    async fn the_next_server_gets_every_socket_and_the_place() {
        let path = path("handover");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sockets = vec![listener.try_clone().unwrap().into(), listener.into()];
        let mut old = waiting(&path, sockets);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let taking = async {
            let mut predecessor = Predecessor::find(&path).await.unwrap().unwrap();
            assert_eq!(predecessor.worker_memory, 7);
            let sockets = predecessor.take().await.unwrap();
            let new = waiting(&path, Vec::new());
            predecessor.release().await.unwrap();
            (sockets, new)
        };
        let ((), (sockets, new)) = tokio::join!(old.given(), taking);
        let listening = sockets.into_iter().map(|it| TcpListener::from(it).local_addr().unwrap());
        assert_eq!(listening.collect::<Vec<_>>(), [address, address]);
        drop(old);
        assert!(path.exists(), "it is the new server's");
        drop(new);
        assert!(!path.exists());
        assert!(Predecessor::find(&path).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_server_whose_successor_fails_goes_on_and_waits_for_another() {
        let path = path("handover-failed");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut old = waiting(&path, vec![listener.into()]);
        let failing = async {
            let mut early = Predecessor::find(&path).await.unwrap().unwrap();
            assert_eq!(early.take().await.unwrap().len(), 1);
            drop(early);
            Predecessor::find(&path).await.unwrap().unwrap()
        };
        tokio::select! {
            () = old.given() => panic!("nobody has taken them"),
            _still_loading = failing => {}
        }
        let again = async {
            let mut last = Predecessor::find(&path).await.unwrap().unwrap();
            assert_eq!(last.take().await.unwrap().len(), 1);
            last.release().await.unwrap();
        };
        tokio::join!(old.given(), again);
        drop(old);
        fs::remove_file(path).unwrap();
    }

    #[tokio::test]
    async fn a_file_that_nobody_listens_at_is_no_server() {
        let path = path("handover-stale");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(Predecessor::find(&path).await.unwrap().is_none());
        fs::write(path.with_added_extension("new"), "left over").unwrap();
        drop(waiting(&path, Vec::new()));
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn who_speaks_otherwise_is_an_error() {
        let path = path("handover-other");
        let other = UnixListener::bind(&path).unwrap();
        let speaking = async {
            let (mut peer, _) = other.accept().await.unwrap();
            peer.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            peer
        };
        let (found, _peer) = tokio::join!(Predecessor::find(&path), speaking);
        assert!(found.is_err_and(|error| error.to_string() == "it speaks another protocol"));
        fs::remove_file(path).unwrap();
    }
}
