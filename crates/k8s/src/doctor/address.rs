//! Whether podbayd can be reached at its pod's own address, with the right key and no other.

use std::net::IpAddr;
use std::sync::Arc;

use super::report::{CheckState, Finding};
use crate::channel::AddressFailure;
use crate::channel::in_cluster::PodAddresses;
use crate::pod::container::Container;

/// A running sandbox's pod.
pub(super) struct RunningPod {
    pub(super) container: Container,
    pub(super) ip: Option<IpAddr>,
}

/// Tries the address of a sandbox that is running, first with a good token and then with one that another key has signed.
pub(super) async fn address(addresses: Option<&Arc<PodAddresses>>, pod: &RunningPod) -> Finding {
    let finding = |state, detail: String| Finding::new("address", "pods' own addresses", state, detail);
    let Some(addresses) = addresses else {
        return finding(
            CheckState::Skipped,
            "not used: cluster.private_key_file isn't set, or cluster.connection is exec".into(),
        );
    };
    let Some(ip) = pod.ip else { return finding(CheckState::Warning, "the pod has no address".into()) };
    let broken = if addresses.is_only_way() { CheckState::Failed } else { CheckState::Warning };
    match addresses.connect(&pod.container, ip, &addresses.sign(&pod.container, "")).await {
        Ok(_) => {}
        Err(failure) => return finding(broken, failure.to_string()).fix(fix(&failure)),
    }
    match addresses.connect(&pod.container, ip, &addresses.sign_as_stranger(&pod.container)).await {
        // The Python router says no more than that.
        Err(AddressFailure::Refused(..) | AddressFailure::Forbidden(..)) => {
            finding(CheckState::Ok, format!("podbayd answers at {ip}, and rejects tokens signed by other keys"))
        }
        Err(failure) => finding(
            CheckState::Warning,
            format!("a token signed by another key wasn't rejected as expected: {failure}"),
        ),
        Ok(_) => finding(CheckState::Failed, format!("whatever answers at {ip} accepts tokens signed by any key"))
            .fix("don't use this image: something in it answers in podbayd's place"),
    }
}

/// What to do about a failure.
pub(super) fn fix(failure: &AddressFailure) -> &'static str {
    match failure {
        AddressFailure::Unreachable(..) => {
            "run the doctor in a pod with the label podbay.dev/client=true; 'podbay install' prints the rule that admits such \
             pods (docs/in-cluster.md)"
        }
        AddressFailure::Router(..) | AddressFailure::Silent(..) | AddressFailure::Forbidden(..) => {
            "see docs/router.md for what each connection through the router needs"
        }
        AddressFailure::Refused(..) => {
            "put the public key of cluster.private_key_file into the template, or remove the keys that it has"
        }
        AddressFailure::NotListening(_) | AddressFailure::NotPodbayd(..) => {
            "let no other program of the image use that port, or set another cluster.port; through a router, let the template's \
             network policy admit the router to that port"
        }
    }
}
