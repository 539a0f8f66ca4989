//! The tables. Sums and units are bytes that sort like numbers ([`crate::sum`]), times are
//! milliseconds since 1970, numbers are those of the ledger unless a comment says otherwise.

/// The version of the tables below. A file of another version is never migrated: the server deletes
/// and rebuilds it.
pub const SCHEMA_VERSION: i64 = 12;

/// All tables and indexes.
pub const TABLES: &str = "
-- The progress of history, and the counters for the numbers that it assigns.
CREATE TABLE progress (
  only INTEGER PRIMARY KEY CHECK (only = 1), position INTEGER NOT NULL, at INTEGER NOT NULL,
  entries INTEGER NOT NULL, buckets INTEGER NOT NULL, holds INTEGER NOT NULL) STRICT;
INSERT INTO progress VALUES (1, 0, 0, 0, 0, 0);
-- The last journal batch whose records are all applied. Empty before the first.
CREATE TABLE followed (
  only INTEGER PRIMARY KEY CHECK (only = 1), sequence INTEGER NOT NULL, position INTEGER NOT NULL,
  hash BLOB NOT NULL) STRICT;

-- Decisions, many per row (see the module of blocks). A group has one decision per command.
CREATE TABLE decisions (first INTEGER PRIMARY KEY, block BLOB NOT NULL) STRICT;
-- Movements, many per row. Numbered densely from 1, in order of time.
CREATE TABLE entries (first INTEGER PRIMARY KEY, block BLOB NOT NULL) STRICT;
-- Lists of numbers, in parts: the entries of an account, the decisions that concern it, and so on
-- (see the module of lists). A part contains what one transaction added, ascending from its first.
CREATE TABLE lists (
  list INTEGER NOT NULL, first INTEGER NOT NULL, numbers BLOB NOT NULL,
  PRIMARY KEY (list, first)) STRICT, WITHOUT ROWID;

-- hour: the last hour with usage.
CREATE TABLE accounts (
  number INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, kind INTEGER NOT NULL, parent INTEGER,
  tenant INTEGER NOT NULL, hour INTEGER, available_class INTEGER NOT NULL,
  held_class INTEGER NOT NULL) STRICT;
-- Indexed by the leading digits only, so that most changes leave the index unchanged.
CREATE INDEX accounts_by_available ON accounts (kind, available_class);
CREATE INDEX accounts_by_held ON accounts (kind, held_class);
CREATE INDEX accounts_by_hour ON accounts (kind, hour);
-- The current state of an account. rest: the uncollected amount, the usage of the last hour as in
-- usage_hours, and totals since the account was opened, as sums of variable length.
CREATE TABLE account_states (
  number INTEGER PRIMARY KEY, available BLOB NOT NULL, held BLOB NOT NULL,
  rest BLOB NOT NULL) STRICT;

CREATE TABLE grants (
  number INTEGER PRIMARY KEY, name TEXT NOT NULL, account INTEGER NOT NULL, kind INTEGER NOT NULL,
  amount BLOB NOT NULL, created_at INTEGER NOT NULL, effective_at INTEGER NOT NULL,
  expires_at INTEGER, terms BLOB NOT NULL, shared INTEGER NOT NULL, bucket INTEGER,
  start BLOB, reference TEXT) STRICT;
CREATE INDEX grants_by_bucket ON grants (bucket, start);
CREATE INDEX grants_by_account ON grants (account, number);

CREATE TABLE buckets (
  number INTEGER PRIMARY KEY, account INTEGER NOT NULL, terms BLOB NOT NULL,
  shared INTEGER NOT NULL, expired INTEGER NOT NULL, grants INTEGER NOT NULL,
  length BLOB NOT NULL) STRICT;
CREATE INDEX buckets_by_terms ON buckets (terms, number);
CREATE INDEX buckets_by_account ON buckets (account, number);
-- The free amount of a bucket, and amounts of an account that change seldom, from an instant on.
-- The last level is the current one. Many instants per row (see the module of levels), keyed by the
-- first. level: the account and which amount.
CREATE TABLE bucket_levels (
  bucket INTEGER NOT NULL, at INTEGER NOT NULL, levels BLOB NOT NULL,
  PRIMARY KEY (bucket, at)) STRICT, WITHOUT ROWID;
CREATE TABLE account_levels (
  level INTEGER NOT NULL, at INTEGER NOT NULL, levels BLOB NOT NULL,
  PRIMARY KEY (level, at)) STRICT, WITHOUT ROWID;

