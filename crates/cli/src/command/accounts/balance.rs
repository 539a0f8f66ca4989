//! `bursar balance`.

use bursar_client::accounts::balances;
use bursar_client::api::Time;
use bursar_client::api::accounts::balance::{Balance, BalanceQuery, Expiring};
use bursar_client::api::accounts::effective::{Effective, EffectiveQuery, FreeCredits, PathBudget};
use bursar_client::api::amount::Sum;
use bursar_client::api::credits::grant::ByKind;
use clap::Args;
use serde::Serialize;

use super::expiry::expiring_soon;
use crate::arguments::instant;
use crate::exit::Failure;
use crate::render::sheet::{Cell, Column, Row, Sheet, Tone, View, numbers, words};
use crate::session::{Session, WatchArguments};

#[derive(Args)]
#[command(after_help = "Examples:\n  bursar balance acme:nlp\n  \
    bursar balance acme:nlp --gpu-type H100 --watch\n  bursar balance acme --at 2027-01-01")]
pub(crate) struct BalanceArguments {
    /// The account; else BURSAR_ACCOUNT, else the one that the key is for.
    #[arg(env = "BURSAR_ACCOUNT")]
    account: Option<String>,
    /// The instant. A past one gives the balance at that time; a future one assumes no more spending.
    #[arg(long, value_name = "WHEN", value_parser = instant)]
    at: Option<Time>,
    /// Show what is spendable for this GPU type.
    #[arg(long, value_name = "TYPE")]
    gpu_type: Option<String>,
    /// Show what is spendable in this region.
    #[arg(long)]
    region: Option<String>,
    /// Show what is spendable in this priority class.
    #[arg(long)]
    class: Option<String>,
    #[command(flatten)]
    watch: WatchArguments,
}

pub(crate) async fn balance(session: &Session, arguments: BalanceArguments) -> Result<(), Failure> {
    let BalanceArguments { account, at, gpu_type, region, class, watch } = arguments;
    let account = session.account_or_own(account).await?;
    let query = BalanceQuery {
        at,
        gpu_type: gpu_type.clone(),
        region: region.clone(),
        class: class.clone(),
        min_position: None,
        stale_ok: None,
    };
    let now = balances::at(&account, &query);
    if at.is_some() {
        return session.watch(now, &watch).await;
    }
    let read = async || {
        let balance = session.send(now.clone()).await?.value;
        let query = EffectiveQuery {
            gpu_type: gpu_type.clone(),
            region: region.clone(),
            class: class.clone(),
            min_position: Some(balance.position),
        };
        let effective = session.send(balances::effective(&account, &query)).await?.value;
        session.rendered_value(&Wallet::of(balance, effective))
    };
    session.refresh(&watch, read).await
}

/// A balance, and what the account can spend and has spent of the credits of others.
#[derive(Serialize)]
struct Wallet {
    #[serde(flatten)]
    balance: Balance,
    largest_hold: Sum,
    held_by_me: Sum,
    spent_by_me: Sum,
    inherited: Vec<FreeCredits>,
    budgets: Vec<PathBudget>,
}

impl Wallet {
    fn of(balance: Balance, effective: Effective) -> Wallet {
        let Effective { largest_hold, held_by_me, spent_by_me, inherited, budgets, .. } = effective;
        Wallet { balance, largest_hold, held_by_me, spent_by_me, inherited, budgets }
    }

    /// The credits that expire, its own and those above it, soonest first.
    fn expiring(&self) -> Vec<OwnedExpiry<'_>> {
        let own = self.balance.expiring.iter().map(|one| OwnedExpiry(&self.balance.account, one));
        let inherited = self.inherited.iter().flat_map(|credits| {
            credits.expiring.iter().map(|one| OwnedExpiry(&credits.account, one))
        });
        let mut all: Vec<OwnedExpiry<'_>> = own.chain(inherited).collect();
        all.sort_by_key(|OwnedExpiry(_, one)| one.expires_at);
        all
    }

    /// The credits that expire soon, its own and those above it, and when the first do.
    fn expiring_soon(&self) -> Option<(Sum, Time)> {
        let all = self.expiring();
        expiring_soon(all.iter().map(|OwnedExpiry(_, one)| *one), self.balance.as_of)
    }
}

