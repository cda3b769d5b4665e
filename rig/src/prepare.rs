//! Making in advance what clusters consist of.

use anyhow::Result;

use crate::cache::Cache;
use crate::{availability, image, packages, toolchain};

/// Installs, compiles and builds everything that clusters and their add-ons consist of, as far as the cache hasn't got it, so that
/// starting one takes seconds.
///
/// # Errors
/// When no cluster can run here, or something can't be made.
pub fn prepare() -> Result<()> {
    availability::available()?;
    let cache = Cache::open()?;
    {
        let _lock = cache.lock("packages")?;
        packages::ensure(packages::NEEDS)?;
    }
    for program in [toolchain::ONEBOX, toolchain::KUBE_ROUTER, toolchain::RUNSC, toolchain::RUNSC_SHIM] {
        program.file(&cache)?;
    }
    let mut images = image::pause_and_busybox()?;
    images.extend(image::base());
    images.extend(image::agent_sandbox()?);
    images.push(image::python_router()?);
    images.iter().try_for_each(|image| image.prepare(&cache))
}