-- Holds and charges under their own numbers, because the ledger reuses its numbers.
-- entries: the numbers of the first entries, in steps; further ones are in lists.
CREATE TABLE holds (
  hold INTEGER PRIMARY KEY, tenant INTEGER NOT NULL, kind INTEGER NOT NULL, name TEXT NOT NULL,
  job INTEGER, record BLOB NOT NULL, digest BLOB NOT NULL, entries BLOB NOT NULL) STRICT;
CREATE INDEX holds_by_job ON holds (job) WHERE job IS NOT NULL;
CREATE INDEX holds_by_name ON holds (tenant, kind, name);
-- The holds of 64 numbers of the ledger: 8 bytes each, zeros for a number without a hold.
CREATE TABLE live_holds (numbers INTEGER PRIMARY KEY, holds BLOB NOT NULL) STRICT;

-- Refunds, transfers and collections, by name, and the records that made them. A refund of a job may
-- have several parts, which share a record. entry: its first entry. account: the one that spent, or
-- that the credits left. target: the one that they went to. pieces: the units, in their order.
CREATE TABLE movements (
  tenant INTEGER NOT NULL, what INTEGER NOT NULL, name TEXT NOT NULL, position INTEGER NOT NULL,
  entry INTEGER NOT NULL, account INTEGER NOT NULL, target INTEGER, hold INTEGER,
  pieces BLOB NOT NULL, reason TEXT, reference TEXT,
  PRIMARY KEY (tenant, what, name)) STRICT, WITHOUT ROWID;

-- Usage per account and past hour, as sums: spent, drawn and GPU time of the subtree, burned of the
-- account's own grants.
CREATE TABLE usage_hours (
  kind INTEGER NOT NULL, hour INTEGER NOT NULL, account INTEGER NOT NULL, usage BLOB NOT NULL,
  PRIMARY KEY (kind, hour, account)) STRICT, WITHOUT ROWID;
CREATE INDEX usage_by_account ON usage_hours (account, hour);

-- Jobs, and the decisions that concern them.
CREATE TABLE jobs (
  number INTEGER PRIMARY KEY, tenant INTEGER NOT NULL, name TEXT NOT NULL, account INTEGER NOT NULL,
  state INTEGER NOT NULL, submitted_at INTEGER NOT NULL, ended_at INTEGER,
  class TEXT NOT NULL) STRICT;
CREATE INDEX jobs_by_name ON jobs (tenant, name, number);
CREATE TABLE record_jobs (
  job INTEGER NOT NULL, position INTEGER NOT NULL, item INTEGER NOT NULL,
  PRIMARY KEY (job, position, item)) STRICT, WITHOUT ROWID;
CREATE TABLE job_labels (
  job INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
  PRIMARY KEY (job, name)) STRICT, WITHOUT ROWID;
-- The holds of jobs, and what the attempt of each runs on: '' while it is not known.
CREATE TABLE job_holds (
  hold INTEGER PRIMARY KEY, job INTEGER NOT NULL, gpu_type TEXT NOT NULL, region TEXT NOT NULL,
  class TEXT NOT NULL) STRICT;
CREATE INDEX job_holds_by_job ON job_holds (job, hold);
-- The cells by their numbers in the ledger.
CREATE TABLE cells (number INTEGER PRIMARY KEY, region TEXT NOT NULL) STRICT;
-- Spending per spender and hour on jobs (-1: none) and on GPU types, regions and classes ('': none).
-- Spending on nothing of these has no row: it is the rest of usage_hours.
CREATE TABLE spend_hours (
  account INTEGER NOT NULL, hour INTEGER NOT NULL, job INTEGER NOT NULL, gpu_type TEXT NOT NULL,
  region TEXT NOT NULL, class TEXT NOT NULL, spent BLOB NOT NULL,
  PRIMARY KEY (account, hour, job, gpu_type, region, class)) STRICT, WITHOUT ROWID;

CREATE TABLE budgets (
  account INTEGER NOT NULL, name TEXT NOT NULL, budget_limit BLOB NOT NULL, unit INTEGER NOT NULL,
  period INTEGER NOT NULL, mode INTEGER NOT NULL, utc_offset_minutes INTEGER NOT NULL,
  set_at INTEGER NOT NULL, removed_at INTEGER, PRIMARY KEY (account, name)) STRICT, WITHOUT ROWID;
CREATE TABLE budget_alerts (
  account INTEGER NOT NULL, name TEXT NOT NULL, position INTEGER NOT NULL, percent INTEGER NOT NULL,
  at INTEGER NOT NULL, used BLOB NOT NULL,
  PRIMARY KEY (account, name, position, percent)) STRICT, WITHOUT ROWID;
";
