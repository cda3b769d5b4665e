//! The network, and the host's sockets.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::time::Duration;

use podbay_jail::{Mount, Network};

use crate::harness::{Case, World, attempt};
use crate::raw::{call, refused};

pub(crate) const CASES: &[Case] = &[
    ("the_hosts_network_is_not_reached", no_network),
    ("the_hosts_abstract_sockets_are_not_reached", abstract_sockets),
    ("the_hosts_unix_sockets_are_not_reached", unix_sockets),
    ("only_usual_sockets_can_be_made", kinds),
    ("the_sandboxs_own_loopback_works", own_loopback),
    ("the_hosts_network_can_be_given", host_network),
];

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    assert!(TcpStream::connect(address).is_ok(), "the control: outside it can be reached");
    (listener, address)
}

fn no_network(world: &World) {
    let (_listener, address) = listener();
    attempt(&world.jail(), || {
        let far = ["1.1.1.1:53", "169.254.169.254:80", "10.0.0.1:443", "[2606:4700:4700::1111]:53"];
        for target in far.map(|target| target.parse().unwrap()).into_iter().chain([address]) {
            if TcpStream::connect_timeout(&target, Duration::from_millis(300)).is_ok() {
                return Err(format!("{target} was reached"));
            }
            let local = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            if !target.ip().is_loopback()
                && UdpSocket::bind(local).is_ok_and(|socket| socket.send_to(b"x", target).is_ok())
            {
                return Err(format!("a datagram left for {target}"));
            }
        }
        let devices = std::fs::read_to_string("/proc/net/dev").unwrap();
        let names: Vec<_> = devices.lines().skip(2).map(|line| line.split(':').next().unwrap().trim()).collect();
        // Some kernels make tunnel devices in every namespace; they are down.
        let anchors =
            ["lo", "tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6gre0"];
        match names.iter().all(|name| anchors.contains(name)) {
            true => Ok(()),
            false => Err(format!("there are {names:?}")),
        }
    });
}

fn abstract_sockets(world: &World) {
    let address = UnixAddr::from_abstract_name(format!("podbay-test-{}", std::process::id())).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    assert!(UnixStream::connect_addr(&address).is_ok(), "the control: outside it can be reached");
    // With the host's network, Landlock protects the abstract sockets.
    for network in [Network::None, Network::Host] {
        let mut jail = world.jail();
        jail.network = network;
        attempt(&jail, || match UnixStream::connect_addr(&address) {
            Err(_) => Ok(()),
            Ok(_) => Err(format!("reached with network {network:?}")),
        });
    }
}

fn unix_sockets(world: &World) {
    let path = world.scratch.join("s");
    let _listener = UnixListener::bind(&path).unwrap();
    assert!(UnixStream::connect(&path).is_ok(), "the control: outside it can be reached");
    attempt(&world.jail(), || {
        let usual = ["/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private"];
        let found = usual.into_iter().find(|path| UnixStream::connect(path).is_ok());
        match (UnixStream::connect(&path), found) {
            (Err(_), None) => Ok(()),
            (own, found) => Err(format!("{own:?} {found:?}")),
        }
    });
    // A mounted socket can be used.
    let mut jail = world.jail();
    jail.mounts.push(Mount { host: path, inside: "/given.sock".into(), writable: true });
    attempt(&jail, || UnixStream::connect("/given.sock").map(drop).map_err(|error| error.to_string()));
}

fn kinds(world: &World) {
    for network in [Network::None, Network::Host] {
        let mut jail = world.jail();
        jail.network = network;
        attempt(&jail, || {
            let socket = |family: i32, kind: i32, protocol: i32| {
                let arguments = [family as u64, kind as u64, protocol as u64, 0, 0, 0];
                refused(&format!("socket({family}, {kind}, {protocol})"), libc::SYS_socket, arguments, libc::EPERM)
            };
            for flags in [0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK] {
                socket(libc::AF_INET, libc::SOCK_RAW | flags, libc::IPPROTO_ICMP)?;
                socket(libc::AF_INET6, libc::SOCK_RAW | flags, libc::IPPROTO_RAW)?;
                socket(libc::AF_PACKET, libc::SOCK_RAW | flags, 0x0300)?;
                socket(libc::AF_PACKET, libc::SOCK_DGRAM | flags, 0x0300)?;
                socket(libc::AF_INET, 10 | flags, 0x0300)?;
            }
            socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)?;
            socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0)?;
            socket(libc::AF_BLUETOOTH, libc::SOCK_RAW, 0)?;
            socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER)?;
            socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_KOBJECT_UEVENT)?;
            socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT)?;
            socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP)?;
            // DCCP and SCTP were available as protocol 0 of types that weren't checked. Everything that isn't on this list is
            // refused; the kernel may lack some of the rest.
            let usual = [
                (libc::AF_UNIX, vec![libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_SEQPACKET], vec![0, 1]),
                (libc::AF_NETLINK, vec![libc::SOCK_RAW, libc::SOCK_DGRAM], vec![libc::NETLINK_ROUTE]),
                (libc::AF_INET, vec![libc::SOCK_STREAM], vec![0, libc::IPPROTO_TCP, libc::IPPROTO_MPTCP]),
                (libc::AF_INET6, vec![libc::SOCK_STREAM], vec![0, libc::IPPROTO_TCP, libc::IPPROTO_MPTCP]),
                (libc::AF_INET, vec![libc::SOCK_DGRAM], vec![0, libc::IPPROTO_UDP, libc::IPPROTO_ICMP]),
                (libc::AF_INET6, vec![libc::SOCK_DGRAM], vec![0, libc::IPPROTO_UDP, libc::IPPROTO_ICMPV6]),
            ];
            for (family, kind) in (0..48).flat_map(|family| (0..16).map(move |kind| (family, kind))) {
                for protocol in (0..24).chain([33, 58, 94, 132, 136, 255, 256, libc::IPPROTO_MPTCP, 263]) {
                    let is = |(of, kinds, protocols): &(i32, Vec<i32>, Vec<i32>)| {
                        *of == family && kinds.contains(&kind) && protocols.contains(&protocol)
                    };
                    if !usual.iter().any(is) {
                        socket(family, kind, protocol)?;
                        let pair = [family as u64, kind as u64, protocol as u64, 0, 0, 0];
                        refused("socketpair", libc::SYS_socketpair, pair, libc::EPERM)?;
                    }
                }
            }
            for (family, kinds, protocols) in usual {
                for kind in kinds.iter().flat_map(|kind| [*kind, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK]) {
                    let made = call(libc::SYS_socket, [family as u64, kind as u64, protocols[0] as u64, 0, 0, 0]);
                    made.map_err(|errno| format!("the control: socket({family}, {kind}): errno {errno}"))?;
                }
            }
            Ok(())
        });
    }
}

fn own_loopback(world: &World) {
    attempt(&world.jail(), || {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).map_err(|error| format!("{address}: {error}"))?;
            TcpStream::connect(listener.local_addr().unwrap()).map_err(|error| format!("{address}: {error}"))?;
        }
        Ok(())
    });
}

fn host_network(world: &World) {
    let (listener, address) = listener();
    listener.set_nonblocking(true).unwrap();
    while listener.accept().is_ok() {}
    let mut jail = world.jail();
    jail.network = Network::Host;
    attempt(&jail, || {
        let mut stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        let _ = stream.read(&mut [0]);
        let outside = std::fs::read("/etc/resolv.conf").unwrap_or_default();
        if outside.is_empty() {
            println!("the host has no resolver")
        }
        Ok(())
    });
    assert!(listener.accept().is_ok());
}
