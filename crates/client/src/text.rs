//! Text answers: complete, or streamed while they grow.

use std::time::Duration;

use crate::call::Call;
use crate::client::Client;
use crate::error::ClientError;

/// The timeout of a stream: none in practice.
pub(crate) const STREAM_TIMEOUT: Duration = Duration::from_secs(100 * 365 * 86_400);

/// An answer that is text, not JSON.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Text;

/// A streamed answer.
#[derive(Debug)]
pub struct TextStream {
    server: String,
    response: reqwest::Response,
}

impl Client {
    /// Sends a call and reads the complete answer. It is not retried.
    pub async fn text(&self, call: Call<Text>) -> Result<Vec<u8>, ClientError> {
        let mut stream = self.open(call).await?;
        let mut whole = Vec::new();
        while let Some(piece) = stream.next().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(whole)
    }

    /// Sends a call and streams its answer.
    pub async fn stream(&self, call: Call<Text>) -> Result<TextStream, ClientError> {
        self.open(call.with_timeout(STREAM_TIMEOUT)).await
    }

    async fn open(&self, call: Call<Text>) -> Result<TextStream, ClientError> {
        let request = self.request(call)?;
        let response = self.execute(request).await.map_err(|trouble| trouble.error)?;
        Ok(TextStream { server: self.server().to_owned(), response })
    }
}

impl TextStream {
    /// The next chunk; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        match self.response.chunk().await {
            Ok(piece) => Ok(piece.map(|bytes| bytes.to_vec())),
            Err(error) => {
                let server = self.server.clone();
                Err(ClientError::Unreachable { server, cause: error.to_string() })
            }
        }
    }
}
