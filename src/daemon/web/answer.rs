//! Answers to requests by HTTP: the checks that every request passes, and the resources.

use super::WebContext;
use super::api::{ApiReport, answer_report, find_report};
use super::assets::{PageAsset, find_asset};
use super::guard::GuardRefusal;
use super::metrics;
use super::reports::ReportFailure;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Pause before wrong credentials are refused, so that they cannot be guessed fast.
const WRONG_CREDENTIALS_PAUSE: Duration = Duration::from_secs(1);

/// Headers of every answer: no page of another site may embed it or guess its type, and no script from elsewhere runs.
const SECURITY_HEADERS: [(header::HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

/// A resource of the server.
#[derive(Clone, Copy, Debug)]
enum Resource {
    /// Whether the peer works.
    Liveness,
    /// Whether the peer can do its work, with the reasons if not.
    Readiness,
    /// The metrics.
    Metrics,
    /// A file of the page.
    Asset(&'static PageAsset),
    /// A report in JSON.
    Report(ApiReport),
    /// The live snapshots.
    Live,
}

impl Resource {
    /// Finds the resource of a path. The path is compared byte for byte, so no spelling of it means another one.
    fn find(path: &str) -> Option<Resource> {
        Some(match path {
            "/healthz" => Resource::Liveness,
            "/readyz" => Resource::Readiness,
            "/metrics" => Resource::Metrics,
            "/api/v1/live" => Resource::Live,
            path => match path.strip_prefix("/api/v1/") {
                Some(report) => Resource::Report(find_report(report)?),
                None => Resource::Asset(find_asset(path)?),
            },
        })
    }
}

/// Answers a request.
pub(super) async fn answer(State(context): State<Arc<WebContext>>, request: Request) -> Response {
    context.counts.requests.fetch_add(1, Ordering::Relaxed);
    let (request, _) = request.into_parts();
    let mut response = match check(&context, &request).await {
        Ok(resource) => answer_resource(&context, resource, &request).await,
        Err(refused) => refused,
    };
    for (name, value) in SECURITY_HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Returns the resource that a request may have, or the refusal.
async fn check(context: &WebContext, request: &Parts) -> Result<Resource, Response> {
    if let Err(refusal) = context.guard.check_source(&request.uri, &request.headers) {
        return Err(refuse(context, refusal).await);
    }
    let resource = Resource::find(request.uri.path());
    // A program that restarts a dead peer has no account, and learns nothing else.
    if !matches!(resource, Some(Resource::Liveness))
        && let Err(refusal) = context.guard.authenticate(&request.headers)
    {
        return Err(refuse(context, refusal).await);
    }
    let Some(resource) = resource else {
        return Err((StatusCode::NOT_FOUND, "there is no such resource here: begin with /\n").into_response());
    };
    if !matches!(request.method, Method::GET | Method::HEAD) {
        let allowed = [(header::ALLOW, "GET, HEAD")];
        return Err((StatusCode::METHOD_NOT_ALLOWED, allowed, "this can only be read: GET\n").into_response());
    }
    Ok(resource)
}

/// Answers a request that is refused.
async fn refuse(context: &WebContext, refusal: GuardRefusal) -> Response {
    match refusal {
        GuardRefusal::NoHost => {
            (StatusCode::BAD_REQUEST, "a request needs one Host header with a text\n").into_response()
        }
        GuardRefusal::ForeignHost => {
            context.counts.on_foreign("its Host header is no name of this host");
            let text = "the Host header is no name of this host: use its address, localhost or its host name, or \
                        configure accounts\n";
            (StatusCode::MISDIRECTED_REQUEST, text).into_response()
        }
        GuardRefusal::ForeignPage => {
            context.counts.on_foreign("a page of another site sends it");
            (StatusCode::FORBIDDEN, "pages of other sites may not send requests here\n").into_response()
        }
        GuardRefusal::Unauthorized(has_credentials) => {
            context.counts.unauthorized.fetch_add(1, Ordering::Relaxed);
            if has_credentials {
                tokio::time::sleep(WRONG_CREDENTIALS_PAUSE).await;
            }
            let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"seqcast\", charset=\"UTF-8\"")];
            (StatusCode::UNAUTHORIZED, challenge, "an account is needed: see accounts in the configuration\n")
                .into_response()
        }
    }
}

async fn answer_resource(context: &WebContext, resource: Resource, request: &Parts) -> Response {
    match resource {
        Resource::Liveness => match context.reports.ask(vec![json!({ "show": "health" })]).await {
            // A flood of requests is no reason to restart the peer.
            Ok(_) | Err(ReportFailure::Busy) => "ok\n".into_response(),
            Err(failure) => unavailable(failure),
        },
        Resource::Readiness => match &context.reports.obstacles().await[..] {
            [] => "ready\n".into_response(),
            obstacles => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", obstacles.join("\n"))).into_response(),
        },
        Resource::Metrics => {
            let accept =
                request.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
            let is_open_metrics = accept.contains("application/openmetrics-text");
            let content_type = if is_open_metrics { metrics::OPEN_METRICS } else { metrics::PROMETHEUS };
            match context.reports.overview(metrics::queries()).await {
                Ok(overview) => {
                    let text = metrics::render(&overview, is_open_metrics);
                    ([(header::CONTENT_TYPE, content_type)], text).into_response()
                }
                Err(failure) => unavailable(failure),
            }
        }
        Resource::Asset(asset) => ([(header::CONTENT_TYPE, asset.content_type)], asset.content).into_response(),
        Resource::Report(report) => match answer_report(context, report, request.uri.query()).await {
            Ok(answer) => ([(header::CONTENT_TYPE, "application/json")], answer.to_string()).into_response(),
            Err(failure) => unavailable(failure),
        },
        Resource::Live if request.method == Method::HEAD => StatusCode::OK.into_response(),
        Resource::Live => context.live.join().unwrap_or_else(|| {
            let text = "too many pages show this peer: close one of them\n";
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }),
    }
}

/// Answers that there is no report.
fn unavailable(failure: ReportFailure) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", failure.as_str())).into_response()
}
