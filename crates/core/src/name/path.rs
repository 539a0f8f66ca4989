//! Tenants, ancestors and subtrees of account paths.

use super::AccountPath;

/// The tenant of an account: the first segment of its path.
pub fn tenant_of(path: &str) -> &str {
    path.split(':').next().unwrap_or(path)
}

/// The account above another. `None`: it is a tenant.
pub fn parent_of(path: &str) -> Option<&str> {
    path.rsplit_once(':').map(|(parent, _)| parent)
}

/// Whether an account is another one or lies below it.
pub fn is_at_or_below(path: &str, ancestor: &str) -> bool {
    path.strip_prefix(ancestor).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

impl AccountPath {
    /// The tenant: the first segment.
    pub fn tenant(&self) -> AccountPath {
        AccountPath::unchecked(tenant_of(self))
    }

    /// Whether a text is the path of a tenant: one segment.
    pub fn is_tenant(text: &str) -> bool {
        parent_of(text).is_none() && AccountPath::is_valid(text)
    }
}
