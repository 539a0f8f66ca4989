//! `bursar budget`.

use bursar_client::accounts::budgets;
use bursar_client::api::Amount;
use bursar_client::api::accounts::budget::{
    BindingBudget, Budget, BudgetLevel, BudgetMode, BudgetPeriod, BudgetTree, BudgetUnit, Budgets,
    SetBudget,
};
use clap::{Args, Subcommand};

use crate::arguments::{BUDGET_MODES, BUDGET_PERIODS, BUDGET_UNITS, word};
use crate::exit::Failure;
use crate::render::sheet::{Cell, Column, Row, Sheet, Tone, View, numbers, words};
use crate::session::{ChangeArguments, ConfirmArguments, Session};

#[derive(Subcommand)]
pub(crate) enum BudgetCommand {
    /// Set or replace a budget.
    #[command(after_help = "Examples:\n  bursar budget set acme:nlp monthly 500\n  \
        bursar budget set acme gpu-week 1000 --unit gpu_hours --period week --mode soft")]
    Set(SetArguments),
    /// Show a budget with its usage in the current period.
    #[command(after_help = "Example:\n  bursar budget show acme:nlp monthly")]
    Show {
        /// The account.
        account: String,
        /// The name of the budget.
        name: String,
    },
    /// List the budgets of an account.
    #[command(after_help = "Example:\n  bursar budget ls acme:nlp")]
    Ls {
        /// The account.
        account: String,
    },
    /// Show the budgets of an account and of all below it, and which of them refuse first.
    #[command(after_help = "Example:\n  bursar budget tree acme")]
    Tree {
        /// The account.
        account: String,
    },
    /// Remove a budget. Asks on a terminal.
    #[command(after_help = "Example:\n  bursar budget rm acme:nlp monthly")]
    Rm(RemoveArguments),
}

#[derive(Args)]
pub(crate) struct SetArguments {
    /// The account whose subtree it covers.
    account: String,
    /// The name of the budget.
    name: String,
    /// The limit, in credits or GPU-hours.
    limit: Amount,
    /// The calendar period.
    #[arg(long, default_value = "month", value_parser = word::<BudgetPeriod>(BUDGET_PERIODS))]
    period: BudgetPeriod,
    /// What happens at the limit: draws are rejected, or alerts only.
    #[arg(long, default_value = "hard", value_parser = word::<BudgetMode>(BUDGET_MODES))]
    mode: BudgetMode,
    /// The unit of the limit; credits if not given.
    #[arg(long, value_parser = word::<BudgetUnit>(BUDGET_UNITS))]
    unit: Option<BudgetUnit>,
    /// Percentages of the limit at which to alert; 50,80,100 if not given.
    #[arg(long = "thresholds", value_name = "PERCENT", value_delimiter = ',')]
    thresholds: Vec<u16>,
    /// The offset of the calendar from UTC in minutes.
    #[arg(long, value_name = "MINUTES", allow_hyphen_values = true)]
    utc_offset_minutes: Option<i16>,
    #[command(flatten)]
    change: ChangeArguments,
}

#[derive(Args)]
pub(crate) struct RemoveArguments {
    /// The account.
    account: String,
    /// The name of the budget.
    name: String,
    #[command(flatten)]
    confirm: ConfirmArguments,
    #[command(flatten)]
    change: ChangeArguments,
}

pub(crate) async fn run(session: &Session, command: BudgetCommand) -> Result<(), Failure> {
    match command {
        BudgetCommand::Set(arguments) => set(session, arguments).await,
        BudgetCommand::Show { account, name } => session.read(budgets::show(&account, &name)).await,
        BudgetCommand::Ls { account } => session.read(budgets::list(&account)).await,
        BudgetCommand::Tree { account } => session.read(budgets::tree(&account)).await,
        BudgetCommand::Rm(RemoveArguments { account, name, confirm, change }) => {
            confirm.ask(&change, &format!("remove the budget {name} of {account}?"))?;
            let done = format!("the budget {name} of {account} is removed");
            session.remove(budgets::remove(&account, &name), &change, &done).await
        }
    }
}

async fn set(session: &Session, arguments: SetArguments) -> Result<(), Failure> {
    let SetArguments { account, name, .. } = &arguments;
    let budget = SetBudget {
        limit: arguments.limit,
        unit: arguments.unit,
        period: arguments.period,
        mode: arguments.mode,
        thresholds: (!arguments.thresholds.is_empty()).then(|| arguments.thresholds.clone()),
        utc_offset_minutes: arguments.utc_offset_minutes,
    };
    let effect = async |session: &Session| {
        let answer = session.send(budgets::list(account)).await?.value;
        let now = answer.data.into_iter().find(|budget| budget.name == *name);
        Ok(vec![match now {
            Some(budget) => format!("replaces a limit of {}, {} used", budget.limit, budget.used),
            None => "a new budget".to_owned(),
        }])
    };
    session.change(budgets::set(account, name, &budget), &arguments.change, effect).await
}

