//! Logs as JSON lines on standard error, and traces to a collector if one is configured.

use std::io::Write;

use bursar_api::terminal::escaped_lines;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Keeps the trace exporter alive; sends the remaining spans when dropped.
pub struct Tracing(Option<SdkTracerProvider>);

impl Drop for Tracing {
    fn drop(&mut self) {
        if let Some(provider) = self.0.take() {
            // A failure here has no recipient: the process ends.
            let _ = provider.shutdown();
        }
    }
}

/// Writes JSON lines without terminal control characters. JSON itself escapes line breaks and
/// quotes, so text from a caller can neither begin a new line nor control a terminal.
struct Visible<W>(W);

impl<W: Write> Write for Visible<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.0.write_all(escaped_lines(text).as_bytes())?,
            // A log line is written in one call and is valid UTF-8. Of an incomplete one, the
            // invalid bytes are replaced.
            Err(_) => {
                let text = String::from_utf8_lossy(bytes);
                self.0.write_all(escaped_lines(&text).as_bytes())?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Why logging could not start.
#[derive(Debug, thiserror::Error)]
pub enum TracingError {
    /// The filter of log lines is not valid.
    #[error(transparent)]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// The exporter of spans could not be built.
    #[error(transparent)]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// Starts logging. Call it outside of an asynchronous runtime: the exporter has its own threads.
///
/// Log lines never contain keys, bodies or amounts.
pub fn start(otlp_endpoint: Option<&str>) -> Result<Tracing, TracingError> {
    let filter = EnvFilter::try_from_env("BURSAR_LOG").or_else(|_| EnvFilter::try_new("info"))?;
    let lines = tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_span_list(false)
        .with_writer(|| Visible(std::io::stderr()));
    let provider = otlp_endpoint.map(provider).transpose()?;
    let spans = provider
        .as_ref()
        .map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer("bursar")));
    let registry = tracing_subscriber::registry().with(filter).with(lines).with(spans);
    // A second start in one process keeps the subscriber of the first.
    let _ = registry.try_init();
    Ok(Tracing(provider))
}

fn provider(endpoint: &str) -> Result<SdkTracerProvider, TracingError> {
    // The exporter's client needs a process-wide provider. One that is already installed works as
    // well.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        .build()?;
    let resource = Resource::builder().with_service_name("bursar").build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_caller_can_neither_forge_a_log_line_nor_control_the_terminal() {
        let kept = Kept::default();
        let writer = kept.clone();
        let lines = tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(move || Visible(writer.clone()));
        let hostile = "x\n{\"level\":\"ERROR\"}\r\u{1b}]0;t\u{7}\u{7f}\u{9b}2J\u{202e}\u{2028}";
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            tracing::warn!(attempt = %hostile, debug = ?hostile, "said {hostile}");
        });
        let bytes = kept.0.lock().expect("no panic").clone();
        let text = String::from_utf8(bytes).expect("text");
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        let line = text.trim_end_matches('\n');
        assert_eq!(line.chars().find(|c| bursar_api::terminal::is_obeyed(*c)), None, "{text:?}");
        let read: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(read["attempt"], hostile);
    }
}
