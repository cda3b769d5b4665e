//! Sync/async pairs: every operation as a call that blocks and as a coroutine.

/// Defines methods in pairs: `fn blocking / coroutine(this, argument: Type) [python signature] -> Output { body }`.
/// The body is async and runs over `$this`, a clone of what the object holds in `inner`.
macro_rules! sync_and_async {
    (impl $class:ident {
        $(
            $(#[doc = $doc:literal])+
            fn $sync:ident / $async:ident($this:ident $(, $argument:ident: $kind:ty)* $(,)?)
            [$($signature:tt)*] -> $output:ty $body:block
        )+
    }) => {
        #[pyo3::pymethods]
        impl $class {
            $(
                $(#[doc = $doc])+
                #[pyo3(signature = ($($signature)*))]
                #[allow(clippy::too_many_arguments)]
                fn $sync(&self, py: pyo3::Python<'_> $(, $argument: $kind)*) -> pyo3::PyResult<$output> {
                    let $this = self.inner.clone();
                    crate::runtime::block_on(py, async move { let result: Result<$output, crate::failure::Failure> = $body; result })
                }

                $(#[doc = $doc])+
                #[pyo3(signature = ($($signature)*))]
                #[allow(clippy::too_many_arguments)]
                fn $async(&self $(, $argument: $kind)*) -> crate::coroutine::Coroutine {
                    let $this = self.inner.clone();
                    crate::coroutine::Coroutine::new(
                        stringify!($async),
                        async move { let result: Result<$output, crate::failure::Failure> = $body; result },
                    )
                }
            )+
        }
    };
}

pub(crate) use sync_and_async;
