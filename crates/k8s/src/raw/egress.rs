//! Egress rules, which exclude the cluster itself and the clouds' metadata services.
//!
//! "Everything" in a rule means the internet. To include the cluster's pods, Services or nodes, name them: by a selector, or
//! by addresses inside one of the ranges.

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicyEgressRule, NetworkPolicyPeer};

use super::config::Config;
use crate::error::{Error, Result};

/// The ranges for private use, where nearly every cluster has its pods, Services and nodes. A cluster can't be asked which
/// ranges it really uses: an account that may only create pods can't read nodes, ServiceCIDRs and the network plug-in's
/// pools, and two accounts with different rights would derive different policies from the same rules.
pub(crate) const PRIVATE: [&str; 7] =
    ["10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fe80::/10"];

/// The addresses where clouds serve the credentials of machines and pods: AWS, Azure, GCP and OpenStack at the first; then
/// AWS over IPv6, GCP over IPv6, Azure's wire server, Alibaba, and AWS's for containers.
const METADATA: [&str; 8] = [
    "169.254.169.254/32",
    "fd00:ec2::254/128",
    "fd20:ce::254/128",
    "168.63.129.16/32",
    "100.100.100.200/32",
    "169.254.170.2/32",
    "169.254.170.23/32",
    "fd00:ec2::23/128",
];

/// The configuration's egress rules, without the ranges that they don't name.
///
/// # Errors
/// When an address isn't valid.
pub(crate) fn rules(config: &Config) -> Result<Vec<NetworkPolicyEgressRule>> {
    let mut closed = ranges(config)?;
    closed.extend(METADATA.iter().filter_map(|range| range.parse::<IpNet>().ok()));
    config.egress.iter().map(|rule| narrowed(rule, &closed)).collect()
}

/// The configuration's `cluster_ranges`.
///
/// # Errors
/// When one isn't valid.
pub(crate) fn ranges(config: &Config) -> Result<Vec<IpNet>> {
    config.cluster_ranges.iter().map(|range| parse("cluster_ranges", range)).collect()
}

fn narrowed(rule: &NetworkPolicyEgressRule, closed: &[IpNet]) -> Result<NetworkPolicyEgressRule> {
    let block = |cidr: &str| NetworkPolicyPeer {
        ip_block: Some(IPBlock { cidr: cidr.into(), except: None }),
        ..NetworkPolicyPeer::default()
    };
    let mut to = match &rule.to {
        Some(to) if !to.is_empty() => to.clone(),
        _ => vec![block("0.0.0.0/0"), block("::/0")],
    };
    for block in to.iter_mut().filter_map(|peer| peer.ip_block.as_mut()) {
        except(block, closed)?;
    }
    Ok(NetworkPolicyEgressRule { to: Some(to), ports: rule.ports.clone() })
}

/// Excludes from a block the ranges inside it. A range that is as large as the block, or larger, was named on purpose.
fn except(block: &mut IPBlock, closed: &[IpNet]) -> Result<()> {
    let whole = parse("egress", &block.cidr)?;
    let mut out: Vec<IpNet> =
        block.except.iter().flatten().map(|range| parse("egress", range)).collect::<Result<_>>()?;
    let before = out.len();
    for range in closed {
        if whole != *range && whole.contains(range) && !out.iter().any(|wider| wider.contains(range)) {
            out.push(*range);
        }
    }
    let added = out.split_off(before);
    let needed = |range: &IpNet| !added.iter().any(|wider| wider != range && wider.contains(range));
    let mut all = block.except.clone().unwrap_or_default();
    all.extend(added.iter().filter(|range| needed(range)).map(IpNet::to_string));
    block.except = (!all.is_empty()).then_some(all);
    Ok(())
}

fn parse(setting: &str, range: &str) -> Result<IpNet> {
    range.parse::<IpNet>().map(|range| range.trunc()).map_err(|_| {
        Error::Config(format!("{setting} has {range:?}: use a range of addresses such as 10.0.0.0/8 or 203.0.113.7/32"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn narrowed(rule: Value, ranges: &[&str]) -> Value {
        let config = Config {
            egress: vec![serde_json::from_value(rule).unwrap()],
            cluster_ranges: ranges.iter().map(|range| (*range).to_owned()).collect(),
            ..Config::default()
        };
        serde_json::to_value(rules(&config).unwrap()).unwrap()[0]["to"].clone()
    }

    fn block(cidr: &str, except: &[&str]) -> Value {
        match except {
            [] => json!({"ipBlock": {"cidr": cidr}}),
            except => json!({"ipBlock": {"cidr": cidr, "except": except}}),
        }
    }

    /// A rule for the whole internet also opened the node's credentials and the cluster's own network.
    #[test]
    fn an_open_rule_leaves_out_metadata_and_the_cluster() {
        let everything = json!({"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]});
        let mut private: Vec<&str> = PRIVATE.iter().filter(|range| range.contains('.')).copied().collect();
        private.push("168.63.129.16/32");
        assert_eq!(narrowed(everything.clone(), &PRIVATE), json!([block("0.0.0.0/0", &private)]));
        // A rule without destinations is a rule for all of them.
        let open = narrowed(json!({"ports": [{"port": 443}]}), &PRIVATE);
        assert_eq!(open[0], block("0.0.0.0/0", &private));
        assert_eq!(open[1], block("::/0", &["fc00::/7", "fe80::/10"]));
        // Where the ranges are said, the rest of the private ones is open. The credentials never are.
        let known = narrowed(everything, &["10.42.0.0/16"]);
        let except = known[0]["ipBlock"]["except"].as_array().unwrap();
        assert_eq!(except[0], "10.42.0.0/16");
        assert!(except.contains(&json!("169.254.169.254/32")) && !except.contains(&json!("10.0.0.0/8")), "{known}");
        let v6 = narrowed(json!({"to": [{"ipBlock": {"cidr": "::/0"}}]}), &[]);
        assert!(v6[0]["ipBlock"]["except"].as_array().unwrap().contains(&json!("fd00:ec2::254/128")), "{v6}");
    }

    #[test]
    fn what_is_named_is_open() {
        for cidr in ["169.254.169.254/32", "10.0.0.0/8", "10.96.0.10/32", "203.0.113.0/24"] {
            assert_eq!(narrowed(json!({"to": [{"ipBlock": {"cidr": cidr}}]}), &PRIVATE), json!([block(cidr, &[])]));
        }
        let pods = json!([{"namespaceSelector": {}, "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}]);
        assert_eq!(narrowed(json!({"to": pods}), &PRIVATE), pods);
        // A larger range doesn't name what is in it, and exceptions of the user's stay.
        let wide = json!({"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]});
        assert_eq!(
            narrowed(wide, &["10.244.0.0/16", "10.1.2.0/24"]),
            json!([block("10.0.0.0/8", &["10.1.0.0/16", "10.244.0.0/16"])])
        );
    }

    #[test]
    fn nonsense_is_refused() {
        let config = Config { cluster_ranges: vec!["10.0.0.0/33".into()], ..Config::default() };
        assert!(rules(&config).unwrap_err().to_string().contains("cluster_ranges"));
        assert!(METADATA.iter().chain(&PRIVATE).all(|range| range.parse::<IpNet>().is_ok()));
    }
}
