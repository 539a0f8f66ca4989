//! Clients and operators: they submit, cancel, preempt, pay, freeze and set limits, at random.

use bursar_core::cell::NodeKey;
use bursar_core::cell::command::{Command as CellCommand, GroupSpec, Origin};
use bursar_core::cell::ids::ClassRank;
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::credits::Credits;
use bursar_core::ledger::accounts::quota::Quota;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, BudgetMode, BudgetPeriod, BudgetTerms, BudgetUnit, Envelope,
    GrantKind, IssueGrant, SubmitJob,
};
use bursar_core::ledger::jobs::{JobTerms, Offer, OnExhausted, Reserve, WARN_AHEAD_MS};
use bursar_core::ledger::{Accepted, Command, Reply};
use bursar_core::name::{AccountPath, GpuModel, JobName};

use super::{ProcessEnd, REGIONS, World};

/// Prices in micro-credits per GPU-hour. They are not round, so that rounding matters.
const PRICES: [(&str, u64); 2] = [("H100", 2_123_457), ("A100", 1_000_003)];
/// The models of each region.
const STOCK: [&[&str]; 2] = [&["H100"], &["H100", "A100"]];

fn credits(micros: u64) -> Credits {
    Credits::from_length(micros).expect("small amounts")
}

impl World {
    /// Opens accounts and regions, and grants credits to every tenant.
    pub(super) fn open(&mut self) {
        for ledger in 0..self.ledgers.len() {
            let shard = u16::try_from(ledger).expect("few ledgers");
            for region in REGIONS {
                let region = region.into();
                self.send_to_ledger(ledger, Command::OpenRegion { region, shard });
            }
            for tenant in tenants(ledger) {
                let settings = AccountSettings::default();
                let path = tenant.as_str().into();
                let kind = AccountKind::Org;
                self.send_to_ledger(ledger, Command::OpenAccount { path, kind, settings });
                for team in ["x", "y"] {
                    let settings = AccountSettings::default();
                    let path = format!("{tenant}:{team}").into();
                    let kind = AccountKind::Team;
                    self.send_to_ledger(ledger, Command::OpenAccount { path, kind, settings });
                }
                self.grant(ledger, &tenant, 20_000_000);
            }
        }
    }

    pub(super) fn envelope(&mut self) -> Envelope {
        self.requests += 1;
        Envelope {
            actor: "client".into(),
            fingerprint: self.requests,
            key: None,
            ..Envelope::default()
        }
    }

    fn send_to_ledger(&mut self, ledger: usize, command: Command) -> Option<Reply> {
        let envelope = self.envelope();
        // A refusal is ignored. After a crash the result is unknown, and the command is not
        // repeated.
        self.ask_ledger(ledger, &envelope, &command)?.ok().map(|accepted| accepted.reply)
    }

    pub(super) fn grant(&mut self, ledger: usize, account: &str, micros: u64) {
        let expires = self.dice.below(3) == 0;
        let grant = self.some_grant(account, micros, expires);
        self.send_to_ledger(ledger, Command::IssueGrant(grant));
    }

    pub(super) fn some_grant(&mut self, account: &str, micros: u64, expires: bool) -> IssueGrant {
        let lives = 60_000 * (1 + self.dice.below(120)) as i64;
        IssueGrant {
            id: format!("g{}", self.requests).into(),
            account: account.into(),
            amount: credits(micros),
            kind: GrantKind::Purchase,
            effective_at: None,
            expires_at: expires.then(|| self.at().plus_millis(lives)),
            priority: 100,
            restriction: None,
            reference: None,
            metadata: None,
        }
    }

    /// Takes one random action of a client or an operator.
    pub(super) fn some_client_acts(&mut self) {
        let ledger = self.dice.below(self.ledgers.len());
        let tenant = tenants(ledger)[self.dice.below(2)].clone();
        match self.dice.below(40) {
            0..20 => self.submit(ledger, &tenant),
            20..25 => self.cancel(),
            25..28 => {
                let micros = 100_000 + self.dice.below(5_000_000) as u64;
                self.grant(ledger, &tenant, micros);
            }
            28 => {
                let path = self.account_of(&tenant);
                self.send_to_ledger(ledger, Command::FreezeAccount { path, by_platform: false });
            }
            29..31 => {
                for path in [tenant.clone(), format!("{tenant}:x"), format!("{tenant}:y")] {
                    let path = path.into();
                    self.send_to_ledger(
                        ledger,
                        Command::UnfreezeAccount { path, by_platform: false },
                    );
                }
            }
            31 => self.set_budget(ledger, &tenant),
            32 => {
                let (path, budget) = (tenant.as_str().into(), "b".into());
                self.send_to_ledger(ledger, Command::RemoveBudget { path, budget });
            }
            33..35 => self.set_quota(ledger, &tenant),
            35..37 => self.preempt(),
            _ => self.drain_or_resume(),
        }
    }

