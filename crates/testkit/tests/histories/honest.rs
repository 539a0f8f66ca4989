//! Histories of a server that keeps every promise: operations take effect one after the other, each
//! between its request and its answer. Answers are lost, requests are repeated, a key is revoked.

use std::collections::BTreeMap;

use bursar_testkit::generate::Random;
use bursar_testkit::histories::{
    CallOutcome, ClientCall, ClientHistory, JournalEntry, KeyLife, MachineJournal, MicroCredits,
    MoneyEffect, MoneyRequest, Parts, RefusalReason,
};

/// The tenants' accounts, and the journal of each.
const ACCOUNTS: [(&str, usize); 4] = [("acme", 0), ("acme:nlp", 0), ("umbra", 1), ("zeta", 1)];
/// So rich that it can always pay.
pub(crate) const RICH: &str = "acme";

/// A hold or a charge.
struct Spent {
    tenant: String,
    from: Parts,
    /// What is taken and not refunded.
    taken: Parts,
    /// What was taken when it was closed.
    captured: Option<MicroCredits>,
}

/// A server, and everything that its clients see.
struct World {
    random: Random,
    now: u64,
    history: ClientHistory,
    free: BTreeMap<String, MicroCredits>,
    held: BTreeMap<String, MicroCredits>,
    /// Holds and charges by their ids.
    spendings: BTreeMap<String, Spent>,
    made: u32,
    revoked: bool,
}

/// A history with this many operations.
pub(crate) fn history(seed: u64, operations: usize) -> ClientHistory {
    let journal = |machine: &str| MachineJournal { machine: machine.into(), ..Default::default() };
    let life = |bearer: &str| KeyLife { bearer: bearer.into(), made: 1, revoked: None };
    let mut world = World {
        random: Random::new(seed),
        now: 1_000,
        history: ClientHistory {
            journals: vec![journal("ledger-0"), journal("ledger-1")],
            calls: Vec::new(),
            keys: vec![life("root"), life("guest")],
        },
        free: BTreeMap::new(),
        held: BTreeMap::new(),
        spendings: BTreeMap::new(),
        made: 0,
        revoked: false,
    };
    for (account, home) in ACCOUNTS {
        world.write(home, None, MoneyEffect::Opened { account: account.into() });
    }
    world.change("root", MoneyRequest::Grant { id: None, account: RICH.into(), amount: 1 << 40 });
    for step in 0..operations {
        world.now += u64::try_from(world.random.between(1, 60)).expect("positive");
        if step == operations / 2 {
            let (asked, answered) = world.around();
            world.history.keys[1].revoked = Some((asked, Some(answered)));
            world.revoked = true;
        }
        world.step();
    }
    world.history
}

fn tenant(account: &str) -> String {
    account.split(':').next().unwrap_or(account).to_owned()
}

impl World {
    fn step(&mut self) {
        let (account, home) = *self.random.pick(&ACCOUNTS);
        let bearer = if self.random.once_in(4) { "guest" } else { "root" };
        let amount = u64::try_from(self.random.between(1, 1_000_000)).expect("positive");
        self.made += 1;
        let id = self.random.chance(50).then(|| format!("own-{}", self.made));
        let account = account.to_owned();
        if self.random.once_in(9) {
            // A barrier, or a record without an effect.
            self.history.journals[home].last += 1;
        }
        let spendings: Vec<String> = self.spendings.keys().cloned().collect();
        let request = match self.random.index(10) {
            0 | 1 => MoneyRequest::Grant { id, account, amount },
            2 | 3 => MoneyRequest::Hold { id, account, amount },
            4 => MoneyRequest::Charge { id, account, amount },
            5 | 6 if !spendings.is_empty() => {
                let hold = self.random.pick(&spendings).clone();
                let all = sum(&self.spendings[&hold].from);
                let total = u64::try_from(self.random.between(0, 4)).expect("small") * (all / 4);
                MoneyRequest::Settle { hold, total }
            }
            7 if !spendings.is_empty() => {
                let of = self.random.pick(&spendings).clone();
                MoneyRequest::Refund { id, of, amount: amount % 1_000 + 1 }
            }
            _ => return self.read(bearer, account),
        };
        self.change(bearer, request);
    }

