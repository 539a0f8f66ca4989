//! Runs machines over journals.