    fn account_of(&mut self, tenant: &str) -> AccountPath {
        match self.dice.below(3) {
            0 => tenant.into(),
            1 => format!("{tenant}:x").into(),
            _ => format!("{tenant}:y").into(),
        }
    }

    fn submit(&mut self, ledger: usize, tenant: &str) {
        let id = format!("j{}", self.requests);
        let terms = self.terms();
        let mut offers = Vec::new();
        let only = self.dice.below(4);
        for (region, stock) in REGIONS.into_iter().zip(STOCK) {
            let wanted = only > 1 || REGIONS[only] == region;
            for (model, price) in PRICES.into_iter().filter(|(model, _)| stock.contains(model)) {
                let fits = terms.gpu_types.iter().any(|wanted| wanted == model);
                if wanted && fits {
                    let per_gpu_hour = credits(price);
                    offers.push(Offer {
                        gpu_type: model.into(),
                        region: region.into(),
                        per_gpu_hour,
                    });
                }
            }
        }
        let array = (self.dice.below(10) == 0).then_some(2);
        let after = if self.dice.below(8) == 0 { self.some_job_of(ledger, tenant) } else { None };
        let longest = terms.max_runtime_ms.unwrap_or(600_000);
        let command = Command::SubmitJob(Box::new(SubmitJob {
            scope: None,
            id: id.as_str().into(),
            account: self.account_of(tenant),
            terms,
            offers,
            payload: "{}".into(),
            submitted: "{}".into(),
            hold: format!("h{}", self.requests).into(),
            array,
            after: after.map(JobName::from).into_iter().collect(),
        }));
        let envelope = self.envelope();
        let answer = self.ask_ledger(ledger, &envelope, &command);
        let Some(Ok(Accepted { reply: Reply::Jobs { first, count }, .. })) = answer else { return };
        let shard = u16::try_from(ledger).expect("few ledgers");
        for index in 0..u64::from(count) {
            let number = bursar_core::ledger::id::JobNo(first.0 + index);
            let runs = self.dice.below(usize::try_from(longest + longest / 4).expect("short"));
            let fate = ProcessEnd { runs_ms: runs as i64, succeeds: self.dice.below(6) > 0 };
            self.fates.insert(number.in_cell(shard), fate);
            let name = array.map_or(id.clone(), |_| format!("{id}.{index}"));
            self.jobs.push((ledger, tenant.to_owned(), name));
        }
    }

    fn some_job_of(&mut self, ledger: usize, tenant: &str) -> Option<String> {
        let own: Vec<&String> = self
            .jobs
            .iter()
            .filter(|(of, whose, _)| *of == ledger && whose == tenant)
            .map(|(_, _, name)| name)
            .collect();
        if own.is_empty() {
            return None;
        }
        Some(own[self.dice.below(own.len())].clone())
    }

    fn terms(&mut self) -> JobTerms {
        let gpu = match self.dice.below(8) {
            0..2 => GpuDemand::Share([250, 500, 333][self.dice.below(3)]),
            2..7 => GpuDemand::Whole(1 + self.dice.below(3) as u16),
            _ => GpuDemand::Whole(4),
        };
        let gpu_types: Vec<GpuModel> = match self.dice.below(4) {
            0 => vec!["A100".into(), "H100".into()],
            1 => vec!["A100".into()],
            _ => vec!["H100".into()],
        };
        let rolling = self.dice.below(4) == 0;
        let class = self.dice.below(4);
        JobTerms {
            external: false,
            class: ["batch", "normal", "high", "urgent"][class].into(),
            rank: ClassRank(10 * (1 + class as u8)),
            gpu,
            gpu_types,
            nodes: if self.dice.below(6) == 0 { 2 } else { 1 },
            gpu_memory_mib: 0,
            cpu_milli: 1000,
            memory_mib: 1024,
            labels: Vec::new(),
            max_runtime_ms: (!rolling || self.dice.below(2) == 0)
                .then(|| 60_000 * (1 + self.dice.below(30)) as i64),
            preemptible: self.dice.below(4) > 0,
            resumable: self.dice.below(2) == 0,
            grace_ms: 1000 * self.dice.below(60) as i64,
            reserve: if rolling { Reserve::Rolling { window_ms: 180_000 } } else { Reserve::Full },
            on_exhausted: if self.dice.below(3) == 0 {
                OnExhausted::Overdraft
            } else {
                OnExhausted::Stop
            },
            group: (self.dice.below(6) == 0)
                .then(|| GroupSpec { name: "g".into(), limit: 1 + self.dice.below(2) as u32 }),
            max_requeues: self.dice.below(4) as u32,
            warn_ahead_ms: WARN_AHEAD_MS,
        }
    }

