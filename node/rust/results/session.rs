//! Results about the sandbox itself. `src/results.ts` documents their fields.

use napi::bindgen_prelude::Utf16String;
use napi_derive::napi;
use podbay::ProtectionKind;

use super::from_milliseconds;
use crate::conversions::text;

/// The podbayd of a sandbox.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct Welcome {
    pub version: String,
    pub build: String,
    pub instance: String,
    pub workdir: Utf16String,
    pub state: Utf16String,
    pub idle: f64,
    pub running: u32,
}

impl From<podbay::Welcome> for Welcome {
    fn from(welcome: podbay::Welcome) -> Self {
        Self {
            version: welcome.version.to_string(),
            workdir: text(&welcome.workdir),
            state: text(&welcome.state),
            build: welcome.build,
            instance: welcome.instance,
            idle: from_milliseconds(welcome.idle_ms),
            running: welcome.running,
        }
    }
}

/// One protection of podbayd against commands.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct Protection {
    pub kind: String,
    pub in_force: bool,
    pub detail: String,
}

impl From<podbay::Protection> for Protection {
    fn from(protection: podbay::Protection) -> Self {
        let kind = match protection.what {
            ProtectionKind::Domain => "domain",
            ProtectionKind::Signals => "signals",
            ProtectionKind::Directory => "directory",
            ProtectionKind::Socket => "socket",
            ProtectionKind::SystemCalls => "system_calls",
            ProtectionKind::Program => "program",
            ProtectionKind::Unknown => "unknown",
        };
        Self { kind: kind.to_owned(), in_force: protection.in_force, detail: protection.detail }
    }
}

/// How commands, which run as podbayd's user, are kept from interfering with podbayd.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct ProtectionReport {
    pub landlock_abi: u32,
    pub protections: Vec<Protection>,
}

impl From<podbay::ProtectionReport> for ProtectionReport {
    fn from(report: podbay::ProtectionReport) -> Self {
        let protections = report.protections.into_iter().map(Into::into).collect();
        Self { landlock_abi: report.landlock_abi, protections }
    }
}
