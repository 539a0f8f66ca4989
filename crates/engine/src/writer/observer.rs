//! Receives durable writes and troubles.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bursar_journal::LeaseError;

use crate::error::ReplayError;
use crate::followed::FollowerLag;

/// One durable write.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// How long it took.
    pub took: Duration,
    /// Records in it.
    pub records: u32,
}

/// A failure that no caller gets as an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A lease was not renewed. Trust ends soon unless a later renewal succeeds.
    LeaseNotRenewed(LeaseError),
    /// The machine is not served, and why. Repeated only when the reason changes.
    NotServed(String),
    /// A snapshot was not stored. The next start takes longer; nothing is lost.
    NoSnapshot(ReplayError),
    /// A state that followed the journal was dropped, and why. The machine is rebuilt from the newest snapshot.
    NotFollowed(String),
    /// The state of the writer and the copy that follows it differ at one position.
    CopyDiffers,
}

type Listener<T> = Option<Arc<dyn Fn(T) + Send + Sync>>;

/// Called on threads of the engine after every durable write and with every trouble. Must not block.
#[derive(Clone, Default)]
pub struct Observer {
    written: Listener<Written>,
    trouble: Listener<Trouble>,
    lag: Listener<Option<FollowerLag>>,
}

impl Observer {
    /// Has `observe` called after every durable write.
    pub fn new(observe: impl Fn(Written) + Send + Sync + 'static) -> Observer {
        Observer { written: Some(Arc::new(observe)), trouble: None, lag: None }
    }

    /// Has `observe` called with every trouble as well.
    #[must_use]
    pub fn with_trouble(mut self, observe: impl Fn(Trouble) + Send + Sync + 'static) -> Observer {
        self.trouble = Some(Arc::new(observe));
        self
    }

    /// Has `observe` called after every step of a state that follows the journal, and with `None` when there is none
    /// any more.
    #[must_use]
    pub fn with_lag(
        mut self,
        observe: impl Fn(Option<FollowerLag>) + Send + Sync + 'static,
    ) -> Observer {
        self.lag = Some(Arc::new(observe));
        self
    }

    pub(crate) fn lag(&self, lag: Option<FollowerLag>) {
        if let Some(observe) = &self.lag {
            observe(lag);
        }
    }

    pub(crate) fn notify(&self, written: Written) {
        if let Some(observe) = &self.written {
            observe(written);
        }
    }

    /// Reports a trouble.
    pub fn trouble(&self, trouble: Trouble) {
        if let Some(observe) = &self.trouble {
            observe(trouble);
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (written, trouble) = (self.written.is_some(), self.trouble.is_some());
        f.debug_struct("Observer").field("written", &written).field("trouble", &trouble).finish()
    }
}
