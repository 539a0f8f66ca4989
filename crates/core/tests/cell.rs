//! The cell: its rules one by one, and its laws over random messages.

mod cell_classes;
mod cell_estimates;
mod cell_failures;
mod cell_guests;
mod cell_lifecycle;
mod cell_messages;
mod cell_owners;
mod cell_preemption;
mod cell_properties;
mod cell_requests;
mod cell_rewind;
mod cell_scheduling;
mod cell_scopes;
mod cell_turns;
mod cell_turns_of_many;
mod cell_world;
