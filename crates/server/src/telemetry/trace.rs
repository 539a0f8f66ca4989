//! Logs as JSON lines on standard error, and traces to a collector if one is configured.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::HeaderMap;
use bursar_api::terminal::escaped_lines;
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

const DEFAULT_LEVEL: &str = "info";

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

/// Whether spans are sent to a collector.
static EXPORTS: AtomicBool = AtomicBool::new(false);

/// The trace of the caller, from the header `traceparent` (W3C Trace Context).
pub(crate) struct CallerTrace(Option<Context>);

impl CallerTrace {
    /// Reads the headers of a request. A header that is not valid counts as none, as the
    /// specification asks.
    pub(crate) fn of(headers: &HeaderMap) -> CallerTrace {
        let mut values = headers.get_all(PARENT).iter();
        if values.next().is_none() || values.next().is_some() {
            return CallerTrace(None);
        }
        if !headers.get(PARENT).is_some_and(|value| has_the_form(value.as_bytes())) {
            return CallerTrace(None);
        }
        let propagator = TraceContextPropagator::new();
        let context = propagator.extract_with_context(&Context::new(), &Headers(headers));
        CallerTrace(Some(context).filter(|context| context.span().span_context().is_valid()))
    }

    /// Makes the span of the request a part of the trace, and writes the id of the trace into its
    /// log lines.
    pub(crate) fn join(&self, span: &Span) {
        let exports = EXPORTS.load(Ordering::Relaxed);
        if let (Some(context), true) = (&self.0, exports) {
            // Fails only for a span that has begun, or that the filter leaves out.
            let _ = span.set_parent(context.clone());
        }
        let id = match &self.0 {
            Some(context) => context.span().span_context().trace_id(),
            None if exports => span.context().span().span_context().trace_id(),
            None => return,
        };
        span.record("trace_id", tracing::field::display(id));
    }
}

const PARENT: &str = "traceparent";
/// The length of a header of version 00.
const PARENT_LENGTH: usize = 55;

/// Whether a header has fields of the right lengths: the propagator accepts shorter flags. Later versions may have
/// more fields.
fn has_the_form(value: &[u8]) -> bool {
    let dashes = [2, 35, 52];
    value.len() >= PARENT_LENGTH
        && (value.len() == PARENT_LENGTH
            || (!value.starts_with(b"00") && value[PARENT_LENGTH] == b'-'))
        && value[..PARENT_LENGTH].iter().enumerate().all(|(at, byte)| match byte {
            b'-' => dashes.contains(&at),
            _ => !dashes.contains(&at) && matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        })
}

/// The headers of a request, as the propagator reads them.
struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}

/// A span inside that of the request, for something it waits for. Absent unless spans are sent to a
/// collector: no log line is written in it.
pub(crate) fn step(name: &'static str, of: &str) -> Span {
    if !EXPORTS.load(Ordering::Relaxed) {
        return Span::none();
    }
    let of = of.rsplit("::").next().unwrap_or(of);
    tracing::info_span!("step", otel.name = name, of)
}

/// Writes JSON lines without terminal control characters. JSON itself escapes line breaks and
/// quotes, so text from a caller can neither begin a new line nor control a terminal.
struct EscapingWriter<W>(W);

impl<W: Write> Write for EscapingWriter<W> {
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
    Filter(#[from] ParseError),
    /// The exporter of spans could not be built.
    #[error(transparent)]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// Starts logging. Call it outside of an asynchronous runtime: the exporter has its own threads.
///
/// Log lines never contain keys, bodies or amounts.
pub fn start(otlp_endpoint: Option<&str>) -> Result<Tracing, TracingError> {
    let wanted = std::env::var("BURSAR_LOG").ok();
    let filter = filter(wanted.as_deref())?;
    let provider = otlp_endpoint.map(provider).transpose()?;
    let spans = provider
        .as_ref()
        .map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer("bursar")));
    // A second start in one process keeps the subscriber of the first.
    let _ = match spans {
        // The level of the log says nothing about traces.
        Some(spans) => tracing_subscriber::registry()
            .with(lines().with_filter(filter))
            .with(spans.with_filter(LevelFilter::INFO))
            .try_init(),
        None => tracing_subscriber::registry().with(filter).with(lines()).try_init(),
    };
    EXPORTS.store(provider.is_some(), Ordering::Relaxed);
    Ok(Tracing(provider))
}

/// The levels of log lines, one for all modules and others by module: `info,bursar_server=debug`.
/// Invalid text has no effect.
fn filter(wanted: Option<&str>) -> Result<Targets, ParseError> {
    let wanted = wanted.filter(|text| text.split(',').all(is_directive));
    match wanted.and_then(|text| text.parse().ok()) {
        Some(filter) => Ok(filter),
        None => DEFAULT_LEVEL.parse(),
    }
}

/// Whether this is `LEVEL` or `MODULE=LEVEL`. The parser takes any other word for a module, and would turn off
/// the log lines of all others.
fn is_directive(text: &str) -> bool {
    let level = match text.split_once('=') {
        Some((module, level)) if !module.is_empty() => level,
        Some(_) => return false,
        None => text,
    };
    !level.is_empty() && level.parse::<LevelFilter>().is_ok()
}

/// Writes log lines.
fn lines<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_span_list(false)
        .with_writer(|| EscapingWriter(std::io::stderr()))
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
    fn levels_are_set_for_all_modules_and_for_one() {
        use tracing::Level;
        let is_on = |wanted: Option<&str>, target: &str, level| {
            filter(wanted).expect("a filter").would_enable(target, &level)
        };
        let by_module = Some("info,bursar_server=debug");
        assert!(is_on(by_module, "bursar_server::net", Level::DEBUG));
        assert!(!is_on(by_module, "bursar_engine", Level::DEBUG));
        assert!(is_on(by_module, "bursar_engine", Level::INFO));
        assert!(!is_on(Some("error"), "bursar_engine", Level::WARN));
        for absent in [None, Some(""), Some("=,loud")] {
            assert!(is_on(absent, "bursar_engine", Level::INFO), "{absent:?}");
            assert!(!is_on(absent, "bursar_engine", Level::DEBUG), "{absent:?}");
        }
    }

    #[test]
    fn only_a_valid_traceparent_names_a_trace() {
        let id = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(PARENT, value.parse().expect("a header"));
            }
            let CallerTrace(context) = CallerTrace::of(&headers);
            context.map(|context| context.span().span_context().trace_id().to_string())
        };
        let valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(id(&[valid]).as_deref(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        let zero = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        for invalid in ["", "x", zero, &valid[..54], "00-4bf92f3577b34da6a3ce929d0e0e473\t-1-01"] {
            assert_eq!(id(&[invalid]), None, "{invalid}");
        }
        assert_eq!(id(&[valid, valid]), None, "two headers");
        assert_eq!(id(&[]), None);
    }

    #[test]
    fn a_caller_can_neither_forge_a_log_line_nor_control_the_terminal() {
        let kept = Kept::default();
        let writer = kept.clone();
        let lines = tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(move || EscapingWriter(writer.clone()));
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
