//! The reaper, a CronJob. It has a namespace and an account of its own: whoever takes over a sandbox, or may run commands in
//! all of them, finds neither its pod nor its token there, and it can't create sandboxes itself.

use super::{Grant, Install, PodSecurity, account, namespace};
use crate::error::{Error, Result};
use crate::names;

/// The job's account.
pub(super) const ACCOUNT: &str = "podbay-reaper";

impl Install {
    /// The namespace of the job.
    ///
    /// # Errors
    /// When it can't be one, or is that of the sandboxes.
    pub(super) fn reaper_home(&self) -> Result<String> {
        let home = self.reaper_namespace.clone().unwrap_or_else(|| format!("{}-reaper", self.namespace));
        names::check_label("namespace", &home)?;
        if home == self.namespace {
            return Err(Error::Config(format!(
                "the reaper can't be in {home}, the sandboxes' own namespace: its token would be accessible there"
            )));
        }
        Ok(home)
    }

    pub(super) fn reaper(&self, image: &str, home: &str) -> Result<Vec<String>> {
        let plain = |character: char| character.is_ascii_alphanumeric() || "./:@_-".contains(character);
        if image.is_empty() || !image.chars().all(plain) {
            return Err(Error::Config(format!(
                "{image:?} can't be the name of an image: use one such as podbay:0.1.0"
            )));
        }
        let mut parts = vec![
            namespace(home, PodSecurity::Restricted, "A namespace for the reaper, separate from the sandboxes."),
            account(ACCOUNT, home, "The reaper's own account: it may remove sandboxes, but not create them."),
        ];
        let grant = Grant {
            role: self.role_name("-reaper"),
            namespace: self.scope(),
            account: ACCOUNT,
            home,
            rights: self.needs.reaper_rights.iter().collect(),
            why: "Exactly the rights that removing needs.",
        };
        parts.extend(grant.manifests());
        let settings = self.needs.reaper_settings.iter();
        let settings: String = settings.map(|setting| format!(", \"--set\", \"{setting}\"")).collect();
        parts.push(format!(
            "\
# Removes expired sandboxes. Sandboxes end by themselves; this is for those whose node is gone, and for their remains.
apiVersion: batch/v1
kind: CronJob
metadata:
  name: podbay-reaper
  namespace: {home}
  labels:
    app.kubernetes.io/managed-by: podbay
spec:
  schedule: \"*/15 * * * *\"
  concurrencyPolicy: Forbid
  successfulJobsHistoryLimit: 1
  failedJobsHistoryLimit: 3
  jobTemplate:
    spec:
      backoffLimit: 0
      activeDeadlineSeconds: 600
      template:
        metadata:
          labels:
            app.kubernetes.io/name: podbay-reaper
            app.kubernetes.io/managed-by: podbay
        spec:
          serviceAccountName: {ACCOUNT}
          restartPolicy: Never
          securityContext:
            runAsNonRoot: true
            runAsUser: 1000
            seccompProfile:
              type: RuntimeDefault
          containers:
            - name: reaper
              image: \"{image}\"
              command: [\"podbay\", \"--json\", \"reap\", \"--mode\", \"{mode}\", \"--namespace\", \"{namespace}\"{settings}]
              resources:
                requests: {{cpu: 10m, memory: 32Mi}}
                limits: {{cpu: 500m, memory: 128Mi}}
              securityContext:
                allowPrivilegeEscalation: false
                readOnlyRootFilesystem: true
                capabilities:
                  drop: [ALL]
",
            namespace = self.namespace,
            mode = self.needs.mode,
        ));
        Ok(parts)
    }
}