    fn cancel(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        let at = self.dice.below(self.jobs.len());
        let (ledger, tenant, job) = self.jobs[at].clone();
        let command = Command::CancelJob { tenant: tenant.into(), job: job.into() };
        self.send_to_ledger(ledger, command);
    }

    fn set_budget(&mut self, ledger: usize, tenant: &str) {
        let terms = BudgetTerms {
            limit: credits(1_000_000 + self.dice.below(20_000_000) as u64),
            unit: BudgetUnit::Credits,
            period: BudgetPeriod::Day,
            mode: BudgetMode::Hard,
            thresholds: [50].into_iter().collect(),
            utc_offset_minutes: 0,
        };
        let (path, budget) = (tenant.into(), "b".into());
        self.send_to_ledger(ledger, Command::SetBudget { path, budget, terms });
    }

    fn set_quota(&mut self, ledger: usize, tenant: &str) {
        let region = (self.dice.below(2) == 0).then(|| REGIONS[self.dice.below(2)].into());
        let path = self.account_of(tenant);
        let command = if self.dice.below(2) == 0 {
            Command::RemoveQuota { path, region }
        } else {
            let mut quota = Quota::default();
            quota.gpus.insert("*".into(), 1 + self.dice.below(8) as u32);
            quota.running_jobs = (self.dice.below(2) == 0).then(|| self.dice.below(4) as u32);
            Command::SetQuota { path, region, quota }
        };
        self.send_to_ledger(ledger, command);
    }

    fn preempt(&mut self) {
        let jobs: Vec<_> = self.fates.keys().copied().collect();
        if jobs.is_empty() {
            return;
        }
        let job = jobs[self.dice.below(jobs.len())];
        let cell = self.dice.below(self.cells.len());
        let command = CellCommand::PreemptJob { job, by_platform: true };
        // The job may be in the other region, or have ended.
        let _ = self.ask_cell(cell, &Origin::component("operator"), &command);
    }

    fn drain_or_resume(&mut self) {
        let agent = &self.agents[self.dice.below(self.agents.len())];
        let (cell, node) = (agent.cell, NodeKey::of(&agent.offer));
        let command = if self.dice.below(3) == 0 {
            CellCommand::DrainNode { node, force: self.dice.below(2) == 0 }
        } else {
            CellCommand::ResumeNode { node }
        };
        // The node may not be registered yet.
        let _ = self.ask_cell(cell, &Origin::component("operator"), &command);
    }

    /// Removes all limits and obstacles that clients and operators have set.
    pub(super) fn remove_obstacles(&mut self) {
        for ledger in 0..self.ledgers.len() {
            for tenant in tenants(ledger) {
                let (path, budget) = (AccountPath::from(tenant.as_str()), "b".into());
                self.send_to_ledger(ledger, Command::RemoveBudget { path, budget });
                for path in [tenant.clone(), format!("{tenant}:x"), format!("{tenant}:y")] {
                    let path = AccountPath::from(path);
                    self.send_to_ledger(
                        ledger,
                        Command::UnfreezeAccount { path: path.clone(), by_platform: false },
                    );
                    for region in [None, Some("east".into()), Some("west".into())] {
                        let path = path.clone();
                        self.send_to_ledger(ledger, Command::RemoveQuota { path, region });
                    }
                }
                self.grant(ledger, &tenant, 10_000_000_000);
                self.grant(ledger, &tenant, 10_000_000_000);
                self.grant(ledger, &tenant, 10_000_000_000);
            }
        }
        for index in 0..self.agents.len() {
            let agent = &self.agents[index];
            let (cell, node) = (agent.cell, NodeKey::of(&agent.offer));
            let command = CellCommand::ResumeNode { node };
            let _ = self.ask_cell(cell, &Origin::component("operator"), &command);
        }
    }
}

pub(super) fn tenants(ledger: usize) -> [String; 2] {
    [format!("t{ledger}a"), format!("t{ledger}b")]
}
