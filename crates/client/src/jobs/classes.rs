//! Priority classes.

use bursar_api::jobs::class::{Class, SetClass};

use crate::call::{Call, path};

/// Sets or replaces a priority class.
pub fn set(name: &str, class: &SetClass) -> Call<Class> {
    Call::put(path(&["v1", "classes", name]), class)
}
