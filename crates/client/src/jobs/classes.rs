//! Priority classes.

use bursar_api::List;
use bursar_api::jobs::class::{Class, SetClass};

use crate::call::{Call, path};

/// Lists all priority classes.
pub fn list() -> Call<List<Class>> {
    Call::get("/v1/classes")
}

/// Sets or replaces a priority class.
pub fn set(name: &str, class: &SetClass) -> Call<Class> {
    Call::put(path(&["v1", "classes", name]), class)
}
