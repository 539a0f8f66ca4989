//! Shares: the account tree, its lanes of waiting jobs, decayed usage, quotas, groups and classes.

pub(super) mod accounts;
pub(super) mod class;
pub mod decay;
pub(super) mod group;
pub(super) mod lanes;
pub mod quota;
