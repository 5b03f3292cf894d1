//! Admission of requests: the names in their Host headers, the pages that send them, and the accounts.

use crate::listener::access::{Access, Account};
use crate::listener::http_access::{authenticate, is_own_host, is_own_origin};
use crate::listener::permissions::Permissions;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use std::sync::Arc;

/// Header in which browsers say where the page that sends a request comes from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GuardRefusal {
    /// The request has no Host header, or several, or one that is not text.
    NoHost,
    /// The Host header names this host neither by an address nor by its name.
    ForeignHost,
    /// A page of another site sends the request.
    ForeignPage,
    /// The request has no valid credentials although accounts are configured. Holds whether it has any.
    Unauthorized(bool),
}

/// Decides which requests are answered.
#[derive(Debug)]
pub(super) struct RequestGuard {
    access: Arc<Access>,
    /// Name of this host.
    host_name: String,
}

impl RequestGuard {
    /// Creates the guard of a server on the host with this name.
    pub(super) fn new(access: Arc<Access>, host_name: String) -> RequestGuard {
        RequestGuard { access, host_name }
    }

    /// Returns the Origin of a request that is among these, which are in lower case.
    pub(super) fn listed_origin<'a>(headers: &'a HeaderMap, origins: &[String]) -> Option<&'a HeaderValue> {
        let mut sent = headers.get_all(header::ORIGIN).iter();
        let origin = sent.next().filter(|_| sent.next().is_none())?;
        let is_listed = |text: &str| origins.iter().any(|listed| listed.eq_ignore_ascii_case(text));
        origin.to_str().is_ok_and(is_listed).then_some(origin)
    }

    /// Checks the names in a request, and the page that sends it. Pages of the sites in `origins` are admitted, and with
    /// `admits_links` links on any page. With accounts any name is accepted: a page of another site does not have the
    /// credentials.
    ///
    /// # Errors
    /// The request must not be answered.
    pub(super) fn check_source(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        origins: &[String],
        admits_links: bool,
    ) -> Result<(), GuardRefusal> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok()).ok_or(GuardRefusal::NoHost)?;
        if hosts.next().is_some() {
            return Err(GuardRefusal::NoHost);
        }
        let names = [Some(host), uri.authority().map(|authority| authority.as_str())];
        let is_open = !self.access.requires_authentication();
        if is_open && !names.into_iter().flatten().all(|name| is_own_host(name, &self.host_name)) {
            return Err(GuardRefusal::ForeignHost);
        }
        if RequestGuard::listed_origin(headers, origins).is_some() {
            return Ok(());
        }
        let is_own = |origin: &HeaderValue| origin.to_str().is_ok_and(|origin| is_own_origin(origin, host));
        // A link on another page may lead here: such a request has no Origin.
        let is_of_site = |site: &HeaderValue| site == "same-origin" || site == "none";
        let is_link = admits_links && headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
        if headers.get_all(header::ORIGIN).iter().all(is_own)
            && (is_link || headers.get_all(FETCH_SITE).iter().all(is_of_site))
        {
            return Ok(());
        }
        Err(GuardRefusal::ForeignPage)
    }

    /// Returns whether a page of any site may have caused a request: browsers send the origin neither of images and
    /// the like, nor to hosts beyond loopback without encryption.
    pub(super) fn may_be_of_any_page(headers: &HeaderMap) -> bool {
        let is_browser = |agent: &HeaderValue| agent.as_bytes().starts_with(b"Mozilla/");
        headers.get(header::USER_AGENT).is_some_and(is_browser)
            && !headers.contains_key(header::ORIGIN)
            && !headers.contains_key(FETCH_SITE)
    }

    /// Returns the account of a request; `None` if the server needs none.
    ///
    /// # Errors
    /// The credentials are missing or wrong.
    pub(super) fn authenticate(&self, headers: &HeaderMap) -> Result<Option<&Account>, GuardRefusal> {
        if !self.access.requires_authentication() {
            return Ok(None);
        }
        let header = headers.get(header::AUTHORIZATION).ok_or(GuardRefusal::Unauthorized(false))?;
        let account = header.to_str().ok().and_then(|authorization| authenticate(&self.access, authorization));
        account.map(Some).ok_or(GuardRefusal::Unauthorized(true))
    }

    /// Returns the permissions of the account of a request. Without accounts those of the host apply.
    ///
    /// # Errors
    /// The credentials are missing or wrong.
    pub(super) fn permissions(&self, headers: &HeaderMap) -> Result<Permissions, GuardRefusal> {
        Ok(self.access.permissions_of(self.authenticate(headers)?).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::access::Credentials;
    use crate::listener::http_access::account_name;

    fn guard(accounts: &[&str]) -> RequestGuard {
        let account = |token: &&str| Account::new(Credentials::Token((*token).to_owned()));
        let accounts = accounts.iter().map(account).collect();
        RequestGuard::new(Arc::new(Access { accounts, ..Access::default() }), "plant-7".to_owned())
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[track_caller]
    fn check(
        guard: &RequestGuard,
        uri: &'static str,
        pairs: &[(&'static str, &str)],
        expected: Result<(), GuardRefusal>,
    ) {
        assert_eq!(guard.check_source(&Uri::from_static(uri), &headers(pairs), &[], true), expected, "{uri} {pairs:?}");
    }

    #[test]
    fn host_must_be_an_own_name() {
        let open = guard(&[]);
        check(&open, "/", &[("host", "127.0.0.1:7580")], Ok(()));
        check(&open, "/", &[("host", "plant-7")], Ok(()));
        check(&open, "/", &[("host", "evil.example")], Err(GuardRefusal::ForeignHost));
        check(&open, "http://evil.example/", &[("host", "127.0.0.1")], Err(GuardRefusal::ForeignHost));
        check(&open, "/", &[], Err(GuardRefusal::NoHost));
        let mut twice = headers(&[("host", "127.0.0.1")]);
        twice.append(header::HOST, HeaderValue::from_static("evil.example"));
        assert_eq!(open.check_source(&Uri::from_static("/"), &twice, &[], true), Err(GuardRefusal::NoHost));
        check(&guard(&["t0ken"]), "/", &[("host", "seqcast.plant.example")], Ok(()));
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let open = guard(&[]);
        let host = ("host", "127.0.0.1:7580");
        check(&open, "/", &[host, ("origin", "http://127.0.0.1:7580")], Ok(()));
        check(&open, "/", &[host, ("sec-fetch-site", "same-origin")], Ok(()));
        check(&open, "/", &[host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], Ok(()));
        for foreign in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            check(&open, "/", &[host, foreign], Err(GuardRefusal::ForeignPage));
        }
        let sent = [host, ("origin", "http://evil.example"), ("sec-fetch-mode", "navigate")];
        check(&open, "/", &sent, Err(GuardRefusal::ForeignPage));
    }

    #[test]
    fn pages_of_listed_sites_are_admitted() {
        let open = guard(&[]);
        let check = |pairs: &[(&'static str, &str)]| {
            let origins = ["https://panel.example".to_owned()];
            open.check_source(&Uri::from_static("/pub/a"), &headers(pairs), &origins, false)
        };
        let (host, site) = (("host", "127.0.0.1:7580"), ("sec-fetch-site", "cross-site"));
        assert_eq!(check(&[host, site, ("origin", "https://panel.example")]), Ok(()));
        assert_eq!(
            check(&[("host", "evil.example"), ("origin", "https://panel.example")]),
            Err(GuardRefusal::ForeignHost)
        );
        for origin in ["http://panel.example", "https://panel.example:8443", "https://panel.example.evil", "null"] {
            assert_eq!(check(&[host, site, ("origin", origin)]), Err(GuardRefusal::ForeignPage), "{origin}");
        }
        let mut twice = headers(&[host, ("origin", "https://panel.example")]);
        twice.append(header::ORIGIN, HeaderValue::from_static("https://evil.example"));
        let origins = ["https://panel.example".to_owned()];
        let checked = open.check_source(&Uri::from_static("/pub/a"), &twice, &origins, false);
        assert_eq!(checked, Err(GuardRefusal::ForeignPage));
        assert_eq!(check(&[host, site]), Err(GuardRefusal::ForeignPage));
        assert_eq!(check(&[host, site, ("sec-fetch-mode", "navigate")]), Err(GuardRefusal::ForeignPage));
    }

    #[test]
    fn requests_of_unknown_pages_are_recognized() {
        let agent = ("user-agent", "Mozilla/5.0 (X11; Linux x86_64)");
        assert!(RequestGuard::may_be_of_any_page(&headers(&[agent])));
        for known in [("origin", "http://127.0.0.1:7580"), ("sec-fetch-site", "same-origin")] {
            assert!(!RequestGuard::may_be_of_any_page(&headers(&[agent, known])));
        }
        assert!(!RequestGuard::may_be_of_any_page(&headers(&[("user-agent", "curl/8.14.1")])));
        assert!(!RequestGuard::may_be_of_any_page(&headers(&[])));
    }

    #[test]
    fn accounts_must_authenticate() {
        let with = |authorization: &str| {
            guard(&["t0ken"])
                .authenticate(&headers(&[("authorization", authorization)]))
                .map(|account| account.map(|account| account_name(account).to_owned()))
        };
        assert_eq!(with("Bearer t0ken"), Ok(Some("token".to_owned())));
        assert_eq!(with("Bearer other"), Err(GuardRefusal::Unauthorized(true)));
        let closed = guard(&["t0ken"]);
        assert_eq!(closed.authenticate(&HeaderMap::new()), Err(GuardRefusal::Unauthorized(false)));
        assert_eq!(closed.permissions(&HeaderMap::new()), Err(GuardRefusal::Unauthorized(false)));
        assert_eq!(guard(&[]).authenticate(&HeaderMap::new()), Ok(None));
    }
}
