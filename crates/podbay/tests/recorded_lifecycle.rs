//! What the audit log says of sandboxes as a whole, whatever the provider.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use podbay::audit::{Audit, AuditEntry, AuditLog, Rotation, verify};
use podbay::description::Description;
use podbay::provider::{Cleaned, Page, Pending, PoolStatus, Provided, Provider, Query, Stats, Wanted};
use podbay::{Error, Podbay};

/// A provider of a mode that no setting names. It deletes what it is told to, and can't do anything else.
struct Elsewhere {
    cleaned: Cleaned,
}

fn not_found<T>(id: &str) -> Pending<'_, T> {
    Box::pin(async move { Err(Error::SandboxNotFound(id.to_owned())) })
}

impl Provider for Elsewhere {
    fn mode(&self) -> &'static str {
        "elsewhere"
    }

    fn get_or_create<'a>(&'a self, wanted: &'a Wanted) -> Pending<'a, Provided> {
        not_found(wanted.id.as_deref().unwrap_or_default())
    }

    fn reconnect<'a>(&'a self, id: &'a str) -> Pending<'a, Provided> {
        not_found(id)
    }

    fn list<'a>(&'a self, _: &'a Query) -> Pending<'a, Page> {
        Box::pin(async { Ok(Page::default()) })
    }

    fn describe<'a>(&'a self, id: &'a str) -> Pending<'a, Description> {
        not_found(id)
    }

    fn delete<'a>(&'a self, _: &'a str) -> Pending<'a, bool> {
        Box::pin(async { Ok(true) })
    }

    fn cleanup(&self, _: Option<Duration>) -> Pending<'_, Cleaned> {
        Box::pin(async { Ok(self.cleaned.clone()) })
    }

    fn stats(&self, _: Duration) -> Pending<'_, Stats> {
        Box::pin(async { Ok(Stats::default()) })
    }

    fn refill(&self) -> Pending<'_, PoolStatus> {
        Box::pin(async { Ok(PoolStatus::default()) })
    }
}

fn podbay(cleaned: Cleaned, audit: Audit) -> Podbay {
    Podbay::builder().provider(Arc::new(Elsewhere { cleaned })).audit(audit).build().unwrap()
}

/// Entries of `destroy` named the mode of the settings instead of the provider's.
#[tokio::test]
async fn every_entry_names_the_providers_own_mode() {
    let seen: Arc<Mutex<Vec<AuditEntry>>> = Arc::default();
    let record = seen.clone();
    let audit = Audit::new(move |entry: &AuditEntry| {
        record.lock().unwrap().push(entry.clone());
        Ok(())
    });
    let podbay = podbay(Cleaned::default(), audit);
    assert_eq!((podbay.mode(), podbay.config().mode()), ("elsewhere", "local"));
    podbay.get_or_create("box").await.unwrap_err();
    podbay.reconnect("box").await.unwrap_err();
    podbay.delete("box").await.unwrap();
    podbay.suspend("box").await.unwrap_err();
    podbay.resume("box").await.unwrap_err();
    podbay.cleanup(None).await.unwrap();
    podbay.refill().await.unwrap();

    let seen = seen.lock().unwrap();
    let told: Vec<_> = seen.iter().map(|entry| (entry.op, entry.sandbox.as_str(), entry.outcome.is_some())).collect();
    let pair = |op, sandbox| [(op, sandbox, false), (op, sandbox, true)];
    let of_box = ["create", "reconnect", "destroy", "suspend", "resume"].map(|op| pair(op, "box"));
    let of_many = ["cleanup", "refill"].map(|op| pair(op, ""));
    assert_eq!(told, [of_box.as_flattened(), of_many.as_flattened()].concat());
    for entry in seen.iter() {
        assert_eq!(serde_json::to_value(&*entry.details).unwrap()["mode"], "elsewhere", "{}", entry.op);
    }
}

/// A clean-up that deleted any number of sandboxes left an entry that named none of them.
#[tokio::test]
async fn a_clean_up_names_what_it_deleted_and_what_it_couldnt() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit = || Audit::new(AuditLog::open(&path, Rotation::default()).unwrap()).strict();
    let some = Cleaned {
        deleted: vec!["box-1".into(), "box-2".into()],
        kept: 3,
        failed: vec![("box-3".into(), "its node is lost".into())],
    };
    podbay(some, audit()).cleanup(None).await.unwrap();
    podbay(Cleaned { kept: 3, ..Cleaned::default() }, audit()).cleanup(None).await.unwrap();
    // Far more than fit into an entry.
    let ids: Vec<String> = (0..100_000).map(|number| format!("box-{number:06}")).collect();
    podbay(Cleaned { deleted: ids.clone(), ..Cleaned::default() }, audit()).cleanup(None).await.unwrap();

    let text = std::fs::read_to_string(&path).unwrap();
    let entries: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ended: Vec<_> = entries.iter().filter(|entry| entry["event"] == "ended").collect();
    assert_eq!((entries.len(), ended.len()), (6, 3));
    assert_eq!(ended[0]["deleted"], serde_json::json!(["box-1", "box-2"]));
    assert_eq!((&ended[0]["not_deleted"], &ended[0]["changed"]), (&serde_json::json!(["box-3"]), &true.into()));
    assert!(ended[0]["deleted_total"].is_null() && ended[0]["not_deleted_total"].is_null());
    assert_eq!((&ended[1]["deleted"], &ended[1]["changed"]), (&serde_json::Value::Null, &false.into()));
    let shown = ended[2]["deleted"].as_array().unwrap();
    assert!(shown.len() > 40_000 && shown.iter().zip(&ids).take(40_000).all(|(shown, id)| shown == id));
    assert_eq!(ended[2]["deleted_total"]["count"], 100_000);
    assert!(verify(&[&path], None).unwrap().intact);
}
