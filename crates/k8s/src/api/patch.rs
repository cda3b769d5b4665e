//! JSON patches (RFC 6902): unlike kube's merge patches they can test before they change.

use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::retry::with_retry;
use crate::cluster::Cluster;

/// Patches an object of the cluster's namespace if every `test` of the patch holds.
pub(crate) async fn json_patch<K>(cluster: &Cluster, name: &str, patch: &[Value]) -> Result<K, kube::Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let body = serde_json::to_vec(patch).map_err(kube::Error::SerdeError)?;
    let path = format!("{}/{name}", K::url_path(&(), Some(&cluster.namespace)));
    with_retry(|| async {
        let request = http::Request::patch(&path)
            .header(http::header::CONTENT_TYPE, "application/json-patch+json")
            .body(body.clone())
            .map_err(kube::Error::HttpError)?;
        cluster.client.request(request).await
    })
    .await
}

/// Whether a patch was refused because one of its tests failed, or the object is gone.
pub(crate) fn is_test_failure(error: &kube::Error) -> bool {
    match error {
        // A failed test is a 422, and so is an object that isn't valid; only the latter says so.
        kube::Error::Api(status) if status.code == 422 => !status.message.contains("is invalid"),
        kube::Error::Api(status) => matches!(status.code, 404 | 409),
        _ => false,
    }
}
