//! A JavaScript function that is told of every operation.

use std::io;
use std::sync::mpsc;

use napi::Status;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use podbay::audit::{Audit, AuditEntry, Decision, Observer};
use serde_json::{Value as Json, json};

/// A function that gets an entry and returns why it refuses it, or null. It doesn't keep the process alive.
pub type AuditFunction = ThreadsafeFunction<Json, Option<String>, Json, Status, false, true>;

struct Callback {
    function: AuditFunction,
    /// Whether it is told before an operation begins, too: then it can refuse it.
    strict: bool,
}

impl Observer for Callback {
    fn observe(&self, entry: &AuditEntry) -> io::Result<()> {
        if entry.outcome.is_none() && !self.strict {
            return Ok(());
        }
        let (send, answer) = mpsc::channel();
        let reply = move |answer: napi::Result<Option<String>>, _| {
            // Nobody waits any more when the process is ending.
            let _ = send.send(answer);
            Ok(())
        };
        let mode = ThreadsafeFunctionCallMode::NonBlocking;
        match self.function.call_with_return_value(described(entry), mode, reply) {
            Status::Ok => {}
            status => return Err(io::Error::other(format!("the audit function can't be called: {status}"))),
        }
        // The thread is one of the runtime's, and JavaScript may keep it waiting: the others take over its work.
        match tokio::task::block_in_place(|| answer.recv()) {
            Ok(Ok(None)) => Ok(()),
            Ok(Ok(Some(refusal))) => Err(io::Error::other(refusal)),
            Ok(Err(error)) => Err(io::Error::other(error.reason.to_string())),
            Err(_) => Err(io::Error::other("the process is ending")),
        }
    }
}

fn described(entry: &AuditEntry) -> Json {
    let outcome = entry.outcome.as_ref();
    let effect = outcome.map(|outcome| &outcome.effect);
    json!({
        "op": entry.op,
        "target": entry.target(),
        "meta": {
            "time": entry.time_ms,
            "operation": entry.operation,
            "sandbox": entry.sandbox,
            "decision": entry.decision().map_or("begun", Decision::as_str),
            "bytes": effect.and_then(|effect| effect.bytes),
            "duration": outcome.map_or(0, |outcome| outcome.duration_us) as f64 / 1e6,
            "exitCode": effect.and_then(|effect| effect.exit),
            "error": outcome.and_then(|outcome| outcome.error),
            "deniedBy": outcome.and_then(|outcome| outcome.denied_by),
            "reason": outcome.and_then(|outcome| outcome.reason.as_ref()),
            "effect": effect,
            // The whole command line among them: `target` is cut after a screenful.
            "details": &*entry.details,
        },
    })
}

/// The audit that tells a function.
pub fn audit(function: AuditFunction, strict: bool) -> Audit {
    Audit::new(Callback { function, strict })
}

/// A function that shows a warning. It doesn't keep the process alive.
pub type WarningFunction = ThreadsafeFunction<String, (), String, Status, false, true>;

/// Has a warning shown, without waiting for it.
pub fn warn(function: &WarningFunction, message: &str) {
    // A process that is ending has nobody to tell.
    let _ = function.call(message.to_owned(), ThreadsafeFunctionCallMode::NonBlocking);
}
