//! The limit: an axum handler that reads JSON, answers JSON, and does nothing in between.

use axum::routing::any;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::exit::Failure;

async fn nothing(Json(_): Json<Value>) -> Json<Value> {
    Json(json!({
        "id": "h4294967297", "account": "bench:a0", "state": "open", "amount": "0.001",
        "captured": "0", "remaining": "0.001", "expires_at": "2020-01-01T00:00:00.000Z",
        "lots": [{ "grant": "grant_01JAB2C3D4E5F6G7H8J9K0MNPQ", "amount": "0.001" }],
    }))
}

/// Serves until the process is killed.
pub(super) async fn serve() -> Result<(), Failure> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        // Small answers are sent immediately, as by the server.
        let _ = stream.set_nodelay(true);
    });
    Ok(axum::serve(listener, Router::new().fallback(any(nothing))).await?)
}
