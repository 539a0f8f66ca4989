//! Logs as lines of JSON on standard error, and traces to a collector if one is given.

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Keeps traces flowing; when dropped, sends what is left.
pub struct Tracing(Option<SdkTracerProvider>);

impl Drop for Tracing {
    fn drop(&mut self) {
        if let Some(provider) = self.0.take() {
            // Nobody is left to be told.
            let _ = provider.shutdown();
        }
    }
}

/// Starts logging. Call outside of any asynchronous runtime: the exporter has threads of its own.
///
/// What is logged never contains keys, bodies or amounts.
pub fn start(otlp_endpoint: Option<&str>) -> Result<Tracing, String> {
    let filter = EnvFilter::try_from_env("BURSAR_LOG")
        .or_else(|_| EnvFilter::try_new("info"))
        .map_err(|error| error.to_string())?;
    let lines = tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_span_list(false)
        .with_writer(std::io::stderr);
    let provider = otlp_endpoint.map(provider).transpose()?;
    let spans = provider
        .as_ref()
        .map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer("bursar")));
    let registry = tracing_subscriber::registry().with(filter).with(lines).with(spans);
    // A second start in one process keeps the first one's logs.
    let _ = registry.try_init();
    Ok(Tracing(provider))
}

fn provider(endpoint: &str) -> Result<SdkTracerProvider, String> {
    // The exporter's client asks for the process's provider; whoever came first is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        .build()
        .map_err(|error| error.to_string())?;
    let resource = Resource::builder().with_service_name("bursar").build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}
