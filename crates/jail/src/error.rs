//! Errors, each with what to do about it.

use std::fmt;
use std::io;

/// Why a jail could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JailError {
    /// The description of the jail is wrong.
    #[error("{field}: {value:?} {reason}")]
    Invalid {
        /// The field of [`Jail`](crate::Jail).
        field: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it, and what is valid.
        reason: String,
    },
    /// This machine or user can't do what was requested.
    #[error("{what}: {why}; {fix}")]
    Unsupported {
        /// What was requested.
        what: String,
        /// Why it isn't possible.
        why: String,
        /// What to do about it.
        fix: String,
    },
    /// A step of the set-up failed. Nothing of the jail is left running.
    #[error(transparent)]
    Setup(#[from] FailedStep),
}

impl JailError {
    pub(crate) fn invalid(field: &'static str, value: impl fmt::Display, reason: impl Into<String>) -> Self {
        Self::Invalid { field, value: value.to_string(), reason: reason.into() }
    }
}

/// A step that failed. Plain data, because the jailed process sends it to the process that made the jail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedStep {
    /// What was tried, and on what.
    pub step: String,
    /// The kernel's error number; 0 if the error isn't the kernel's.
    pub errno: i32,
    /// What to do next, if known.
    pub fix: Option<String>,
}

impl std::error::Error for FailedStep {}

impl fmt::Display for FailedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not {}", self.step)?;
        if self.errno != 0 {
            write!(f, ": {}", io::Error::from_raw_os_error(self.errno))?;
        }
        if let Some(fix) = &self.fix {
            write!(f, "; {fix}")?;
        }
        Ok(())
    }
}

/// Separates the fields when a failure is sent between processes.
const SEPARATOR: char = '\u{1f}';

impl FailedStep {
    /// A step that failed with this error.
    pub fn new(step: impl Into<String>, error: impl Into<io::Error>) -> Self {
        let error = error.into();
        let (errno, fix) = match error.raw_os_error() {
            Some(errno) => (errno, None),
            None => (0, Some(error.to_string())),
        };
        Self { step: step.into(), errno, fix }
    }

    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        format!(
            "{}{SEPARATOR}{}{SEPARATOR}{}",
            self.errno,
            self.step.replace(SEPARATOR, " "),
            self.fix.as_deref().unwrap_or_default().replace(SEPARATOR, " ")
        )
        .into_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut parts = text.splitn(3, SEPARATOR);
        let errno = parts.next().and_then(|n| n.parse().ok()).unwrap_or(0);
        let step = parts.next().unwrap_or("set up the jail").to_owned();
        let fix = parts.next().filter(|f| !f.is_empty()).map(str::to_owned);
        Self { step, errno, fix }
    }
}

/// Adds the failed step to an error.
pub(crate) trait Step<T> {
    fn step(self, step: impl FnOnce() -> String) -> Result<T, FailedStep>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: impl FnOnce() -> String) -> Result<T, FailedStep> {
        self.map_err(|error| FailedStep::new(step(), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_can_be_sent_between_processes() {
        for fix in [None, Some("mount it elsewhere".to_owned())] {
            let failure = FailedStep { step: "bind /a b\nc".into(), errno: libc::EPERM, fix };
            assert_eq!(FailedStep::decode(&failure.encode()), failure);
        }
    }

    #[test]
    fn a_failure_says_what_why_and_what_next() {
        let failure = FailedStep::new("bind /x", io::Error::from_raw_os_error(libc::ENOENT)).fix("make it first");
        assert_eq!(failure.to_string(), "could not bind /x: No such file or directory (os error 2); make it first");
    }
}
