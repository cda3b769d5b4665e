//! Judges whether a pod is less protected than Podbay's own: the *restricted* Pod Security level, and a little more.
//!
//! Every field that a pod can have is in one of the tables below, either as harmless or with a rule. A test compares the
//! tables with the Kubernetes API that this build knows, so a field that a later version adds has to be judged before the
//! tests pass. See <https://kubernetes.io/docs/concepts/security/pod-security-standards/>.

use serde_json::Value;

use super::config::Config;

/// Says what is weak about a field's value, which is null where the field is missing.
type Rule = fn(&Value, &Config) -> Option<String>;

/// Fields by name; those without a rule are harmless.
type Table = &'static [(&'static str, Option<Rule>)];

/// The legacy annotation that can switch off AppArmor for a container.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// What weakens a pod's protection, if anything does.
pub(super) fn weakness(pod: &Value, config: &Config) -> Option<String> {
    let annotations = pod["metadata"]["annotations"].as_object();
    let unconfined = annotations.and_then(|all| {
        all.iter().find(|(key, value)| key.starts_with(APP_ARMOR) && value.as_str() == Some("unconfined"))
    });
    if let Some((key, _)) = unconfined {
        return Some(format!("the annotation {key} switches AppArmor off"));
    }
    judge(&pod["spec"], POD, config)
}

/// Judges each field of an object. Missing fields are judged too: leaving one out may be the weakness.
fn judge(object: &Value, table: Table, config: &Config) -> Option<String> {
    let known = |key: &str| table.iter().any(|(name, _)| *name == key);
    if let Some(key) = object.as_object().and_then(|fields| fields.keys().find(|key| !known(key))) {
        return Some(format!("{key} is a field that this version of Podbay can't judge"));
    }
    table.iter().find_map(|(name, rule)| (*rule)?(&object[*name], config))
}

const POD: Table = &[
    ("activeDeadlineSeconds", None),
    ("affinity", None),
    (
        "automountServiceAccountToken",
        Some(|value, _| (*value != false).then(|| "automountServiceAccountToken isn't false".into())),
    ),
    ("containers", Some(|value, config| each(value, |one| sandbox_container(one, config)))),
    ("dnsConfig", None),
    ("dnsPolicy", None),
    (
        "enableServiceLinks",
        Some(|value, _| {
            (*value != false).then(|| "enableServiceLinks isn't false: it lists the namespace's Services".into())
        }),
    ),
    ("ephemeralContainers", Some(|value, config| each(value, |one| container(one, config)))),
    ("hostAliases", None),
    ("hostIPC", Some(|value, _| is_true(value, "hostIPC"))),
    ("hostNetwork", Some(|value, _| is_true(value, "hostNetwork"))),
    ("hostPID", Some(|value, _| is_true(value, "hostPID"))),
    ("hostUsers", Some(host_users)),
    ("hostname", None),
    ("hostnameOverride", None),
    ("imagePullSecrets", None),
    ("initContainers", Some(|value, config| each(value, |one| container(one, config)))),
    ("nodeName", None),
    ("nodeSelector", None),
    ("os", Some(|value, _| (!value.is_null() && value["name"] != "linux").then(|| "os isn't linux".into()))),
    ("overhead", None),
    ("preemptionPolicy", None),
    ("priority", None),
    ("priorityClassName", None),
    ("readinessGates", None),
    ("resourceClaims", None),
    ("resources", None),
    ("restartPolicy", None),
    ("runtimeClassName", Some(runtime_class)),
    ("schedulerName", None),
    ("schedulingGates", None),
    ("schedulingGroup", None),
    ("securityContext", Some(|value, config| judge(value, POD_CONTEXT, config))),
    ("serviceAccount", None),
    ("serviceAccountName", None),
    ("setHostnameAsFQDN", None),
    ("shareProcessNamespace", Some(|value, _| is_true(value, "shareProcessNamespace"))),
    ("subdomain", None),
    ("terminationGracePeriodSeconds", None),
    ("tolerations", None),
    ("topologySpreadConstraints", None),
    ("volumes", Some(|value, _| each(value, |one| named("volume", one, volume(one))))),
];

const POD_CONTEXT: Table = &[
    ("appArmorProfile", Some(app_armor)),
    ("fsGroup", None),
    ("fsGroupChangePolicy", None),
    ("runAsGroup", None),
    (
        "runAsNonRoot",
        Some(|value, config| {
            (config.run_as_non_root && *value != true).then(|| "it may run as root: runAsNonRoot isn't true".into())
        }),
    ),
    ("runAsUser", Some(user)),
    ("seLinuxChangePolicy", None),
    ("seLinuxOptions", Some(se_linux)),
    (
        "seccompProfile",
        Some(|value, config| match value["type"].is_null() {
            true => Some("there is no seccomp profile".into()),
            false => seccomp(value, config),
        }),
    ),
    ("supplementalGroups", None),
    ("supplementalGroupsPolicy", None),
    ("sysctls", Some(sysctls)),
    ("windowsOptions", Some(|value, _| present(value, "windowsOptions"))),
];

