//! A typed client of the HTTP interface.
//!
//! A request is data: each resource has a file with one function per endpoint that returns a
//! [`Call`]: what will be sent, and the type of the answer. [`Client::send`] sends it.
//!
//! ```no_run
//! # async fn example() -> Result<(), bursar_client::ClientError> {
//! use bursar_client::{Client, accounts::balances};
//!
//! let client = Client::new("http://127.0.0.1:7070", "the key")?;
//! let balance = client.send(balances::now("acme:nlp")).await?.value;
//! println!("{} can be spent", balance.spendable);
//! # Ok(())
//! # }
//! ```
//!
//! Every call that changes something carries an `Idempotency-Key`, so it can be repeated without
//! harm; the client retries a bounded number of times when the server cannot be reached
//! or asks for a retry ([`RetryPolicy`]). Rejections are returned as [`ClientError::Problem`].
//! [`EventStream`] follows the event feed across broken connections.

mod call;
mod client;
pub mod credits;
mod error;
mod events;
mod retry;
mod sse;
pub mod system;
mod text;

pub mod accounts;
pub mod jobs;
pub mod nodes;

pub use bursar_api as api;
pub use call::{Call, Method, Nothing, path};
pub use client::{ApiAnswer, Client, ClientBuilder};
pub use error::ClientError;
pub use events::EventStream;
pub use retry::RetryPolicy;
pub use text::{Text, TextStream};