fn fields(balance: &Balance) -> Vec<(&'static str, Cell)> {
    let tone = if balance.spendable.micros() > 0 { Tone::Good } else { Tone::Bad };
    let mut fields = vec![
        ("account", Cell::new(&balance.account)),
        ("spendable", Cell::new(balance.spendable).with_tone(tone)),
        ("available", Cell::new(balance.available)),
        ("held", Cell::new(balance.held)),
    ];
    fields.extend(balance.by_kind.rows().map(|(kind, sum)| (kind, Cell::new(sum))));
    fields.push(("uncollected", Cell::new(balance.uncollected)));
    fields
}

fn ends(balance: &Balance) -> [(&'static str, Cell); 2] {
    [("as_of", Cell::time(balance.as_of)), ("position", Cell::new(balance.position))]
}

impl View for Balance {
    fn sheet(&self) -> Sheet {
        let sheet = Sheet::record(fields(self).into_iter().chain(ends(self)));
        sheet.with_section("expiring", Sheet::list(&self.expiring))
    }
}

impl View for Wallet {
    fn sheet(&self) -> Sheet {
        let mut fields = fields(&self.balance);
        fields.extend([
            ("largest_hold", Cell::new(self.largest_hold)),
            ("held_by_subtree", Cell::new(self.held_by_me)),
            ("spent_by_subtree", Cell::new(self.spent_by_me)),
        ]);
        if let Some((sum, first)) = self.expiring_soon() {
            fields.push(("expiring_in_14_days", Cell::new(sum).with_tone(Tone::Bad)));
            fields.push(("first_expiry_at", Cell::time(first).with_tone(Tone::Bad)));
        }
        let mut sheet = Sheet::record(fields.into_iter().chain(ends(&self.balance)));
        sheet = sheet.with_section("expiring", Sheet::list(&self.expiring()));
        if !self.inherited.is_empty() {
            sheet = sheet.with_section("inherited", Sheet::list(&self.inherited));
        }
        if !self.budgets.is_empty() {
            sheet = sheet.with_section("budgets", Sheet::list(&self.budgets));
        }
        sheet
    }
}

impl Row for Expiring {
    const COLUMNS: &'static [Column] = &[words("expires_at"), numbers("amount"), words("kind")];

    fn cells(&self) -> Vec<Cell> {
        vec![Cell::time(self.expires_at), Cell::new(self.amount), Cell::word(&self.kind)]
    }
}

/// Credits that expire, and the account that owns them.
struct OwnedExpiry<'a>(&'a str, &'a Expiring);

impl Row for OwnedExpiry<'_> {
    const COLUMNS: &'static [Column] =
        &[words("expires_at"), numbers("amount"), words("kind"), words("account")];

    fn cells(&self) -> Vec<Cell> {
        let OwnedExpiry(account, expiring) = self;
        let mut cells = expiring.cells();
        cells.push(Cell::new(account));
        cells
    }
}

/// The account, its available credits, and one column for each kind of grant.
const fn free_columns() -> [Column; 2 + ByKind::KINDS.len()] {
    let mut columns = [numbers("available"); 2 + ByKind::KINDS.len()];
    columns[0] = words("account");
    let mut kind = 0;
    while kind < ByKind::KINDS.len() {
        columns[2 + kind] = numbers(ByKind::KINDS[kind]);
        kind += 1;
    }
    columns
}

impl Row for FreeCredits {
    const COLUMNS: &'static [Column] = &free_columns();

    fn cells(&self) -> Vec<Cell> {
        let own = [Cell::new(&self.account), Cell::new(self.available)];
        own.into_iter().chain(self.by_kind.rows().map(|(_, sum)| Cell::new(sum))).collect()
    }
}