const CONTAINER: Table = &[
    ("args", None),
    ("command", None),
    ("env", None),
    ("envFrom", None),
    ("image", None),
    ("imagePullPolicy", None),
    ("lifecycle", Some(|value, _| ["postStart", "preStop"].iter().find_map(|hook| calls_a_host(&value[*hook])))),
    ("livenessProbe", Some(|value, _| calls_a_host(value))),
    ("name", None),
    (
        "ports",
        Some(|value, _| {
            each(value, |port| {
                let host = |key: &str| !port[key].is_null() && port[key] != 0 && port[key] != "";
                ["hostPort", "hostIP"].into_iter().find(|key| host(key)).map(|key| format!("a port has a {key}"))
            })
        }),
    ),
    ("readinessProbe", Some(|value, _| calls_a_host(value))),
    ("resizePolicy", None),
    ("resources", None),
    ("restartPolicy", None),
    ("restartPolicyRules", None),
    ("securityContext", Some(|value, config| judge(value, CONTEXT, config))),
    ("startupProbe", Some(|value, _| calls_a_host(value))),
    ("stdin", None),
    ("stdinOnce", None),
    ("targetContainerName", None),
    ("terminationMessagePath", None),
    ("terminationMessagePolicy", None),
    ("tty", None),
    ("volumeDevices", None),
    ("volumeMounts", None),
    ("workingDir", None),
];

const CONTEXT: Table = &[
    (
        "allowPrivilegeEscalation",
        Some(|value, _| (*value != false).then(|| "allowPrivilegeEscalation isn't false".into())),
    ),
    ("appArmorProfile", Some(app_armor)),
    ("capabilities", Some(capabilities)),
    ("privileged", Some(|value, _| is_true(value, "privileged"))),
    ("procMount", Some(|value, _| (!value.is_null() && *value != "Default").then(|| format!("procMount is {value}")))),
    ("readOnlyRootFilesystem", None),
    ("runAsGroup", None),
    (
        "runAsNonRoot",
        Some(|value, config| {
            (config.run_as_non_root && *value == false).then(|| "it may run as root: runAsNonRoot is false".into())
        }),
    ),
    ("runAsUser", Some(user)),
    ("seLinuxOptions", Some(se_linux)),
    ("seccompProfile", Some(seccomp)),
    ("windowsOptions", Some(|value, _| present(value, "windowsOptions"))),
];

