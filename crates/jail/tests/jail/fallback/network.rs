//! Sockets: none but UNIX pairs, unless the network is the host's.

use std::fs;
use std::net::{TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};

use podbay_jail::Network;

use super::{attempt_as_command, jail};
use crate::harness::{World, attempt};
use crate::raw::refused;

pub(super) fn sockets(world: &World) {
    let jail = jail(world);
    let address = SocketAddr::from_abstract_name(format!("podbay-test-{}", std::process::id())).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    // A socket with a path, like those of the host's log and bus. Landlock doesn't restrict connecting to them.
    let path = world.scratch.join("datagrams");
    let log = UnixDatagram::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    log.set_nonblocking(true).unwrap();
    attempt_as_command(&jail, || {
        if UnixDatagram::pair().is_ok_and(|(one, _)| one.send_to(b"x", &path).is_ok()) {
            return Err("one end of a pair reached a socket of the host".into());
        }
        for family in 0..46_u64 {
            for kind in 1..=10 {
                refused(&format!("socket {family} {kind}"), libc::SYS_socket, [family, kind, 0, 0, 0, 0], libc::EPERM)?;
            }
        }
        if UnixStream::connect_addr(&address).is_ok() || UnixStream::connect("/run/docker.sock").is_ok() {
            return Err("a unix socket of the host was reached".into());
        }
        if TcpStream::connect("127.0.0.1:1").is_err_and(|e| e.raw_os_error() != Some(libc::EPERM)) {
            return Err("a TCP socket was made".into());
        }
        if UdpSocket::bind("0.0.0.0:0").is_ok() {
            return Err("a UDP socket was made".into());
        }
        UnixStream::pair().map(drop).map_err(|error| format!("the control: a pair can be made: {error}"))
    });
    assert!(log.recv(&mut [0; 8]).is_err(), "something came");
    // podbayd itself has UNIX stream sockets only.
    attempt(&jail, || {
        UnixListener::bind(jail.workspace.as_ref().unwrap().join("own")).map_err(|error| error.to_string())?;
        if UnixDatagram::unbound().is_ok() || UdpSocket::bind("0.0.0.0:0").is_ok() {
            return Err("podbayd can make other sockets".into());
        }
        if UnixStream::connect_addr(&address).is_ok() {
            return Err("podbayd reached an abstract socket of the host".into());
        }
        Ok(())
    });
}

pub(super) fn network(world: &World) {
    let mut jail = jail(world);
    jail.network = Network::Host;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let path = world.scratch.join("socket");
    let _other = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    attempt_as_command(&jail, || {
        TcpStream::connect(address).map_err(|error| format!("the control: {error}"))?;
        UdpSocket::bind("127.0.0.1:0").map_err(|error| format!("the control: {error}"))?;
        match UnixStream::connect(&path) {
            Ok(_) => Err("a unix socket of the host was reached".into()),
            Err(_) => Ok(()),
        }
    });
}
