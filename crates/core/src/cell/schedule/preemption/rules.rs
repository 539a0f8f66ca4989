//! The rules of preemption for fair share, each with a switch.
//!
//! A cell applies all of them. Only studies switch a rule off, to measure what it buys. The
//! switches are therefore not a setting: they are in no event and no image.

/// A rule that a study may switch off.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Rule {
    /// Jobs take for their account's share. Off: only higher classes preempt.
    Share,
    /// Preemptible jobs run as guests on nodes reserved for another job, where its start is an
    /// estimate. Off: reserved nodes take only jobs that end before the reserved start.
    Guests,
    /// A job evicted five times as a guest is no longer scheduled as a guest.
    GuestLimit,
    /// Only guests, and jobs with an early stated end, enter nodes that a gang gathers.
    Gathering,
    /// Between two accounts with one job each the gap is wider. Off: the gap of other accounts.
    WideGap,
    /// The gap is 1/64 on top of one quantum. Off: one quantum.
    Gap,
    /// The quantum doubles with each preemption. Off: it is fixed for resumable jobs, and the
    /// longest runtime for the others.
    Doubling,
    /// The quantum of a resumable job does not grow where its account has other jobs.
    ShortQuantum,
    /// A job does not preempt the job that preempted it last.
    NoTakingBack,
    /// It does, where that job is resumable and has run for its entry charge.
    TakingBack,
    /// A reservation yields to a job that takes for its share.
    Yielding,
    /// Accounts with one job are treated differently from accounts with several. Off: all are
    /// treated like accounts with several.
    SingleJobs,
    /// The unused entry charge of a victim does not count as its account's usage.
    UnusedEntry,
    /// The oldest job of any account is next from time to time.
    Ageing,
}

impl Rule {
    /// All rules.
    pub const ALL: [Rule; 14] = [
        Rule::Share,
        Rule::Guests,
        Rule::GuestLimit,
        Rule::Gathering,
        Rule::WideGap,
        Rule::Gap,
        Rule::Doubling,
        Rule::ShortQuantum,
        Rule::NoTakingBack,
        Rule::TakingBack,
        Rule::Yielding,
        Rule::SingleJobs,
        Rule::UnusedEntry,
        Rule::Ageing,
    ];

    /// The name in commands and reports.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Share => "share",
            Rule::Guests => "guests",
            Rule::GuestLimit => "guest-limit",
            Rule::Gathering => "gathering",
            Rule::WideGap => "wide-gap",
            Rule::Gap => "gap",
            Rule::Doubling => "doubling",
            Rule::ShortQuantum => "short-quantum",
            Rule::NoTakingBack => "no-taking-back",
            Rule::TakingBack => "taking-back",
            Rule::Yielding => "yielding",
            Rule::SingleJobs => "single-jobs",
            Rule::UnusedEntry => "unused-entry",
            Rule::Ageing => "ageing",
        }
    }
}

/// The rules that a cell applies.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// One bit per rule that is off.
    off: u32,
}

impl Rules {
    /// All rules.
    pub const ALL: Rules = Rules { off: 0 };

    /// These rules without one.
    #[must_use]
    pub fn without(self, rule: Rule) -> Rules {
        Rules { off: self.off | 1 << rule as u8 }
    }

    /// Whether a rule applies.
    pub fn has(self, rule: Rule) -> bool {
        self.off & (1 << rule as u8) == 0
    }
}
