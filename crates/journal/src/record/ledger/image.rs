//! The stored form of a whole ledger, for snapshots.

use bursar_core::ledger::accounts::budget::Budget;
use bursar_core::ledger::accounts::past_usage::PastSpending;
use bursar_core::ledger::command::AccountSettings;
use bursar_core::ledger::credits::grant::GrantDetails;
use bursar_core::ledger::event::GrantOrigin;
use bursar_core::ledger::image::{
    AccountImage, AnswerImage, BucketImage, GrantImage, Image, QuotaImage, TermsImage,
};
use bursar_core::ledger::index::recent::{RecentSpan, RecentlyForgotten};
use bursar_core::ledger::state::Movement;
use fefo::Part;

use crate::record::body;
use crate::record::codec::wire::{FormatError, stored_choice, stored_struct};

/// The version of the image that this build writes and reads. A snapshot of another version is
/// skipped: replaying the journal gives the same state, only slower.
pub const IMAGE_VERSION: u64 = 1;

stored_choice!(Part { 0 Free, 1 Held, 2 Spent, 3 Expired, 4 Revoked, 5 Moved });

stored_struct!(Image {
    0 now,
    1 policy,
    2 accounts,
    3 grants,
    4 buckets,
    5 holds,
    6 free_holds,
    7 movements,
    8 free_movements,
    9 answers,
    10 aging_holds,
    11 aging_movements,
    12 aging_buckets,
    13 cells = Vec::new(),
    14 next_job = 0,
    15 jobs = Vec::new(),
    16 reviews = Vec::new(),
    17 aging_jobs = Vec::new(),
    18 forgotten_until = None,
    19 aside = Vec::new(),
    20 briefings = Vec::new(),
    21 forgotten_through = None,
    22 forgotten_movements = false,
    23 old_holds = Vec::new(),
    24 archived_through = 0,
    25 recent = RecentlyForgotten::default(),
    26 past_usage = Vec::new(),
});

stored_struct!(RecentlyForgotten {
    0 before = None,
    1 current = None,
    2 through = 0,
});

stored_struct!(RecentSpan {
    0 after = 0,
    1 entries = 0,
    2 bits = Vec::new(),
});

stored_struct!(PastSpending {
    0 credits = 0,
    1 gpu = 0,
});

stored_struct!(AccountImage {
    0 path,
    1 kind,
    2 frozen = false,
    3 fingerprint,
    4 settings = AccountSettings::default(),
    5 uncollected = 0,
    6 budgets = Vec::new(),
    7 quotas = Vec::new(),
    8 frozen_by_platform = false,
});

stored_struct!(QuotaImage {
    0 region = None,
    1 quota,
});

stored_struct!(Budget {
    0 name,
    1 terms,
    2 period_start,
    3 spent = 0,
    4 held = 0,
    5 alerted = Vec::new(),
});

stored_struct!(TermsImage {
    0 priority,
    1 expires_at = None,
    2 kind,
    3 restriction = None,
});

stored_struct!(GrantImage {
    0 id,
    1 account,
    2 bucket = None,
    3 start = 0,
    4 amount,
    5 created_at,
    6 effective_at,
    7 fingerprint,
    8 revoked = false,
    9 pending = None,
    10 details = None,
});

stored_struct!(GrantDetails {
    0 origin = GrantOrigin::Issued,
    1 reference = None,
    2 metadata = None,
});

stored_struct!(BucketImage {
    0 account,
    1 terms,
    2 expired = false,
    3 has_revoked = false,
    4 runs,
});

stored_struct!(AnswerImage {
    0 at,
    1 key,
    2 fingerprint,
    3 answer,
    4 request = 0,
});

stored_struct!(Movement {
    0 what,
    1 tenant,
    2 movement,
    3 expired,
    4 hold = None,
});

/// Encodes an image as `[version, image]`.
pub fn encode_image(image: &Image) -> Vec<u8> {
    body::encode_image(IMAGE_VERSION, image)
}

/// Decodes [`encode_image`].
pub fn decode_image(bytes: &[u8]) -> Result<Image, FormatError> {
    body::decode_image(IMAGE_VERSION, bytes)
}