impl Row for PathBudget {
    const COLUMNS: &'static [Column] = &[
        words("account"),
        words("name"),
        numbers("limit"),
        numbers("used"),
        numbers("remaining"),
        words("unit"),
        words("mode"),
        words("binds"),
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.account),
            Cell::new(&self.name),
            Cell::new(self.limit),
            Cell::new(self.used),
            Cell::new(self.remaining),
            Cell::word(&self.unit),
            Cell::word(&self.mode),
            Cell::maybe(self.binds.then_some("first")),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_balance_shows_what_expires_below_it() {
        let body = r#"{"account":"acme","available":"120.5","held":"28.8","by_kind":
            {"purchase":"100","grant":"0","promotion":"20.5","compensation":"0"},
            "spendable":"120.5","expiring":[{"expires_at":"2026-12-01T00:00:00.000Z",
            "amount":"20.5","kind":"promotion"}],"uncollected":"0",
            "as_of":"2026-11-15T06:30:00.000Z","position":42}"#;
        let balance: Balance = serde_json::from_str(body).expect("a balance");
        expect![[r#"
            account       acme
            spendable     120.5
            available     120.5
            held          28.8
            purchase      100
            grant         0
            promotion     20.5
            compensation  0
            uncollected   0
            as of         2026-11-15T06:30:00Z
            position      42

            expiring:
            EXPIRES AT            AMOUNT  KIND
            2026-12-01T00:00:00Z    20.5  promotion"#]]
        .assert_eq(&balance.sheet().text(false));
    }

    #[test]
    fn a_balance_of_a_user_shows_what_it_inherits_and_which_budget_binds() {
        let balance = r#"{"account":"acme:nlp:ada","available":"0","held":"0","by_kind":
            {"purchase":"0","grant":"0","promotion":"0","compensation":"0"},
            "spendable":"92.5","expiring":[],"uncollected":"0",
            "as_of":"2026-11-15T06:30:00.000Z","position":42}"#;
        let effective = r#"{"account":"acme:nlp:ada","spendable":"92.5","largest_hold":"20",
            "own":{"account":"acme:nlp:ada","available":"0","by_kind":{"purchase":"0","grant":"0",
            "promotion":"0","compensation":"0"},"expiring":[]},
            "inherited":[{"account":"acme","available":"92.5","by_kind":{"purchase":"80",
            "grant":"12.5","promotion":"0","compensation":"0"},"expiring":[
            {"expires_at":"2026-11-20T00:00:00.000Z","amount":"12.5","kind":"grant"}]}],
            "held_by_me":"24","spent_by_me":"7","uncollected":"0","budgets":[
            {"account":"acme:nlp","name":"monthly","unit":"credits","mode":"hard","limit":"50",
            "used":"30","remaining":"20","period_end":null,"binds":true}],
            "as_of":"2026-11-15T06:30:00.000Z","position":42}"#;
        let wallet = Wallet::of(
            serde_json::from_str(balance).expect("a balance"),
            serde_json::from_str(effective).expect("what it can spend"),
        );
        expect![[r#"
            account              acme:nlp:ada
            spendable            92.5
            available            0
            held                 0
            purchase             0
            grant                0
            promotion            0
            compensation         0
            uncollected          0
            largest hold         20
            held by subtree      24
            spent by subtree     7
            expiring in 14 days  12.5
            first expiry at      2026-11-20T00:00:00Z
            as of                2026-11-15T06:30:00Z
            position             42

            expiring:
            EXPIRES AT            AMOUNT  KIND   ACCOUNT
            2026-11-20T00:00:00Z    12.5  grant  acme

            inherited:
            ACCOUNT  AVAILABLE  PURCHASE  GRANT  PROMOTION  COMPENSATION
            acme          92.5        80   12.5          0             0

            budgets:
            ACCOUNT   NAME     LIMIT  USED  REMAINING  UNIT     MODE  BINDS
            acme:nlp  monthly     50    30         20  credits  hard  first"#]]
        .assert_eq(&wallet.sheet().text(false));
    }
}
