//! Which account this is, and what it may do.

use futures_util::future::join_all;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;

use super::report::{CheckState, Finding};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::rights::{ModeNeeds, Right};

/// The account; its name is the finding's detail.
pub(super) async fn account(cluster: &Cluster) -> Finding {
    let finding = |state, detail: String| Finding::new("account", "this account", state, detail);
    let reviews: Api<SelfSubjectReview> = Api::all(cluster.client.clone());
    match reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await {
        Ok(review) => {
            let user = review.status.and_then(|status| status.user_info).and_then(|user| user.username);
            finding(CheckState::Ok, user.unwrap_or_else(|| "an account without a name".into()))
        }
        // Clusters before 1.28 don't have this API.
        Err(error) => finding(CheckState::Skipped, Error::api("identify this account")(error).to_string()),
    }
}

/// Whether each right that the mode needs is granted.
pub(super) async fn granted(cluster: &Cluster, needs: &ModeNeeds, who: &str) -> Vec<Finding> {
    join_all(needs.rights.iter().map(|right| granted_one(cluster, right, needs, who))).await
}

async fn granted_one(cluster: &Cluster, right: &Right, needs: &ModeNeeds, who: &str) -> Finding {
    let home = cluster.namespace.as_str();
    let what = match right.namespace.as_deref().filter(|namespace| *namespace != home) {
        Some(elsewhere) => format!("rights: {} in {elsewhere}", right.resource),
        None => format!("rights: {}", right.resource),
    };
    let finding = |state, detail: String| Finding::new("rights", what.clone(), state, detail);
    let space = needs.scope(right, home);
    let answers = join_all(right.verbs.iter().map(|verb| may(cluster, space, right.group, right.resource, verb))).await;
    let mut missing = Vec::new();
    for (verb, answer) in right.verbs.iter().zip(answers) {
        match answer {
            Ok(true) => {}
            Ok(false) => missing.push(*verb),
            Err(error) => {
                return finding(CheckState::Skipped, format!("unknown: {error}"));
            }
        }
    }
    if missing.is_empty() {
        return finding(CheckState::Ok, format!("may {}", right.verbs.join(", ")));
    }
    let detail = format!("may not {}. {}", missing.join(", "), right.why);
    finding(CheckState::Failed, detail).fix(grant(needs, right, &missing, who, home))
}

/// The commands that grant the missing verbs.
fn grant(needs: &ModeNeeds, right: &Right, verbs: &[&str], who: &str, home: &str) -> String {
    let resource = match (right.group, right.resource) {
        ("", resource) => resource.to_owned(),
        (group, resource) => format!("{resource}.{group}"),
    };
    let name = format!("podbay-{}", right.resource.replace('/', "-"));
    let subject = match who.strip_prefix("system:serviceaccount:") {
        Some(account) => format!("--serviceaccount={account}"),
        None => format!("--user={}", quoted(who)),
    };
    let (role, flag) = match needs.scope(right, home) {
        Some(space) => ("role", format!(" -n {space}")),
        None => ("clusterrole", String::new()),
    };
    let install = match (needs.cluster_wide, &right.namespace, right.resource) {
        (true, ..) => "--namespace-per-sandbox".to_owned(),
        (false, None, _) => format!("--namespace {home}"),
        // The connection may come from a flag or the environment, which `install` doesn't see.
        (false, Some(space), "gateways") => {
            format!("--namespace {home} --no-template --gateway --set agent_sandbox.gateway_namespace={space}")
        }
        (false, Some(space), _) => {
            format!("--namespace {home} --no-template --tunnel --set agent_sandbox.router_namespace={space}")
        }
    };
    format!(
        "podbay install {} {install} | kubectl apply -f - creates an account that may; for this one: \
         kubectl create {role} {name}{flag} --verb={} --resource={resource} && \
         kubectl create {role}binding {name}{flag} --{role}={name} {subject}",
        needs.mode,
        verbs.join(",")
    )
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "@%+=:,./-_".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Rights that Podbay doesn't need: an agent's account that can read secrets or create pods everywhere is worth stealing.
pub(super) async fn excess(cluster: &Cluster, mode: &str) -> Finding {
    let finding = |state, detail: String| Finding::new("excess", "rights that Podbay doesn't need", state, detail);
    let space = Some(cluster.namespace.as_str());
    let asked = [
        ("read the namespace's secrets", space, "", "secrets", "get"),
        ("create pods in every namespace", None, "", "pods", "create"),
        ("change roles", space, "rbac.authorization.k8s.io", "rolebindings", "create"),
    ];
    let answers =
        join_all(asked.iter().map(|(_, space, group, resource, verb)| may(cluster, *space, group, resource, verb)))
            .await;
    let mut found = Vec::new();
    for ((what, ..), answer) in asked.iter().zip(answers) {
        match answer {
            Ok(true) => found.push(*what),
            Ok(false) => {}
            Err(error) => return finding(CheckState::Skipped, format!("unknown: {error}")),
        }
    }
    if found.is_empty() {
        return finding(CheckState::Ok, "none found".into());
    }
    finding(CheckState::Warning, format!("this account may {}", found.join(", "))).fix(format!(
        "let programs use an account of their own: podbay install {mode} --namespace {} | kubectl apply -f -",
        cluster.namespace
    ))
}

/// Whether this account may do something, in a namespace or in all.
async fn may(
    cluster: &Cluster,
    namespace: Option<&str>,
    group: &str,
    resource: &str,
    verb: &str,
) -> Result<bool, Error> {
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, sub)) => (resource, Some(sub.to_owned())),
        None => (resource, None),
    };
    let attributes = ResourceAttributes {
        group: Some(group.into()),
        resource: Some(resource.into()),
        subresource,
        verb: Some(verb.into()),
        namespace: namespace.map(str::to_owned),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let answer =
        reviews.create(&PostParams::default(), &review).await.map_err(Error::api("list this account's rights"))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_can_be_pasted() {
        let needs = crate::raw::Features::default().needs();
        let right = &needs.rights[1];
        let text = grant(&needs, right, &["get"], "system:serviceaccount:agents:podbay", "boxes");
        assert!(text.ends_with(
            "kubectl create role podbay-pods-exec -n boxes --verb=get --resource=pods/exec && \
             kubectl create rolebinding podbay-pods-exec -n boxes --role=podbay-pods-exec \
             --serviceaccount=agents:podbay"
        ));
        let everywhere = crate::raw::Features { namespace_per_sandbox: true, ..Default::default() }.needs();
        assert!(
            grant(&everywhere, right, &["get"], "o'neil", "boxes")
                .ends_with(r"--clusterrole=podbay-pods-exec --user='o'\''neil'")
        );
    }

    #[test]
    fn a_right_elsewhere_is_granted_there_and_the_sandboxes_stay_where_they_are() {
        let features = crate::agent_sandbox::Features { gateway: Some("edge".into()), ..Default::default() };
        let needs = features.needs();
        let right = needs.rights.iter().find(|right| right.resource == "gateways").unwrap();
        let text = grant(&needs, right, &["get"], "eve", "boxes");
        let install = "podbay install agent-sandbox --namespace boxes --no-template --gateway \
                       --set agent_sandbox.gateway_namespace=edge | ";
        assert!(text.starts_with(install), "{text}");
        let role =
            "kubectl create role podbay-gateways -n edge --verb=get --resource=gateways.gateway.networking.k8s.io && ";
        assert!(text.contains(role), "{text}");
        assert!(text.ends_with("-n edge --role=podbay-gateways --user=eve"), "{text}");
    }
}