/// The used amount, red when nothing remains.
fn used(budget: &Budget) -> Cell {
    let tone = if budget.remaining.micros() <= 0 { Tone::Bad } else { Tone::Plain };
    Cell::new(budget.used).with_tone(tone)
}

impl Row for Budget {
    const COLUMNS: &'static [Column] = &[
        words("name"),
        numbers("limit"),
        numbers("used"),
        numbers("remaining"),
        words("unit"),
        words("period"),
        words("mode"),
        words("period_end"),
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.name),
            Cell::new(self.limit),
            used(self),
            Cell::new(self.remaining),
            Cell::word(&self.unit),
            Cell::word(&self.period),
            Cell::word(&self.mode),
            Cell::maybe_time(self.period_end),
        ]
    }
}

impl View for Budgets {
    fn sheet(&self) -> Sheet {
        Sheet::list(&self.data)
    }
}

impl View for Budget {
    fn sheet(&self) -> Sheet {
        let thresholds: Vec<String> = self.thresholds.iter().map(u16::to_string).collect();
        Sheet::record([
            ("name", Cell::new(&self.name)),
            ("account", Cell::new(&self.account)),
            ("limit", Cell::new(self.limit)),
            ("used", used(self)),
            ("spent", Cell::new(self.spent)),
            ("held", Cell::new(self.held)),
            ("remaining", Cell::new(self.remaining)),
            ("unit", Cell::word(&self.unit)),
            ("period", Cell::word(&self.period)),
            ("mode", Cell::word(&self.mode)),
            ("thresholds", Cell::joined(Some(&thresholds))),
            ("period_start", Cell::maybe_time(self.period_start)),
            ("period_end", Cell::maybe_time(self.period_end)),
        ])
    }
}

/// One line of a tree: a level, with one of its budgets if it has any.
struct Branch {
    account: String,
    budget: Option<Budget>,
    binding: String,
}

/// The lines of a level. Its depth below the root is shown by spaces.
fn branches(level: &BudgetLevel, root: &str) -> Vec<Branch> {
    let below = level.account.strip_prefix(root).unwrap_or_default().matches(':').count();
    let account = format!("{}{}", "  ".repeat(below), level.account);
    let name = |binding: &BindingBudget| match binding.account == level.account {
        true => format!("{} ({} left)", binding.name, binding.remaining),
        false => format!("{} of {} ({} left)", binding.name, binding.account, binding.remaining),
    };
    let names: Vec<String> = level.binding.iter().map(name).collect();
    let branch = |budget: Option<&Budget>| Branch {
        account: account.clone(),
        budget: budget.cloned(),
        binding: names.join(", "),
    };
    if level.budgets.is_empty() {
        return vec![branch(None)];
    }
    level.budgets.iter().map(|budget| branch(Some(budget))).collect()
}

impl View for BudgetTree {
    fn sheet(&self) -> Sheet {
        let lines = self.levels.iter().flat_map(|level| branches(level, &self.account));
        Sheet::list(&lines.collect::<Vec<Branch>>())
    }
}

impl Row for Branch {
    const COLUMNS: &'static [Column] = &[
        words("account"),
        words("budget"),
        numbers("limit"),
        numbers("spent"),
        numbers("held"),
        numbers("remaining"),
        words("unit"),
        words("period"),
        words("mode"),
        words("refuses_first"),
    ];

    fn cells(&self) -> Vec<Cell> {
        let own = self.budget.as_ref();
        vec![
            Cell::new(&self.account),
            Cell::maybe(own.map(|budget| &budget.name)),
            Cell::maybe(own.map(|budget| budget.limit)),
            Cell::maybe(own.map(|budget| budget.spent)),
            Cell::maybe(own.map(|budget| budget.held)),
            Cell::maybe(own.map(|budget| budget.remaining)),
            own.map_or_else(|| Cell::new(""), |budget| Cell::word(&budget.unit)),
            own.map_or_else(|| Cell::new(""), |budget| Cell::word(&budget.period)),
            own.map_or_else(|| Cell::new(""), |budget| Cell::word(&budget.mode)),
            Cell::new(&self.binding),
        ]
    }
}
