//! Whether the ports of a server are free, and who has them otherwise.

use std::net::{TcpListener, ToSocketAddrs as _};
use std::path::Path;

use jitney_settings::server::{
    GRPC_MANAGEMENT_PORT, GRPC_PORT, HOST, INFERENCE_PORT, MANAGEMENT_PORT, METRICS_PORT,
};
use jitney_settings::{Setting, Values};

use super::finding::Finding;

const AREA: &str = "Ports";

static PORTS: [&Setting; 5] =
    [&INFERENCE_PORT, &MANAGEMENT_PORT, &METRICS_PORT, &GRPC_PORT, &GRPC_MANAGEMENT_PORT];

/// Looks at every port; `server` is the process of the server that runs, if one does.
pub fn check(values: &Values, server: Option<u32>) -> Vec<Finding> {
    let host: String = values.value(&HOST);
    let named = PORTS.iter().filter_map(|setting| {
        let port: u16 = values.read(setting)?;
        (port != 0).then_some((*setting, port))
    });
    let taken: Vec<_> = named
        .filter_map(|(setting, port)| taken(&host, port).map(|why| (setting, port, why)))
        .collect();
    if taken.is_empty() {
        let ports = PORTS.iter().filter_map(|setting| values.show(setting));
        let ports: Vec<_> = ports.collect();
        return vec![Finding::ok(AREA, format!("{host}: {} are free", ports.join(", ")))];
    }
    taken
        .into_iter()
        .map(|(setting, port, why)| finding(&host, setting, port, &why, server))
        .collect()
}

fn finding(host: &str, setting: &Setting, port: u16, why: &str, server: Option<u32>) -> Finding {
    let owner = owner(Path::new("/proc"), port);
    let flag = setting.flag.unwrap_or(setting.name);
    let other =
        format!("another server needs another port: --{flag} PORT, or --{flag} 0 for a free one");
    match owner {
        Some(owner) if Some(owner.pid) == server || owner.name == "jitney" => Finding::note(
            AREA,
            format!(
                "{host}:{port} ({}) belongs to the running server, process {}",
                setting.name, owner.pid
            ),
            other,
        ),
        Some(owner) => Finding::problem(
            AREA,
            format!(
                "{host}:{port} ({}) is taken by {}, process {}",
                setting.name, owner.name, owner.pid
            ),
            format!("end it, or choose another port: --{flag} PORT"),
        ),
        None => Finding::problem(
            AREA,
            format!("{host}:{port} ({}) cannot be used: {why}", setting.name),
            format!("`ss -ltnp` may show whose it is; --{flag} PORT chooses another one"),
        ),
    }
}

/// Why a port cannot be listened on; the listener is closed at once.
fn taken(host: &str, port: u16) -> Option<String> {
    let host = host.trim_matches(['[', ']']);
    let mut addresses = match (host, port).to_socket_addrs() {
        Ok(addresses) => addresses,
        Err(error) => return Some(error.to_string()),
    };
    addresses.find_map(|address| TcpListener::bind(address).err()).map(|error| error.to_string())
}

/// The process that listens.
struct PortOwner {
    pid: u32,
    name: String,
}

/// Finds it among the processes that this user may look at.
fn owner(proc: &Path, port: u16) -> Option<PortOwner> {
    let tables = ["net/tcp", "net/tcp6"].map(|name| proc.join(name));
    let texts = tables.iter().filter_map(|table| std::fs::read_to_string(table).ok());
    let sockets: Vec<String> = texts
        .flat_map(|text| inodes(&text, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let processes = std::fs::read_dir(proc).ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find_map(|pid| {
        let files = std::fs::read_dir(proc.join(format!("{pid}/fd"))).ok()?.flatten();
        let mut links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        links.find(|link| sockets.iter().any(|socket| link.as_os_str() == socket.as_str()))?;
        let name = std::fs::read_to_string(proc.join(format!("{pid}/comm"))).unwrap_or_default();
        Some(PortOwner { pid, name: name.trim().to_owned() })
    })
}

/// The sockets of a table of the kernel that listen on a port.
fn inodes(table: &str, port: u16) -> Vec<u64> {
    const LISTENS: &str = "0A";
    let listening = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        let (_, local_port) = local.rsplit_once(':')?;
        let same = u16::from_str_radix(local_port, 16).ok()? == port && *state == LISTENS;
        same.then(|| inode.parse().ok()).flatten()
    };
    table.lines().filter_map(listening).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_port_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let port = listener.local_addr().expect("address").port();
        assert!(taken("127.0.0.1", port).is_some());
        let owner = owner(Path::new("/proc"), port).expect("an owner");
        assert_eq!(owner.pid, std::process::id());
        // Any free one. The port above may stay taken for a while: a process that another test starts has
        // the socket, too, until it runs its own program.
        assert_eq!(taken("127.0.0.1", 0), None);
    }

    #[test]
    fn only_sockets_that_listen_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode\n\
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1\n\
             1: 0100007F:1F90 0100007F:9999 01 00000000:00000000 00:00000000 00000000 0 0 4712 1\n";
        assert_eq!(inodes(table, 8080), [4711]);
        assert!(inodes(table, 8081).is_empty());
    }
}