    /// A time before now and one after it.
    fn around(&mut self) -> (u64, u64) {
        let mut off = || u64::try_from(self.random.between(1, 150)).expect("positive");
        (self.now - off(), self.now + off())
    }

    fn refused_key(&self, bearer: &str) -> bool {
        bearer == "guest" && self.revoked
    }

    fn home(&self, tenant: &str) -> usize {
        ACCOUNTS.iter().find(|(account, _)| *account == tenant).expect("a known tenant").1
    }

    fn spendable(&self, account: &str) -> MicroCredits {
        let free = |account: &str| self.free.get(account).copied().unwrap_or_default();
        let above = tenant(account);
        free(account) + if above == account { 0 } else { free(&above) }
    }

    fn record(&mut self, call: ClientCall) {
        self.history.calls.push(call);
    }

    fn read(&mut self, bearer: &str, account: String) {
        let (invoked, returned) = self.around();
        let amount =
            |sums: &BTreeMap<String, MicroCredits>| sums.get(&account).copied().unwrap_or_default();
        let outcome = if self.refused_key(bearer) {
            CallOutcome::Unauthenticated
        } else if self.random.once_in(12) {
            CallOutcome::Unknown
        } else {
            CallOutcome::Balance {
                position: self.history.journals[self.home(&tenant(&account))].last,
                available: amount(&self.free),
                held: amount(&self.held),
                spendable: self.spendable(&account),
            }
        };
        let (tenant, bearer) = (tenant(&account), bearer.to_owned());
        let request = MoneyRequest::Balance { account };
        let client = self.client();
        let repeat = None;
        self.record(ClientCall {
            client,
            bearer,
            tenant,
            invoked,
            returned,
            repeat,
            request,
            outcome,
        });
    }

    fn client(&mut self) -> u32 {
        u32::try_from(self.random.index(8)).expect("small")
    }

    /// One change with its tries: some get no answer, before or after the effect.
    fn change(&mut self, bearer: &str, request: MoneyRequest) {
        let tenant = match &request {
            MoneyRequest::Grant { account, .. }
            | MoneyRequest::Hold { account, .. }
            | MoneyRequest::Charge { account, .. }
            | MoneyRequest::Balance { account } => tenant(account),
            MoneyRequest::Settle { hold: id, .. } | MoneyRequest::Refund { of: id, .. } => {
                self.spendings[id].tenant.clone()
            }
        };
        let repeat = Some(format!("key-{}", self.made));
        let (client, (invoked, returned)) = (self.client(), self.around());
        let call = ClientCall {
            client,
            bearer: bearer.to_owned(),
            tenant,
            invoked,
            returned,
            repeat,
            request,
            outcome: CallOutcome::Unknown,
        };
        let lost_before = self.random.once_in(8);
        if lost_before {
            // The request never arrived.
            let early = invoked - u64::try_from(self.random.between(1, 200)).expect("positive");
            self.record(ClientCall { invoked: early, ..call.clone() });
            if self.random.once_in(3) {
                return;
            }
        }
        let outcome = if self.refused_key(bearer) {
            CallOutcome::Unauthenticated
        } else {
            self.decide(&call)
        };
        let lost_after = self.random.once_in(6);
        let first = if lost_after { CallOutcome::Unknown } else { outcome.clone() };
        self.record(ClientCall { outcome: first, ..call.clone() });
        if lost_after && self.random.once_in(3) {
            return;
        }
        if lost_after || self.random.once_in(6) {
            let again = returned + u64::try_from(self.random.between(1, 100)).expect("positive");
            let outcome = match outcome {
                CallOutcome::Done { position, id, amount, spendable_after, .. } => {
                    CallOutcome::Done { position, id, amount, spendable_after, first: false }
                }
                other => other,
            };
            // The key may be revoked by then; another one of the same tenant is not.
            let bearer = match outcome {
                CallOutcome::Unauthenticated => call.bearer.clone(),
                _ => "root".to_owned(),
            };
            self.record(ClientCall {
                bearer,
                invoked: again,
                returned: again + 50,
                outcome,
                ..call
            });
        }
    }

    fn write(&mut self, home: usize, repeat: Option<String>, effect: MoneyEffect) -> u64 {
        let journal = &mut self.history.journals[home];
        journal.last += 1;
        journal.entries.push(JournalEntry { position: journal.last, repeat, effect });
        journal.last
    }

