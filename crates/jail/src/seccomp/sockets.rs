//! Which sockets can be made: the types of each family, and the protocols of each type. All others are refused.
//!
//! Protocol 0 means the family's default for a type, so checking the protocol alone would leave SCTP and DCCP open.

use seccompiler::SeccompCmpOp as Op;

use super::{Built, Rules, rule};

/// The part of a socket's type that isn't flags.
const KIND: u64 = 0xf;

/// A family's types, each with its protocols.
pub(super) struct Family {
    number: i32,
    kinds: &'static [(i32, &'static [i32])],
}

/// The one protocol of UNIX sockets has two numbers.
const OWN: &[i32] = &[0, libc::PF_UNIX];

pub(super) const UNIX: Family = Family {
    number: libc::AF_UNIX,
    kinds: &[(libc::SOCK_STREAM, OWN), (libc::SOCK_DGRAM, OWN), (libc::SOCK_SEQPACKET, OWN)],
};

/// Streams only: an unconnected datagram socket could send to any address, such as the host's log and bus.
pub(super) const UNIX_STREAMS: Family = Family { number: libc::AF_UNIX, kinds: &[(libc::SOCK_STREAM, OWN)] };

/// Types whose pairs stay connected.
pub(super) const UNIX_CONNECTED: Family =
    Family { number: libc::AF_UNIX, kinds: &[(libc::SOCK_STREAM, OWN), (libc::SOCK_SEQPACKET, OWN)] };

const STREAMS: &[i32] = &[libc::IPPROTO_IP, libc::IPPROTO_TCP, libc::IPPROTO_MPTCP];

/// TCP, UDP, route lookups (for getaddrinfo), and `ping` where the machine allows it to everyone.
pub(super) const NETWORK: [Family; 3] = [
    Family {
        number: libc::AF_INET,
        kinds: &[
            (libc::SOCK_STREAM, STREAMS),
            (libc::SOCK_DGRAM, &[libc::IPPROTO_IP, libc::IPPROTO_UDP, libc::IPPROTO_ICMP]),
        ],
    },
    Family {
        number: libc::AF_INET6,
        kinds: &[
            (libc::SOCK_STREAM, STREAMS),
            (libc::SOCK_DGRAM, &[libc::IPPROTO_IP, libc::IPPROTO_UDP, libc::IPPROTO_ICMPV6]),
        ],
    },
    Family {
        number: libc::AF_NETLINK,
        kinds: &[(libc::SOCK_RAW, &[libc::NETLINK_ROUTE]), (libc::SOCK_DGRAM, &[libc::NETLINK_ROUTE])],
    },
];

/// In a container also the audit log: `useradd` fails if it can't open that socket.
pub(super) const AUDITED: Family = Family {
    number: libc::AF_NETLINK,
    kinds: &[(libc::SOCK_RAW, &[libc::NETLINK_ROUTE, libc::NETLINK_AUDIT]), (libc::SOCK_DGRAM, &[libc::NETLINK_ROUTE])],
};

/// Allows a call (`socket` or `socketpair`) to make these sockets and no others.
pub(super) fn allow(rules: &mut Rules, call: libc::c_long, families: &[&Family]) -> Built<()> {
    let number = |family: &Family| family.number as u64;
    if families.is_empty() {
        rules.insert(call, Vec::new());
        return Ok(());
    }
    let other: Vec<_> = families.iter().map(|family| (0, Op::Ne, number(family))).collect();
    let mut denied = vec![rule(&other)?];
    for family in families {
        let mut other_kind = vec![(0, Op::Eq, number(family))];
        for (kind, protocols) in family.kinds {
            for flags in [0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK] {
                other_kind.push((1, Op::Ne, (kind | flags) as u64));
            }
            let mut other_protocol = vec![(0, Op::Eq, number(family)), (1, Op::MaskedEq(KIND), *kind as u64)];
            other_protocol.extend(protocols.iter().map(|protocol| (2, Op::Ne, *protocol as u64)));
            denied.push(rule(&other_protocol)?);
        }
        denied.push(rule(&other_kind)?);
    }
    rules.insert(call, denied);
    Ok(())
}
