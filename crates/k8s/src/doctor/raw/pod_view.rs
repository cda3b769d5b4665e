//! What a sandbox of the trial sees of the cluster: its addresses, and which users of the node its own users are.

use ipnet::IpNet;
use k8s_openapi::api::core::v1::PodStatus;
use std::net::IpAddr;

use super::RawExamination;
use super::trial::Started;
use crate::doctor::report::{CheckState, Finding};
use crate::raw::egress;

/// Every pod has this variable, whatever its account may do.
const API_SERVER: &str = "printenv KUBERNETES_SERVICE_HOST || true";

/// Which users of the surrounding namespace a process' own are.
const USERS: &str = "cat /proc/self/uid_map";

/// The addresses of a pod and of its node.
pub(super) fn addresses(status: &PodStatus) -> Vec<String> {
    let pod = status.pod_ips.iter().flatten().map(|address| address.ip.clone());
    let node = status.host_ips.iter().flatten().map(|address| address.ip.clone());
    pod.chain(node).collect()
}

impl RawExamination {
    /// Whether rules that open the network leave the cluster out.
    pub(super) async fn ranges(&self, open: &Started) -> Finding {
        let finding = |state, detail: String| Finding::new("ranges", "the cluster's own addresses", state, detail);
        if !self.config.block_network || self.config.egress.is_empty() {
            return finding(CheckState::Skipped, "no egress rule allows any".into());
        }
        let ranges = match egress::ranges(&self.config) {
            Ok(ranges) => ranges,
            Err(error) => return finding(CheckState::Warning, error.to_string()),
        };
        let server = match open.sandbox.run(API_SERVER).await {
            Ok(output) => output.text().trim().to_owned(),
            Err(error) => return finding(CheckState::Warning, format!("can't be checked: {error}")),
        };
        let seen = open.addresses.iter().cloned().chain([server]);
        let outside = outside(seen, &ranges);
        match outside.is_empty() {
            true => finding(CheckState::Ok, "are excluded from egress rules".into()),
            false => finding(
                CheckState::Warning,
                format!("{} can be reached through an egress rule for all addresses", outside.join(", ")),
            )
            .fix(
                "add the ranges of pods, Services and nodes to raw.cluster_ranges; the cluster's administrator knows \
                 them",
            ),
        }
    }

    /// Whether root in a sandbox would be root on the node.
    pub(super) async fn user_namespace(&self, open: &Started) -> Finding {
        let finding =
            |state, detail: &str| Finding::new("user_namespace", "a user namespace for each pod", state, detail);
        if !self.config.user_namespace {
            return finding(CheckState::Skipped, "not requested: raw.user_namespace");
        }
        let users = match open.sandbox.run(USERS).await {
            Ok(output) => output.text().into_owned(),
            Err(error) => return finding(CheckState::Warning, &format!("can't be checked: {error}")),
        };
        match is_the_nodes(&users) {
            false => finding(CheckState::Ok, "the sandbox's users are mapped to other users on the node"),
            true => finding(CheckState::Failed, "the node ignores it: the sandbox's users are the node's own").fix(
                "unset raw.user_namespace, or select nodes that support it with raw.node_selector (Linux 6.3, and \
                 containerd 2 or CRI-O)",
            ),
        }
    }
}

/// The addresses that no range has.
fn outside(seen: impl Iterator<Item = String>, ranges: &[IpNet]) -> Vec<String> {
    // What isn't an address comes from the sandbox, and isn't shown.
    let mut outside: Vec<String> = seen
        .filter(|text| text.parse::<IpAddr>().is_ok_and(|address| !ranges.iter().any(|range| range.contains(&address))))
        .collect();
    outside.sort_unstable();
    outside.dedup();
    outside
}

/// Whether a `uid_map` maps the first user to the first.
fn is_the_nodes(map: &str) -> bool {
    map.lines().any(|line| line.split_whitespace().take(2).eq(["0", "0"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_outside_the_ranges_are_named_once() {
        let ranges: Vec<IpNet> = ["10.0.0.0/8", "fc00::/7"].map(|range| range.parse().unwrap()).into();
        let seen = ["10.1.2.3", "198.51.100.7", "198.51.100.7", "fd00::1", "2001:db8::1", "", "\u{1b}[31m"];
        assert_eq!(outside(seen.map(str::to_owned).into_iter(), &ranges), ["198.51.100.7", "2001:db8::1"]);
    }

    #[test]
    fn a_map_of_the_node_is_told_from_another() {
        assert!(is_the_nodes("         0          0 4294967295\n"));
        assert!(!is_the_nodes("         0     131072      65536\n"));
    }
}