/// The kinds of volumes that the restricted level allows, but for CSI drivers: what those mount is up to the driver. An
/// image is read-only files. The rest reaches the node's disk or other machines as the node does, past the sandbox's network
/// rules.
const VOLUMES: [&str; 8] =
    ["configMap", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret"];

/// What a projected volume may show. Tokens and certificates would let the sandbox act in the cluster.
const PROJECTIONS: [&str; 4] = ["clusterTrustBundle", "configMap", "downwardAPI", "secret"];

/// Network sysctls of the pod's own namespaces that the baseline level calls safe.
const SAFE_SYSCTLS: [&str; 11] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// SELinux types that the baseline level allows.
const SE_LINUX_TYPES: [&str; 5] = ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

fn container(container: &Value, config: &Config) -> Option<String> {
    named("container", container, judge(container, CONTAINER, config))
}

/// A container of the running pod. Those that run first may write to their own image's files.
fn sandbox_container(one: &Value, config: &Config) -> Option<String> {
    let writable = config.read_only_root && one["securityContext"]["readOnlyRootFilesystem"] != true;
    container(one, config)
        .or_else(|| named("container", one, writable.then(|| "readOnlyRootFilesystem isn't true".into())))
}

fn host_users(value: &Value, config: &Config) -> Option<String> {
    match config.user_namespace {
        true => (*value != false).then(|| "hostUsers isn't false, though user_namespace is set".into()),
        false => is_true(value, "hostUsers"),
    }
}

fn runtime_class(value: &Value, config: &Config) -> Option<String> {
    let wanted = config.runtime_class.as_deref()?;
    (value.as_str() != Some(wanted)).then(|| format!("runtimeClassName isn't {wanted:?}, as runtime_class says"))
}

fn app_armor(value: &Value, _: &Config) -> Option<String> {
    (value["type"] == "Unconfined").then(|| "the AppArmor profile is Unconfined".into())
}

fn seccomp(value: &Value, _: &Config) -> Option<String> {
    (value["type"] == "Unconfined").then(|| "the seccomp profile is Unconfined".into())
}

fn user(value: &Value, config: &Config) -> Option<String> {
    (config.run_as_non_root && *value == 0).then(|| "it runs as root: runAsUser is 0".into())
}

fn se_linux(value: &Value, _: &Config) -> Option<String> {
    let text = |key: &str| value[key].as_str().unwrap_or_default();
    let other = !SE_LINUX_TYPES.contains(&text("type")) || !text("user").is_empty() || !text("role").is_empty();
    other.then(|| "seLinuxOptions choose a user, a role or a type other than a container's".into())
}

fn sysctls(value: &Value, _: &Config) -> Option<String> {
    each(value, |sysctl| {
        let name = sysctl["name"].as_str().unwrap_or_default();
        (!SAFE_SYSCTLS.contains(&name)).then(|| format!("the sysctl {name} isn't one of the safe ones"))
    })
}

fn capabilities(value: &Value, _: &Config) -> Option<String> {
    if !list(&value["add"]).is_empty() {
        return Some("capabilities are added".into());
    }
    let all = list(&value["drop"]).iter().any(|capability| capability == "ALL");
    (!all).then(|| "not all capabilities are dropped".into())
}

/// A probe or hook with a host makes the kubelet call any address that the node can reach.
fn calls_a_host(handler: &Value) -> Option<String> {
    let host = |kind: &str| handler[kind]["host"].as_str().is_some_and(|host| !host.is_empty());
    ["httpGet", "tcpSocket"]
        .into_iter()
        .find(|kind| host(kind))
        .map(|kind| format!("{kind} of a probe or hook names a host"))
}

fn volume(volume: &Value) -> Option<String> {
    if let Some(kind) = other_than(volume, |key| key == "name" || VOLUMES.contains(&key)) {
        return Some(match kind {
            "hostPath" => "it is a hostPath, a directory of the node".into(),
            kind => format!("it is of the kind {kind}"),
        });
    }
    each(&volume["projected"]["sources"], |source| {
        let kind = other_than(source, |key| PROJECTIONS.contains(&key))?;
        Some(format!("it projects a {kind}, with which the sandbox could act in the cluster"))
    })
}

/// The first field that is set and isn't one of those that are allowed.
fn other_than(object: &Value, allowed: impl Fn(&str) -> bool) -> Option<&str> {
    object.as_object()?.iter().find(|(key, value)| !value.is_null() && !allowed(key)).map(|(key, _)| key.as_str())
}

fn present(value: &Value, what: &str) -> Option<String> {
    (!value.is_null()).then(|| format!("{what} is set"))
}

fn is_true(value: &Value, what: &str) -> Option<String> {
    (*value == true).then(|| format!("{what} is true"))
}

fn each(value: &Value, rule: impl FnMut(&Value) -> Option<String>) -> Option<String> {
    list(value).iter().find_map(rule)
}

fn named(what: &str, object: &Value, weakness: Option<String>) -> Option<String> {
    weakness.map(|weakness| format!("{what} {}: {weakness}", object["name"]))
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1 as core;
    use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
    use serde::forward_to_deserialize_any;

    /// Learns which fields a type asks for, and gives it none.
    struct Fields<'a>(&'a mut Vec<&'static str>);

    impl<'de> Deserializer<'de> for Fields<'_> {
        type Error = serde::de::value::Error;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
            Err(Self::Error::custom("not a struct"))
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, Self::Error> {
            self.0.extend(fields);
            Err(Self::Error::custom("only looking"))
        }

        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
            newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    fn fields_of<'de, T: Deserialize<'de>>() -> Vec<&'static str> {
        let mut fields = Vec::new();
        assert!(T::deserialize(Fields(&mut fields)).is_err());
        fields.sort_unstable();
        fields
    }

    /// A Kubernetes version with a new field in pods let it through unjudged: `weakness` knew only what it forbade.
    #[test]
    fn every_field_that_a_pod_can_have_is_judged() {
        let names = |table: Table| {
            let mut names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(names(POD), fields_of::<core::PodSpec>());
        assert_eq!(names(POD_CONTEXT), fields_of::<core::PodSecurityContext>());
        assert_eq!(names(CONTEXT), fields_of::<core::SecurityContext>());
        assert!(VOLUMES.iter().all(|kind| fields_of::<core::Volume>().contains(kind)));
        assert!(PROJECTIONS.iter().all(|kind| fields_of::<core::VolumeProjection>().contains(kind)));
        // An ephemeral container has all that a container has, and a target.
        assert_eq!(names(CONTAINER), fields_of::<core::EphemeralContainer>());
        assert!(fields_of::<core::Container>().iter().all(|field| names(CONTAINER).contains(field)));
        // What rules look at one level down.
        assert_eq!(fields_of::<core::ContainerPort>(), ["containerPort", "hostIP", "hostPort", "name", "protocol"]);
        assert_eq!(fields_of::<core::Lifecycle>(), ["postStart", "preStop", "stopSignal"]);
        assert_eq!(fields_of::<core::LifecycleHandler>(), ["exec", "httpGet", "sleep", "tcpSocket"]);
        assert_eq!(fields_of::<core::Capabilities>(), ["add", "drop"]);
        assert_eq!(fields_of::<core::SELinuxOptions>(), ["level", "role", "type", "user"]);
    }
}
