//! The independent verifier against honest and altered stores.

mod check;
mod proofs;
mod segments;
mod support;
mod tail;
mod verify;
