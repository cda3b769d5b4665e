//! Whose connection it is, where no token says so.
//!
//! A loopback address keeps other machines out, not other users of this one. On Linux the kernel's table of sockets has the user
//! at the other end, and only the server's own user and root are served. Other systems have no such table: there every user of
//! the machine can use a server without tokens.

#[cfg(target_os = "linux")]
pub(super) use linux::check;

/// Why a connection isn't served.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "nobody is a stranger there"))]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Stranger {
    /// It is another user's.
    #[error(
        "connection from user {uid} refused: without a token file, only the server's own user ({own}) and root can \
         connect; start the server with --token-file to allow others"
    )]
    Other { uid: u32, own: u32 },
    /// Nobody says whose it is.
    #[error("can't determine which user opened this connection ({0}); start the server with --token-file")]
    Unknown(String),
}

/// Elsewhere nothing says whose a connection is.
#[cfg(not(target_os = "linux"))]
pub(super) async fn check(_: &tokio::net::TcpStream) -> Result<(), Stranger> {
    Ok(())
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::ErrorKind;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

    use tokio::net::TcpStream;
    use tokio::sync::Mutex;

    use super::Stranger;

    /// The administrator, who can become any other user anyway.
    const ROOT: u32 = 0;

    /// What the kernel shows for users that this user namespace doesn't know, whoever they are. Where the server itself has this
    /// uid, nobody can be told apart.
    const OVERFLOW: u32 = 65_534;

    /// How often a socket is looked for. The table is read piece by piece, and a row can slip through when another one goes.
    const TRIES: usize = 3;

    /// Reading the table takes the kernel a while where there are many sockets: a flood of connections waits in line.
    static TURN: Mutex<()> = Mutex::const_new(());

    /// Whether a connection may be served without a token.
    pub(in crate::http) async fn check(stream: &TcpStream) -> Result<(), Stranger> {
        let unknown = |error: std::io::Error| Stranger::Unknown(error.to_string());
        let (client, server) = (stream.peer_addr().map_err(unknown)?, stream.local_addr().map_err(unknown)?);
        let _turn = TURN.lock().await;
        let found = tokio::task::spawn_blocking(move || owner(|| table(client, server))).await;
        let uid = found.map_err(|error| Stranger::Unknown(error.to_string()))??;
        admit(uid, rustix::process::geteuid().as_raw())
    }

    fn admit(uid: u32, own: u32) -> Result<(), Stranger> {
        match uid {
            OVERFLOW => Err(Stranger::Unknown(format!("its uid, {OVERFLOW}, stands for any user"))),
            uid if uid == own || uid == ROOT => Ok(()),
            uid => Err(Stranger::Other { uid, own }),
        }
    }

    /// A row of the table.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Socket {
        uid: u32,
        inode: u64,
    }

    /// The user of the socket that `look` finds.
    ///
    /// A socket that its process has closed has no inode any more, and older kernels show it as root's. So a uid counts only if
    /// the socket had its inode still when it was looked at once more.
    fn owner(look: impl Fn() -> std::io::Result<Vec<Socket>>) -> Result<u32, Stranger> {
        let look = || look().map_err(|error| Stranger::Unknown(format!("the kernel's table of sockets: {error}")));
        for _ in 0..TRIES {
            let (first, second) = (look()?, look()?);
            match (&first[..], &second[..]) {
                ([first], [second]) if first == second && first.inode != 0 => return Ok(first.uid),
                ([_], [_]) => return Err(Stranger::Unknown("its other end was closed".to_owned())),
                _ => {}
            }
        }
        Err(Stranger::Unknown("the kernel's table of sockets doesn't have its other end".to_owned()))
    }

    /// The client's sockets of a connection: one, unless it is gone.
    fn table(client: SocketAddr, server: SocketAddr) -> std::io::Result<Vec<Socket>> {
        let mut found = sockets(&std::fs::read_to_string("/proc/net/tcp")?, client, server);
        match std::fs::read_to_string("/proc/net/tcp6") {
            Ok(table) => found.extend(sockets(&table, client, server)),
            // Without IPv6 there is no such table.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        // A row can be read twice when others go or come.
        found.dedup();
        Ok(found)
    }

    /// The rows of a table whose own end is `client` and whose other end is `server`.
    fn sockets(table: &str, client: SocketAddr, server: SocketAddr) -> Vec<Socket> {
        let ends = (plain(client), plain(server));
        table
            .lines()
            .filter_map(row)
            .filter(|(own, other, _)| (*own, *other) == ends)
            .map(|(_, _, socket)| socket)
            .collect()
    }

    /// A socket for both families has IPv4 addresses in the form of IPv6; they are the same.
    fn plain(address: SocketAddr) -> (IpAddr, u16) {
        (address.ip().to_canonical(), address.port())
    }

    type End = (IpAddr, u16);

    /// `sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode …`; nothing for the heading.
    fn row(line: &str) -> Option<(End, End, Socket)> {
        let mut fields = line.split_ascii_whitespace();
        let own = end(fields.nth(1)?)?;
        let other = end(fields.next()?)?;
        let uid = fields.nth(4)?.parse().ok()?;
        let inode = fields.nth(1)?.parse().ok()?;
        Some((own, other, Socket { uid, inode }))
    }

    /// `0100007F:1F90`: the address in words of 32 bits as they are in memory, the port as a number.
    fn end(text: &str) -> Option<End> {
        let (address, port) = text.split_once(':')?;
        let word = |index: usize| {
            let digits = address.get(8 * index..8 * index + 8)?;
            Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
        };
        let ip = match address.len() {
            8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
            32 => {
                let mut bytes = [0; 16];
                for (index, piece) in bytes.chunks_exact_mut(4).enumerate() {
                    piece.copy_from_slice(&word(index)?);
                }
                IpAddr::V6(Ipv6Addr::from(bytes))
            }
            _ => return None,
        };
        Some((ip.to_canonical(), u16::from_str_radix(port, 16).ok()?))
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use tokio::net::TcpListener;

        const V4: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:22E3 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 111 1 0000000000000000 100 0 0 10 0\n   \
            1: 0100007F:A3F2 0100007F:22E3 01 00000000:00000000 00:00000000 00000000  1001        0 222 1 0000000000000000 20 4 30 10 -1\n   \
            2: 0100007F:22E3 0100007F:A3F2 01 00000000:00000000 00:00000000 00000000  1000        0 333 1 0000000000000000 20 4 30 10 -1\n   \
            3: 0100007F:A3F3 0100007F:22E3 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0000000000000000 20 4 30 10 -1\n";

        const V6: &str = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 00000000000000000000000001000000:A3F2 00000000000000000000000001000000:22E3 01 00000000:00000000 00:00000000 00000000  1002        0 444 1 0000000000000000 20 4 30 10 -1\n   \
            1: 0000000000000000FFFF00000100007F:A3F4 0000000000000000FFFF00000100007F:22E3 01 00000000:00000000 00:00000000 00000000  1003        0 555 1 0000000000000000 20 4 30 10 -1\n";

        fn found(table: &str, client: &str, server: &str) -> Vec<(u32, u64)> {
            let rows = sockets(table, client.parse().unwrap(), server.parse().unwrap());
            rows.iter().map(|socket| (socket.uid, socket.inode)).collect()
        }

        #[test]
        #[cfg(target_endian = "little")]
        fn the_clients_row_is_found() {
            // Not the server's own end, which has the server's uid, nor the one that listens.
            assert_eq!(found(V4, "127.0.0.1:41970", "127.0.0.1:8931"), [(1001, 222)]);
            assert_eq!(found(V4, "127.0.0.1:41971", "127.0.0.1:8931"), [(0, 0)]);
            assert_eq!(found(V6, "[::1]:41970", "[::1]:8931"), [(1002, 444)]);
            // A socket for both families.
            assert_eq!(found(V6, "127.0.0.1:41972", "127.0.0.1:8931"), [(1003, 555)]);
            assert_eq!(found(V6, "[::ffff:127.0.0.1]:41972", "[::ffff:127.0.0.1]:8931"), [(1003, 555)]);
            for (client, server) in [
                ("127.0.0.1:41970", "127.0.0.1:8932"),
                ("127.0.0.2:41970", "127.0.0.1:8931"),
                ("[::1]:41970", "127.0.0.1:8931"),
                ("127.0.0.1:8931", "0.0.0.0:1"),
            ] {
                assert_eq!(found(V4, client, server), [], "{client} {server}");
            }
        }

        #[test]
        fn what_is_no_row_is_passed_over() {
            for line in
                ["", "sl", "0: 0100007F:22E3", "0: x:y x:y 01 0:0 0:0 0 0 0 0", "0: é00007F:1 0100007F:1 0 0 0 0 0 0 0"]
            {
                assert_eq!(row(line), None, "{line}");
            }
            for bad in ["", ":", "0100007F", "0100007F:", "0100007F:10000", "010000:1", "0100007G:1", "ÄÄÄÄ:1"] {
                assert_eq!(end(bad), None, "{bad}");
            }
        }

        #[test]
        fn the_servers_user_and_root_are_served() {
            assert_eq!(admit(1000, 1000), Ok(()));
            assert_eq!(admit(0, 1000), Ok(()));
            assert_eq!(admit(0, 0), Ok(()));
            assert_eq!(admit(1001, 1000), Err(Stranger::Other { uid: 1001, own: 1000 }));
            assert_eq!(admit(1000, 0), Err(Stranger::Other { uid: 1000, own: 0 }));
            // Whoever is shown like this may be anybody.
            for own in [0, 1000, OVERFLOW] {
                assert!(matches!(admit(OVERFLOW, own), Err(Stranger::Unknown(_))));
            }
        }

        #[test]
        fn a_uid_counts_only_while_the_socket_has_its_inode() {
            let looks = |rows: &'static [&'static [(u32, u64)]]| {
                let next = std::cell::Cell::new(0);
                owner(move || {
                    let row = rows[next.get().min(rows.len() - 1)];
                    next.set(next.get() + 1);
                    Ok(row.iter().map(|&(uid, inode)| Socket { uid, inode }).collect())
                })
            };
            assert_eq!(looks(&[&[(7, 1)]]), Ok(7));
            // A row that slipped through once.
            assert_eq!(looks(&[&[], &[(7, 1)]]), Ok(7));
            let strangers: [&[&[(u32, u64)]]; 6] = [
                &[&[]],
                &[&[(0, 0)]],
                &[&[(7, 1)], &[(0, 0)]],
                &[&[(0, 1)], &[(0, 0)]],
                &[&[(7, 1)], &[(7, 2)]],
                &[&[(7, 1), (8, 2)]],
            ];
            for strange in strangers {
                assert!(matches!(looks(strange), Err(Stranger::Unknown(_))), "{strange:?}");
            }
            let error = owner(|| Err(std::io::Error::from(ErrorKind::PermissionDenied))).unwrap_err();
            assert!(error.to_string().contains("--token-file"), "{error}");
        }

        #[tokio::test]
        async fn the_kernel_knows_who_connects() {
            let own = rustix::process::geteuid().as_raw();
            for address in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
                // Not every machine has IPv6.
                let Ok(listener) = TcpListener::bind(address).await else { continue };
                let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                let (server, _) = listener.accept().await.unwrap();
                assert_eq!(check(&server).await, admit(own, own), "{address}");
                drop(client);
                // Older kernels say that it is root's.
                assert!(matches!(check(&server).await, Err(Stranger::Unknown(_))), "{address}");
            }
        }
    }
}
