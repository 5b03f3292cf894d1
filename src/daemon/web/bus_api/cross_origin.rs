//! Calls by pages of other sites (CORS, WHATWG Fetch): browsers ask first, and hide the answer from sites that are not
//! listed.

use super::BusCall;
use crate::daemon::web::guard::RequestGuard;
use crate::listener::http_api::fields::{HEADER_PREFIX, REPLY_FIELD};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Time in seconds for which a browser may remember the answer to its question.
const MAX_AGE: &str = "600";
/// Fields that a page may send besides those of messages.
const FIELDS: [&str; 5] = ["accept", "authorization", "cache-control", "content-type", "last-event-id"];
/// Fields of an answer that a page may read.
const EXPOSED: &str = "seqcast-publisher, seqcast-epoch, seqcast-reason, retry-after";

/// Answers the question of a browser whether a page of a listed site may call; `None` if the request is none.
pub(in crate::daemon::web) fn answer_preflight(call: BusCall, request: &Parts, origins: &[String]) -> Option<Response> {
    let asked = request.headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)?;
    RequestGuard::listed_origin(&request.headers, origins).filter(|_| request.method == Method::OPTIONS)?;
    let fields = request.headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS);
    let fields = fields.map_or(Some(""), |fields| fields.to_str().ok());
    let is_method = call.allowed_methods().split(", ").any(|method| asked == method);
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    if let Some(fields) = fields.filter(|fields| is_method && fields.split(',').all(is_permitted)) {
        let static_value = HeaderValue::from_static;
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, static_value(call.allowed_methods()));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, static_value(MAX_AGE));
        if let Ok(fields) = HeaderValue::from_str(fields) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, fields);
        }
    }
    Some(response)
}

/// Returns whether a page may send a field.
fn is_permitted(field: &str) -> bool {
    let field = field.trim().to_ascii_lowercase();
    field.is_empty() || FIELDS.contains(&&*field) || field == REPLY_FIELD || field.starts_with(HEADER_PREFIX)
}

/// Adds the headers by which the browser gives the answer to a page of a listed site.
pub(in crate::daemon::web) fn add_cross_origin_headers(
    response: &mut Response,
    request: &HeaderMap,
    origins: &[String],
) {
    if origins.is_empty() {
        return;
    }
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = RequestGuard::listed_origin(request, origins) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        let policy = HeaderName::from_static("cross-origin-resource-policy");
        headers.insert(policy, HeaderValue::from_static("cross-origin"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    #[test]
    fn listed_sites_may_send_known_fields() {
        let origins = ["https://panel.example".to_owned()];
        let ask = |origin: &str, method: &str, fields: &str| {
            let request = Request::options("/pub/a")
                .header("origin", origin)
                .header("access-control-request-method", method)
                .header("access-control-request-headers", fields);
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let answer = answer_preflight(BusCall::Publish, &parts, &origins)?;
            Some(answer.headers().get("access-control-allow-headers").map(|fields| fields.to_str().unwrap().to_owned()))
        };
        let listed = "https://panel.example";
        let fields = "authorization, content-type,Seqcast-Header-Unit";
        assert_eq!(ask(listed, "POST", fields), Some(Some(fields.to_owned())));
        assert_eq!(ask(listed, "POST", "x-other"), Some(None));
        assert_eq!(ask(listed, "DELETE", ""), Some(None));
        assert_eq!(ask("https://evil.example", "POST", ""), None);
    }
}
