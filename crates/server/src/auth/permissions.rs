//! Sets of roles, and what a request may need beyond a role. The table of operations says which
//! operation needs what.

use bursar_api::system::key::Role;

/// A set of roles.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Roles(u8);

const fn set(roles: &[Role]) -> Roles {
    let mut bits = 0;
    let mut place = 0;
    while place < roles.len() {
        bits |= 1 << roles[place] as u8;
        place += 1;
    }
    Roles(bits)
}

impl Roles {
    /// Administrators only.
    pub const ADMIN: Roles = set(&[Role::Admin]);
    /// Issue, revoke and limit credits.
    pub const MONEY: Roles = set(&[Role::Admin, Role::Billing]);
    /// Spend credits.
    pub const SPEND: Roles = set(&[Role::Admin, Role::Billing, Role::Submitter]);
    /// Stop spending.
    pub const STOP: Roles = set(&[Role::Admin, Role::Billing, Role::Operator]);
    /// End jobs.
    pub const END: Roles = set(&[Role::Admin, Role::Billing, Role::Operator, Role::Submitter]);
    /// Act as the agent of a node.
    pub const AGENT: Roles = set(&[Role::Admin, Role::Agent]);
    /// Operate nodes and regions.
    pub const MACHINES: Roles = set(&[Role::Admin, Role::Operator]);
    /// Read the audit trail.
    pub const AUDIT: Roles = set(&[Role::Admin, Role::Auditor]);
    /// Read accounts and credits.
    pub const READ: Roles = set(&[
        Role::Admin,
        Role::Billing,
        Role::Operator,
        Role::Submitter,
        Role::Viewer,
        Role::Auditor,
    ]);
    /// Every valid key.
    pub const ANY: Roles = set(&Role::ALL);

    /// Whether a role is in the set.
    pub const fn contains(self, role: Role) -> bool {
        self.0 & (1 << role as u8) != 0
    }

    /// The roles of the set, in order.
    pub fn list(self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(move |role| self.contains(*role))
    }
}

/// Whether an operation concerns one tenant or the whole platform.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Data of one tenant. Anything outside the key's scope is not found.
    Tenant,
    /// Data that belongs to no tenant; a key with a scope may read it.
    Shared,
    /// Data of one tenant, where credits are issued: needs a platform key or one with the
    /// capability `issue`.
    Issue,
    /// The platform itself: needs a key without a scope.
    Platform,
    /// Needs no key.
    Public,
}

impl Reach {
    /// As in the OpenAPI document.
    pub fn name(self) -> &'static str {
        match self {
            Reach::Tenant => "tenant",
            Reach::Shared => "shared",
            Reach::Issue => "issue",
            Reach::Platform => "platform",
            Reach::Public => "public",
        }
    }
}

/// What a request needs beyond the role of its operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Authority {
    /// Nothing more.
    Role,
    /// The capability `issue`, if it returns what a region charged for a job. Known only at the
    /// decision.
    IssueForJobs,
    /// Issues credits: needs a platform key or one with the capability `issue`.
    Issue,
    /// A platform key.
    Platform,
}
