//! The permission table: the roles of each operation of the API.

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
}

/// What a request needs beyond the role of its operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Authority {
    /// Nothing more.
    Role,
    /// Issues credits: needs a platform key or one with the capability `issue`.
    Issue,
    /// A platform key.
    Platform,
}

/// One row: the operation, its roles and its reach.
pub type Row = (&'static str, Roles, Reach);

/// Every operation that needs a key.
pub const TABLE: &[Row] = &[
    ("open_account", Roles::MONEY, Reach::Tenant),
    ("list_accounts", Roles::READ, Reach::Tenant),
    ("get_account", Roles::READ, Reach::Tenant),
    ("change_account", Roles::MONEY, Reach::Tenant),
    ("freeze_account", Roles::STOP, Reach::Tenant),
    ("unfreeze_account", Roles::STOP, Reach::Tenant),
    ("collect", Roles::MONEY, Reach::Tenant),
    ("get_balance", Roles::READ, Reach::Tenant),
    ("list_entries", Roles::READ, Reach::Tenant),
    ("get_statement", Roles::READ, Reach::Tenant),
    ("get_forecast", Roles::READ, Reach::Tenant),
    ("set_budget", Roles::MONEY, Reach::Tenant),
    ("list_budgets", Roles::READ, Reach::Tenant),
    ("get_budget", Roles::READ, Reach::Tenant),
    ("remove_budget", Roles::MONEY, Reach::Tenant),
    ("set_quota", Roles::MACHINES, Reach::Tenant),
    ("get_quota", Roles::READ, Reach::Tenant),
    ("remove_quota", Roles::MACHINES, Reach::Tenant),
    ("get_top", Roles::READ, Reach::Tenant),
    ("issue_grant", Roles::MONEY, Reach::Issue),
    ("list_grants", Roles::READ, Reach::Tenant),
    ("get_grant", Roles::READ, Reach::Tenant),
    ("revoke_grant", Roles::MONEY, Reach::Tenant),
    ("place_hold", Roles::SPEND, Reach::Tenant),
    ("list_holds", Roles::READ, Reach::Tenant),
    ("get_hold", Roles::READ, Reach::Tenant),
    ("list_hold_lots", Roles::READ, Reach::Tenant),
    ("capture_hold", Roles::SPEND, Reach::Tenant),
    ("extend_hold", Roles::SPEND, Reach::Tenant),
    ("settle_hold", Roles::SPEND, Reach::Tenant),
    ("release_hold", Roles::SPEND, Reach::Tenant),
    ("create_charge", Roles::SPEND, Reach::Tenant),
    ("get_charge", Roles::READ, Reach::Tenant),
    ("create_refund", Roles::MONEY, Reach::Tenant),
    ("create_transfer", Roles::MONEY, Reach::Tenant),
    ("set_price", Roles::MONEY, Reach::Platform),
    ("list_prices", Roles::ANY, Reach::Shared),
    ("set_class", Roles::MACHINES, Reach::Platform),
    ("list_classes", Roles::ANY, Reach::Shared),
    ("submit_job", Roles::SPEND, Reach::Tenant),
    ("list_jobs", Roles::READ, Reach::Tenant),
    ("get_job", Roles::READ, Reach::Tenant),
    ("cancel_job", Roles::END, Reach::Tenant),
    ("preempt_job", Roles::MACHINES, Reach::Tenant),
    ("explain_job", Roles::READ, Reach::Tenant),
    ("get_job_timeline", Roles::READ, Reach::Tenant),
    ("get_job_logs", Roles::READ, Reach::Tenant),
    ("get_quote", Roles::READ, Reach::Tenant),
    ("report_usage", Roles::SPEND, Reach::Tenant),
    ("register_node", Roles::AGENT, Reach::Tenant),
    ("heartbeat_node", Roles::AGENT, Reach::Tenant),
    ("send_node_log", Roles::AGENT, Reach::Tenant),
    ("list_nodes", Roles::ANY, Reach::Tenant),
    ("get_node", Roles::ANY, Reach::Tenant),
    ("drain_node", Roles::MACHINES, Reach::Tenant),
    ("resume_node", Roles::MACHINES, Reach::Tenant),
    ("delete_node", Roles::MACHINES, Reach::Tenant),
    ("list_regions", Roles::ANY, Reach::Shared),
    ("get_queue", Roles::READ, Reach::Tenant),
    ("plan_maintenance", Roles::MACHINES, Reach::Platform),
    ("get_maintenance", Roles::ANY, Reach::Shared),
    ("cancel_maintenance", Roles::MACHINES, Reach::Platform),
    ("create_key", Roles::ADMIN, Reach::Tenant),
    ("list_keys", Roles::ADMIN, Reach::Tenant),
    ("revoke_key", Roles::ADMIN, Reach::Tenant),
    ("list_audit", Roles::AUDIT, Reach::Tenant),
    ("get_checkpoint", Roles::AUDIT, Reach::Shared),
    ("get_proof", Roles::AUDIT, Reach::Platform),
    ("follow_events", Roles::READ, Reach::Tenant),
    ("run_batch", Roles::SPEND, Reach::Tenant),
    ("get_clock", Roles::ANY, Reach::Shared),
    ("move_clock", Roles::ADMIN, Reach::Platform),
    ("accept_clock", Roles::MACHINES, Reach::Platform),
];

/// The row of an operation.
///
/// # Panics
/// If there is none: each handler names its own operation, and a test compares the table with the
/// routes.
pub fn row(operation: &str) -> &'static Row {
    TABLE.iter().find(|row| row.0 == operation).expect("every operation has a row")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn administrators_may_do_everything_and_viewers_change_nothing() {
        for (operation, roles, _) in TABLE {
            assert!(roles.contains(Role::Admin), "{operation}");
            let reads = ["get_", "list_", "follow_", "explain_"]
                .iter()
                .any(|verb| operation.starts_with(verb));
            assert!(reads || !roles.contains(Role::Viewer), "{operation}");
        }
    }
}
