//! Constructor arguments of sandboxes and providers.

use std::collections::HashMap;

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use podbay::Podbay;
use podbay::provider::Wanted;
use serde_json::{Map, Value as Json};

use crate::audit::{AuditFunction, WarningFunction, audit};
use crate::conversions::duration;
use crate::failure::Failure;
use crate::settings;

/// Reads the settings. Nothing is opened yet.
pub fn podbay(
    given: Map<String, Json>,
    function: Option<AuditFunction>,
    warn: Option<WarningFunction>,
) -> Result<Podbay, Failure> {
    let config = settings::gather(given)?;
    let strict = config.is_audit_strict();
    let builder = Podbay::builder().config(config);
    let builder = match warn {
        Some(warn) => builder.on_audit_failure(move |message| crate::audit::warn(&warn, message)),
        None => builder,
    };
    let builder = match function {
        Some(function) => builder.audit(audit(function, strict)),
        None => builder,
    };
    Ok(builder.build()?)
}

/// Which sandbox is wanted: the one with an id or of a thread, or a new one.
#[napi(object, object_to_js = false)]
#[derive(Default)]
#[allow(missing_docs)]
pub struct WantedSandbox {
    pub id: Option<String>,
    pub thread: Option<String>,
    pub tenant: Option<String>,
    pub labels: Option<HashMap<String, String>>,
    pub ttl: Option<Either<f64, String>>,
    pub idle_ttl: Option<Either<f64, String>>,
    pub leashed: Option<bool>,
}

impl WantedSandbox {
    /// The core's description of it; `leashed` is what an unnamed sandbox is.
    pub fn wanted(self, leashed: bool) -> Result<Wanted, Failure> {
        let unnamed = self.id.is_none() && self.thread.is_none();
        let wanted = Wanted {
            id: None,
            labels: self.labels.unwrap_or_default().into_iter().collect(),
            ttl: duration(self.ttl)?,
            idle_ttl: duration(self.idle_ttl)?,
            leashed: self.leashed.unwrap_or(leashed && unnamed),
        };
        match (self.id, self.thread) {
            (Some(_), Some(_)) => Err(Failure::Argument("id and thread both name a sandbox: pass only one".to_owned())),
            (None, Some(thread)) => {
                Ok(podbay::thread::wanted(self.tenant.as_deref().unwrap_or_default(), &thread, wanted))
            }
            (id, None) => Ok(Wanted { id, ..wanted }),
        }
    }
}