    /// Takes free credits, the account's own first.
    fn draw(&mut self, account: &str, amount: MicroCredits) -> Parts {
        let (mut left, mut parts) = (amount, Vec::new());
        for owner in [account.to_owned(), tenant(account)] {
            let free = self.free.entry(owner.clone()).or_default();
            let taken = left.min(*free);
            if taken > 0 {
                *free -= taken;
                left -= taken;
                parts.push((owner, taken));
            }
        }
        parts
    }

    fn decide(&mut self, call: &ClientCall) -> CallOutcome {
        let (tenant, home) = (call.tenant.clone(), self.home(&call.tenant));
        let name = |id: &Option<String>, made: u32| id.clone().unwrap_or(format!("made-{made}"));
        let (id, amount, spendable_after, effect) = match call.request.clone() {
            MoneyRequest::Grant { id, account, amount } => {
                *self.free.entry(account.clone()).or_default() += amount;
                let id = name(&id, self.made);
                (id.clone(), amount, None, MoneyEffect::Granted { id, account, amount })
            }
            MoneyRequest::Hold { account, amount, .. }
            | MoneyRequest::Charge { account, amount, .. }
                if self.spendable(&account) < amount =>
            {
                return CallOutcome::Refused(RefusalReason::InsufficientCredits);
            }
            MoneyRequest::Hold { id, account, amount } => {
                let (id, from) = (name(&id, self.made), self.draw(&account, amount));
                for (owner, part) in &from {
                    *self.held.entry(owner.clone()).or_default() += part;
                }
                self.spend(&id, &account, from.clone(), false);
                (id.clone(), amount, None, MoneyEffect::Held { id, account, from })
            }
            MoneyRequest::Charge { id, account, amount } => {
                let (id, from) = (name(&id, self.made), self.draw(&account, amount));
                self.spend(&id, &account, from.clone(), true);
                let spendable_after = self.spendable(&account);
                let effect =
                    MoneyEffect::Charged { id: id.clone(), account, from, spendable_after };
                (id, amount, Some(spendable_after), effect)
            }
            MoneyRequest::Settle { hold, total } => {
                let open = self.spendings.get_mut(&hold).expect("a known one");
                if let Some(captured) = open.captured {
                    // A repeat with the same total would be answered as done.
                    return match captured == total {
                        true => CallOutcome::Unknown,
                        false => CallOutcome::Refused(RefusalReason::HoldClosed),
                    };
                }
                open.captured = Some(total);
                let (mut left, from) = (total, open.from.clone());
                for (owner, part) in from {
                    let taken = left.min(part);
                    left -= taken;
                    if taken > 0 {
                        open.taken.push((owner.clone(), taken));
                    }
                    *self.held.entry(owner.clone()).or_default() -= part;
                    *self.free.entry(owner).or_default() += part - taken;
                }
                let taken = open.taken.clone();
                (hold.clone(), total, None, MoneyEffect::Settled { tenant, hold, taken })
            }
            MoneyRequest::Refund { id, of, amount } => {
                let spending = self.spendings.get_mut(&of).expect("a known one");
                if sum(&spending.taken) < amount {
                    return CallOutcome::Refused(RefusalReason::RefundTooLarge);
                }
                let (mut left, mut to) = (amount, Vec::new());
                for (owner, part) in &mut spending.taken {
                    let back = left.min(*part);
                    if back > 0 {
                        *part -= back;
                        left -= back;
                        *self.free.entry(owner.clone()).or_default() += back;
                        to.push((owner.clone(), back));
                    }
                }
                let id = name(&id, self.made);
                (id.clone(), amount, None, MoneyEffect::Refunded { id, tenant, of, to })
            }
            MoneyRequest::Balance { .. } => unreachable!("a read is no change"),
        };
        let position = self.write(home, call.repeat.clone(), effect);
        CallOutcome::Done { position, id, amount, spendable_after, first: true }
    }

    fn spend(&mut self, id: &str, account: &str, from: Parts, closed: bool) {
        let taken = if closed { from.clone() } else { Vec::new() };
        let (tenant, captured) = (tenant(account), closed.then(|| sum(&from)));
        self.spendings.insert(id.to_owned(), Spent { tenant, from, taken, captured });
    }
}

fn sum(parts: &Parts) -> MicroCredits {
    parts.iter().map(|(_, amount)| amount).sum()
}
