//! Answers to requests by HTTP: the checks that every request passes, and the resources.

use super::WebContext;
use super::api::{ApiReport, answer_report, find_report};
use super::assets::{PageAsset, find_asset};
use super::bus_api::{BusCall, add_cross_origin_headers, answer_call, answer_preflight};
use super::event_stream::encode_event;
use super::guard::GuardRefusal;
use super::lan_reports::parse_epoch;
use super::message_refusal::{refuse_message, unavailable};
use super::messages::{PUBLISH_BYTES_MAX, parse_pattern, publish, subscribe};
use super::metrics;
use super::remote_query::QueryFailure;
use super::reports::ReportFailure;
use super::stream_reports::ask_streams;
use crate::daemon::http_server::REQUEST_TIME;
use crate::listener::ftn18::url::decode_form;
use crate::listener::http_access::account_name;
use crate::listener::permissions::Permissions;
use crate::message::{Epoch, QuestionFailure};
use crate::proto::question::Refused;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
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
    /// The reports of another peer, as it gives them.
    OtherPeer(Epoch),
    /// The live snapshots.
    Live,
    /// The messages of a pattern, as they come.
    Messages,
    /// The account of the client, and what it may do.
    Session,
    /// Publishing.
    Publish,
    /// A call of the bus.
    Bus(BusCall),
}

impl Resource {
    /// Finds the resource of a path. The path is compared byte for byte, so no spelling of it means another one.
    fn find(path: &str) -> Option<Resource> {
        if let Some((call, _)) = BusCall::find(path) {
            return Some(Resource::Bus(call));
        }
        Some(match path {
            "/healthz" => Resource::Liveness,
            "/readyz" => Resource::Readiness,
            "/metrics" => Resource::Metrics,
            "/api/v1/live" => Resource::Live,
            "/api/v1/messages" => Resource::Messages,
            "/api/v1/session" => Resource::Session,
            "/api/v1/publish" => Resource::Publish,
            path => match path.strip_prefix("/api/v1/") {
                Some(path) if path.starts_with("peers/") => {
                    Resource::OtherPeer(parse_epoch(path.strip_prefix("peers/")?)?)
                }
                Some(report) => Resource::Report(find_report(report)?),
                None => Resource::Asset(find_asset(path)?),
            },
        })
    }
}

