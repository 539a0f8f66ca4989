//! Signing in through an identity provider: OpenID Connect, the code flow with PKCE.

mod provider;
pub(crate) mod ticket;

use std::path::PathBuf;

use axum::http::StatusCode;
use bursar_api::system::key::Role;
use bursar_core::name::AccountPath;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Principal;
pub use provider::Provider;

/// The longest subject of a person, as the standard says.
const MAX_SUBJECT: usize = 255;

/// What members of a group may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupMapping {
    /// The group, as the provider names it.
    pub group: String,
    /// The role of its members.
    pub role: Role,
    /// The account whose subtree they see; `*` is everything.
    pub scope: String,
}

/// How people sign in through an identity provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OidcOptions {
    /// The provider's issuer URL.
    pub issuer: String,
    /// The id of this server at the provider.
    pub client_id: String,
    /// The file with the secret of this server; a public client has none.
    #[serde(default)]
    pub client_secret_file: Option<PathBuf>,
    /// The name on the button to sign in.
    #[serde(default = "default_name")]
    pub name: String,
    /// The scopes to request.
    #[serde(default = "default_scopes")]
    pub scopes: Vec<String>,
    /// The claim with the groups of a person.
    #[serde(default = "default_claim")]
    pub groups_claim: String,
    /// What each group may do. The first group of the list that a person has counts.
    #[serde(default)]
    pub groups: Vec<GroupMapping>,
}

fn default_name() -> String {
    "single sign-on".to_owned()
}

fn default_scopes() -> Vec<String> {
    ["openid", "profile"].map(str::to_owned).into()
}

fn default_claim() -> String {
    "groups".to_owned()
}

impl OidcOptions {
    /// Why these settings cannot be used.
    pub(crate) fn fault(&self) -> Option<String> {
        if !provider::is_safe_url(&self.issuer) {
            let reason = "[oidc] issuer must be an https URL, or http on loopback";
            return Some(reason.to_owned());
        }
        if self.client_id.is_empty() {
            return Some("[oidc] client_id must be the id of this server at the provider".into());
        }
        if !self.scopes.iter().any(|scope| scope == "openid") {
            return Some("[oidc] scopes must contain \"openid\"".into());
        }
        if self.groups.is_empty() {
            return Some(
                "[oidc] needs [[oidc.groups]]: without a mapping no person has a role".into(),
            );
        }
        self.groups.iter().find_map(|mapping| {
            let group = &mapping.group;
            if mapping.scope != "*" && !AccountPath::is_valid(&mapping.scope) {
                return Some(format!(
                    "[oidc] group `{group}`: scope must be an account path or \"*\""
                ));
            }
            let is_agent = mapping.role == Role::Agent;
            is_agent.then(|| format!("[oidc] group `{group}`: agents use keys, not people"))
        })
    }

    /// The mapping of a person's groups.
    fn mapping(&self, groups: &[String]) -> Option<&GroupMapping> {
        self.groups.iter().find(|mapping| groups.contains(&mapping.group))
    }

    /// The person that claims describe, with the role and scope of its groups.
    fn person(&self, claims: &Value) -> Result<Person, SignInError> {
        let subject = claims["sub"].as_str().unwrap_or("");
        let is_plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        if subject.is_empty() || subject.len() > MAX_SUBJECT || !subject.bytes().all(is_plain) {
            return Err(SignInError::Provider(
                "the subject is not 1 to 255 plain characters".into(),
            ));
        }
        let name = ["name", "preferred_username", "email"]
            .into_iter()
            .find_map(|claim| claims[claim].as_str())
            .map(|name| name.chars().filter(|letter| !letter.is_control()).take(128).collect());
        let groups = groups_in(&claims[&self.groups_claim]);
        let mapping = self.mapping(&groups).ok_or_else(|| SignInError::NoRole {
            name: name.clone().unwrap_or_else(|| subject.to_owned()),
        })?;
        let scope = Some(mapping.scope.as_str()).filter(|scope| *scope != "*");
        let principal = Principal {
            id: format!("{subject}@{}", self.issuer).into(),
            role: mapping.role,
            scope: scope.map(Into::into),
            may_issue: scope.is_none(),
            ..Principal::root()
        };
        Ok(Person { principal, name })
    }
}

/// The groups in a claim: a list of texts, or one text.
fn groups_in(claim: &Value) -> Vec<String> {
    match claim {
        Value::String(group) => vec![group.clone()],
        Value::Array(groups) => {
            groups.iter().filter_map(|group| group.as_str().map(str::to_owned)).collect()
        }
        _ => Vec::new(),
    }
}

