//! The stored form of the terms that commands set: policies, settings, restrictions, contexts,
//! budgets.

use bursar_core::ledger::command::{
    AccountKind, AccountSettings, BudgetMode, BudgetPeriod, BudgetTerms, BudgetUnit, Cause,
    ClearedSettings, Context, GrantKind, OnExpiry, Policy, Restriction,
};
use bursar_core::ledger::credits::price::Rate;

use crate::record::codec::wire::{stored_choice, stored_struct};

stored_choice!(AccountKind { 0 Org, 1 Team, 2 Project, 3 User });
stored_choice!(GrantKind { 0 Promotion, 1 Compensation, 2 Grant, 3 Purchase });
stored_choice!(OnExpiry { 0 HonorHold, 1 Strict });
stored_choice!(Cause { 0 Holder, 1 Platform });
stored_choice!(BudgetUnit { 0 Credits, 1 GpuHours });
stored_choice!(BudgetPeriod { 0 Total, 1 Day, 2 Week, 3 Month });
stored_choice!(BudgetMode { 0 Hard, 1 Soft });

stored_struct!(Policy {
    0 idempotency_ttl_ms,
    1 retention_ms,
    2 lateness_ms,
    3 compensation_ttl_ms,
    4 expiry_waits = false,
});

stored_struct!(AccountSettings {
    0 name = None,
    1 weight_milli = None,
    2 home_region = None,
    3 metadata = None,
    4 compensation_ttl_ms = None,
    5 overdraft_limit = None,
});

stored_struct!(ClearedSettings {
    0 name = false,
    1 metadata = false,
    2 compensation_ttl_ms = false,
    3 overdraft_limit = false,
});

stored_struct!(Restriction {
    0 gpu_types = None,
    1 regions = None,
    2 classes = None,
    3 max_share_micro = None,
});

stored_struct!(Context {
    0 gpu_types = None,
    1 regions = None,
    2 class = None,
});

stored_struct!(Rate {
    0 per_gpu_hour,
    1 share_milli,
    2 gpu_ms_limit,
});

stored_struct!(BudgetTerms {
    0 limit,
    1 unit = BudgetUnit::Credits,
    2 period,
    3 mode,
    4 thresholds,
    5 utc_offset_minutes = 0,
});
