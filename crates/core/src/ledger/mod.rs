//! The ledger: accounts, grants, holds, budgets.
