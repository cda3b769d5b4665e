//! Bounds an account with rights in the whole cluster by a ValidatingAdmissionPolicy.
//!
//! RBAC can't grant a right "in all namespaces with this label"; admission can refuse the rest. It sees every change and every
//! exec, but no reads: so the role mustn't grant reads of anything secret.

use super::{Install, PodSecurity};
use crate::names::{HOME, MANAGED_BY, PODBAY};

impl Install {
    /// The policy and its binding, for accounts by namespace and name.
    pub(super) fn admission(&self, accounts: &[(String, String)]) -> String {
        let accounts: Vec<String> =
            accounts.iter().map(|(home, name)| format!("'system:serviceaccount:{home}:{name}'")).collect();
        let (accounts, name, home) = (accounts.join(", "), self.role_name(""), &self.namespace);
        // An older version of a level asks for less.
        let level = match self.pod_security {
            PodSecurity::Privileged => String::new(),
            level => format!(
                "
    - expression: >-
        !variables.isNamespace || request.operation == 'DELETE' ||
        (object.?metadata.?labels[?'pod-security.kubernetes.io/enforce'].orValue('') == '{level}' &&
        !('pod-security.kubernetes.io/enforce-version' in object.?metadata.?labels.orValue({{}})))
      message: >-
        a sandbox's namespace has to carry the label pod-security.kubernetes.io/enforce={level}, without \
        enforce-version",
                level = level.as_str(),
            ),
        };
        format!(
            "\
# The roles above apply to every namespace, because those of sandboxes don't exist yet. This denies these accounts every
# change and every exec outside {home} and the namespaces that belong to it. Needs Kubernetes 1.30.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {name}
  labels:
    app.kubernetes.io/managed-by: podbay
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [\"*\"]
        apiVersions: [\"*\"]
        operations: [CREATE, UPDATE, DELETE, CONNECT]
        resources: [\"*/*\"]
  matchConditions:
    - name: is-podbay
      expression: request.userInfo.username in [{accounts}]
    # Reviewing one's own rights changes nothing.
    - name: changes-something
      expression: \"!(request.resource.group in ['authentication.k8s.io', 'authorization.k8s.io'])\"
  variables:
    - name: isNamespace
      expression: request.resource.group == '' && request.resource.resource == 'namespaces'
  validations:
    - expression: >-
        variables.isNamespace || (request.namespace != '' && (request.namespace == '{home}' ||
        (namespaceObject.?metadata.?labels[?'{HOME}'].orValue('') == '{home}' &&
        namespaceObject.?metadata.?labels[?'{MANAGED_BY}'].orValue('') == '{PODBAY}')))
      message: this account may change things only in {home} and in the namespaces of its sandboxes
    - expression: >-
        !variables.isNamespace || [object, oldObject].all(one, one == null ||
        (one.?metadata.?labels[?'{HOME}'].orValue('') == '{home}' &&
        one.?metadata.?labels[?'{MANAGED_BY}'].orValue('') == '{PODBAY}'))
      message: this account may create and delete only namespaces with the labels {HOME}={home} and {MANAGED_BY}={PODBAY}{level}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {name}
  labels:
    app.kubernetes.io/managed-by: podbay
spec:
  policyName: {name}
  validationActions: [Deny]
"
        )
    }
}