/// A person that has signed in.
#[derive(Debug)]
pub(crate) struct Person {
    /// Its role and scope. The id is subject and issuer, which no key has: ids of keys contain no `@`.
    pub(crate) principal: Principal,
    /// Its display name.
    pub(crate) name: Option<String>,
}

/// Why a person is not signed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SignInError {
    /// The answer does not belong to a sign-in of this browser.
    NotBegun,
    /// The person or the provider refused.
    Refused(String),
    /// The provider cannot be reached, or what it says is not valid.
    Provider(String),
    /// The token is not valid.
    Token(String),
    /// No group of the person has a role.
    NoRole {
        /// The person.
        name: String,
    },
}

impl SignInError {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            SignInError::NotBegun | SignInError::Refused(_) => StatusCode::BAD_REQUEST,
            SignInError::Provider(_) => StatusCode::BAD_GATEWAY,
            SignInError::Token(_) => StatusCode::UNAUTHORIZED,
            SignInError::NoRole { .. } => StatusCode::FORBIDDEN,
        }
    }

    /// What happened and what to do next.
    pub(crate) fn words(&self) -> String {
        match self {
            SignInError::NotBegun => {
                "This sign-in was not begun in this browser, has taken longer than ten \
                minutes, or was finished already. Sign in again."
                    .to_owned()
            }
            SignInError::Refused(reason) => {
                format!("The identity provider did not sign you in: {reason}. Sign in again.")
            }
            SignInError::Provider(reason) => format!(
                "The identity provider does not answer as it should: {reason}. Try again; if this \
                 repeats, tell an administrator of this server."
            ),
            SignInError::Token(reason) => format!(
                "The identity provider's token is not valid: {reason}. Sign in again; if this repeats, \
                 tell an administrator of this server."
            ),
            SignInError::NoRole { name } => format!(
                "You are signed in at the identity provider as {name}, but none of your groups has a \
                 role here. Ask an administrator to add one of your groups to [[oidc.groups]] in the \
                 configuration of this server."
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn options() -> OidcOptions {
        toml::from_str(
            "issuer = \"https://id.example\"\nclient_id = \"bursar\"\n\
             groups = [{ group = \"ops\", role = \"operator\", scope = \"*\" },\n\
             { group = \"nlp\", role = \"submitter\", scope = \"acme:nlp\" }]",
        )
        .expect("it is well-formed")
    }

    #[test]
    fn a_person_has_the_role_of_its_first_mapped_group_and_no_more() {
        let options = options();
        let person = |groups: Value| options.person(&json!({ "sub": "42", "groups": groups }));
        let found = person(json!(["x", "nlp"])).expect("it is mapped").principal;
        assert_eq!((found.role, found.scope.as_deref()), (Role::Submitter, Some("acme:nlp")));
        assert_eq!(found.id, "42@https://id.example");
        assert!(!found.may_issue && found.secret_hash.is_none());
        let found = person(json!(["nlp", "ops"])).expect("it is mapped").principal;
        assert_eq!((found.role, found.scope), (Role::Operator, None));
        assert_eq!(person(json!("nlp")).expect("one text").principal.role, Role::Submitter);
        for none in
            [json!([]), json!(null), json!(["NLP"]), json!({ "nlp": true }), json!([["nlp"]])]
        {
            let refused = person(none).expect_err("no group is mapped");
            assert_eq!(refused.status(), 403);
        }
        for sub in [json!(null), json!(""), json!("a\nb"), json!("é"), json!("x".repeat(256))] {
            assert!(options.person(&json!({ "sub": sub, "groups": ["nlp"] })).is_err());
        }
    }

    #[test]
    fn settings_that_cannot_work_are_refused_with_a_reason() {
        assert_eq!(options().fault(), None);
        let with = |change: fn(&mut OidcOptions)| {
            let mut options = options();
            change(&mut options);
            options.fault()
        };
        assert!(with(|options| options.issuer = "http://id.example".into()).is_some());
        assert!(with(|options| options.client_id.clear()).is_some());
        assert!(with(|options| options.scopes.clear()).is_some());
        assert!(with(|options| options.groups.clear()).is_some());
        assert!(with(|options| options.groups[0].scope = "a b".into()).is_some());
        assert!(with(|options| options.groups[0].role = Role::Agent).is_some());
        assert_eq!(with(|options| options.issuer = "http://127.0.0.1:9".into()), None);
    }
}
