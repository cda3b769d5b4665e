//! Those who have connected and haven't shown a token yet.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::task::AbortHandle;

/// Sends away whoever has been there longest of the address with the most strangers: a flood from one address doesn't keep out
/// those of others.
pub(super) fn evict(strangers: &mut VecDeque<(IpAddr, AbortHandle)>) {
    let count = |address: IpAddr| strangers.iter().filter(|(other, _)| *other == address).count();
    let most = strangers.iter().map(|(address, _)| count(*address)).max().unwrap_or(0);
    let oldest = strangers.iter().position(|(address, _)| count(*address) == most);
    if let Some((_, task)) = oldest.and_then(|place| strangers.remove(place)) {
        task.abort();
    }
}

/// Whether an address belongs to this pod: packets to it would come from itself.
pub(super) fn is_local(peer: SocketAddr) -> bool {
    let ip = peer.ip().to_canonical();
    if ip.is_loopback() || ip.is_unspecified() {
        return true;
    }
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // With its scope, which link-local addresses need.
    let there = match (peer, ip) {
        (SocketAddr::V6(_), IpAddr::V6(_)) => peer,
        _ => SocketAddr::new(ip, peer.port()),
    };
    // Connecting a UDP socket sends nothing; it only chooses the address that packets would have.
    let chosen = std::net::UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(there)?;
        socket.local_addr()
    });
    // Where that can't be told, it isn't trusted.
    chosen.map_or(true, |chosen| chosen.ip().to_canonical() == ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command could choose another of the pod's own addresses as its source, and was let in.
    #[test]
    fn every_address_of_this_machine_is_local() {
        let mut own: Vec<SocketAddr> = vec!["127.0.0.1:1".parse().unwrap(), "127.9.9.9:1".parse().unwrap()];
        own.extend(["[::1]:1", "[::ffff:127.0.0.1]:1", "0.0.0.0:1"].map(|text| text.parse::<SocketAddr>().unwrap()));
        // The address that packets to elsewhere would have, where there is a route.
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.1:9").is_ok() {
            let outward = socket.local_addr().unwrap();
            own.push(outward);
            let IpAddr::V4(ip) = outward.ip() else { panic!("{outward}") };
            own.push(SocketAddr::new(ip.to_ipv6_mapped().into(), 1));
            assert!(!is_local("192.0.2.1:9".parse().unwrap()));
            assert!(!is_local("[::ffff:192.0.2.1]:9".parse().unwrap()));
        }
        for address in own {
            assert!(is_local(address), "{address}");
        }
    }

    #[tokio::test]
    async fn a_flood_from_one_address_keeps_nobody_else_out() {
        let idle = || tokio::spawn(std::future::pending::<()>()).abort_handle();
        let (flood, other): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let mut strangers: VecDeque<_> = [(other, idle()), (flood, idle()), (flood, idle()), (flood, idle())].into();
        evict(&mut strangers);
        evict(&mut strangers);
        let left: Vec<IpAddr> = strangers.iter().map(|(address, _)| *address).collect();
        assert_eq!(left, [other, flood], "the one that came first was sent away");
    }
}
