//! One container of one pod, and the pod's address.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;

/// A container of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's UID: another pod of that name isn't this one.
    pub uid: String,
    /// The container's name.
    pub name: String,
}

/// A pod's own address.
pub(crate) fn address(pod: &Pod) -> Option<IpAddr> {
    pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()
}