/// Answers a request.
pub(super) async fn answer(State(context): State<Arc<WebContext>>, request: Request) -> Response {
    context.counts.requests.fetch_add(1, Ordering::Relaxed);
    let (request, body) = request.into_parts();
    let resource = Resource::find(request.uri.path());
    let mut response = match check(&context, resource, &request).await {
        Ok(resource) => answer_resource(&context, resource, &request, body).await,
        Err(refused) => refused,
    };
    add_cross_origin_headers(&mut response, &request.headers, origins(&context, resource));
    for (name, value) in SECURITY_HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Returns the origins of other sites whose pages may have a resource.
fn origins(context: &WebContext, resource: Option<Resource>) -> &[String] {
    if let Some(Resource::Bus(_)) = resource { &context.bus.origins } else { &[] }
}

/// Returns the resource that a request may have, or the refusal.
async fn check(context: &WebContext, resource: Option<Resource>, request: &Parts) -> Result<Resource, Response> {
    let origins = origins(context, resource);
    // A link to a subscription would open it.
    let admits_links = !matches!(resource, Some(Resource::Bus(_)));
    if let Err(refusal) = context.guard.check_source(&request.uri, &request.headers, origins, admits_links) {
        return Err(refuse(context, refusal).await);
    }
    if let Some(Resource::Bus(call)) = resource
        && let Some(answer) = answer_preflight(call, request, origins)
    {
        return Err(answer);
    }
    // A program that restarts a dead peer has no account, and learns nothing else.
    if !matches!(resource, Some(Resource::Liveness))
        && let Err(refusal) = context.guard.authenticate(&request.headers)
    {
        return Err(refuse(context, refusal).await);
    }
    let Some(resource) = resource else {
        return Err((StatusCode::NOT_FOUND, "there is no such resource here: begin with /\n").into_response());
    };
    let (allowed, text) = match resource {
        Resource::Publish => ("POST", "a message is published by POST\n"),
        Resource::Bus(call) => (call.allowed_methods(), call.method_refusal()),
        _ => ("GET, HEAD", "this can only be read: GET\n"),
    };
    if !allowed.split(", ").any(|method| request.method == method) {
        return Err((StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, allowed)], text).into_response());
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

async fn answer_resource(context: &Arc<WebContext>, resource: Resource, request: &Parts, body: Body) -> Response {
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
                Ok(mut overview) => {
                    // A store that does not answer leaves only its own metrics without samples.
                    if overview["status"]["streams"].is_object()
                        && let Ok(streams) = context.reports.run(ask_streams).await
                    {
                        metrics::add_streams(&mut overview, streams);
                    }
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
        Resource::Live | Resource::Messages if request.method == Method::HEAD => StatusCode::OK.into_response(),
        Resource::OtherPeer(epoch) => match context.lan.detail(epoch).await {
            Ok(reports) => ([(header::CONTENT_TYPE, "application/json")], reports.to_string()).into_response(),
            Err(failure) => (query_status(failure), format!("{failure}\n")).into_response(),
        },
        Resource::Live => {
            context.live.join(encode_event("reports", &json!(context.lan.all()).to_string())).unwrap_or_else(|| {
                let text = "too many pages show this peer: close one of them\n";
                (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
            })
        }
        Resource::Messages | Resource::Session | Resource::Publish | Resource::Bus(_) => {
            match context.guard.permissions(&request.headers) {
                Ok(permissions) => answer_messages(context, resource, &permissions, request, body).await,
                Err(refusal) => refuse(context, refusal).await,
            }
        }
    }
}

/// Answers a request that depends on the permissions of the client.
async fn answer_messages(
    context: &Arc<WebContext>,
    resource: Resource,
    permissions: &Permissions,
    request: &Parts,
    body: Body,
) -> Response {
    match resource {
        Resource::Session => {
            let account = context.guard.authenticate(&request.headers).ok().flatten().map(account_name);
            let can_publish = context.can_publish && permissions.publish.permits_any();
            let session = json!({ "account": account, "can_publish": can_publish });
            ([(header::CONTENT_TYPE, "application/json")], session.to_string()).into_response()
        }
        Resource::Publish => answer_publish(context, permissions, &request.headers, body).await,
        Resource::Bus(call) => answer_call(context, call, permissions, request, body).await,
        _ => answer_subscription(context, permissions, request.uri.query().unwrap_or_default()).await,
    }
}

/// Begins a subscription, or only checks its pattern if the query has `check=1`.
async fn answer_subscription(context: &Arc<WebContext>, permissions: &Permissions, query: &str) -> Response {
    let value = |name: &str| query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    let refused = |text: &str| (StatusCode::BAD_REQUEST, format!("{text}\n")).into_response();
    let Some(pattern) = value("pattern") else { return refused("write the pattern: ?pattern=plant.*") };
    let pattern = match decode_form("the pattern", pattern) {
        Ok(pattern) => pattern,
        Err(fault) => return refused(&fault.text),
    };
    match parse_pattern(&pattern, permissions) {
        Ok(_) if value("check").is_some() => "ok\n".into_response(),
        Ok(pattern) => subscribe(context, pattern).await.unwrap_or_else(|refusal| refuse_message(context, &refusal)),
        Err(refusal) => refuse_message(context, &refusal),
    }
}

/// Publishes the message of a request. A page of another site cannot send the header without asking first.
async fn answer_publish(context: &WebContext, permissions: &Permissions, headers: &HeaderMap, body: Body) -> Response {
    if !context.can_publish {
        return (StatusCode::FORBIDDEN, "publishing by HTTP is off: http-publish: yes turns it on\n").into_response();
    }
    if headers.get("x-seqcast").is_none_or(|value| value != "publish") {
        let text = "a request that publishes needs the header X-Seqcast: publish\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    match tokio::time::timeout(REQUEST_TIME, axum::body::to_bytes(body, PUBLISH_BYTES_MAX)).await {
        Ok(Ok(body)) => match publish(context, permissions, &body) {
            Ok(()) => StatusCode::NO_CONTENT.into_response(),
            Err(refusal) => refuse_message(context, &refusal),
        },
        Ok(Err(_)) => (StatusCode::PAYLOAD_TOO_LARGE, "a message has at most 262144 bytes here\n").into_response(),
        Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
    }
}

/// Returns the status of an answer without the reports of another peer.
fn query_status(failure: QueryFailure) -> StatusCode {
    match failure {
        QueryFailure::Failed(QuestionFailure::UnknownPeer | QuestionFailure::Gone) => StatusCode::NOT_FOUND,
        QueryFailure::Refused(Refused::NoReports) => StatusCode::FORBIDDEN,
        QueryFailure::Misfit | QueryFailure::Refused(Refused::Malformed | Refused::Unknown) => StatusCode::BAD_GATEWAY,
        QueryFailure::Failed(_) => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}
